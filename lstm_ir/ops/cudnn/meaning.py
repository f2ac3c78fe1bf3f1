"""The NumPy meaning of CudnnRNNV3 and its backward pass, time-major, one direction at a time.

Per step, with a_k = W_k x + bW_k (x itself where W is absent) and h', c' the state before:

    rnn    h = f(a + R h' + bR)                          f = relu or tanh
    lstm   i, f, o = s(a + R h' + bR)   g = tanh(..)     c = f c' + i g     m = o tanh(c)
           h = m, or P m with a projection
    gru    r, z = s(a + R h' + bR)      q = R_n h' + bR_n
           n = tanh(a_n + r q)          h = (1-z) n + z h'

A step t >= length gives y = 0 and keeps h and c; so the backward direction starts at each row's
own last step. x of layer l > 0 is dropout(y of layer l-1). Backward, with s what reaches h:

    rnn    u = s [h > 0]  or  s (1-h^2)
    lstm   s_m = s or P^T s    e = dc + s_m o (1-tanh(c)^2)
           u_i = e g i(1-i)    u_f = e c' f(1-f)    u_g = e i (1-g^2)    u_o = s_m tanh(c) o(1-o)
           dc <- e f           dP += s m^T
    gru    u_n = s (1-z)(1-n^2)   u_z = s (h'-n) z(1-z)   u_r = u_n q r(1-r)
           v = u, but v_n = u_n r                           dh <- s z + ...
    dh <- R^T v    dx = W^T u    dW = sum u x^T    dbW = sum u    dR = sum v h'^T    dbR = sum v

Sources: TensorFlow's op documentation and cuDNN's equations; docs/cudnn-rnn.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.ops.cudnn.layout import Blocks, Network, WeightRegion
from lstm_ir.ops.primitive.numpy_math import logistic

Array = np.ndarray[Any, Any]
Saved = dict[tuple[str, int], Array]


@dataclass
class CudnnArrays:
    """One call: x [T,B,I], first states [L*D,B,.], lengths [B], keep [T,B,D*Q] per layer."""

    net: Network
    params: Array
    x: Array
    h0: Array
    c0: Array | None
    lengths: Array
    keep: list[Array] | None
    scale: float

    def at(self, region: WeightRegion) -> Array:
        """The region as an array."""
        return self.params[region.offset : region.offset + region.size].reshape(region.shape)

    def alive(self, t: int) -> Array:
        """[B,1]: whether the rows exist at step t."""
        return np.less(t, self.lengths)[:, None]

    def exists(self) -> Array:
        """[T,B,1]."""
        steps = np.arange(self.x.shape[0])[:, None]
        return np.asarray((steps < self.lengths)[:, :, None])

    def dropped(self, v: Array, layer: int) -> Array:
        """v [T,B,D*Q] between `layer` and the next, or its gradient."""
        if self.keep is None:
            return v
        return np.where(self.keep[layer], v * self.scale, 0)

    def c_first(self, p: int) -> Array:
        """The first cell state [B,H]; zeros that nobody reads where there is none."""
        return np.asarray(self.h0[p] if self.c0 is None else self.c0[p])


def forward(run: CudnnArrays) -> tuple[Array, Array, Array | None, Saved]:
    """output [T,B,D*Q], output_h, output_c, and what backward needs: (name, layer) -> [T,B,.]."""
    n, x, saved = run.net, run.x, Saved()
    finals_h, finals_c = [], []
    for layer in range(n.L):
        rows = []
        for d in range(n.D):
            row, h, c = _direction(run, x, layer * n.D + d, d == 1)
            rows.append(row)
            finals_h.append(h)
            finals_c.append(c)
        for name in rows[0]:
            saved[name, layer] = np.concatenate([r[name] for r in rows], axis=2)
        y = saved["y", layer]
        if layer < n.L - 1:
            x = run.dropped(y, layer)
    return y, np.stack(finals_h), np.stack(finals_c) if n.lstm else None, saved


def _direction(run: CudnnArrays, x: Array, p: int, back: bool) -> tuple[dict[str, Array], Array, Array]:
    """Rows of one pseudo-layer by name, and its final states."""
    n, b, T = run.net, run.net.blocks[p], x.shape[0]
    widths = {"y": n.Q, "gates": n.G * n.H, "cells": n.H, "inner": n.H}
    rows = {k: np.zeros((*x.shape[:2], w), x.dtype) for k, w in widths.items()}
    h, c = run.h0[p], run.c_first(p)
    for t in reversed(range(T)) if back else range(T):
        alive = run.alive(t)
        new = _cell(run, b, _input(run, b, np.where(alive, x[t], 0)), h, c)
        for name, row in rows.items():
            row[t] = np.where(alive, new[name], 0)
        h, c = np.where(alive, new["y"], h), np.where(alive, new["cells"], c)
    return rows, h, c


def _input(run: CudnnArrays, b: Blocks, x: Array) -> Array:
    """a [B,G*H]: W x + bW, or x itself for every gate."""
    a = np.tile(x, run.net.G) if b.W is None else x @ run.at(b.W).T
    return a + run.at(b.b_in)


def _cell(run: CudnnArrays, b: Blocks, a: Array, h: Array, c: Array) -> dict[str, Array]:
    """y, gates, cells and inner of one step; those that the mode has not are the h of the step."""
    n, r = run.net, h @ run.at(b.R).T + run.at(b.b_rec)
    if n.G == 1:
        y = np.tanh(a + r) if n.mode == "rnn_tanh" else np.maximum(a + r, 0)
        return dict.fromkeys(("y", "gates", "cells", "inner"), y)
    A, R = np.split(a, n.G, axis=1), np.split(r, n.G, axis=1)
    if n.mode == "gru":
        reset, z = logistic(A[0] + R[0]), logistic(A[1] + R[1])
        cand = np.tanh(A[2] + reset * R[2])
        y = (1 - z) * cand + z * h
        return {"y": y, "gates": np.hstack([reset, z, cand]), "cells": y, "inner": R[2]}
    i, f, o = (logistic(A[k] + R[k]) for k in (0, 1, 3))
    g = np.tanh(A[2] + R[2])
    cell = f * c + i * g
    m = o * np.tanh(cell)
    y = m if b.P is None else m @ run.at(b.P).T
    return {"y": y, "gates": np.hstack([i, f, g, o]), "cells": cell, "inner": cell}


def backward(
    run: CudnnArrays, saved: Saved, dy: Array, dh: Array, dc: Array | None
) -> tuple[Array, Array, Array | None, Array]:
    """Gradients of x, h0, c0, params from those of output, output_h, output_c."""
    n = run.net
    d_params, d_h0 = np.zeros_like(run.params), np.zeros_like(run.h0)
    d_c0 = np.zeros_like(run.h0 if run.c0 is None else run.c0)
    for layer in reversed(range(n.L)):
        x = run.dropped(saved["y", layer - 1], layer - 1) if layer else run.x
        d_x = np.zeros_like(x)
        for d in range(n.D):
            p = layer * n.D + d
            part = _Back(run, saved, layer, d, x, dy[:, :, d * n.Q : (d + 1) * n.Q])
            arriving = np.zeros_like(d_c0[p]) if dc is None else dc[p]
            d_h0[p], d_c0[p] = part.steps(dh[p], arriving)
            d_x += part.sums(d_params)
        dy = run.dropped(d_x, layer - 1) if layer else d_x
    return dy, d_h0, d_c0 if n.lstm else None, d_params


class _Back:
    """The way back through one pseudo-layer; collects u and v [T,B,G*H] and s [T,B,Q]."""

    def __init__(self, run: CudnnArrays, saved: Saved, layer: int, d: int, x: Array, dy: Array) -> None:
        n = run.net
        self.run, self.back, self.p = run, d == 1, layer * n.D + d
        self.b, self.dy = n.blocks[self.p], dy
        self.x = np.where(run.exists(), x, 0)
        widths = {"y": n.Q, "gates": n.G * n.H, "cells": n.H, "inner": n.H}
        there = {k: saved[k, layer] for k in widths if (k, layer) in saved}
        self.rows = {k: v[:, :, d * widths[k] : (d + 1) * widths[k]] for k, v in there.items()}
        self.h = self.before("y", run.h0[self.p])
        self.c = self.before("cells", run.c_first(self.p)) if n.lstm else self.h
        lead = x.shape[:2]
        self.u, self.v = (np.zeros((*lead, n.G * n.H), x.dtype) for _ in range(2))
        self.s = np.zeros((*lead, n.Q), x.dtype)

    def before(self, name: str, first: Array) -> Array:
        """The state that each step starts from, [T,B,.]."""
        rows = self.rows[name]
        if not self.back:
            return np.concatenate([first[None], rows[:-1]])
        steps = np.arange(len(rows))[:, None]
        after = np.concatenate([rows[1:], rows[:1]])
        return np.where((steps + 1 < self.run.lengths)[:, :, None], after, first)

    def steps(self, dh: Array, dc: Array) -> tuple[Array, Array]:
        """Through time, opposite to the forward pass; gives the gradients of the first states."""
        T, R = len(self.x), self.run.at(self.b.R)
        for t in range(T) if self.back else reversed(range(T)):
            alive = self.run.alive(t)
            s = np.where(alive, dh + self.dy[t], 0)
            u, v, direct, new_dc = self.step(t, s, np.where(alive, dc, 0))
            self.s[t] = s
            self.u[t], self.v[t] = (np.where(alive, a, 0) for a in (u, v))
            dh, dc = np.where(alive, v @ R + direct, dh), np.where(alive, new_dc, dc)
        return dh, dc

    def step(self, t: int, s: Array, dc: Array) -> tuple[Array, Array, Array | float, Array]:
        """u, v, what reaches h' past R, and dc."""
        n, h = self.run.net, self.h[t]
        if n.G == 1:
            y = self.rows["y"][t]
            u = s * (1 - y * y) if n.mode == "rnn_tanh" else np.where(y > 0, s, 0)
            return u, u, 0.0, dc
        gates = np.split(self.rows["gates"][t], n.G, axis=1)
        if n.mode == "gru":
            r, z, cand = gates
            u_n, u_z = s * (1 - z) * (1 - cand * cand), s * (h - cand) * z * (1 - z)
            u_r = u_n * self.rows["inner"][t] * r * (1 - r)
            return np.hstack([u_r, u_z, u_n]), np.hstack([u_r, u_z, u_n * r]), s * z, dc
        i, f, g, o = gates
        tanh_c = np.tanh(self.rows["cells"][t])
        s_m = s if self.b.P is None else s @ self.run.at(self.b.P)
        e = dc + s_m * o * (1 - tanh_c * tanh_c)
        u_i, u_f = e * g * i * (1 - i), e * self.c[t] * f * (1 - f)
        u = np.hstack([u_i, u_f, e * i * (1 - g * g), s_m * tanh_c * o * (1 - o)])
        return u, u, 0.0, e * f

    def sums(self, d_params: Array) -> Array:
        """Writes the gradients of this pseudo-layer's params; gives its part of dx."""
        b, H = self.b, self.run.net.H
        found = {b.R: _outer(self.v, np.where(self.run.exists(), self.h, 0))}
        found |= {b.b_in: self.u.sum((0, 1)), b.b_rec: self.v.sum((0, 1))}
        if b.W is not None:
            found[b.W] = _outer(self.u, self.x)
        if b.P is not None:
            m = self.rows["gates"][:, :, 3 * H :] * np.tanh(self.rows["cells"])
            found[b.P] = _outer(self.s, m)
        for region, value in found.items():
            d_params[region.offset : region.offset + region.size] = value.ravel()
        if b.W is not None:
            return np.asarray(self.u @ self.run.at(b.W))
        return np.asarray(sum(np.split(self.u, self.run.net.G, axis=2)))


def _outer(u: Array, x: Array) -> Array:
    """Sum over t and b of u x^T."""
    return np.asarray(np.tensordot(u, x, axes=((0, 1), (0, 1))))
