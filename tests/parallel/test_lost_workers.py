"""Workers that are killed in each phase of a step, hang, or are killed at any time: no step is lost or done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child import environment
from paths import ROOT
from trained_models import batch, classifier

import lstm_ir as li
from lstm_ir.parallel import Trainer
from lstm_ir.parallel.links import ProcessLink
from lstm_ir.parallel.replica import Replica

STEPS, AT = 6, 2  # how many, and in which one a worker is killed
Wanted = tuple[list[np.ndarray], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("lost"))


@pytest.fixture(scope="module")
def wanted(package: Path) -> Wanted:
    """Losses and state of a run that nobody disturbs."""
    with Trainer(package, 2, threads=1) as trainer:
        return [trainer.step(batch(s))["loss"] for s in range(STEPS)], trainer.state


def confirm(trainer: Trainer, losses: list[np.ndarray], wanted: Wanted) -> None:
    """All to the bit; what the workers hold too, by one more step on each."""
    assert losses == wanted[0]
    for name, a in trainer.state.items():
        np.testing.assert_array_equal(a, wanted[1][name], err_msg=name)
    assert trainer.step_number == STEPS
    b = {n: a for n, a in batch(99).items() if n != "lr"}
    replies = trainer._exchange("grads", [trainer._transport.share(b)] * len(trainer._links))
    own = trainer._replica.answer("grads", STEPS, b)
    for r in replies:
        assert r is not None
        for name, a in own.arrays.items():
            np.testing.assert_array_equal(r.arrays[name], a)


def kill(link: ProcessLink) -> None:
    os.kill(link.pid, signal.SIGKILL)
    link._process.wait(60)


Send = Callable[[ProcessLink, str, int, Any], None]


def before(verb: str) -> Callable[[pytest.MonkeyPatch, list[int]], None]:
    """Killed, then sent the message."""

    def at(monkeypatch: pytest.MonkeyPatch, victims: list[int]) -> None:
        send: Send = ProcessLink.send

        def first(self: ProcessLink, what: str, step: int, shared: Any) -> None:
            if (what, step) == (verb, AT) and self.pid in victims:
                kill(self)
            send(self, what, step, shared)

        monkeypatch.setattr(ProcessLink, "send", first)

    return at


def during(verb: str) -> Callable[[pytest.MonkeyPatch, list[int]], None]:
    """The message is there, and no reply: it is stopped, sent the message, and killed."""

    def at(monkeypatch: pytest.MonkeyPatch, victims: list[int]) -> None:
        send: Send = ProcessLink.send

        def stopped(self: ProcessLink, what: str, step: int, shared: Any) -> None:
            now = (what, step) == (verb, AT) and self.pid in victims
            if now:
                os.kill(self.pid, signal.SIGSTOP)
            send(self, what, step, shared)
            if now:
                kill(self)

        monkeypatch.setattr(ProcessLink, "send", stopped)

    return at


def after(verb: str) -> Callable[[pytest.MonkeyPatch, list[int]], None]:
    """It has answered."""

    def at(monkeypatch: pytest.MonkeyPatch, victims: list[int]) -> None:
        send: Send = ProcessLink.send
        receive = ProcessLink.receive
        sent: dict[int, tuple[str, int]] = {}

        def noted(self: ProcessLink, what: str, step: int, shared: Any) -> None:
            sent[self.pid] = (what, step)
            send(self, what, step, shared)

        def last(self: ProcessLink) -> Any:
            reply = receive(self)
            if sent.get(self.pid) == (verb, AT) and self.pid in victims:
                kill(self)
            return reply

        monkeypatch.setattr(ProcessLink, "send", noted)
        monkeypatch.setattr(ProcessLink, "receive", last)

    return at


PHASES = {
    "before its gradients": before("grads"), "while it computes them": during("grads"),
    "after it sent them": after("grads"),
    "before it applies": before("apply"), "while it applies": during("apply"), "after it applied": after("apply"),
}  # fmt: skip


@pytest.mark.parametrize("who", [[0], [1], [0, 1]], ids=["first", "second", "both"])
@pytest.mark.parametrize("phase", PHASES)
def test_killed_in_a_phase(
    package: Path, wanted: Wanted, phase: str, who: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    answer = Replica.answer

    def noted(self: Replica, verb: str, step: int, arrays: Any) -> Any:
        asked.append((verb, step))
        return answer(self, verb, step, arrays)

    monkeypatch.setattr(Replica, "answer", noted)  # of the trainer's own copy, in this process
    with Trainer(package, 2, threads=1) as trainer:
        PHASES[phase](monkeypatch, [trainer._links[i].pid for i in who])  # type: ignore[union-attr]
        losses = [trainer.step(batch(s))["loss"] for s in range(STEPS)]
        assert trainer.replaced == len(who)
        assert asked == [("apply", s) for s in range(STEPS)]
        monkeypatch.undo()
        confirm(trainer, losses, wanted)


def test_a_part_that_was_computed_is_not_computed_again(
    package: Path, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, int]] = []
    send: Send = ProcessLink.send

    def noted(self: ProcessLink, what: str, step: int, shared: Any) -> None:
        sent.append((what, step))
        send(self, what, step, shared)

    with Trainer(package, 2, threads=1) as trainer:
        monkeypatch.setattr(ProcessLink, "send", noted)
        after("grads")(monkeypatch, [trainer._links[0].pid])  # type: ignore[union-attr]
        for s in range(STEPS):
            trainer.step(batch(s))
    grads = [s for what, s in sent if what == "grads"]
    assert grads == sorted([*range(STEPS)] * 2)  # two parts of each step, each once
    assert [s for what, s in sent if what == "load"] == [AT + 1]  # the state after the step, not before


@pytest.mark.slow
def test_killed_at_any_time(package: Path, wanted: Wanted, rng: np.random.Generator) -> None:
    """A process of its own kills workers after random times, most of them in the midst of a computation."""
    import threading

    for _ in range(6):
        with Trainer(package, 2, threads=1) as trainer:
            over = threading.Event()
            waits = rng.uniform(0, 0.02, 40)

            def murder(trainer: Trainer = trainer, over: threading.Event = over, waits: Any = waits) -> None:
                for wait in waits:
                    if over.wait(wait):
                        return
                    link = trainer._links[int(1e6 * wait) % 2]
                    if isinstance(link, ProcessLink) and link._process.returncode is None:
                        os.kill(link.pid, signal.SIGKILL)
                    over.wait(0.4)  # longer than a start, or no worker would live to do a step

            thread = threading.Thread(target=murder)
            thread.start()
            losses = []
            try:
                for s in range(STEPS):
                    losses.append(trainer.step(batch(s))["loss"])
                    time.sleep(float(rng.uniform(0, 0.3)))
            finally:
                over.set()
                thread.join()
            confirm(trainer, losses, wanted)


def test_a_worker_that_hangs_is_replaced(package: Path, wanted: Wanted) -> None:
    with Trainer(package, 2, threads=1, timeout=3.0) as trainer:
        losses = [trainer.step(batch(0))["loss"]]
        link = trainer._links[1]
        assert isinstance(link, ProcessLink)
        os.kill(link.pid, signal.SIGSTOP)
        losses += [trainer.step(batch(s))["loss"] for s in range(1, STEPS)]
        assert trainer.replaced == 1
        assert trainer._why == "it did not answer for 3 s"
        confirm(trainer, losses, wanted)


@pytest.mark.parametrize("verb", ["grads", "apply"])
def test_an_interrupted_step(package: Path, wanted: Wanted, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between a message and its reply: replies that nobody waited for are dropped, copies that differ are sent
    the state.
    """
    with Trainer(package, 2, threads=1) as trainer:
        losses = [trainer.step(batch(s))["loss"] for s in range(AT)]
        receive, asked = ProcessLink.receive, []

        def interrupted(self: ProcessLink) -> Any:
            asked.append(self)
            if len(asked) == (1 if verb == "grads" else 3):
                raise KeyboardInterrupt
            return receive(self)

        with monkeypatch.context() as m:
            m.setattr(ProcessLink, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trainer.step(batch(AT))
        assert trainer.step_number == (AT if verb == "grads" else AT + 1)
        if verb == "apply":
            losses.append(wanted[0][AT])
        losses += [trainer.step(batch(s))["loss"] for s in range(trainer.step_number, STEPS)]
        assert trainer.replaced == 0
        confirm(trainer, losses, wanted)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_update_that_only_workers_have_made(
    package: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer's own part of it never began, and the next batch has no part for one worker."""
    with Trainer(package, 2, threads=1) as trainer:
        trainer.step(batch(0))
        want = trainer.state

        def ended(*_: Any) -> Any:
            raise error

        with monkeypatch.context() as m:
            m.setattr(Replica, "answer", ended)  # of the trainer's own copy, in this process
            with pytest.raises(error):
                trainer.step(batch(1))
        for name, a in trainer.state.items():
            np.testing.assert_array_equal(a, want[name], err_msg=name)
        trainer.step(batch(2, 1))
        b = {n: a for n, a in batch(99).items() if n != "lr"}
        own = trainer._replica.answer("grads", 2, b)
        for reply in trainer._exchange("grads", [trainer._transport.share(b)] * 2):
            assert reply is not None
            for name, a in own.arrays.items():
                np.testing.assert_array_equal(reply.arrays[name], a, err_msg=name)
        assert trainer.replaced == 0


def test_an_interrupted_step_whose_messages_are_larger_than_a_socket_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither reply is read, and the next parts are as large: each side would wait for the other to read."""
    side, rng = 512, np.random.default_rng(20261206)
    w = li.weight("w", rng.uniform(-0.5, 0.5, (side, side)).astype(np.float32))
    x = li.input("x", ("B", side))
    graph = li.Graph("large", [x], {"loss": li.mean(li.tanh(li.dense(x, w)))})
    program = li.train_step(graph, loss="loss", optimizer=li.sgd(0.1), grads=True)
    path = li.export(program, tmp_path / "large.lirpkg", ["cpu:host"])
    a = rng.standard_normal((1024, side)).astype(np.float32)

    def interrupted(self: ProcessLink) -> Any:
        raise KeyboardInterrupt

    with Trainer(path, 2, threads=1, timeout=20.0) as trainer:
        with monkeypatch.context() as m:
            m.setattr(ProcessLink, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trainer.step(x=a)
        found = trainer.step(x=a)["loss"]
        assert (trainer.step_number, trainer.replaced) == (1, 0)
    with Trainer(path, 2, threads=1) as trainer:
        assert trainer.step(x=a)["loss"] == found


@pytest.mark.parametrize("sent", [0, 1], ids=["before all workers", "between two"])
def test_an_interrupted_load_of_a_state_of_the_same_step(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    """Workers with the old weights are at the right step: they take the new ones before anything else."""
    file, send, seen = tmp_path / "other.safetensors", ProcessLink.send, []
    with Trainer(package, 2, threads=1) as trainer:
        trainer.step(batch(9))
        trainer.save_state(file)
        loss = trainer.step(batch(1))["loss"]
        want = trainer.state

    def interrupted(self: ProcessLink, what: str, step: int, shared: Any) -> None:
        seen.append(what)
        if len(seen) > sent:
            raise KeyboardInterrupt
        send(self, what, step, shared)

    with Trainer(package, 2, threads=1) as trainer:
        trainer.step(batch(0))
        with monkeypatch.context() as m:
            m.setattr(ProcessLink, "send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trainer.load_state(file)
        assert trainer.step(batch(1))["loss"] == loss
        for name, a in trainer.state.items():
            np.testing.assert_array_equal(a, want[name], err_msg=name)
        assert trainer.replaced == 0


def test_a_worker_that_dies_always_is_an_error(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send: Send = ProcessLink.send

    def fatal(self: ProcessLink, what: str, step: int, shared: Any) -> None:
        if what == "grads":
            kill(self)
        send(self, what, step, shared)

    with Trainer(package, 2, threads=1) as trainer:
        trainer.step(batch(0))
        with monkeypatch.context() as m:
            m.setattr(ProcessLink, "send", fatal)
            with pytest.raises(li.DeviceError, match="worker 0 was lost 5 times in one step: signal 9 ended it"):
                trainer.step(batch(1))
        assert trainer.step_number == 1
        trainer.step(batch(1))  # it goes on
        assert trainer.step_number == 2


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def confirm_ended(workers: list[int]) -> None:
    end = time.monotonic() + 30
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(alive, workers))


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")


@needs_proc
def test_a_trainer_that_is_killed_is_resumed_from_its_checkpoint(package: Path, wanted: Wanted, tmp_path: Path) -> None:
    """Its workers end with it; the next one goes on at the step of the file, and ends with the same bits."""
    script = ROOT / "tests" / "machine" / "trainer_child.py"
    words = [sys.executable, str(script), str(package), str(tmp_path / "c.safetensors"), str(STEPS)]
    losses: dict[int, str] = {}
    for kill_after in (2, 2, None):
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())
        assert child.stdout is not None
        workers = [int(w) for w in child.stdout.readline().split()[1:]]
        assert len(workers) == 2
        for n, line in enumerate(child.stdout, 1):
            step, loss = line.split()
            assert losses.setdefault(int(step), loss) == loss  # a step that is done again is the same
            if n == kill_after:
                child.kill()
                break
        child.stdout.close()
        child.wait(60)
        confirm_ended(workers)
    assert list(losses) == list(range(STEPS))
    assert [losses[s] for s in range(STEPS)] == [a.tobytes().hex() for a in wanted[0]]


@needs_proc
def test_workers_end_with_a_trainer_that_has_forked(package: Path, tmp_path: Path) -> None:
    """Their sockets stay open in its copy, as in a data loader's processes."""
    script = ROOT / "tests" / "machine" / "trainer_child.py"
    words = [sys.executable, str(script), str(package), str(tmp_path / "c.safetensors"), "1000", "fork"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())
    assert child.stdout is not None
    copy = int(child.stdout.readline())
    try:
        workers = [int(w) for w in child.stdout.readline().split()[1:]]
        assert len(workers) == 2
        child.kill()
        child.wait(60)
        confirm_ended(workers)
        assert alive(copy)
    finally:
        os.kill(copy, signal.SIGKILL)
        child.stdout.close()


def test_a_worker_takes_no_other_package(package: Path, wanted: Wanted, tmp_path: Path) -> None:
    """The file is replaced while it is used: a worker that starts then refuses it, and takes the old one again."""
    path, other, copy = tmp_path / "now.lirpkg", classifier(tmp_path, mask=True), tmp_path / "copy"
    copy.write_bytes(package.read_bytes())
    os.replace(copy, path)
    with Trainer(path, 2, threads=1) as trainer:
        losses = [trainer.step(batch(s))["loss"] for s in range(AT)]
        os.replace(other, path)
        link = trainer._links[1]
        assert isinstance(link, ProcessLink)
        kill(link)
        for _ in range(2):
            with pytest.raises(li.PackageError, match=r"worker 1: .*: it is another package than the one that the tr"):
                trainer.step(batch(AT))
        path.unlink()
        with pytest.raises(li.PackageError, match=r"worker 1: .*No such file"):
            trainer.step(batch(AT))
        copy.write_bytes(package.read_bytes())
        os.replace(copy, path)
        losses += [trainer.step(batch(s))["loss"] for s in range(AT, STEPS)]
        confirm(trainer, losses, wanted)
