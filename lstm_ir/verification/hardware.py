"""Targets tried: a small model compiled for each, run where this machine can, its results beside the meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from lstm_ir import ops
from lstm_ir.api import build, compile
from lstm_ir.backends.targets.targets import resolve
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.interpret import interpret
from lstm_ir.ir.leaf import parameter, weight
from lstm_ir.ir.program import Program
from lstm_ir.ir.types import DType, TensorType, shape_of
from lstm_ir.measurement.differences import largest
from lstm_ir.training.gradient import vjp
from lstm_ir.verification.compare import LIMITS

WORDS = (
    "cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4-vnni", "cpu:x86-64-android", "cpu:aarch64",
    "cpu:aarch64-dotprod", "cpu:aarch64-android", "cpu:aarch64-apple", "cpu:riscv64",
    "vulkan", "cuda:sm_89", "hip:gfx942", "metal",
)  # fmt: skip
"""One of each kind of module."""
T, B, I, H = 5, 3, 6, 7
LIMIT = LIMITS[DType.f32]


@dataclass(frozen=True)
class Trial:
    """What became of a target.

    bytes: of the module, None where it was not compiled. worst: the largest |difference| from the meaning, by 1 + the
    largest |value|; None where it did not run. reason: why it was not compiled, or did not run.
    """

    word: str
    bytes: int | None = None
    worst: float | None = None
    reason: str = ""

    @property
    def right(self) -> bool:
        """Whether it ran, and its results are those of the meaning."""
        return self.worst is not None and self.worst <= LIMIT

    def __str__(self) -> str:
        if self.bytes is None:
            return f"does not compile: {self.reason}"
        made = f"compiles, {self.bytes} bytes"
        if self.worst is None:
            return f"{made}; does not run here: {self.reason}"
        return f"{made}; runs, {'right' if self.right else 'WRONG'}: largest difference {self.worst:.1e}"


@cache
def model() -> Program:
    """An LSTM over rows of unequal lengths, and its gradient; T and B are named."""
    rng = np.random.default_rng(6)
    x = parameter("x", TensorType(shape_of(("T", "B", I)), DType.f32))
    lengths = parameter("lengths", TensorType(shape_of(("B",)), DType.i32))
    w, r = (weight(n, rng.standard_normal((4 * H, k)).astype(np.float32)) for n, k in (("w", I), ("r", H)))
    forward = Graph("trial", [x, lengths], {"y": ops.lstm(x, w, r, lengths=lengths)[0]})
    return Program("trial", {"forward": forward, "backward": vjp(forward, ["y"], ["x", "w", "r"])})


def calls() -> Iterator[tuple[str, Graph, dict[str, Any], dict[str, Any]]]:
    """Entry, graph, arrays, and the results of the meaning."""
    rng = np.random.default_rng(7)
    arrays: dict[str, Any] = {"x": rng.standard_normal((T, B, I)).astype(np.float32)}
    arrays["lengths"] = np.array([T, 0, 2], np.int32)
    slope = {"ct_y": rng.standard_normal((T, B, H)).astype(np.float32)}
    for name, graph in model().entries.items():
        given = {n: a for n, a in {**arrays, **slope}.items() if n in graph.input_names}
        yield name, graph, given, interpret(graph, given)


def difference(got: dict[str, Any], want: dict[str, Any]) -> float:
    """The largest |difference|, by 1 + the largest |value| of its output; infinity where a result is NaN."""
    return largest(float(np.abs(got[n] - w).max() / (1 + np.abs(w).max())) for n, w in want.items())


def trial(word: str) -> Trial:
    """One target, compiled and run."""
    try:
        with compile(model(), word) as exe:
            size = exe.report.module_bytes
            worst = largest(difference(exe.entries[name](given), want) for name, _, given, want in calls())
        return Trial(word, size, worst)
    except LstmIrError as e:
        reason = _line(e)
    try:
        _, blob = build(model(), resolve(word))
    except LstmIrError as e:
        return Trial(word, reason=_line(e))
    return Trial(word, len(blob), reason=reason)


def trials(words: Sequence[str] = WORDS) -> Iterator[Trial]:
    """Each target in turn."""
    return map(trial, words)


def _line(e: LstmIrError) -> str:
    return (str(e).splitlines() or [type(e).__name__])[0]
