"""Sample graphs per op: inputs, and results from an expression that is not the op's own meaning.

`samples("tanh")` and `bad("tanh")`; `@of("tanh")` and `bad_of("tanh", ...)` register more.
Random inputs are seeded by the sample's name.
"""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import lstm_ir as li

Array = np.ndarray[Any, Any]
Maker = Callable[[], Iterable["Sample"]]
Bad = tuple[Callable[[], object], str]

FLOATS = ("f16", "bf16", "f32", "f64")
INTS = ("i8", "u8", "i32", "u32", "i64")
FAMILIES = (
    "samples_elementwise", "samples_choice", "samples_shape", "samples_window", "samples_product",
    "samples_convolution", "samples_reduce", "samples_gather", "samples_loop", "samples_recurrent", "samples_variants",
)  # fmt: skip

# Relative to 1 or the value, for results computed in float64 from the same inputs. "rounded": one
# rounding of the result (half an ulp: 2^-11, 2^-8, 2^-24, 2^-53) and a library function's few ulps;
# two-byte types round once from float32. "summed": up to 64 terms, each rounding in turn.
# "layer": a recurrence, whose every step feeds on the roundings before it.
TOLERANCE: dict[str, dict[str, float]] = {
    "exact": {"f16": 0, "bf16": 0, "f32": 0, "f64": 0},
    "rounded": {"f16": 6e-4, "bf16": 5e-3, "f32": 1e-6, "f64": 1e-14},
    "summed": {"f16": 6e-4, "bf16": 5e-3, "f32": 4e-6, "f64": 1e-13},
    "layer": {"f16": 1e-3, "bf16": 8e-3, "f32": 2e-5, "f64": 1e-11},
}


@dataclass(frozen=True)
class Sample:
    """One graph with inputs and expected outputs; `smooth`: differentiable at these inputs."""

    name: str
    graph: li.Graph
    inputs: dict[str, Array]
    expected: dict[str, Array] | None
    kind: str = "rounded"
    smooth: bool = True

    def __repr__(self) -> str:
        return self.name


MAKERS: dict[str, list[Maker]] = {}
BAD: dict[str, list[Bad]] = {}


def of(*ops: str) -> Callable[[Maker], Maker]:
    """Register a function that gives samples for these ops."""

    def register(maker: Maker) -> Maker:
        for op in ops:
            MAKERS.setdefault(op, []).append(maker)
        return maker

    return register


def bad_of(op: str, *cases: Bad) -> None:
    """Register calls that must be refused, each with a pattern for the first line."""
    BAD.setdefault(op, []).extend(cases)


@cache
def _families() -> None:
    for name in FAMILIES:
        importlib.import_module(name)


@cache
def samples(op: str) -> tuple[Sample, ...]:
    """All samples of one op."""
    _families()
    return tuple(s for maker in MAKERS.get(op, []) for s in maker())


def bad(op: str) -> tuple[Bad, ...]:
    """All refused calls of one op."""
    _families()
    return tuple(BAD.get(op, ()))


def dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype for the name of an element type."""
    named = {"bf16": ml_dtypes.bfloat16, "i1": np.bool_}
    long = {"u": "uint", "i": "int", "f": "float", "b": ""}[name[0]] + name[1:]
    found: np.dtype[Any] = np.dtype(named.get(name, long))
    return found


def rng(name: str) -> np.random.Generator:
    """The generator of one sample."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def data(name: str, kind: str, shape: Sequence[int], low: float = -2, high: float = 2) -> Array:
    """Floats in [low, high); integers in -5..5 (0..10); booleans."""
    r = rng(f"{name} {kind} {tuple(shape)} {low}")
    if kind == "i1":
        return r.integers(0, 2, shape).astype(bool)
    if kind[0] in "iu":
        return r.integers(0 if kind[0] == "u" else -5, 11 if kind[0] == "u" else 6, shape).astype(dtype(kind))
    return r.uniform(low, high, shape).astype(dtype(kind))


def bound(*sizes: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """Values for named sizes, each in f32 and in f64: (dtype, *sizes)."""
    for k in ("f32", "f64"):
        for s in sizes:
            yield (k, *s)


def exact(a: Array) -> Array:
    """Floats as float64, everything else as it is."""
    return a if a.dtype.kind in "iub" else a.astype(np.float64)


def case(
    name: str,
    build: Callable[..., Any],
    arrays: Sequence[Array],
    oracle: Callable[..., Any],
    *,
    shapes: Sequence[tuple[int | str, ...] | None] = (),
    kind: str = "rounded",
    smooth: bool = True,
) -> Sample:
    """A sample: `build` over inputs x0, x1, ... gives y0, y1, ...; so does `oracle` over arrays."""
    given = [*shapes, *[None] * (len(arrays) - len(shapes))]
    ins = [
        li.input(f"x{i}", a.shape if s is None else s, li.DType.of(a.dtype))
        for i, (a, s) in enumerate(zip(arrays, given, strict=True))
    ]
    outs = build(*ins)
    outs = outs if isinstance(outs, tuple) else (outs,)
    graph = li.Graph(re.sub(r"\W", "_", name), ins, {f"y{i}": v for i, v in enumerate(outs)})
    with np.errstate(all="ignore"):
        want = oracle(*map(exact, arrays))
    want = want if isinstance(want, tuple) else (want,)
    assert len(want) == len(outs), name
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    return Sample(name, graph, inputs, {f"y{i}": np.asarray(w) for i, w in enumerate(want)}, kind, smooth)


def assert_close(got: Array, want: Array, dtype_name: str, kind: str, what: str) -> None:
    """Equal for integers and booleans, within TOLERANCE[kind] for floats."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    tol = TOLERANCE[kind][dtype_name]
    with np.errstate(over="ignore"):  # a value beyond the type's range is its infinity
        reference = want.astype(got.dtype).astype(np.float64)
        reference = np.where(np.isinf(reference), reference, want)
    np.testing.assert_allclose(got.astype(np.float64), reference, rtol=tol, atol=tol, err_msg=what)
