"""Ops that make tensors from attributes and sizes."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.complex_numbers import Complex
from lstm_ir.importers.complex_numbers import literal as complex_literal
from lstm_ir.importers.naming import tensor
from lstm_ir.importers.ranges import range_of
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.scope import Site
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.importers.tensorflow.tensors import COMPLEX, read_complex, read_tensor
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType


@taken("Const", runs=True, refused="text, and integers of 16 and unsigned 64 bits")
def constant(site: Site) -> list[Value | Complex]:
    """The literal that the node holds; of a frozen model the weight that it was."""
    tensor = site.node.attrs["value"].tensor
    if tensor.dtype in COMPLEX:
        return [complex_literal(read_complex(tensor))]
    return [site.walk.literal(site.node, read_tensor(tensor), site.scope)]


@taken("Placeholder", "PlaceholderV2", runs=True)
def placeholder(site: Site) -> list[Value]:
    """An input that no signature names."""
    raise NodeRefusedError("it is an input, and the signature does not name it")


@taken("PlaceholderWithDefault")
def placeholder_with_default(c: Call) -> Any:
    """Its default."""
    c.shape("shape")
    return c.things[0]


@taken("Shape")
def shape(c: Call) -> SizeArray | Value:
    """The sizes of the operand."""
    x = c.raw(0)
    sizes = list(x.array.shape if isinstance(x, SizeArray) else x.shape)
    return s.folded(s.objects(sizes, (len(sizes),)), _out_type(c))


def _out_type(c: Call) -> DType:
    return c.dtype("out_type") if c.has_attribute("out_type") else DType.i32


@taken("Size")
def size(c: Call) -> SizeArray | Value:
    """How many elements the operand has."""
    x = c.raw(0)
    sizes = x.array.shape if isinstance(x, SizeArray) else x.shape
    return s.folded(s.objects([dims.product(tuple(sizes))], ()), _out_type(c))


@taken("Rank")
def rank(c: Call) -> Value:
    """How many axes the operand has."""
    x = c.raw(0)
    return li.constant(x.array.ndim if isinstance(x, SizeArray) else x.rank, DType.i32)


@taken("Fill", refused="a shape that only a call knows, apart from sizes")
def fill(c: Call) -> Value:
    """One number in a shape."""
    shape_, number = c.axis_sizes(0, "the shape"), c.value(1)
    if number.rank:
        raise NodeRefusedError(f"its number is {number.type}")
    return li.broadcast_to(number, tuple(shape_))


@taken("ZerosLike")
def zeros_like(c: Call) -> Value:
    """Zeros of the operand's type."""
    x = c.value(0)
    return li.zeros(x.shape, x.dtype)


@taken("OnesLike")
def ones_like(c: Call) -> Value:
    """Ones of the operand's type."""
    x = c.value(0)
    return li.ones(x.shape, x.dtype)


@taken("Range", refused="bounds that only a call knows, apart from sizes")
def arange(c: Call) -> Value:
    """start, start + delta, ... before limit."""
    dtype = tensor(c.raw(0)).dtype
    start, delta, count = range_of(c, dtype)
    steps = li.iota((count,), 0, dtype)
    if start == 0 and delta == 1:
        return steps
    first = li.convert(li.size(start), dtype) if isinstance(start, dims.Expr) else li.constant(start, dtype)
    return steps * li.constant(delta, dtype) + first


RANDOM = (
    "RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt", "RandomShuffle", "Multinomial",
    "StatelessRandomUniform", "StatelessRandomNormal", "StatelessRandomUniformV2", "StatelessRandomNormalV2",
    "StatelessRandomUniformFullIntV2", "StatelessRandomGetKeyCounter", "StatelessRandomGetAlg",
)  # fmt: skip


@taken(*RANDOM, runs=True, refused="always: its numbers are TensorFlow's own")
def random(site: Site) -> list[Value]:
    """Refused: no other library draws these numbers."""
    raise NodeRefusedError("it draws random numbers, which only TensorFlow can draw again")
