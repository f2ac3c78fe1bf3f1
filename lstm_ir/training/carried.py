"""What a program that trains carries from call to call beside weights: h and c of truncated back-propagation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lstm_ir.ir.graph import Graph
from lstm_ir.ir.program import Program, State, need_graph


@dataclass(frozen=True)
class Carried:
    """`outputs` names, for each state variable, which is an input of the graph, the output that is its next value."""

    outputs: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, State] = field(default_factory=dict)


def source_of(given: Graph | Program) -> tuple[Graph, Carried]:
    """The graph that is trained, and what it carries; GradientError for what is no graph and not made by `stateful`."""
    if isinstance(given, Program) and "step" in given.entries:
        reads, writes = given.binding.get("step", ({}, {}))
        next_of = {state: output for output, state in writes.items()}
        if reads and all(n == state for n, state in reads.items()) and set(next_of) == set(reads):
            return given.entries["step"], Carried(next_of, {n: given.state[n] for n in reads})
    need_graph("train_step", given, "train the graph that it was made of, or a program of li.stateful")
    assert isinstance(given, Graph)
    return given, Carried()
