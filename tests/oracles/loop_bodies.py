"""Loop bodies of kinds that no layer has: one function each, over names that this project and JAX share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import lstm_ir as li


class Library(NamedTuple):
    """`np`: what both have under NumPy's names; i32 and f32 are the only types."""

    np: Any
    sigmoid: Callable[[Any], Any]
    scan: Callable[[Callable[[Any, Any], Any], Any, Any, int], Any]  # step, first state, rows or None, steps
    fixed: Callable[[Any], Any]  # the same without a gradient
    bits: Callable[[Any], Any]  # of an f32, as an i32
    of_bits: Callable[[Any], Any]
    whole: Callable[[Any], Any]  # as an i32
    conv1d: Callable[[Any, Any], Any]  # [N, C, L] with [O, C, taps], padded to the same size
    rows_of: Callable[[Any, Any], Any]  # rows of a table by their numbers
    least_of_top: Callable[[Any, int], Any]  # the k-th largest of each row, [N, 1]


def of_ours() -> Library:
    return Library(
        li, li.sigmoid, lambda step, first, rows, steps: li.scan(step, first, rows, length=steps), li.stop_gradient,
        lambda v: li.bitcast_convert(v, "i32"), lambda v: li.bitcast_convert(v, "f32"), lambda v: li.convert(v, "i32"),
        lambda x, w: li.conv1d(x, w, padding="same"), lambda table, at: li.take(table, at, axis=0),
        lambda v, k: li.top_k(v, k)[0][:, k - 1 :],
    )  # fmt: skip


def of_jax() -> Library:
    import jax
    import jax.numpy as jnp

    return Library(
        jnp, jax.nn.sigmoid, jax.lax.scan, jax.lax.stop_gradient,
        lambda v: jax.lax.bitcast_convert_type(v, jnp.int32), lambda v: jax.lax.bitcast_convert_type(v, jnp.float32),
        lambda v: v.astype(jnp.int32), lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), "SAME"),
        lambda table, at: table[at], lambda v, k: jax.lax.top_k(v, k)[0][:, k - 1 :],
    )  # fmt: skip


class Point(NamedTuple):
    """Sizes; a shape is a word of their letters and digits."""

    T: int
    B: int
    H: int

    def shape(self, word: str) -> tuple[int, ...]:
        """Vocabulary V; half as many rows G; heads N of K columns; channels C; matrices of D by D."""
        H = self.H
        sizes = {"T": self.T, "B": self.B, "H": H, "G": self.B // 2 + 1, "V": 96, "C": max(1, H // 8), "D": 4}
        sizes |= {"N": 4, "K": H // 4}
        return tuple(int(c) if c.isdigit() else sizes[c] for c in word)

    def __str__(self) -> str:
        return f"{self.T},{self.B},{self.H}"


Run = Callable[[Library, Mapping[str, Any], Point], dict[str, Any]]


class Body(NamedTuple):
    """`run` makes results of inputs and weights, whose shapes are words."""

    run: Run
    given: Mapping[str, str]
    weights: Mapping[str, str]
    trains: bool


BODIES: dict[str, Body] = {}


def body(given: Mapping[str, str], weights: Mapping[str, str], trains: bool = True) -> Callable[[Run], Run]:
    def keep(run: Run) -> Run:
        BODIES[run.__name__] = Body(run, given, weights, trains)
        return run

    return keep


def zeros(lib: Library, s: Point, word: str, kind: Any = np.float32) -> Any:
    return lib.np.zeros(s.shape(word), kind)


@body({"x": "TBH"}, {"r": "HH"})
def bit_casts(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    """Leaky integrate-and-fire: sign and magnitude by bits, and a slope of the spikes that is said to be another."""

    def step(state: Any, x: Any) -> Any:
        v, spikes = state
        v = 0.9 * v + x + spikes @ a["r"] - spikes
        over = v - 1.0
        bits = lib.bits(over)
        bent = 1.0 + 4.0 * lib.of_bits(bits & 0x7FFFFFFF)
        slope = over * lib.fixed(1.0 / (bent * bent))
        fired = lib.of_bits(lib.np.where(bits < 0, 0, 0x3F800000))  # the bits of 1
        spikes = lib.fixed(fired) + (slope - lib.fixed(slope))
        return (v, spikes), spikes

    (v, _), y = lib.scan(step, (zeros(lib, s, "BH"), zeros(lib, s, "BH")), a["x"], s.T)
    return {"v": v, "y": y}


@body({"x": "TBH", "u": "TGH"}, {"r": "HH", "q": "HH"})
def unlike_rows(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    """Two states with different numbers of rows, both stacked."""

    def step(state: Any, row: Any) -> Any:
        h, g = lib.np.tanh(state[0] @ a["r"] + row[0]), lib.np.tanh(state[1] @ a["q"] + row[1])
        return (h, g), (h, g)

    _, (y, z) = lib.scan(step, (zeros(lib, s, "BH"), zeros(lib, s, "GH")), (a["x"], a["u"]), s.T)
    return {"y": y, "z": z}


@body({"x": "TBH"}, {"w": "CC3", "u": "C"})
def convolution(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    """A state of channels along a line, [B, H / 8, H]."""

    def step(h: Any, x: Any) -> Any:
        h = lib.np.tanh(lib.conv1d(h, a["w"]) + x[:, None, :] * a["u"][None, :, None])
        return h, lib.np.mean(h, 1)

    h, y = lib.scan(step, zeros(lib, s, "BCH"), a["x"], s.T)
    return {"h": h, "y": y}


@body({"x": "TBH"}, {"r": "HH"})
def scalars(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    """A mean of all rows and a scale of the loss, which every step reads and renews."""

    def step(state: Any, x: Any) -> Any:
        h, mean, scale = state
        h = lib.np.tanh(h @ a["r"] + x - mean)
        mean = 0.9 * mean + 0.1 * lib.np.mean(h)
        scale = lib.np.where(lib.np.max(lib.np.abs(h)) > 0.98, scale * 0.9, scale * 1.05)
        return (h, mean, scale), (lib.np.mean(h * h) * scale, h)

    first = zeros(lib, s, "BH"), zeros(lib, s, ""), lib.np.ones((), np.float32)
    (_, mean, scale), (loss, y) = lib.scan(step, first, a["x"], s.T)
    return {"mean": mean, "scale": scale, "loss": loss, "y": y}


@body({"x": "TBH"}, {"r": "HH"})
def counters(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    """Steps at which h was above 0, in i32; the fifth one sets both back."""

    def step(state: Any, x: Any) -> Any:
        h, n = state
        h = lib.np.tanh(h @ a["r"] + x)
        n = n + lib.whole(h > 0.0)
        full = n >= 5
        h, n = lib.np.where(full, 0.0, h), lib.np.where(full, 0, n)
        return (h, n), (h, n)

    _, (y, n) = lib.scan(step, (zeros(lib, s, "BH"), zeros(lib, s, "BH", np.int32)), a["x"], s.T)
    return {"y": y, "n": n}


def decoder(lib: Library, a: Mapping[str, Any], s: Point, score: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Reads the row of the token that it took last; `score` of logits and a step's noise, whose largest it takes."""

    def step(state: Any, noise: Any) -> Any:
        h, token = state
        h = lib.np.tanh(lib.rows_of(a["table"], token) + h @ a["r"])
        logits = h @ a["o"]
        token = lib.whole(lib.np.argmax(score(logits, noise), 1))
        return (h, token), (token, lib.np.max(logits, 1))

    (h, _), (tokens, top) = lib.scan(step, (a["h0"], zeros(lib, s, "B", np.int32)), a.get("noise"), s.T)
    return {"h": h, "tokens": tokens, "top": top}


DECODER = {"table": "VH", "r": "HH", "o": "HV"}


@body({"h0": "BH"}, DECODER)
def greedy(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    return decoder(lib, a, s, lambda logits, _: logits)


@body({"h0": "BH", "noise": "TBV"}, DECODER, trains=False)
def temperature(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    return decoder(lib, a, s, lambda logits, noise: logits / 0.7 + noise)


@body({"h0": "BH", "noise": "TBV"}, DECODER, trains=False)
def top_k(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    """Drawn among the eight largest."""
    return decoder(lib, a, s, lambda v, noise: lib.np.where(v >= lib.least_of_top(v, 8), v / 0.7 + noise, -1e30))


@body({"x": "TBH"}, {"w": "HDD", "c": "HD"})
def covariances(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    """Kalman's: P = F P F^T + I, then what one number that is seen through c takes away; F and c are of x."""
    motion = lib.np.tanh(lib.np.einsum("tbh,hij->tbij", a["x"], a["w"]))
    seen = lib.np.einsum("tbh,hi->tbi", a["x"], a["c"])
    noise = np.eye(4, dtype=np.float32)

    def step(p: Any, row: Any) -> Any:
        f, c = row
        p = f @ p @ lib.np.swapaxes(f, 1, 2) + noise
        pc = lib.np.einsum("bij,bj->bi", p, c)
        gain = pc / (lib.np.sum(c * pc, 1) + 0.5)[:, None]
        return p - gain[:, :, None] * pc[:, None, :], gain

    p, y = lib.scan(step, zeros(lib, s, "BDD"), (motion, seen), s.T)
    return {"p": p, "y": y}


def matrix_state(lib: Library, a: Mapping[str, Any], s: Point, decay: Any) -> dict[str, Any]:
    """S = decay S + k v^T, y = q S, by heads; a decay for each head, or for each step, row and head."""
    rows = tuple(lib.np.einsum("tbh,hnk->tbnk", a["x"], a[n]) for n in "qkv")
    by_step = len(decay.shape) == 3

    def step(state: Any, row: Any) -> Any:
        q, k, v, *own = row
        d = own[0][..., None, None] if by_step else decay[None, :, None, None]
        state = d * state + k[..., :, None] * v[..., None, :]
        return state, lib.np.einsum("bnk,bnkv->bnv", q, state)

    state, y = lib.scan(step, zeros(lib, s, "BNKK"), (*rows, decay) if by_step else rows, s.T)
    return {"state": state, "y": y}


QKV = {"q": "HNK", "k": "HNK", "v": "HNK"}


@body({"x": "TBH"}, {**QKV, "d": "N"})
def linear_attention(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    return matrix_state(lib, a, s, lib.sigmoid(a["d"] + 2.0))


@body({"x": "TBH"}, {**QKV, "d": "HN"})
def mamba2(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    return matrix_state(lib, a, s, lib.sigmoid(lib.np.einsum("tbh,hn->tbn", a["x"], a["d"]) + 2.0))


@body({"x": "TBH"}, {"k": "HH", "v": "HH", "w": "H", "u": "H"})
def wkv(lib: Library, a: Mapping[str, Any], s: Point) -> dict[str, Any]:
    """RWKV-4: a numerator and a denominator, by the largest exponent so far."""
    keys, values = (lib.np.einsum("tbh,hi->tbi", a["x"], a[n]) for n in "kv")
    decay = -lib.np.exp(a["w"])

    def step(state: Any, row: Any) -> Any:
        above, below, top = state
        k, v = row
        here = lib.np.maximum(top, k + a["u"])
        old, new = lib.np.exp(top - here), lib.np.exp(k + a["u"] - here)
        y = (old * above + new * v) / (old * below + new)
        most = lib.np.maximum(top + decay, k)
        old, new = lib.np.exp(top + decay - most), lib.np.exp(k - most)
        return (old * above + new * v, old * below + new, most), y

    none = zeros(lib, s, "BH")
    _, y = lib.scan(step, (none, none, none - 1e30), (keys, values), s.T)
    return {"y": y}
