"""The size of CudnnRNN's params vector, and its way to and from separate matrices and biases.

`tf.CudnnRNNParamsSize`, `tf.CudnnRNNParamsToCanonicalV2`, `tf.CudnnRNNCanonicalToParamsV2`. The
vector is "flat-v1" (layout.py), so both ways are slices and joins. Canonical order: per
pseudo-layer W of every gate, R of every gate, P; biases bW of every gate, bR of every gate. The
matrices that skip_input leaves out are listed as [H,0].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Attr, Level, define, need, need_equal
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.cudnn import contract as cc
from lstm_ir.ops.cudnn.layout import Network, WeightRegion
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.shape import concat, reshape
from lstm_ir.ops.primitive.window import slice_axis

Array = np.ndarray[Any, Any]
SIZES = "num_layers! num_units! input_size!"


def _network(sizes: Sequence[Array], a: dict[str, Any]) -> Network:
    """From the constant operands, checked."""
    cc.check_attrs(**a)
    layers, units, inputs = sizes
    named = {"num_layers": layers, "num_units": units, "input_size": inputs}
    for name, value in named.items():
        t = TensorType(value.shape, DType.of(value.dtype))
        good = t == TensorType((), DType.i32)
        need(good, f"{name} is {t}, expected i32[]")
    return cc.network(int(layers), int(inputs), int(units), **a)


def _value_network(sizes: Sequence[Value], a: dict[str, Any]) -> Network:
    return _network([v.node.attrs["value"].array for v in sizes], a)


def _size_types(*sizes: Array, T: DType, S: DType, **a: Any) -> TensorType:
    size = _network(sizes, a).size
    need(T.is_float, f"T is {T}, not a float")
    need(S in (DType.i32, DType.i64), f"S is {S}, not i32 or i64")
    fits = size <= np.iinfo(S.numpy).max
    need(fits, f"params_size is {size}, more than {S} holds{'' if S is DType.i64 else '; S=int64'}")
    return TensorType((1,), S)


def _size_numpy(*sizes: Array, T: DType, S: DType, **a: Any) -> Array:
    return np.array([_network(sizes, a).size], S.numpy)


def _size_expand(*sizes: Value, T: DType, S: DType, **a: Any) -> Value:
    return constant([_value_network(sizes, a).size], S)


CUDNN_PARAMS_SIZE = define(
    "tf.CudnnRNNParamsSize",
    SIZES,
    attrs={"T": Attr("dtype"), "S": Attr("dtype"), **cc.SHARED},
    results="params_size",
    types=_size_types,
    numpy=_size_numpy,
    vjp=lambda node, cts: (None, None, None),
    expand=_size_expand,
    level=Level.composite,
)


def _check_count(name: str, count: int, want: int, net: Network) -> None:
    per = want // (net.L * net.D)
    what = f"{net.L * net.D} pseudo-layers (layers times directions) of {per}"
    need(count == want, f"{count} {name}, expected {want}: {what}")


def _to_types(
    *operands: Any, num_params_weights: int, num_params_biases: int, **a: Any
) -> dict[str, tuple[TensorType, ...]]:
    *sizes, params = operands
    net = _network(sizes, a)
    _check_count("num_params_weights", num_params_weights, len(net.weights()), net)
    _check_count("num_params_biases", num_params_biases, len(net.biases()), net)
    need(params.dtype.is_float, f"params has {params.dtype} elements, not floats")
    need(params.rank == 1, f"params is {params}, expected a vector of {net.size}")
    problem = f"params has {params.shape[0]} elements, these sizes have {net.size}"
    need_equal(params.shape[0], net.size, problem)
    return {
        "weights": tuple(TensorType(r.shape, params.dtype) for r in net.weights()),
        "biases": tuple(TensorType(r.shape, params.dtype) for r in net.biases()),
    }


def _to_numpy(*operands: Array, num_params_weights: int, num_params_biases: int, **a: Any) -> Any:
    *sizes, params = operands
    net = _network(sizes, a)
    regions = net.weights() + net.biases()
    return [params[r.offset : r.offset + r.size].reshape(r.shape) for r in regions]


def _to_expand(
    *operands: Value, num_params_weights: int, num_params_biases: int, **a: Any
) -> dict[str, tuple[Value, ...]]:
    *sizes, params = operands
    net = _value_network(sizes, a)
    return {
        "weights": tuple(_cut(params, r) for r in net.weights()),
        "biases": tuple(_cut(params, r) for r in net.biases()),
    }


def _cut(params: Value, r: WeightRegion) -> Value:
    if r.size == 0:
        return zeros(r.shape, params.dtype)
    return reshape(slice_axis(params, 0, r.offset, r.offset + r.size), r.shape)


CUDNN_PARAMS_TO_CANONICAL = define(
    "tf.CudnnRNNParamsToCanonicalV2",
    f"{SIZES} params",
    attrs={"num_params_weights": Attr("int"), "num_params_biases": Attr("int"), **cc.SHARED},
    results="weights biases",
    types=_to_types,
    numpy=_to_numpy,
    vjp=None,
    expand=_to_expand,
    level=Level.composite,
)


def _from_types(*operands: Any, **a: Any) -> TensorType:
    *sizes, weights, biases = operands
    net = _network(sizes, a)
    lists = {"weights": (weights, net.weights()), "biases": (biases, net.biases())}
    kind = next((t.dtype for t in (*weights, *biases)), DType.f32)
    need(kind.is_float, f"weights have {kind} elements, not floats")
    for name, (given, regions) in lists.items():
        _check_count(name, len(given), len(regions), net)
        for k, (t, r) in enumerate(zip(given, regions, strict=True)):
            need(t.dtype is kind, f"{name}[{k}] is {t}, the first one {kind}; convert one of them")
            have, shown = dims.product(t.shape), ",".join(map(str, r.shape))
            problem = f"{name}[{k}] is {t} of {have} elements, expected [{shown}] of {r.size}"
            need_equal(have, r.size, problem)
    return TensorType((net.size,), kind)


def _from_numpy(*operands: Any, **a: Any) -> Array:
    *sizes, weights, biases = operands
    net = _network(sizes, a)
    out = np.zeros(net.size, weights[0].dtype)
    for region, value in zip(net.weights() + net.biases(), weights + biases, strict=True):
        out[region.offset : region.offset + region.size] = value.ravel()
    return out


def _from_expand(*operands: Any, **a: Any) -> Value:
    *sizes, weights, biases = operands
    net = _value_network(sizes, a)
    pairs = zip(net.weights() + net.biases(), weights + biases, strict=True)
    return concat([reshape(v, (r.size,)) for r, v in pairs if r.size])


CUDNN_CANONICAL_TO_PARAMS = define(
    "tf.CudnnRNNCanonicalToParamsV2",
    f"{SIZES} weights* biases*",
    attrs=cc.SHARED,
    results="params",
    types=_from_types,
    numpy=_from_numpy,
    vjp=None,
    expand=_from_expand,
    level=Level.composite,
)
