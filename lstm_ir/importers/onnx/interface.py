"""Inputs and outputs of a model: their types, the sizes they name, and what the caller fixes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.importers.named_sizes import NamedSizes, refuse_unknown
from lstm_ir.importers.naming import word
from lstm_ir.importers.onnx.narrow import LIMITS, Narrow, held_data, name_of, refuse_outside
from lstm_ir.importers.onnx.reading import Source
from lstm_ir.importers.onnx.tensors import dtype_of
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.data import Data
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import DimError, IRError, ModelError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DimLike, TensorType


class Bindings(NamedSizes):
    """Names of sizes as the graph has them, and inputs that are constants."""

    def __init__(self, source: Source, constants: Mapping[str, Any], sizes: Mapping[str, DimLike]) -> None:
        graph = source.model.graph
        inputs = [v for v in graph.inputs if v.name not in graph.initializers]
        refuse_unknown(source.file, "constants", constants, [v.name for v in inputs])
        free = [v for v in inputs if v.name not in constants]
        there = sorted(set().union(*(dims.names(d) for v in free for d in _declared(v) or ())))
        refuse_unknown(source.file, "sizes", sizes, there)
        super().__init__(source.file, sizes)
        self.constants = dict(constants)

    def type(self, v: Any) -> TensorType:
        """The type of an input."""
        shape = _declared(v)
        if shape is None:
            raise NodeRefusedError("its rank is not stated")
        refuse_outside(name_of(v.dtype), "input")
        try:
            return TensorType(tuple(dims.substitute(d, self.named) for d in shape), dtype_of(v.dtype))
        except DimError as e:
            raise NodeRefusedError(str(e)) from None

    def constant(self, v: Any) -> Value | Narrow | None:
        """The array that the caller fixes an input to; None where it stays an input."""
        if v.name not in self.constants:
            return None
        try:
            kind, given = name_of(v.dtype), np.asarray(self.constants[v.name])
            data = held_data(_inside(given, kind), kind) if kind in LIMITS else Data.of(given, dtype_of(v.dtype))
        except (IRError, ValueError, TypeError, OverflowError) as e:
            raise ModelError(f"{self.file}: constants: {v.name}: {e}") from None
        shape = _declared(v)
        if shape is not None and not _fits(data.type.shape, shape):
            shown = ",".join(map(str, shape))
            raise ModelError(f"{self.file}: constants: {v.name} is [{shown}], got {data.type}")
        return Narrow(constant(data), kind) if kind in LIMITS else constant(data)


def _inside(array: Any, kind: str) -> Any:
    """Integers that the type has; ValueError where they are others."""
    low, high = LIMITS[kind]
    integers = array.astype(np.int64) if array.dtype.kind not in "iub" else array
    outside = any(not low <= int(n) <= high for n in integers.reshape(-1))  # `flat` ends at 32 axes
    if outside or (integers.astype(object) != array.astype(object)).any():
        raise ValueError(f"not integers of type {kind}")
    return integers


def _fits(shape: tuple[Dim, ...], declared: tuple[Dim, ...]) -> bool:
    return len(shape) == len(declared) and all(
        a == b or not isinstance(b, int) for a, b in zip(shape, declared, strict=True)
    )


def _declared(v: Any) -> tuple[Dim, ...] | None:
    """The sizes as the file states them; one without a name is called after input and axis."""
    if v.type is None or v.shape is None or type(v.type).__name__ != "TensorType":
        return None
    return tuple(_size(d, f"{v.name}_{axis}") for axis, d in enumerate(v.shape))


def _size(d: Any, otherwise: str) -> Dim:
    if isinstance(d, int):
        return d
    text = d.value if isinstance(d.value, str) else ""
    try:
        return dims.parse(text) if text else dims.name(word(otherwise))
    except DimError:
        return dims.name(word(text) if re.search("[A-Za-z]", text) else word(otherwise))
