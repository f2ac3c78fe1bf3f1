"""Random legal graphs over the public ops: values of any type grow from inputs, step by step.

`Growth` holds what exists so far. Steps register themselves in STEPS, by the op that they make: those of
`growth_steps.py`, `growth_layers.py` and `growth_foreign.py`. A step takes the graph so far and gives new
values, or nothing where it has no use for what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DType, Shape, TensorType, shape_of

Array = np.ndarray[Any, Any]
X = TypeVar("X")

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i32", "i64", "u8", "u32", "i8")
KINDS = (*FLOATS, *INTS, "i1")
_OFTEN = np.array([6, 3, 2, 2, 3, 2, 2, 2, 1, 2]) / 25
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 17)
WHOLE_VECTORS = (0, 1, 2, 3, 4, 8, 12, 16, 20, 68)  # most are: GPUs read and write such rows in vectors
NAMES = ("N", "M", "K")
MOST = 3000  # elements of a value


class Growth:
    """Values so far, the graph's inputs among them, and what is drawn for the next one.

    env: what the names of sizes are at one call; shapes that are legal there alone are not made.
    ranges: bounds of integer inputs. kinds: dtypes. literals: how many of ten leaves of known size are
    weights and constants; what is computed from constants the compiler computes, which takes it as long
    as all else. slopes: the graph is held to differences, so that slopes are exact, not those of a clip
    that TensorFlow takes straight through. sizes: ten, of which 0 is rare.
    """

    def __init__(
        self, rng: np.random.Generator, named: bool, name: str, kinds: Sequence[str] = KINDS, *,
        literals: int = 2, slopes: bool = False, sizes: Sequence[int] = SIZES,
    ) -> None:  # fmt: skip
        self.rng, self.named, self.name, self.kinds = rng, named, name, tuple(kinds)
        self.literals, self.slopes, self.sizes = literals, slopes, tuple(sizes)
        self.env = {n: int(rng.choice([2, 3, 4, 5, 9])) for n in NAMES}
        self.pool: list[li.Value] = []
        self.inputs: list[li.Value] = []
        self.ranges: dict[str, tuple[Dim, Dim]] = {}
        self.weights: list[li.Value] = []
        self.depth = 0  # of loops
        self.named_outputs = 0  # of slopes on the way

    # -- drawing

    def chance(self, p: float = 0.5) -> bool:
        """True with probability p."""
        return bool(self.rng.random() < p)

    def among(self, choices: Sequence[X]) -> X:
        """One of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def whole(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def kind(self, of: str = "fib") -> str:
        """A dtype's name: of floats, integers, booleans."""
        share = np.array([w * (k in self.kinds and _sort(DType(k)) in of) for k, w in zip(KINDS, _OFTEN, strict=True)])
        if not share.any():
            return {"f": "f32", "i": "i32", "b": "i1"}[of[0]]
        return str(self.rng.choice(np.array(KINDS), p=share / share.sum()))

    def float(self, wide: Sequence[str] = ("f32", "f32", "f64")) -> DType:
        """A dtype of what has floats alone."""
        found = [k for k in wide if k in self.kinds]
        return DType(self.among(found) if found else "f32")

    def size(self) -> Dim:
        """A size of an axis."""
        if self.named and self.chance(0.6):
            name = dims.name(self.among(NAMES))
            return name if self.chance(0.85) else dims.add(dims.mul(name, self.whole(1, 2)), self.whole(0, 2))
        return int(self.rng.choice(np.array(self.sizes), p=[0.04, 0.14, *[0.82 / 8] * 8]))

    def shape(self, low: int = 0, high: int = 3) -> Shape:
        """A shape of low to high axes."""
        while True:
            made = tuple(self.size() for _ in range(self.whole(low, high)))
            if self.fits(made):
                return made

    def at(self, d: Dim) -> int:
        """The size at the call that `env` describes."""
        return dims.evaluate(d, self.env)

    def fits(self, shape: Shape) -> bool:
        """Whether a value of this shape is small enough, and no size is below 0."""
        sizes = [self.at(d) for d in shape]
        return int(np.prod([max(s, 1) for s in sizes])) <= MOST and all(s >= 0 for s in sizes)

    # -- values

    def leaf(self, t: TensorType) -> li.Value:
        """An input of this type, a weight, or a constant."""
        if t.is_static and not self.depth and self.chance(self.literals / 10):
            return self.literal(t)
        return self.input(t)

    def literal(self, t: TensorType) -> li.Value:
        """A constant or, of floats, a weight."""
        a = numbers(self.rng, t.dtype, shape_of(t.shape))
        if t.dtype.is_float and self.chance():
            return self.weight(a)
        return li.constant(a)

    def weight(self, a: Array) -> li.Value:
        """A new weight."""
        self.weights.append(li.weight(f"{self.name}.w{len(self.weights)}", a))
        return self.weights[-1]

    def inside(self) -> Growth:
        """For the body of a loop: its own values, and what is outside by the same names."""
        inner = Growth(self.rng, self.named, self.name, self.kinds, literals=self.literals, slopes=self.slopes)
        inner.env, inner.inputs, inner.ranges, inner.weights = self.env, self.inputs, self.ranges, self.weights
        inner.depth = self.depth + 1
        return inner

    def input(self, t: TensorType) -> li.Value:
        """A new input."""
        v = li.parameter(f"x{len(self.inputs)}", t)
        self.inputs.append(v)
        return v

    def bind_names(self) -> None:
        """An input more where a name of a size is that of no input's axis: a call could not tell it."""
        told = {d for v in self.inputs for d in v.shape}
        missing = [d for d in map(dims.name, NAMES) if d not in told]
        if self.named and missing:
            self.input(TensorType(tuple(missing), DType.u8))

    def indices(self, shape: Shape, low: Dim, high: Dim, dtype: str = "i32") -> li.Value:
        """An input of integers in [low, high]."""
        v = self.input(TensorType(shape, DType(dtype)))
        self.ranges[v.node.attrs["name"]] = low, high
        return v

    def pick(self, of: str = "fib", fit: Callable[[li.Value], bool] = lambda v: True) -> li.Value:
        """A value of these sorts, new if there is none."""
        found = [v for v in self.pool if _sort(v.dtype) in of and fit(v)]
        if found and self.chance(0.9):
            # the latest are taken more often: graphs become deep
            share = np.arange(1.0, len(found) + 1)
            return found[int(self.rng.choice(len(found), p=share / share.sum()))]
        while True:
            v = li.parameter("probe", TensorType(self.shape(), DType(self.kind(of))))
            if fit(v):
                return self.leaf(v.type)

    def like(self, t: TensorType) -> li.Value:
        """A value of exactly this type."""
        found = [v for v in self.pool if v.type == t]
        return self.among(found) if found and self.chance(0.8) else self.leaf(t)

    def beside(self, v: li.Value) -> li.Value:
        """A value that broadcasts with v, of its dtype."""
        form = self.whole(0, 5)
        if form == 0:
            return li.constant(numbers(self.rng, v.dtype, ()))
        if form == 1 and v.rank:
            kept = tuple(1 if self.chance(0.4) else d for d in v.shape)
            return self.like(v.type.with_shape(kept[self.whole(0, v.rank) :]))
        return self.like(v.type)

    def axis(self, v: li.Value) -> int:
        """One of the axes."""
        return self.whole(0, v.rank - 1)

    def arrays(self, env: dict[str, int]) -> dict[str, Array]:
        """Numbers for the inputs, where sizes are those of `env`."""
        out = {}
        for v in self.inputs:
            name, shape = v.node.attrs["name"], tuple(dims.evaluate(d, env) for d in v.shape)
            if name in self.ranges:
                low, high = (dims.evaluate(d, env) for d in self.ranges[name])
                out[name] = self.rng.integers(low, max(low, high) + 1, shape).astype(v.dtype.numpy)
            else:
                out[name] = numbers(self.rng, v.dtype, shape)
        return out


def _sort(dtype: DType) -> str:
    return "f" if dtype.is_float else "b" if dtype is DType.i1 else "i"


def numbers(rng: np.random.Generator, dtype: DType, shape: Sequence[Any]) -> Array:
    """Elements of moderate size, with equal ones, zeros and, of integers, extremes among them."""
    if dtype is DType.i1:
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if dtype.is_float:
        form = rng.integers(4)
        a = rng.integers(-3, 4, shape) / 2 if form == 0 else rng.normal(0, [1, 2, 0.1][form - 1], shape)
        return np.asarray(np.asarray(a).astype(dtype.numpy))
    info = np.iinfo(dtype.numpy)
    low, high = (info.min, info.max) if rng.random() < 0.2 else (max(info.min, -6), min(info.max, 9))
    return np.asarray(
        rng.integers(low, high, shape, endpoint=True, dtype=np.uint64 if low >= 0 else np.int64).astype(dtype.numpy)
    )


Grown = li.Value | tuple[li.Value, ...] | None
Step = Callable[[Growth], Grown]
STEPS: dict[str, Step] = {}


def step(*ops: str) -> Callable[[Step], Step]:
    """Register a step under the ops that it makes."""

    def put(made: Step) -> Step:
        STEPS.update(dict.fromkeys(ops, made))
        return made

    return put
