"""Cases of builders: what is built, and the same by PyTorch in double precision, for values and gradients."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sample import FLOATS, Array, dtype

import lstm_ir as li

KINKS = (0.0, -0.0, 3.0, -3.0, 1.0, -1.0, 2.0, -2.0)  # among the elements, where there is room
SPECIAL = (np.nan, np.inf, -np.inf, 1e4, -1e4, 0.0, -0.0, 30.0, -30.0, 88.0, -88.0)


@dataclass(frozen=True)
class Case:
    """`build` over values of `shapes` and then over `more`, integers or booleans; `oracle(torch, *tensors)`.

    `kinds` are the dtypes, `kind` a row of the samples' tolerances, `numbers` sizes that never have a name.
    """

    name: str
    build: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    oracle: Callable[..., Any]
    kinds: Sequence[str] = FLOATS
    more: Sequence[Array] = ()
    kind: str = "summed"
    smooth: bool = True
    low: float = -4.0
    high: float = 4.0
    special: bool = False
    numbers: Sequence[int] = ()

    def __repr__(self) -> str:
        return self.name

    def arrays(self, kind: str, seed: int = 0) -> list[Array]:
        """Random arrays with kinks among them."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        out = []
        for shape in self.shapes:
            a: Array
            if kind == "i1":
                a = rng.random(shape) < 0.5
            elif kind[0] in "iu":
                a = rng.integers(0 if kind[0] == "u" else -5, 6, shape)
            else:
                a = rng.uniform(self.low, self.high, shape)
                flat = a.reshape(-1)
                kinks = [k for k in KINKS if self.low <= k <= self.high]
                if self.kind == "rounded" and flat.size > 2 * len(kinks):
                    flat[: len(kinks)] = kinks
            out.append(a.astype(dtype(kind)))
        return [*out, *self.more]

    def graph(self, kind: str, named: bool, letter: str = "") -> li.Graph:
        """Outputs y0, y1, ... over x0, x1, ...; with `named` every size is a name."""
        given = [(s, kind) for s in self.shapes] + [(a.shape, li.DType.of(a.dtype)) for a in self.more]
        ins = [
            li.input(f"{letter}x{i}", tuple(f"S{n}" if named and n not in (1, *self.numbers) else n for n in s), k)
            for i, (s, k) in enumerate(given)
        ]
        outs = self.build(*ins)
        outs = tuple(outs) if isinstance(outs, (tuple, list)) else (outs,)
        name = re.sub(r"\W", "_", self.name)
        return li.Graph(f"{name}_{kind}", ins, {f"{letter}y{i}": v for i, v in enumerate(outs)})

    def differentiated(self, kind: str, named: bool) -> li.Graph:
        """The same with gradients of its floats."""
        g = self.graph(kind, named)
        of = [n for n, v in zip(g.output_names, g.outputs, strict=True) if v.dtype.is_float]
        whole = li.vjp(g, of, [f"x{i}" for i in range(len(self.shapes))])
        kept = {n: v for n, v in zip(g.output_names, g.outputs, strict=True) if n not in of}
        return li.Graph(whole.name, whole.params, dict(zip(whole.output_names, whole.outputs, strict=True)) | kept)

    def cotangents(self, g: li.Graph, want: dict[str, Array], kind: str) -> dict[str, Array]:
        """Random ones for every ct_ input."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()) + 1)
        names = [n for n in g.input_names if n.startswith("ct_")]
        return {n: np.asarray(rng.uniform(-1, 1, want[n[3:]].shape)).astype(dtype(kind)) for n in names}

    def expected(self, arrays: Sequence[Array], cts: Sequence[Array] | None = None) -> tuple[list[Any], list[Any]]:
        """Values, and gradients of what has a shape here, by PyTorch in f64."""
        import torch

        tensors = []
        for i, a in enumerate(arrays):
            t = torch.tensor(a if a.dtype.kind == "b" else a.astype("f8" if a.dtype.kind in "fV" else "i8"))
            tensors.append(t.requires_grad_(t.is_floating_point() and i < len(self.shapes)))
        outs = self.oracle(torch, *tensors)
        outs = list(outs) if isinstance(outs, (tuple, list)) else [outs]
        values = [o.detach().numpy() for o in outs]
        if cts is None:
            return values, []
        floats = [o for o in outs if o.is_floating_point()]
        wrt = [t for t in tensors if t.requires_grad]
        seeds = [torch.tensor(c.astype("f8")) for c in cts]
        found = torch.autograd.grad(floats, wrt, seeds, allow_unused=True)
        return values, [np.zeros(t.shape) if d is None else d.detach().numpy() for d, t in zip(found, wrt, strict=True)]
