"""The machine that figures are taken on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak(size: int = 2048) -> float:
    """GFLOP/s of a large f32 product by NumPy's BLAS."""
    a = np.random.default_rng(0).standard_normal((size, size), np.float32)
    best = min(_seconds(a) for _ in range(7))
    return 2 * size**3 / best / 1e9


def _seconds(a: np.ndarray[Any, Any]) -> float:
    start = time.perf_counter()
    a @ a
    return time.perf_counter() - start


def product_peak(threads: int) -> float:
    """`peak` with so many threads, in a process of its own: a BLAS asks for its threads when it is loaded."""
    of_blas = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))
    command = [sys.executable, "-c", "from lstm_ir.measurement.machine import peak; print(peak())"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **of_blas})
    return float(done.stdout)


def machine() -> str:
    """The processor's name and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        names = [text.partition(":")[2].strip() for text in lines if text.startswith("model name")]
        name = names[0] if names else name
    return f"{name}, {cores()} cores, {platform.system()}"
