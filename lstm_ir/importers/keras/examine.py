"""A Keras model looked at as a whole: what `from_keras` takes of it, without an error for what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.importers.examined import Examined, examined
from lstm_ir.importers.keras.model import checked, graph_of, walked
from lstm_ir.importers.keras.source import read
from lstm_ir.ir.types import DimLike


def examine(
    model: Any, *, sizes: Mapping[str, DimLike] | None = None, training: bool = False, seed: int = 0
) -> Examined:
    """What `from_keras` makes of a model, live or a file, and what it refuses, without an error for that.

    The arguments are those of `from_keras`. Of a model with stateful layers the graph has their states as inputs and
    outputs. Raises ModelError for what is no model, and for names of sizes that the model does not have.
    """
    source = read(model)
    walk = walked(source, checked(source, sizes, training, seed))
    refusals = walk.refusals.all
    graph = None if refusals else graph_of(walk)[0]
    weights = walk.store.trained.values()
    return examined(
        source.file, source.bytes, source.version, walk.outcomes, refusals, walk.inputs, weights, graph
    )  # fmt: skip
