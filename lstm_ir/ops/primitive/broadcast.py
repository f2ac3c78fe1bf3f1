"""NumPy's broadcasting, as explicit `broadcast_in_dim` nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lstm_ir.ir.data import Data
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.errors import BroadcastError, DimError, IRError, message
from lstm_ir.ir.graph import Node, Value, make, resolved
from lstm_ir.ir.leaf import constant, operand
from lstm_ir.ir.location import here
from lstm_ir.ir.no_operand import refuse_what_is_none
from lstm_ir.ir.opdef import OPS, Attr, Trait, define, need, need_at_least, need_equal
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DimLike, DType, Shape, TensorType, shape_of


def _types(operand: TensorType, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> TensorType:
    dims = broadcast_dimensions
    need(len(dims) == operand.rank, f"{len(dims)} broadcast_dimensions for {operand.rank} axes")
    for size in shape:
        need_at_least(size, 0, f"the size {size} is below 0")
    need(list(dims) == sorted(set(dims)), f"broadcast_dimensions {dims} do not ascend")
    for axis, d in enumerate(dims):
        need(0 <= d < len(shape), f"broadcast dimension {d} is outside 0..{len(shape) - 1}")
        if operand.shape[axis] != 1:
            need_equal(operand.shape[axis], shape[d], f"axis {axis} of {operand} is not 1 and not {shape[d]}")
    return TensorType(shape, operand.dtype)


def _numpy(x: Any, *, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...]) -> Any:
    wide = [1] * len(shape)
    for axis, d in enumerate(broadcast_dimensions):
        wide[d] = x.shape[axis]
    return np.broadcast_to(x.reshape(wide), shape)


def _vjp(node: Node, cts: Cts) -> Cts:
    """Summed over every axis along which the operand was repeated.

    Sum and reshape are made by name: their files need this one.
    """
    (x,), ct, to = node.inputs, only(cts), node.attrs["broadcast_dimensions"]
    kept = {d for axis, d in enumerate(to) if x.shape[axis] == ct.shape[d]}
    over = tuple(d for d in range(ct.rank) if d not in kept)
    if over:
        ct = make(OPS["reduce_sum"], ct, dimensions=over).values[0]
    return (ct if ct.shape == x.shape else make(OPS["reshape"], ct, shape=x.shape).values[0],)


BROADCAST = define(
    "broadcast_in_dim", "operand",
    attrs={"shape": Attr("dims"), "broadcast_dimensions": Attr("ints")},
    types=_types, numpy=_numpy, vjp=_vjp, traits=(Trait.data_movement,),
)  # fmt: skip


def broadcast_in_dim(x: Value, shape: tuple[DimLike, ...], broadcast_dimensions: tuple[int, ...]) -> Value:
    """x placed at `broadcast_dimensions` (ascending) of `shape`, repeated along the others."""
    return make(BROADCAST, x, shape=shape, broadcast_dimensions=broadcast_dimensions).values[0]


def broadcast_to(x: Any, shape: Sequence[DimLike]) -> Value:
    """x repeated to `shape` by NumPy's rule."""
    (v,) = aligned("broadcast_to", x)
    to = shape_for("broadcast_to", shape)
    if v.shape == to:
        return v
    if len(to) < v.rank:
        problem = f"the shape has {len(to)} axes, the operand has {v.rank}"
        raise IRError(message("broadcast_to", problem, [("operand", v.type)], here()))
    return broadcast_in_dim(v, to, tuple(range(len(to) - v.rank, len(to))))


def shape_for(op: str, sizes: Iterable[DimLike]) -> Shape:
    """A checked shape; an IRError that names the op and the user's line for what is none."""
    try:
        return shape_of(sizes)
    except DimError as e:
        raise IRError(message(op, str(e), (), here())) from None


def common_shape(op: str, shapes: list[Shape]) -> Shape:
    """The shape that all broadcast to; IRError where two sizes are neither equal nor 1."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for axis in range(-rank, 0):
        sizes = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        if len(sizes) > 1:
            texts = sorted(map(str, sizes))
            problem = f"sizes {' and '.join(texts)} do not broadcast (axis {axis})"
            raise BroadcastError(message(op, problem, _shown(shapes), here()), texts)
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def _shown(shapes: list[Shape]) -> list[tuple[str, object]]:
    return [(str(i), f"[{','.join(map(str, s))}]") for i, s in enumerate(shapes)]


def as_values(op: str, *operands: Any) -> tuple[Value, ...]:
    """Values as they are; numbers and arrays as constants of the dtype of the first value."""
    if op == "convert" and not isinstance(operands[0], Value):
        return (constant(operands[0]),)
    lead = next((x.dtype for x in operands if isinstance(x, Value)), None)
    return tuple(resolved(x) if isinstance(x, Value) else _literal(op, x, lead) for x in operands)


def _literal(op: str, x: Any, lead: DType | None) -> Value:
    if isinstance(x, Data) or hasattr(x, "dtype"):
        return constant(x)
    if isinstance(x, Expr) and lead is not None:
        value = f"li.size({str(x)!r})" if lead is DType.i32 else f'li.convert(li.size({str(x)!r}), "{lead}")'
        raise IRError(message(op, f"an operand is the size {x}; {value} is its value", (), here()))
    refuse_what_is_none(op, x)
    if lead is None:
        return constant(x)
    if not isinstance(x, (bool, int, float, list, tuple, np.generic)):
        raise IRError(message(op, f"an operand is {type(x).__name__}, not a value or a number", (), here()))
    if _has_floats(x) and not lead.is_float:
        problem = f'the number {x!r} is no {lead}; li.convert(x, "f32") makes floats of the other operand'
        raise IRError(message(op, problem, (), here()))
    return operand(op, x, lead)


def _has_floats(x: Any) -> bool:
    return any(map(_has_floats, x)) if isinstance(x, (list, tuple)) else isinstance(x, float)


def aligned(op: str, *operands: Any) -> tuple[Value, ...]:
    """All operands as values of one shape."""
    values = as_values(op, *operands)
    _one_dtype(op, operands, values)
    shape = common_shape(op, [v.shape for v in values])
    return tuple(_to(v, shape) for v in values)


def _one_dtype(op: str, operands: Sequence[Any], values: Sequence[Value], first: int = 0) -> None:
    """Refuse NumPy's numbers and arrays of another dtype than the values among the operands from `first` on."""
    pairs = list(zip(operands, values, strict=True))[first:]
    lead = next((v.dtype for x, v in pairs if isinstance(x, Value)), None)
    for at, (x, v) in enumerate(pairs, first):
        of_numpy = isinstance(x, (np.generic, np.ndarray)) and x.dtype.kind in "iuf"
        if not of_numpy or lead is None or v.dtype is lead or v.dtype.is_float > lead.is_float or lead is DType.i1:
            continue
        names = [o.name for o in OPS[op].operands] if op in OPS else list("ab")
        a, what, write = "an" if x.dtype.kind == "i" else "a", f"{x.dtype} array", f'li.constant({names[at]}, "{lead}")'
        if not x.ndim:
            what, write = f"{x.dtype} number", f"{'float' if v.dtype.is_float else 'int'}({names[at]})"
        problem = f"{names[at]} is {a} {what} of NumPy among values of {lead}; write {write}"
        raise IRError(message(op, problem, [(n, w.type) for n, w in zip(names, values, strict=True)], here()))


def _to(v: Value, shape: Shape) -> Value:
    return v if v.shape == shape else broadcast_to(v, shape)


def aligned_select(pred: Any, on_true: Any, on_false: Any) -> tuple[Value, Value, Value]:
    """pred and the choices as values of one shape; the choices share a dtype."""
    (p,) = as_values("select", pred)
    a, b = as_values("select", on_true, on_false)
    _one_dtype("select", (pred, on_true, on_false), (p, a, b), 1)
    shape = common_shape("select", [p.shape, a.shape, b.shape])
    return _to(p, shape), _to(a, shape), _to(b, shape)
