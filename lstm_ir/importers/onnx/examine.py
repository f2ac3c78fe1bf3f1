"""A model looked at as a whole: the report of `lstm-ir import`, and the graph where all of it is taken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lstm_ir.importers.onnx.interface import Bindings
from lstm_ir.importers.onnx.model import Outcome, Walk, walked
from lstm_ir.importers.onnx.reading import model_bytes, read
from lstm_ir.importers.onnx.report import ImportReport, OpCount, SizeName, Wanted, WeightSum
from lstm_ir.importers.recurrences import recurrences, runs_of, states
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.types import DimLike

if TYPE_CHECKING:
    from lstm_ir.importers.onnx.reading import Model


@dataclass(frozen=True)
class Examined:
    """A report, and the graph; None where something is refused."""

    report: ImportReport
    graph: Graph | None


def examine(
    model: Model, *, constants: Mapping[str, Any] | None = None, sizes: Mapping[str, DimLike] | None = None
) -> Examined:
    """What `from_onnx` makes of a model, and what it refuses, without an error for that.

    The arguments are those of `from_onnx`. Raises ModelError for what is no model, and for names of constants
    and sizes that the model does not have.
    """
    source = read(model)
    walk = walked(source, Bindings(source, constants or {}, sizes or {}))
    graph, refusals = None, walk.refusals.all
    if not refusals:
        graph = walk.graph()
    weights = graph.weights if graph is not None else walk.weights
    report = ImportReport(
        file=source.file,
        bytes=model_bytes(model, source),
        opset=source.opset,
        ops=_ops(walk),
        refusals=refusals,
        inputs=tuple(f"{p.node.attrs['name']}: {p.type}" for p in walk.inputs),
        outputs=() if graph is None else _outputs(graph),
        sizes=_sizes(walk.inputs),
        constants=_wanted(walk),
        numbers=tuple(dict.fromkeys(n for r in refusals for n in r.numbers)),
        alike=tuple(dict.fromkeys(r.alike for r in refusals if r.alike)),
        weights=_sum(weights.values()),
        literals=_sum(() if graph is None else _literals(graph)),
    )
    return Examined(report if graph is None else _with_states(report, graph), graph)


def planned(report: ImportReport, target: str, cells: Graph, notes: Iterable[str], kernels: bool) -> ImportReport:
    """The report with how its recurrences run on a target.

    cells: the graph after the pass `fuse-cell`. notes: the lines about loops that lowering gives. kernels: whether
    loops may become kernels at all.
    """
    found = recurrences(cells, runs_of(notes))
    if not kernels:
        found = tuple(r if r.T == "1" else replace(r, runs="loop: without kernels") for r in found)
    fused = sum(r.count for r in found if r.fused)
    return replace(_with_states(report, cells), recurrences=found, fused=fused, target=target)


def _with_states(report: ImportReport, graph: Graph) -> ImportReport:
    pairs, liftable = states(graph)
    return replace(report, recurrences=recurrences(graph), states=pairs, liftable=liftable)


def _ops(walk: Walk) -> tuple[OpCount, ...]:
    """By op in the order of names; the same node of a loop's body counts once."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for n in walk.source.model.graph.all_nodes():
        name = n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}"
        outcome = walk.outcomes.get(n)
        counts[name]["unread" if outcome is None else outcome.name] += 1
    rows = []
    for name, found in sorted(counts.items()):
        taken, refused, passed = (found[o.name] for o in (Outcome.taken, Outcome.refused, Outcome.passed))
        rows.append(OpCount(name, found.total(), taken, refused, passed, found["unread"]))
    return tuple(rows)


def _outputs(graph: Graph) -> tuple[str, ...]:
    return tuple(f"{n}: {v.type}" for n, v in zip(graph.output_names, graph.outputs, strict=True))


def _sizes(inputs: Iterable[Value]) -> tuple[SizeName, ...]:
    places: dict[str, list[str]] = {}
    for p in inputs:
        for axis, d in enumerate(p.shape):
            for name in sorted(dims.names(d)):
                places.setdefault(name, []).append(f"{p.node.attrs['name']} axis {axis}")
    return tuple(SizeName(n, tuple(axes)) for n, axes in places.items())


def _wanted(walk: Walk) -> tuple[Wanted, ...]:
    """Each input once, with the numbers of all comparisons."""
    values: dict[str, set[Any]] = {}
    for refusal in walk.refusals.all:
        for w in refusal.wanted:
            values.setdefault(w.input, set()).update(w.values)
    return tuple(Wanted(n, tuple(sorted(found))) for n, found in values.items())


def _literals(graph: Graph) -> Iterator[Value]:
    """Arrays, not numbers: those that are repeated to a shape are one."""
    return (n.values[0] for n in graph.nodes if n.op.name == "constant" and splat(n.values[0]) is None)


def _sum(weights: Iterable[Value]) -> WeightSum:
    by_dtype: Counter[str] = Counter()
    count = 0
    for v in weights:
        count += 1
        by_dtype[v.dtype.value] += v.node.attrs["value"].array.nbytes
    return WeightSum(count, by_dtype.total(), dict(by_dtype))
