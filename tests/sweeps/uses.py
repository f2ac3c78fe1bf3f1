"""How each op takes a value of [N, M], from the registry: sweeps ask for all uses of all ops.

Elementwise ops are found by their trait; the others have a row of the table. `UNUSED` names the ops
that take no value. A test fails for an op that is in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import tolerances
from sweep import Inputs, Tolerance, numbers

import lstm_ir as li
from lstm_ir.ir.graph import make
from lstm_ir.ir.opdef import OPS, Level, Trait
from lstm_ir.ops.primitive.size import in_range
from lstm_ir.ops.primitive.stencil import Taps, stencil, stencil_grad
from lstm_ir.ops.primitive.window import slice_axis

Build = Callable[..., li.Value]  # of inputs and a value
B = TypeVar("B", bound=Build)

UNUSED = {"parameter", "weight", "constant", "dim", "iota"}  # they have no operands
EXACT = {  # results are elements of operands, or are rounded once
    "maximum", "minimum", "and", "or", "xor", "not", "negate", "abs", "sign", "floor", "ceil", "round_nearest_even",
    "select", "clamp", "convert", "bitcast_convert", "reduce_max", "reduce_min", "pad", "gather", "in_range",
}  # fmt: skip
INDEX = 5  # rows of tables that are picked from


@dataclass(frozen=True)
class Use:
    """`build` makes the op's result from a value; `picks`: whose numbers are rows of a table."""

    op: str
    name: str
    build: Build
    picks: bool = False
    tame: bool = False
    rows: int = 0  # how many the value needs at least
    columns: int = 0

    def __repr__(self) -> str:
        return self.name

    @property
    def tolerance(self) -> Tolerance | None:
        """None where nothing may be lost."""
        exact = self.op in EXACT or Trait.data_movement in OPS[self.op].traits
        return None if exact else tolerances.ONE_OP

    def value(self, inputs: Inputs, dtype: li.DType) -> li.Value:
        """An input that this use can take, maybe after a convert."""
        if self.picks:
            most = min(INDEX, 2 if dtype is li.DType.i1 else INDEX)
            return inputs.new(dtype, (inputs.n, inputs.m), lambda r, s: r.integers(0, most, s).astype(dtype.numpy))
        return inputs.new(dtype, (inputs.n, inputs.m), lambda r, s: numbers(r, dtype, s, self.tame))


TABLE: list[Use] = []


def use(op: str, name: str = "", *, dtypes: Callable[..., bool] | None = None, **more: Any) -> Callable[[B], B]:
    """Register how `op` takes a value; `dtypes` refuses some."""

    def register(build: B) -> B:
        def checked(i: Inputs, v: li.Value) -> li.Value:
            if dtypes is not None and not dtypes(v.dtype):
                raise li.IRError(f"{op} is not taken with {v.dtype} here")
            return build(i, v)

        TABLE.append(Use(op, f"{op} {name}".strip(), checked, **more))
        return build

    return register


def _elementwise() -> Iterator[Use]:
    """Of one, two or three operands alike; one of them is the value, in turn."""
    for name, op in OPS.items():
        if Trait.elementwise not in op.traits or op.attrs or name in ("select", "clamp"):
            continue
        tame = not takes(name, li.DType.i32)
        places = range(1 if Trait.commutative in op.traits else len(op.operands))
        for at in places:

            def build(i: Inputs, v: li.Value, at: int = at, name: str = name, tame: bool = tame) -> li.Value:
                fill = (lambda r, s: numbers(r, v.dtype, s, True)) if tame else None
                others = [i.new(v.dtype, v.shape, fill) for _ in OPS[name].operands[1:]]
                return make(OPS[name], *others[:at], v, *others[at:]).values[0]

            yield Use(name, f"{name} {op.operands[at].name}", build, tame=tame)


def takes(name: str, dtype: li.DType) -> bool:
    """Whether the type rule of an elementwise op takes operands of a dtype."""
    t = li.input("x", (1,), dtype).type
    try:
        OPS[name].types(*[t] * len(OPS[name].operands))
    except li.IRError:
        return False
    return True


@cache
def uses() -> tuple[Use, ...]:
    """All uses of all ops that take a value."""
    return (*_elementwise(), *TABLE)


def taken() -> set[str]:
    """The ops that a sweep over all ops must have."""
    core = {
        "convolution",
        "convolution_transpose",
        "max_pool",
        "avg_pool",
        "lstm",
        "stop_gradient",
    }  # of the core level, those that make values met by others
    return {n for n, op in OPS.items() if op.level is Level.primitive and n not in UNUSED} | core


for _word in ("EQ", "NE", "LT", "LE", "GT", "GE"):

    @use("compare", _word)
    def _compare(i: Inputs, v: li.Value, word: str = _word) -> li.Value:
        return li.compare(v, i.new(v.dtype, v.shape), word)


@use("stop_gradient")
def _stop_gradient(i: Inputs, v: li.Value) -> li.Value:
    return li.stop_gradient(v)


@use("select", "pred", dtypes=lambda d: d is li.DType.i1)
def _pred(i: Inputs, v: li.Value) -> li.Value:
    return li.select(v, i.new(li.DType.i32, v.shape), i.new(li.DType.i32, v.shape))


@use("select", "on_true")
def _on_true(i: Inputs, v: li.Value) -> li.Value:
    return li.select(i.new(li.DType.i1, v.shape), v, i.new(v.dtype, v.shape))


@use("select", "on_false")
def _on_false(i: Inputs, v: li.Value) -> li.Value:
    return li.select(i.new(li.DType.i1, v.shape), i.new(v.dtype, v.shape), v)


for _at in range(3):

    @use("clamp", OPS["clamp"].operands[_at].name)
    def _clamp(i: Inputs, v: li.Value, at: int = _at) -> li.Value:
        others = [i.new(v.dtype, v.shape) for _ in "ab"]
        others.insert(at, v)
        low, x, high = others
        return li.clamp(low, x, high)


for _to in li.DType:

    @use("convert", f"to {_to}", dtypes=lambda d, to=_to: d is not to)
    def _convert(i: Inputs, v: li.Value, to: li.DType = _to) -> li.Value:
        return li.convert(v, to)


for _to in (d for d in li.DType if d is not li.DType.i1):

    @use("bitcast_convert", f"to {_to}", dtypes=lambda d, to=_to: d is not to and d.bits == to.bits)
    def _bitcast(i: Inputs, v: li.Value, to: li.DType = _to) -> li.Value:
        return li.bitcast_convert(v, to)


@use("in_range", picks=True)
def _in_range(i: Inputs, v: li.Value) -> li.Value:
    return in_range(v, 0, INDEX - 1)


@use("broadcast_in_dim")
def _broadcast(i: Inputs, v: li.Value) -> li.Value:
    return li.broadcast_in_dim(v, (v.shape[0], 3, v.shape[1]), (0, 2))


@use("reshape", "flat")
def _reshape(i: Inputs, v: li.Value) -> li.Value:
    return li.reshape(v, (-1,))


@use("transpose")
def _transpose(i: Inputs, v: li.Value) -> li.Value:
    return li.transpose(v, (1, 0))


@use("reverse")
def _reverse(i: Inputs, v: li.Value) -> li.Value:
    return li.reverse(v, (0, 1))


for _axis in (0, 1):

    @use("concatenate", f"axis {_axis}")
    def _concat(i: Inputs, v: li.Value, axis: int = _axis) -> li.Value:
        return li.concat([v, i.new(v.dtype, v.shape), v], axis)

    for _op, _f in (("reduce_sum", li.sum), ("reduce_max", li.max), ("reduce_min", li.min)):

        @use(_op, f"axis {_axis}")
        def _reduce(i: Inputs, v: li.Value, axis: int = _axis, f: Any = _f) -> li.Value:
            return f(v, axis)  # type: ignore[no-any-return]

    @use("argmax", f"axis {_axis}")
    def _argmax(i: Inputs, v: li.Value, axis: int = _axis) -> li.Value:
        return li.argmax(v, axis)

    @use("cumsum", f"axis {_axis}")
    def _cumsum(i: Inputs, v: li.Value, axis: int = _axis) -> li.Value:
        return li.cumsum(v, axis, reverse=bool(axis), exclusive=not axis)

    @use("gather", f"operand axis {_axis}")
    def _take(i: Inputs, v: li.Value, axis: int = _axis) -> li.Value:
        size = v.shape[axis]
        most = i.sizes[str(size)] if not isinstance(size, int) else size
        return li.take(v, i.rows(4, most), axis)

    @use("scatter_add", f"operand axis {_axis}")
    def _scatter(i: Inputs, v: li.Value, axis: int = _axis) -> li.Value:
        size, other = v.shape[axis], v.shape[1 - axis]
        most = i.sizes[str(size)] if not isinstance(size, int) else size
        return li.scatter_add(v, i.rows(4, most), i.new(v.dtype, (4, other) if axis == 0 else (other, 4)), axis)

    @use("scatter_add", f"updates axis {_axis}")
    def _updates(i: Inputs, v: li.Value, axis: int = _axis) -> li.Value:
        count, other = v.shape[axis], v.shape[1 - axis]
        table = i.new(v.dtype, (INDEX, other) if axis == 0 else (other, INDEX))
        return li.scatter_add(table, i.rows(count, INDEX), v, axis)


for _op, _f in (("reduce_sum", li.sum), ("reduce_max", li.max), ("reduce_min", li.min)):

    @use(_op, "of all")
    def _reduce_all(i: Inputs, v: li.Value, f: Any = _f) -> li.Value:
        return f(v)  # type: ignore[no-any-return]


@use("slice", rows=1, columns=1)
def _slice(i: Inputs, v: li.Value) -> li.Value:
    return slice_axis(v, 0, 1, v.shape[0])


@use("slice", "with steps", rows=1, columns=1)
def _steps(i: Inputs, v: li.Value) -> li.Value:
    return v[1::2, ::3]


@use("pad", "edges")
def _pad(i: Inputs, v: li.Value) -> li.Value:
    return li.pad(v, (1, 0), (2, 3))


@use("pad", "between", rows=1, columns=1)
def _between(i: Inputs, v: li.Value) -> li.Value:
    return li.pad(v, (0, 1), (1, 0), (1, 2), i.new(v.dtype, ()))


@use("pad", "negative", rows=2, columns=2)
def _negative(i: Inputs, v: li.Value) -> li.Value:
    return li.pad(v, (-1, 1), (2, -1))


@use("pad", "value", rows=1, columns=1)
def _value(i: Inputs, v: li.Value) -> li.Value:
    return li.pad(i.new(v.dtype, (3,)), (1,), (2,), value=li.reshape(v[:1, :1], ()))


@use("dynamic_slice", "operand", rows=2, columns=1)
def _window(i: Inputs, v: li.Value) -> li.Value:
    return li.dynamic_slice(v, (_start(i), 0), (2, v.shape[1]))


@use("dynamic_slice", "start", dtypes=lambda d: d is li.DType.i32, picks=True, rows=1, columns=1)
def _from(i: Inputs, v: li.Value) -> li.Value:
    at = li.reshape(v[:1, :1], ())
    return li.dynamic_slice(i.new(li.DType.f32, (INDEX, 4)), (at, at), (2, 2))


@use("dynamic_update_slice", "operand", rows=2, columns=1)
def _updated(i: Inputs, v: li.Value) -> li.Value:
    return li.dynamic_update_slice(v, i.new(v.dtype, (2, v.shape[1])), (_start(i), 0))


@use("dynamic_update_slice", "update")
def _update(i: Inputs, v: li.Value) -> li.Value:
    wide = i.new(v.dtype, (v.type.shape[0], v.shape[1]))
    wide = li.concat([wide, wide])
    return li.dynamic_update_slice(wide, v, (_start(i), 0))


def _start(i: Inputs) -> li.Value:
    """A place that may be outside: the window is then moved."""
    return i.new(li.DType.i32, (), lambda r, s: r.integers(-2, 9, s).astype("i4"))


@use("dot_general", "rows")
def _rows(i: Inputs, v: li.Value) -> li.Value:
    return v @ i.new(v.dtype, (v.shape[1], 4))


@use("dot_general", "columns")
def _columns(i: Inputs, v: li.Value) -> li.Value:
    return li.transpose(v, (1, 0)) @ i.new(v.dtype, (v.shape[0], 4))


@use("dot_general", "right")
def _right(i: Inputs, v: li.Value) -> li.Value:
    return i.new(v.dtype, (4, v.shape[0])) @ v


@use("dot_general", "both")
def _both(i: Inputs, v: li.Value) -> li.Value:
    return v @ li.transpose(v, (1, 0))


@use("dot_general", "batched")
def _batched(i: Inputs, v: li.Value) -> li.Value:
    other = i.new(v.dtype, (v.shape[0], v.shape[1], 3))
    return li.dot_general(v, other, ((1,), (1,)), ((0,), (0,)))


@use("gather", "indices", picks=True)
def _indices(i: Inputs, v: li.Value) -> li.Value:
    return li.take(i.new(li.DType.f32, (INDEX, 3)), v)


@use("scatter_add", "indices", picks=True)
def _at_indices(i: Inputs, v: li.Value) -> li.Value:
    updates = i.new(li.DType.f32, (v.shape[0], v.shape[1], 3))
    return li.scatter_add(i.new(li.DType.f32, (INDEX, 3)), v, updates)


def _joined(a: li.Value, b: li.Value) -> li.Value:
    return li.logical_xor(a, b) if a.dtype is li.DType.i1 else a + b


@use("scan", "carry", rows=1)
def _carry(i: Inputs, v: li.Value) -> li.Value:
    first = li.reshape(v[:1], (v.shape[1],))
    _, ys = li.scan(lambda h, x: (_joined(h, x),) * 2, first, i.new(v.dtype, (3, v.shape[1])))
    assert isinstance(ys, li.Value)
    return ys


@use("scan", "xs")
def _xs(i: Inputs, v: li.Value) -> li.Value:
    _, ys = li.scan(lambda h, x: (_joined(h, x),) * 2, i.new(v.dtype, (v.shape[1],)), v)
    assert isinstance(ys, li.Value)
    return ys


@use("scan", "const", rows=1)
def _const(i: Inputs, v: li.Value) -> li.Value:
    def step(h: li.Value, x: li.Value, c: li.Value) -> tuple[li.Value, li.Value]:
        return _joined(h, x), _joined(x, c)

    _, ys = li.scan(step, i.new(v.dtype, v.shape), i.new(v.dtype, (3, *v.shape)), consts=(v,))
    assert isinstance(ys, li.Value)
    return ys


@use("scan", "count", dtypes=lambda d: d in (li.DType.i32, li.DType.i64), picks=True, rows=1, columns=1)
def _count(i: Inputs, v: li.Value) -> li.Value:
    count = in_range(li.reshape(v[:1, :1], ()), 0, INDEX - 1)
    xs = i.new(li.DType.f32, (INDEX, 3))
    _, ys = li.scan(lambda h, x: (h + x,) * 2, i.new(li.DType.f32, (3,)), xs, count=count)
    assert isinstance(ys, li.Value)
    return ys


@use("convolution", "x", columns=2)
def _convolved(i: Inputs, v: li.Value) -> li.Value:
    return li.conv1d(li.expand_dims(v, 0), i.new(v.dtype, (2, v.shape[0], 3)), padding=1)


@use("convolution", "w")
def _kernel(i: Inputs, v: li.Value) -> li.Value:
    return li.conv1d(i.new(v.dtype, (2, v.shape[1], 4)), li.expand_dims(v, 2))


@use("convolution_transpose", "x", columns=1)
def _transposed(i: Inputs, v: li.Value) -> li.Value:
    return li.conv_transpose1d(li.expand_dims(v, 0), i.new(v.dtype, (v.shape[0], 2, 3)), stride=2)


@use("max_pool", "operand", columns=2)
def _max_pooled(i: Inputs, v: li.Value) -> li.Value:
    return li.max_pool1d(li.expand_dims(v, 0), 2)


@use("avg_pool", "operand", columns=2, dtypes=lambda d: d.is_float)
def _avg_pooled(i: Inputs, v: li.Value) -> li.Value:
    return li.avg_pool1d(li.expand_dims(v, 0), 2)


@use("stencil", "rhs")
def _stencil(i: Inputs, v: li.Value) -> li.Value:
    rhs = li.reshape(v, (1, v.shape[0], v.shape[1], 1))
    return stencil(i.new(v.dtype, (2, 1, v.shape[1], 3, 4)), rhs, Taps((1,), (0,)), 2, 3)


@use("stencil_grad", "ct")
def _stencil_grad(i: Inputs, v: li.Value) -> li.Value:
    ct = li.reshape(v, (v.shape[0], 1, v.shape[1], 1, 1))
    return stencil_grad(i.new(v.dtype, (v.shape[0], 1, 2, 3, 4)), ct, Taps((1, 0), (0, 2), high=(0, 1)))


@use("lstm", "x", dtypes=lambda d: d.is_float, tame=True)
def _lstm(i: Inputs, v: li.Value) -> li.Value:
    def small(*shape: Any) -> li.Value:
        return i.new(v.dtype, shape, lambda r, s: r.uniform(-0.5, 0.5, s).astype(v.dtype.numpy))

    y: li.Value = li.lstm(li.expand_dims(v, 1), small(12, v.shape[1]), small(12, 3))[0]
    return y
