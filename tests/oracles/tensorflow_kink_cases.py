"""Gradients of TensorFlow where slopes jump: equal elements, bounds, zeros. One model has all functions.

That of Atan2 at (0, 0) is not among them: TensorFlow's is NaN, and the project's 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow_models import Record, f32

Function = Callable[[Any, Any], Any]  # of TensorFlow and x [6,4]
X = f32([[0, 0, 0, 0], [1, -1, 1, 2], [2, 2, -1, 0], [-1, -1, 3, 1], [1, 1, 1, 1], [3, 0.5, -3, 3]])
FUNCTIONS: dict[str, Function] = {
    "relu": lambda tf, x: tf.nn.relu(x),
    "relu6": lambda tf, x: tf.nn.relu6(x * 3.0),
    "leaky_relu": lambda tf, x: tf.nn.leaky_relu(x, 0.25),
    "elu": lambda tf, x: tf.nn.elu(x),
    "selu": lambda tf, x: tf.nn.selu(x),
    "softsign": lambda tf, x: tf.nn.softsign(x),
    "clip": lambda tf, x: tf.raw_ops.ClipByValue(t=x, clip_value_min=-1.0, clip_value_max=2.0),
    "clip_by_value": lambda tf, x: tf.clip_by_value(x, -1.0, 2.0),
    "maximum": lambda tf, x: tf.maximum(x, tf.reverse(x, [0])),
    "maximum_of_0": lambda tf, x: tf.maximum(x, 0.0),
    "maximum_0_of": lambda tf, x: tf.maximum(0.0, x),
    "minimum": lambda tf, x: tf.minimum(x, x[:, :1]),
    "abs": lambda tf, x: tf.abs(x),
    "sign": lambda tf, x: tf.sign(x) * x,
    "largest": lambda tf, x: tf.reduce_max(x, 1),
    "least_of_all": lambda tf, x: tf.reduce_min(x),
    "max_pool": lambda tf, x: tf.nn.max_pool1d(x[None], 2, 1, "VALID")[0],
    "max_pool_same": lambda tf, x: tf.nn.max_pool2d(x[None, :, :, None], 3, 2, "SAME")[0, :, :, 0],
    "top_k": lambda tf, x: tf.math.top_k(x, 2)[0],
    "squared_difference": lambda tf, x: tf.math.squared_difference(x, tf.reverse(x, [0])),
    "root": lambda tf, x: tf.sqrt(tf.abs(x)),
    "norm": lambda tf, x: tf.norm(x, axis=1),
    "normalized": lambda tf, x: tf.math.l2_normalize(x, 1),
    "std": lambda tf, x: tf.math.reduce_std(x, 1),
    "logsumexp": lambda tf, x: tf.reduce_logsumexp(x, 1),
    "product": lambda tf, x: tf.reduce_prod(x, 1),
    "power_2": lambda tf, x: x**2.0,
    "power_3": lambda tf, x: tf.pow(x, 3.0),
    "power_of_x": lambda tf, x: tf.pow(tf.abs(x), tf.abs(x[::-1])),
    "divide_no_nan": lambda tf, x: tf.math.divide_no_nan(x, x[::-1]),
    "where": lambda tf, x: tf.where(x > 0, x * 2.0, x * 3.0),
    "floor_mod": lambda tf, x: tf.math.floormod(x, 2.0),
}  # fmt: skip


def _all(record: Record) -> None:
    import tensorflow as tf

    spec = tf.TensorSpec((6, 4), tf.float32, name="x")
    function = tf.function(lambda x: {n: f(tf, x) for n, f in FUNCTIONS.items()}, input_signature=[spec])
    tf.saved_model.save(tf.Module(), str(record.path), signatures={"serving_default": function})
    x, outputs, sums = tf.constant(X), {}, {}
    with tf.GradientTape(persistent=True) as tape:  # each by itself: 0 times the slopes of the others would be NaN
        tape.watch(x)
        for n, f in FUNCTIONS.items():
            outputs[n] = f(tf, x)
        cts = record.cotangents({n: v.numpy() for n, v in outputs.items()})
        for n, c in cts.items():
            sums[n] = tf.reduce_sum(outputs[n] * c)
    record.inputs(x=X)
    record.outputs({n: v.numpy() for n, v in outputs.items()})
    record.keep("grad", {n: tape.gradient(total, x).numpy() for n, total in sums.items()})


CASES: dict[str, Callable[[Record], None]] = {"all": _all}
