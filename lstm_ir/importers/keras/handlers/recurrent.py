"""LSTM, GRU, SimpleRNN, RNN over cells, and Bidirectional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall, Masked, Tensor, tensors
from lstm_ir.importers.keras.config import LayerSpec
from lstm_ir.importers.keras.handlers.cells import KNOWN, KerasCell, cell
from lstm_ir.importers.keras.handlers.over_time import core, over_time
from lstm_ir.importers.keras.holding import Holding
from lstm_ir.importers.keras.table import IGNORED, taken
from lstm_ir.importers.keras.weights import both_of, cell_of, cells_of
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.primitive.window import slice_axis

LAYERS = ("LSTM", "GRU", "SimpleRNN", "RNN")
_KNOWN = " ".join(KNOWN)


def stack_of(spec: LayerSpec, holding: Holding) -> list[KerasCell]:
    """The cells of a recurrent layer, the first one first."""
    inner = cell_of(spec)
    held = holding.child("cell", inner)
    if inner.kind != "StackedRNNCells":
        return [_checked(inner, held)]
    cells = cells_of(inner)
    return [_checked(s, h) for s, h in zip(cells, held.children("cells", cells), strict=True)]


def _checked(spec: LayerSpec, holding: Holding) -> KerasCell:
    unknown = sorted(set(spec.config) - KNOWN - IGNORED)
    if spec.own and unknown:
        raise NodeRefusedError(f"the argument {unknown[0]} of {spec.kind} is not known")
    return cell(spec, holding)


def _states(c: LayerCall, initial_state: Any, cells: Sequence[KerasCell]) -> list[Sequence[Value]] | None:
    """The first states of each cell from a call's argument; None where they are zeros."""
    states = [t.value for t in tensors(initial_state)]
    if not states:
        if initial_state not in (None, [], ()):
            raise NodeRefusedError("initial_state has no tensors")
        return None
    wanted = sum(k.states for k in cells)
    if len(states) != wanted:
        raise NodeRefusedError(f"initial_state has {len(states)} tensors, the cells have {wanted} states")
    out: list[Sequence[Value]] = []
    for k in cells:
        out.append([states.pop(0) for _ in range(k.states)])
        for v in out[-1]:
            if v.rank != 2 or v.shape[1] != k.units:
                raise NodeRefusedError(f"initial_state has {v.type}, the cell {k.units} units")
    return out


def run(
    c: LayerCall, spec: LayerSpec, holding: Holding, x: Value, mask: Value | None, initial_state: Any,
    zero: bool | None = None,
) -> tuple[list[Value], list[Value | None]]:  # fmt: skip
    """A recurrent layer over x [B,T,I]: its outputs as Keras gives them, with their masks."""
    if x.rank != 3:
        raise NodeRefusedError(f"the operand is {x.type}, expected [B,T,I]")
    flags = {n: bool(spec.config.get(n, False)) for n in
             ("return_sequences", "return_state", "go_backwards", "stateful", "zero_output_for_mask")}  # fmt: skip
    for n in flags:
        if not isinstance(spec.config.get(n, False), bool):
            raise NodeRefusedError(f"{n} is {spec.config[n]!r:.40}, not true or false")
    if spec.config.get("time_major"):
        raise NodeRefusedError("time_major is true")
    if mask is not None and mask.rank != 2:
        raise NodeRefusedError(f"the mask is {mask.type}, expected [B,T]")
    zero = flags["zero_output_for_mask"] if zero is None else zero
    cells = stack_of(spec, holding)
    first = _states(c, initial_state, cells)
    names: list[str] = []
    if flags["stateful"]:
        first, names = _kept(c, holding.path, cells, x, first)
    y, last, after = x, x, list[Value]()
    for k, one in enumerate(cells):
        ran = over_time(c, one, y, mask, None if first is None else first[k], zero, flags["go_backwards"] and k == 0)
        if k == 0 and flags["go_backwards"] and mask is not None:
            mask = li.flip(mask, 1)
        y, last, after = ran.y, ran.last, [*after, *ran.states]
    for name, value in zip(names, after, strict=bool(names)):
        c.walk.keep(name, value)
    out = [y if flags["return_sequences"] else last]
    out += after if flags["return_state"] else []
    output_mask = next(iter(c.masks), None) if c.mask is None else c.mask
    return out, [output_mask if flags["return_sequences"] else None, *[None] * (len(out) - 1)]


def _kept(
    c: LayerCall, path: str, cells: Sequence[KerasCell], x: Value, first: list[Sequence[Value]] | None
) -> tuple[list[Sequence[Value]], list[str]]:
    """The states that are kept between calls: inputs of the graph."""
    names = [f"{path}/state_{k}" for k in range(sum(one.states for one in cells))]
    left = iter(names)
    out: list[Sequence[Value]] = []
    for one in cells:
        kind = TensorType((x.shape[0], one.units), one.dtype)
        values = []
        for _ in range(one.states):
            name = next(left)
            values.append(c.walk.states[name][1] if name in c.walk.states else c.walk.state(name, kind))
        out.append(values)
    return (out if first is None else first), names


def _arguments(c: LayerCall) -> tuple[Value, Any]:
    """x, and the argument with first states: by name, or behind x."""
    rest = c.args[1:]
    given = c.kwargs.get("initial_state", rest[0] if rest else None)
    if isinstance(c.first, Tensor):
        return c.first.value, given
    found = tensors(c.first)
    if len(found) > 1 and given is None:  # [x, h, c]
        return found[0].value, found[1:]
    raise NodeRefusedError(f"it is called with {len(found)} tensors")


def layer(name: str) -> None:
    """Register a recurrent layer."""

    @taken(name, _KNOWN)
    def build(c: LayerCall) -> Masked:
        x, given = _arguments(c)
        mask = c.mask[0] if isinstance(c.mask, list) else c.mask
        values, masks = run(c, c.spec, c.holding, x, mask, given)
        return Masked(tuple(values), tuple(masks))


for _name in LAYERS:
    layer(_name)


@taken("Bidirectional", "layer backward_layer merge_mode weights")
def bidirectional(c: LayerCall) -> Masked:
    """One layer in each direction; the results are joined, added, multiplied, averaged or given apart."""
    x, given = _arguments(c)
    mask = c.mask[0] if isinstance(c.mask, list) else c.mask
    ways = both_of(c.spec)
    if any(w.kind not in LAYERS or not w.own for w in ways):
        raise NodeRefusedError(f"it wraps {ways[0].kind}, not one of {', '.join(LAYERS)}")
    holdings = [c.holding.child(a, w) for a, w in zip(("forward_layer", "backward_layer"), ways, strict=True)]
    sequences = bool(ways[0].config.get("return_sequences"))
    back = bool(ways[1].config.get("go_backwards"))
    states = tensors(given)
    halves = [states[: len(states) // 2], states[len(states) // 2 :]] if states else [None, None]
    merge = c.get("merge_mode", "concat")
    joined = _both(c, ways, holdings, x, mask, states)
    if joined is not None and back:
        outs = joined
    else:
        outs = []
        for way, holding, half in zip(ways, holdings, halves, strict=True):
            outs.append(run(c, way, holding, x, mask, half, zero=sequences)[0])
        if sequences:
            outs[1][0] = li.flip(outs[1][0], 1)
    a, b = outs[0][0], outs[1][0]
    functions: dict[Any, Any] = {
        "concat": lambda: [li.concat([a, b], a.rank - 1)], "sum": lambda: [a + b], "ave": lambda: [(a + b) / 2.0],
        "mul": lambda: [a * b], None: lambda: [a, b],
    }  # fmt: skip
    if not isinstance(merge, str | None) or merge not in functions:
        raise NodeRefusedError(f"merge_mode is {merge!r:.40}")
    made = functions[merge]()
    count = len(made)
    if ways[0].config.get("return_state"):
        made += [*outs[0][1:], *outs[1][1:]]
    kept = next(iter(c.masks), None) if c.mask is None else mask
    return Masked(tuple(made), tuple(kept if k < count and sequences else None for k in range(len(made))))


def _both(
    c: LayerCall,
    ways: Sequence[LayerSpec],
    holdings: Sequence[Holding],
    x: Value,
    mask: Value | None,
    states: list[Any],
) -> list[list[Value]] | None:
    """Both directions by one core op; None where they differ, or it does not have what they ask for."""
    plain = mask is None and not states and not c.training and x.rank == 3
    if not plain or any(w.config.get("stateful") or w.kind == "RNN" for w in ways) or ways[0].kind != ways[1].kind:
        return None
    if ways[0].config.get("go_backwards"):
        return None
    (a,), (b,) = (stack_of(w, h) for w, h in zip(ways, holdings, strict=True))
    alike = (a.units, a.activations, a.reset_after) == (b.units, b.activations, b.reset_after)
    if not alike or a.core_activations is None or ("bias" in a.weights) != ("bias" in b.weights):
        return None
    one, two = a.operands(), b.operands()
    y, last = core(a.kind, x, {n: li.stack([one[n], two[n]]) for n in one}, {}, a, "bidirectional")
    out = []
    for k in (0, 1):
        ends = [li.reshape(slice_axis(s, 0, k, k + 1), s.shape[1:]) for s in last]
        whole = slice_axis(y, 2, k * a.units, (k + 1) * a.units)
        out.append([whole if ways[k].config.get("return_sequences") else ends[0], *ends])
    return out
