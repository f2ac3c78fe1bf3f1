"""Which importer a model belongs to: by the name and the first bytes of a file, or by the library of an object.

The importers and the libraries come with the first use of a kind: no name of them is imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lstm_ir.importers.examined import Examined
from lstm_ir.importers.streams import stream_of
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.input_file import reading
from lstm_ir.ir.program import Program

if TYPE_CHECKING:
    from lstm_ir.importers.original import Original

HDF5 = b"\x89HDF\r\n\x1a\n"


class Functions(NamedTuple):
    """What an importer does with a model; each takes the options of its kind by name.

    original: the model as its own library runs it; it takes those options that choose what is run.
    """

    take: Callable[..., Graph | Program]
    examine: Callable[..., Examined]
    original: Callable[..., Original]


@dataclass(frozen=True)
class ModelKind:
    """A kind of model. runs: the library that runs the original.

    options: what the importer can be told of a file. chosen: those of them that the original has to know. keeps:
    whether the original takes and gives the state of a graph that has some.
    """

    name: str
    runs: str
    suffixes: tuple[str, ...]
    options: frozenset[str]
    chosen: frozenset[str]
    functions: Callable[[], Functions]
    keeps: bool = False

    def check(self, model: Any, options: Mapping[str, Any]) -> None:
        """ModelError for an option that this importer does not have."""
        for name in options:
            if name not in self.options:
                raise ModelError(f"{os.fspath(model)}: {name} is no option of {self.name} models")

    def graph(self, model: Any, options: Mapping[str, Any]) -> Graph:
        """The graph of one call, its state as inputs and outputs; ModelError with all refusals, and for state that the
        original does not give."""
        imported = self.functions().take(model, **options)
        if isinstance(imported, Graph):
            return imported
        if imported.state and not self.keeps:
            raise ModelError(
                f"{imported.name}: it keeps {', '.join(imported.state)} between calls: compare its calls in turn"
            )
        graph = self.functions().examine(model, **options).graph
        assert graph is not None
        return graph

    def original(self, model: Any, options: Mapping[str, Any]) -> Original:
        """The model as its own library runs it. options: those of the importer."""
        return self.functions().original(model, **{n: v for n, v in options.items() if n in self.chosen})


def _onnx() -> Functions:
    from lstm_ir.importers.onnx.examine import examine
    from lstm_ir.importers.onnx.model import from_onnx
    from lstm_ir.importers.onnx.reference import OnnxRuntime

    return Functions(from_onnx, examine, OnnxRuntime)


def _tensorflow() -> Functions:
    from lstm_ir.importers.tensorflow.examine import examine
    from lstm_ir.importers.tensorflow.model import from_tf
    from lstm_ir.importers.tensorflow.reference import TensorFlow

    return Functions(from_tf, examine, TensorFlow)


def _keras() -> Functions:
    from lstm_ir.importers.keras.examine import examine
    from lstm_ir.importers.keras.model import from_keras
    from lstm_ir.importers.keras.reference import Keras

    return Functions(from_keras, examine, Keras)


def _torch() -> Functions:
    from lstm_ir.importers.torch.examine import examine
    from lstm_ir.importers.torch.model import from_torch
    from lstm_ir.importers.torch.reference import Torch

    return Functions(from_torch, examine, Torch)


CONSTANTS = frozenset({"constants"})
RESULTS = frozenset({"checkpoint", "signature", "outputs", "constants"})
ONNX = ModelKind("ONNX", "onnxruntime", (".onnx",), CONSTANTS | {"sizes", "stateful"}, CONSTANTS, _onnx)
KERAS = ModelKind("Keras", "Keras", (".keras", ".h5", ".hdf5"), frozenset({"sizes"}), frozenset(), _keras, keeps=True)
TENSORFLOW = ModelKind(
    "TensorFlow", "TensorFlow", (".pb", ".meta", ".pbtxt", ".prototxt"), RESULTS | {"sizes"}, RESULTS, _tensorflow
)
TORCH = ModelKind("PyTorch", "PyTorch", (".pt2", ".pt", ".pth", ".ckpt", ".bin"), frozenset(), frozenset(), _torch)
KINDS = (ONNX, KERAS, TENSORFLOW, TORCH)


def kind_of_file(path: str | os.PathLike[str]) -> ModelKind:
    """By the extension; a folder is a SavedModel, any other file HDF5 by its first bytes, or else ONNX."""
    found = Path(path)
    if found.is_dir():
        return TENSORFLOW
    for kind in KINDS:
        if found.suffix.lower() in kind.suffixes:
            return kind
    try:
        with reading(found, "a model", ModelError) as (f, _):
            return KERAS if f.read(len(HDF5)) == HDF5 else ONNX
    except ModelError:  # its reader says what is wrong
        return ONNX


def kind_of(model: Any) -> ModelKind | None:
    """Of a path, of bytes (ONNX), or of an object of one of the libraries; None for anything else."""
    if isinstance(model, (str, os.PathLike)):
        return kind_of_file(model)
    if isinstance(model, bytes):
        return ONNX
    for kind, library, name in (
        (KERAS, "keras", "Model"), (TORCH, "torch.nn", "Module"), (TORCH, "torch.export", "ExportedProgram"),
        (ONNX, "onnx", "ModelProto"), (ONNX, "onnx_ir", "Model"),
    ):  # fmt: skip  # Keras first: over PyTorch, its models are modules too
        there = _class(library, name)
        if there is not None and isinstance(model, there):
            return kind
    descriptor = getattr(type(model), "DESCRIPTOR", None)
    return TENSORFLOW if "tensorflow" in getattr(descriptor, "full_name", "").split(".") else None


def _class(library: str, name: str) -> type | None:
    """A class of a library that is imported already; None where it is not, as then no object can be of it."""
    found = getattr(sys.modules.get(library), name, None)
    return found if isinstance(found, type) else None


def program_of(
    kind: ModelKind, model: str | os.PathLike[str], options: Mapping[str, Any], stateful: bool | Mapping[str, str]
) -> Program:
    """The program of a file. stateful: what `from_onnx` calls `stateful`, for every kind.

    Raises ModelError where a model that keeps state by itself is to keep more.
    """
    take = kind.functions().take
    if stateful is False:
        return Program.of(take(model, **options))
    if "stateful" in kind.options:
        return Program.of(take(model, **options, stateful=stateful))
    file = Path(model).name

    def make(sizes: Mapping[str, Any]) -> Graph:
        imported = take(model, **{**options, "sizes": sizes})
        if isinstance(imported, Graph):
            return imported
        reason = "it keeps state by itself" if imported.state else "it has several signatures: choose one"
        raise ModelError(f"{file}: stateful: {reason}")

    return stream_of(file, make, options.get("sizes", {}), stateful)
