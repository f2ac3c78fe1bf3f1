"""Delta rules that chunks make, by name: cells over q, k, e [..,K], v [..,V] and two gates a, b [..]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import lstm_ir as li
from lstm_ir.ir.carry_kinds import CarryKind, circles, loops_of
from lstm_ir.ops.primitive.tree import flatten
from lstm_ir.ops.scan.tuned import DELTA_ROWS

ROWS = ("q", "k", "e", "v", "a", "b")


class Sizes(NamedTuple):
    """Of a state: the axes before its matrix, its keys and its columns."""

    lead: tuple[int, ...]
    K: int
    V: int

    def row(self, name: str) -> tuple[int, ...]:
        """The shape of a row at a step."""
        return (*self.lead, *{"v": (self.V,), "a": (), "b": ()}.get(name, (self.K,)))


def drawn(rng: np.random.Generator, axes: int) -> Sizes:
    """Sizes that are pairwise different."""
    lead = rng.permutation([2, 3, 5])[:axes]
    K, V = rng.permutation([8, 9, 11, 13])[:2]
    return Sizes(tuple(map(int, lead)), int(K), int(V))


def pair(k: li.Value, v: li.Value) -> li.Value:
    return k[..., :, None] * v[..., None, :]


def read(q: li.Value, s: li.Value) -> li.Value:
    """s summed along its keys, which are its last but one axis."""
    return li.sum(q[..., :, None] * s, -2)


def delta_net(s: Any, x: Any) -> Any:
    q, k, _, v, _, b = x
    s = s + pair(k, b[..., None] * (v - read(k, s)))
    return s, read(q, s)


def gated(s: Any, x: Any) -> Any:
    """As examples/cells/gated_delta.py: keys are the last axis."""
    q, k, _, v, a, b = x
    s = a[..., None, None] * s
    held = li.sum(s * k[..., None, :], -1)
    s = s + (b[..., None] * (v - held))[..., None] * k[..., None, :]
    return s, li.sum(s * q[..., None, :], -1)


def erases_another(s: Any, x: Any) -> Any:
    """The key that is written is not the direction that is erased, and both are read before and after the step."""
    q, k, e, v, a, b = x
    held = read(e, s)
    s = a[..., None, None] * (s - pair(b[..., None] * q, held)) + pair(k, v)
    return s, (held, read(q, s) / 3.0)


def terms_apart(s: Any, x: Any) -> Any:
    """a S - (b k) (S e)^T + (b k) v^T, of which the terms have one key."""
    q, k, e, v, a, b = x
    by = b[..., None] * k
    s = a[..., None, None] * s - pair(by, read(e, s)) + pair(k, b[..., None] * v)
    return s, read(q, s) + 0.5 * v


def by_matmuls(s: Any, x: Any) -> Any:
    """Vectors are matrices of one column or row."""
    q, k, _, v, a, b = x
    held = s @ k[..., :, None]
    s = a[..., None, None] * (s - (b[..., None, None] * held) @ k[..., None, :])
    s = s + (b[..., None] * v)[..., :, None] @ k[..., None, :]
    return s, (s @ q[..., :, None])[..., 0]


def by_einsums(s: Any, x: Any) -> Any:
    q, k, _, v, _, b = x
    at = "ij"[: v.rank - 1]  # the axes before the matrix
    error = v - li.einsum(f"{at}vk,{at}k->{at}v", s, k)
    u = li.einsum(f"{at},{at}v->{at}v", b, error)
    s = s + li.einsum(f"{at}v,{at}k->{at}vk", u, k)
    return s, li.einsum(f"{at}vk,{at}k->{at}v", s, q)


def two_erasures(s: Any, x: Any) -> Any:
    """A product of two factors (I - b k k^T): the second reads what the first one wrote."""
    q, k, e, v, a, b = x
    s = a[..., None, None] * s
    s = s + pair(k, b[..., None] * (v - read(k, s)))
    s = s - pair(e, b[..., None] * (read(e, s) - li.tanh(v)))
    return s, read(q, s)


def between_carries(c: Any, x: Any) -> Any:
    """A carry that the gates are made of, and one that is made of what is read."""
    m, s, g = c
    q, k, _, v, a, b = x
    m = li.maximum(0.9 * m, a)
    s = li.tanh(m)[..., None, None] * s
    s = s + pair(k, b[..., None] * (v - read(k, s)))
    g = li.tanh(0.5 * g + read(q, s) + m[..., None])
    return (m, s, g), (g, read(q, s) * m[..., None])


CELLS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        delta_net, gated, erases_another, terms_apart, by_matmuls, by_einsums, two_erasures, between_carries,
    )
}  # fmt: skip
KEYS_LAST = ("gated", "by_matmuls", "by_einsums")
STATE = {"between_carries": 1}  # which carry is the matrix; the only one elsewhere


def first_of(name: str, sizes: Sizes, dtype: str) -> list[li.Value]:
    """The carries before the first step; the matrix is an input."""
    matrix = (sizes.V, sizes.K) if name in KEYS_LAST else (sizes.K, sizes.V)
    state = li.input("first", (*sizes.lead, *matrix), dtype)
    if name == "between_carries":
        return [li.zeros(sizes.lead, dtype), state, li.zeros((*sizes.lead, sizes.V), dtype)]
    return [state]


def graph(
    name: str, T: Any, sizes: Sizes, dtype: str = "f64", reverse: bool = False, lengths: bool = False, **more: Any
) -> li.Graph:
    """The loop; its last carries and rows as outputs."""
    rows = [li.input(n, (T, *sizes.row(n)), dtype) for n in ROWS]
    first = first_of(name, sizes, dtype)
    given = [*rows, first[STATE.get(name, 0)]]
    if lengths:
        given.append(li.input("lengths", sizes.lead[:1], "i32"))
        more["lengths"] = given[-1]
    carry = tuple(first) if len(first) > 1 else first[0]
    found = flatten(li.scan(CELLS[name], carry, tuple(rows), reverse=reverse, **more))
    return li.Graph(name, given, {f"out{i}": v for i, v in enumerate(found)})


def arrays(g: li.Graph, T: int, seed: int, scale: float = 0.4, named: Sequence[int] = ()) -> dict[str, Any]:
    """Random inputs: gates between 0 and 1, of which some are 0 and 1."""
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for name, p in zip(g.input_names, g.params, strict=True):
        sizes = iter((T, *named))
        shape = tuple(d if isinstance(d, int) else next(sizes) for d in p.shape)
        if name == "lengths":
            out[name] = rng.integers(0, T + 1, shape).astype(np.int32)
        elif name in "ab":
            out[name] = np.clip(rng.uniform(-0.1, 1.1, shape), 0, 1).astype(p.dtype.numpy)
        else:
            out[name] = (rng.standard_normal(shape) * scale).astype(p.dtype.numpy)
    return out


def loops_over_steps(g: li.Graph) -> list[Any]:
    """Lengths of loops with a matrix state; triangular systems are solved by short ones."""
    found = [x.length for x in loops_of(g) if any(c.kind is CarryKind.matrix for c in circles(x))]
    return [n for n in found if not isinstance(n, int) or n > DELTA_ROWS]
