"""Kernels against the interpreter: how far apart they may be, and processors of narrow vectors."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import lstm_ir as li

# f32: a few hundred roundings of numbers near 1, each feeding the next step; f64: the same.
TOLERANCE = {"f32": 2e-5, "f64": 1e-11}


def processor(word: str) -> str:
    """Narrower vectors than this machine's, where it is an x86-64; `cpu` elsewhere."""
    return word if platform.machine().lower() in ("x86_64", "amd64") else "cpu"


# Each set of bodies has another width; `pytest --cpu WORD` runs all of them at one.
BASELINE, AVX2 = processor("cpu:x86-64"), processor("cpu:x86-64-v3")


def compare(exe: Any, graph: li.Graph, arrays: dict[str, Any], tolerance: float) -> None:
    want = li.interpret(graph, arrays)
    got = exe.entries[graph.name](arrays)
    for k, w in want.items():
        assert got[k].dtype == w.dtype
        np.testing.assert_allclose(got[k], w, rtol=tolerance, atol=tolerance, err_msg=f"{graph.name} {k}")
