"""A graph in a session of TensorFlow: a GraphDef, a `.meta` or a SavedModel, with the variables of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lstm_ir.importers.tensorflow.bundle import prefix_of
from lstm_ir.importers.tensorflow.messages import parsed
from lstm_ir.importers.tensorflow.ports import Ports
from lstm_ir.importers.tensorflow.reading import SAVED, message_of, served
from lstm_ir.importers.tensorflow.variable import VARIABLES
from lstm_ir.ir.errors import ModelError

Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def in_session(tensorflow: Any, model: Any, checkpoint: str | os.PathLike[str] | None, graph_ports: Ports) -> Run:
    """A callable from arrays by name to arrays by name. model: a SavedModel's folder, a file, bytes or a message."""
    v1 = tensorflow.compat.v1
    graph = tensorflow.Graph()
    session = v1.Session(graph=graph)
    with graph.as_default():
        saver = _read(v1, session, model)
        if checkpoint is not None:
            _restore(tensorflow, session, saver, str(prefix_of(checkpoint)))
    places = {i.name: f"{r.node}:{r.index}" for r, i in graph_ports.inputs.items()}
    wanted = {n: f"{r.node}:{r.index}" for n, r in graph_ports.outputs.items()}

    def run(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        results: Mapping[str, Any] = session.run(wanted, {places[n]: a for n, a in arrays.items()})
        return results

    return run


def _read(v1: Any, session: Any, model: Any) -> Any:
    """Put the model into the session's graph; what its file says of restoring (a SaverDef), or None."""
    path = Path(model) if isinstance(model, (str, os.PathLike)) else None
    if path is not None and path.is_dir():
        saved = parsed("SavedModel", message_of(path / SAVED), path.name, "a SavedModel")
        meta = v1.saved_model.load(session, list(served(saved, path.name).meta_info_def.tags), str(path))
        return meta.saver_def if meta.HasField("saver_def") else None
    data = model if path is None else message_of(path)
    data = data if isinstance(data, bytes) else data.SerializeToString()
    if path is not None and path.suffix == ".meta":
        meta = v1.MetaGraphDef.FromString(data)
        v1.train.import_meta_graph(meta, clear_devices=True)
        return meta.saver_def if meta.HasField("saver_def") else None
    v1.import_graph_def(v1.GraphDef.FromString(data), name="")
    return None


def _restore(tensorflow: Any, session: Any, saver: Any, prefix: str) -> None:
    """Give the variables the values of a checkpoint: as the file says, or else each what has its name."""
    if saver is not None and saver.restore_op_name:
        session.run(saver.restore_op_name, {saver.filename_tensor_name: prefix})
        return
    reader = tensorflow.train.load_checkpoint(prefix)
    raw, writes = tensorflow.raw_ops, []
    for op in session.graph.get_operations():
        if op.type in VARIABLES:
            name = (op.get_attr("shared_name") or b"").decode() or op.name
            if reader.has_tensor(name):
                value = reader.get_tensor(name)
                if op.type == "VarHandleOp":
                    writes.append(raw.AssignVariableOp(resource=op.outputs[0], value=value))
                else:
                    writes.append(raw.Assign(ref=op.outputs[0], value=value, validate_shape=False).op)
    if not writes:
        raise ModelError("the checkpoint has no value for a variable of the graph")
    session.run(writes)
