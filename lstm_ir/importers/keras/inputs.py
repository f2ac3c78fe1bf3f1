"""Inputs of a Keras model: their types, and the names of the sizes that it leaves open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lstm_ir.importers.keras.call import dtype_named
from lstm_ir.importers.keras.config import LayerSpec, ModelSpec, refs
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import DimError, ModelError
from lstm_ir.ir.types import DimLike, TensorType, shape_of

BATCH, TIME = "B", "T"


class OpenSizes:
    """Names of open sizes: B for the batch, T for the only other one, else INPUT_AXIS; the caller may give others."""

    def __init__(self, file: str, model: ModelSpec, sizes: Mapping[str, DimLike]) -> None:
        shapes = {r.layer: _shape(model.by_name[r.layer]) for r in refs(model.inputs) if r.layer in model.by_name}
        places = [(n, k) for n, s in shapes.items() for k, d in enumerate(s) if d is None and k > 0]
        self.at = {(n, k): TIME if len(places) == 1 else f"{word(n)}_{k}" for n, k in places}
        self.at |= {(n, 0): BATCH for n, s in shapes.items() if s and s[0] is None}
        self.named: dict[str, Dim] = {}
        unknown = sorted(set(sizes) - set(self.at.values()))
        if unknown:
            there = ", ".join(dict.fromkeys(self.at.values())) or "none"
            raise ModelError(f"{file}: sizes has {unknown[0]!r}; the model has {there}")
        try:
            for name, size in sizes.items():
                (self.named[name],) = shape_of((size,))
        except DimError as e:
            raise ModelError(f"{file}: sizes: {e}") from None

    def unify(self, name: str, by: Dim) -> None:
        """From now on the size `name` is `by`."""
        self.named = {n: dims.substitute(d, {name: by}) for n, d in self.named.items()}
        self.named[name] = by

    def of(self, name: str, axis: int) -> Dim:
        """The size of an open axis of an input."""
        return dims.substitute(dims.name(self.at[name, axis]), self.named)


def _shape(layer: LayerSpec) -> list[Any]:
    found = layer.config.get("batch_shape", layer.config.get("batch_input_shape"))
    return list(found) if isinstance(found, (list, tuple)) else []


def input_type(layer: LayerSpec, sizes: OpenSizes) -> TensorType:
    """The type of an input; RefusedError for one that is sparse, ragged or of no shape."""
    shape = _shape(layer)
    if not shape:
        raise NodeRefusedError("it has no batch_shape")
    for word_ in ("sparse", "ragged", "optional"):
        if layer.config.get(word_):
            raise NodeRefusedError(f"it is {word_}")
    if any(d is not None and (isinstance(d, bool) or not isinstance(d, int) or d < 0) for d in shape):
        raise NodeRefusedError(f"its shape is {shape!r:.60}")
    dtype = dtype_named(layer.config.get("dtype") or "float32")
    return TensorType(tuple(sizes.of(layer.name, k) if d is None else d for k, d in enumerate(shape)), dtype)


def word(text: str) -> str:
    """The text as a name of a size or a graph."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return found if re.match("[A-Za-z_]", found) else f"_{found}"
