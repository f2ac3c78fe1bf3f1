"""Delta rules as loops over steps with matrices I - b k e^T: an oracle of chunks of steps.

`np` is NumPy, or torch for gradients. States are [..,V,K]: S[t] = a S[t-1] (I - b l e^T) + w k^T.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def outer(np: Any, u: Any, w: Any) -> Any:
    return np.einsum("...i,...j->...ij", u, w)


def less(np: Any, s: Any, b: Any, l: Any, e: Any) -> Any:
    """S (I - b l e^T), where l is what is taken from the state's rows for what e reads."""
    eye = np.eye(l.shape[-1], dtype=s.dtype)
    return s @ (eye - b[..., None, None] * outer(np, e, l))


def read(np: Any, s: Any, q: Any) -> Any:
    return np.einsum("...vk,...k->...v", s, q)


def delta_net(np: Any, c: Any, q: Any, k: Any, e: Any, v: Any, a: Any, b: Any) -> Any:
    (s,) = c
    s = less(np, s, b, k, k) + outer(np, b[..., None] * v, k)
    return (s,), (read(np, s, q),)


def gated(np: Any, c: Any, q: Any, k: Any, e: Any, v: Any, a: Any, b: Any) -> Any:
    (s,) = c
    return delta_net(np, (a[..., None, None] * s,), q, k, e, v, a, b)


def erases_another(np: Any, c: Any, q: Any, k: Any, e: Any, v: Any, a: Any, b: Any) -> Any:
    (s,) = c
    held = read(np, s, e)
    s = a[..., None, None] * less(np, s, b, q, e) + outer(np, v, k)
    return (s,), (held, read(np, s, q) / 3)


def terms_apart(np: Any, c: Any, q: Any, k: Any, e: Any, v: Any, a: Any, b: Any) -> Any:
    (s,) = c
    s = a[..., None, None] * s - b[..., None, None] * (s @ outer(np, e, k)) + outer(np, b[..., None] * v, k)
    return (s,), (read(np, s, q) + v / 2,)


def two_erasures(np: Any, c: Any, q: Any, k: Any, e: Any, v: Any, a: Any, b: Any) -> Any:
    (s,) = c
    s = less(np, a[..., None, None] * s, b, k, k) + outer(np, b[..., None] * v, k)
    s = less(np, s, b, e, e) + outer(np, b[..., None] * np.tanh(v), e)
    return (s,), (read(np, s, q),)


def between_carries(np: Any, c: Any, q: Any, k: Any, e: Any, v: Any, a: Any, b: Any) -> Any:
    m, s, g = c
    m = np.maximum(0.9 * m, a)
    s = less(np, np.tanh(m)[..., None, None] * s, b, k, k) + outer(np, b[..., None] * v, k)
    y = read(np, s, q)
    g = np.tanh(0.5 * g + y + m[..., None])
    return (m, s, g), (g, y * m[..., None])


STEPS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (delta_net, gated, erases_another, terms_apart, two_erasures, between_carries)
} | {"by_matmuls": gated, "by_einsums": delta_net}
KEYS_LAST = ("gated", "by_matmuls", "by_einsums")  # states of the graph are [..,V,K], as here


def run(name: str, given: Arrays, reverse: bool = False, library: Any = np) -> list[Any]:
    """Last carries and rows, as the graphs of delta_cells.py give them; `lengths` are of the first axis."""
    rows = [given[n] for n in ("q", "k", "e", "v", "a", "b")]
    turned = name in KEYS_LAST
    first = given["first"] if turned else library.swapaxes(given["first"], -1, -2)
    zero = (0 * first[..., 0, 0], 0 * first[..., :, 0])
    c = (zero[0], first, zero[1]) if name == "between_carries" else (first,)
    T, found = rows[0].shape[0], {}
    for t in reversed(range(T)) if reverse else range(T):
        new, ys = STEPS[name](library, c, *(r[t] for r in rows))
        if "lengths" in given:
            here = library.asarray(given["lengths"] > t)
            new, ys = ([_where(library, here, y, o) for y, o in zip(a, b, strict=True)]
                       for a, b in ((new, c), (ys, [0 * y for y in ys])))  # fmt: skip
        c, found[t] = new, ys
    count = len(found[0]) if found else 0
    carries = [x if turned or x.ndim < first.ndim else library.swapaxes(x, -1, -2) for x in c]
    return [*carries, *(library.stack([found[t][j] for t in range(T)]) for j in range(count))]


def _where(library: Any, here: Any, new: Any, old: Any) -> Any:
    return library.where(here.reshape(here.shape + (1,) * (new.ndim - 1)), new, old)
