"""`dropout`: elements set to zero by a counter-based generator, the same ones on every target.

    y = x / (1 - rate) where the bits of Threefry under `key` are at or above rate * 2^32, else 0

The gradient is the same op over the cotangent: the bits are drawn again, nothing is kept. `training=False` is
the identity; so is an expansion of it. Source: Srivastava et al., "Dropout", JMLR 15, 2014.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Attr, Level, define, need
from lstm_ir.ir.options import is_int
from lstm_ir.ir.pullback import only
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.nn import threefry
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values

Array = np.ndarray[Any, Any]


def need_rate(name: str, rate: float) -> None:
    """Inside a type rule: refuse a share that is not in [0, 1)."""
    need(0.0 <= rate < 1.0, f"{name} is {rate}; it lies in [0, 1)")


def need_key(key: TensorType) -> None:
    """Inside a type rule: refuse what is not a key."""
    need(key == TensorType((2,), DType.u32), f"key is {key}, expected u32[2]")


def _types(operand: TensorType, key: TensorType, *, rate: float, training: bool) -> TensorType:
    need(operand.dtype.is_float, f'takes float elements, got {operand.dtype}; li.convert(x, "f32") converts')
    need_key(key)
    need_rate("rate", rate)
    return operand


def _numpy(x: Array, key: Array, *, rate: float, training: bool) -> Array:
    if not training or rate == 0.0:
        return x
    keep = threefry.drawn(threefry.THREEFRY.numpy(key, shape=x.shape), rate)
    return np.asarray(np.where(keep, x * x.dtype.type(1.0 / (1.0 - rate)), x.dtype.type(0)))


def _expand(x: Value, key: Value, *, rate: float, training: bool) -> Value:
    if not training or rate == 0.0:
        return x
    keep = threefry.drawn(threefry.random_bits(key, x.shape), rate)
    return e.select(keep, x * (1.0 / (1.0 - rate)), constant(0, x.dtype))


def _vjp(node: Node, cts: Any) -> Any:
    return make(DROPOUT, only(cts), node.inputs[1], **node.attrs).values[0], None


DROPOUT = define(
    "dropout", "operand key", attrs={"rate": Attr("float"), "training": Attr("bool", True)},
    types=_types, numpy=_numpy, vjp=_vjp, expand=_expand, level=Level.composite,
    training="training",
)  # fmt: skip


def dropout(x: Any, rate: float, key: Any, *, training: bool = True) -> Value:
    """x with the share `rate` of its elements set to 0, the others divided by 1 - rate.

    `key` u32[2] is that of `random_key`: one per use, or two uses drop the same elements. `train_step`
    turns it off where it infers.
    """
    (v,) = as_values("dropout", x)
    drawn_by = key if isinstance(key, Value) else constant(key)
    return make(DROPOUT, v, drawn_by, rate=rate, training=training).values[0]


def random_key(seed: Any, step: Any = None, *, stream: int = 0) -> Value:
    """A key u32[2] from a seed (or a key), the number of a use (`stream`), both 0 ... 2^64 - 1, and, if given,
    a counter i64[].

    A seed that is a key, a value u32[2], may be an input, so that each call draws anew.
    """
    given = isinstance(seed, Value)
    if given and seed.type != TensorType((2,), DType.u32):
        raise IRError(f"random_key: the seed is {seed.type}, expected an integer, or a key u32[2]")
    for name, number in (("seed", 0 if given else seed), ("stream", stream)):
        if not is_int(number):
            raise IRError(f"random_key: the {name} is {number!r}, not an integer")
        if not 0 <= number < 2**64:
            raise IRError(f"random_key: the {name} is {number}, outside 0..2^64 - 1")
    if not given:
        key = constant(threefry.number_key(int(seed), int(stream)))
    else:
        key = threefry.fold_in(seed, constant(np.uint64(stream).astype(np.int64))) if stream else seed
    if step is None:
        return key
    (count,) = as_values("random_key", step)
    if count.rank or not count.dtype.is_int:
        raise IRError(f"random_key: the step is {count.type}, not an integer without axes")
    return threefry.fold_in(key, e.convert(count, DType.i64))
