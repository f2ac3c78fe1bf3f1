"""What of a graph is recurrent: its layers with their sizes, and inputs and outputs that are their states.

An input is a state where an output has its type, and where a layer starts from it: reshapes, slices and joins may
stand between. A layer that starts from zeros and runs forward could keep its state from call to call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.moves import MOVES
from lstm_ir.ops.core import gru, lstm, rnn
from lstm_ir.ops.core.sizes import Sizes, sizes

CELLS = {c.op: c for c in (lstm.CELL, gru.CELL, rnn.CELL)}
STARTS = {"h0": "h", "c0": "c"}  # operand of a layer: the state's letter
ENDS = {"h_n": "h", "c_n": "c", "y": "h"}  # result of a layer: the state that it holds, y in its last row
ONE_STEP = "plain ops: it has one step"
JOINED = "in the loop of another one"  # the pass stack-directions joins loops that run side by side


@dataclass(frozen=True)
class Recurrence:
    """Layers of one kind and one size: `T` steps of `B` rows, from `I` columns to `H`.

    Of a loop that is no layer (kind `scan`) B, I and H are None. `places` are the nodes; `runs` is how the target
    runs them, None before it is known; `fused`: the cell was found among plain ops.
    """

    kind: str
    direction: str
    T: str
    B: str | None
    I: str | None
    H: str | None
    places: tuple[str, ...] = ()
    runs: str | None = None
    fused: bool = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.places)


@dataclass(frozen=True)
class StatePair:
    """An input that a layer starts from, and the output that holds it after the last step."""

    input: str
    output: str
    type: str
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Liftable:
    """A layer that starts from zeros: its states could be kept between calls."""

    layer: str
    states: tuple[str, ...]
    type: str


def recurrences(graph: Graph, runs: Mapping[str, str] | None = None) -> tuple[Recurrence, ...]:
    """All recurrences of a graph, equal ones together, in the order of the graph.

    runs: by place (`model.onnx:/LSTM`) how each loop runs; what has one step needs no loop.
    """
    found: dict[Recurrence, list[str]] = {}
    for n in _recurrent(graph):
        described, place = _described(n), n.loc.place
        if runs is not None:
            described = replace(described, runs=runs.get(place, ONE_STEP if described.T == "1" else JOINED))
        found.setdefault(described, []).append(place)
    return tuple(replace(r, places=tuple(places)) for r, places in found.items())


def _recurrent(graph: Graph) -> Iterator[Node]:
    return (n for n in graph.nodes if n.op.name in CELLS or Loop.of(n) is not None)


def _described(n: Node) -> Recurrence:
    fused = "fuse-cell" in n.loc.via
    loop = Loop.of(n)
    if loop is not None:
        backward = bool(loop.reverse) and all(loop.reverse)
        direction = "reverse" if backward else "forward"
        return Recurrence("scan", direction, str(loop.length), None, None, None, fused=fused)
    s, x = sizes_of(n), n.args[0]
    assert isinstance(x, Value)
    # Without w_ih what enters the gates was computed before: it has no width of its own.
    width = None if n.arg("w_ih") is None else str(x.shape[2])
    return Recurrence(n.op.name, n.attrs["direction"], str(s.T), str(s.B), width, str(s.H), fused=fused)


def sizes_of(n: Node) -> Sizes:
    """Sizes of an lstm, gru or rnn."""

    def type_of(operand: str) -> Any:
        v = n.arg(operand) if any(o.name == operand for o in n.op.operands) else None
        return v.type if isinstance(v, Value) else None

    x, w_ih, w_hh, w_hr = (type_of(name) for name in ("x", "w_ih", "w_hh", "w_hr"))
    return sizes(CELLS[n.op.name], x, w_ih, w_hh, n.attrs["direction"], n.attrs["layout"], w_hr)


def starts(n: Node) -> dict[str, Value | None]:
    """What a recurrence starts from, by the state's letter, or its number; None is zeros."""
    loop = Loop.of(n)
    if loop is not None:
        return {str(k): v for k, v in enumerate(loop.init)}
    given = {letter: n.arg(name) for name, letter in STARTS.items() if any(o.name == name for o in n.op.operands)}
    return {letter: v if isinstance(v, Value) else None for letter, v in given.items()}


Slot = tuple[Node, str]  # a recurrence, and which of its states


def states(graph: Graph) -> tuple[tuple[StatePair, ...], tuple[Liftable, ...]]:
    """Inputs and outputs that are states, and layers whose states could become some."""
    names = dict(zip(graph.params, graph.input_names, strict=True))
    fed: dict[str, dict[Slot, None]] = {}
    liftable = []
    for n in _recurrent(graph):
        begins = starts(n)
        for letter, v in begins.items():
            for source in () if v is None else _moved(v):
                if source in names:
                    fed.setdefault(names[source], {})[n, letter] = None
        zeros = all(v is None or splat(v) == 0 for v in begins.values())
        whole = not {"count", "lengths"} & {o.name for o in n.op.operands if n.arg(o.name) is not None}
        if n.op.name in CELLS and n.attrs["direction"] == "forward" and zeros and whole:
            s = sizes_of(n)
            liftable.append(Liftable(n.loc.place, tuple(begins), str(s.state(s.P))))
    return tuple(_pairs(graph, fed)), tuple(liftable)


def _pairs(graph: Graph, fed: Mapping[str, Mapping[Slot, None]]) -> Iterator[StatePair]:
    types = {n: p.type for n, p in zip(graph.input_names, graph.params, strict=True)}
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    held = {name: _held(v) for name, v in outputs.items()}
    taken: set[str] = set()
    for name, slots in fed.items():
        alike = [o for o, v in outputs.items() if v.type == types[name] and o not in taken]
        if alike:
            # The output that holds most of the states that the input starts; max takes the first of equals.
            best = max(alike, key=lambda o: len(held[o] & set(slots)))
            taken.add(best)
            layers = dict.fromkeys(n.loc.place for n, _ in slots)
            yield StatePair(name, best, str(types[name]), tuple(layers))


def _held(v: Value) -> set[Slot]:
    """The states that a value holds after the last step."""
    found: set[Slot] = set()
    for u in _moved(v):
        loop = Loop.of(u.node)
        if loop is not None and u in loop.finals:
            found.add((u.node, str(loop.finals.index(u))))
        elif u.op in CELLS:
            found |= {(u.node, letter) for result, letter in ENDS.items() if u.node.result(result) is u}
    return found


def _moved(v: Value) -> Iterator[Value]:
    """The values whose elements `v` consists of: nothing but moves lies between."""
    seen: set[Value] = set()
    todo = [v]
    while todo:
        u = todo.pop()
        if u in seen:
            continue
        seen.add(u)
        if u.op in MOVES:
            todo += u.node.inputs
        else:
            yield u


def runs_of(notes: Iterable[str]) -> dict[str, str]:
    """By place, how a loop runs: of the lines that `--explain` prints, those about loops."""
    found: dict[str, str] = {}
    for note in notes:
        where, colon, how = note.removeprefix("scan at ").partition(": ")
        if colon and note.startswith("scan at "):
            found[where.partition(" <- ")[0]] = how
    return found
