"""What MPSGraph's recurrent ops take: sizes, direction blocks, and the check of every operand.

T steps, N rows of the batch, I features, H units, D = 2 when bidirectional, else 1. Of an axis with
D blocks, block 0 is the forward direction. The choices where Apple's text is silent, with their
marks of certainty: docs/mpsgraph-choices.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.opdef import Attr, need, need_equal, need_rows
from lstm_ir.ir.types import DType, TensorType

Maybe = TensorType | None
Types = Mapping[str, Any]
"""Operand types by name; None where the operand is nil."""

DIRECTION: Mapping[str, Attr] = {"reverse": Attr("bool", False), "bidirectional": Attr("bool", False)}


@dataclass(frozen=True)
class MpsSizes:
    """T steps, N rows, H units, D directions, G gates."""

    T: Dim
    N: Dim
    H: int
    D: int
    G: int
    dtype: DType

    def rows(self, gates: int = 1) -> TensorType:
        """[T,N,D*gates*H]."""
        return TensorType((self.T, self.N, self.D * gates * self.H), self.dtype)

    @property
    def state(self) -> TensorType:
        """[N,D*H]."""
        return TensorType((self.N, self.D * self.H), self.dtype)

    def width(self, gates: int) -> str:
        """D*gates*H as Apple writes it: 4H, 8H."""
        blocks = self.D * gates
        return "H" if blocks == 1 else f"{blocks}H"

    @property
    def kind(self) -> str:
        """What the descriptor says of directions, for messages."""
        return "bidirectional" if self.D == 2 else "not bidirectional"


def names(operands: str) -> tuple[str, ...]:
    """Operand names of a `define` string."""
    return tuple(t.rstrip("?") for t in operands.split())


def sizes(v: Types, a: Mapping[str, Any], gates: int) -> MpsSizes:
    """Sizes from the operands that the three forward ops share, all of them checked."""
    x, R = v["source"], v["recurrentWeight"]
    D = 2 if a["bidirectional"] else 1
    need(x.dtype.is_float, f"source has {x.dtype} elements, not floats")
    need(x.rank == 3, f"source is {x}, expected [T,N,I]")
    block = f"{gates}H" if gates > 1 else "H"
    shown = f"[2,{block},H]" if D == 2 else f"[{block},H]"
    H = R.shape[-1] if R.rank == D + 1 else 0
    s = MpsSizes(x.shape[0], x.shape[1], H if isinstance(H, int) else 0, D, gates, x.dtype)
    problem = f"recurrentWeight is {R}, expected {shown}: the descriptor is {s.kind}"
    need(R.rank == D + 1, problem)
    need(isinstance(H, int), f"recurrentWeight is {R}; hidden sizes are numbers, not names")
    one = (gates * s.H, s.H)
    exactly("recurrentWeight", R, s, (2, *one) if D == 2 else one, shown)
    _not_empty(x, s)
    _source(x, v["inputWeight"], s)
    exactly("bias", v["bias"], s, (D * gates * s.H,), f"[{s.width(gates)}]")
    state("initState", v["initState"], s)
    mask(v["mask"], s)
    return s


def _not_empty(x: TensorType, s: MpsSizes) -> None:
    for axis, n in enumerate("TNI"):
        need_rows(x.shape[axis], n, f"source is {x}")
    need(s.H > 0, "recurrentWeight is empty: H = 0")


def _source(x: TensorType, W: Maybe, s: MpsSizes) -> None:
    wide, shown = s.D * s.G * s.H, s.width(s.G)
    if W is None:
        problem = (
            f"without inputWeight, source is [T,N,{shown}] with {wide} columns; it is {x} "
            f"and the descriptor is {s.kind}"
        )
        need_equal(x.shape[2], wide, problem)
    else:
        exactly("inputWeight", W, s, (wide, x.shape[2]), f"[{shown},I]")


def exactly(name: str, t: Maybe, s: MpsSizes, shape: tuple[Dim, ...], symbols: str) -> None:
    """Refuse an operand of another dtype or shape; nil passes."""
    if t is None:
        return
    problem = f"{name} is {t}, source has {s.dtype} elements; convert one of them"
    need(t.dtype is s.dtype, problem)
    wanted = ",".join(map(str, shape))
    problem = f"{name} is {t}, expected {symbols} = [{wanted}]: the descriptor is {s.kind}"
    need(t.rank == len(shape), problem)
    for got, want in zip(t.shape, shape, strict=True):
        need_equal(got, want, problem)


def rows(name: str, t: Maybe, s: MpsSizes, gates: int = 1) -> None:
    """Refuse what is not [T,N,D*gates*H]; nil passes."""
    exactly(name, t, s, s.rows(gates).shape, f"[T,N,{s.width(gates)}]")


def state(name: str, t: Maybe, s: MpsSizes) -> None:
    """Refuse what is not [N,D*H] or, with one direction, PyTorch's [1,N,H]; nil passes."""
    lead = t is not None and t.rank == 3 and s.D == 1
    shape = (1, *s.state.shape) if lead else s.state.shape
    exactly(name, t, s, shape, "[1,N,H]" if lead else f"[N,{s.width(1)}]")


def mask(t: Maybe, s: MpsSizes) -> None:
    """Refuse a mask that does not broadcast to [N,D*H] [inferred]; [1,N,D*H] is taken too."""
    if t is None:
        return
    problem = f"mask is {t}, source has {s.dtype} elements; convert one of them"
    need(t.dtype is s.dtype, problem)
    problem = (
        f"mask is {t}, expected what broadcasts to [N,{s.width(1)}] = [{s.N},{s.D * s.H}]: one mask serves all steps"
    )
    need(t.rank <= 2 or (t.rank == 3 and t.shape[0] == 1), problem)
    for got, want in zip(reversed(t.shape), reversed(s.state.shape), strict=False):
        if got != 1:
            need_equal(got, want, problem)


def gradient_types(v: Types, order: str) -> dict[str, TensorType | None]:
    """The returned gradients in Apple's order: types of the operands; nil gives none."""
    return {name: v[name] for name in order.split()}


def plain_mask(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """A mask's shape without the leading 1 of three axes."""
    return shape[1:] if len(shape) == 3 else shape
