"""Single ops as graphs of TensorFlow: a case for each op that the importer takes, or for several together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow_graph_cases import CASES as GRAPHS
from tensorflow_graph_cases import case
from tensorflow_models import Record, f32, i32, i64

CASES: dict[str, Callable[[Record], None]] = {}
M: Any = ((None, 3), (2, 3))
POSITIVE: Any = ((None, 3), f32([[0.5, 1.0, 2.5], [3.0, 0.1, 1.7]]))
INTS: Any = ((None, 3), i32([[7, -7, 3], [-5, 2, 0]]))
NONZERO: Any = ((None, 3), i32([[2, 2, -3], [3, -4, 5]]))
TRUTH: Any = ((None, 3), np.array([[True, False, True], [False, False, True]]))
IMAGE: Any = ((None, 6, 7, 4), (2, 6, 7, 4))


def op(name: str, function: Callable[[Any, Any], Any], how: str = "frozen", **given: Any) -> None:
    """A case of one result or several, over placeholders."""

    def build(tf: Any, v1: Any, p: Any) -> Any:
        found = function(tf, p)
        found = found if isinstance(found, (list, tuple)) else [found]
        return {f"out{k}": v for k, v in enumerate(found)}

    case(name, how, **given)(build)
    CASES[name] = GRAPHS.pop(name)


def raw(names: str, *operands: Any, **attrs: Any) -> None:
    """Raw ops whose operands are x, y, ... in the order of their definition."""
    given = dict(zip("xyz", operands, strict=False))

    def call(name: str) -> Callable[[Any, Any], Any]:
        def run(tf: Any, p: Any) -> Any:
            from tensorflow.python.framework import op_def_registry

            words = [a.name for a in op_def_registry.get(name).input_arg]
            return getattr(tf.raw_ops, name)(**dict(zip(words, p.values(), strict=True)), **attrs)

        return run

    for name in names.split():
        op(name, call(name), **given)


raw("Abs Neg Exp Expm1 Square Sin Cos Tanh Sigmoid Erf Erfc Floor Ceil Rint Round Sign", M)
raw("Atan", M)
raw("Asin Acos", ((None, 3), f32([[-0.5, 0.25, 0.75], [-0.99, 0.0, 0.9]])))
raw("Atan2", M, POSITIVE)
op("Gelu", lambda tf, p: [tf.nn.gelu(p["x"]), tf.nn.gelu(p["x"], approximate=True)], x=M)
raw("Relu Relu6 Elu Selu Softplus Softsign", M)
raw("Log Log1p Sqrt Rsqrt Reciprocal", POSITIVE)
raw("IsNan IsInf IsFinite", ((2,), f32([np.nan, np.inf])))
raw("Inv", POSITIVE)
raw("Div", M, POSITIVE)
raw("Add AddV2 Sub Mul RealDiv Maximum Minimum SquaredDifference FloorDiv FloorMod", M, POSITIVE)
raw("Less LessEqual Greater GreaterEqual Equal NotEqual DivNoNan", M, M)
raw("LogicalAnd LogicalOr", TRUTH, TRUTH)
raw("LogicalNot", TRUTH)
raw("ZerosLike OnesLike Identity Shape Size Rank Softmax LogSoftmax L2Loss", M)
raw("Pow", POSITIVE, M)
raw("LeakyRelu", M, alpha=0.3)
raw("SelectV2", TRUTH, M, ((1, 3), (1, 3)))
raw("BatchMatMulV2", ((None, 2, 3), (4, 2, 3)), ((1, 5, 3), (1, 5, 3)), adj_y=True)
raw("BatchMatMulV3", ((4, 2, 3), (4, 2, 3)), ((4, 3, 5), (4, 3, 5)), Tout=1)
raw("BatchMatMul", ((4, 2, 3), (4, 2, 3)), ((4, 3, 5), (4, 3, 5)))
raw("MatMul", ((3, None), (3, 2)), ((3, 5), (3, 5)), transpose_a=True)
raw("BiasAdd", IMAGE, ((4,), (4,)))
ROWS: Any = ((None, 2, 7), (3, 2, 7))
EVEN: Any = ((None, 8), (2, 8))


def _z(tf: Any, p: Any) -> Any:
    return tf.complex(p["x"], p["y"])


def _parts(tf: Any, *zs: Any) -> list[Any]:
    return [f(z) for z in zs for f in (tf.math.real, tf.math.imag)]


op("RFFT", lambda tf, p: _parts(tf, tf.signal.rfft(p["x"])), x=ROWS)
op("RFFTFitted", lambda tf, p: _parts(tf, *(tf.signal.rfft(p["x"], [n]) for n in (4, 9))), "forward", x=ROWS)
op("RFFTEven", lambda tf, p: _parts(tf, tf.signal.rfft(p["x"])), x=EVEN)
op("IRFFT", lambda tf, p: tf.signal.irfft(_z(tf, p)), x=EVEN, y=EVEN)
op("IRFFTFitted", lambda tf, p: [tf.signal.irfft(_z(tf, p), [n]) for n in (7, 15, 16)], "forward", x=EVEN, y=EVEN)
op("FFT", lambda tf, p: _parts(tf, tf.signal.fft(_z(tf, p)), tf.signal.ifft(_z(tf, p))), x=ROWS, y=ROWS)
op("ComplexAbs", lambda tf, p: [tf.abs(_z(tf, p)), tf.math.angle(_z(tf, p))], x=M, y=POSITIVE)
op(
    "ComplexArithmetic",
    lambda tf, p: _parts(
        tf,
        _z(tf, p) * tf.exp(1j * _z(tf, p)),
        -_z(tf, p) / (_z(tf, p) + 2.0),
        tf.math.conj(_z(tf, p)) - tf.square(_z(tf, p)),
        tf.add_n([_z(tf, p)] * 3),
    ),
    x=M,
    y=POSITIVE,
)


def _moved(tf: Any, p: Any) -> list[Any]:
    z = _z(tf, p)
    more = (
        tf.stack([z, tf.cast(p["x"], tf.complex64)]),
        tf.constant([[1 + 2j, 3j, -1]], tf.complex64) * z,
        tf.zeros_like(z),
    )
    moved = tf.transpose(z), z[:, 1:], tf.reduce_sum(z, 1), tf.concat([z, z], 1), tf.pad(z, [[0, 0], [1, 2]])
    return [*_parts(tf, *moved, *more), tf.cast(z, tf.float32)]


op("ComplexMoves", _moved, x=M, y=POSITIVE)
op("TruncateDiv", lambda tf, p: tf.raw_ops.TruncateDiv(**p), x=INTS, y=NONZERO)
op("IntFloor", lambda tf, p: [p["x"] // p["y"], p["x"] % p["y"]], x=INTS, y=NONZERO)
op(
    "IntPow",
    lambda tf, p: [tf.raw_ops.Pow(x=p["x"], y=3), tf.raw_ops.Pow(x=tf.cast(p["x"], tf.float32), y=2.0)],
    x=INTS,
)
op("AddN", lambda tf, p: tf.add_n([p["x"], p["y"], p["x"]]), x=M, y=M)
op("Select", lambda tf, p: tf.raw_ops.Select(condition=tf.reduce_any(p["c"], 1), x=p["x"], y=p["y"]), c=TRUTH, x=M, y=M)
op("ClipByValue", lambda tf, p: tf.raw_ops.ClipByValue(t=p["x"], clip_value_min=-0.5, clip_value_max=0.7), x=M)
op(
    "Cast",
    lambda tf, p: [tf.cast(p["x"] * 3, tf.int32), tf.cast(p["i"], tf.bool), tf.cast(p["i"], tf.float32)],
    x=M,
    i=INTS,
)
op("Stop", lambda tf, p: tf.raw_ops.PreventGradient(input=p["x"]) * 0 + tf.raw_ops.Snapshot(input=p["x"]), x=M)
op("Named", lambda tf, p: tf.identity_n([p["x"], tf.debugging.check_numerics(p["y"], "m")]), x=M, y=M)
op("Print", lambda tf, p: tf.compat.v1.Print(p["x"], [p["x"]], "x"), x=M)
op("Default", lambda tf, p: tf.compat.v1.placeholder_with_default(tf.constant([1.5, 2.0, 3.0]), (3,)) + p["x"], x=M)
op("Ensured", lambda tf, p: tf.ensure_shape(p["x"], (None, 3)), x=M)
op("Reshape", lambda tf, p: [tf.reshape(p["x"], (-1, 3, 1)), tf.reshape(p["x"], tf.shape(p["y"]))], x=M, y=M)
op("Transpose", lambda tf, p: tf.transpose(p["x"], (2, 0, 1)), x=((None, 4, 5), (2, 4, 5)))
op("Squeeze", lambda tf, p: [tf.squeeze(p["x"], [1]), tf.expand_dims(p["x"], -2)], x=((None, 1, 4), (2, 1, 4)))
op(
    "Concat",
    lambda tf, p: [tf.concat([p["x"], p["y"]], -1), tf.raw_ops.Concat(concat_dim=0, values=[p["x"]] * 2)],
    x=M,
    y=M,
)
op("Stack", lambda tf, p: [tf.stack([p["x"], p["y"]], 1), *tf.unstack(p["x"], axis=1)], x=M, y=M)
op("Split", lambda tf, p: [*tf.split(p["x"], 2, 1), *tf.split(p["x"], [1, -1, 2], 1)], x=((None, 6), (2, 6)))
op("Slice", lambda tf, p: tf.slice(p["x"], [0, 1], [-1, 2]), x=M)
op("Fill", lambda tf, p: [tf.fill(tf.shape(p["x"]), 2.5), tf.range(2, 9, 3), tf.range(tf.shape(p["x"])[0])], x=M)
op("Tile", lambda tf, p: [tf.tile(p["x"], [2, 1]), tf.broadcast_to(p["x"], [4, 2, 3])], x=((2, 3), (2, 3)))
op("Reverse", lambda tf, p: [tf.reverse(p["x"], [1]), tf.raw_ops.Reverse(tensor=p["x"], dims=[True, False])], x=M)
op(
    "Pad",
    lambda tf, p: [
        tf.pad(p["x"], [[1, 2], [0, 1]]),
        tf.pad(p["x"], [[0, 0], [1, 1]], "REFLECT"),
        tf.raw_ops.PadV2(input=p["x"], paddings=[[1, 0], [0, 2]], constant_values=7.0),
    ],
    x=M,
)
op(
    "Gather",
    lambda tf, p: [tf.gather(p["x"], p["i"], axis=1), tf.raw_ops.Gather(params=p["x"], indices=1)],
    x=((None, 4), (3, 4)),
    i=((2,), i32([3, 0])),
)
op("GatherNd", lambda tf, p: tf.gather_nd(p["x"], p["i"]), x=M, i=((None, 2), i32([[1, 2], [0, 0]])))
op("OneHot", lambda tf, p: tf.one_hot(p["i"], 5, 2.0, -1.0, axis=0), i=((None,), i32([4, 0, 7, -1])))
op(
    "ReverseSequence",
    lambda tf, p: tf.reverse_sequence(p["x"], p["n"], 1, batch_axis=0),
    x=((None, None, 3), (3, 4, 3)),
    n=((None,), i64([4, 0, 2])),
)
op("Cumsum", lambda tf, p: [tf.cumsum(p["x"], 1), tf.cumsum(p["x"], 0, exclusive=True, reverse=True)], x=M)
op("TopK", lambda tf, p: tf.nn.top_k(p["x"], 2), x=((None, 5), (3, 5)))
op(
    "Reduce",
    lambda tf, p: [
        f(p["x"], a, keepdims=k)
        for f in (tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_min, tf.reduce_prod)
        for a, k in ((1, False), ([0, -1], True))
    ],
    x=M,
)
op("Truths", lambda tf, p: [tf.reduce_all(p["t"], 1), tf.reduce_any(p["t"], 0, keepdims=True)], t=TRUTH)
op("Norm", lambda tf, p: tf.raw_ops.EuclideanNorm(input=p["x"], axis=[1]), x=M)
op("Arg", lambda tf, p: [tf.argmax(p["x"], 1), tf.argmin(p["x"], 0, tf.int32)], x=M)
op("Einsum", lambda tf, p: tf.einsum("bij,kj->bki", p["x"], p["y"]), x=((None, 2, 3), (4, 2, 3)), y=((5, 3), (5, 3)))


def _windows(padding: str, stride: int) -> None:
    """A convolution and both pools."""
    s = [1, stride, stride, 1]
    op(
        f"Conv2D_{padding}_{stride}",
        lambda tf, p: tf.nn.conv2d(p["x"], p["w"], s, padding),
        x=IMAGE,
        w=((3, 2, 4, 5), (3, 2, 4, 5)),
    )
    op(
        f"Pools_{padding}_{stride}",
        lambda tf, p: [
            tf.nn.max_pool2d(p["x"], [1, 3, 2, 1], s, padding),
            tf.nn.avg_pool2d(p["x"], [1, 3, 2, 1], s, padding),
        ],
        x=IMAGE,
    )


for _padding, _stride in (("SAME", 2), ("VALID", 1), ("SAME", 1)):
    _windows(_padding, _stride)
op(
    "Conv2D_explicit",
    lambda tf, p: tf.nn.conv2d(p["x"], p["w"], 1, [[0, 0], [1, 0], [2, 1], [0, 0]], dilations=2),
    "forward",
    x=IMAGE,
    w=((2, 2, 4, 5), (2, 2, 4, 5)),
)
op("Conv2D_groups", lambda tf, p: tf.nn.conv2d(p["x"], p["w"], 1, "SAME"), x=IMAGE, w=((3, 3, 2, 6), (3, 3, 2, 6)))
op(
    "Depthwise",
    lambda tf, p: tf.nn.depthwise_conv2d(p["x"], p["w"], [1, 1, 1, 1], "SAME"),
    x=IMAGE,
    w=((3, 2, 4, 2), (3, 2, 4, 2)),
)
op(
    "BatchNorm",
    lambda tf, p: [
        getattr(tf.raw_ops, n)(x=p["x"], scale=p["a"], offset=p["b"], mean=p["m"], variance=p["v"], is_training=False).y
        for n in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
    ],
    x=IMAGE,
    a=((4,), (4,)),
    b=((4,), (4,)),
    m=((4,), (4,)),
    v=((4,), f32([0.5, 1.0, 2.0, 3.0])),
)
op(
    "Blocks",
    lambda tf, p: [
        tf.space_to_batch(p["x"], [2, 3], [[0, 0], [1, 1]]),
        tf.batch_to_space(tf.space_to_batch(p["x"], [2], [[1, 1]]), [2], [[0, 1]]),
    ],
    x=IMAGE,
)


def _strided(tf: Any, p: Any) -> Any:
    x, i = p["x"], p["i"]
    return [
        x[1:],
        x[:, ::2],
        x[..., -2],
        x[:, None, 1:3, :2],
        x[::-1, 3:0:-1],
        x[i],
        x[:, i],
        x[0, ..., 1:],
        x[:, -3:-1],
    ]


op("StridedSlice", _strided, x=((None, 4, 5), (3, 4, 5)), i=((), np.int32(1)))


def _lists(tf: Any, p: Any) -> Any:
    """Lists outside of loops: TensorArrays of TensorFlow 1 and lists of TensorFlow 2."""
    r, x = tf.raw_ops, p["x"]
    array = tf.TensorArray(tf.float32, 2).write(0, x[0]).write(1, x[1] * 2.0)
    handle = r.TensorListFromTensor(tensor=x, element_shape=[3])
    put = r.TensorListSetItem(
        input_handle=r.TensorListReserve(element_shape=[3], num_elements=2, element_dtype=tf.float32),
        index=1,
        item=x[0],
    )
    pushed = r.TensorListPushBack(
        input_handle=r.EmptyTensorList(element_shape=[3], max_num_elements=-1, element_dtype=tf.float32), tensor=x[1]
    )
    scattered = tf.TensorArray(tf.float32, 2, clear_after_read=False).unstack(x)
    stack = {"element_shape": [3], "element_dtype": tf.float32}
    return [
        array.stack(),
        r.TensorArraySizeV3(handle=array.handle, flow_in=array.flow),
        scattered.read(1),
        scattered.gather([1, 0]),
        r.TensorListStack(input_handle=put, **stack),
        r.TensorListStack(input_handle=pushed, **stack),
        r.TensorListGetItem(input_handle=handle, index=1, **stack),
        r.TensorListLength(input_handle=handle),
        r.TensorListGather(input_handle=handle, indices=[1, 0], **stack),  # twice the same: TensorFlow loses a gradient
    ]


def _called(tf: Any, p: Any) -> Any:
    """Functions have the conditions and loops of TensorFlow 2, without effects here."""

    @tf.function  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: x - 1.0)
        return tf.while_loop(lambda k, y: k < 3, lambda k, y: (k + 1, tf.sin(y) + x), (0, y))[1]

    return run(p["x"])


def _row(tf: Any, p: Any) -> Any:
    v1 = tf.compat.v1
    table = v1.get_variable("table", (5, 3), use_resource=True, trainable=False)
    return tf.nn.embedding_lookup(table, p["i"])


op("Called", _called, "forward", x=M)
op("ResourceGather", _row, "saved", i=((None,), i32([4, 0, 2])))
op("Lists", _lists, x=((2, 3), (2, 3)))
