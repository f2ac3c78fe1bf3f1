"""`stateful` of importers: the imported graph as a program that keeps state between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lstm_ir.importers.operands import plain
from lstm_ir.importers.refusals import NodeRefusedError, Refusals, UnifiedError
from lstm_ir.ir import dims
from lstm_ir.ir.errors import DimError, ModelError, VerifyError
from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Graph, Node, Value, transform
from lstm_ir.ir.program import Program
from lstm_ir.ir.types import DimLike, TensorType, shape_of
from lstm_ir.streaming.causality import Causality
from lstm_ir.streaming.lift import lifted
from lstm_ir.streaming.shifts import cut_behind
from lstm_ir.streaming.stateful import stateful
from lstm_ir.streaming.steps import candidates


def streamed(file: str, graph: Graph, state: bool | Mapping[str, str], ops: Mapping[str, str] | None = None) -> Program:
    """The program; ModelError with all reasons where there is none.

    state: True finds what is kept; names of inputs say which outputs they become. ops: what the model calls the op
    of each of its nodes; without it, reasons have the op of the graph. UnifiedError where a size has to be another
    one: two sizes of a state that are one, or a number of frames that is a multiple.
    """
    try:
        return _named(file, graph, state) if isinstance(state, Mapping) else _found(file, graph, ops)
    except (VerifyError, DimError) as e:
        raise ModelError(f"{file}: {e}") from e


def stream_of(
    file: str, make: Callable[[Mapping[str, DimLike]], Graph], sizes: Mapping[str, DimLike],
    state: bool | Mapping[str, str],
) -> Program:  # fmt: skip
    """The program of a model that `make` imports with sizes, as often as a size turns out to be another one."""
    resolved: dict[str, DimLike] = dict(sizes)
    while True:
        graph = make(resolved)
        try:
            return streamed(file, graph, state)
        except UnifiedError as e:
            named = dict(zip(resolved, shape_of(resolved.values()), strict=True))
            renamed = {n: dims.substitute(d, {e.name: e.by}) for n, d in named.items() if e.name in dims.names(d)}
            resolved |= renamed or {e.name: e.by}


def _named(file: str, graph: Graph, feedback: Mapping[str, str]) -> Program:
    """The outputs that are named go to the inputs of the next call."""
    for known, asked, what in (
        (graph.input_names, feedback, "input"),
        (graph.output_names, feedback.values(), "output"),
    ):
        unknown = [n for n in asked if n not in known]
        if unknown:
            shown = ", ".join(known) or "none"
            raise ModelError(f"{file}: stateful has the {what} {unknown[0]!r}; the model has {shown}")
    if len(set(feedback.values())) != len(feedback):
        raise ModelError(f"{file}: stateful feeds one output to two inputs")
    if not feedback:
        raise ModelError(f"{file}: stateful names no input")
    params = dict(zip(graph.input_names, graph.params, strict=True))
    for taken, output in feedback.items():
        _need_equal(file, taken, params[taken].type, output, graph.output(output).type)
    return stateful(graph, feedback)


def _need_equal(file: str, taken: str, before: TensorType, output: str, after: TensorType) -> None:
    differ = ModelError(f"{file}: stateful: the input {taken} is {before}, the output {output} is {after}")
    if before.dtype is not after.dtype or before.rank != after.rank:
        raise differ
    for a, b in zip(before.shape, after.shape, strict=True):
        if a != b:
            for size, by in ((a, b), (b, a)):
                name = plain(size)
                if name is not None and name not in dims.names(by):
                    raise UnifiedError(name, by)
            raise differ


def analysed(file: str, graph: Graph, ops: Mapping[str, str] | None = None) -> Causality:
    """The analysis of a graph that can be cut into calls; ModelError with all reasons where it cannot."""
    names = candidates(graph)
    if not names:
        raise ModelError(
            f"{file}: stateful: no layer, loop or window runs over a size that has a name; a model whose inputs and "
            'outputs hold its state says which: stateful={"state": "stateN"}, --state state=stateN'
        )
    whole = cut_behind(transform(graph, _forward))
    tried = [Causality.of(whole, n) for n in names]
    good = [c for c in tried if not c.reasons]
    if len(names) > 1 and len(good) != 1:
        shown = ", ".join(names)
        raise ModelError(
            f"{file}: stateful: each of the sizes {shown} may be time; give the others numbers (sizes=, --size)"
        )
    found = good[0] if good else tried[0]
    _raise_reasons(file, found, ops)
    return found


def _forward(node: Node) -> Sequence[Value] | None:
    """A function with a gradient of its own, as of adaptive pools, as what it computes."""
    return expansion(node, "stateful") if node.op.name == "custom_vjp" else None


def _found(file: str, graph: Graph, ops: Mapping[str, str] | None) -> Program:
    """What layers and windows keep, found by the analysis."""
    found = analysed(file, graph, ops)
    if found.factor % found.unit:
        raise UnifiedError(found.steps, dims.mul(dims.name(found.steps), found.unit))
    if not found.carried:
        raise ModelError(f"{file}: stateful: nothing is kept between calls; every step depends on itself alone")
    return lifted(found)


def _raise_reasons(file: str, causality: Causality, ops: Mapping[str, str] | None) -> None:
    refusals = Refusals(file)
    for node, reason in causality.reasons:
        op = node.op.name if ops is None else ops.get(node.loc.node, "input")
        refusals.add(node.loc.node, op, NodeRefusedError(reason))
    refusals.raise_any()
