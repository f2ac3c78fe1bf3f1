"""What TensorFlow's block ops take: sizes, operand checks, and the rules of their float attributes.

TensorFlow checks some shapes, forgets others, and aborts the process for a few
(docs/tf-block-ops.md has the table). Here every shape is checked when a node is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Range, need, need_equal, need_rows
from lstm_ir.ir.types import DType, TensorType

ICFO = ("i", "ci", "f", "o")
"""Blocks of the 4C axis in LSTMBlockCell and BlockLSTM."""
IFCO = ("i", "f", "ci", "o")
"""Blocks of the 4C axis in BlockLSTMV2; also the order of the core op's gates."""


class TfOperands(NamedTuple):
    """Types, arrays or values of the operands that the LSTM ops share, in TensorFlow's order."""

    x: Any
    cs_prev: Any
    h_prev: Any
    w: Any
    wci: Any
    wcf: Any
    wco: Any
    b: Any

    @property
    def peepholes(self) -> tuple[Any, Any, Any]:
        """wci, wcf, wco."""
        return self.wci, self.wcf, self.wco


_SMALLEST = np.finfo(np.float32).smallest_normal


@dataclass(frozen=True)
class TfSizes:
    """T steps (None for a cell), B rows, I columns of x, C units."""

    T: Dim | None
    B: Dim
    I: Dim
    C: int
    dtype: DType

    def of(self, *shape: Dim) -> TensorType:
        """A type of the ops' one float dtype."""
        return TensorType(shape, self.dtype)

    @property
    def rows(self) -> TensorType:
        """[T,B,C], for a cell [B,C]."""
        return self.of(self.B, self.C) if self.T is None else self.of(self.T, self.B, self.C)

    @property
    def state(self) -> TensorType:
        """[B,C]."""
        return self.of(self.B, self.C)

    @property
    def fan_in(self) -> Dim:
        """I + C, the rows of w."""
        return dims.add(self.I, self.C)


def sizes(x: TensorType, state: TensorType, name: str, steps: bool) -> TfSizes:
    """Sizes from x [T,B,I] or [B,I] and the state operand `name` [B,C]; both checked."""
    need(x.dtype.is_float, f"x has {x.dtype} elements, not floats")
    shown, rank = ("[T,B,I]", 3) if steps else ("[B,I]", 2)
    need(x.rank == rank, f"x is {x}, expected {shown}")
    need(state.rank == 2, f"{name} is {state}, expected [B,C]")
    C = state.shape[1]
    need(isinstance(C, int), f"{name} is {state}; the number of units is a number, not a name")
    assert isinstance(C, int)
    s = TfSizes(x.shape[0] if steps else None, x.shape[-2], x.shape[-1], C, x.dtype)
    exactly(name, state, s.state, "[B,C]")
    return s


def exactly(name: str, got: TensorType, want: TensorType, symbols: str) -> None:
    """Refuse an operand of another dtype or shape."""
    shown = f"{symbols} = [{','.join(map(str, want.shape))}]"
    problem = f"{name} is {got}, x has {want.dtype} elements; convert one of them"
    need(got.dtype is want.dtype, problem)
    need(got.rank == want.rank, f"{name} is {got}, expected {shown}")
    for a, b in zip(got.shape, want.shape, strict=True):
        need_equal(a, b, f"{name} is {got}, expected {shown}")


def lstm_sizes(v: TfOperands, steps: bool, exact: bool) -> TfSizes:
    """Sizes from the shared operands, all checked.

    Peephole vectors have length C where `exact`; without it, any.
    """
    s = sizes(v.x, v.cs_prev, "cs_prev", steps)
    exactly("h_prev", v.h_prev, s.state, "[B,C]")
    exactly("w", v.w, s.of(s.fan_in, 4 * s.C), "[I+C,4C]")
    for name, p in zip(("wci", "wcf", "wco"), v.peepholes, strict=True):
        if exact:
            exactly(name, p, s.of(s.C), "[C]")
        else:
            need(p.rank == 1, f"{name} is {p}, expected a vector")
            exactly(name, p, s.of(p.shape[0]), "[C]")
    exactly("b", v.b, s.of(4 * s.C), "[4C]")
    return s


def all_exactly(names: tuple[str, ...], got: tuple[TensorType, ...], want: TensorType, symbols: str) -> None:
    """The same check for several operands."""
    for name, t in zip(names, got, strict=True):
        exactly(name, t, want, symbols)


def not_empty(s: TfSizes) -> None:
    """Refuse B = 0 and C = 0, which TensorFlow's LSTMBlockCell does not take."""
    need(s.C > 0, "cs_prev is empty: C = 0")
    need_rows(s.B, "B", "cs_prev is empty")


def scalar_count(t: TensorType) -> None:
    """Refuse a seq_len_max that is not an i64 scalar."""
    good = t.rank == 0 and t.dtype is DType.i64
    need(good, f"seq_len_max is {t}, expected i64[]")


def count_range(node: Node) -> tuple[Range, ...]:
    """0 <= seq_len_max <= T."""
    x = node.arg("x")
    assert isinstance(x, Value)
    return (Range("seq_len_max", 0, x.shape[0]),)


def clip_limit(cell_clip: float, dtype: DType) -> float | None:
    """The limit in the tensors' type, None where the clip is off.

    TensorFlow tests the float32 attribute: 0, a negative number, NaN and (denormals being flushed)
    a subnormal turn the clip off. The limit is then rounded to the tensors' type, where it may
    become 0 (cs is 0 then) or inf.
    """
    value = as_float32(cell_clip)
    return rounded(value, dtype) if value >= _SMALLEST else None


def forget(forget_bias: float, dtype: DType) -> float:
    """forget_bias as it is added to tensors of `dtype`."""
    return rounded(as_float32(forget_bias), dtype)


def as_float32(value: float) -> np.float32:
    """An attribute as TensorFlow keeps it."""
    with np.errstate(over="ignore"):
        return np.float32(value)


def rounded(value: Any, dtype: DType) -> float:
    """A float32 attribute in the tensors' type."""
    with np.errstate(over="ignore"):
        return float(np.asarray(value, np.float32).astype(dtype.numpy))
