"""What a program that trains carries from call to call beside weights: h and c of truncated back-propagation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lstm_ir.ir.errors import GradientError
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.literals import constant_of
from lstm_ir.ir.program import Program, State, need_graph
from lstm_ir.ops.nn.normalisation import BATCH_NORM_RESULTS


@dataclass(frozen=True)
class Carried:
    """`outputs` names, for each state variable, which is an input of the graph, the output that is its next value."""

    outputs: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, State] = field(default_factory=dict)


def source_of(source: Graph | Program) -> tuple[Graph, Carried]:
    """The graph that is trained, and what it carries; GradientError for what is no graph and not made by `stateful`."""
    if isinstance(source, Program) and "step" in source.entries:
        reads, writes = source.binding.get("step", ({}, {}))
        next_of = {state: output for output, state in writes.items()}
        if reads and all(n == state for n, state in reads.items()) and set(next_of) == set(reads):
            return source.entries["step"], Carried(next_of, {n: source.state[n] for n in reads})
    need_graph("train_step", source, "train the graph that it was made of, or a program of li.stateful")
    assert isinstance(source, Graph)
    return source, Carried()


NEXT = "next "
"""Before the names of running statistics: outputs of the graph that hold what they will be."""


def with_running(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """The graph with outputs for the means and variances that its batch norms move, and these outputs by weight.

    Statistics are weights that a `batch_norm` in training takes as they are. Raises GradientError where two take one,
    and where they are plain arrays, which cannot move.
    """
    moved: dict[str, Value] = {}
    for n in graph.nodes:
        if n.op is BATCH_NORM_RESULTS and n.attrs["training"]:
            for held, new in (("held_mean", "mean"), ("held_var", "var")):
                (v,), (result,) = (w if isinstance(w, tuple) else (w,) for w in (n.arg(held), n.result(new)))
                if v is None or result is None:
                    continue
                if constant_of(v) is not None:
                    problem = f"the batch norm at {n.loc} has a plain array as its {new}, which training cannot move"
                    raise GradientError(f"train_step: {problem}; make it li.weight(name, array)")
                if v.op != "weight":
                    continue
                name = v.node.attrs["name"]
                if name in moved:
                    problem = f"two batch norms move {name!r}, at {moved[name].node.loc} and {n.loc}"
                    raise GradientError(f"train_step: {problem}; give each statistics of its own")
                moved[name] = result
    if not moved:
        return graph, {}
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True)) | {NEXT + n: v for n, v in moved.items()}
    return Graph(graph.name, graph.params, outputs), {n: NEXT + n for n in moved}
