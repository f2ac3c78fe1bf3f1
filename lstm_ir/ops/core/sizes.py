"""What the type rules of `lstm`, `gru` and `rnn` share: sizes, masks, attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node
from lstm_ir.ir.opdef import Attr, Range, need, need_equal
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.core.activations import Act, parse
from lstm_ir.ops.core.cell import Cell

Maybe = TensorType | None
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Per direction of a layer, whether it runs from the last step to the first."""

SHARED_ATTRS: Mapping[str, Attr] = {
    "direction": Attr("str", "forward"),
    "layout": Attr("str", "time"),
    "activations": Attr("strs", ()),
    "gate_clip": Attr("float", 0.0),
    "padding": Attr("str", "zero"),
    "save": Attr("bool", False),
}


@dataclass(frozen=True)
class Sizes:
    """T steps, B rows, D directions, H hidden, P width of h."""

    T: Dim
    B: Dim
    D: int
    H: int
    P: int
    dtype: DType
    batch_major: bool

    def rows(self, width: Dim) -> TensorType:
        """One row per step and sequence: [T,B,D*width] or [B,T,D*width]."""
        lead = (self.B, self.T) if self.batch_major else (self.T, self.B)
        return TensorType((*lead, dims.mul(self.D, width)), self.dtype)

    def state(self, width: Dim) -> TensorType:
        """[D,B,width]."""
        return TensorType((self.D, self.B, width), self.dtype)


def one_of(attr: str, value: str, choices: Any) -> None:
    """Refuse a word that is not one of the choices."""
    need(value in choices, f"{attr} is {value!r}, not one of {', '.join(choices)}")


def sizes(
    cell: Cell, x: TensorType, w_ih: Maybe, w_hh: TensorType, direction: str, layout: str, w_hr: Maybe = None
) -> Sizes:
    """Check x and the weight matrices, and read the sizes from them."""
    gates = len(cell.gates)
    one_of("direction", direction, DIRECTIONS)
    one_of("layout", layout, ("time", "batch"))
    D = len(DIRECTIONS[direction])
    need(x.rank == 3, f"x is {x}, not [T,B,I] or, with layout batch, [B,T,I]")
    need(x.dtype.is_float, f"x has {x.dtype} elements, not floats")
    both = f". Two directions take the weights of both: {_STACKED}" if D == 2 and w_hh.rank == 2 else ""
    need(w_hh.rank == 3, f"w_hh is {w_hh}, not [D,{gates}*H,P]{both}")
    wide, P = w_hh.shape[1], w_hh.shape[2]
    need(isinstance(wide, int) and isinstance(P, int), f"w_hh is {w_hh}; hidden sizes are numbers, not names")
    assert isinstance(wide, int)
    assert isinstance(P, int)
    swapped = _swapped(isinstance(P, int) and P == gates * wide, "w_hh")
    other = swapped or _other_cell(wide, P, gates)
    need(wide % gates == 0, f"w_hh is {w_hh}; {wide} rows are not {gates} gates of equal size{other}")
    H = wide // gates
    T, B = (x.shape[1], x.shape[0]) if layout == "batch" else (x.shape[0], x.shape[1])
    s = Sizes(T, B, D, H, P, x.dtype, layout == "batch")
    exactly("w_hh", w_hh, s, (D, wide, P))
    if w_hr is None:
        need(P == H, f"w_hh is {w_hh}: without a projection it has {H} columns, got {P}{other}")
    else:
        exactly("w_hr", w_hr, s, (D, P, H))
    if w_ih is None:
        need_equal(x.shape[2], D * wide, f"without w_ih, x has {D}*{gates}*{H} = {D * wide} columns, got {x}")
    else:
        exactly("w_ih", w_ih, s, (D, wide, x.shape[2]))
    return s


def exactly(name: str, t: Maybe, s: Sizes, shape: tuple[Dim, ...]) -> None:
    """Refuse an operand of another shape or dtype; None passes."""
    same(name, t, TensorType(shape, s.dtype))


def same(name: str, t: Maybe, want: TensorType) -> None:
    """Refuse an operand of another type; None passes."""
    if t is None:
        return
    shown = f"[{','.join(map(str, want.shape))}]{_hint(name, t, want)}"
    need(t.dtype is want.dtype, f"{name} is {t}, x has {want.dtype} elements; convert one of them")
    need(t.rank == want.rank, f"{name} is {t}, expected {shown}")
    for got, size in zip(t.shape, want.shape, strict=True):
        need_equal(got, size, f"{name} is {t}, expected {shown}")


def _hint(name: str, t: TensorType, want: TensorType) -> str:
    """What was probably meant: a matrix the other way round, or two biases."""
    last, rank = want.shape[-2:], want.rank
    if name.startswith("w_") and t.rank == rank and t.shape[-2:] == last[::-1] != last:
        return _swapped(True, name)
    if name == "b" and t.is_static and want.is_static and _elements(t) == 2 * _elements(want):
        return f". Two biases? b is their sum: {TWO_BIASES}"
    return ""


def _other_cell(rows: int, columns: Dim, gates: int) -> str:
    """Whose weights these are, where another cell has so many gates for each column."""
    for count, words, cell in ((4, "Four rows", "an LSTM"), (3, "Three rows", "a GRU"), (1, "One row", "an RNN")):
        if count != gates and rows == count * columns:
            return f". {words} for each column: the weights of {cell}?"
    return ""


def _swapped(holds: bool, name: str) -> str:
    return f". Transposed? Give {name}.T" if holds else ""


_STACKED = "np.stack([forward, backward])"
TWO_BIASES = "b = b_ih + b_hh (of a GRU, without the part n of b_hh, which is b_hn)"


def _elements(t: TensorType) -> int:
    return math.prod(d for d in t.shape if isinstance(d, int))


def first_state(name: str, t: Maybe, s: Sizes, width: Dim, b: Maybe) -> None:
    """Refuse a first state that is not [D,B,width]; where it has the shape of the bias, say what a bias is here."""
    if t is not None and b is not None and t.dtype is b.dtype and t.shape in (b.shape, b.shape[1:]):
        want = TensorType((s.D, s.B, width), s.dtype)
        problem = (
            f"{name} is {t}, expected [{','.join(map(str, want.shape))}]. A second bias? There is one: {TWO_BIASES}"
        )
        need(t == want, problem)
    exactly(name, t, s, (s.D, s.B, width))


def check_masks(s: Sizes, lengths: Maybe, count: Maybe, recurrent_mask: Maybe) -> None:
    """Refuse lengths, count or mask of another type."""
    if lengths is not None:
        good = lengths.dtype is DType.i32 and lengths.rank == 1
        need(good, f"lengths is {lengths}, not i32[{s.B}]")
        need_equal(lengths.shape[0], s.B, f"lengths is {lengths}, not i32[{s.B}]")
    if count is not None:
        good = count.rank == 0 and count.dtype in (DType.i32, DType.i64)
        need(good, f"count is {count}, not i32[] or i64[]")
    exactly("recurrent_mask", recurrent_mask, s, (s.D, s.B, s.P))


def acts(names: tuple[str, ...], default: tuple[str, ...], D: int) -> tuple[tuple[Act, ...], ...]:
    """Activations per direction."""
    k = len(default)
    need(len(names) in (0, k * D), f"{len(names)} activations for {D} directions of {k}; give {k * D} or none")
    flat = [parse(t) for t in (names if names else default * D)]
    return tuple(tuple(flat[d * k : d * k + k]) for d in range(D))


def need_slopes(acts_by_direction: tuple[tuple[Act, ...], ...]) -> None:
    """In a gradient's type rule: refuse an activation whose output does not tell its slope."""
    for a in {a for row in acts_by_direction for a in row}:
        need(a.has_slope, f"activation {a} has no gradient: its output does not tell its slope")


def clip_limit(name: str, limit: float) -> None:
    """Refuse a clip that is negative or NaN; 0 is off."""
    need(limit >= 0, f"{name} is {limit}; it is 0 (off) or positive")


def ranges(node: Node) -> tuple[Range, ...]:
    """0 <= lengths <= T and 0 <= count <= T."""
    x = node.args[0]
    assert x is not None
    assert not isinstance(x, tuple)
    T = x.shape[1] if node.attrs["layout"] == "batch" else x.shape[0]
    return tuple(Range(n, 0, T) for n in ("lengths", "count") if node.arg(n) is not None)
