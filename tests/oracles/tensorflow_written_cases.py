"""Models whose weights are trained elsewhere and written back: TensorFlow's own steps, before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tensorflow_models import Record, f32

STEPS, HERE, RATE = 120, 100, 0.05  # of the steps, those that are not TensorFlow's


def _steps(run: Callable[[Any], Any], variables: Sequence[Any], record: Record, first: int, last: int) -> list[Any]:
    """The losses of gradient descent from step `first` to `last`, on rows drawn by the number of the step."""
    import tensorflow as tf

    losses = []
    for k in range(first, last):
        x, want = rows(k)
        with tf.GradientTape() as tape:
            losses.append(tf.reduce_mean((run(tf.constant(x)) - want) ** 2))
        for v, slope in zip(variables, tape.gradient(losses[-1], variables), strict=True):
            v.assign_sub(RATE * slope)
    return [v.numpy() for v in losses]


def rows(step: int) -> tuple[Any, Any]:
    """Inputs and what is to come out."""
    rng = np.random.default_rng(step)
    return f32(rng.normal(size=(5, 4))), f32(rng.normal(size=(5, 4)))


def _twins(record: Record) -> None:
    """Two variables of one name and shape, two signatures, a count, and a word, which no signature reads."""
    import tensorflow as tf

    module = tf.Module()
    for name in ("a", "b"):
        part = tf.Module()
        part.w = tf.Variable(0.5 * record.normal(4, 4), name="w")
        part.c = tf.Variable(f32([0, 0, 0, 0]), name="c")
        setattr(module, name, part)
    module.count = tf.Variable(np.int64(7), name="count")
    module.word = tf.Variable("word", name="word")
    spec = tf.TensorSpec((None, 4), tf.float32, name="x")

    def run(x: Any) -> Any:
        return tf.tanh(x @ module.a.w + module.a.c) @ module.b.w + module.b.c

    module.run = tf.function(run, input_signature=[spec])
    second = tf.function(lambda x: {"y": x @ module.b.w}, input_signature=[spec])
    both = {"serving_default": tf.function(lambda x: {"y": run(x)}, input_signature=[spec]), "second": second}
    tf.saved_model.save(module, str(record.path), signatures=both)
    variables = [module.a.w, module.a.c, module.b.w, module.b.c]
    record.keep("more", {"losses": np.array(_steps(module.run, variables, record, 0, STEPS))})
    record.keep("more", {n: v.numpy() for n, v in zip(("a/w", "a/c", "b/w", "b/c"), variables, strict=True)})


def _twins_on(record: Record) -> None:
    """What TensorFlow finds in the folder that was written, and the rest of the steps."""
    import tensorflow as tf

    module = tf.saved_model.load(str(record.path))
    x, _ = rows(STEPS)
    record.outputs({"y": module.signatures["serving_default"](x=tf.constant(x))["y"].numpy()})
    record.keep("more", {"count": module.count.numpy(), "word": np.array(module.word.numpy().decode())})
    variables = [module.a.w, module.a.c, module.b.w, module.b.c]
    record.keep("more", {"losses": np.array(_steps(module.run, variables, record, HERE, STEPS))})


def _frozen_on(record: Record) -> None:
    """The result of a frozen graph that was written."""
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef.FromString((record.folder / f"{record.path.name}.pb").read_bytes())
    function = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph, name=""), [])
    x = record.normal(2, 3)
    record.inputs(x=x)
    record.outputs({"y": function.prune("x:0", "y:0")(tf.constant(x)).numpy()})


def _checkpoint_on(record: Record) -> None:
    """What TensorFlow reads of a checkpoint that was written."""
    import tensorflow as tf

    found = tf.train.load_checkpoint(str(record.path))
    record.outputs({n: found.get_tensor(n) for n in found.get_variable_to_shape_map()})


CASES = {"twins": _twins, "twins_on": _twins_on, "frozen_on": _frozen_on, "checkpoint_on": _checkpoint_on}
