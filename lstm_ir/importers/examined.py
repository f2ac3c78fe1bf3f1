"""A foreign model looked at as a whole: the report of `lstm-ir import`, and the graph where all of it is taken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lstm_ir.importers.recurrences import recurrences, runs_of, states
from lstm_ir.importers.refusals import Refusal
from lstm_ir.importers.report import ImportReport, OpCount, Outcome, SizeName, Wanted, WeightSum
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.literals import splat


@dataclass(frozen=True)
class Examined:
    """A report, and the graph; None where something is refused."""

    report: ImportReport
    graph: Graph | None

    def __str__(self) -> str:
        """The report on one screen."""
        from lstm_ir.cli.import_text import text

        return text(self.report)


def examined(
    file: str,
    size: int,
    version: str,
    outcomes: Iterable[tuple[str, Outcome | None]],
    refusals: tuple[Refusal, ...],
    inputs: Iterable[Value],
    weights: Iterable[Value],
    graph: Graph | None,
) -> Examined:
    """What an importer found in a model.

    size: of the model in bytes. version: of the framework or of its ops, in words. outcomes: op and outcome of
    each node, None where it was not looked at. inputs, weights: as far as they are known where there is no graph.
    """
    inputs = tuple(inputs)
    report = ImportReport(
        file=file,
        bytes=size,
        format=version,
        ops=_counted(outcomes),
        refusals=refusals,
        inputs=tuple(f"{p.node.attrs['name']}: {p.type}" for p in inputs),
        outputs=() if graph is None else _outputs(graph),
        sizes=_sizes(inputs),
        constants=_wanted(refusals),
        numbers=tuple(dict.fromkeys(n for r in refusals for n in r.numbers)),
        alike=tuple(dict.fromkeys(r.alike for r in refusals if r.alike)),
        weights=_sum(weights if graph is None else graph.weights.values()),
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


def _counted(outcomes: Iterable[tuple[str, Outcome | None]]) -> tuple[OpCount, ...]:
    """By op in the order of names."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, outcome in outcomes:
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


def _wanted(refusals: Iterable[Refusal]) -> tuple[Wanted, ...]:
    """Each input once, with the numbers of all comparisons."""
    values: dict[str, set[Any]] = {}
    for refusal in refusals:
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
