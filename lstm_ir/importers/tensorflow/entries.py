"""Graphs of signatures as one graph or one program; what signatures write is its state."""

from __future__ import annotations

from collections.abc import Mapping

from lstm_ir.importers.naming import graph_name
from lstm_ir.importers.tensorflow.walk import Walk
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.program import Program, State
from lstm_ir.streaming.stateful import stateful

MAIN = "serving_default"  # TensorFlow's name of the signature that is meant where none is named


def entries_of(file: str, signatures: Mapping[str, tuple[Walk, Graph]]) -> Graph | Program:
    """One graph where there is one without state; else a program with the signatures as entries."""
    distinct = _different(signatures)
    if len(distinct) == 1:
        ((walk, graph),) = distinct.values()
        feedback = _states(walk, graph)
        if not feedback:
            return graph
        return stateful(graph, feedback, {n: walk.variables.initial(n) for n in feedback})
    entries = {name: graph for name, (_, graph) in distinct.items()}
    binding, state = {}, dict[str, State]()
    for name, (walk, graph) in distinct.items():
        feedback = _states(walk, graph)
        read = list(walk.variables.params)
        if read:
            binding[name] = ({n: n for n in read}, {out: n for n, out in feedback.items()})
            state |= {n: State(n, walk.variables.initial(n)) for n in read}
    if state:
        for entry in ("get_state", "set_state"):
            values = {n: parameter(n, s.type) for n, s in state.items()}
            entries[entry] = Graph(entry, list(values.values()), values)
        binding["get_state"] = ({n: n for n in state}, {})
        binding["set_state"] = ({}, {n: n for n in state})
        entries["reset"] = Graph("reset", [], {})
    return Program(graph_name(file.rpartition(".")[0] or file), entries, state, binding)


def _states(walk: Walk, graph: Graph) -> dict[str, str]:
    """By state, which is an input, the output that it becomes."""
    written = list(walk.variables.written)
    return dict(zip(written, graph.output_names[len(graph.output_names) - len(written) :], strict=True))


def _different(signatures: Mapping[str, tuple[Walk, Graph]]) -> dict[str, tuple[Walk, Graph]]:
    """Those that differ; of the same ones the one that TensorFlow takes by default."""
    distinct: dict[str, tuple[Walk, Graph]] = {}
    texts: dict[str, str] = {}
    for name in sorted(signatures, key=lambda n: (n != MAIN, n)):
        graph = signatures[name][1]
        body = str(Graph("same", graph.params, dict(zip(graph.output_names, graph.outputs, strict=True))))
        if body not in texts:
            texts[body] = name
            distinct[name] = signatures[name]
    return distinct
