"""`li.fit` and Ctrl-C: a step is done whole, what is due stays due, other handlers are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fit_model import batches, model
from fit_runs import COUNT, interrupting, options, state_of, with_all_state
from paths import ROOT

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable
from lstm_ir.fitting import checkpoint
from lstm_ir.fitting.progress import Clock

pytestmark = pytest.mark.xdist_group("resumed")  # one process makes what they share


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
    with li.compile(with_all_state()) as made:
        yield made


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


@pytest.mark.parametrize("at", [2, 4])
def test_an_interrupt_is_raised_where_the_checkpoint_cannot_be_written(
    exe: Executable, at: int, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The disk is full at the end of the epoch (4), or when the interrupt saves (2); the old file stays."""
    given, path = batches(seed, COUNT), tmp_path / "run"
    path.write_text("old")

    def full(*_: object) -> None:
        raise li.PackageError("the disk is full")

    monkeypatch.setattr(checkpoint, "save", full)
    with exe.session() as session, pytest.raises(KeyboardInterrupt):
        li.fit(session, given, checkpoint=path, log=Log(at), **options(4))
    said = capsys.readouterr().err
    assert said.startswith("fit: stopped after step ")
    assert said.endswith("there is no checkpoint yet\n")
    assert "saved in" not in said
    assert path.read_text() == "old"


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
