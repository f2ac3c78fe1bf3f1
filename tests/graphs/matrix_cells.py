"""Loops with a matrix state that chunks make, by name: cells over q, k [B,H,K], v [B,H,V] and two gates [B,H]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.ops.primitive.tree import flatten

B, H, K, V = 2, 3, 8, 9
SHAPES = {"q": (B, H, K), "k": (B, H, K), "v": (B, H, V), "i": (B, H), "f": (B, H)}
CELLS: dict[str, tuple[Callable[..., Any], Callable[[str], Any]]] = {}


def cell(*shapes: tuple[int, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Keeps a cell with the shapes of its carries; one carry stands alone."""

    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        def init(dtype: str) -> Any:
            made = tuple(li.zeros(s, dtype) for s in shapes)
            return made if len(made) > 1 else made[0]

        CELLS[f.__name__] = f, init
        return f

    return add


def graph(
    name: str, T: Any, dtype: str = "f64", reverse: bool = False, lengths: bool = False, first: bool = False
) -> li.Graph:
    """The loop, its last carries and rows as outputs; `first`: the state before the first step is an input."""
    f, init = CELLS[name]
    rows = [li.input(n, (T, *s), dtype) for n, s in SHAPES.items()]
    given, start = list(rows), init(dtype)
    more: dict[str, Any] = {}
    if lengths:
        given.append(li.input("lengths", (B,), "i32"))
        more["lengths"] = given[-1]
    if first:
        start = li.input("first", start.shape, dtype)
        given.append(start)
    found = flatten(li.scan(f, start, tuple(rows), reverse=reverse, **more))
    return li.Graph(name, given, {f"out{i}": v for i, v in enumerate(found)})


def arrays(g: li.Graph, T: int, seed: int, scale: float = 0.5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for name, p in zip(g.input_names, g.params, strict=True):
        shape = tuple(d if isinstance(d, int) else T for d in p.shape)
        if name == "lengths":
            out[name] = rng.integers(0, T + 1, shape).astype(np.int32)
        else:
            out[name] = (rng.standard_normal(shape) * scale).astype(p.dtype.numpy)
    return out


@cell((B, H, K, V))
def retnet(s: Any, x: Any) -> Any:
    q, k, v, _, _ = x
    s = 0.9 * s + k[..., :, None] * v[..., None, :]
    return s, li.einsum("bhk,bhkv->bhv", q, s)


@cell((B, H, K, V))
def mamba2(s: Any, x: Any) -> Any:
    """A read before the step and one after it, a step size, a product with ones."""
    q, k, v, i, f = x
    before = li.sum(q[..., :, None] * s, 2)
    s = li.exp(-li.softplus(f))[..., None, None] * s + li.einsum("bhk,bhv->bhkv", li.softplus(i)[..., None] * k, v)
    return s, (before, li.einsum("bhkv,bhk->bhv", s, q) + 0.5 * v)


@cell((B, H, K, V))
def decay_by_letters(s: Any, x: Any) -> Any:
    q, k, v, _, f = x
    s = li.einsum("bh,bhkv->bhkv", li.sigmoid(f), s) + li.einsum("bhk,bhv->bhkv", k, v)
    return s, li.einsum("bhk,bhkv->bhv", q, s)


@cell((B, H, V, K))
def values_first(s: Any, x: Any) -> Any:
    q, k, v, _, f = x
    s = li.tanh(f)[..., None, None] * s - v[..., :, None] * k[..., None, :] / 3.0
    return s, (s @ q[..., :, None])[..., 0]


@cell((B, H, K, V), (B, H, K), (B, H))
def mlstm(c: Any, x: Any) -> Any:
    q, k, v, i, f = x
    s, n, m = c
    forget = -li.softplus(-f)
    new = li.maximum(forget + m, i)
    keep, take = li.exp(forget + m - new), li.exp(i - new)
    s = keep[..., None, None] * s + take[..., None, None] * (k[..., :, None] * v[..., None, :])
    n = keep[..., None] * n + take[..., None] * k
    norm = li.maximum(li.abs(li.sum(n * q, -1)), li.exp(-new))
    return (s, n, new), li.einsum("bhk,bhkv->bhv", q, s) / norm[..., None]


@cell((B, H, K, V), (B, H, V), (B, H))
def a_layer_behind(c: Any, x: Any) -> Any:
    """A carry that the state is made of, and one that is made of what is read, in one loop."""
    q, k, v, _, f = x
    s, g, m = c
    m = li.maximum(m * 0.9, f)
    s = li.tanh(m)[..., None, None] * s + k[..., :, None] * v[..., None, :]
    y = li.einsum("bhk,bhkv->bhv", q, s)
    g = li.tanh(g * 0.5 + y + m[..., None])
    return (s, g, m), (g, m, y * v)


@cell((B, H, K, V), (B, H, V, K))
def two_states(c: Any, x: Any) -> Any:
    q, k, v, _, _ = x
    s, r = c
    s = 0.9 * s + k[..., :, None] * v[..., None, :]
    y = li.einsum("bhk,bhkv->bhv", q, s)
    r = 0.8 * r + y[..., :, None] * k[..., None, :]
    return (s, r), li.einsum("bhv,bhvk->bhk", v, r)


@cell((B, H, K, V))
def bonus(s: Any, x: Any) -> Any:
    q, k, v, i, f = x
    kv = k[..., :, None] * v[..., None, :]
    y = li.einsum("bhk,bhkv->bhv", q, s + i[..., None, None] * kv)
    return f[..., None, None] * s + kv, y


@cell((B, H, K, V))
def only_the_last(s: Any, x: Any) -> Any:
    _, k, v, _, f = x
    return li.sigmoid(f)[..., None, None] * s + k[..., :, None] * v[..., None, :], None


@cell((K, B, V, H))
def keys_first(s: Any, x: Any) -> Any:
    """Axes of the matrix stand before those of rows and heads."""
    q, k, v, _, f = x
    by_row = li.transpose(v, (0, 2, 1))[None]
    s = li.sigmoid(f)[None, :, None, :] * s + li.transpose(k, (2, 0, 1))[:, :, None, :] * by_row
    return s, li.sum(s * li.transpose(q, (2, 0, 1))[:, :, None, :], 0)


@cell((V, K, H, B))
def rows_last(s: Any, x: Any) -> Any:
    q, k, v, i, f = (li.transpose(a, tuple(reversed(range(a.rank)))) for a in x)
    s = li.sigmoid(f) * s + (i * k)[None] * v[:, None]
    return s, (li.sum(s * q[None], 1), li.sum((2.0 * s) * k[None], 1))


@cell((B, H, K, V))
def repeated_gates(s: Any, x: Any) -> Any:
    """Gates that are the same for a whole matrix come from one wide tensor."""
    q, k, v, i, f = x
    wide = li.broadcast_to(li.stack([i, f], 2)[..., None, None], (B, H, 2, K, V))
    take, keep = li.tanh(wide[:, :, 0]), li.sigmoid(wide[:, :, 1])
    s = keep * s + take * (k[..., :, None] * v[..., None, :])
    return s, li.einsum("bhk,bhkv->bhv", q, s)


@cell((B, H, K, V))
def gated_linear_attention(s: Any, x: Any) -> Any:
    """A decay for each key, read before the step and after it."""
    q, k, v, _, f = x
    before = li.einsum("bhk,bhkv->bhv", k, s)
    decay = li.sigmoid(q + f[..., None])
    s = decay[..., :, None] * s + k[..., :, None] * v[..., None, :]
    return s, (before, li.einsum("bhk,bhkv->bhv", q, s))


@cell((B, H, K, V))
def a_decay_for_each_column(s: Any, x: Any) -> Any:
    q, k, v, i, _ = x
    s = s * li.tanh(v + i[..., None])[..., None, :] + k[..., :, None] * v[..., None, :]
    return s, (li.sum(q[..., :, None] * s, 2), li.einsum("bhk,bhkv->bhv", k, 2.0 * s))


@cell((B, H, K, V))
def any_decay_of_keys(s: Any, x: Any) -> Any:
    """q is the decay as it is: of any sign, and 0."""
    q, k, v, _, _ = x
    s = q[..., :, None] * s + k[..., :, None] * v[..., None, :]
    return s, li.einsum("bhk,bhkv->bhv", k, s)


@cell((K, V))
def shared_by_rows(s: Any, x: Any) -> Any:
    """One state for all rows."""
    q, k, v, _, _ = x
    return 0.9 * s + k[0, 0, :, None] * v[0, 0, None, :], li.einsum("k,kv->v", q[1, 2], s)


@cell((B, H, K, V))
def a_scaled_read_of_decayed_columns(s: Any, x: Any) -> Any:
    """Numbers along both axes meet in the read; one of them is the decay's."""
    q, k, v, _, _ = x
    s = s * li.sigmoid(v)[..., None, :] + k[..., :, None] * v[..., None, :]
    return s, li.sum(2.0 * (q[..., :, None] * s), 2)


LEFT: dict[str, tuple[Callable[..., Any], str]] = {}
"""Cells that stay loops, and the reason."""


def left(why: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        LEFT[f.__name__] = f, why
        return f

    return add


@left("a matrix state that is read by more than products with a vector")
def stacked_states(s: Any, x: Any) -> Any:
    s = 0.9 * s + x[1][..., :, None] * x[2][..., None, :]
    return s, s


@left("a matrix state that is read by more than products with a vector")
def read_along_both_axes(s: Any, x: Any) -> Any:
    s = 0.9 * s + x[1][..., :, None] * x[2][..., None, :]
    return s, (li.einsum("bhk,bhkv->bhv", x[0], s), li.einsum("bhv,bhkv->bhk", x[2], s))


@left("a matrix state that is read by more than products with a vector")
def read_with_numbers_along_both_axes(s: Any, x: Any) -> Any:
    s = 0.9 * s + x[1][..., :, None] * x[2][..., None, :]
    return s, li.sum(s * x[0][..., :, None] * x[2][..., None, :], 2)


@left("a matrix state that a condition drops")
def reset_by_a_gate(s: Any, x: Any) -> Any:
    s = li.where((x[4] > 1.0)[..., None, None], 0.0, s) + x[1][..., :, None] * x[2][..., None, :]
    return s, li.einsum("bhk,bhkv->bhv", x[0], s)


@left("a matrix state that is read by more than products with a vector")
def read_by_an_op_with_two_results(s: Any, x: Any) -> Any:
    s = 0.9 * s + x[1][..., :, None] * x[2][..., None, :]
    return s, li.top_k(s, 2)[0]


@left("a matrix state to which 2 outer products are added")
def two_outer_products(s: Any, x: Any) -> Any:
    kv = x[1][..., :, None] * x[2][..., None, :]
    return 0.9 * s + kv + x[0][..., :, None] * li.tanh(x[2])[..., None, :], None


@left("a delta rule with a decay for each row or column")
def delta_rule(s: Any, x: Any) -> Any:
    q, k, v, _, _ = x
    s = li.sigmoid(q)[..., :, None] * s
    s = s + k[..., :, None] * (v - li.einsum("bhk,bhkv->bhv", k, s))[..., None, :]
    return s, li.einsum("bhk,bhkv->bhv", q, s)
