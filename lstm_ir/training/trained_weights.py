"""`li.with_weights`: a graph with other arrays as its weights, those of a program that trained most of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.ir.called import told
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Graph, Node, Value, transform
from lstm_ir.ir.has_weights import HasWeights
from lstm_ir.ir.leaf import weight
from lstm_ir.ir.program import Program, need_graph


@told({"state_dict": "weights", "params": "weights"})
def with_weights(graph: Graph, weights: HasWeights | Mapping[str, Any] | str | Path) -> Graph:
    """The same graph, where weights of these names hold these arrays; all others stay.

    weights: arrays by name, all of which the graph has; or, where other names are passed over (the optimizer's own
    state among them), an executable, whose state has the weights as trained so far, or a .safetensors or .npz file,
    such as `save_state` writes. So a model that was imported or trained is shipped:
    `li.export(li.with_weights(graph, learner), "m.lirpkg")`. Raises IRError for a name that the graph does not have,
    for another shape or dtype, and where the executable or the file has none of the weights.
    """
    need_graph("with_weights", graph, "change the graph that it was made of")
    found = weights if isinstance(weights, Mapping) else _shared(graph, weights)
    given = {name: _fitting(graph, name, array) for name, array in found.items()}

    def one(node: Node) -> Sequence[Value] | None:
        name = node.attrs.get("name")
        return (given[name],) if node.op.name == "weight" and name in given else None

    return transform(graph, one)


def _shared(graph: Graph, holder: object) -> dict[str, Any]:
    """What an executable or a file holds of the graph's weights; IRError where that is nothing."""
    held: list[object]
    if isinstance(holder, (str, Path)):
        from lstm_ir.backends.files.parameters import read_weights  # for files alone

        what, held = f"the file {holder}", [read_weights(holder)]
    else:
        what = "the executable"
        held = [getattr(holder, n, None) for n in ("weights", "state")]  # trained ones are state
    parts = [p for p in held if isinstance(p, Mapping)]
    if isinstance(holder, Program) or not parts:
        hint = ", which holds no trained weights: give what li.compile made of it" if parts else ""
        kinds = "an executable, arrays by name or the path of a file"
        raise IRError(f"with_weights: expected {kinds}, got {type(holder).__name__}{hint}")
    found = {n: p[n] for p in parts for n in p if n in graph.weights}
    if not found:
        names = ", ".join(n for p in parts for n in p) or "nothing"
        raise IRError(f"with_weights: {what} holds {names:.200}; graph @{graph.name} has none of these weights")
    return found


def _fitting(graph: Graph, name: str, array: Any) -> Value:
    if name not in graph.weights:
        there = ", ".join(graph.weights) or "none"
        raise IRError(f"with_weights: graph @{graph.name} has no weight {name!r}; it has {there}")
    data, want = Data.of(np.asarray(array)), graph.weights[name].type
    if data.type != want:
        raise IRError(f"with_weights: {name} is {data.type}, in graph @{graph.name} {want}")
    return weight(name, data)
