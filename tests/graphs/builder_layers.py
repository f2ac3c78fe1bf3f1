"""Cases of layers: normalisations, attention, stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from builder_case import Case

import lstm_ir as li

X, C = (5, 6, 4), (6,)
Q, K, V = (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)
SEEN = np.array([[True, False, True, True, False, True, False]] * 4 + [[False] * 7])
LENGTHS = np.array([5, 2, 4], np.int32)
F = ("f32", "f64")


def norm(name: str, build: Any, oracle: Any, shapes: Any = (X, C, C), **more: Any) -> Case:
    return Case(name, build, shapes, oracle, **more)


def trained(t: Any, x: Any, m: Any, v: Any, s: Any, b: Any) -> Any:
    """PyTorch's, which writes over the running statistics."""
    count = x.shape[0] * x.shape[2]
    y = t.nn.functional.batch_norm(x, None, None, s, b, training=True)
    mean, var = x.mean((0, 2)), x.var((0, 2), correction=1)
    assert count > 1
    return y, 0.7 * m + 0.3 * mean, 0.7 * v + 0.3 * var


COUNTS = np.array([[True, True, False, True]] * 3 + [[True, False, False, False], [False] * 4])


def rows_of(x: Any, counts: Any) -> Any:
    """[places that count, C]."""
    return x.transpose(1, 2)[counts]


def put_back(t: Any, rows: Any, counts: Any) -> Any:
    """The rows at their places, 0 elsewhere."""
    return t.zeros((*counts.shape, 6), dtype=rows.dtype).index_put((counts,), rows).transpose(1, 2)


def masked(t: Any, x: Any, m: Any, v: Any, s: Any, b: Any, counts: Any) -> Any:
    """PyTorch's of the rows that count, without padding."""
    rows = rows_of(x, counts)
    y, mean, var = trained(t, rows[..., None], m, v, s, b)
    return put_back(t, y[..., 0], counts), mean, var


def masked_inference(t: Any, x: Any, m: Any, v: Any, s: Any, b: Any, counts: Any) -> Any:
    y = inferred(t, rows_of(x, counts)[..., None], m, v, s, b)
    return put_back(t, y[..., 0], counts)


def inferred(t: Any, x: Any, *statistics: Any) -> Any:
    m, v, s, b = (w[:, None] for w in statistics)
    return (x - m) / t.sqrt(v.exp() + 1e-5) * s + b


def attended(t: Any, q: Any, k: Any, v: Any, m: Any) -> Any:
    y = t.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m)
    return t.where(m.any(-1)[:, None], y, 0 * v.sum())


def heads(t: Any, q: Any, k: Any, v: Any, w: Any, b: Any, o: Any, p: Any) -> Any:
    y, _ = t.nn.functional.multi_head_attention_forward(
        q, k, v, q.shape[-1], 2, w, b, None, None, False, 0.0, o, p, training=False, need_weights=False
    )
    return y


def stacked(kind: str, t: Any, x: Any, h0: Any, *rest: Any) -> Any:
    """Two layers of PyTorch, bidirectional, with a pack of lengths."""
    weights = [w for side in rest[-9:-1] for w in [side]]
    n = rest[-1]
    c0 = rest[:-9]
    flat = []
    for layer in range(2):
        w, u, b, more = weights[4 * layer : 4 * layer + 4]
        for d in range(2):
            flat += [w[d], u[d], b[d], more[d]]
    packed = t.nn.utils.rnn.pack_padded_sequence(x, n, enforce_sorted=False)
    order = packed.sorted_indices
    states = [s[:, order] for s in (h0, *c0)]
    args = (packed.data, packed.batch_sizes, states if kind == "lstm" else states[0], flat, True, 2, 0.0, False, True)
    y, *ends = getattr(t._VF, kind)(*args)
    whole = t.nn.utils.rnn.PackedSequence(y, packed.batch_sizes, order, packed.unsorted_indices)
    out, _ = t.nn.utils.rnn.pad_packed_sequence(whole, total_length=x.shape[0])
    return out, *(e[:, packed.unsorted_indices] for e in ends)


def lstm_layers(x: Any, h0: Any, c0: Any, *rest: Any) -> Any:
    w, n = rest[:-1], rest[-1]
    layers = [{"w_ih": w[k], "w_hh": w[k + 1], "b": w[k + 2] + w[k + 3]} for k in (0, 4)]
    return li.lstm_stack(x, layers, h0, c0, direction="bidirectional", lengths=n)


def gru_layers(x: Any, h0: Any, *rest: Any) -> Any:
    w, n = rest[:-1], rest[-1]
    layers = []
    for k in (0, 4):
        own, other = w[k + 2], w[k + 3]  # rows r and z of the recurrent bias belong to the other ones
        joined = li.concat([own[:, :4] + other[:, :4], own[:, 4:]], 1)
        layers.append({"w_ih": w[k], "w_hh": w[k + 1], "b": joined, "b_hn": other[:, 4:]})
    return li.gru_stack(x, layers, h0, direction="bidirectional", lengths=n)


def shapes(gates: int, states: int) -> list[tuple[int, ...]]:
    """x [5,3,4], states [4,3,2], weights of two layers of two directions."""
    G = gates * 2
    return [
        (5, 3, 4),
        *[(4, 3, 2)] * states,
        (2, G, 4),
        (2, G, 2),
        (2, G),
        (2, G),
        (2, G, 4),
        (2, G, 2),
        (2, G),
        (2, G),
    ]


POOLS = [
    Case(f"{name} {sizes}", lambda x, n=name, s=sizes: getattr(li, n)(x, s), (shape,),
         lambda t, x, n=name, s=sizes: getattr(t.nn.functional, n)(x, s), F, numbers=shape[2:])
    for name, sizes, shape in (
        ("adaptive_avg_pool1d", 3, (2, 3, 7)), ("adaptive_avg_pool1d", 9, (2, 3, 7)),
        ("adaptive_avg_pool1d", 2, (2, 3, 8)), ("adaptive_avg_pool1d", 1, (2, 3, 7)),
        ("adaptive_max_pool1d", 3, (2, 3, 7)), ("adaptive_max_pool2d", (2, 4), (2, 3, 5, 7)),
        ("adaptive_avg_pool2d", (3, 2), (2, 3, 5, 8)), ("adaptive_avg_pool2d", (None, 2), (2, 3, 5, 7)),
        ("adaptive_max_pool2d", 3, (2, 3, 6, 7)),
    )
]  # fmt: skip
LAYERS = [
    *POOLS,
    norm(
        "group_norm",
        lambda x, s, b: li.group_norm(x, 3, s, b),
        lambda t, x, s, b: t.nn.functional.group_norm(x, 3, s, b),
        numbers=C,
    ),
    norm("instance_norm", li.instance_norm, lambda t, x, s, b: t.nn.functional.instance_norm(x, weight=s, bias=b)),
    norm(
        "rms_norm",
        lambda x, s: li.rms_norm(x, s, axis=(1, 2)),
        lambda t, x, s: t.nn.functional.rms_norm(x, (6, 4), s, 1e-5),
        (X, (6, 4)),
    ),
    norm("layer_norm", li.layer_norm, lambda t, x, s, b: t.nn.functional.layer_norm(x, (4,), s, b), (X, (4,), (4,))),
    norm(
        "batch_norm",
        lambda x, m, v, s, b: li.batch_norm(x, m, li.exp(v), s, b).y,
        inferred,
        (X, C, C, C, C),
        low=-2.0,
        high=2.0,
    ),
    norm(
        "batch_norm trains",
        lambda x, m, v, s, b: tuple(li.batch_norm(x, m, v, s, b, training=True, momentum=0.3)),
        trained,
        (X, C, C, C, C),
    ),
    norm(
        "batch_norm trains masked",
        lambda x, m, v, s, b, k: tuple(li.batch_norm(x, m, v, s, b, training=True, momentum=0.3, mask=k)),
        masked,
        (X, C, C, C, C),
        more=(COUNTS,),
    ),
    norm(
        "batch_norm masked",
        lambda x, m, v, s, b, k: li.batch_norm(x, m, li.exp(v), s, b, mask=k).y,
        masked_inference,
        (X, C, C, C, C),
        more=(COUNTS,),
        low=-2.0,
        high=2.0,
    ),
    Case(
        "attention",
        li.attention,
        (Q, K, V),
        lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v),
        numbers=(4,),
    ),
    Case(
        "attention causal",
        lambda q, k, v: li.attention(q, k, v, causal=True, scale=0.3),
        (Q, K, V),
        lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
    ),
    Case(
        "attention masked", lambda q, k, v, m: li.attention(q, k, v, m), (Q, K, V), attended, more=(SEEN,), numbers=(4,)
    ),
    Case(
        "multi_head_attention",
        lambda q, k, v, w, b, o, p: li.multi_head_attention(q, k, v, w, o, b, p, heads=2),
        ((5, 3, 4), (7, 3, 4), (7, 3, 4), (12, 4), (12,), (4, 4), (4,)),
        heads,
        F,
        low=-1.0,
        high=1.0,
        numbers=(4, 12),
    ),
    Case(
        "lstm_stack",
        lstm_layers,
        shapes(4, 2),
        lambda t, *a: stacked("lstm", t, a[0], a[1], *a[2:]),
        F,
        (LENGTHS,),
        kind="layer",
        low=-1.0,
        high=1.0,
        numbers=(2, 4, 6, 8, 12, 16),
    ),
    Case(
        "gru_stack",
        gru_layers,
        shapes(3, 1),
        lambda t, *a: stacked("gru", t, a[0], a[1], *a[2:]),
        F,
        (LENGTHS,),
        kind="layer",
        low=-1.0,
        high=1.0,
        numbers=(2, 4, 6, 8, 12, 16),
    ),
]
