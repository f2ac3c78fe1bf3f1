"""Several runs as one, the peak, and peers held to a processor level."""

import os

import numpy as np
import pytest

from lstm_ir.bench import fma_peak, levels, report
from lstm_ir.bench.runs import joined
from lstm_ir.measurement.machine import product_peak

WAYS = ("names", "numbers", "package")


def _run(ms: float, ratio: float, slower: bool) -> dict[str, object]:
    return {
        "point": "a", "training": False, "group": "inference", "median_ms": {**dict.fromkeys(WAYS, ms), "torch": 2.0},
        "spread_ms": dict.fromkeys(WAYS, 0.1), "best": "torch", "ratio": dict.fromkeys(WAYS, ratio),
        "interval": {w: [0.9 * ratio, 1.1 * ratio] for w in WAYS}, "slower": dict.fromkeys(WAYS, slower),
        "gflops": dict.fromkeys(WAYS, 10.0 / ms), "errors": {"torch": 1e-7 * ms}, "missing": {}, "memory_mib": {},
        "compile_seconds": {"names": ms},
    }  # fmt: skip


def test_figures_are_medians_over_the_runs_and_their_spread() -> None:
    runs = [_run(ms, ratio, slower) for ms, ratio, slower in ((1.0, 2.0, False), (4.0, 0.5, True), (2.0, 1.0, True))]
    all_runs = joined(runs)
    assert all_runs["median_ms"]["names"] == 2.0
    assert all_runs["range_ms"]["names"] == [1.0, 4.0]
    assert all_runs["ratio"]["package"] == 1.0
    assert all_runs["interval"]["package"] == [0.5, 2.0]
    assert (all_runs["slower"]["numbers"], all_runs["slower_runs"]["numbers"]) == (True, 2)
    assert all_runs["errors"] == {"torch": 4e-7}
    assert all_runs["compile_seconds"] == {"names": 1.0}
    assert all_runs["runs"] == runs
    head, _, row = report.table([all_runs], 10.0).splitlines()
    assert "ratio of names (least and greatest of 3 runs)" in head
    assert row.startswith("| a | 2 (±75%) | 2 (±75%) | 2 (±75%) | 2 (±0%) | - | - | 1.00 (0.50-2.00) slower |")


def test_one_run_stays_as_it_is() -> None:
    run = _run(1.0, 2.0, False)
    assert {**joined([run]), "runs": None} == {**run, "runs": None}


def test_the_peak_kernel_computes_what_it_counts() -> None:
    run, lanes = fma_peak.kernel("cpu")
    got = run(np.zeros(3, np.int8)).to_host()
    chain = np.arange(fma_peak.CHAINS, dtype=np.float64)
    for _ in range(fma_peak.INNER * fma_peak.OUTER):
        chain = chain * fma_peak.SCALE + fma_peak.SHIFT
        if np.ptp(chain) == 0:
            break
    assert got.shape == (3, lanes)
    np.testing.assert_array_equal(got, np.full((3, lanes), chain.sum(), np.float32))
    assert fma_peak.operations(3, lanes) == 2 * 3 * lanes * 12 * 64 * 1024
    assert fma_peak.text(lanes).count("vector.fma") == 12 * 64


def test_peaks_are_of_a_processor() -> None:
    for found in (fma_peak.gflops("cpu", 1), product_peak(1)):
        assert 0.5 < found < 2000


def test_peers_are_held_to_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in levels.VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is as before at the end
        monkeypatch.delenv(name)
    assert levels.hold("cpu", None) == ""
    assert "XLA_FLAGS" not in os.environ
    assert "onnxruntime" in levels.hold("cpu:x86-64-v3", 1)
    assert os.environ["ATEN_CPU_CAPABILITY"] == "avx2"
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_max_isa=AVX2 --xla_cpu_multi_thread_eigen=false"


@pytest.mark.parametrize(("target", "level"), [
    ("cpu:x86-64-v4", None), ("cpu:znver4", None), ("cpu:host", None), ("cpu:aarch64", None), ("vulkan", None),
    ("cpu:haswell", "AVX2"), ("cpu:znver2", "AVX2"), ("cpu:x86-64-v3", "AVX2"), ("cpu:x86_64", "SSE4_2"),
    ("cpu:x86-64-android", "SSE4_2"), ("cpu:x86-64-v2", "SSE4_2"),
])  # fmt: skip
def test_the_level_is_that_of_the_targets_features(
    target: str, level: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for name in levels.VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    said = levels.hold(target, None)
    assert ("held to it" in said) is (level is not None)
    assert os.environ.get("XLA_FLAGS") == (None if level is None else f"--xla_cpu_max_isa={level}")
