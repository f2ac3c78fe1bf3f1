"""Elementwise work that a program does alike on tensors of several shapes: a kernel that all of them share.

Of an optimizer IREE makes a dispatch or two for the shape of each weight, and two or three for the norm of its
gradient: 34 of the 123 executables of a CTC model's training step. The kernel (`backends/kernels/cpu/elements.py`)
counts elements, and gets their number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.call.executables import symbol_of
from lstm_ir.backends.kernels.cpu.elements import ElementChain, ElementsCall
from lstm_ir.backends.kernels.text.kernel import Kernel
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.types import DType


@dataclass(frozen=True)
class AlikeElements:
    """Nodes that one dispatch computes; nothing outside reads them before the last one."""

    nodes: frozenset[Node]
    last: Node
    call: ElementsCall
    kernel: Kernel

    def values(self) -> dict[Value, ir.Value]:
        """What others read of them."""
        chain = self.call.chain
        results = self.last.values if chain.summed else chain.results
        return dict(zip(results, self.call.run(self.kernel), strict=True))


def alike_elements(e: Emitter, graph: Graph) -> dict[Node, AlikeElements]:
    """Such nodes of a function, where tensors of two sizes or more share a kernel."""
    if not e.has_cpu_kernels or e.options.apart:
        return {}
    found = defaultdict[str, list[AlikeElements]](list)
    for group in _groups(e, graph):
        found[symbol_of(group.kernel, ElementsCall.word)].append(group)
    shared = (some for some in found.values() if len({g.call.chain.elements for g in some}) > 1)
    return {n: group for some in shared for group in some for n in group.nodes}


def _groups(e: Emitter, graph: Graph) -> Iterator[AlikeElements]:
    taken, order, given = set[Node](), {n: k for k, n in enumerate(graph.nodes)}, set(graph.outputs)
    for n in reversed(graph.nodes):
        summed = _sums_all(n)
        if n in taken or n.values[0] in e.preset or not (summed or (n.values[0] in given and _computes(n))):
            continue
        result = n.inputs[0] if summed else n.values[0]
        nodes = _behind(e, graph, order, result, n if summed else None)
        taken.update(nodes)
        chain = _chain(e, graph, nodes, result, summed) if nodes or summed else None
        if chain is not None:
            call = ElementsCall(e, chain)
            with suppress(RefusedError):  # an op without a kernel, more tensors than a dispatch takes
                yield AlikeElements(frozenset({n, *nodes}), n, call, call.kernel())


def _sums_all(n: Node) -> bool:
    """Whether it is the sum of all elements of a tensor."""
    if n.op.name != "reduce_sum":
        return False
    t = n.inputs[0].type
    whole = len(n.attrs["dimensions"]) == t.rank > 0 and t.is_static and 0 not in t.shape
    return whole and t.dtype in (DType.f32, DType.f64)


def _computes(n: Node) -> bool:
    """Whether it computes elements of one tensor of numbers, from tensors of its shape."""
    t = n.types[0]
    if Trait.elementwise not in n.op.traits or not t.is_static or t.rank == 0 or 0 in t.shape:
        return False
    dtypes = {v.dtype for v in (*n.inputs, *n.values)} - {DType.i1}
    return dtypes in ({DType.f32}, {DType.f64}) and all(v.shape == t.shape for v in n.inputs)


def _behind(e: Emitter, graph: Graph, order: Mapping[Node, int], result: Value, reader: Node | None) -> list[Node]:
    """Nodes that `result` is computed by, and that nothing else reads, operands first; with what else they give of the
    function. order: where each node stands in the graph."""
    nodes = set[Node]()
    waiting = {result.node}
    while waiting:
        n = max(waiting, key=lambda m: order.get(m, -1))
        waiting.remove(n)
        if n not in order or not _computes(n) or n.values[0] in e.preset or n.types[0].shape != result.shape:
            continue
        v = n.values[0]
        if not all(u in nodes or u is reader for u in graph.users.get(v, ())) or (reader and v in graph.outputs):
            continue
        nodes.add(n)
        waiting |= {x.node for x in n.inputs if splat(x) is None} - nodes
    return sorted(nodes, key=order.__getitem__)


def _chain(e: Emitter, graph: Graph, nodes: list[Node], result: Value, summed: bool) -> ElementChain | None:
    """None where an operand is a row, say, that IREE repeats as it reads it."""
    inside = {n.values[0] for n in nodes}
    read = [v for n in nodes for v in n.inputs] + ([] if result in inside else [result])
    outside = dict.fromkeys(v for v in read if v not in inside and splat(v) is None)
    repeated, tensors = dict[Value, Value](), list[Value]()
    for v in outside:
        if v.op == "broadcast_in_dim" and v not in e.preset:
            if dims.product(v.node.inputs[0].shape) != 1:
                return None
            repeated[v] = v.node.inputs[0]
        else:
            tensors.append(v)
    if not tensors or any(v.dtype is not result.dtype for v in (*tensors, *repeated)):
        return None
    results = (result,) if summed else tuple(n.values[0] for n in nodes if n.values[0] in graph.outputs)
    rounds = any(n in e.decided.nodes for n in nodes)
    return ElementChain(tuple(nodes), result.shape, result.dtype, tuple(tensors), repeated, results, summed, rounds)
