"""Which bodies of loops have one structure: the same ops over the same operands, whatever their sizes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from string import ascii_uppercase

from lstm_ir.ir.data import Data
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.loop import Loop


class Folded:
    """Bodies of some graphs that occur more than once, each under a letter; the first of each stands for all."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        groups: dict[Hashable, list[Loop]] = {}
        self._key: dict[int, Hashable] = {}
        for loop in (found for g in graphs for found in _loops(g)):
            key = self._key[id(loop.body)] = (len(loop.consts), len(loop.init), structure(loop.body))
            groups.setdefault(key, []).append(loop)
        many = [(k, loops) for k, loops in groups.items() if len(loops) > 1]
        self._letters = {k: _letter(i) for i, (k, _) in enumerate(many)}
        self.bodies = [(self._letters[k], loops[0], len(loops)) for k, loops in many]
        """Letter, the first loop, and how many there are, in the order of the graphs."""

    def letter(self, body: Graph) -> str:
        """The letter of the body's structure; nothing for one that occurs once."""
        return self._letters.get(self._key.get(id(body)), "")


def _letter(i: int) -> str:
    return ascii_uppercase[i % 26] * (i // 26 + 1)


def _loops(graph: Graph) -> Iterator[Loop]:
    for n in graph.nodes:
        loop = Loop.of(n, until=True)
        if loop is not None:
            yield loop
            yield from _loops(loop.body)


def structure(graph: Graph) -> Hashable:
    """Ops, operands, ranks and dtypes in order; sizes, names and places in the user's program are left out."""
    number: dict[Value, tuple[int, int]] = {}
    out: list[Hashable] = []
    for i, n in enumerate(graph.nodes):
        number.update((v, (i, k)) for k, v in enumerate(n.values))
        read = tuple(number[v] for v in n.inputs)
        kinds = tuple((t.rank, t.dtype) for t in n.types)
        attrs = _cuts(n) if n.op.name == "slice" else tuple(_attribute(k, v) for k, v in n.attrs.items())
        out.append((n.op.name, read, kinds, attrs))
    return (tuple(out), tuple(number[v] for v in graph.outputs), tuple(number[p] for p in graph.params))


def _cuts(n: Node) -> Hashable:
    """Where a slice begins and ends, as shares of the axis where it has a number."""
    starts, limits, sizes = n.attrs["start_indices"], n.attrs["limit_indices"], n.inputs[0].shape
    return (n.attrs["strides"], *(_share(*c) for ends in (starts, limits) for c in zip(ends, sizes, strict=True)))


def _share(at: object, size: object) -> Hashable:
    return Fraction(at, size) if isinstance(at, int) and isinstance(size, int) and size else f"{at} of {size}"


def _attribute(key: str, value: object) -> Hashable:
    if isinstance(value, Graph):
        return structure(value)
    if isinstance(value, Data):
        return str(value.type.dtype)
    if key in ("name", "shape", "length", "size", "low", "high"):
        return key
    return (key, str(value))
