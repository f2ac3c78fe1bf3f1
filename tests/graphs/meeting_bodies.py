"""Loops in which rows meet, and what they are in NumPy, from their equations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import lstm_ir as li

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
K = 5  # columns of a scanned row
LIMITS = (-2.0, -0.3, 0.1, 0.4, 0.7, 2.0)  # that a number between -1 and 1 reaches at once, later, or never


class Sizes(NamedTuple):
    """Of one graph; T and B may be names."""

    T: Any
    B: Any
    H: int


Build = Callable[[Sizes, str], li.Graph]
Meaning = Callable[[Arrays, int], dict[str, Any]]
BODIES: dict[str, tuple[Build, Meaning]] = {}


def meaning(of: Meaning) -> Callable[[Build], Build]:
    def keep(graph: Build) -> Build:
        BODIES[graph.__name__] = graph, of
        return graph

    return keep


def matrix(name: str, *shape: int) -> Array:
    """The same numbers for one name and shape."""
    rng = np.random.default_rng(len(name) + sum(shape))
    return np.asarray(rng.standard_normal(shape) / np.sqrt(shape[0]))


def weight(name: str, shape: tuple[int, ...], kind: str) -> li.Value:
    return li.weight(name, matrix(name, *shape).astype(f"f{li.DType[kind].bits // 8}"))


def draw(graph: li.Graph, rng: np.random.Generator, T: int, B: int) -> dict[str, Array]:
    """Inputs of one call; lengths are those of rows."""
    out: dict[str, Array] = {}
    for name, v in zip(graph.input_names, graph.params, strict=True):
        shape = [{"T": T, "B": B}.get(str(d), d) for d in v.shape]
        a = rng.standard_normal(shape) if v.dtype.is_float else rng.integers(0, T + 1, shape)
        out[name] = np.asarray(rng.choice(LIMITS) if name == "limit" else a, v.dtype.numpy)
    return out


def normed(z: Any, op: Any) -> Any:
    """Of the batch; `op` is NumPy or li."""
    d = z - op.mean(z, 0)
    return d / op.sqrt(op.mean(d * d, 0) + 0.01)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _batch_norm(a: Arrays, H: int) -> dict[str, Any]:
    u, w = matrix("u", K, 4 * H), matrix("w", H, 4 * H)
    h, c, y = np.zeros((a["x"].shape[1], H)), np.zeros((a["x"].shape[1], H)), []
    for x in a["x"]:
        i, f, g, o = np.split(normed(x @ u + h @ w, np), 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(normed(c, np))
        y.append(h)
    return {"h": h, "c": c, "y": y}


@meaning(_batch_norm)
def batch_norm(s: Sizes, kind: str) -> li.Graph:
    """An LSTM whose gates, and state, have the mean and the variance of the batch taken out."""
    x, H = li.input("x", (s.T, s.B, K), kind), s.H
    u, w, zero = weight("u", (K, 4 * H), kind), weight("w", (H, 4 * H), kind), li.zeros((s.B, H), kind)

    def cell(state: Any, x: Any) -> Any:
        h, c = state
        z = normed(x @ u + h @ w, li)
        i, f, g, o = (z[:, k * H : (k + 1) * H] for k in range(4))
        c = li.sigmoid(f) * c + li.sigmoid(i) * li.tanh(g)
        h = li.sigmoid(o) * li.tanh(normed(c, li))
        return (h, c), h

    (h, c), y = li.scan(cell, (zero, zero), x)
    return li.Graph("batch_norm", [x], {"h": h, "c": c, "y": y})


def _scalars(a: Arrays, H: int) -> dict[str, Any]:
    w, h, y = matrix("w", H, H), np.zeros((a["x"].shape[1], H)), []
    u, top, count, loss, least = matrix("u", K, H), 0.0, 0, 0.0, np.inf
    for t, x in enumerate(a["x"]):
        alive = (t < a["n"])[:, None]
        z = h @ w + x @ u - 0.1 * top
        z = z / np.sqrt(1 + np.sum(z * z))  # a norm of all
        h = np.where(alive, np.tanh(z), h)
        top, count = max(0.9 * top, h.max()), count + alive.sum()
        loss, least = loss + np.sum(h * alive), min(least, h[:, 0].min())
        y.append(loss)
    return {"h": h, "top": top, "count": count, "loss": loss, "least": least, "y": y}


@meaning(_scalars)
def scalars(s: Sizes, kind: str) -> li.Graph:
    """Numbers of all rows beside a state: a running maximum, a count, a loss, a norm; rows have lengths."""
    x, n = li.input("x", (s.T, s.B, K), kind), li.input("n", (s.B,), "i32")
    w, u = weight("w", (s.H, s.H), kind), weight("u", (K, s.H), kind)

    def cell(state: Any, x: Any, n: Any, step: Any) -> Any:
        h, top, count, loss, least = state
        alive = step < n
        z = h @ w + x @ u - 0.1 * top
        z = z * li.rsqrt(1.0 + li.sum(z * z))
        kept = li.broadcast_in_dim(alive, h.shape, (0,))
        h = li.select(kept, li.tanh(z), h)
        top, count = li.maximum(0.9 * top, li.max(h)), count + li.sum(li.convert(alive, "i32"))
        loss, least = loss + li.sum(li.select(kept, h, 0.0)), li.minimum(least, li.min(h[:, 0]))
        return (h, top, count, loss, least), loss

    zero = li.constant(0.0, kind)
    init = li.zeros((s.B, s.H), kind), zero, li.constant(0, "i32"), zero, li.constant(np.inf, kind)
    (h, top, count, loss, least), y = li.scan(cell, init, x, (n,), with_step=True)
    return li.Graph(
        "scalars", [x, n], {"h": h, "top": top, "count": count, "loss": loss, "least": least, "y": y}
    )  # fmt: skip


def _statistics(a: Arrays, H: int) -> dict[str, Any]:
    h, mean, var = np.zeros((a["x"].shape[1], H)), np.zeros(H), np.ones(H)
    w, u, o, y = matrix("w", H, H), matrix("u", K, H), matrix("o", H, H), []
    for x in a["x"]:
        z = h @ w + x @ u
        h = np.tanh((z - mean) / np.sqrt(var + 0.01) + np.tanh(mean @ o))
        mean, var = 0.9 * mean + 0.1 * z.mean(0), 0.9 * var + 0.1 * z.var(0)
        y.append(mean)
    return {"h": h, "mean": mean, "var": var, "y": y}


@meaning(_statistics)
def statistics(s: Sizes, kind: str) -> li.Graph:
    """Running statistics of the columns, [H], which a product reads too."""
    x = li.input("x", (s.T, s.B, K), kind)
    w, u, o = weight("w", (s.H, s.H), kind), weight("u", (K, s.H), kind), weight("o", (s.H, s.H), kind)

    def cell(state: Any, x: Any) -> Any:
        h, mean, var = state
        z = h @ w + x @ u
        h = li.tanh((z - mean) * li.rsqrt(var + 0.01) + li.tanh(mean @ o))
        d = z - li.mean(z, 0)
        mean, var = 0.9 * mean + 0.1 * li.mean(z, 0), 0.9 * var + 0.1 * li.mean(d * d, 0)
        return (h, mean, var), mean

    init = li.zeros((s.B, s.H), kind), li.zeros((s.H,), kind), li.ones((s.H,), kind)
    (h, mean, var), y = li.scan(cell, init, x)
    return li.Graph("statistics", [x], {"h": h, "mean": mean, "var": var, "y": y})


def _temperature(a: Arrays, H: int) -> dict[str, Any]:
    h, heat, w, u = np.zeros((a["x"].shape[1], H)), 1.0, matrix("w", H, H), matrix("u", K, H)
    y, best = [], []
    for x in a["x"]:
        z = (h @ w + x @ u) / heat
        e = np.exp(z - z.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        entropy = -np.sum(p * np.log(p + 1e-3), 1)
        heat = heat * np.exp(0.1 * (1.0 - entropy.mean()))
        h = np.tanh(h + p)
        y.append(heat)
        best.append(entropy.argmax())
    return {"h": h, "heat": heat, "y": y, "best": best}


@meaning(_temperature)
def temperature(s: Sizes, kind: str) -> li.Graph:
    """Adapted from the mean entropy; the row of the largest one."""
    x, w, u = li.input("x", (s.T, s.B, K), kind), weight("w", (s.H, s.H), kind), weight("u", (K, s.H), kind)

    def cell(state: Any, x: Any) -> Any:
        h, heat = state
        p = li.softmax((h @ w + x @ u) / heat, 1)
        entropy = -li.sum(p * li.log(p + 1e-3), 1)
        heat = heat * li.exp(0.1 * (1.0 - li.mean(entropy)))
        return (li.tanh(h + p), heat), (heat, li.argmax(entropy, 0))

    (h, heat), (y, best) = li.scan(cell, (li.zeros((s.B, s.H), kind), li.constant(1.0, kind)), x)
    return li.Graph("temperature", [x], {"h": h, "heat": heat, "y": y, "best": best})


def _memory(a: Arrays, H: int) -> dict[str, Any]:
    m, u = 0.1 * np.eye(H), matrix("u", K, H)
    h, y = np.zeros((a["x"].shape[1], H)), []
    for x in a["x"]:
        h = np.tanh(h @ m + x @ u)
        m = 0.9 * m + 0.1 * h.T @ h
        y.append(h[:, 0] @ h)
    return {"h": h, "m": m, "y": y}


@meaning(_memory)
def memory(s: Sizes, kind: str) -> li.Graph:
    """A matrix of all rows, to which their outer products are added."""
    x, u = li.input("x", (s.T, s.B, K), kind), weight("u", (K, s.H), kind)

    def cell(state: Any, x: Any) -> Any:
        h, m = state
        h = li.tanh(h @ m + x @ u)
        return (h, 0.9 * m + 0.1 * li.einsum("bi,bj->ij", h, h)), li.einsum("b,bj->j", h[:, 0], h)

    init = li.zeros((s.B, s.H), kind), li.constant((0.1 * np.eye(s.H)).astype(li.DType[kind].numpy))
    (h, m), y = li.scan(cell, init, x)
    return li.Graph("memory", [x], {"h": h, "m": m, "y": y})


def _one_row(a: Arrays, H: int) -> dict[str, Any]:
    w, u, h = matrix("w", H, H), matrix("u", K, H), np.zeros((a["x"].shape[1], H))
    for x in a["x"]:
        z = np.tanh(h @ w + x @ u)
        h = z - 0.5 * z[1] + 0.1 * h[2]
    return {"h": h}


@meaning(_one_row)
def one_row(s: Sizes, kind: str) -> li.Graph:
    """All rows read one of the step, and another of the step before."""
    x, w, u = li.input("x", (s.T, s.B, K), kind), weight("w", (s.H, s.H), kind), weight("u", (K, s.H), kind)

    def cell(h: Any, x: Any) -> Any:
        z = li.tanh(h @ w + x @ u)
        return z - 0.5 * li.broadcast_to(z[1:2], z.shape) + 0.1 * li.broadcast_to(h[2:3], h.shape), None

    h, _ = li.scan(cell, li.zeros((s.B, s.H), kind), x)
    return li.Graph("one_row", [x], {"h": h})


@meaning(lambda a, H: _elementwise(a))
def elementwise(s: Sizes, kind: str) -> li.Graph:
    """No product: nobody shares a step."""
    x = li.input("x", (s.T, s.B, s.H), kind)

    def cell(state: Any, x: Any) -> Any:
        h, top = state
        h = 0.5 * h + x / (1.0 + top)
        return (h, li.max(li.abs(h))), li.sum(h, 0)

    (h, top), y = li.scan(cell, (li.zeros((s.B, s.H), kind), li.constant(0.0, kind)), x)
    return li.Graph("elementwise", [x], {"h": h, "top": top, "y": y})


def _elementwise(a: Arrays) -> dict[str, Any]:
    h, top, y = np.zeros(a["x"].shape[1:]), 0.0, []
    for x in a["x"]:
        h = 0.5 * h + x / (1.0 + top)
        top = np.abs(h).max()
        y.append(h.sum(0))
    return {"h": h, "top": top, "y": y}


# Of a number s and an error e for each row, and a limit.
ENDS: dict[str, tuple[Callable[[Any, Any, Any], Any], Callable[[Any, Any, Any], Any]]] = {
    "all": (lambda s, e, at: li.all(s > at), lambda s, e, at: (s > at).all()),
    "any": (lambda s, e, at: li.any(s > at), lambda s, e, at: (s > at).any()),
    "count": (
        lambda s, e, at: li.sum(li.convert(s > at, "i32")) >= 2, lambda s, e, at: (s > at).sum() >= 2,
    ),
    "error": (lambda s, e, at: li.max(e) < 0.3 + at, lambda s, e, at: e.max(initial=-np.inf) < 0.3 + at),
    "mean": (lambda s, e, at: li.mean(s) > at, lambda s, e, at: s.mean() > at),
}  # fmt: skip


def ending(name: str, s: Sizes, kind: str) -> li.Graph:
    """A recurrence that ends by one flag for all rows."""
    x, h0, limit = li.input("x", (s.T, s.B, s.H), kind), li.input("h0", (s.B, s.H), kind), li.input("limit", (), kind)
    w = weight("w", (s.H, s.H), kind)

    def cell(h: Any, x: Any, limit: Any) -> Any:
        new = li.tanh(h @ w + x)
        return new, (new, ENDS[name][0](new[:, 0], li.max(li.abs(new - h), 1), limit))

    h, (y, flags), steps = li.scan(cell, h0, x, (limit,), until=lambda h, y: y[1])
    results = {"h": h, "y": y, "flags": li.convert(flags, "i32"), "steps": steps}
    return li.Graph("ending", [x, h0, limit], results)


def ended(name: str, a: Arrays, H: int) -> dict[str, Any]:
    """Its meaning."""
    h, w, y, steps = a["h0"].astype("f8"), matrix("w", H, H), np.zeros(a["x"].shape), 0
    for x in a["x"]:
        new = np.tanh(h @ w + x)
        error, h = np.abs(new - h).max(1, initial=0), new
        y[steps] = h
        steps += 1
        if ENDS[name][1](h[:, 0], error, a["limit"]):
            break
    return {"h": h, "y": y, "steps": steps}
