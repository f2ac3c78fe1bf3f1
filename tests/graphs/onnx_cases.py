"""One ONNX node at a time: a case, the model of it, and the comparison with onnxruntime.

What has a size in capital letters (below) is imported with a named size.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def model_of(case: Case, opset: int, named: bool, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    arrays = arrays_of(case, rng)
    shapes = {n: case.shapes[i] if named else a.shape for i, (n, a) in enumerate(arrays.items())}
    literals = {f"c{i}": a for i, a in enumerate(case.literals)}
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
