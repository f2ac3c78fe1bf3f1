"""From a file, a folder or bytes to a graph with functions, signatures and stored variables, without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from lstm_ir.importers.tensorflow.bodies import Body, FunctionNode, Ref, function_attr, ref
from lstm_ir.importers.tensorflow.bundle import Bundle, opened
from lstm_ir.importers.tensorflow.messages import message, parsed
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.foreign_errors import become
from lstm_ir.ir.input_file import content

Model: TypeAlias = "str | os.PathLike[str] | bytes | Any"
MAX_BYTES = 2**31 - 1  # of the protobuf format
SAVED = "saved_model.pb"
VALUES = Path("variables") / "variables"  # of a SavedModel, what stands before .index of its checkpoint
INIT = "__saved_model_init_op"
_NODES = 1_000_000


@dataclass(frozen=True)
class SavedSignature:
    """Named inputs and outputs: which result of the graph each is, with its type as the file states it."""

    inputs: Mapping[str, tuple[Ref, Any]]
    outputs: Mapping[str, Ref]


@dataclass(frozen=True)
class OwnGradient:
    """A function that stands in place of an op's gradient, and what its last arguments are: results of functions."""

    function: str
    bound: tuple[tuple[str, str], ...]  # function, and the result as a graph writes it: `name:0`


@dataclass(frozen=True)
class Source:
    """A model: its graph, its functions by name, its signatures, and its variables' values, with keys by node."""

    file: str
    bytes: int
    version: str
    graph: Body
    functions: dict[str, Any]
    signatures: Mapping[str, SavedSignature]
    bundle: Bundle | None
    keys: Mapping[str, str]
    gradients: Mapping[str, OwnGradient] = field(default_factory=dict)  # by the name that nodes give them

    def function(self, name: str) -> Body | None:
        """The body of a function; None where there is none of that name."""
        found = self.functions.get(name)
        if found is None or isinstance(found, Body):
            return found
        names = [a.name for a in found.signature.output_arg]
        results = [found.ret[n] if n in found.ret else "" for n in names]
        try:
            body = Body(name, found.node_def, [a.name for a in found.signature.input_arg], results, names)
        except ModelError as e:
            raise ModelError(f"{self.file}: function {e}") from e
        self.functions[name] = body
        return body


def read(model: Model, checkpoint: str | os.PathLike[str] | None = None) -> Source:
    """The model. ModelError for what is none, and for what contradicts itself."""
    if not isinstance(checkpoint, str | os.PathLike | None):
        raise ModelError(f"checkpoint is what stands before .index of its files, got {type(checkpoint).__name__}")
    bundle = None if checkpoint is None else opened(checkpoint)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        file = path.name or str(path)
        with become(ModelError, file):
            if path.is_dir():
                return _saved_model(path, bundle)
            if path.name == SAVED:
                return _saved_model(path.parent, bundle)
            data = message_of(path)
        if path.suffix in (".pbtxt", ".prototxt"):
            raise ModelError(f"{file}: graphs as text are not taken; save it in the binary form")
        if path.suffix == ".meta":
            meta = parsed("MetaGraphDef", data, file, "a graph with what belongs to it (.meta)")
            return _source(file, len(data), meta, bundle)
    else:
        file = "<tensorflow>"
        if not isinstance(model, bytes) and not hasattr(model, "SerializeToString"):
            raise ModelError(f"from_tf takes a path, bytes or a GraphDef, got {type(model).__name__}")
        data = model if isinstance(model, bytes) else model.SerializeToString()
        if len(data) > MAX_BYTES:
            raise ModelError(f"{file}: {len(data)} bytes, more than {MAX_BYTES}")
    graph = parsed("GraphDef", data, file, "a TensorFlow graph")
    if not graph.node:
        raise ModelError(f"{file}: is not a TensorFlow graph: it has no nodes")
    meta = message("MetaGraphDef")
    meta.graph_def.CopyFrom(graph)
    return _source(file, len(data), meta, bundle)


def message_of(path: Path) -> bytes:
    """The bytes of a file of protobuf; ModelError where it is larger than one can be, or no file on disk."""
    return content(path, "a TensorFlow graph", MAX_BYTES, ModelError)


def _saved_model(folder: Path, bundle: Bundle | None) -> Source:
    path, file = folder / SAVED, folder.name or str(folder)
    if not path.is_file():
        text = " as text (saved_model.pbtxt), which is not taken" if (folder / "saved_model.pbtxt").is_file() else ""
        raise ModelError(f"{file}: is no SavedModel: the folder has no saved_model.pb{',' if text else ''}{text}")
    data = message_of(path)
    saved = parsed("SavedModel", data, f"{file}/{SAVED}", "a SavedModel")
    graph, values = served(saved, file), folder / VALUES
    if bundle is None and values.with_name(f"{values.name}.index").is_file():
        bundle = opened(values)
    return _source(file, len(data), graph, bundle)


def served(saved: Any, file: str) -> Any:
    """The graph of a SavedModel that is served, or its only one; ModelError where it is not one."""
    graphs = [m for m in saved.meta_graphs if "serve" in m.meta_info_def.tags] or list(saved.meta_graphs)
    if len(graphs) != 1:
        tags = "; ".join(", ".join(m.meta_info_def.tags) for m in graphs)
        raise ModelError(f"{file}: has {len(graphs)} graphs to choose from, not one: {tags or 'none'}")
    return graphs[0]


def _source(file: str, size: int, meta: Any, bundle: Bundle | None) -> Source:
    graph = meta.graph_def
    count = len(graph.node) + sum(len(f.node_def) for f in graph.library.function)
    if count > _NODES:
        raise ModelError(f"{file}: has {count} nodes, more than {_NODES}")
    try:
        body = Body("the graph", graph.node)
        functions: dict[str, Any] = {f.signature.name: f for f in graph.library.function}
        signatures = {n: _signature(n, s) for n, s in meta.signature_def.items() if n != INIT}
    except ModelError as e:
        raise ModelError(f"{file}: {e}") from e
    found = meta.meta_info_def.tensorflow_version
    version = f"TensorFlow {found}" if found else f"graphs of version {graph.versions.producer}"
    source = Source(
        file, size + (0 if bundle is None else bundle.size), version, body, functions, signatures, bundle, {}
    )  # fmt: skip
    return replace(source, keys=_restored(source), gradients=_gradients(meta))


def _gradients(meta: Any) -> dict[str, OwnGradient]:
    """The gradients of `tf.custom_gradient` that a SavedModel holds."""
    nodes, called = meta.object_graph_def.nodes, meta.object_graph_def.concrete_functions
    found = {}
    for g in meta.graph_def.library.registered_gradients:
        places = called[g.gradient_func].bound_inputs if g.gradient_func in called else ()
        if all(0 <= p < len(nodes) for p in places):
            bound = tuple((c.concrete_function, c.name) for c in (nodes[p].captured_tensor for p in places))
            found[g.registered_op_type] = OwnGradient(g.gradient_func, bound)
    return found


def _signature(name: str, proto: Any) -> SavedSignature:
    def place(info: Any) -> Ref:
        if info.WhichOneof("encoding") != "name":
            raise ModelError("a signature has a tensor that is sparse or composite, which is not taken")
        return ref(info.name, f"signature {name}")

    inputs = {n: (place(info), info) for n, info in sorted(proto.inputs.items())}
    return SavedSignature(inputs, {n: place(info) for n, info in sorted(proto.outputs.items())})


# -- which tensor of a checkpoint a variable is: what the graph's own nodes for restoring say


def _restored(source: Source) -> dict[str, str]:
    """By the node of a variable the key that its value has in a checkpoint."""
    found = _assigned(source.graph)
    for call in source.graph.nodes.values():
        if call.op in ("PartitionedCall", "StatefulPartitionedCall"):
            body = source.function(function_attr(call, "f"))
            if body is not None and any(n.op == "RestoreV2" for n in body.nodes.values()):
                for name, key in _assigned(body).items():
                    k = body.arguments.get(name, len(call.inputs))
                    if k < len(call.inputs):
                        found[call.inputs[k].node] = key
    return {**_copied(source.graph, found), **found}


def _copied(body: Body, keys: Mapping[str, str]) -> dict[str, str]:
    """Variables that another one starts from: where TensorFlow stores a copy, that is what the first one holds."""
    found = {}
    for n in body.nodes.values():
        if n.op == "AssignVariableOp" and len(n.inputs) == 2 and n.inputs[0].node in keys:
            read = body.nodes.get(body.passed(n.inputs[1]).node)
            if read is not None and read.op == "ReadVariableOp" and read.inputs:
                found[read.inputs[0].node] = keys[n.inputs[0].node]
    return found


def _assigned(body: Body) -> dict[str, str]:
    found = {}
    for n in body.nodes.values():
        if n.op in ("Assign", "AssignVariableOp") and len(n.inputs) == 2:
            value = body.passed(n.inputs[1])
            restore = body.nodes.get(value.node)
            if restore is not None and restore.op == "RestoreV2" and len(restore.inputs) == 3:
                names = _texts(body.nodes.get(restore.inputs[1].node))
                if value.index < len(names):
                    found[n.inputs[0].node] = names[value.index]
    return found


def _texts(node: FunctionNode | None) -> list[str]:
    if node is None or node.op != "Const" or "value" not in node.attrs:
        return []
    return [t.decode("utf-8", "replace") for t in node.attrs["value"].tensor.string_val]
