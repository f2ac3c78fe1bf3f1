"""What to write instead of a body that no kernel computes: one sentence for each reason, as `--explain` says it.

Each was tried: the body written that way becomes a kernel, and gives the same numbers (test_loop_reasons.py).
"""

from __future__ import annotations

from lstm_ir.ops.scan.tuned import UNROLLED_NODES, UNROLLED_STEPS

SLICE = "slice rows before the loop; pick columns with a step by a product with a matrix of zeros and ones"
JOIN_ROWS = "join the rows before the loop"
RESHAPE = "reshape before the loop, or after it"
COLUMNS_LAST = "transpose before the loop, so that the columns are the last axis"
MIXED_ROWS = "one row that holds all: carry [1,B*H] where it is [B,H], and a matrix with blocks for a product"
NUMBERS = "numbers in place of the names of these sizes"
NO_ELEMENTS = "leave it out"
FOLD_AXES = "fold the leading axes into that of the rows, before the loop"
ONE_TENSOR = "join what is scanned along the columns before the loop, and slice it inside"
CONVERT_BEFORE = "convert it to f32, or to i32, before the loop"
THROUGH_F32 = "convert to f32 first"
BY_FLOOR = "x - y * q, where q is x / y without its fraction: select(x / y < 0, ceil(x / y), floor(x / y))"
KNOWN_END = "count, where the number of steps is known before the loop"
ONE_DTYPE = "bring all carries and results to f32"
PICK = "rows of zeros and ones: matmul(one_hot(i, N), table) picks rows, sum(table * one_hot(i, N), axis) elements"
OUTSIDE = "compute it before the loop, or after it"

_OF_OP = {
    "gather": "take the rows before the loop, and scan them",
    "dynamic_slice": "scan the rows that it picks",
    "reverse": "reverse before the loop, or multiply by the identity with its rows reversed",
    "pad": "spread elements by a product with a matrix of zeros and ones",
    "cumsum": "multiply by a triangular matrix of ones",
    "stencil": "multiply by a matrix that has the taps on its diagonals",
    "scan": f"at most {UNROLLED_STEPS} inner steps, of {UNROLLED_NODES} ops in all; or carries of one number for each"
    " row and no stacked results; or the inner loop before the outer one, with a longer batch",
}


def of_op(name: str) -> str:
    """Instead of an op that kernels do not have."""
    return _OF_OP.get(name, OUTSIDE)


def of_arithmetic(op: str) -> str:
    """Instead of an elementwise op of floats that kernels do not have."""
    return BY_FLOOR if op == "remainder" else OUTSIDE
