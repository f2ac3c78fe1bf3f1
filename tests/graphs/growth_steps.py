"""Steps of random graphs (`growth.py`) that make primitive ops and loops, and graphs of steps of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import growth_foreign
import growth_layers
from growth import FLOATS, INTS, KINDS, STEPS, Grown, Growth, step

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DType, TensorType


def _elementwise() -> None:
    unary: dict[str, tuple[Callable[[Any], li.Value], str]] = {
        "negate": (li.negate, "fi"), "abs": (li.abs, "fi"), "sign": (li.sign, "fi"), "floor": (li.floor, "f"),
        "ceil": (li.ceil, "f"), "round_nearest_even": (li.round, "f"), "exponential": (li.exp, "f"),
        "exponential_minus_one": (li.expm1, "f"), "log": (li.log, "f"), "log_plus_one": (li.log1p, "f"),
        "erf": (li.erf, "f"), "logistic": (li.logistic, "f"), "tanh": (li.tanh, "f"), "sine": (li.sin, "f"),
        "cosine": (li.cos, "f"), "sqrt": (li.sqrt, "f"), "rsqrt": (li.rsqrt, "f"), "not": (li.logical_not, "ib"),
        "is_finite": (li.is_finite, "f"),
    }  # fmt: skip
    for name, (build, of) in unary.items():
        step(name)(lambda g, build=build, of=of: build(g.pick(of)))  # type: ignore[misc]
    binary: dict[str, tuple[Callable[[Any, Any], li.Value], str]] = {
        "add": (li.add, "fi"), "subtract": (li.subtract, "fi"), "multiply": (li.multiply, "fi"),
        "divide": (li.divide, "fi"), "remainder": (li.remainder, "fi"), "maximum": (li.maximum, "fi"),
        "minimum": (li.minimum, "fi"), "power": (li.power, "f"), "atan2": (li.atan2, "f"),
        "and": (li.logical_and, "ib"),
        "or": (li.logical_or, "ib"), "xor": (li.logical_xor, "ib"), "shift_left": (li.shift_left, "i"),
        "shift_right_logical": (li.shift_right_logical, "i"),
        "shift_right_arithmetic": (li.shift_right_arithmetic, "i"),
    }  # fmt: skip
    for name, (build2, of) in binary.items():
        step(name)(lambda g, build=build2, of=of: _binary(g, build, of))  # type: ignore[misc]


def _binary(g: Growth, build: Callable[[Any, Any], li.Value], of: str) -> li.Value:
    v = g.pick(of)
    w = g.beside(v)
    return build(v, w) if g.chance(0.7) else build(w, v)


_elementwise()


@step("compare")
def _compare(g: Growth) -> Grown:
    v = g.pick()
    return li.compare(v, g.beside(v), g.among(["EQ", "NE", "LT", "LE", "GT", "GE"]))


@step("select")
def _select(g: Growth) -> Grown:
    v = g.pick()
    return li.select(g.like(v.type.with_dtype(DType.i1)), v, g.beside(v))


@step("clamp")
def _clamp(g: Growth) -> Grown:
    v = g.pick("fi")
    return li.clamp(g.beside(v), v, g.beside(v))


@step("convert")
def _convert(g: Growth) -> Grown:
    return li.convert(g.pick(), g.kind())


@step("bitcast_convert")
def _bitcast(g: Growth) -> Grown:
    v = g.pick("fi")
    wide = [k for k in (*FLOATS, *INTS) if DType(k).bits == v.dtype.bits and k in g.kinds]
    if v.dtype.is_float:
        v = li.select(li.equal(v, v), v, li.zeros_like(v))  # no standard says which bits a NaN has
    return li.bitcast_convert(v, g.among(wide)) if wide else None


@step("in_range")
def _in_range(g: Growth) -> Grown:
    low = g.whole(0, 2)
    high = dims.add(g.size(), low)
    return li.in_range(g.indices(g.shape(0, 2), low, high, g.among(["i32", "i64"])), low, high)


@step("iota")
def _counted(g: Growth) -> Grown:
    shape = g.shape(1)
    return li.iota(shape, g.whole(0, len(shape) - 1), g.kind("fi"))


@step("dim")
def _dim(g: Growth) -> Grown:
    return li.size(g.size())


@step("parameter")
def _input(g: Growth) -> Grown:
    return g.input(TensorType(g.shape(), DType(g.kind())))


@step("weight", "constant")
def _literal(g: Growth) -> Grown:
    return g.literal(TensorType(tuple(g.at(d) for d in g.shape()), DType(g.kind())))


# -- shapes


def _some(v: li.Value) -> bool:
    return v.rank > 0


@step("reshape")
def _reshape(g: Growth) -> Grown:
    v = g.pick()
    form = g.whole(0, 2)
    if form == 0 or v.rank == 0:
        return li.expand_dims(v, g.whole(0, v.rank)) if v.rank < 5 else None
    if form == 1 and v.rank > 1:
        a = g.whole(0, v.rank - 2)
        return li.reshape(v, (*v.shape[:a], dims.mul(v.shape[a], v.shape[a + 1]), *v.shape[a + 2 :]))
    a = g.axis(v)
    size = v.shape[a]
    parts = [k for k in range(1, 9) if isinstance(size, int) and size % k == 0]
    if not parts or v.rank > 4:
        return li.reshape(v, (dims.product(v.shape),))
    k = g.among(parts)
    return li.reshape(v, (*v.shape[:a], k, dims.floordiv(size, k), *v.shape[a + 1 :]))


@step("transpose")
def _transpose(g: Growth) -> Grown:
    v = g.pick(fit=lambda v: v.rank > 1)
    return li.transpose(v, [int(k) for k in g.rng.permutation(v.rank)])


@step("broadcast_in_dim")
def _broadcast(g: Growth) -> Grown:
    v = g.pick(fit=lambda v: v.rank < 4)
    at = g.whole(0, v.rank)
    grown = [g.size() if d == 1 and g.chance() else d for d in v.shape]
    to = (*grown[:at], g.size(), *grown[at:])
    return li.broadcast_in_dim(v, to, [k + (k >= at) for k in range(v.rank)]) if g.fits(to) else None  # type: ignore[arg-type]


@step("concatenate")
def _concat(g: Growth) -> Grown:
    v = g.pick(fit=_some)
    a = g.axis(v)
    parts = [v]
    for _ in range(g.whole(1, 2)):
        other = v.type if g.chance() else v.type.resized(a, g.size())
        parts.insert(g.whole(0, len(parts)), g.like(other))
    total = dims.add(parts[0].shape[a], 0)
    for p in parts[1:]:
        total = dims.add(total, p.shape[a])
    if not g.fits(v.type.resized(a, total).shape):
        return None
    return li.stack(parts, a) if g.chance(0.2) and len({p.type for p in parts}) == 1 else li.concat(parts, a)


@step("reverse")
def _reverse(g: Growth) -> Grown:
    v = g.pick(fit=_some)
    return li.reverse(v, [a for a in range(v.rank) if g.chance()] or g.axis(v))


@step("slice")
def _slice(g: Growth) -> Grown:
    v = g.pick(fit=_some)
    key: list[Any] = []
    for d in v.shape:
        key.append(_key(g, d))
        if g.chance(0.1):
            key.append(None)
    return v[tuple(key)]


def _key(g: Growth, d: Dim) -> Any:
    """An index of one axis, which is there at this call."""
    size, form = g.at(d), g.whole(0, 5)
    if form == 0 and size:
        return g.whole(-size, size - 1)
    if form == 1:
        return slice(None, None, g.whole(1, 3) * (1 if g.chance(0.6) else -1))
    if form < 4:
        return slice(None)
    low = g.whole(0, size)
    high = g.whole(low, size)
    by = g.whole(1, 3) if g.chance(0.4) else 1
    return slice(low, high if g.chance() else high - size if high < size else None, by)


@step("pad")
def _pad(g: Growth) -> Grown:
    v = g.pick(fit=_some)
    low, high, gaps = [], [], []
    for d in v.shape:
        size = g.at(d)
        k = g.whole(1, 2) if size and g.chance(0.2) else 0
        gaps.append(k)
        low.append(g.whole(0, 3) if g.chance(0.5) else 0)
        high.append(g.whole(0, 3) if g.chance(0.5) else 0)
        if g.chance(0.2) and size:
            (low if g.chance() else high)[-1] = -g.whole(1, size)
    padded = [dims.add(dims.add(d, dims.mul(dims.add(d, -1), k) if k and d != 0 else 0), a + b)
              for d, a, b, k in zip(v.shape, low, high, gaps, strict=True)]  # fmt: skip
    if not g.fits(tuple(padded)):
        return None
    value = li.constant(g.whole(0, 1), v.dtype) if g.chance(0.7) else g.like(v.type.with_shape(()))
    return li.pad(v, low, high, gaps, value)


def _starts(g: Growth, v: li.Value) -> list[Any]:
    """Starts of windows: numbers, or what is computed; they may lie outside."""
    found = [w for w in g.pool if w.type == TensorType((), DType.i32)]
    return [g.among(found) if found and g.chance(0.3) else g.whole(-2, g.at(d) + 1) for d in v.shape]


def _window(g: Growth, v: li.Value) -> tuple[Dim, ...]:
    return tuple(d if g.chance() else g.whole(0, g.at(d)) for d in v.shape)


@step("dynamic_slice")
def _dynamic_slice(g: Growth) -> Grown:
    v = g.pick(fit=_some)
    return li.dynamic_slice(v, _starts(g, v), _window(g, v))


@step("dynamic_update_slice")
def _update(g: Growth) -> Grown:
    v = g.pick(fit=_some)
    return li.dynamic_update_slice(v, g.like(v.type.with_shape(_window(g, v))), _starts(g, v))


# -- products, sums, indices


@step("dot_general")
def _dot(g: Growth) -> Grown:
    v = g.pick("fi", _some)
    roles = [g.among("cbff") for _ in range(v.rank)]
    summed, batch = ([a for a, r in enumerate(roles) if r == k] for k in "cb")
    free = list(g.shape(0, 2))
    order = [("b", a) for a in batch] + [("c", a) for a in summed] + [("f", k) for k in range(len(free))]
    order = [order[int(k)] for k in g.rng.permutation(len(order))]
    shape = tuple(free[k] if role == "f" else v.shape[k] for role, k in order)
    to = (*(v.shape[a] for a in batch), *(d for a, d in enumerate(v.shape) if roles[a] == "f"), *free)
    if not g.fits(shape) or not g.fits(to):
        return None
    w = g.like(v.type.with_shape(shape))
    pairs = [(tuple(s), tuple(order.index((k, a)) for a in s)) for k, s in (("c", summed), ("b", batch))]
    return li.dot_general(v, w, pairs[0], pairs[1])


def _reductions() -> None:
    builders: dict[str, tuple[Callable[..., li.Value], str]] = {
        "reduce_sum": (li.sum, "fi"), "reduce_max": (li.max, "fib"), "reduce_min": (li.min, "fib"),
        "reduce_mean": (li.mean, "f"),
    }  # fmt: skip

    def reduced(g: Growth, build: Callable[..., li.Value], of: str) -> li.Value:
        v = g.pick(of, _some)
        return build(v, [a for a in range(v.rank) if g.chance()] or None, keepdims=g.chance(0.3))

    for name, (build, of) in builders.items():
        step(name)(lambda g, build=build, of=of: reduced(g, build, of))  # type: ignore[misc]


_reductions()


@step("argmax")
def _argmax(g: Growth) -> Grown:
    v = g.pick(fit=lambda v: v.rank > 0 and any(map(g.at, v.shape)))
    return li.argmax(v, g.among([a for a, d in enumerate(v.shape) if g.at(d)]))


@step("cumsum")
def _cumsum(g: Growth) -> Grown:
    v = g.pick("fi", _some)
    return li.cumsum(v, g.axis(v), reverse=g.chance(0.4), exclusive=g.chance(0.4))


def _rows(g: Growth) -> tuple[li.Value, int, li.Value] | None:
    """A value, an axis that has rows, and indices of them."""
    v = g.pick(fit=lambda v: v.rank > 0 and any(map(g.at, v.shape)))
    a = g.among([a for a, d in enumerate(v.shape) if g.at(d)])
    shape, last = g.shape(0, 2), dims.add(v.shape[a], -1)
    if not g.fits((*v.shape[:a], *shape, *v.shape[a + 1 :])):
        return None
    form, kind = g.whole(0, 2), g.among(["i32", "i64", "u8", "u32"])
    sizes = [d for d in shape if isinstance(d, int)]
    if form == 0 and len(sizes) == len(shape):
        least = g.at(v.shape[a]) if isinstance(v.shape[a], int) else 1
        return v, a, li.constant(g.rng.integers(0, least, sizes).astype(DType(kind).numpy))
    if form == 1:  # computed: whatever it was, it lies inside
        found = g.like(TensorType(shape, DType.i32))
        return v, a, li.clamp(0, found, li.size(last))
    return v, a, g.indices(shape, 0, last, kind)


@step("gather")
def _take(g: Growth) -> Grown:
    found = _rows(g)
    return None if found is None else li.take(found[0], found[2], found[1])


@step("scatter_add")
def _scatter(g: Growth) -> Grown:
    found = _rows(g)
    if found is None or found[0].dtype is DType.i1:
        return None
    v, a, i = found
    to = v.type.with_shape((*v.shape[:a], *i.shape, *v.shape[a + 1 :]))
    return li.scatter_add(v, i, li.take(v, i, a) if g.chance(0.2) else g.like(to), a)


# -- loops


@step("scan")
def _scan(g: Growth) -> Grown:
    """A loop whose body grows as graphs do: rows, carries of any type, what lies outside."""
    if g.chance(0.2):
        return _ragged(g)
    length = g.size()
    if g.at(length) > 9 or g.depth > 1:
        length = g.whole(0, 4)
    rows = [g.like(TensorType((length, *g.shape(0, 2)), DType(g.kind()))) for _ in range(g.whole(0, 2))]
    rows = [r for r in rows if g.fits(r.shape)]
    init = [g.pick(fit=lambda v: v.rank < 3) for _ in range(g.whole(0, 3))]
    outer = [v for v in g.pool if v.op in ("parameter", "weight")][:4]
    inner = g.inside()

    def cell(carries: Any, xs: Any, at: li.Value) -> Any:
        inner.pool = [*outer, at, *xs, *carries]
        grow(inner, g.whole(1, 4))
        new = []
        for c in carries:
            found = [v for v in inner.pool if v.type == c.type]
            new.append(g.among(found[-3:]))
        made = inner.pool[len(outer) :]
        return tuple(new), tuple(g.among(made) for _ in range(g.whole(0 if new else 1, 2)))

    count = g.indices((), 0, length, g.among(["i32", "i64"])) if g.chance(0.25) else None
    carry, ys = li.scan(
        cell, tuple(init), tuple(rows), length=length, reverse=g.chance(0.3), count=count, with_step=True
    )
    return tuple(v for v in (*carry, *ys) if g.fits(v.shape))


def _ragged(g: Growth) -> Grown:
    """A loop whose rows of the batch have lengths of their own."""
    length, batch = g.size(), g.size()
    if g.at(length) > 9 or g.depth:
        length = g.whole(0, 4)
    init = [g.like(TensorType((batch, *g.shape(0, 1)), DType(g.kind()))) for _ in range(g.whole(1, 3))]
    rows = g.like(TensorType((length, batch, *g.shape(0, 1)), DType(g.kind())))
    if not all(g.fits(v.shape) for v in (*init, rows)):
        return None
    inner = g.inside()

    def cell(carries: Any, x: li.Value) -> Any:
        inner.pool = [x, *carries]
        grow(inner, g.whole(1, 3))
        new = [g.among([v for v in inner.pool if v.type == c.type][-3:]) for c in carries]
        return tuple(new), g.among([v for v in inner.pool if v.rank and v.shape[0] == batch])

    lengths = g.indices((batch,), 0, length)
    carry, y = li.scan(cell, tuple(init), rows, lengths=lengths, reverse=g.chance(0.4))
    return tuple(v for v in (*carry, y) if g.fits(v.shape))


@step("custom_vjp")
def _custom_vjp(g: Growth) -> Grown:
    """Functions whose gradient, written by hand, is their own."""
    v = g.pick("f")

    def square(x: Any) -> Any:
        return (x * x, x < 0.5), x

    def tanh(x: Any) -> Any:
        y = li.tanh(x)
        return (y, x > 0.5), y

    if g.chance():
        return li.custom_vjp(square, lambda x, ct: ct[0] * x * 2.0)(v)  # type: ignore[no-any-return]
    return li.custom_vjp(tanh, lambda y, ct: ct[0] * (1.0 - y * y))(v)  # type: ignore[no-any-return]


@step("stop_gradient")
def _stop_gradient(g: Growth) -> Grown:
    return None if g.slopes else li.stop_gradient(g.pick())


# What takes the compiler long: in no loop, and one step of eight.
LARGE = (*growth_layers.OPS, *growth_foreign.OPS)
_COMMON = ("scan", "scan", "slice", "dot_general", "gather", "scatter_add", "pad", "convert", "concatenate")


def grow(g: Growth, steps: int) -> None:
    """So many steps more, each of which finds a use for what is there."""
    small = [n for n in (*STEPS, *_COMMON) if n not in LARGE and (n != "scan" or g.depth < 2)]
    while steps:
        made = STEPS[g.among(LARGE if not g.depth and g.chance(0.12) else small)](g)
        values = () if made is None else made if isinstance(made, tuple) else (made,)
        kept = [v for v in values if g.fits(v.shape)]
        g.pool += kept
        steps -= bool(kept)


def graph(g: Growth, steps: int) -> li.Graph:
    """A graph of about so many steps, with one to three outputs."""
    for _ in range(g.whole(1, 2)):
        g.pool.append(g.leaf(TensorType(g.shape(), DType(g.kind()))))
    grow(g, steps)
    g.bind_names()
    last = list(dict.fromkeys([g.pool[-1], *(g.pick() for _ in range(g.whole(0, 2)))]))
    return li.Graph(g.name, g.inputs, {f"y{k}": v for k, v in enumerate(last)})


assert set(FLOATS) | set(INTS) | {"i1"} == set(KINDS)
