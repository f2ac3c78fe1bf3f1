"""How far results are from those that are wanted, and how far they may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.ir.signature import Port
from lstm_ir.ir.types import DType
from lstm_ir.verification.result import OutputDifference

Array = np.ndarray[Any, Any]
# |ours - original| <= limit * (1 + largest |original|), by dtype; integers and booleans are equal. Each is some hundred
# roundings of the dtype: both sides add the same products in other orders, step after step.
LIMITS = {DType.f64: 1e-10, DType.f32: 2e-5, DType.f16: 1e-2, DType.bf16: 1e-1}


@dataclass(frozen=True)
class Tolerance:
    """absolute + relative * largest |original|; None is as usual for the dtype."""

    absolute: float | None = None
    relative: float | None = None

    def of(self, dtype: DType, largest: float) -> float:
        """The largest difference that passes."""
        usual = LIMITS.get(dtype, 0.0)
        absolute = usual if self.absolute is None else self.absolute
        relative = usual if self.relative is None else self.relative
        return absolute + relative * largest if dtype.is_float else 0.0


@dataclass(frozen=True)
class Difference:
    """One output of one call."""

    absolute: float
    relative: float
    ok: bool


def difference(port: Port, got: Any, want: Any, limits: Tolerance) -> Difference | str:
    """How far `got` is from `want`; a sentence where they are no arrays of one type and shape."""
    a, b = np.asarray(got), np.asarray(want)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{port.name} is {a.dtype}{list(a.shape)}, the original gives {b.dtype}{list(b.shape)}"
    if not a.size:
        return Difference(0.0, 0.0, True)
    x, y = (v.astype(np.float64) for v in (a, b))
    if port.type.dtype.is_float:
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.abs(x - y))
    else:  # two i64 beyond 2^53 may be one f64
        apart = np.where(a == b, 0.0, np.maximum(np.abs(x - y), 1.0))
    absolute = float("inf") if np.isnan(apart).any() else float(apart.max())
    finite = np.abs(y[np.isfinite(y)])
    largest = float(finite.max(initial=0.0))
    relative = absolute / largest if largest else (0.0 if absolute == 0 else float("inf"))
    ok = math.isfinite(absolute) and absolute <= limits.of(port.type.dtype, largest)
    return Difference(absolute, relative, ok)


def worst(port: Port, differences: Sequence[tuple[Mapping[str, int], Difference]]) -> OutputDifference:
    """All calls of one output as one line."""
    at, _ = max(differences, key=lambda pair: (not pair[1].ok, pair[1].absolute))
    return OutputDifference(
        port.name,
        str(port.type),
        max(d.absolute for _, d in differences),
        max(d.relative for _, d in differences),
        dict(at),
        all(d.ok for _, d in differences),
    )
