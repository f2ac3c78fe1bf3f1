"""A TensorFlow model looked at as a whole: what `from_tf` takes of it, without an error for what it refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lstm_ir.importers.examined import Examined, examined
from lstm_ir.importers.refusals import NodeRefusedError, Refusals
from lstm_ir.importers.report import Outcome
from lstm_ir.importers.tensorflow.entries import MAIN
from lstm_ir.importers.tensorflow.model import graph_of, walks
from lstm_ir.importers.tensorflow.walk import Walk
from lstm_ir.ir.types import DimLike

if TYPE_CHECKING:
    from lstm_ir.importers.tensorflow.reading import Model


def examine(
    model: Model,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    signature: str | None = None,
    outputs: Sequence[str] | None = None,
    constants: Mapping[str, Any] | None = None,
    sizes: Mapping[str, DimLike] | None = None,
) -> Examined:
    """What `from_tf` makes of a model, and what it refuses, without an error for that.

    The arguments are those of `from_tf`. Of several signatures the graph is that of `serving_default`, or of the
    first one; nodes and refusals are those of all. Raises ModelError for what is no model, and for names of
    constants and sizes that the model does not have.
    """
    made = walks(model, checkpoint, signature, outputs, constants, sizes)
    name = MAIN if MAIN in made else next(iter(made))
    walk = made[name]
    refusals = Refusals(walk.source.file)
    for w in made.values():
        for r in w.refusals.all:
            refusals.add(r.node, r.op, NodeRefusedError(r.reason))
    found = walk.refusals.all if len(made) == 1 else refusals.all
    graph = None if found else graph_of(walk, name)
    source, weights = walk.source, walk.variables.weights.values()
    return examined(
        source.file, source.bytes, source.version, _outcomes(made.values()), found, walk.inputs, weights, graph
    )


def _outcomes(signature_walks: Iterator[Walk] | Any) -> Iterator[tuple[str, Outcome | None]]:
    """Op and outcome of each node that a graph needs, and of the others in the functions that it calls."""
    seen: dict[Any, Any] = {}
    for walk in signature_walks:
        for body in walk.bodies:
            called = body is not walk.source.graph
            for node in body.nodes.values():
                outcome = walk.outcomes.get(node)
                if outcome is not None or called:
                    seen[node] = outcome or seen.get(node)
    for node, outcome in seen.items():
        yield node.op, outcome
