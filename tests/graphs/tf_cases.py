"""Operands for the block ops: shapes by name, random values, graphs, and the recorded cases."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import paths
from one_op import close as close
from one_op import expanded as expanded
from one_op import graph as graph
from one_op import manifest

import lstm_ir as li

Array = np.ndarray[Any, Any]
GOLDEN = paths.GOLDEN / "tf"

CELL, CELL_GRAD = "tf.LSTMBlockCell", "tf.LSTMBlockCellGrad"
SEQ, SEQ_V2 = "tf.BlockLSTM", "tf.BlockLSTMV2"
SEQ_GRAD, SEQ_GRAD_V2 = "tf.BlockLSTMGrad", "tf.BlockLSTMGradV2"
GRU, GRU_GRAD = "tf.GRUBlockCell", "tf.GRUBlockCellGrad"
OPS = (CELL, CELL_GRAD, SEQ, SEQ_V2, SEQ_GRAD, SEQ_GRAD_V2, GRU, GRU_GRAD)
TOLERANCE = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 8e-2, "float64": 1e-11}
GATES = ("i", "f", "o", "r", "u")  # saved values of a logistic


def shapes(op: str, T: Any, B: Any, I: Any, C: Any) -> dict[str, tuple[Any, ...]]:
    """Operands of `op` in TensorFlow's order, with shapes."""
    if op in (GRU, GRU_GRAD):
        rows = _sum(I, C)
        out: dict[str, tuple[Any, ...]] = {"x": (B, I), "h_prev": (B, C), "w_ru": (rows, 2 * C)}
        out |= {"w_c": (rows, C), "b_ru": (2 * C,), "b_c": (C,)}
        return out | dict.fromkeys(("r", "u", "c", "d_h") if op == GRU_GRAD else (), (B, C))
    steps = op not in (CELL, CELL_GRAD)
    lead = (T, B) if steps else (B,)
    out = {"seq_len_max": ()} if steps else {}
    out |= {"x": (*lead, I), "cs_prev": (B, C), "h_prev": (B, C), "w": (_sum(I, C), 4 * C)}
    out |= {"wci": (C,), "wcf": (C,), "wco": (C,), "b": (4 * C,)}
    if "Grad" in op:
        saved = ("i", "cs", "f", "o", "ci", "co", *(("h",) if steps else ()), "cs_grad", "h_grad")
        out |= dict.fromkeys(saved, (*lead, C))
    return out


def _sum(a: Any, b: Any) -> Any:
    return a + b if isinstance(a, int) else f"{a}+{b}"


def operands(
    r: np.random.Generator,
    op: str,
    sizes: tuple[int, int, int, int],
    kind: Any = np.float32,
    count: int | None = None,
    scale: float = 1.0,
) -> dict[str, Array]:
    """Random operands; saved gates lie in (0,1) and are otherwise unrelated to the rest."""
    out: dict[str, Array] = {}
    for name, shape in shapes(op, *sizes).items():
        if name == "seq_len_max":
            out[name] = np.asarray(sizes[0] if count is None else count, np.int64)
        elif name in GATES:
            out[name] = r.uniform(0, 1, shape).astype(kind)
        elif name in ("ci", "co", "c"):
            out[name] = r.uniform(-1, 1, shape).astype(kind)
        else:
            out[name] = (r.standard_normal(shape) * scale).astype(kind)
    return out


class Recorded:
    """One case that TensorFlow made."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.id: str = entry["id"]
        self.op = f"tf.{entry['op']}"
        self.attrs: dict[str, Any] = entry["call_attrs"]
        self.kind: str = entry["dtype"]
        self.tolerance: float = entry["suggested_tol"]["atol"]
        with np.load(GOLDEN / entry["file"]) as z:
            arrays = {k: z[k] for k in z.files}
        self.inputs = {k[3:]: a for k, a in arrays.items() if k.startswith("in_")}
        self.results = {k: arrays[f"out_{k}"] for k in entry["outputs"]}
        self.derived = {k: arrays[f"derived_{k}"] for k in entry["derived"]}

    def graph(self) -> li.Graph:
        """The op over inputs."""
        return graph(self.op, self.inputs, self.attrs, name=self.id)

    def __repr__(self) -> str:
        return self.id


@cache
def recorded() -> tuple[Recorded, ...]:
    """All recorded cases."""
    return tuple(map(Recorded, manifest(GOLDEN)["cases"]))


GRADS = (SEQ_GRAD, SEQ_GRAD_V2)


def required(op: str, use_peephole: bool) -> dict[str, Any]:
    """use_peephole where the op has it."""
    return {} if op in (GRU, GRU_GRAD) else {"use_peephole": use_peephole}


# Every op with its values of use_peephole.
PEEPHOLES = [(op, p) for op in OPS for p in (False, True) if not (p and op in (GRU, GRU_GRAD))]
DEAD: dict[str, tuple[str, ...]] = {
    CELL_GRAD: ("x", "h_prev", "w", "b"),
    SEQ_GRAD: ("b",),
    SEQ_GRAD_V2: ("b",),
    GRU_GRAD: ("x", "b_ru", "b_c"),
}
VECTORS = ("wci", "wcf", "wco")
