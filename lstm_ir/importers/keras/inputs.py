"""Inputs of a Keras model: their types, and the names of the sizes that it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.importers.keras.call import dtype_named
from lstm_ir.importers.keras.config import LayerSpec, ModelSpec, refs
from lstm_ir.importers.named_sizes import NamedSizes, refuse_unknown
from lstm_ir.importers.naming import word
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DimLike, TensorType

BATCH, TIME = "B", "T"


class OpenSizes(NamedSizes):
    """Names of open sizes: B for the batch, T for the only other one, else INPUT_AXIS; the caller may give others."""

    def __init__(self, file: str, model: ModelSpec, sizes: Mapping[str, DimLike]) -> None:
        shapes = {r.layer: _shape(model.by_name[r.layer]) for r in refs(model.inputs) if r.layer in model.by_name}
        places = [(n, k) for n, s in shapes.items() for k, d in enumerate(s) if d is None and k > 0]
        self.at = {(n, k): TIME if len(places) == 1 else f"{word(n)}_{k}" for n, k in places}
        self.at |= {(n, 0): BATCH for n, s in shapes.items() if s and s[0] is None}
        refuse_unknown(file, "sizes", sizes, dict.fromkeys(self.at.values()))
        super().__init__(file, sizes)

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
