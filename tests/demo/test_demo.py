"""The demo does what it says, and its closing table cannot look better than the facts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from device import REQUIRED, has, need

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable
from lstm_ir.cli import group
from lstm_ir.cli.demo import _print, _training_bar
from lstm_ir.data import digits_lstm, digits_lstm_meta
from lstm_ir.demo import oracle_table, oracle_vectors
from lstm_ir.demo.model import EpochResult, classifier, streamer
from lstm_ir.demo.run import Held, devices, run, score, stream
from lstm_ir.ir.opdef import OPS


def test_a_package_in_no_folder_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    def never(*given: object, **more: object) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr("lstm_ir.cli.demo.run", never)
    assert group.run(["demo", "-o", str(tmp_path / "none" / "m.lirpkg")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_demo_trains_and_reads_digits_on_every_device_and_from_the_package(tmp_path: Path) -> None:
    if has("vulkan") or "vulkan" in REQUIRED:
        need("vulkan")
    said: list[str] = []
    seen: list[EpochResult] = []
    package = tmp_path / "digits.lirpkg"
    scores = run(said.append, package, seconds=0.05, show=seen.append, epochs=15)
    assert [p.epoch for p in seen] == list(range(1, 16))
    assert (seen[-1].step, seen[-1].steps) == (15 * 30, 15 * 30)
    assert seen[0].loss > 1.5 > 0.5 > seen[-1].loss
    assert seen[0].held_out < 0.9 < 0.95 <= seen[-1].held_out
    here, absent = devices()
    assert "cpu" in here
    assert ("vulkan" in here) == has("vulkan")
    assert [s.target for s in scores] == [*here, *(f"package on {t}" for t in here)]
    for s in scores:
        assert s.accuracy == seen[-1].held_out
        assert s.error < 1e-4
        assert s.same == s.of == 360
        assert min(s.one_ms, s.all_ms) > 0
    text = "\n".join(said)
    assert "trained from scratch on the CPU: 450 steps" in text
    assert all(f"{t}: compiled in " in text for t in here)
    assert all(f"package on {t}: streamed row by row: accuracy " in text for t in here)
    assert all(f"{t}: not run: {reason}" in text for t, reason in absent.items())
    assert package.stat().st_size < 1 << 20


@pytest.fixture(scope="module")
def recorded() -> tuple[Executable, Held]:
    """The weights that PyTorch trained, in the package's program on the CPU."""
    return li.compile(streamer(digits_lstm())), Held.of(classifier(digits_lstm()))


def test_demo_refuses_a_wrong_executable(recorded: tuple[Executable, Held]) -> None:
    exe, held = recorded
    fewer = dataclasses.replace(held, images=held.images[:5], labels=held.labels[:5],
                                logits=held.logits[:5] + 1e-3, digit=held.digit[:5])  # fmt: skip
    with pytest.raises(li.LstmIrError, match=r"largest difference to the NumPy meaning 1\.0e-03"):
        score(exe, fewer, "cpu", seconds=0.0)
    with pytest.raises(li.LstmIrError, match=r"largest difference to the NumPy meaning is 1\.0e-03"):
        stream(exe, fewer, "cpu", seconds=0.0)
    others = dataclasses.replace(held, labels=(held.labels + 1) % 10)
    with pytest.raises(li.LstmIrError, match=r"accuracy 0\.\d%"):
        score(exe, others, "cpu", seconds=0.0)


def test_rows_one_by_one_equal_whole_images(recorded: tuple[Executable, Held]) -> None:
    exe, held = recorded
    done = stream(exe, held, "cpu", seconds=0.0)
    assert len(done.accuracy) == 8
    assert done.accuracy[-1] == held.accuracy == digits_lstm_meta()["accuracy"]
    assert done.error < 1e-4


def test_the_bar_says_loss_and_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    with _training_bar() as show:
        for epoch in range(1, 13):
            show(EpochResult(epoch, 2 * epoch, 24, 1 / epoch, 0.5, 0.25))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "training: step 20 of 24, loss 0.100, accuracy 50.0%, held out 25.0%",
        "training: step 24 of 24, loss 0.083, accuracy 50.0%, held out 25.0%",
    ]


def test_demo_keeps_a_package_only_where_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert group.run(["demo", "-o", "digits.zip"]) == 2
    assert "a package ends in .lirpkg" in capsys.readouterr().err


def test_the_table_has_every_foreign_op() -> None:
    rows = oracle_table.rows([], {"cuda": "no device"})
    assert [r.op for r in rows] == sorted(n for n in OPS if "." in n)
    assert all(oracle_vectors.vectors(r.op).cases for r in rows)
    assert all(r.cells["cuda"] == "not run: no device" for r in rows)


def vectors(expected: float) -> oracle_table.Vectors:
    x = li.input("x", (3,))
    g = li.Graph("g", [x], {"y": x * 2.0})
    given = {"x": np.array([1.0, -2.0, 10.0], "f4")}
    return oracle_table.Vectors(
        "a pocket calculator 1.0", [oracle_table.Case(g, given, {"y": np.array([2.0, -4.0, expected])})]
    )


def test_a_row_gives_the_worst_error_per_target() -> None:
    row = oracle_table._row("calc.Double", lambda: vectors(20.02), ["cpu"], {"cuda": "no device"})
    assert row.oracle == "a pocket calculator 1.0"
    assert row.cells == {"NumPy meaning": "1.0e-03", "cpu": "1.0e-03", "cuda": "not run: no device"}


def test_a_row_without_its_oracle_says_so() -> None:
    def absent() -> oracle_table.Vectors:
        raise oracle_table.AbsentError("the calculator is not installed")

    row = oracle_table._row("calc.Double", absent, ["cpu"], {})
    assert set(row.cells.values()) == {"not run: the calculator is not installed"}
    with pytest.raises(li.LstmIrError, match=r"tf\.BlockLSTM has two oracles"):
        oracle_table.register("tf.BlockLSTM", absent)


@pytest.mark.parametrize(
    ("got", "want", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.5], [0.25], 0.25),
        ([np.nan], [np.nan], 0.0),
        ([np.nan], [1.0], np.inf),
        ([1.0], [np.nan], np.inf),
        ([np.inf], [np.inf], 0.0),
        ([-np.inf], [np.inf], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_error_hides_nothing(got: list[float], want: list[float], error: float) -> None:
    assert oracle_table.error({"y": np.array(got)}, {"y": np.array(want)}) == error
    assert oracle_table.error({"z": np.array(got)}, {"y": np.array(want)}) == np.inf


def test_the_table_prints_long_reasons_once(capsys: pytest.CaptureFixture[str]) -> None:
    cells = {"cpu": "1.0e-07", "cuda": "not run: no driver library: libcuda.so"}
    _print([oracle_table.OracleRow(op, "calc 1.0", cells) for op in ("a.X", "a.Y")])
    out = capsys.readouterr().out
    assert out.count("no driver library: libcuda.so") == 1
    assert out.count("not run: (1)") == 2
    _print([])
    assert "no foreign op" in capsys.readouterr().out
