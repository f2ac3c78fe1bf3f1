"""Which named size is time: that over which layers, loops or windows run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node


def _layers(n: Node) -> Iterator[Dim]:
    if n.op.name in ("lstm", "gru", "rnn"):
        yield n.inputs[0].shape[1 if n.attrs["layout"] == "batch" else 0]
    elif n.op.name == "scan":
        yield n.attrs["length"]


def _windows(n: Node) -> Iterator[Dim]:
    if n.op.name in ("convolution", "convolution_transpose", "max_pool", "avg_pool"):
        yield from n.inputs[0].shape[2:]


def _edges(n: Node) -> Iterator[Dim]:
    if n.op.name == "pad":
        a = n.attrs
        for size, low, high in zip(n.types[0].shape, a["edge_padding_low"], a["edge_padding_high"], strict=True):
            if low != 0 or high != 0:
                yield size
    elif n.op.name == "concatenate":
        yield n.types[0].shape[n.attrs["dimension"]]


def _sums(n: Node) -> Iterator[Dim]:
    if n.op.name == "cumsum":
        yield n.types[0].shape[n.attrs["axis"]]


LEVELS: tuple[Callable[[Node], Iterator[Dim]], ...] = (_layers, _windows, _edges, _sums)


def candidates(graph: Graph) -> list[str]:
    """The names that may be the number of frames; one that has is certain.

    Layers and loops decide; without any that run over a named size, windows; without these, padding and rows that are
    joined; without these, running sums.
    """
    inputs = {n for p in graph.params for n in p.type.names}
    for level in LEVELS:
        found = [inputs & dims.names(d) for node in graph.nodes for d in level(node)]
        found = [names for names in found if names]
        if found:
            common = set.intersection(*found)
            return sorted(common) if len(common) == 1 else sorted(set.union(*found))
    return []
