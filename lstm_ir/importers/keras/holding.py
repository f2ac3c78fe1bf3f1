"""The weights of a layer as values of the graph, under the names of its path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.importers.keras.config import LayerSpec
from lstm_ir.importers.keras.weights import Weights, parts, variables
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant, weight
from lstm_ir.ir.types import DType


class Store:
    """Weights that were made, each once: a layer that is called twice has one set."""

    def __init__(self) -> None:
        self.made: dict[int | str, dict[str, Value]] = {}
        self.trained: dict[str, Value] = {}


@dataclass
class Holding:
    """Where the weights of one object are, and what they are called: `encoder/lstm/lstm_cell`."""

    source: Weights
    path: str
    trained: bool
    store: Store

    def child(self, attribute: str, spec: LayerSpec) -> Holding:
        """The object of an attribute."""
        return self._in(self.source.child(attribute), spec)

    def children(self, attribute: str, specs: Sequence[LayerSpec]) -> list[Holding]:
        """The objects of a list; those of one name are numbered."""
        out, counts = [], dict[str, int]()
        for s, source in zip(specs, self.source.children(attribute, specs), strict=True):
            counts[s.name] = counts.get(s.name, -1) + 1
            found = self._in(source, s)
            found.path += f"_{counts[s.name]}" if counts[s.name] else ""
            out.append(found)
        return out

    def _in(self, source: Weights, spec: LayerSpec) -> Holding:
        path = f"{self.path}/{spec.name}" if self.path else spec.name
        return Holding(source, path, self.trained and bool(spec.config.get("trainable", True)), self.store)

    def weights(self, spec: LayerSpec) -> dict[str, Value]:
        """The object's own weights: those that Keras trains under their names, the others as constants."""
        key = self.source.identity or self.path  # a live layer may stand in two models, and is one there
        if key not in self.store.made:
            names = variables(spec)
            arrays = self.source.own(names)
            self.store.made[key] = {
                n: self._value(f"{self.path}/{n}", arrays[n], trainable and self.trained) for n, trainable in names
            }
        return self.store.made[key]

    def _value(self, name: str, array: Any, trained: bool) -> Value:
        try:
            data = Data.of(np.asarray(array), DType.of(array.dtype))
        except (IRError, TypeError, ValueError) as e:
            raise NodeRefusedError(f"{name.rpartition('/')[2]} cannot be taken: {e}") from e
        if not trained:
            return constant(data)
        found = self.store.trained[name] = weight(name, data)
        return found


def held(spec: LayerSpec, holding: Holding) -> Iterator[tuple[str, LayerSpec, Weights]]:
    """Every object in a layer, itself first, with the path that its weights have in a graph."""
    yield holding.path, spec, holding.source
    for attribute, found in parts(spec):
        if isinstance(found, list):
            for inner, there in zip(found, holding.children(attribute, found), strict=True):
                yield from held(inner, there)
        else:
            yield from held(found, holding.child(attribute, found))
