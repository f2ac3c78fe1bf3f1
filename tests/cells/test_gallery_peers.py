"""The peers of benchmarks/cells.py compute the same cells, and its figures come together in one file."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pytest
from cell_gallery import NAMES, cell, inputs
from cell_runs import jax_run, torch_run
from device import need
from loaded_file import loaded
from paths import ROOT
from tolerances import RECURRENCE, close

Arrays = dict[str, Any]


def arrays(name: str, seed: int) -> tuple[Arrays, Arrays]:
    """Inputs and weights of a small cell, in f64."""
    I, H = (16, 24) if name.startswith("conv_") else (5, 12)
    given = inputs(cell(name).build("T", "B", I, H, "f64"), 6, 3, seed, "f8")
    return given, {k: np.asarray(a, "f8") for k, a in cell(name).weights(I, H, seed).items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_jax_computes_what_torch_does(name: str, seed: int) -> None:
    need("torch")
    need("jax")
    given, weights = arrays(name, seed)
    found, want = jax_run(name, given, weights), torch_run(name, given, weights)
    assert found.keys() == want.keys()
    close(found, want, RECURRENCE["f64", "cpu"], name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # of torch's own, as it captures
@pytest.mark.parametrize("name", NAMES)
def test_the_scan_operator_computes_what_the_eager_loop_does(name: str, seed: int) -> None:
    need("torch")
    given, weights = arrays(name, seed)
    if name == "s5":  # of complex numbers torch 2.13 has no gradient there; the table of docs/cells.md has none either
        with pytest.raises(RuntimeError, match="does not support automatic differentiation for outputs with complex"):
            torch_run(name, given, weights, compiled=True)
        return
    found, want = torch_run(name, given, weights, compiled=True), torch_run(name, given, weights)
    close(found, want, RECURRENCE["f64", "cpu"], name)


def benchmark() -> ModuleType:
    return loaded(ROOT / "benchmarks" / "cells.py")


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training_step"])
def test_a_point_is_measured_and_kept(training: bool, tmp_path: Path) -> None:
    need("torch")
    need("jax")
    made, path = benchmark(), tmp_path / "measured.json"
    point = made.Point("ind_rnn", 200, 8, 128, training)
    r = made.measure(point, (made.JAX, made.EAGER), 0.01, 1, 300.0)
    assert r["median_ms"].keys() == r["ready_seconds"].keys() == {"lstm-ir", "jax.jit", "torch"}
    assert all(worst < 1e-4 for worst in r["errors"].values())
    assert r["interval"][0] <= r["ratio"] <= r["interval"][1]
    assert not r["missing"]
    made.save(path, "cpu", [r, {**r, "T": 1000, "B": 1, "ratio": 7.0}])
    made.save(path, "cpu", [{**r, "ratio": 5.0}])
    assert [p["ratio"] for p in json.loads(path.read_text())["points"]] == [5.0, 7.0]


def test_a_runner_that_fails_or_waits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = benchmark()

    def refused(point: Any) -> Any:
        raise ValueError("no such op\nmore")

    def late(point: Any) -> Any:
        while True:
            np.ones(100_000).sum()

    ours = made.Runner(lambda call: None, lambda out: {"y": np.ones(1)})
    monkeypatch.setattr(made, "MAKERS", {made.OURS: lambda _: ours, "a": refused, "b": late})
    r = made.measure(made.Point("ind_rnn", 2, 1, 8, False), ("a", "b"), 0.01, 1, 0.2)
    assert r["missing"] == {"a": "ValueError: no such op", "b": "TimeoutError: not ready after 0.2 s"}
    assert r["ratio"] is None


def test_a_peer_whose_results_all_others_contradict_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = benchmark()
    of = {w: made.Runner(lambda call: None, lambda out, y=y: {"y": np.full(1, y)}) for w, y in (("x", 1.0), ("z", 3.0))}
    makers = {made.OURS: lambda _: of["x"], "a": lambda _: of["x"], "b": lambda _: of["z"]}
    monkeypatch.setattr(made, "MAKERS", makers)
    point = made.Point("ind_rnn", 2, 1, 8, False)
    r = made.measure(point, ("a", "b"), 0.01, 1, 5.0)
    assert r["missing"] == {"b": "results are others, by 2 of the largest"}
    assert r["median_ms"].keys() == {made.OURS, "a"}
    with pytest.raises(made.DifferentError, match="b by 2"):  # nobody else says which is right
        made.measure(point, ("b",), 0.01, 1, 5.0)


def test_figures_of_another_machine_are_refused(tmp_path: Path) -> None:
    need("torch", "jax")  # whose versions are part of the machine
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"machine": "another", "points": []}))
    with pytest.raises(click.ClickException, match="is of another; this is"):
        benchmark().kept(path, "cpu")
    path.write_text(json.dumps({**benchmark().kept(tmp_path / "none", "cuda"), "points": []}))
    with pytest.raises(click.ClickException, match="is of cuda; this is cpu"):
        benchmark().kept(path, "cpu")


def test_seconds_until_ours_is_ready_take_the_place_of_those_in_the_file(tmp_path: Path) -> None:
    """And of nothing else; a point that was never measured has no place."""
    made, path = benchmark(), tmp_path / "measured.json"
    point = made.Point("ind_rnn", 200, 8, 128, False)
    of = {"cell": "ind_rnn", "T": 200, "B": 8, "H": 128, "mode": "inference", "ratio": 2.0, "versions": {}}
    others = [{**of, "mode": "training step"}, {**of, "T": 1000}]
    points = [{**p, "ready_seconds": {"lstm-ir": 9.0, "torch": 1.0}} for p in (of, *others)]
    about = {"machine": made.machine(), "device": "cpu"}
    path.write_text(json.dumps({**about, "points": points}))
    made.renew_ready(path, point, 0.5)
    points[0]["ready_seconds"] = {"lstm-ir": 0.5, "torch": 1.0}
    assert json.loads(path.read_text())["points"] == points
    with pytest.raises(click.ClickException, match="has no figures of lru, 200, 8, 128, inference"):
        made.renew_ready(path, point._replace(cell="lru"), 0.5)
    assert 0 < made.ready_seconds(made.Point("ind_rnn", 3, 2, 8, False)) < 60
