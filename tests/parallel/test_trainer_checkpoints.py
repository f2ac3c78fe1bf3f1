"""What a trainer owes: a checkpoint that could not be written, and the end of a step that another thread closes on."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trained_models import batch, classifier

import lstm_ir as li
from lstm_ir.backends.run.held_state import HeldState
from lstm_ir.parallel import Trainer
from lstm_ir.parallel.links import LostError
from lstm_ir.parallel.replica import Replica


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("owed"))


class Disk:
    """A place for a checkpoint that may be full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.tries = False, 0
        save = Replica.save

        def saved(replica: Replica, path: Any) -> None:
            self.tries += 1
            if self.full:
                raise li.PackageError(f"{path}: No space left on device")
            save(replica, path)

        monkeypatch.setattr(Replica, "save", saved)


def test_a_checkpoint_that_cannot_be_written_loses_no_step(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step gives its results. The next one writes the checkpoint first, or does nothing, however often it is asked
    for.
    """
    with Trainer(package, 2, threads=1) as trainer:
        want = [trainer.step(batch(s))["loss"] for s in range(4)]
        state = trainer.state
    file = tmp_path / "c.safetensors"
    disk = Disk(monkeypatch)
    with Trainer(package, 2, threads=1, checkpoint=file, checkpoint_every=2) as trainer:
        found = [trainer.step(batch(0))["loss"]]
        disk.full = True
        found.append(trainer.step(batch(1))["loss"])
        assert (trainer.step_number, file.exists()) == (2, False)
        before = trainer.state
        for _ in range(2):
            with pytest.raises(li.PackageError, match=r"step 2 is done, its checkpoint is not written: .*: No space"):
                trainer.step(batch(2))
            assert trainer.step_number == 2
            for name, a in trainer.state.items():
                np.testing.assert_array_equal(a, before[name])
        with pytest.raises(li.CallError, match="missing input"):  # what is wrong with a call is said first
            trainer.step(x=batch(2)["x"], lr=batch(2)["lr"])
        disk.full = False
        found.append(trainer.step(batch(2))["loss"])
        with Trainer(package, 2, threads=1, checkpoint=file, resume=True) as other:
            assert other.step_number == 2, "the checkpoint is that of the step that owed it"
        found.append(trainer.step(batch(3))["loss"])
        assert found == want
        tries = disk.tries
        for name, a in trainer.state.items():
            np.testing.assert_array_equal(a, state[name])
    assert disk.tries == tries, "nothing is owed at the end"


def test_the_checkpoint_of_the_last_step_is_an_error_of_close(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.full = True
    trainer = Trainer(package, 1, threads=1, checkpoint=tmp_path / "c.safetensors")
    trainer.step(batch(0))
    pid = trainer._links[0].pid  # type: ignore[union-attr]
    with pytest.raises(li.PackageError, match="step 1 is done, its checkpoint is not written"):
        trainer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    trainer.close()


def test_what_ends_a_block_is_said_before_what_its_end_owes(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Disk(monkeypatch).full = True
    trainer = Trainer(package, 1, threads=1, checkpoint=tmp_path / "c.safetensors")
    trainer.step(batch(0))
    with pytest.raises(li.CallError, match="missing input"), trainer:
        trainer.step(x=batch(1)["x"])


def test_close_waits_for_the_step_that_runs(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Trainer(package, 2, threads=1) as trainer:
        want = trainer.step(batch(0))["loss"]
    trainer = Trainer(package, 2, threads=1)
    inside, go, answer = threading.Event(), threading.Event(), Replica.answer

    def waits(self: Replica, *words: Any) -> Any:
        inside.set()
        assert go.wait(60)
        return answer(self, *words)

    monkeypatch.setattr(Replica, "answer", waits)  # of the trainer's own copy
    with ThreadPoolExecutor(2) as threads:
        step = threads.submit(trainer.step, batch(0))
        assert inside.wait(60)
        closed = threads.submit(trainer.close)
        with pytest.raises(LateError):
            closed.result(0.2)
        go.set()
        assert step.result(60)["loss"] == want
        closed.result(60)
    assert trainer.replaced == 0
    with pytest.raises(li.DeviceError, match="the trainer is closed"):
        trainer.step(batch(1))


def test_a_signal_that_closes_in_the_midst_of_a_step(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler runs in the thread that steps: nothing waits for itself, and the step says why it ended."""
    trainer = Trainer(package, 2, threads=1)
    trainer.step(batch(0))
    gather = trainer._gather

    def closes(parts: Any) -> Any:
        trainer.close()
        return gather(parts)

    monkeypatch.setattr(trainer, "_gather", closes)
    with pytest.raises(li.DeviceError, match="is closed"):
        trainer.step(batch(1))


def test_a_signal_that_closes_while_the_state_is_written(package: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The step of the trainer's own copy holds a lock then: the step ends, its checkpoint is written."""
    file = tmp_path / "c.safetensors"
    trainer = Trainer(package, 2, threads=1, checkpoint=file)
    keep = HeldState.keep

    def closes(held: HeldState, *given: Any) -> None:
        keep(held, *given)
        trainer.close()

    monkeypatch.setattr(HeldState, "keep", closes)
    with ThreadPoolExecutor(1) as pool, pytest.raises(li.DeviceError, match="is closed"):
        pool.submit(trainer.step, batch(0)).result(60)
    monkeypatch.undo()
    with Trainer(package, 2, threads=1, checkpoint=file, resume=True) as again:
        assert again.step_number == 1


def test_a_signal_that_closes_while_a_worker_is_awaited(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed under the call that waits."""
    trainer = Trainer(package, 2, threads=1)
    link = trainer._links[0]
    assert link is not None

    def closes() -> Any:
        trainer.close()
        raise LostError("the connection is closed")

    monkeypatch.setattr(link, "receive", closes)
    with ThreadPoolExecutor(1) as pool, pytest.raises(li.DeviceError, match="is closed"):
        pool.submit(trainer.step, batch(0)).result(60)
