"""`li.fit` that goes on from a checkpoint: the same bits as a run that was never stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fit_model import batches, model
from fit_runs import COUNT, interrupting, options, state_of, with_all_state

import lstm_ir as li
from lstm_ir.backends.files import safetensors
from lstm_ir.backends.run.executable import Executable
from lstm_ir.fitting import checkpoint
from lstm_ir.fitting.validation import Validation

pytestmark = pytest.mark.xdist_group("resumed")  # one process makes what they share


@pytest.fixture(scope="module")
def exe() -> Iterator[Executable]:
    with li.compile(with_all_state()) as made:
        yield made


@pytest.fixture(scope="module")
def plain() -> Iterator[Executable]:
    """Without a plateau, which hears of every report."""
    with li.compile(model().only("train")) as made:
        yield made


@pytest.mark.parametrize("every", [None, 1, 3, 7])
@pytest.mark.parametrize("at", [(0, 1), (1, 0), (2, 4), (3, 0)])
def test_interrupted_and_resumed_equals_uninterrupted(
    exe: Executable, every: int | None, at: tuple[int, int], seed: int, tmp_path: Path
) -> None:
    given, path = batches(seed, COUNT), tmp_path / "run.safetensors"
    with exe.session() as whole, exe.session() as first, exe.session() as second:
        want = li.fit(whole, given, log=tmp_path / "whole.csv", checkpoint=tmp_path / "w", **options(every))
        with pytest.raises(KeyboardInterrupt):
            li.fit(first, interrupting(given, at), checkpoint=path, log=tmp_path / "run.csv", **options(every))
        got = li.fit(second, given, checkpoint=path, resume=True, log=tmp_path / "run.csv", **options(every))
        assert got.losses == want.losses[at[0] * COUNT + at[1] :]
        assert [(r.step, r.epoch, r.values) for r in got] == [(r.step, r.epoch, r.values) for r in want][-len(got) :]
        assert got.best == want.best
        for n, a in state_of(whole).items():
            np.testing.assert_array_equal(second.state[n], a, err_msg=n)
    assert (tmp_path / "run.csv").read_text() == (tmp_path / "whole.csv").read_text()


def test_a_run_with_patience_needs_its_best_state(exe: Executable, seed: int, tmp_path: Path) -> None:
    """Without the file it would end with an error, all of its epochs later."""
    given, path = batches(seed, COUNT), tmp_path / "run.safetensors"
    with exe.session() as first, exe.session() as second:
        li.fit(first, given, checkpoint=path, **{**options(3), "epochs": 1})
        best = tmp_path / "run.best.safetensors"
        before = state_of(second)
        best.unlink()
        with pytest.raises(li.PackageError, match=r"run\.best\.safetensors is missing: the state of step 3, "):
            li.fit(second, given, checkpoint=path, resume=True, **options(3))
        best.write_bytes(path.read_bytes())
        with pytest.raises(li.PackageError, match=r"run\.best\.safetensors is the state of step 5, not the state of s"):
            li.fit(second, given, checkpoint=path, resume=True, **options(3))
        for n, a in state_of(second).items():
            np.testing.assert_array_equal(a, before[n], err_msg=n)
        li.fit(second, given, checkpoint=path, resume=True, **{**options(3), "epochs": 2, "patience": None})


def told_losses(monkeypatch: pytest.MonkeyPatch, losses: dict[int, float]) -> None:
    """A validation finds these losses after these steps, and 9 after others."""

    def found(self: Validation, epoch: int) -> dict[str, float]:
        state = self._session.state
        step = 2 * int(state["step"]) + int(state["micro_step"])
        return {"validation/loss": losses.get(step, 9.0), "validation/accuracy": 0.5}

    monkeypatch.setattr(Validation, "run", found)


def test_the_report_at_a_stop_leaves_the_best_state_of_those_before(
    exe: Executable, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop at step 7 is no report of the whole run, however good it is."""
    given, path, limits = batches(seed, COUNT), tmp_path / "run", options(5) | {"patience": 2}
    with exe.session() as fifth, exe.session() as s:
        told_losses(monkeypatch, {5: 2.0, 7: 1.0})
        li.fit(fifth, given, **(limits | {"epochs": 1}))
        first = li.fit(s, given, checkpoint=path, **(limits | {"epochs": None, "steps": 7}))
        assert (first.best, int(s.state["step"]), int(s.state["micro_step"])) == (7, 3, 1)
        last = li.fit(s, given, checkpoint=path, resume=True, **limits)
        assert (last.best, last.stopped, last.records[-1].step) == (5, "patience", 15)
        for n, a in state_of(fifth).items():
            np.testing.assert_array_equal(s.state[n], a, err_msg=n)


@pytest.mark.parametrize("count", [2, 3], ids=["before the checkpoint", "between the two"])
def test_a_run_that_is_killed_in_a_report_keeps_its_best_state(
    exe: Executable, count: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second report is better than the first, and writes two files. The run goes on for one step."""
    given, path, limits = batches(seed, COUNT), tmp_path / "run", options(5) | {"patience": 2}
    saved: list[Any] = []
    save = checkpoint.save

    class Killed(BaseException):
        pass

    def killed(*arguments: Any) -> None:
        if len(saved) == count:
            raise Killed
        saved.append(arguments)
        save(*arguments)

    with exe.session() as whole, exe.session() as s:
        told_losses(monkeypatch, {5: 2.0, 10: 1.0})
        with monkeypatch.context() as m:
            m.setattr(checkpoint, "save", killed)
            with pytest.raises(Killed):
                li.fit(s, given, checkpoint=path, **limits)
        step = json.loads(safetensors.read_with_metadata(path)[1]["fit"])["step"]
        last = li.fit(s, given, checkpoint=path, resume=True, **(limits | {"epochs": None, "steps": step + 1}))
        assert (last.best, last.stopped) == (step, "steps")
        li.fit(whole, given, **(limits | {"epochs": step // COUNT}))
        for n, a in state_of(whole).items():
            np.testing.assert_array_equal(s.state[n], a, err_msg=n)


def test_a_run_that_is_over_stays_so_and_one_with_more_epochs_goes_on(
    exe: Executable, seed: int, tmp_path: Path
) -> None:
    given, path = batches(seed, COUNT), tmp_path / "run"
    with exe.session() as whole, exe.session() as parts:
        want = li.fit(whole, given, epochs=3, progress=False)
        first = li.fit(parts, given, epochs=2, checkpoint=path, progress=False)
        parts.reset()
        again = li.fit(parts, given, epochs=2, checkpoint=path, resume=True, progress=False)
        assert (again.losses, again.stopped) == ([], "epochs")
        last = li.fit(parts, given, epochs=3, checkpoint=path, resume=True, progress=False)
        assert first.losses + last.losses == want.losses


@pytest.mark.parametrize("stop", [1, COUNT, COUNT + 1, 2 * COUNT])
@pytest.mark.parametrize("every", [None, 1, 2])
def test_a_run_that_ended_by_its_steps_goes_on(
    plain: Executable, stop: int, every: int | None, seed: int, tmp_path: Path
) -> None:
    """Also where an epoch ended with it."""
    given, path = batches(seed, COUNT), tmp_path / "run"
    with plain.session() as whole, plain.session() as parts:
        want = li.fit(whole, given, epochs=3, progress=False)
        first = li.fit(parts, given, steps=stop, every=every, checkpoint=path, progress=False)
        last = li.fit(parts, given, epochs=3, every=every, checkpoint=path, resume=True, progress=False)
        assert first.losses + last.losses == want.losses
        steps = [r.step for r in [*first, *last]]
        assert steps == sorted(set(steps))
        assert steps[-1] == 3 * COUNT


@pytest.mark.parametrize("stop", [2, COUNT, 2 * COUNT, 2 * COUNT + 1])
@pytest.mark.parametrize("every", [None, 3])
def test_the_report_at_a_stop_counts_for_nothing(
    exe: Executable, every: int | None, stop: int, seed: int, tmp_path: Path
) -> None:
    """Neither for patience nor for the plateau, nor in the log of a run that goes on."""
    given, path, log = batches(seed, COUNT), tmp_path / "run", tmp_path / "run.csv"
    limits = options(every) | {"patience": 3, "epochs": 9}
    with exe.session() as whole, exe.session() as parts:
        want = li.fit(whole, given, log=tmp_path / "whole.csv", checkpoint=tmp_path / "w", **limits)
        first = li.fit(parts, given, log=log, checkpoint=path, **(limits | {"epochs": None, "steps": stop}))
        assert first.records[-1].step == stop
        assert "validation/loss" in first.records[-1].values
        last = li.fit(parts, given, log=log, checkpoint=path, resume=True, **limits)
        assert first.losses + last.losses == want.losses
        assert (last.stopped, last.best) == (want.stopped, want.best)
        reports = {r.step: r.values for r in [*first, *last]}
        assert all(reports[r.step] == r.values for r in want)
        for n, a in state_of(whole).items():
            np.testing.assert_array_equal(parts.state[n], a, err_msg=n)
    assert log.read_text() == (tmp_path / "whole.csv").read_text()
