"""One cell over all steps of x [B,T,I]: a core op where it has what the layer asks for, a scan otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall
from lstm_ir.importers.keras.handlers.cells import KerasCell, Masks
from lstm_ir.ir.graph import Value


@dataclass(frozen=True)
class Ran:
    """y [B,T,H] in the order of processing, the last output [B,H], the states after the last step."""

    y: Value
    last: Value
    states: tuple[Value, ...]


def over_time(
    c: LayerCall,
    cell: KerasCell,
    x: Value,
    mask: Value | None,
    first: Sequence[Value] | None,
    zero: bool,
    backwards: bool,
) -> Ran:
    """A cell over time, as Keras' `rnn` runs it.

    mask [B,T]: a step where it is false holds the states, and gives 0 where `zero`, else the output before it.
    first: the states at the start, zeros where they are not given. backwards: from the last step to the first; y
    then begins with the last step.
    """
    x_masks, h_masks = _dropout(c, cell, x)
    simple = mask is None and h_masks is None and (x_masks is None or len(x_masks) == 1)
    if simple and cell.core_activations is not None:
        return _core(cell, x if x_masks is None else x * li.expand_dims(x_masks[0], 1), first, backwards)
    return _scanned(cell, x, mask, first, zero, backwards, x_masks, h_masks)


def _dropout(c: LayerCall, cell: KerasCell, x: Value) -> tuple[Masks | None, Masks | None]:
    """What is dropped of x and of h, the same in all steps; each gate by itself where h is dropped too."""
    if not c.training or not (cell.dropout or cell.recurrent_dropout):
        return None, None
    many = cell.gates if cell.recurrent_dropout and cell.kind != "rnn" else 1
    B, I = x.shape[0], x.shape[2]

    def drawn(rate: float, width: Any) -> Masks | None:
        if not 0.0 < rate < 1.0:
            return None
        return tuple(li.dropout(li.ones((B, width), cell.dtype), rate, c.key()) for _ in range(many))

    return drawn(cell.dropout, I), drawn(cell.recurrent_dropout, cell.units)


def _core(cell: KerasCell, x: Value, first: Sequence[Value] | None, backwards: bool) -> Ran:
    """By `lstm`, `gru` or `rnn`."""
    given = {} if first is None else {n: li.expand_dims(v, 0) for n, v in zip(("h0", "c0"), first, strict=False)}
    y, states = core(cell.kind, x, cell.operands(), given, cell, "reverse" if backwards else "forward")
    flat = tuple(li.reshape(s, s.shape[1:]) for s in states)
    return Ran(li.flip(y, 1) if backwards else y, flat[0], flat)


def core(
    kind: str, x: Value, operands: dict[str, Any], states: dict[str, Any], cell: KerasCell, direction: str
) -> tuple[Value, tuple[Value, ...]]:
    """y [B,T,D*H], each step at its own time, and the last states [D,B,H]."""
    ways = 2 if direction == "bidirectional" else 1
    found = cell.core_activations
    assert found is not None
    if kind == "lstm":
        y, h, c = li.lstm(x, **operands, **states, direction=direction, layout="batch", activations=found * ways)
        return y, (h, c)
    if kind == "gru":
        y, h = li.gru(
            x, **operands, **states, direction=direction, layout="batch", activations=found * ways,
            reset_after=cell.reset_after,
        )  # fmt: skip
        return y, (h,)
    y, h = li.rnn(x, **operands, **states, direction=direction, layout="batch", activations=found * ways)
    return y, (h,)


def _scanned(
    cell: KerasCell, x: Value, mask: Value | None, first: Sequence[Value] | None, zero: bool, backwards: bool,
    x_masks: Masks | None, h_masks: Masks | None,
) -> Ran:  # fmt: skip
    """By a loop of plain ops, which passes may make a kernel."""
    B = x.shape[0]
    dropped = None if x_masks is None else tuple(li.expand_dims(m, 1) for m in x_masks)
    z = li.swapaxes(cell.projected(x, dropped), 0, 1)
    zeros = li.zeros((B, cell.units), cell.dtype)
    start = tuple(first) if first is not None else (zeros,) * cell.states
    # The output before a masked step is h, apart from before the first step that exists.
    apart = mask is not None and first is not None and not zero
    before = (zeros,) if apart else ()
    rows = (z,) if mask is None else (z, li.swapaxes(li.expand_dims(mask, 2), 0, 1))

    def body(carry: tuple[Value, ...], row: tuple[Value, ...]) -> tuple[tuple[Value, ...], Value]:
        states = carry[: cell.states]
        after = cell.step(row[0], states, h_masks)
        if mask is None:
            return after, after[0]
        there = row[1]
        held = tuple(li.where(there, new, old) for new, old in zip(after, states, strict=True))
        if zero:
            return held, li.where(there, after[0], li.zeros_like(after[0]))
        if not apart:
            return held, held[0]
        out = li.where(there, after[0], carry[-1])
        return (*held, out), out

    carry, ys = li.scan(body, (*start, *before), rows, reverse=backwards)
    y = li.swapaxes(ys, 0, 1)
    y = li.flip(y, 1) if backwards else y
    if mask is None:
        last = carry[0]
    elif zero:
        last = li.reshape(y[:, -1:], (B, cell.units))
    else:
        last = carry[-1] if apart else carry[0]
    return Ran(y, last, tuple(carry[: cell.states]))
