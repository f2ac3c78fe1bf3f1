"""Cases of reductions, orders, places and products."""

from __future__ import annotations

from typing import Any

import numpy as np
from builder_case import Case
from sample import FLOATS, INTS

import lstm_ir as li

M = (5, 3, 7)
S = (6, 4)
PLACES = np.array([[[1, -2, 0, 6]], [[5, 3, 3, -7]], [[2, 2, 4, 1]], [[0, 1, 6, -1]], [[4, 4, 5, 0]]], np.int32)


def reduced(name: str, build: Any, oracle: Any, **more: Any) -> Case:
    return Case(name, build, (M,), oracle, **more)


REDUCTIONS = [
    reduced("var", li.var, lambda t, x: t.var(x, correction=0)),
    reduced(
        "var of axes",
        lambda x: li.var(x, (0, -1), ddof=1, keepdims=True),
        lambda t, x: t.var(x, (0, 2), correction=1, keepdim=True),
    ),
    reduced("std", lambda x: li.std(x, 1), lambda t, x: t.std(x, 1, correction=0)),
    reduced("std of equal ones", lambda x: li.std(x * 0.0, 1), lambda t, x: t.std(x * 0.0, 1, correction=0)),
    reduced("any", lambda x: li.any(x, 1), lambda t, x: (x != 0).any(1), kinds=("i32", "u8", "i1"), smooth=False),
    reduced("any of floats", lambda x: li.any(li.relu(x)), lambda t, x: (t.relu(x) != 0).any(), smooth=False, low=-9),
    reduced(
        "all",
        lambda x: li.all(x, (0, 2), keepdims=True),
        lambda t, x: (x != 0).all(2, True).all(0, True),
        kinds=("f32", "i32", "i1"),
        smooth=False,
    ),
    reduced("lp_normalization", li.lp_normalization, lambda t, x: t.nn.functional.normalize(x, 2.0, 2)),
    reduced(
        "lp_normalization 1", lambda x: li.lp_normalization(x, 1, 0), lambda t, x: t.nn.functional.normalize(x, 1.0, 0)
    ),
    reduced("logsumexp", lambda x: li.logsumexp(x, (0, 2)), lambda t, x: t.logsumexp(x, (0, 2))),
    reduced(
        "logsumexp kept",
        lambda x: li.logsumexp(x * 100.0, -1, keepdims=True),
        lambda t, x: t.logsumexp(x * 100.0, 2, keepdim=True),
        kinds=("f32", "f64"),
    ),
    *(
        reduced(
            f"norm {p}",
            lambda x, p=p: li.norm(x, p, -1),
            lambda t, x, p=p: t.linalg.vector_norm(x, p, 2),
            smooth=p != 0,
        )
        for p in (0, 1, 2, 3, 0.5, np.inf, -np.inf)
    ),
    reduced("norm of all", li.norm, lambda t, x: t.linalg.vector_norm(x)),
    reduced("norm of zeros", lambda x: li.norm(x * 0.0, 2, 1), lambda t, x: t.linalg.vector_norm(x * 0.0, 2, 1)),
    reduced(
        "prod",
        lambda x: li.prod(x, (1, 2), keepdims=True),
        lambda t, x: x.flatten(1).prod(1).reshape(5, 1, 1),
        low=0.5,
        high=1.5,
    ),
    reduced("prod with zeros", lambda x: li.prod(li.relu(x), 1), lambda t, x: t.relu(x).prod(1), low=-0.5, high=2),
    reduced("prod of ints", lambda x: li.prod(x, 1), lambda t, x: x.prod(1), kinds=INTS, smooth=False),
    reduced("cumprod", lambda x: li.cumprod(x, 1), lambda t, x: t.cumprod(x, 1)),
    reduced("cumprod of ints", lambda x: li.cumprod(x, -2), lambda t, x: t.cumprod(x, 1), kinds=INTS, smooth=False),
    reduced(
        "cumprod back",
        lambda x: li.cumprod(x, 1, reverse=True),
        lambda t, x: t.flip(t.cumprod(t.flip(x, (1,)), 1), (1,)),
    ),
    reduced(
        "cumprod exclusive",
        lambda x: li.cumprod(x, 1, exclusive=True),
        lambda t, x: t.cat([t.ones_like(x[:, :1]), t.cumprod(x, 1)[:, :-1]], 1),
    ),
    reduced(
        "argmin",
        lambda x: li.argmin(x, 1),
        lambda t, x: t.argmin(x, 1),
        kinds=(*FLOATS, "i32", "u32", "i64"),
        smooth=False,
    ),
]


def ordered(t: Any, x: Any, axis: int, down: bool = False) -> Any:
    values, places = t.sort(x, dim=axis, descending=down, stable=True)
    return values, places


ALL = (*FLOATS, *INTS)
ORDERS = [
    Case("sort", li.sort, (M,), lambda t, x: ordered(t, x, 2)[0], ALL, kind="exact"),
    Case(
        "sort down",
        lambda x: li.sort(x, 0, descending=True),
        (M,),
        lambda t, x: ordered(t, x, 0, True)[0],
        ALL,
        kind="exact",
    ),
    Case(
        "argsort", lambda x: li.argsort(x, 1), (M,), lambda t, x: ordered(t, x, 1)[1], ALL, kind="exact", smooth=False
    ),
    Case(
        "argsort down",
        lambda x: li.argsort(x, -1, True),
        (M,),
        lambda t, x: ordered(t, x, 2, True)[1],
        ALL,
        kind="exact",
        smooth=False,
    ),
    Case(
        "top_k",
        lambda x: li.top_k(x, 3),
        (M,),
        lambda t, x: [v[..., :3] for v in ordered(t, x, 2, True)],
        ALL,
        kind="exact",
    ),
    Case(
        "top_k least",
        lambda x: li.top_k(x, 2, 0, largest=False),
        (M,),
        lambda t, x: [v[:2] for v in ordered(t, x, 0)],
        ALL,
        kind="exact",
    ),
    Case(
        "top_k of many",
        lambda x: li.top_k(x, 19, 1),
        ((3, 20),),
        lambda t, x: [v[:, :19] for v in ordered(t, x, 1, True)],
        ALL,
        kind="exact",
    ),
    Case(
        "sort of booleans",
        lambda x: li.sort(x, 1),
        (M,),
        lambda t, x: ordered(t, x, 1)[0],
        ("i1",),
        kind="exact",
        smooth=False,
    ),
]


def wrapped(i: Any, n: int) -> Any:
    """Indices from the start."""
    return i.remainder(n)


def one_hot_rows(t: Any, x: Any, i: Any) -> Any:
    return ((i >= 0) & (i < 4)).to(x.dtype)[:, None] * x[i.clamp(0, 3)]


SPOTS = [
    Case(
        "take_along_axis",
        lambda x, i: li.take_along_axis(x, i, 2),
        (M,),
        lambda t, x, i: t.take_along_dim(x, wrapped(i, 7), 2),
        ALL,
        (PLACES,),
        kind="exact",
    ),
    Case(
        "gather_elements",
        lambda x, i: li.gather_elements(x, i),
        (M,),
        lambda t, x, i: t.gather(x, 2, wrapped(i, 7)),
        ALL,
        (PLACES,),
        kind="exact",
    ),
    Case(
        "put_along_axis",
        lambda x, u, i: li.put_along_axis(x, i, u, 1),
        (S, (6, 2)),
        lambda t, x, u, i: t.scatter(x, 1, wrapped(i, 4), u),
        ALL,
        (np.array([[0, 2], [1, -4], [3, 2], [-1, -2], [1, 0], [2, 3]]),),
        kind="exact",
    ),
    Case(
        "put_along_axis adds",
        lambda x, u, i: li.put_along_axis(x, i, u, 1, add=True),
        (S, (6, 2)),
        lambda t, x, u, i: t.scatter_add(x, 1, wrapped(i, 4), u),
        FLOATS,
        (np.array([[0, 0], [1, -4], [3, 2], [-1, -1], [1, 0], [2, 3]]),),
    ),
    Case(
        "gather_nd",
        li.gather_nd,
        (M,),
        lambda t, x, i: x[i[:, 0], i[:, 1]],
        ALL,
        (np.array([[0, 2], [4, 1], [0, 2], [3, 0]]),),
        kind="exact",
        numbers=(2,),
    ),
    Case(
        "gather_nd of a batch",
        lambda x, i: li.gather_nd(x, i, 1),
        (M,),
        lambda t, x, i: t.stack([a[j] for a, j in zip(x, i[:, 0], strict=True)]),
        ALL,
        (np.array([[0], [2], [1], [1], [0]]),),
        kind="exact",
    ),
    Case(
        "scatter_nd",
        lambda x, u, i: li.scatter_nd(x, i, u),
        (M, (2, 7)),
        lambda t, x, u, i: t.index_put(x, (i[:, 0], i[:, 1]), u),
        ALL,
        (np.array([[4, 1], [0, 2]]),),
        kind="exact",
        numbers=(2,),
    ),
    Case(
        "reverse_sequence",
        li.reverse_sequence,
        (M,),
        lambda t, x, n: t.stack([t.cat([x[:k, b].flip(0), x[k:, b]]) for b, k in enumerate(n.tolist())], 1),
        ALL,
        (np.array([4, 0, 5]),),
        kind="exact",
    ),
    Case(
        "one_hot",
        lambda x, i: li.one_hot(i, 4) @ x,
        ((4, 3),),
        one_hot_rows,
        ("f32",),
        (np.array([3, -1, 0, 4, 2], np.int32),),
        numbers=(4,),
    ),
]

PRODUCTS = [
    Case("outer", li.outer, ((5,), (3, 2)), lambda t, a, b: t.outer(a.flatten(), b.flatten()), ALL, kind="rounded"),
    Case(
        "einsum",
        lambda a, b: li.einsum("tbi,oi->tbo", a, b),
        (M, (4, 7)),
        lambda t, a, b: t.einsum("tbi,oi->tbo", a, b),
    ),
    Case(
        "einsum of three",
        lambda a, b, c: li.einsum("ij,jk,k->ik", a, b, c),
        ((5, 3), (3, 4), (4,)),
        lambda t, a, b, c: t.einsum("ij,jk,k->ik", a, b, c),
        ("f32", "f64"),
    ),
    Case("einsum of a diagonal", lambda a: li.einsum("bii->bi", a), ((5, 3, 3),), lambda t, a: t.einsum("bii->bi", a)),
]
