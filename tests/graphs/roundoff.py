"""How far a compiled result may lie from the NumPy meaning: what roundings of every node do to each element.

Layers become loops of primitives first, so that what a gate cancels is seen. That graph is evaluated several
times, each float result (and each term of a sum) moved by some units in its last place, as another order of
sums, another polynomial or a fused multiplication moves it; in a fused one no product overflows, so that inf
less inf may be none. The spread of an element over these runs says how
the graph amplifies roundings there. Integers and booleans that change among the runs lie on a discontinuity,
and are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.interpret import InterpretedBody, bind_attr
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.types import DType
from lstm_ir.passes.pipeline import Pipeline

Array = np.ndarray[Any, Any]
RUNS = 6
MARGIN = 6  # times the largest spread of RUNS: a true spread hides below a sixth of its scale with chance 1e-4
UNIT = {DType.f16: 2.0**-10, DType.bf16: 2.0**-7, DType.f32: 2.0**-23, DType.f64: 2.0**-52}  # in the last place
_NORMAL = {DType.f16: 1e-45, DType.bf16: 1.18e-38, DType.f32: 1.18e-38, DType.f64: 2.23e-308}
LEAST = {DType.f16: 1e-7, DType.bf16: 1e-37, DType.f32: 1e-37, DType.f64: 1e-300}  # what may be flushed to 0

# Units in the last place of f32, and of f64.
_FUNCTIONS = {
    "exponential", "exponential_minus_one", "log", "log_plus_one", "erf", "logistic", "tanh", "sine", "cosine",
    "atan2",
}  # fmt: skip
_OF_A_FUNCTION = {DType.f32: 16, DType.f64: 64}
_ROUNDED = {"add": 1, "subtract": 1, "multiply": 1, "divide": 2, "sqrt": 1, "rsqrt": 4}
_ADDED = {"add", "subtract"}
_WAVES = {"sine", "cosine"}  # NaN from 2^53 on, where neighbours are far apart: docs/core-ops.md
_ABSOLUTE = {"sine", "cosine", "log", "erf"}  # near their zeros, relative to 1
_OF_A_KERNEL = {"stencil", "convolution", "convolution_transpose"}  # sums over the second operand
_SUMS = {"stencil_grad", "reduce_sum", "dot_general", "cumsum", "scatter_add", *_OF_A_KERNEL}


def limits(
    graph: Graph,
    inputs: Mapping[str, Array],
    env: Mapping[str, int],
    want: Mapping[str, Array],
    rng: np.random.Generator,
) -> dict[str, Limit]:
    """For each output, how far its elements may lie from `want`."""
    ordered = [inputs[n] for n in graph.input_names]
    primitive = Pipeline.parse("o0").run(graph).graph
    ways = ((0.0, 1), (1.0, -1), *[(0.5, 0)] * (RUNS - 2))  # all up, all down, any: two moves of one unit may cancel
    runs = [_Noise(rng, env, zeros, to).graph(primitive, ordered) for zeros, to in ways]
    out = {}
    for i, name in enumerate(graph.output_names):
        w = want[name]
        if w.dtype.kind in "iub":
            kept = np.all([r[i] == w for r in runs], axis=0)
            out[name] = Limit(np.zeros(w.shape), kept)
            continue
        dtype, exact = DType.of(w.dtype), w.astype("f8")
        with np.errstate(all="ignore"):
            wide = [r[i].astype("f8") for r in runs]
            same = [
                (np.isfinite(v) & np.isfinite(exact)) | (v == exact) | (np.isnan(v) & np.isnan(exact)) for v in wide
            ]
            spread = np.max([np.where(np.isfinite(exact), np.abs(v - exact), 0) for v in wide], axis=0)
            kept = np.all(same, axis=0) & np.isfinite(spread)
            size = np.where(np.isfinite(exact), np.abs(exact), 0)
            # Where an element is computed, all moves of one may cancel: two units are allowed for each.
            computed = bool((spread > 0).any())
            out[name] = Limit(MARGIN * spread + 2 * UNIT[dtype] * size * computed + LEAST[dtype], kept)
    return out


@dataclass(frozen=True)
class Limit:
    """Per element: the largest difference, and whether it is compared at all."""

    far: Array
    kept: Array

    def worst(self, got: Array, want: Array) -> tuple[Any, ...] | None:
        """The first element that lies too far, with both values; None if none does."""
        if got.dtype != want.dtype or got.shape != want.shape:
            return "type", (got.dtype, got.shape), (want.dtype, want.shape)
        if want.dtype.kind in "iub":
            wrong = got != want
        else:
            a, b = got.astype("f8"), want.astype("f8")
            with np.errstate(all="ignore"):
                far = ~(np.abs(a - b) <= self.far)
            wrong = np.where(np.isfinite(b), far, ~((a == b) | (np.isnan(a) & np.isnan(b))))
        places = np.argwhere(wrong & self.kept)
        if not len(places):
            return None
        at = tuple(int(k) for k in places[0])
        return at, got[at], want[at]


@dataclass(frozen=True)
class _Body(InterpretedBody):
    """The body of a loop with moved roundings."""

    noise: _Noise

    def __call__(self, *arrays: Any) -> list[Array]:
        return self.noise.graph(self.graph, arrays)


class _Noise:
    """One evaluation with moved roundings.

    zeros: the share of zeros whose sign changes. to: 1 or -1 where all moves are up or down.
    """

    def __init__(self, rng: np.random.Generator, env: Mapping[str, int], zeros: float, to: int = 0) -> None:
        self.rng, self.env, self.zeros, self.to = rng, env, zeros, to

    def graph(self, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
        known: dict[Value, Array] = dict(zip(graph.params, arrays, strict=True))
        for n in graph.nodes:
            if n.op.name != "parameter":
                known.update(zip(n.values, self._node(n, known), strict=True))
        return [known[v] for v in graph.outputs]

    def _node(self, n: Node, known: Mapping[Value, Array]) -> list[Array]:
        def operand(v: Value) -> Array:
            return self._moved(known[v], self._terms(n)) if n.op.name in _SUMS and v.dtype.is_float else known[v]

        args = [tuple(map(operand, a)) if isinstance(a, tuple) else None if a is None else operand(a) for a in n.args]
        attrs = {k: self._body(v) if isinstance(v, Graph) else bind_attr(v, self.env) for k, v in n.attrs.items()}
        with np.errstate(all="ignore"):
            out = n.op.numpy(*args, **attrs)
        results = list(out) if isinstance(out, (tuple, list)) else [out]
        return [self._result(n, np.asarray(r, t.dtype.numpy), args) for r, t in zip(results, n.types, strict=True)]

    def _body(self, graph: Graph) -> InterpretedBody:
        return _Body(graph, self.env, self)

    def _terms(self, n: Node) -> float:
        """Units by which each term of a sum moves: a quarter of how many there are."""
        x = n.inputs[n.op.name in (*_OF_A_KERNEL, "stencil_grad")]
        if n.op.name == "stencil_grad":
            return 1 + float(np.prod([bind_attr(x.shape[a], self.env) for a in (0, 3, 4)])) / 4
        axes = n.attrs.get("lhs_contracting_dimensions", n.attrs.get("dimensions", range(x.rank)))
        return 1 + float(np.prod([bind_attr(x.shape[a], self.env) for a in axes])) / 4

    def _result(self, n: Node, a: Array, args: Sequence[Any]) -> Array:
        dtype = DType.of(a.dtype)
        if not dtype.is_float or Trait.data_movement in n.op.traits:
            return a
        name, short = n.op.name, dtype.bits == 16
        if name in _WAVES:
            a = np.where(np.abs(args[0].astype("f8")) <= 2.0**53, a, np.nan).astype(a.dtype)
        if name in _FUNCTIONS:
            return self._moved(a, 1 if short else _OF_A_FUNCTION[dtype], near=1.0 if name in _ABSOLUTE else 0.0)
        if name == "power":
            with np.errstate(all="ignore"):
                grown = np.nan_to_num(np.abs(args[1].astype("f8") * np.log(np.abs(args[0].astype("f8")))), posinf=0.0)
            return self._moved(a, 1 if short else 64 * (1 + grown))
        if name in _SUMS and short:
            terms = [np.abs(x.astype("f8")).max(initial=0) for x in args if x is not None and x.dtype.kind in "fV"]
            return self._moved(a, 1, absolute=UNIT[DType.f32] * self._terms(n) * 4 * float(np.prod(terms)))
        if name in _ADDED and any(map(_is_product, n.inputs)):
            a = self._fused(a, args)
        return self._moved(a, _ROUNDED[name]) if name in _ROUNDED else self._signed(a)

    def _fused(self, a: Array, args: Sequence[Array]) -> Array:
        """Where moves are up or down, a sum of two infinities is one of them: the product may not overflow."""
        opposed = np.isnan(a) & np.isinf(args[0]) & np.isinf(args[1])
        return np.where(opposed, self.to * np.inf, a).astype(a.dtype) if self.to else a

    def _moved(self, a: Array, units: Any, near: float = 0.0, absolute: float = 0.0) -> Array:
        """Each element moved by half to all of so many units; a zero has any sign."""
        dtype = DType.of(a.dtype)
        with np.errstate(all="ignore"):
            wide = a.astype("f8")
            far = units * UNIT[dtype] * np.maximum(np.abs(wide), near) + absolute
            drawn = self.rng.uniform(-1, 1, a.shape)
            step = np.copysign(0.5 + 0.5 * np.abs(drawn), self.to if self.to else drawn)
            out = np.where(np.isfinite(wide), wide + far * step, wide).astype(a.dtype)
        return self._signed(out)

    def _signed(self, a: Array) -> Array:
        """Zeros of another sign; IREE's workers may flush what is below the normal numbers to zero."""
        wide = a.astype("f8")
        flip = (np.abs(wide) < _NORMAL[DType.of(a.dtype)]) & (self.rng.random(a.shape) < self.zeros)
        return np.where(flip, np.copysign(0.0, -wide), wide).astype(a.dtype)


def _is_product(v: Value) -> bool:
    """Whether it is one, by way of moves."""
    moved = Trait.data_movement in v.node.op.traits
    return v.op == "multiply" or (moved and any(map(_is_product, v.node.inputs)))
