"""One ONNX node at a time: a case, the model of it, and the comparison with onnxruntime.

What has a size in capital letters (below) is imported with a named size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_models as om

import lstm_ir as li

SIZES = {"K": 8, "T": 6, "B": 3, "C": 4, "I": 5}
Shape = tuple["int | str", ...]


@dataclass(frozen=True)
class Case:
    """One node over random inputs of f32 and literals of any type."""

    op: str
    shapes: tuple[Shape, ...]
    literals: tuple[Any, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opsets: tuple[int, ...] = (22,)
    outputs: int = 1
    positive: bool = False

    def __str__(self) -> str:
        return f"{self.op}-{','.join(map(str, self.attrs.values()))}-{len(self.literals)}"


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def arrays_of(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    """Inputs, of which none is near the middle between two integers."""
    found = {}
    for i, shape in enumerate(case.shapes):
        size = tuple(SIZES[d] if isinstance(d, str) else d for d in shape)
        a = rng.normal(size=size).astype(np.float32)
        found[f"x{i}"] = np.abs(a) + np.float32(0.1) if case.positive else a
    return found


def model_of(
    case: Case, opset: int, named: bool, rng: np.random.Generator, prefix: str = "c"
) -> tuple[Any, dict[str, Any]]:
    """A model and its arrays; literals are called by the prefix."""
    arrays = arrays_of(case, rng)
    shapes = {n: case.shapes[i] if named else a.shape for i, (n, a) in enumerate(arrays.items())}
    literals = {f"{prefix}{i}": a for i, a in enumerate(case.literals)}
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = om.node(case.op, [*arrays, *literals], outputs, **case.attrs)
    infos = {n: (shapes[n], np.float32) for n in arrays}
    return om.model([node], infos, outputs, literals, opset), arrays


def compare(case: Case, opset: int, rng: np.random.Generator) -> None:
    for named in (False, True):
        made, arrays = model_of(case, opset, named, rng)
        want = om.run(made, arrays)
        got = li.interpret(li.from_onnx(made), arrays)
        for a, b in zip(got.values(), want, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, atol=4e-6, rtol=4e-6, err_msg=f"{case} at opset {opset}, named: {named}")


GROUP = 16  # cases in a module: most of the time of compiling is a module's own


def compare_compiled(cases: Sequence[Case], target: str, rng: np.random.Generator) -> None:
    """Cases as the entries of one module, each with named sizes and with numbers, beside onnxruntime."""
    entries, given, wants = {}, {}, {}
    for i, case in enumerate(cases):
        for named in (False, True):
            made, arrays = model_of(case, case.opsets[-1], named, rng, f"c{i}_{named:d}_")
            name = f"{i} {case} named {named}"
            entries[name], given[name], wants[name] = li.from_onnx(made), arrays, om.run(made, arrays)
    with li.compile(li.Program("ops", entries), target) as exe:
        for name, want in wants.items():
            got = exe.entries[name](given[name])
            for a, b in zip(got.values(), want, strict=True):
                assert a.dtype == b.dtype
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, atol=2e-5, rtol=2e-5, err_msg=f"{name} on {target}")
