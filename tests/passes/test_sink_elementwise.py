"""`sink-elementwise` moves what kernels compute: each op of its list, of each of its types."""

from __future__ import annotations

import pytest

import lstm_ir as li
from lstm_ir import ops
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.carry_kinds import loops_of
from lstm_ir.ir.graph import make
from lstm_ir.ir.opdef import OPS
from lstm_ir.ir.types import DType
from lstm_ir.passes.sink_elementwise import KERNEL_OPS, KERNEL_TYPES

TWO = {"add", "subtract", "multiply", "divide", "maximum", "minimum"}
FLOATS = [t for t in KERNEL_TYPES if t.is_float]


def computed(op: str, x: li.Value, to: DType) -> li.Value:
    """`op` of the row x, as x's type."""
    if op == "convert":
        return ops.convert(ops.convert(x, to), x.dtype)
    if op == "compare":
        return ops.convert(x > 0.5, x.dtype)
    if op == "select":
        return ops.select(x > 0.5, x, x * 2.0)
    return make(OPS[op], *((x, x) if op in TWO else (x,))).values[0]


@pytest.mark.parametrize("target", ["cpu:x86-64-v2", "cpu:x86-64-v4", "cpu:aarch64"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", sorted(KERNEL_OPS))
def test_a_loop_with_a_moved_op_is_a_kernel(op: str, dtype: DType, target: str) -> None:
    x = li.input("x", ("T", 3, 5), dtype)
    for to in KERNEL_TYPES if op == "convert" else KERNEL_TYPES[:1]:
        before = computed(op, x, to)
        _, y = li.scan(lambda h, row: ((new := h * 0.5 + row), new), li.zeros((3, 5), dtype), before)
        graph = li.Graph("g", [x], {"y": y})
        lowered = prepare(graph, resolve(target), {"kernels": True})
        (loop,) = loops_of(lowered.optimized.entries["main"])
        assert [v.op for v in loop.xs] == ["parameter"]
        said = [n for n in lowered.report.notes if n.startswith("scan at")]
        assert said
        assert all(": kernel, " in n for n in said)
