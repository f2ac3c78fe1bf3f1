"""Loops for the kernel generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lstm_ir as li

Sizes = tuple[Any, Any, int, int]
Body = Callable[["Loop"], dict[str, li.Value]]
BODIES: dict[str, Body] = {}


class Loop:
    """Sizes, inputs and weights of one loop; everything is drawn from `rng`."""

    def __init__(self, sizes: Sizes, rng: np.random.Generator, dtype: str = "f32") -> None:
        self.T, self.B, self.I, self.H = sizes
        self.rng, self.dtype = rng, dtype
        self.rounded: Any = None  # matrices have the values of this element type
        self.inputs: list[li.Value] = []

    def input(self, name: str, *shape: Any, dtype: str | None = None) -> li.Value:
        self.inputs.append(li.input(name, shape, self.dtype if dtype is None else dtype))
        return self.inputs[-1]

    @property
    def x(self) -> li.Value:
        return self.input("x", self.T, self.B, self.I)

    def h0(self, name: str = "h0", width: int | None = None) -> li.Value:
        return self.input(name, self.B, self.H if width is None else width)

    def weight(self, *shape: int) -> li.Value:
        bound = shape[-1] ** -0.5
        kind = np.float64 if self.dtype == "f64" else np.float32
        name = f"w{self.rng.integers(1 << 40)}"
        array = self.rng.uniform(-bound, bound, shape).astype(kind)
        if self.rounded is not None and len(shape) > 1:
            array = array.astype(self.rounded).astype(kind)
        return li.weight(name, array)

    def graph(self, name: str, body: Body) -> li.Graph:
        outputs = body(self)
        return li.Graph(name, self.inputs, outputs)

    def arrays(self, graph: li.Graph, T: int, B: int) -> dict[str, Any]:
        """Inputs for one call; integer inputs are step counts from 0 to T."""
        out: dict[str, Any] = {}
        for p in graph.params:
            shape = [{"T": T, "B": B}.get(str(d), d) for d in p.shape]
            if p.dtype.is_float:
                out[p.node.attrs["name"]] = self.rng.standard_normal(shape).astype(p.dtype.numpy)
            else:
                drawn = self.rng.integers(0, T + 1, shape)
                out[p.node.attrs["name"]] = np.asarray(drawn, p.dtype.numpy)
        return out


def body(f: Body) -> Body:
    BODIES[f.__name__] = f
    return f


def rows(x: li.Value, w: li.Value) -> li.Value:
    """x @ w.T."""
    return li.dot_general(x, w, ((1,), (1,)))


def four_gates(h: li.Value, c: li.Value, a: li.Value, H: int) -> tuple[li.Value, li.Value]:
    i, f, g, o = (a[:, k * H : (k + 1) * H] for k in range(4))
    c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
    return li.logistic(o) * li.tanh(c), c


@body
def gated(s: Loop) -> dict[str, li.Value]:
    """Two carries, one fused product, everything stacked."""
    w, r, b = s.weight(4 * s.H, s.I), s.weight(4 * s.H, s.H), s.weight(4 * s.H)

    def cell(state: Any, x: Any, w: Any, r: Any, b: Any) -> Any:
        h, c = four_gates(state[0], state[1], rows(x, w) + b + rows(state[0], r), s.H)
        return (h, c), (h, c)

    (h, c), (ys, cs) = li.scan(cell, (s.h0(), s.h0("c0")), s.x, (w, r, b))
    return {"h": h, "c": c, "ys": ys, "cs": cs}


@body
def two_phases(s: Loop) -> dict[str, li.Value]:
    """A product of a row that the same step computes; the other orientation of the weights."""
    w, r, u = s.weight(3 * s.H, s.I), s.weight(s.H, 2 * s.H), s.weight(s.H, s.H)

    def cell(h: Any, x: Any, w: Any, r: Any, u: Any) -> Any:
        a, b = rows(x, w), li.dot(h, r)
        reset, z = (li.logistic(a[:, : s.H] + b[:, : s.H]), li.logistic(a[:, s.H : 2 * s.H] + b[:, s.H :]))
        n = li.tanh(a[:, 2 * s.H :] + li.dot(reset * h, u))
        h = (1.0 - z) * n + z * h
        return h, (h, li.concat([reset, z, n], 1))

    h, (ys, gates) = li.scan(cell, s.h0(), s.x, (w, r, u))
    return {"h": h, "ys": ys, "gates": gates}


@body
def ends_in_product(s: Loop) -> dict[str, li.Value]:
    """As gradients have it: elementwise first, then the product that the next step starts from."""
    w, d = s.weight(3 * s.H, s.H), s.input("d", s.T, s.B, s.H)

    def cell(state: Any, x: Any, w: Any) -> Any:
        dh, dc = state
        dh = dh + x
        dc = li.tanh(dc * 0.5 + dh)
        dg = li.concat([dc * 0.3, li.logistic(dh) * dc, -li.abs(dc)], 1) * 0.5
        return (li.dot(dg, w), dc), dg

    (h, c), ys = li.scan(cell, (s.h0(), s.h0("c0")), d, (w,), reverse=True)
    return {"h": h, "c": c, "ys": ys}


@body
def masked(s: Loop) -> dict[str, li.Value]:
    """Per-row lengths, in reverse, and NaN past the end that must not matter."""
    w, r, n = s.weight(s.H, s.I), s.weight(s.H, s.H), s.input("n", s.B, dtype="i32")
    ones = li.constant(1.0, s.dtype)

    def cell(h: Any, x: Any, w: Any, r: Any, n: Any, step: Any) -> Any:
        alive = li.broadcast_in_dim(li.less(li.broadcast_in_dim(step, n.shape, ()), n), x.shape, (0,))
        x = li.select(alive, x * (ones / ones), 0.0)
        h = li.tanh(rows(x, w) + rows(h, r))
        return h, h

    h, ys = li.scan(cell, s.h0(), s.x, (w, r, n), with_step=True)
    h2, ys2 = li.scan(
        lambda h, x: (li.tanh(h + x), h), s.h0("g0", s.I), s.input("z", s.T, s.B, s.I), lengths=n, reverse=True
    )
    return {"h": h, "ys": ys, "h2": h2, "ys2": ys2}


@body
def added_twice(s: Loop) -> dict[str, li.Value]:
    """Sums that take several products of one row, under a mask and without."""
    w, r, n = s.weight(2 * s.H, s.I), s.weight(4 * s.H, s.H), s.input("n", s.B, dtype="i32")

    def cell(h: Any, x: Any, w: Any, r: Any, n: Any, step: Any) -> Any:
        alive = li.broadcast_in_dim(li.less(li.broadcast_in_dim(step, n.shape, ()), n), x.shape, (0,))
        a, b = rows(h, r), rows(li.select(alive, x, 0.0), w)
        both = a[:, : 2 * s.H] + a[:, 2 * s.H :] + rows(x, w)
        h = li.tanh(both[:, : s.H] + b[:, : s.H] + b[:, s.H :]) * li.logistic(both[:, s.H :])
        return h, h

    h, ys = li.scan(cell, s.h0(), s.x, (w, r, n), with_step=True)
    return {"h": h, "ys": ys}


@body
def counted(s: Loop) -> dict[str, li.Value]:
    """A run-time number of steps, both ways."""
    w, n, x, h0 = s.weight(s.H, s.H), s.input("n", dtype="i32"), s.input("x", s.T, s.B, s.H), s.h0()

    def cell(h: Any, x: Any, w: Any) -> Any:
        h = li.tanh(x + rows(h, w))
        return h, (h, li.greater(h, 0.0))

    f, (fs, fb) = li.scan(cell, h0, x, (w,), count=n)
    r, (rs, _) = li.scan(cell, h0, x, (w,), count=n, reverse=True)
    return {"f": f, "fs": fs, "fb": fb, "r": r, "rs": rs}


@body
def both_ways(s: Loop) -> dict[str, li.Value]:
    """A leading axis of two directions in one loop."""
    x, r, h0 = s.input("x", s.T, s.B, s.H), s.weight(2, s.H, s.H), s.input("h0", 2, s.B, s.H)

    def cell(h: Any, xs: Any, r: Any) -> Any:
        both = li.concat([li.expand_dims(x, 0) for x in xs], 0)
        h = li.tanh(both + li.dot_general(h, r, ((2,), (2,)), ((0,), (0,))))
        return h, tuple(li.reshape(h[d : d + 1], h.shape[1:]) for d in range(2))

    h, (fs, rs) = li.scan(cell, h0, (x, x), (r,), reverse=(False, True, False, True))
    return {"h": h, "fs": fs, "rs": rs}


@body
def normalised(s: Loop) -> dict[str, li.Value]:
    """Layer norm of the pre-activation: reductions over the columns of a product."""
    w, r, gain = s.weight(s.H, s.I), s.weight(s.H, s.H), s.weight(s.H)

    def cell(h: Any, x: Any, w: Any, r: Any, gain: Any) -> Any:
        a = rows(x, w) + rows(h, r)
        mean = li.sum(a, 1, keepdims=True) / float(s.H)
        spread = li.sum((a - mean) * (a - mean), 1, keepdims=True) / float(s.H)
        h = li.tanh((a - mean) * li.rsqrt(spread + 1e-3) * gain)
        return h, (h, li.max(h, 1))

    h, (ys, top) = li.scan(cell, s.h0(), s.x, (w, r, gain))
    return {"h": h, "ys": ys, "top": top}


@body
def heads(s: Loop) -> dict[str, li.Value]:
    """Products batched over heads, with a row that all heads share."""
    w, r, h0 = s.weight(3, s.H, s.I), s.weight(3, s.H, s.H), s.input("h0", 3, s.B, s.H)

    def cell(h: Any, x: Any, w: Any, r: Any) -> Any:
        a = li.dot_general(h, r, ((2,), (2,)), ((0,), (0,)))
        b = li.dot_general(li.broadcast_to(li.expand_dims(x, 0), (3, *x.shape)), w, ((2,), (2,)), ((0,), (0,)))
        h = li.tanh(a + b) * 0.9
        return h, h

    h, ys = li.scan(cell, h0, s.x, (w, r))
    return {"h": h, "ys": ys}


@body
def over_heads(s: Loop) -> dict[str, li.Value]:
    """Reductions over heads, of products and of carries, and over heads and columns."""
    w, h0 = s.weight(3, s.H, s.H), s.input("h0", 3, s.B, s.H)

    def cell(h: Any, x: Any, w: Any) -> Any:
        a = li.dot_general(h, w, ((2,), (2,)), ((0,), (0,)))
        most = li.sum(a, 0) + li.max(h, 0) - li.min(h, 0)
        number = li.sum(h, (0, 2)) * (0.3 / s.H)
        row = li.tanh(most * 0.3 + x + li.broadcast_to(li.expand_dims(number, 1), x.shape))
        h = li.tanh(a) * 0.5 + li.broadcast_to(li.expand_dims(row, 0), h.shape) * 0.4
        return h, row

    h, ys = li.scan(cell, h0, s.input("x", s.T, s.B, s.H), (w,))
    return {"h": h, "ys": ys}


@body
def joined_rows(s: Loop) -> dict[str, li.Value]:
    """One product over [x, h] side by side, and a projection of another width."""
    w, p = s.weight(4 * s.H, s.I + 6), s.weight(6, s.H)

    def cell(state: Any, x: Any, w: Any, p: Any) -> Any:
        m, c = four_gates(state[0], state[1], rows(li.concat([x, state[0]], 1), w), s.H)
        return (rows(m, p), c), m

    (h, c), ys = li.scan(cell, (s.h0("h0", 6), s.h0("c0")), s.x, (w, p))
    return {"h": h, "c": c, "ys": ys}


@body
def unbatched(s: Loop) -> dict[str, li.Value]:
    """Carries without rows."""
    x, h0, w = s.input("x", s.T, s.H), s.input("h0", s.H), s.weight(s.H, s.H)

    def cell(h: Any, x: Any, w: Any) -> Any:
        h = li.tanh(x + li.dot_general(h, w, ((0,), (1,))))
        return h, h

    h, ys = li.scan(cell, h0, x, (w,))
    return {"h": h, "ys": ys}


@body
def row_numbers(s: Loop) -> dict[str, li.Value]:
    """One number per row beside wide rows; every elementwise kind."""
    x, total = s.input("x", s.T, s.B, s.H), s.input("t0", s.B)

    def cell(state: Any, x: Any) -> Any:
        h, total = state
        total = total * 0.5 + li.sum(x, 1)
        h = (
            li.clamp(-2.0, h * 0.5 + li.abs(x) - li.sign(x) * 0.1, 2.0)
            + li.broadcast_to(li.expand_dims(total, 1), x.shape) * 0.01
        )
        h = li.select(li.is_finite(h), li.maximum(h, -1.5), 0.0) + li.minimum(x, 0.25)
        kinds = (
            li.exp(-li.abs(h))
            + li.expm1(h * 0.1)
            + li.log1p(li.abs(h))
            + li.sqrt(li.abs(h) + 1.0)
            + li.rsqrt(h * h + 1.0)
        )
        return (li.tanh(h) + kinds * 0.1 + li.floor(x) * 0.01 + li.ceil(x) * 0.02 + li.round(x) * 0.03, total), h

    (h, total), ys = li.scan(cell, (s.h0(), total), x)
    return {"h": h, "total": total, "ys": ys}


@body
def column_of_another(s: Loop) -> dict[str, li.Value]:
    """A number per row that reads one column of another carry, which nothing else joins it to."""

    def cell(state: Any, x: Any) -> Any:
        h, n = state
        return (li.tanh(h * 0.5 + x), li.tanh(n * 0.5 + h[:, s.H - 1])), n

    (h, n), ys = li.scan(cell, (s.h0(), s.input("n0", s.B)), s.input("x", s.T, s.B, s.H))
    return {"h": h, "n": n, "ys": ys}


@body
def every_kind(s: Loop) -> dict[str, li.Value]:
    """What the other bodies leave out: comparisons, integers, booleans, converts, series."""
    x, n = s.input("x", s.T, s.B, s.H), s.input("n", s.B, dtype="i32")

    def cell(h: Any, x: Any, n: Any, step: Any) -> Any:
        number = li.convert(step, s.dtype)
        rest = li.clamp(-3, li.minimum(n * 2 - step, li.maximum(n, -step)), 5)
        odd = li.equal(rest - (rest + 1) * 1, -1) & li.greater_equal(n, 0)
        even = ~li.not_equal(n, step) | (li.less(n, 2) ^ li.less_equal(step, 3))
        rows = li.convert(rest, s.dtype) + li.convert(odd & even, s.dtype)
        column = li.broadcast_in_dim(rows, h.shape, (0,))
        new = li.log(li.abs(h) + 1.5) + 0.1 * column - x / (2.0 + number)
        if s.dtype == "f32":
            new = new + li.erf(h) * 0.2 + li.sin(x) * 0.3 + li.cos(h) * 0.1
        flags = li.less(new, h) | li.not_equal(new, new)
        new = li.select(flags, li.tanh(new), -new * 0.5)
        return new, (flags, rest, li.min(new, 1))

    h, (flags, rest, low) = li.scan(cell, s.h0(), x, (n,), with_step=True)
    return {"h": h, "flags": flags, "rest": rest, "low": low}
