"""The benchmark: its points, its statistics, that it compares what it times, and its reports."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from device import need

import lstm_ir as li
from lstm_ir.bench import levels, lists, measure, memory, points, report
from lstm_ir.bench.elsewhere import PACKAGE, OtherProcess
from lstm_ir.bench.points import Point
from lstm_ir.cli import bench as bench_command
from lstm_ir.cli.bench import command
from lstm_ir.measurement import memory as resident_memory
from lstm_ir.measurement.differences import relative
from lstm_ir.measurement.machine import cores
from lstm_ir.measurement.side_by_side import CALLS, OURS, TURN, Times, interleaved


def test_points_have_names_of_their_own_and_the_short_list_is_of_them() -> None:
    names = [p.name for p in (*lists.POINTS, *lists.MODELS)]
    assert len(set(names)) == len(names)
    assert 55 <= len(points.POINTS) <= 65
    assert {p.name for p in lists.short()} == lists.SHORT
    grid = list(points.grid())
    assert len({p.name for p in grid}) == 2 * 4 * 6 * 6 * 2 * 2 * 2
    assert [p.flops for p in grid] == sorted(p.flops for p in grid)


def test_flops_by_hand() -> None:
    # T B gates 2H (I + H), one layer, both directions; training is three times that
    assert Point("gru", 7, 3, 5, 11, directions=2).flops == 7 * 3 * 2 * 3 * 2 * 11 * (5 + 11)
    assert Point("lstm", 7, 3, 5, 11, layers=2, training=True).flops == 3 * 7 * 3 * 4 * 22 * (16 + 22)


def test_statistics() -> None:
    t = Times({OURS: np.full(9, 2.0), "a": np.full(9, 3.0), "b": np.full(9, 5.0)})
    assert (t.best, t.ratio, t.interval()) == ("a", 1.5, (1.5, 1.5))
    same = Times({OURS: np.full(9, 2.0), measure.AGAIN: np.full(9, 2.0)})
    noisy = Times({OURS: np.full(9, 2.0), measure.AGAIN: np.full(9, 0.9)})
    found = Times({"names": np.full(9, 2.0), "numbers": np.full(9, 1.0), "package": np.full(9, 1.5),
                   "a": np.full(9, 1.5), "b": np.full(9, 5.0)})  # fmt: skip
    point = points.POINTS[0]
    r = measure.Result(point, found, same, {}, {})
    assert [r.slower(w) for w in measure.WAYS] == [True, False, False]
    assert [r.beside_peers(w).ratio for w in measure.WAYS] == [0.75, 1.5, 1.0]
    assert not measure.Result(point, found, noisy, {}, {}).slower("names")
    assert r.as_json()["ratio"] == {"names": 0.75, "numbers": 1.5, "package": 1.0}


def test_every_runner_gets_every_input_in_turn() -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}
    times = interleaved({w: seen[w].append for w in seen}, [1, 2], seconds=0.0, min_turns=5)
    # Each once, then five turns: a call that is not counted and CALLS short ones, inputs in turn.
    turns = [(t + k) % 2 + 1 for t in range(5) for k in range(1 + CALLS)]
    assert seen["a"] == seen["b"] == [1, 2, *turns]
    assert [len(s) for s in times.seconds.values()] == [5 * CALLS, 5 * CALLS]


def test_a_long_call_is_a_turn_of_its_own() -> None:
    times = interleaved({OURS: lambda _: time.sleep(1.1 * TURN)}, [1], seconds=0.0, min_turns=3)
    assert len(times.seconds[OURS]) == 3
    assert times.seconds[OURS].min() >= TURN


SMALL = (Point("lstm", 3, 2, 5, 7, layers=2, directions=2), Point("gru", 3, 2, 5, 7))


class Meaning:
    """What the interpreter makes of a program, called as an executable is."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __call__(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return li.interpret(self.program, arrays)


@pytest.mark.slow
def test_a_package_in_a_process_of_its_own_gives_what_the_model_means(tmp_path: Path) -> None:
    for training in (False, True):
        p = Point("lstm", 3, 2, 5, 7, directions=2, training=training)
        program = p.program(names=True)
        package = tmp_path / f"{training}.lirpkg"
        li.export(program, package, targets=["cpu:host"])
        meaning = p.runner(Meaning(program))
        with OtherProcess(p, PACKAGE, 1, package) as process:
            process.warm()
            assert 1 <= len(process.turn(3)) <= CALLS
            found = process.results()
        for call, got in zip(p.calls(), found, strict=True):
            want = meaning.read(meaning.run(call))
            assert got.keys() == want.keys()
            for k, a in want.items():
                np.testing.assert_allclose(got[k], a, rtol=1e-4, atol=2e-6, err_msg=k)


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("peer", ["torch", "onnxruntime", "jax"])
def test_every_peer_runs_the_same_model(peer: str, training: bool, names: bool) -> None:
    need(peer)
    for small in SMALL:
        p = Point(small.cell, 3, 2, 5, 7, small.layers, small.directions, training)
        theirs = p.peers()[peer](1)
        if theirs is None:
            assert (peer, training) == ("onnxruntime", True)
            continue
        mine = p.runner(Meaning(p.program(names)))
        for call in p.calls(2):
            got, want = (r.read(r.run(call)) for r in (mine, theirs))
            assert got.keys() == want.keys()
            for k, a in want.items():
                np.testing.assert_allclose(got[k], a, rtol=1e-4, atol=2e-6, err_msg=k)


@pytest.mark.slow
def test_the_command_measures_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("torch")
    for name in levels.VARIABLES:  # which the command sets
        monkeypatch.setenv(name, "")
    files: dict[str, Any] = {n: tmp_path / n for n in ("f.json", "f.md", "f.svg")}
    done = CliRunner().invoke(
        command,
        ["lstm-t1-b1-h64", "--seconds", "0", "--runs", "2", "--target", "cpu:x86-64-v3", "-o", str(files["f.json"]),
         "--table", str(files["f.md"]), "--svg", str(files["f.svg"])],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for way in measure.WAYS:
        assert f"inference, {way}: geometric mean of 1 ratios" in done.output
    assert "run 2 of 2" in done.output
    assert "multiply-adds in registers" in done.output
    assert "MiB" not in files["f.md"].read_text()
    assert files["f.md"].read_text().count("| lstm-t1-b1-h64 |") == 1
    assert "<circle" in files["f.svg"].read_text()
    (figures,) = json.loads(files["f.json"].read_text())["points"]
    assert len(figures["runs"]) == 2
    assert figures["median_ms"]["names"] == np.mean([r["median_ms"]["names"] for r in figures["runs"]])
    assert max(figures["errors"].values()) < 1e-5


def test_memory_is_in_the_table_where_it_was_measured() -> None:
    p = {"point": "a", "training": True, "median_ms": {**dict.fromkeys(measure.WAYS, 1.0), "torch": 2.0},
         "ratio": dict.fromkeys(measure.WAYS, 2.0), "interval": {w: [1.9, 2.1] for w in measure.WAYS},
         "slower": {"names": False, "numbers": False, "package": True}, "gflops": {"names": 10.0}}  # fmt: skip
    used = {"lstm-ir": 29.4, "torch": 62.0, "jax": 162.0}
    head, _, row = report.table([{**p, "memory_mib": used}], 100.0).splitlines()
    assert head.endswith("| of peak | MiB: lstm-ir / torch |")
    assert row.endswith("| 2.00 (1.90-2.10) | 2.00 | 2.00 slower | 10% | 29 / 62 |")
    both = report.table([{**p, "memory_mib": used}, {**p, "memory_mib": {}}], 100.0)
    assert both.splitlines()[3].endswith("| 10% | - / - |")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system has no /proc")
def test_the_peak_of_imports_is_not_in_what_comes_later() -> None:
    """A block that was freed hides no smaller one. Both are so large that the C library asks the system for them."""
    block = np.ones(1 << 28, np.uint8)
    del block
    before = resident_memory.set_back()
    block = np.ones(1 << 26, np.uint8)
    risen = resident_memory.peak() - before
    assert 0.9 * block.nbytes < risen < 2 * block.nbytes


def test_memory_is_measured_with_the_threads_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(stdout="1\n")

    monkeypatch.setattr(subprocess, "run", run)
    for threads in (1, None):
        memory.measure(lists.POINTS[0], "torch", threads=threads)
    assert [command[-1] for command in commands] == ["1", str(cores())]
    used: list[int] = []

    def stop(count: int) -> None:
        used.append(count)
        raise StopIteration

    monkeypatch.setattr(Point, "peers", lambda self: {"onnxruntime": stop})
    monkeypatch.setattr(memory, "MODULES", {"onnxruntime": ()})
    with pytest.raises(StopIteration):
        memory.main(lists.POINTS[0].name, "onnxruntime", 3)
    assert used == [3]


def test_memory_is_of_a_fresh_process() -> None:
    point = lists.named(("lstm-t20-b16-h128",))[0]
    used = memory.measure(point, OURS)
    weights = 4 * 4 * 128 * (128 + 128)
    assert weights < used < 400 * weights


def test_a_wrong_result_shows() -> None:
    assert relative(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 0.5
    assert relative(np.array([1e-3]), np.zeros(1)) == 1e-3
    assert relative(np.array([1.0, np.nan]), np.ones(2)) == np.inf


@pytest.mark.parametrize("spoiled", ["a", "b"])
@pytest.mark.parametrize("call", [0, 1])
def test_nan_in_any_result_of_any_call_shows(spoiled: str, call: int) -> None:
    ours = [{"a": np.ones(2), "b": np.ones(2)} for _ in range(2)]
    theirs = [{n: a.copy() for n, a in out.items()} for out in ours]
    theirs[call][spoiled][1] = np.nan
    errors = measure._differences({measure.NAMES: ours, "numbers": ours, "torch": theirs})
    assert errors == {"numbers": 0.0, "torch": np.inf}
    measure.confirm("p", {"numbers": 0.0, "torch": 1e-3})
    with pytest.raises(measure.DifferentError, match=r"p: results differ from ours, .*: torch by inf"):
        measure.confirm("p", errors)


def test_points_with_other_results_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(point: Point, *_: Any, **__: Any) -> measure.Result:
        measure.confirm(point.name, {"torch": float("nan")})
        raise AssertionError

    monkeypatch.setattr(measure, "measure", wrong)
    monkeypatch.setattr(bench_command, "_about", lambda *_: {"said": [], "peak_gflops": 1.0})
    ran = CliRunner().invoke(command, ["lstm-t1-b1-h64", "--table", str(tmp_path / "t.md")])
    assert "left out, lstm-t1-b1-h64: results differ from ours, relative to the largest: torch by nan" in ran.output
    assert "runners differ in their results: lstm-t1-b1-h64" in str(ran.exception)


@pytest.mark.parametrize("option", ["-o", "--table", "--svg"])
def test_a_file_in_no_folder_is_refused_before_anything_is_measured(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("measured")

    monkeypatch.setattr(bench_command, "_about", never)
    ran = CliRunner().invoke(command, ["lstm-t1-b1-h64", option, str(tmp_path / "none" / "f.json")])
    assert ran.exit_code == 2
    assert "No such file or directory" in ran.output


def test_the_summary_stands_before_files_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    times = Times({w: np.full(9, 1.0) for w in (*measure.WAYS, "torch")})
    equals = Times({OURS: np.full(9, 1.0), measure.AGAIN: np.full(9, 1.0)})
    result = measure.Result(points.POINTS[0], times, equals, {"torch": 0.0}, {w: 1.0 for w in ("names", "numbers")})

    def full(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(measure, "measure", lambda *_, **__: result)
    monkeypatch.setattr(bench_command, "_about", lambda *_: {"said": [], "peak_gflops": 1.0})
    monkeypatch.setattr(bench_command, "_pictures", full)
    ran = CliRunner().invoke(command, ["lstm-t1-b1-h64", "--table", str(tmp_path / "t.md")])
    assert "geometric mean of 1 ratios 1.00" in ran.output
    assert "the disk is full" in str(ran.exception)


def test_the_picture_keeps_ratios_on_its_axis() -> None:
    assert report._x(1e-9) == report.LEFT
    assert report._x(1e9) == report.LEFT + report.WIDTH


def test_a_point_is_chosen_by_its_whole_name() -> None:
    chosen = [p.name for p in lists.named(("lstm-t20-b1-h128",))]
    assert chosen == ["lstm-t20-b1-h128"]
    assert len(lists.named(("lstm-t20-b1-h12",))) > 1


def test_words_choose_of_the_whole_grid_too() -> None:
    listed = CliRunner().invoke(command, ["--full", "--list", "gru-t100-b1-h128"])
    names = listed.output.split()
    assert 0 < len(names) < len(list(points.grid()))
    assert all("gru-t100-b1-h128" in n for n in names)
    unknown = CliRunner().invoke(command, ["--full", "--list", "nothing"])
    assert "no point's name contains nothing" in str(unknown.exception)


@pytest.mark.parametrize("words", [("--models", "--full"), ("--models", "--all"), ("--all", "--full")])
def test_one_list_is_asked_for(words: tuple[str, str]) -> None:
    ran = CliRunner().invoke(command, [*words, "--list"])
    assert ran.exit_code == 2
    assert "are lists of their own: give one of them" in ran.output


def test_points_without_a_peer_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "onnxruntime", "jax"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    ran = CliRunner().invoke(command, ["lstm-t1-b1-h64"])
    assert "left out, lstm-t1-b1-h64: no peer for it is installed (torch, onnxruntime, jax)" in ran.output
    assert "nothing was measured" in str(ran.exception)
