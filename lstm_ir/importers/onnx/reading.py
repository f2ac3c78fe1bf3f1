"""From a file, bytes or a library's object to an `onnx_ir.Model` whose functions are inlined.

Only Python code of `onnx` and `onnx_ir`, and the protobuf reader, see the file: no checker and no
shape inference runs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lstm_ir.importers.messages import silenced
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.input_file import content

if TYPE_CHECKING:
    import onnx
    import onnx_ir

Model: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model"
OPSETS = range(1, 29)
"""Versions of the standard operator set that are read; a test compares the handlers with each."""
MAX_BYTES = 2**31 - 1  # of the protobuf format
MAX_NODES = 1_000_000  # with functions inlined


@dataclass(frozen=True)
class Source:
    """A model, its file's name, and the version of the standard operator set."""

    model: Any
    file: str
    opset: int


def read(model: Model) -> Source:
    """The model with its functions inlined; ModelError for what is not a whole model."""
    ir = _library()
    with silenced("onnx_ir"):
        return _read(model, ir)


def _read(model: Model, ir: Any) -> Source:
    file = "<onnx>"
    if isinstance(model, ir.Model):
        found = model
    elif isinstance(model, (str, os.PathLike)):
        file = Path(model).name
        found = _from_file(Path(model))
    else:
        found = _from_proto(model)
    opset = _opset(found, file)
    if found.functions:
        found = _inlined(found, file)
    return Source(found, file, opset)


def model_bytes(model: Model, source: Source) -> int:
    """Bytes of the model: of the file with its data in other files of its folder, or as one message of the format."""
    import onnx
    import onnx_ir

    if isinstance(model, (str, os.PathLike)):
        beside = {_inside(v.const_value) for g in source.model.graphs() for v in g.initializers.values()}
        return os.path.getsize(model) + sum(os.path.getsize(p) for p in beside if p is not None)
    if isinstance(model, bytes):
        return len(model)
    found = model if isinstance(model, onnx.ModelProto) else onnx_ir.to_proto(model)
    return int(found.ByteSize())


def _inside(tensor: Any) -> str | None:
    """The file of a tensor's data, without links; None where none is in the model's folder, as no other is read."""
    import onnx_ir

    if not isinstance(tensor, onnx_ir.ExternalTensor) or not isinstance(tensor.location, str):
        return None
    if not os.path.isfile(tensor.path):
        return None
    found, folder = Path(os.path.realpath(tensor.path)), Path(os.path.realpath(tensor.base_dir))
    return str(found) if found.is_relative_to(folder) else None


def _library() -> Any:
    try:
        import onnx  # noqa: F401  onnx_ir imports it
        import onnx_ir
    except ImportError as e:
        raise ModelError(f"from_onnx needs {e.name}: pip install 'lstm-ir[onnx]'") from e
    return onnx_ir


def _from_file(path: Path) -> Any:
    import onnx_ir

    found = _from_proto(content(path, "an ONNX model", MAX_BYTES, ModelError), path.name)
    # Without a folder the library checks no path of external data, so the folder is never empty.
    onnx_ir.external_data.set_base_dir(found.graph, str(path.resolve().parent))
    return found


def _from_proto(model: Any, file: str = "<onnx>") -> Any:
    import onnx
    import onnx_ir

    if isinstance(model, bytes):
        proto, model = model, onnx.ModelProto()
        if len(proto) > MAX_BYTES:
            raise ModelError(f"{file}: {len(proto)} bytes, more than {MAX_BYTES}")
        try:
            model.ParseFromString(proto)
        except Exception as e:  # protobuf's errors differ between its implementations
            raise ModelError(f"{file}: is not an ONNX model, or is damaged: {e}") from e
    if not isinstance(model, onnx.ModelProto):
        raise ModelError(f"from_onnx takes a path, bytes, a ModelProto or an onnx_ir.Model, got {type(model).__name__}")
    if not model.HasField("graph"):
        raise ModelError(f"{file}: is not an ONNX model: it has no graph")
    try:
        made = onnx_ir.from_proto(model)
        _check_names(made, file)
        _check_attributes(model, file)
        return made
    except ModelError:
        raise
    except RecursionError as e:
        raise ModelError(f"{file}: subgraphs are nested too deep") from e
    except Exception as e:  # whatever a foreign reader raises over a damaged file
        raise ModelError(f"{file}: the model contradicts itself: {type(e).__name__}: {e}") from e


def _check_attributes(model: Any, file: str) -> None:
    """An attribute that a node has twice: one reader takes the first, another the last."""
    todo = [model.graph.node, *(f.node for f in model.functions)]
    while todo:
        for n in todo.pop():
            name, count = max(Counter(a.name for a in n.attribute).items(), key=lambda one: one[1], default=("", 0))
            if count > 1:
                where = n.name or next(iter(n.output), "")
                raise ModelError(
                    f"{file}: the node {where!r} ({n.op_type}) has the attribute {name!r} twice; leave one"
                )
            todo += [g.node for a in n.attribute for g in (a.g, *a.graphs)]


def _check_names(model: Any, file: str) -> None:
    """Names that are not UTF-8 come from the protobuf reader as bytes."""
    names = []
    for g in (model.graph, *model.graph.subgraphs()):
        names += [g.name, *(v.name for v in (*g.inputs, *g.outputs, *g.initializers.values()) if v is not None)]
    for n in model.graph.all_nodes():
        values = (v for v in (*n.inputs, *n.outputs) if v is not None)
        names += [n.name, n.op_type, n.domain, *n.attributes, *(v.name for v in values)]
    wrong = next((n for n in names if not isinstance(n, str | None)), None)
    if wrong is not None:
        raise ModelError(f"{file}: the name {wrong!r} is not text")


def _opset(model: Any, file: str) -> int:
    found = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
    if found is None:
        raise ModelError(f"{file}: the model names no version of the standard operator set")
    if found not in OPSETS:
        raise ModelError(f"{file}: operator set {found} is not one of {OPSETS[0]} to {OPSETS[-1]}")
    return int(found)


def _inlined(model: Any, file: str) -> Any:
    from onnx_ir.passes.common import InlinePass

    try:
        if _expanded_nodes(model) > MAX_NODES:
            raise ModelError(f"{file}: its functions stand for more than {MAX_NODES} nodes")
        copy = model.clone()
        return InlinePass()(copy).model
    except ModelError:
        raise
    except Exception as e:  # functions that call themselves, differ in opset, or miss arguments
        raise ModelError(f"{file}: its functions cannot be inlined: {e}") from e


def _expanded_nodes(model: Any) -> int:
    """How many nodes there are when every call is its function's nodes; counted without inlining."""
    functions = model.functions
    calls = {name: _called(f, functions) for name, f in functions.items()}
    sizes: dict[Any, int] = {}
    stack = list(functions)
    waiting: set[Any] = set()
    while stack:
        name = stack[-1]
        missing = [n for n in calls[name] if n not in sizes]
        if not missing:
            sizes[name] = sum(1 for _ in functions[name].all_nodes()) + _total(calls[name], sizes)
            waiting.discard(stack.pop())
            continue
        if name in waiting:
            raise ModelError(f"the function {name[1]} calls itself")
        waiting.add(name)
        stack += missing
    return sum(1 for _ in model.graph.all_nodes()) + _total(_called(model.graph, functions), sizes)


def _called(graph: Any, functions: Iterable[Any]) -> Counter[Any]:
    named = set(functions)
    return Counter(n.op_identifier() for n in graph.all_nodes() if n.op_identifier() in named)


def _total(calls: Counter[Any], sizes: dict[Any, int]) -> int:
    return sum(times * sizes[name] for name, times in calls.items())
