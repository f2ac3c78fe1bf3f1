"""`li.with_weights`: a graph with other arrays as its weights, those of a program that trained most of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Graph, Node, Value, transform
from lstm_ir.ir.leaf import weight
from lstm_ir.ir.program import need_graph


class HasState(Protocol):
    """What of an executable is read."""

    @property
    def state(self) -> Mapping[str, Any]:
        """As it is now."""
        ...


def with_weights(graph: Graph, weights: HasState | Mapping[str, Any]) -> Graph:
    """The same graph, where weights of these names hold these arrays; all others stay.

    weights: an executable that trains, whose state has the weights as trained so far (the optimizer's own state is
    passed over), or arrays by name. So a model that was imported or trained is shipped:
    `li.export(li.with_weights(graph, learner), "m.lirpkg")`. Raises IRError for a name that the graph does not have,
    for another shape or dtype, and where the executable's state has none of the weights.
    """
    need_graph("with_weights", graph, "change the graph that it was made of")
    state = getattr(weights, "state", None)
    found = weights if state is None else {n: state[n] for n in state if n in graph.weights}
    if not isinstance(found, Mapping):
        raise IRError(f"with_weights: expected an executable or arrays by name, got {type(weights).__name__}")
    if state is not None and not found:
        held = ", ".join(state) or "nothing"
        raise IRError(f"with_weights: the executable keeps {held}, and graph @{graph.name} has none of these weights")
    given = {name: _fitting(graph, name, array) for name, array in found.items()}

    def one(node: Node) -> Sequence[Value] | None:
        name = node.attrs.get("name")
        return (given[name],) if node.op.name == "weight" and name in given else None

    return transform(graph, one)


def _fitting(graph: Graph, name: str, array: Any) -> Value:
    if name not in graph.weights:
        there = ", ".join(graph.weights) or "none"
        raise IRError(f"with_weights: graph @{graph.name} has no weight {name!r}; it has {there}")
    data, want = Data.of(np.asarray(array)), graph.weights[name].type
    if data.type != want:
        raise IRError(f"with_weights: {name} is {data.type}, in graph @{graph.name} {want}")
    return weight(name, data)
