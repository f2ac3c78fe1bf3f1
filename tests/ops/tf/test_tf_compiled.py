"""The block ops compiled, sizes open: every op against its meaning, dead operands NaN."""

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tf_cases as tf
from device import need

import lstm_ir as li

pytestmark = pytest.mark.slow_on("vulkan")
KINDS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
SIZES = ((11, 3, 5, 6), (1, 1, 1, 1), (4, 2, 3, 0), (0, 2, 5, 0))  # T, B, I, seq_len_max
CPU = [("f32", 7), ("f32", 64), ("f64", 7), ("f16", 8), ("bf16", 8)]


def entries(kind: str, units: int) -> dict[str, tuple[str, bool, li.Graph]]:
    """Every op, with peepholes and without, over named T, B and I."""
    out = {}
    for op in tf.OPS:
        for use_peephole in (False, True):
            if use_peephole and "GRU" in op:
                continue
            name = f"{op.removeprefix('tf.')}_{'peephole' if use_peephole else 'plain'}"
            arrays = tf.operands(np.random.default_rng(0), op, (1, 1, 1, units), KINDS[kind])
            named = tf.shapes(op, "T", "B", "I", units)
            g = tf.graph(op, arrays, tf.required(op, use_peephole), named, name)
            out[name] = (op, use_peephole, g)
    return out


@cache
def compiled(target: str, kind: str, units: int) -> Any:
    """One program of all entries."""
    graphs = {n: g for n, (_, _, g) in entries(kind, units).items()}
    return li.compile(li.Program(f"tf_{kind}", graphs), target)


def poisoned(op: str, a: dict[str, Any], use_peephole: bool) -> dict[str, Any]:
    """NaN in what is never read."""
    out = {n: v.copy() for n, v in a.items()}
    dead = list(tf.DEAD.get(op, ()))
    if not use_peephole:
        dead += [n for n in tf.VECTORS if n in a]
    for n in dead:
        out[n][...] = np.nan
    for n, v in out.items():
        if v.ndim == 3:
            v[int(a["seq_len_max"]) :] = np.nan
            if n == "h" and op in tf.GRADS:
                v[max(int(a["seq_len_max"]) - 1, 0) :] = np.nan
    return out


def run(target: str, kind: str, units: int, rng: np.random.Generator) -> None:
    exe = compiled(target, kind, units)
    tolerance = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5, "f64": 1e-11}[kind]  # two roundings
    for name, (op, use_peephole, g) in entries(kind, units).items():
        for T, B, I, length in SIZES:
            a = tf.operands(rng, op, (T, B, I, units), KINDS[kind], length, 0.5)
            want = li.interpret(g, a)
            got = exe.entries[name](poisoned(op, a, use_peephole))
            for k, w in want.items():
                scale = max(1.0, float(np.abs(w.astype(np.float64)).max(initial=0)))
                close = ({k: got[k].astype(np.float64) / scale}, {k: w.astype(np.float64) / scale})
                tf.close(*close, tolerance, (name, T, B, I, length))


@pytest.mark.slow_cases(kind=["f64", "f16", "bf16"])
@pytest.mark.slow_cases(units=[64])
@pytest.mark.parametrize(("kind", "units"), CPU)
def test_cpu(kind: str, units: int, rng: np.random.Generator) -> None:
    run("cpu", kind, units, rng)


@pytest.mark.vulkan
@pytest.mark.parametrize(("kind", "units"), [("f32", 7), ("f16", 8)])
def test_vulkan(kind: str, units: int, rng: np.random.Generator) -> None:
    need("vulkan")
    run("vulkan", kind, units, rng)
