"""Convolutions and pools to compile, forward and backward, and what they are in float64 by their definition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Sizes = tuple[int | str, ...]
LIMIT = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 1.6e-2}  # of the largest entry
BUILDERS = {
    "conv": (li.conv1d, li.conv2d), "transposed": (li.conv_transpose1d, li.conv_transpose2d),
    "max": (li.max_pool1d, li.max_pool2d), "avg": (li.avg_pool1d, li.avg_pool2d),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """x [batch, channels, *sizes], on one axis or two; what is open has a name.

    Of `outputs` and `groups` pools have none. `more` is output_padding. An empty tuple is the default.
    """

    kind: str
    batch: int | str
    channels: int
    sizes: Sizes
    taps: Ints
    outputs: int = 0
    strides: Ints = ()
    padding: tuple[tuple[int, int], ...] = ()
    dilations: Ints = ()
    groups: int = 1
    more: Ints = ()
    ceil: bool = False
    counted: bool = True
    dtype: str = "f32"

    def __post_init__(self) -> None:
        ones = (1,) * self.rank
        given = {"strides": ones, "dilations": ones, "padding": ((0, 0),) * self.rank, "more": (0,) * self.rank}
        for name, default in given.items():
            object.__setattr__(self, name, getattr(self, name) or default)

    @property
    def rank(self) -> int:
        """Axes."""
        return len(self.taps)

    @property
    def is_pool(self) -> bool:
        """Whether it has no kernel."""
        return self.kind in ("max", "avg")

    @property
    def windows(self) -> Ints:
        """Places from the first tap to the last."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.taps, self.dilations, strict=True))

    @property
    def weights(self) -> Ints:
        """The kernel's shape."""
        if self.kind == "transposed":
            return self.channels, self.outputs // self.groups, *self.taps
        return self.outputs, self.channels // self.groups, *self.taps

    def build(self, x: Any, w: Any, b: Any) -> Any:
        """By the builder."""
        f: Any = BUILDERS[self.kind][self.rank - 1]
        given: dict[str, Any] = {"padding": self.padding, "stride": self.strides}
        if self.rank == 1:
            given |= {"padding": self.padding[0], "stride": self.strides[0]}
        one = [v[0] if self.rank == 1 else v for v in (self.taps, self.dilations, self.more)]
        match self.kind:
            case "max":
                return f(x, one[0], dilation=one[1], ceil_mode=self.ceil, **given)
            case "avg":
                return f(x, one[0], ceil_mode=self.ceil, count_include_pad=self.counted, **given)
            case "conv":
                return f(x, w, dilation=one[1], groups=self.groups, bias=b, **given)
        return f(x, w, output_padding=one[2], dilation=one[1], groups=self.groups, bias=b, **given)

    def forward(self) -> li.Graph:
        """y."""
        x = li.input("x", (self.batch, self.channels, *self.sizes), self.dtype)
        if self.is_pool:
            return li.Graph(self.kind, [x], {"y": self.build(x, None, None)})
        w, b = li.input("w", self.weights, self.dtype), li.input("b", (self.outputs,), self.dtype)
        return li.Graph(self.kind, [x, w, b], {"y": self.build(x, w, b)})

    def graph(self) -> li.Graph:
        """y, and the gradients of all inputs."""
        forward = self.forward()
        return li.vjp(forward, ["y"], [p.node.attrs["name"] for p in forward.params])

    def calls(self) -> list[tuple[int, Ints]]:
        """Sizes to call with: none, one and several of what is open; the least lengths."""
        least = [
            max(1, w - sum(p)) if self.kind != "transposed" else max(1, -(-(sum(p) - w + 1) // s) + 1)
            for w, p, s in zip(self.windows, self.padding, self.strides, strict=True)
        ]
        found = []
        for n, more in ((3, 13), (1, 0), (0, 9), (2, 1)):
            open_sizes = [m + more - min(more, 2) * i for i, m in enumerate(least)]
            sizes = tuple(a if isinstance(a, int) else m for a, m in zip(self.sizes, open_sizes, strict=True))
            found.append((n if isinstance(self.batch, str) else self.batch, sizes))
        return list(dict.fromkeys(found))

    def steps(self, sizes: Ints) -> Ints:
        """The result's sizes, by PyTorch's formulas."""
        out = []
        for n, k, s, (low, high), more in zip(sizes, self.windows, self.strides, self.padding, self.more, strict=True):
            if self.kind == "transposed":
                out.append((n - 1) * s - low - high + k + more)
                continue
            room = n + low + high - k
            count = (-(-room // s) if self.ceil else room // s) + 1
            out.append(count - 1 if self.ceil and (count - 1) * s >= n + low else count)
        return tuple(out)

    def arrays(self, r: np.random.Generator, batch: int, sizes: Ints) -> dict[str, Array]:
        """Inputs and the cotangent; of pools integers, so that some are equal."""
        shapes = {"x": (batch, self.channels, *sizes)}
        if not self.is_pool:
            shapes |= {"w": self.weights, "b": (self.outputs,)}
        shapes["ct_y"] = (batch, self.channels if self.is_pool else self.outputs, *self.steps(sizes))
        kind = li.DType(self.dtype).numpy
        made = {k: r.standard_normal(s) for k, s in shapes.items()}
        if self.kind == "max":
            made["x"] = np.round(2 * made["x"])
        return {k: a.astype(kind) for k, a in made.items()}

    # -- what it is

    def expected(self, **arrays: Array) -> dict[str, Array]:
        """y and the gradients."""
        wide = {k: a.astype("f8") for k, a in arrays.items()}
        if self.is_pool:
            return self._pooled(wide["x"], wide["ct_y"])
        if self.kind == "conv":
            return self._convolved(**wide)
        return self._transposed(**wide)

    def _taps(self, steps: Ints) -> Any:
        """Of each tap its place in the kernel, and what it sees of an array with its padding."""
        for tap in np.ndindex(*self.taps):
            places = (
                k * d + s * np.arange(n) for k, d, s, n in zip(tap, self.dilations, self.strides, steps, strict=True)
            )
            yield tap, (slice(None), slice(None), *np.ix_(*places))

    def _grouped(self, a: Array) -> Array:
        return a.reshape(a.shape[0], self.groups, a.shape[1] // self.groups, *a.shape[2:])

    def _inside(self, sizes: Ints) -> Any:
        return (..., *(np.s_[low : low + n] for (low, _), n in zip(self.padding, sizes, strict=True)))

    def _convolved(self, x: Array, w: Array, b: Array, ct_y: Array) -> dict[str, Array]:
        y, d_w, g = np.zeros_like(ct_y), np.zeros_like(w), self.groups
        xp = np.pad(x, ((0, 0), (0, 0), *self.padding))
        d_xp, share = np.zeros_like(xp), self._grouped(ct_y)
        for tap, at in self._taps(ct_y.shape[2:]):
            met = self._grouped(xp[at])
            kernel = w[(..., *tap)].reshape(g, w.shape[0] // g, w.shape[1])
            y += np.einsum("ngc...,goc->ngo...", met, kernel).reshape(y.shape)
            d_xp[at] += np.einsum("ngo...,goc->ngc...", share, kernel).reshape(xp[at].shape)
            d_w[(..., *tap)] = _met(share, met).reshape(w.shape[:2])
        return self._with_bias(y, d_xp[self._inside(x.shape[2:])], d_w, b, ct_y)

    def _transposed(self, x: Array, w: Array, b: Array, ct_y: Array) -> dict[str, Array]:
        steps, sizes, g, d_w = x.shape[2:], ct_y.shape[2:], self.groups, np.zeros_like(w)
        room = [n + low + high for n, (low, high) in zip(sizes, self.padding, strict=True)]
        yp, ctp = np.zeros((*ct_y.shape[:2], *room)), np.zeros((*ct_y.shape[:2], *room))
        ctp[self._inside(sizes)] = ct_y
        d_x, rows = np.zeros_like(x), self._grouped(x)
        for tap, at in self._taps(steps):
            met = self._grouped(ctp[at])
            kernel = w[(..., *tap)].reshape(g, w.shape[0] // g, w.shape[1])
            yp[at] += np.einsum("ngc...,gco->ngo...", rows, kernel).reshape(yp[at].shape)
            d_x += np.einsum("ngo...,gco->ngc...", met, kernel).reshape(x.shape)
            d_w[(..., *tap)] = _met(rows, met).reshape(w.shape[:2])
        return self._with_bias(yp[self._inside(sizes)], d_x, d_w, b, ct_y)

    def _with_bias(self, y: Array, d_x: Array, d_w: Array, b: Array, ct_y: Array) -> dict[str, Array]:
        sums = ct_y.sum(axis=(0, *range(2, ct_y.ndim)))
        return {"y": y + b.reshape(-1, *(1,) * self.rank), "d_x": d_x, "d_w": d_w, "d_b": sums}

    def _pooled(self, x: Array, ct: Array) -> dict[str, Array]:
        """Window by window."""
        y, d_x, sizes = np.zeros_like(ct), np.zeros_like(x), x.shape[2:]
        for t in np.ndindex(*ct.shape[2:]):
            places = [
                [n * s + k * d - low for k in range(taps)]
                for n, s, d, taps, (low, _) in zip(
                    t, self.strides, self.dilations, self.taps, self.padding, strict=True
                )
            ]
            known = [p for p in product(*places) if all(0 <= i < n for i, n in zip(p, sizes, strict=True))]
            seen = np.stack([x[(..., *p)] for p in known])
            if self.kind == "max":
                first = seen.argmax(0)
                y[(..., *t)] = seen.max(0)
                for i, p in enumerate(known):
                    d_x[(..., *p)] += np.where(first == i, ct[(..., *t)], 0)
                continue
            edges = self.padding if self.counted else ((0, 0),) * self.rank
            count = np.prod([
                sum(-low <= i < n + high for i in axis)
                for axis, n, (low, high) in zip(places, sizes, edges, strict=True)
            ])  # fmt: skip
            y[(..., *t)] = seen.sum(0) / count
            for p in known:
                d_x[(..., *p)] += ct[(..., *t)] / count
        return {"y": y, "d_x": d_x}


def _met(a: Array, b: Array) -> Array:
    """[G, A, B] of [N, G, A, ..] and [N, G, B, ..]."""
    flat = (v.reshape(*v.shape[:3], int(np.prod(v.shape[3:]))) for v in (a, b))
    return np.asarray(np.einsum("ngap,ngbp->gab", *flat))


def check(cases: list[Case], seed: int, *, weaker: bool = True, **how: Any) -> None:
    """All cases in one module, called with all their sizes; `weaker`: its flags may be."""
    entries = {f"c{i}": c.graph() for i, c in enumerate(cases)}
    exe = li.compile(Program("convolutions", entries), **how)
    if not weaker:
        assert not [n for n in exe.report.notes if "compiled with" in n]
    for i, c in enumerate(cases):
        for batch, sizes in c.calls():
            arrays = c.arrays(np.random.default_rng([seed, i, batch]), batch, sizes)
            got, want = exe.entries[f"c{i}"](arrays), c.expected(**arrays)
            for name, right in want.items():
                near(got[name], right, LIMIT[c.dtype], f"seed {seed}: {c} {(batch, sizes)} {name}")


def check_for(word: str, cases: list[Case], seed: int) -> None:
    """`check` for another level of this machine's processor, if it runs that."""
    if not set(resolve(word).info.features) <= set(resolve("cpu:host").info.features):
        pytest.skip(f"this processor does not run {word}")
    check(cases, seed, target=word)


def near(got: Array, want: Array, limit: float, what: str) -> None:
    """Within `limit` of the largest entry."""
    assert got.shape == want.shape, what
    most = max(1.0, float(np.abs(want).max(initial=0.0)))
    np.testing.assert_allclose(got.astype("f8"), want, rtol=0, atol=limit * most, err_msg=what)


def random_case(r: np.random.Generator, kind: str = "", rank: int = 0, most: int = 64, dtype: str = "f32") -> Case:
    """Any of up to 7 taps on one axis, 4 on each of two; groups of every kind."""

    def pick(*of: Any) -> Any:
        return of[int(r.integers(len(of)))]

    def many(low: int, high: int) -> Ints:
        return tuple(int(n) for n in r.integers(low, high, rank))

    rank = rank or pick(1, 2)
    kind = kind or pick("conv", "conv", "transposed", "max", "avg")
    taps, strides = many(1, 8 if rank == 1 else 5), many(1, 4)
    dilations = (1,) * rank if kind == "avg" else many(1, 4)
    windows = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    spare = many(0, 12)
    case = Case(kind, pick(1, 2, "N"), pick(3, 5), (), taps, 0, strides, (), dilations, dtype=dtype)
    if case.is_pool:  # PyTorch takes no more padding than half a window
        padding = tuple((n, n) for n in (int(r.integers(k // 2 + 1)) for k in taps))
        sizes = tuple(w + n for w, n in zip(windows, spare, strict=True))
        case = replace(case, padding=padding, ceil=bool(r.integers(2)), counted=bool(r.integers(2)))
    else:
        channels = [n for n in (1, 3, 16, 40, 64) if n <= most]
        groups, c, o = 1, pick(*channels), pick(*channels)
        form = pick("plain", "plain", "plain", "groups", "single")
        if form == "groups":
            groups = pick(2, 3)
            c, o = groups * pick(1, 3, 5), groups * pick(1, 2, 7)
        elif form == "single":
            groups, o = c, c * pick(1, 2)
        padding = tuple((int(r.integers(w)), int(r.integers(w))) for w in windows)
        more = tuple(int(r.integers(min(s, high + 1))) for s, (_, high) in zip(strides, padding, strict=True))
        case = replace(case, channels=c, outputs=o, groups=groups, padding=padding, more=more)
        sizes = tuple(w + n for w, n in zip(windows, spare, strict=True))
    if kind == "transposed":
        sizes = tuple(n + w for n, w in zip(sizes, windows, strict=True))
    names = ("H", "W")
    return replace(case, sizes=tuple(pick(n, n, name) for n, name in zip(sizes, names, strict=False)))
