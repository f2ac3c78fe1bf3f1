"""Convolutions to compile, forward and backward, and what they are in float64 by one sum per tap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]
Sizes = tuple[int, int]
LIMIT = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 1.6e-2}  # of the largest entry


@dataclass(frozen=True)
class Case:
    """x [N,C,L] with w [O,C/G,K]; N and L are ints or names."""

    batch: int | str
    channels: int
    length: int | str
    outputs: int
    taps: int
    stride: int = 1
    dilation: int = 1
    padding: tuple[int, int] = (0, 0)
    groups: int = 1
    dtype: str = "f32"

    @property
    def window(self) -> int:
        return (self.taps - 1) * self.dilation + 1

    @property
    def weights(self) -> tuple[int, int, int]:
        return self.outputs, self.channels // self.groups, self.taps

    def graph(self) -> li.Graph:
        """y, d_x and d_w."""
        x = li.input("x", (self.batch, self.channels, self.length), self.dtype)
        w = li.input("w", self.weights, self.dtype)
        y = li.conv1d(x, w, self.stride, self.padding, self.dilation, self.groups)
        return li.vjp(li.Graph("convolution", [x, w], {"y": y}), ["y"], ["x", "w"])

    def sizes(self) -> list[Sizes]:
        """Sizes to call with: none, one and several of what is open; the least length."""
        least = max(1, self.window - sum(self.padding))
        wanted = [(3, least + 37), (1, least), (0, least + 9), (2, least + 1)]
        found = [
            (n if isinstance(self.batch, str) else self.batch, at if isinstance(self.length, str) else self.length)
            for n, at in wanted
        ]
        return list(dict.fromkeys(found))

    def arrays(self, r: np.random.Generator, batch: int, length: int) -> dict[str, Array]:
        steps = (length + sum(self.padding) - self.window) // self.stride + 1
        shapes = {
            "x": (batch, self.channels, length), "w": self.weights,
            "ct_y": (batch, self.outputs, steps),
        }  # fmt: skip
        kind = li.DType(self.dtype).numpy
        return {k: r.standard_normal(s).astype(kind) for k, s in shapes.items()}

    def expected(self, x: Array, w: Array, ct_y: Array) -> dict[str, Array]:
        """One sum per tap, in float64."""
        x, w, ct = (a.astype("f8") for a in (x, w, ct_y))
        (n, c, _), (o, each, _), g = x.shape, w.shape, self.groups
        xp = np.pad(x, ((0, 0), (0, 0), self.padding))
        y, d_xp, d_w = np.zeros_like(ct), np.zeros_like(xp), np.zeros_like(w)
        steps = ct.shape[2]
        for k in range(self.taps):
            at = np.s_[:, :, k * self.dilation + self.stride * np.arange(steps)]
            met = xp[at].reshape(n, g, each, steps)
            share = ct.reshape(n, g, o // g, steps)
            tap = w[:, :, k].reshape(g, o // g, each)
            y += np.einsum("ngct,goc->ngot", met, tap).reshape(ct.shape)
            d_xp[at] += np.einsum("ngot,goc->ngct", share, tap).reshape(n, c, steps)
            d_w[:, :, k] = np.einsum("ngot,ngct->goc", share, met).reshape(o, each)
        low = self.padding[0]
        return {"y": y, "d_x": d_xp[:, :, low : low + x.shape[2]], "d_w": d_w}


def check(cases: list[Case], seed: int, *, weaker: bool = True, **how: Any) -> None:
    """All cases in one module, called with all their sizes; `weaker`: its flags may be."""
    entries = {f"c{i}": c.graph() for i, c in enumerate(cases)}
    exe = li.compile(Program("convolutions", entries), **how)
    if not weaker:
        assert not [n for n in exe.report.notes if "compiled with" in n]
    for i, c in enumerate(cases):
        for batch, length in c.sizes():
            arrays = c.arrays(np.random.default_rng([seed, i, batch]), batch, length)
            got, want = exe.entries[f"c{i}"](arrays), c.expected(**arrays)
            for name, right in want.items():
                near(got[name], right, LIMIT[c.dtype], f"{c} {(batch, length)} {name}")


def near(got: Array, want: Array, limit: float, what: str) -> None:
    """Within `limit` of the largest entry."""
    assert got.shape == want.shape, what
    most = max(1.0, float(np.abs(want).max(initial=0.0)))
    np.testing.assert_allclose(got.astype("f8"), want, rtol=0, atol=limit * most, err_msg=what)


def random_case(r: np.random.Generator, most: int = 256, dtype: str = "f32") -> Case:
    """Any convolution of up to 7 taps."""

    def pick(*of: Any) -> Any:
        return of[int(r.integers(len(of)))]

    channels = [n for n in (1, 3, 16, 40, 64, 80, 128, 200, 256) if n <= most]
    taps, stride, dilation = int(r.integers(1, 8)), pick(1, 1, 2, 3, 4), pick(1, 1, 2, 3)
    c, o, groups = pick(*channels), pick(*channels), 1
    kind = pick("plain", "plain", "plain", "groups", "single")
    if kind == "groups":
        groups = pick(2, 3)
        c, o = groups * pick(1, 3, 20), groups * pick(1, 5, 32)
    elif kind == "single":
        groups, o = c, c * pick(1, 2)
    window = (taps - 1) * dilation + 1
    padding = int(r.integers(window)), int(r.integers(window))
    batch, length = pick(1, 2, 5), window + pick(0, 1, 30, 150)
    return Case(pick(batch, "N"), c, pick(length, "L"), o, taps, stride, dilation, padding, groups, dtype)
