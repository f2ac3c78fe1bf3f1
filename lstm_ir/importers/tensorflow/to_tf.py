"""`li.to_tf`: weights that were trained here, written into a copy of the TensorFlow model that they came from."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.bodies import FunctionNode
from lstm_ir.importers.tensorflow.bundle import ATTRIBUTE, Bundle
from lstm_ir.importers.tensorflow.messages import parsed
from lstm_ir.importers.tensorflow.reading import SAVED, VALUES, Source, message_of, read, served
from lstm_ir.importers.tensorflow.tensors import dtype_of, read_tensor
from lstm_ir.importers.tensorflow.variable import VARIABLES
from lstm_ir.importers.tensorflow.variable_names import VariableNames
from lstm_ir.importers.trained import fitting
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.has_weights import HasWeights
from lstm_ir.ir.output_file import replacing
from lstm_ir.ir.temporary import new_folder
from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]
Place: TypeAlias = "str | FunctionNode"  # a weight is the tensor of a key in the checkpoint, or a literal
# Keras exports a variable twice: as what functions read, and in its list of all variables.
_LISTED = re.compile(rf"(?:_all_variables|variables)/\d+{re.escape(ATTRIBUTE)}")
_FINGERPRINT = "fingerprint.pb"  # hashes of the files beside it: a folder without it is older, and taken as well


def to_tf(
    weights: HasWeights | Mapping[str, Any],
    model: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a copy of a TensorFlow model with these weights, by the names that `from_tf` gives; its path comes back.

    weights: an executable (of one that trains, its weights as trained so far), or arrays by name. model, checkpoint:
    what `from_tf` read. path: a folder for a SavedModel, a file for a frozen graph; with `checkpoint` the copy is a
    checkpoint, and path what stands before its `.index`. Names of which the model has others may be missing; each
    name that is given has to be the model's, with its shape and dtype. ModelError, and nothing is written, where one
    is not, and where `path` is there already. TensorFlow is not needed.
    """
    if not isinstance(model, str | os.PathLike):
        raise ModelError(f"to_tf: the second argument is the path of a TensorFlow model, got {type(model).__name__}")
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"to_tf: the third argument is the path of the copy, got {type(path).__name__}")
    source, given, out = read(model, checkpoint), Path(model), Path(path)
    given = given.parent if given.name == SAVED else given
    found = fitting("to_tf", weights, source.file, _there(source), _kind(source))
    stored = _copies(source, {place: a for place, a in found if isinstance(place, str)})
    literals = {place.name: a for place, a in found if not isinstance(place, str)}
    try:
        _refuse_present(out if checkpoint is None else out.with_name(f"{out.name}.index"))
        if checkpoint is None and given.is_dir() and out.resolve().is_relative_to(given.resolve()):
            raise ModelError(f"to_tf: {out.name} stands in the model itself, {source.file}: name a path outside of it")
        out.parent.mkdir(parents=True, exist_ok=True)
        if checkpoint is not None:
            _bundle(source).write(out, stored)
        elif not given.is_dir():
            with replacing(out) as file:
                file.write(_with_literals(given, source.file, literals))
        else:
            with new_folder(out.parent) as beside:
                made = beside / out.name
                shutil.copytree(given, made, ignore=_unlike(given))
                if source.bundle is not None:
                    source.bundle.write(made / VALUES, stored)
                if literals:
                    (made / SAVED).write_bytes(_with_literals(given / SAVED, source.file, literals))
                os.rename(made, out)
    except NodeRefusedError as e:  # a data file that is missing or too short
        raise ModelError(f"to_tf: {source.file}: {e}") from None
    except (OSError, shutil.Error) as e:
        raise ModelError(f"to_tf: {out.name}: {getattr(e, 'strerror', None) or e}") from e
    return out


def _there(source: Source) -> dict[str, Place]:
    """The weights of a model by name: its variables; of one that was frozen, its literals."""
    nodes = source.graph.nodes.values()
    if any(n.op in VARIABLES for n in nodes):
        _bundle(source)
        return dict(VariableNames(source).keys)
    return {n.name: n for n in nodes if n.op == "Const" and "value" in n.attrs}


def _bundle(source: Source) -> Bundle:
    if source.bundle is None:
        raise ModelError(f"to_tf: {source.file} has variables without values: give checkpoint=, as from_tf had it")
    return source.bundle


def _kind(source: Source) -> Callable[[Place], tuple[DType, tuple[int, ...]]]:
    def kind(place: Place) -> tuple[DType, tuple[int, ...]]:
        if not isinstance(place, str):
            held = read_tensor(place.attrs["value"].tensor).array
            return DType.of(held.dtype), held.shape
        entry = _bundle(source).stored(place)
        dtype = dtype_of(entry.dtype)
        if entry.size != prod(entry.shape) * dtype.bytes:
            raise NodeRefusedError(f"it has {entry.size} bytes in {source.bundle.file if source.bundle else ''}")
        return dtype, entry.shape

    return kind


def _copies(source: Source, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays by key, and those of the same variables in the other list of a model that Keras exported."""
    if source.bundle is None or not arrays:
        return dict(arrays)
    named: dict[str, list[str]] = {}
    for name, key in source.bundle.objects():
        if _LISTED.fullmatch(key):
            named.setdefault(name, []).append(key)
    out = dict(arrays)
    for keys in named.values():
        given = [k for k in keys if k in arrays]
        if len(keys) == 2 and len(given) == 1 and len({k.partition("/")[0] for k in keys}) == 2:
            out |= dict.fromkeys(keys, arrays[given[0]])
    return out


def _with_literals(path: Path, file: str, literals: Mapping[str, Array]) -> bytes:
    """The bytes of a file with other values of these nodes of its graph."""
    if path.name == SAVED:
        whole = parsed("SavedModel", message_of(path), file, "a SavedModel")
        graph = served(whole, file).graph_def
    elif path.suffix == ".meta":
        whole = parsed("MetaGraphDef", message_of(path), file, "a graph with what belongs to it (.meta)")
        graph = whole.graph_def
    else:
        whole = graph = parsed("GraphDef", message_of(path), file, "a TensorFlow graph")
    for node in graph.node:
        if node.name in literals:
            _fill(node.attr["value"].tensor, literals[node.name])
    return bytes(whole.SerializeToString())


def _fill(tensor: Any, array: Array) -> None:
    """Give a TensorProto other elements of its dtype and shape."""
    kept = type(tensor)()
    kept.dtype = tensor.dtype
    kept.tensor_shape.CopyFrom(tensor.tensor_shape)
    kept.tensor_content = np.ascontiguousarray(array).tobytes()
    tensor.CopyFrom(kept)


def _unlike(folder: Path) -> Callable[[str, list[str]], Iterable[str]]:
    """What of a SavedModel's folder is not copied: its checkpoint, and hashes of it."""
    start = (folder / VALUES).name

    def ignored(inside: str, names: Sequence[str]) -> list[str]:
        if Path(inside) == folder:
            return [n for n in names if n == _FINGERPRINT]
        return [n for n in names if Path(inside) == (folder / VALUES).parent and n.startswith(f"{start}.")]

    return ignored


def _refuse_present(path: Path) -> None:
    if os.path.lexists(path):
        raise ModelError(f"to_tf: {path.name} is there already: name another path, or remove it first")
