"""Inputs of a model: their types, the sizes they name, and what the caller fixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.importers.named_sizes import NamedSizes, refuse_unknown
from lstm_ir.importers.naming import word
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.tensors import dtype_of
from lstm_ir.ir import dims
from lstm_ir.ir.data import Data
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import DimError, IRError, ModelError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DimLike, TensorType

FIRST = ("B", "T")
"""What an open size is called that the file does not name: that of axis 0, and of axis 1."""


@dataclass(frozen=True)
class Input:
    """An input as the file states it: TensorFlow's number of the element type, and sizes, None for open ones."""

    name: str
    dtype: int
    shape: tuple[int | None, ...] | None


def check_names(file: str, inputs: Iterable[Input], constants: Mapping[str, Any], sizes: Mapping[str, DimLike]) -> None:
    """ModelError for constants and sizes that no input of the model has."""
    inputs = list(inputs)
    places = {name for i in inputs if i.name not in constants for pair in _places(i) for name in pair}
    for what, given, there in (("constants", constants, {i.name for i in inputs}), ("sizes", sizes, places)):
        refuse_unknown(file, what, given, sorted(there))


class Bindings(NamedSizes):
    """Names of sizes as the graph has them, and inputs that are constants."""

    def __init__(self, file: str, constants: Mapping[str, Any], sizes: Mapping[str, DimLike]) -> None:
        super().__init__(file, sizes)
        self.constants = dict(constants)

    def type(self, graph_input: Input) -> TensorType:
        """The type of an input. An axis is found under its own name first, then under that of open sizes."""
        if graph_input.shape is None:
            raise NodeRefusedError("its rank is not stated")
        own = dict(_places(graph_input))
        shape: list[Dim] = []
        for axis, d in enumerate(graph_input.shape):
            if d is not None:
                shape.append(d)
                continue
            place = _place(graph_input, axis)
            size: Dim = self.named.get(place, dims.name(own[place]))
            shape.append(dims.substitute(size, self.named))
        try:
            return TensorType(tuple(shape), dtype_of(graph_input.dtype))
        except DimError as e:
            raise NodeRefusedError(str(e)) from None

    def constant(self, graph_input: Input) -> Value | None:
        """The array that the caller fixes an input to; None where it stays an input."""
        if graph_input.name not in self.constants:
            return None
        try:
            data = Data.of(np.asarray(self.constants[graph_input.name]), dtype_of(graph_input.dtype))
        except (IRError, ValueError, TypeError) as e:
            raise ModelError(f"{self.file}: constants: {graph_input.name}: {e}") from None
        if graph_input.shape is not None and not _fits(data.type.shape, graph_input.shape):
            shown = ",".join("?" if d is None else str(d) for d in graph_input.shape)
            raise ModelError(f"{self.file}: constants: {graph_input.name} is [{shown}], got {data.type}")
        return constant(data)


def _fits(shape: tuple[Dim, ...], stated: tuple[int | None, ...]) -> bool:
    return len(shape) == len(stated) and all(b is None or a == b for a, b in zip(shape, stated, strict=True))


def _place(graph_input: Input, axis: int) -> str:
    return f"{word(graph_input.name)}_{axis}"


def _places(graph_input: Input) -> list[tuple[str, str]]:
    """Of each open size the name of its own, `x_0`, and the name that it has by default."""
    places = []
    for axis, d in enumerate(graph_input.shape or ()):
        if d is None:
            place = _place(graph_input, axis)
            places.append((place, FIRST[axis] if axis < len(FIRST) else place))
    return places
