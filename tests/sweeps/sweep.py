"""Sweeps: many small graphs as the entries of few modules; what differs is told together, by name.

A case is a graph over inputs of [N, M], where each of the two sizes is a number or a name, with random
arrays, and the NumPy meaning of the graph is what its module must give.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import Any

import numpy as np
import tolerances

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.graph import topological

Array = np.ndarray[Any, Any]
Tolerance = Mapping[tuple[str, str], float]
Fill = Callable[[np.random.Generator, tuple[int, ...]], Array]

FORMS = {"fixed": (), "rows": ("N",), "columns": ("M",), "both": ("N", "M")}  # which sizes are names
OPEN = tuple(f for f in FORMS if f != "fixed")
AT_ONCE = 160  # cases of one module
TOGETHER = 8  # cases of one function


_numbers = count()  # no two inputs of a function have one name


class Inputs:
    """The inputs of one graph, with what fills them; `n` and `m` are its sizes, numbers or names."""

    def __init__(self, form: str, n: int = 5, m: int = 6) -> None:
        self.form, self.sizes = form, {"N": n, "M": m}
        self.n, self.m = (k if k in FORMS[form] else v for k, v in self.sizes.items())
        self.values: dict[str, li.Value] = {}
        self.fills: dict[str, Fill] = {}

    def new(self, dtype: li.DType, shape: Sequence[Any], fill: Fill | None = None) -> li.Value:
        """One more input, of any numbers unless `fill` gives them."""
        name = f"x{next(_numbers)}"
        self.values[name] = li.input(name, tuple(shape), dtype)
        self.fills[name] = (lambda r, s: numbers(r, dtype, s)) if fill is None else fill
        return self.values[name]

    def rows(self, count: Any, of: int, dtype: str = "i32") -> li.Value:
        """Integers that pick rows."""
        kind = li.DType(dtype)
        return self.new(kind, (count,), lambda r, s: r.integers(0, of, s).astype(kind.numpy))

    def arrays(self, rng: np.random.Generator, **sizes: int) -> dict[str, Array]:
        """Arrays for every input at these sizes."""
        known = self.sizes | sizes
        shapes = {name: tuple(dims.evaluate(d, known) for d in v.shape) for name, v in self.values.items()}
        return {name: self.fills[name](rng, shape) for name, shape in shapes.items()}


def numbers(rng: np.random.Generator, dtype: li.DType, shape: tuple[int, ...], tame: bool = False) -> Array:
    """Numbers of both signs and of the upper half of unsigned types; `tame`: for functions such as exp."""
    if dtype is li.DType.i1:
        return np.asarray(rng.random(shape) < 0.6)
    if dtype.is_float:
        return np.asarray(rng.standard_normal(shape) * (1 if tame else 3)).astype(dtype.numpy)
    if tame:
        return rng.integers(-6 if dtype.is_signed else 0, 7, shape).astype(dtype.numpy)
    if dtype.bits == 8:
        return rng.integers(*((-120, 121) if dtype.is_signed else (0, 256)), shape).astype(dtype.numpy)
    small = rng.integers(-100, 101, shape) if dtype.is_signed else rng.integers(0, 101, shape)
    large = {li.DType.i32: 2**30 + 1, li.DType.u32: 2**31, li.DType.i64: 2**33 + 3}[dtype]
    return np.asarray(small + large * (rng.random(shape) < 0.3)).astype(dtype.numpy)


@dataclass(frozen=True)
class Case:
    """What is computed from inputs. `calls`: the sizes that it is called with; `tolerance`: None is none;
    `alone`: in a function of its own.
    """

    name: str
    inputs: Inputs
    outputs: Mapping[str, li.Value]
    tolerance: Tolerance | None = field(default_factory=lambda: tolerances.ONE_OP)
    calls: tuple[Mapping[str, int], ...] = ({},)
    alone: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def ops(self) -> set[str]:
        """The names of all ops in it."""
        return {n.op.name for n in topological(v.node for v in self.outputs.values())}


def case(name: str, inputs: Inputs, outputs: li.Value | Mapping[str, li.Value], **more: Any) -> Case:
    """A case with one output, or several by name."""
    return Case(name, inputs, {"y": outputs} if isinstance(outputs, li.Value) else outputs, **more)


def _same(array: Array, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return array


def given(name: str, graph: li.Graph, arrays: Mapping[str, Array], **more: Any) -> Case:
    """A case of a graph that is there, with its arrays; it stands alone, for the names of its inputs."""
    inputs = Inputs("fixed")
    for p in graph.params:
        key = p.node.attrs["name"]
        inputs.values[key], inputs.fills[key] = p, partial(_same, arrays[key])
        inputs.sizes |= {str(d): n for d, n in zip(p.shape, arrays[key].shape, strict=True) if str(d) in dims.names(d)}
    return case(name, inputs, dict(zip(graph.output_names, graph.outputs, strict=True)), alone=True, **more)


@dataclass(frozen=True)
class Entry:
    """Cases side by side in one function, which costs the compiler a third of a function each."""

    cases: tuple[Case, ...]

    @cached_property
    def graph(self) -> li.Graph:
        """All inputs, and the outputs with the number of their case before them."""
        outputs = {f"c{k}_{name}": v for k, c in enumerate(self.cases) for name, v in c.outputs.items()}
        return li.Graph("sweep", [v for c in self.cases for v in c.inputs.values.values()], outputs)

    def differences(self, run: Any, seed: int) -> Iterator[str]:
        """What differs at which sizes; LstmIrError where a call fails."""
        for sizes in self.cases[0].calls:
            given: dict[str, Array] = {}
            for c in self.cases:
                given |= c.inputs.arrays(np.random.default_rng([seed, zlib.crc32(c.name.encode())]), **sizes)
            with np.errstate(all="ignore"):
                want, got = li.interpret(self.graph, given), run(given)
            for k, c in enumerate(self.cases):
                for name in c.outputs:
                    said = difference(got[f"c{k}_{name}"], want[f"c{k}_{name}"], c.tolerance)
                    if said:
                        yield f"{c.name} {name} {dict(sizes) if sizes else ''}: {said}"


def entries(cases: Iterable[Case], together: int = TOGETHER) -> list[Entry]:
    """Cases of like sizes and calls, so many in each function."""
    alike: dict[Any, list[Case]] = {}
    for c in cases:
        alike.setdefault((str(c.inputs.sizes), str(c.calls), c.name if c.alone else ""), []).append(c)
    return [Entry(tuple(part[k : k + together])) for part in alike.values() for k in range(0, len(part), together)]


def wrong(cases: Sequence[Case], seed: int, **how: Any) -> list[str]:
    """What does not compile, or differs from the NumPy meaning: a line each."""
    return [line for k in range(0, len(cases), AT_ONCE) for line in _wrong(cases[k : k + AT_ONCE], seed, how)]


def held(cases: Sequence[Case], seed: int, **how: Any) -> None:
    """All cases give what they mean."""
    assert cases
    found = wrong(cases, seed, **how)
    assert not found, f"seed {seed}: {len(found)} lines of {len(cases)} cases\n" + "\n".join(found)


def _wrong(cases: Sequence[Case], seed: int, how: Mapping[str, Any]) -> Iterator[str]:
    """Of one module; where it does not compile, of its halves, and of a case alone by weaker flags."""
    parts = entries(cases)
    program = li.Program("sweep", {f"e{k}": e.graph for k, e in enumerate(parts)})
    first = {**how, "options": {"opt_level": "O3", **how.get("options", {})}}  # by these flags or not at all
    try:
        exe = li.compile(program, **(first if len(cases) > 1 else how))
    except li.LstmIrError as e:
        if len(cases) == 1:
            yield f"{cases[0].name}: does not compile: {_reason(e)}"
        else:
            yield from _wrong(cases[: len(cases) // 2], seed, how)
            yield from _wrong(cases[len(cases) // 2 :], seed, how)
        return
    for k, entry in enumerate(parts):
        try:
            yield from entry.differences(exe.entries[f"e{k}"], seed)
        except li.LstmIrError as e:
            if len(entry.cases) == 1:
                yield f"{entry.cases[0].name}: {type(e).__name__}: {_reason(e)}"
            else:
                for c in entry.cases:
                    yield from _wrong([c], seed, how)


def _reason(e: Exception) -> str:
    lines = [line for line in str(e).splitlines() if "error:" in line]
    return " | ".join((lines if lines else str(e).splitlines())[:2])[:300]


def difference(got: Array, want: Array, tolerance: Tolerance | None) -> str:
    """In words where `got` is not `want`; relative to 1, the value or, in sums, the largest value."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if got.dtype.kind in "iub":
        off = got != want
    else:
        a, b = got.astype("f8"), want.astype("f8")
        limit = 0.0 if tolerance is None else tolerance[tolerances.name_of(want), "cpu"]
        scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):  # infinities of one sign, which are the same, and of two, which are not
            off = ~(same | (np.abs(a - b) <= limit * scale))
    if not off.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(off)[0])
    return f"{int(off.sum())} of {off.size} differ; at {place} {got[place]!r}, not {want[place]!r}"
