"""`li.fit` stopped and resumed: the same bits as a run that was not; logs; damaged files."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need
from fit_model import batches, model
from paths import ROOT

import lstm_ir as li
from lstm_ir.backends.files import safetensors
from lstm_ir.backends.run.executable import Executable
from lstm_ir.fitting import checkpoint
from lstm_ir.fitting.progress import Clock
from lstm_ir.fitting.validation import Validation

pytestmark = pytest.mark.xdist_group("resumed")  # one process makes what they share

EPOCHS, COUNT = 4, 5


class Log:
    """A writer as TensorBoard's; `at` sends Ctrl-C when it is told of that step, which is inside of one."""

    def __init__(self, at: int | None = None) -> None:
        self.told: list[tuple[str, float, int]] = []
        self._at = at

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.told.append((tag, value, step))
        if step == self._at and tag == "loss":
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def exe() -> Iterator[Executable]:
    """With a plateau, an accumulation over two batches and dropout-free evaluation: all state that there is."""
    rate = li.schedules.plateau(li.schedules.warmup(4, 0.1), 0.5, 0)
    with li.compile(model(li.adam(rate), accumulate=2).only("train", "evaluate", "plateau")) as made:
        yield made


@pytest.fixture(scope="module")
def plain() -> Iterator[Executable]:
    """Without a plateau, which hears of every report."""
    with li.compile(model().only("train")) as made:
        yield made


def options(every: int | None) -> dict[str, Any]:
    return {"epochs": EPOCHS, "every": every, "validation": batches(99, 2), "patience": 100, "progress": False}


def state_of(session: Any) -> dict[str, Any]:
    return {n: session.state[n] for n in session.state}


def interrupting(given: list[Any], at: tuple[int, int]) -> Callable[[int], Iterator[Any]]:
    """Batches of which one comes with Ctrl-C, while the loop waits for it."""

    def epoch(number: int) -> Iterator[Any]:
        for k, b in enumerate(given):
            if (number, k) == at:
                os.kill(os.getpid(), signal.SIGINT)
            yield b

    return epoch


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


@pytest.mark.parametrize("every", [None, 4])
@pytest.mark.parametrize("step", [3, 4, 5, 10])
def test_an_interrupt_inside_of_a_step_waits_for_its_end(
    exe: Executable, every: int | None, step: int, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, path = batches(seed, COUNT), tmp_path / "run"
    one, two, log = Log(), Log(), Log(step)
    with exe.session() as whole, exe.session() as first, exe.session() as second:
        li.fit(whole, given, log=one, **options(every))
        with pytest.raises(KeyboardInterrupt):
            li.fit(first, given, checkpoint=path, log=log, **options(every))
        said = capsys.readouterr().err
        assert said.startswith("fit: stopped after step ")
        assert said.endswith(f", saved in {path}: the same call with resume=True goes on\n")
        li.fit(second, given, checkpoint=path, resume=True, log=two, **options(every))
        for n, a in state_of(whole).items():
            np.testing.assert_array_equal(second.state[n], a, err_msg=n)
    told = {(tag, k): value for tag, value, k in [*log.told, *two.told]}
    assert told == {(tag, k): value for tag, value, k in one.told}
    assert {"loss", "grad_norm", "lr", "accuracy", "validation/loss", "validation/accuracy"} == {t for t, _ in told}


def test_an_interrupt_in_the_validation_leaves_it_due(exe: Executable, seed: int, tmp_path: Path) -> None:
    given, path = batches(seed, COUNT), tmp_path / "run"
    held_out = options(None)["validation"]

    def asked(epoch: int) -> Iterator[Any]:
        yield held_out[0]
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)
        yield held_out[1]

    logs = [tmp_path / "whole.csv", tmp_path / "run.csv"]
    with exe.session() as whole, exe.session() as first, exe.session() as second:
        want = li.fit(whole, given, log=logs[0], checkpoint=tmp_path / "w", **options(None))
        with pytest.raises(KeyboardInterrupt):
            li.fit(first, given, checkpoint=path, log=logs[1], **{**options(None), "validation": asked})
        got = li.fit(second, given, checkpoint=path, resume=True, log=logs[1], **options(None))
        assert [r.values for r in got] == [r.values for r in want][1:]
        for n, a in state_of(whole).items():
            np.testing.assert_array_equal(second.state[n], a, err_msg=n)
    assert logs[1].read_text() == logs[0].read_text()


@pytest.mark.slow
@pytest.mark.parametrize("every", [None, 1, 7])
def test_interrupts_at_any_moment(exe: Executable, every: int | None, seed: int, tmp_path: Path) -> None:
    """A dozen each, at random times: in steps, validations, checkpoints, rows of the log, and before the first step."""
    given, path, logs = batches(seed, 30), tmp_path / "run", [tmp_path / "whole.csv", tmp_path / "run.csv"]
    times = np.random.default_rng(seed).uniform(5e-4, 3e-2, 12)
    main = threading.main_thread().ident
    assert main is not None
    with exe.session() as whole:
        li.fit(whole, given, log=logs[0], checkpoint=tmp_path / "w", **options(every))
        want = state_of(whole)
    stops, done = 0, False
    while not done:
        with exe.session() as s:
            later = threading.Timer(times[stops] if stops < 12 else 60.0, signal.pthread_kill, (main, signal.SIGINT))
            try:
                later.start()
                li.fit(s, given, log=logs[1], checkpoint=path, resume=path.exists(), **options(every))
                later.cancel()
                later.join()
                done = True
            except KeyboardInterrupt:
                stops += 1
                later.cancel()
            if done:
                for n, a in want.items():
                    np.testing.assert_array_equal(s.state[n], a, err_msg=n)
    assert logs[1].read_text() == logs[0].read_text()


def test_without_a_checkpoint_the_state_stays(exe: Executable, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    with exe.session() as s:
        with pytest.raises(KeyboardInterrupt):
            li.fit(s, interrupting(batches(seed, COUNT), (0, 3)), epochs=1, progress=False)
        assert int(s.state["step"]) * 2 + int(s.state["micro_step"]) == 3
    said = capsys.readouterr().err
    assert said == "fit: stopped after step 3; no checkpoint was asked for, the state stays in the session\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_somebody_else_is_left_alone(exe: Executable, seed: int) -> None:
    def mine(*_: Any) -> None:
        raise AssertionError

    old = signal.signal(signal.SIGINT, mine)
    try:
        with exe.session() as s:
            li.fit(s, batches(seed, 1), epochs=1, progress=False)
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, old)


@pytest.mark.parametrize("name", ["step", "report"])
def test_a_handler_of_somebody_else_raises_within_what_is_done_whole(
    exe: Executable, name: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Behind the call of `train`, before the step is counted; behind the word to the plateau, before it is noted."""
    given, path, limits = batches(seed, COUNT), tmp_path / "run", options(2)
    place: Any = {"step": Clock, "report": checkpoint}[name]
    where, at, after = {"step": ("tick", 8, 7), "report": ("better", 4, 8)}[name]
    real, calls = getattr(place, where), []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    def mine(*_: Any) -> None:
        raise KeyboardInterrupt

    with exe.session() as whole, exe.session() as first, exe.session() as second:
        want = li.fit(whole, given, checkpoint=tmp_path / "w", **limits)
        monkeypatch.setattr(place, where, interrupted)
        old = signal.signal(signal.SIGINT, mine)
        try:
            with pytest.raises(KeyboardInterrupt):
                li.fit(first, given, checkpoint=path, **limits)
        finally:
            signal.signal(signal.SIGINT, old)
        monkeypatch.undo()
        last = li.fit(second, given, checkpoint=path, resume=True, **limits)
        assert (last.losses, last.best) == (want.losses[6:], want.best)
        for n, a in state_of(whole).items():
            np.testing.assert_array_equal(second.state[n], a, err_msg=n)
    said = capsys.readouterr().err
    assert said == (
        f"fit: stopped after step {after} and before the next was done, not saved; {path} has step 6: the same call "
        "with resume=True goes on\n"
    )


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


def test_the_log_has_a_row_for_each_step(exe: Executable, seed: int, tmp_path: Path) -> None:
    with exe.session() as s:
        history = li.fit(s, batches(seed, COUNT), log=tmp_path / "log.csv", **options(2))
    with open(tmp_path / "log.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert list(rows[0]) == [
        "step", "epoch", "loss", "grad_norm", "lr", "accuracy", "validation/loss", "validation/accuracy",
    ]  # fmt: skip
    assert [float(r["loss"]) for r in rows] == history.losses
    assert [(int(r["step"]), int(r["epoch"])) for r in rows] == [(k + 1, k // COUNT + 1) for k in range(20)]
    checked = [float(r["validation/loss"]) for r in rows if r["validation/loss"]]
    assert checked == history["validation/loss"]
    assert [r["step"] for r in rows if r["validation/loss"]] == [str(r.step) for r in history]


def test_the_log_is_never_behind_the_checkpoint(
    exe: Executable, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed writes no more rows; the row of the last step lies in the checkpoint."""
    log, save, saved = tmp_path / "log.csv", checkpoint.save, []

    def seen(path: Any, session: Any, position: checkpoint.Position) -> None:
        saved.append(([row.partition(",")[0] for row in log.read_text().splitlines()], [*position.last]))
        save(path, session, position)

    monkeypatch.setattr(checkpoint, "save", seen)
    with exe.session() as s, pytest.raises(KeyboardInterrupt):
        li.fit(s, interrupting(batches(seed, COUNT), (0, 3)), checkpoint=tmp_path / "run", log=log, **options(None))
    assert saved == [(["step", "1", "2"], ["loss", "grad_norm", "lr", "accuracy"])]


def test_a_log_of_another_run_is_refused(exe: Executable, seed: int, tmp_path: Path) -> None:
    given, path, log = batches(seed, COUNT), tmp_path / "run", tmp_path / "log.csv"
    with exe.session() as s:
        li.fit(s, given, steps=2, checkpoint=path, progress=False)
        log.write_text("a,b\n1,2\n")
        with pytest.raises(li.PackageError, match=r"log.csv: its columns are a,b, this run has step,epoch,loss"):
            li.fit(s, given, steps=4, checkpoint=path, resume=True, log=log, progress=False)
        with pytest.raises(li.PackageError, match="nowhere"):
            li.fit(s, given, steps=4, log=tmp_path / "nowhere" / "log.csv", progress=False)


def test_checkpoints_that_cannot_be_resumed(exe: Executable, seed: int, tmp_path: Path) -> None:
    given, path = batches(seed, COUNT), tmp_path / "run"
    with exe.session() as s:

        def resume(given: Any = given) -> None:
            li.fit(s, given, epochs=9, checkpoint=path, resume=True, progress=False)

        with pytest.raises(li.PackageError, match="run"):
            resume()
        li.fit(s, given, steps=7, checkpoint=path, progress=False)
        arrays, metadata = safetensors.read_with_metadata(path)
        at = json.loads(metadata["fit"])
        assert (at["epoch"], at["batch"], at["step"]) == (1, 2, 7)
        with pytest.raises(
            li.CallError, match="batches gave 1 batches in epoch 2, where the checkpoint was made after 2"
        ):
            resume(given[:1])
        s.save_state(path)
        before = state_of(s)
        with pytest.raises(li.PackageError, match="run: a state file that fit did not write; load_state reads it"):
            resume()
        texts = ("", "{}x", "[]", '{"epoch": -1}', '{"other": 1}', '{"due": 1}', '{"sums": 5}', '{"best": "x"}',
                 '{"sums": {"loss": "x"}}', '{"best_step": 0.5}', '{"step": true}')  # fmt: skip
        for text in texts:
            with path.open("wb") as f:
                safetensors.write(f, arrays, {"fit": text})
            with pytest.raises(li.PackageError, match="run: the position of the run is damaged"):
                resume()
        with path.open("wb") as f:
            safetensors.write(f, {"other": np.zeros(1)}, metadata)
        with pytest.raises(li.PackageError, match="run: no state"):
            resume()
        for n, a in before.items():
            np.testing.assert_array_equal(s.state[n], a, err_msg=n)


def test_metadata_are_those_of_the_library(exe: Executable, seed: int, tmp_path: Path) -> None:
    need("safetensors")
    import safetensors as library

    with exe.session() as s:
        li.fit(s, batches(seed, 1), epochs=1, checkpoint=tmp_path / "run", progress=False)
        with library.safe_open(tmp_path / "run", "np") as f:
            assert json.loads(f.metadata()["fit"])["step"] == 1
            np.testing.assert_array_equal(f.get_tensor("out/w"), s.state["out/w"])
        s.load_state(tmp_path / "run")


SCRIPT = """
    import sys, time
    sys.path[:0] = [{graphs!r}]
    from fit_model import batches
    import lstm_ir as li
    def slow(epoch):
        for b in batches(3, 5):
            time.sleep(0.02)
            print("batch", flush=True)
            yield b
    li.fit(li.load({package!r}), slow, epochs=1000, every=2, checkpoint={path!r})
    print("never")
"""


def test_a_process_ends_by_ctrl_c_and_its_run_goes_on(seed: int, tmp_path: Path) -> None:
    package, path = tmp_path / "m.lirpkg", tmp_path / "run.safetensors"
    li.export(model().only("train"), package, ["cpu:host"])
    names = {"graphs": str(ROOT / "tests" / "graphs"), "package": str(package), "path": str(path)}
    script = textwrap.dedent(SCRIPT).format(**names)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(12):
        assert child.stdout.readline() == "batch\n"
    child.send_signal(signal.SIGINT)
    out, said = child.communicate(timeout=60)
    assert "never" not in out
    assert child.returncode == -signal.SIGINT, said
    assert f"saved in {path}: the same call with resume=True goes on" in said
    with li.load(package) as there, li.load(package) as whole:
        history = li.fit(there, lambda e: batches(3, 5), epochs=6, checkpoint=path, resume=True, progress=False)
        want = li.fit(whole, batches(3, 5), epochs=6, progress=False)
        assert 0 < len(history.losses) < 30
        assert history.losses == want.losses[-len(history.losses) :]
        for n, a in state_of(whole).items():
            np.testing.assert_array_equal(there.state[n], a, err_msg=n)


def test_a_checkpoint_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(
        li.PackageError, match=r"fit: there is no checkpoint .*run\.safetensors to resume from; the first"
    ):
        li.fit(model().only("train"), batches(1, 1), epochs=1, checkpoint=path, resume=True)
