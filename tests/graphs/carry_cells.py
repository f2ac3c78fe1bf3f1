"""Loops whose carries are of all kinds, and forms that look alike but are not: by name, as graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.ops.primitive.tree import flatten

T, B, H, N, K, V, D = 7, 3, 8, 2, 5, 6, 4
CELLS: dict[str, Callable[[], li.Graph]] = {}


def weight(name: str, *shape: int) -> li.Value:
    return li.weight(name, np.ones(shape, np.float32))


def rows(*shape: int) -> tuple[Any, ...]:
    return ("T", B, *shape)


def loop(cell: Callable[..., Any], init: Any, *xs: tuple[Any, ...]) -> li.Graph:
    given = [li.input(f"x{i}", s) for i, s in enumerate(xs)]
    return li.Graph("g", given, flatten(li.scan(cell, init, tuple(given))))


def cell(
    init: Callable[[], Any], *xs: tuple[Any, ...]
) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Keeps a function (carry, rows) -> next as a graph."""

    def add(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def step(c: Any, x: Any) -> Any:
            return f(c, x), None

        CELLS[f.__name__] = lambda: loop(step, init(), *xs)
        return f

    return add


def state(*shape: int) -> Callable[[], li.Value]:
    return lambda: li.zeros((B, *shape))


def pair(*shapes: tuple[int, ...]) -> Callable[[], tuple[li.Value, ...]]:
    return lambda: tuple(li.zeros((B, *s)) for s in shapes)


@cell(state(H), rows(H), rows(H))
def min_gru(h: Any, x: Any) -> Any:
    z = li.sigmoid(x[0])
    return (1 - z) * h + z * x[1]


@cell(state(H), rows(H), rows(H))
def gate_of_the_state(h: Any, x: Any) -> Any:
    return li.sigmoid(h + x[0]) * h + x[1]


@cell(state(H), rows(H), rows(H))
def clipped_after(h: Any, x: Any) -> Any:
    return li.clip(x[0] * h + x[1], -1, 1)


@cell(state(H), rows(H), rows(H))
def clipped_before(h: Any, x: Any) -> Any:
    return li.clip(x[0], -1, 1) * h + li.clip(x[1], -1, 1)


@cell(state(H), rows(H))
def divided_by_the_state(h: Any, x: Any) -> Any:
    return x[0] / (2 + h)


@cell(state(H), rows(H))
def divided_state(h: Any, x: Any) -> Any:
    return h / (2 + li.exp(x[0]))


@cell(state(H), rows(H))
def squared(h: Any, x: Any) -> Any:
    return h * h + x[0]


@cell(state(H), rows(H))
def rounded_in_between(h: Any, x: Any) -> Any:
    return li.convert(li.convert(x[0] * h, "bf16"), "f32")


@cell(state(H), rows(H), rows(H))
def chosen_by_rows(h: Any, x: Any) -> Any:
    return li.where(x[0] > 0, h, x[1])


@cell(state(H), rows(H), rows(H))
def chosen_by_the_state(h: Any, x: Any) -> Any:
    return li.where(h > 0, h, x[1])


@cell(state(H), rows(H))
def spike_with_a_slope(h: Any, x: Any) -> Any:
    spike = li.custom_vjp(lambda u: (li.convert(u > 0, "f32"), u), lambda u, ct: ct / (1 + li.abs(u)))
    return 0.9 * h + spike(x[0]) - spike(h)


@cell(state(H), rows(H))
def gradient_by_hand(h: Any, x: Any) -> Any:
    doubled = li.custom_vjp(lambda u: (2 * u, ()), lambda _, ct: ct)
    return doubled(doubled(x[0]) * h)


@cell(state(H), rows(H))
def plain_rnn(h: Any, x: Any) -> Any:
    return li.tanh(h @ weight("w", H, H) + x[0])


@cell(state(H), rows(H))
def linear_rnn(h: Any, x: Any) -> Any:
    return h @ weight("w", H, H) + x[0]


@cell(state(H), rows(H))
def rows_first(h: Any, x: Any) -> Any:
    return weight("w", B, B) @ h + x[0]


@cell(pair((H,), (H,)), rows(4 * H))
def lstm(c: Any, x: Any) -> Any:
    i, f, g, o = li.split(c[0] @ weight("w", H, 4 * H) + x[0], 4, 1)
    cell_ = li.sigmoid(f) * c[1] + li.sigmoid(i) * li.tanh(g)
    return li.sigmoid(o) * li.tanh(cell_), cell_


@cell(lambda: li.zeros((N, B, D)), ("T", N, B, D))
def heads(h: Any, x: Any) -> Any:
    return li.tanh(h @ weight("r", N, D, D) + x[0])


@cell(state(N * D), rows(N * D))
def heads_in_columns(h: Any, x: Any) -> Any:
    apart = li.reshape(h, (B, N, D))
    return li.tanh(li.reshape(li.einsum("bnd,nde->bne", apart, weight("r", N, D, D)), (B, N * D)) + x[0])


@cell(state(2 * D), rows(2 * D))
def blocks(h: Any, x: Any) -> Any:
    return li.tanh(li.concat([h[:, :D] @ weight("a", D, D), h[:, D:] @ weight("b", D, D)], 1) + x[0])


@cell(state(2 * D), rows(2 * D))
def blocks_that_change_places(h: Any, x: Any) -> Any:
    return li.tanh(li.concat([h[:, D:] @ weight("a", D, D), h[:, :D] @ weight("b", D, D)], 1) + x[0])


@cell(pair((H,), (H,)), rows(H), rows(H))
def complex_pair(c: Any, x: Any) -> Any:
    re, im = c
    return 0.9 * re - 0.1 * im + x[0], 0.9 * im + 0.1 * re + x[1]


@cell(pair((H,), (H,)), rows(H))
def one_after_the_other(c: Any, x: Any) -> Any:
    return 0.9 * c[0] + x[0], 0.5 * c[1] + c[0] @ weight("w", H, H)


@cell(pair((H,), (H,), (H,)), rows(H), rows(H))
def wkv(c: Any, x: Any) -> Any:
    a, b, top = c
    k, v = x
    new = li.maximum(top - 0.5, k)
    old, now = li.exp(top - 0.5 - new), li.exp(k - new)
    return old * a + now * v, old * b + now, new


@cell(pair((H,), (H,), (H,), (H,)), rows(4 * H))
def slstm(s: Any, x: Any) -> Any:
    h, c, n, m = s
    z, i, f, o = li.split(h @ weight("w", H, 4 * H) + x[0], 4, 1)
    new = li.maximum(f + m, i)
    keep, take = li.exp(f + m - new), li.exp(i - new)
    c, n = keep * c + take * li.tanh(z), keep * n + take
    return li.sigmoid(o) * c / n, c, n, new


@cell(state(K, V), rows(K), rows(V))
def retnet(s: Any, x: Any) -> Any:
    return 0.9 * s + x[0][:, :, None] * x[1][:, None, :]


@cell(state(K, V), rows(K), rows(V), rows(K))
def gated_linear_attention(s: Any, x: Any) -> Any:
    return li.sigmoid(x[2])[:, :, None] * s + li.einsum("bk,bv->bkv", x[0], x[1])


@cell(state(K, V), rows(K), rows(V), rows(V))
def decay_of_values(s: Any, x: Any) -> Any:
    return li.sigmoid(x[2])[:, None, :] * s + li.einsum("bk,bv->bkv", x[0], x[1])


@cell(state(K, V), rows(K), rows(V), rows(K, V))
def decay_of_each_element(s: Any, x: Any) -> Any:
    return x[2] * s + x[0][:, :, None] * x[1][:, None, :]


@cell(state(K, V), rows(K), rows(V))
def squashed_outer_product(s: Any, x: Any) -> Any:
    return 0.9 * s + li.tanh(x[0][:, :, None] * x[1][:, None, :])


@cell(state(K, V), rows(K))
def outer_product_with_a_weight(s: Any, x: Any) -> Any:
    return 0.9 * s + x[0][:, :, None] * weight("v", V)[None, None, :]


@cell(state(H), rows(1))
def one_number_into_columns(h: Any, x: Any) -> Any:
    return 0.9 * h + x[0] * weight("v", H)[None, :]


@cell(state(H, N), rows(H), rows(H), rows(N))
def selective_scan(h: Any, x: Any) -> Any:
    delta, u, b = x
    return li.exp(delta[:, :, None] * weight("a", H, N)) * h + (delta * u)[:, :, None] * b[:, None, :]


@cell(pair((K, V), (K,), ()), rows(K), rows(V), rows(), rows())
def mlstm(s: Any, x: Any) -> Any:
    c, n, m = s
    k, v, i, f = x
    new = li.maximum(f + m, i)
    keep, take = li.exp(f + m - new), li.exp(i - new)
    c = keep[:, None, None] * c + take[:, None, None] * (k[:, :, None] * v[:, None, :])
    return c, keep[:, None] * n + take[:, None] * k, new


@cell(state(K, V), rows(K), rows(V), rows(), rows())
def gated_delta_rule(s: Any, x: Any) -> Any:
    k, v, b, a = x
    s = a[:, None, None] * s
    return s + k[:, :, None] * (b[:, None] * (v - li.einsum("bk,bkv->bv", k, s)))[:, None, :]


@cell(state(K, V), rows(K), rows(V), rows())
def delta_rule_with_sums(s: Any, x: Any) -> Any:
    k, v, b = x
    error = v - li.sum(k[:, :, None] * s, 1)
    return s + k[:, :, None] * (b[:, None] * error)[:, None, :]


@cell(state(K, V), rows(K), rows(K), rows(K), rows(K), rows(V))
def rwkv7(s: Any, x: Any) -> Any:
    w, a, b, k, v = x
    return s * w[:, :, None] + b[:, :, None] * li.einsum("bk,bkv->bv", a, s)[:, None, :] + li.einsum("bk,bv->bkv", k, v)


@cell(state(K, V), rows(K), rows(V))
def squashed_delta_rule(s: Any, x: Any) -> Any:
    k, v = x
    return s + k[:, :, None] * li.tanh(v - li.einsum("bk,bkv->bv", k, s))[:, None, :]


@cell(state(H), rows(H))
def centred(h: Any, x: Any) -> Any:
    return h - li.mean(h, 1, keepdims=True) + x[0]


@cell(state(H), rows(H))
def normalised(h: Any, x: Any) -> Any:
    return li.softmax(h, 1) + x[0]


@cell(state(H), rows(1))
def shifted(h: Any, x: Any) -> Any:
    return li.concat([h[:, 1:], x[0]], 1)


@cell(state(H), rows(H))
def previous_row(h: Any, x: Any) -> Any:
    return x[0] + h * 0


@cell(state(H), rows(H))
def row_of_before(h: Any, x: Any) -> Any:
    return x[0]


@cell(lambda: li.zeros((B, 2, 5, 5)), rows(2, 5, 5))
def convolution(h: Any, x: Any) -> Any:
    return li.tanh(li.conv2d(h, weight("k", 2, 2, 3, 3), padding=1) + x[0])


@cell(lambda: li.zeros((B, 2, 5, 5)), rows(2, 5, 5))
def depthwise_state(h: Any, x: Any) -> Any:
    return 0.9 * h + li.conv2d(x[0], weight("k", 2, 2, 3, 3), padding=1)


@cell(lambda: (li.constant(0, "i32"), li.zeros((B, H))), rows(H))
def counted(c: Any, x: Any) -> Any:
    return c[0] + 1, c[1] * li.convert(c[0], "f32") + x[0]


@cell(state(H), rows(H))
def loop_inside(h: Any, x: Any) -> Any:
    last, _ = li.scan(lambda g, _: (0.5 * g + x[0], None), h, length=3)
    return last
