"""Models in every form in which TensorFlow keeps them, for TensorFlow as an original: nothing of them is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow_models import Record

CASES: dict[str, Callable[[Record], None]] = {}


def _two(record: Record) -> None:
    """A SavedModel of TensorFlow 2 with two signatures, and a checkpoint of other values beside it."""
    import tensorflow as tf

    held = tf.Module()
    held.w = tf.Variable(record.normal(3, 2), name="w")
    spec = tf.TensorSpec((None, 3), tf.float32, name="x")
    signatures = {
        "double": tf.function(lambda x: {"y": x @ held.w * 2.0}, input_signature=[spec]),
        "half": tf.function(lambda x: {"y": x @ held.w * 0.5}, input_signature=[spec]),
    }
    tf.saved_model.save(held, str(record.path), signatures=signatures)
    held.w.assign(record.normal(3, 2))
    tf.train.Checkpoint(w=held.w).write(str(record.path / "later"))


def _first(record: Record, session: Any, resource: bool) -> tuple[Any, dict[str, Any]]:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, (None, 3), "x")
    w = v1.get_variable("w", initializer=record.normal(3, 2), use_resource=resource)
    b = v1.get_variable("deep/b", initializer=record.normal(2), use_resource=resource)
    y = tf.add(tf.matmul(x, w), b, name="y")
    z = tf.tanh(tf.matmul(x, w), name="z")
    session.run(v1.global_variables_initializer())
    return x, {"y": y, "z": z, "w": w}


def _one(record: Record) -> None:
    """A SavedModel of TensorFlow 1, and a checkpoint of later values."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x, made = _first(record, session, False)
        v1.saved_model.simple_save(session, str(record.path), {"x": x}, {"z": made["z"]})
        session.run(made["w"].assign(record.normal(3, 2)))
        v1.train.Saver().save(session, str(record.path / "later"))


def _graph(record: Record, resource: bool) -> None:
    """A graph, its `.meta` and a checkpoint."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        _first(record, session, resource)
        record.path.with_suffix(".pb").write_bytes(session.graph.as_graph_def().SerializeToString())
        v1.train.Saver().save(session, str(record.path))


CASES |= {"two": _two, "one": _one, "graph": lambda r: _graph(r, False), "resources": lambda r: _graph(r, True)}
