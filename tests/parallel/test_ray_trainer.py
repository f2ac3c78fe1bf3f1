"""`lstm_ir.ray.Trainer`: actors as workers, gradients through Ray's object store. Ray takes seconds to start."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import local_ray
import numpy as np
import pytest
from child import python
from trained_models import batch, classifier

import lstm_ir as li
from lstm_ir.parallel.ray_actors import ActorLink
from lstm_ir.ray import Trainer

STEPS = 6
ray_tests = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with local_ray.running(3) as running:
        yield running


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("raytrainer"))


def process_of(ray: Any, trainer: Trainer, i: int) -> int:
    """The process of an actor."""
    link = trainer._links[i]
    assert isinstance(link, ActorLink)
    return int(ray.get(link._actor.__ray_call__.remote(lambda _: os.getpid())))


class TestWithRay:
    pytestmark = ray_tests

    @pytest.mark.parametrize("workers", [2, 3])
    def test_losses_are_those_of_one_process(self, ray: Any, package: Path, workers: int) -> None:
        whole = li.load(package)
        with Trainer(package, workers) as trainer:
            for s in range(STEPS):
                found, want = trainer.step(batch(s)), whole.entries["train"](batch(s))
                np.testing.assert_allclose(found["loss"], want["loss"], atol=1e-5)
            for name, a in trainer.state.items():
                np.testing.assert_allclose(a, whole.state[name], atol=1e-5, err_msg=name)
            assert len({process_of(ray, trainer, i) for i in range(workers)} | {os.getpid()}) == workers + 1

    @pytest.mark.parametrize("verb", ["grads", "apply"])
    @pytest.mark.parametrize("when", ["before", "during", "after"])
    def test_an_actor_that_is_killed(
        self, ray: Any, package: Path, verb: str, when: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By the system's signal, in each phase: the result is that of a run that nobody disturbs, to the bit."""
        with Trainer(package, 2) as trainer:
            want = [trainer.step(batch(s))["loss"] for s in range(STEPS)]
            state = trainer.state
        with Trainer(package, 2) as trainer:
            victim, link = process_of(ray, trainer, 1), trainer._links[1]
            send, receive, last = ActorLink.send, ActorLink.receive, [("", 0)]

            def killed(self: ActorLink, what: str, step: int, shared: Any) -> None:
                now = self is link and (what, step) == (verb, 2)
                if now and when == "before":
                    os.kill(victim, signal.SIGKILL)
                if now and when == "during":
                    os.kill(victim, signal.SIGSTOP)
                send(self, what, step, shared)
                if now and when == "during":
                    time.sleep(0.2)
                    os.kill(victim, signal.SIGKILL)
                if self is link:
                    last[0] = (what, step)

            def received(self: ActorLink) -> Any:
                reply = receive(self)
                if when == "after" and self is link and last[0] == (verb, 2):
                    os.kill(victim, signal.SIGKILL)
                return reply

            monkeypatch.setattr(ActorLink, "send", killed)
            monkeypatch.setattr(ActorLink, "receive", received)
            assert [trainer.step(batch(s))["loss"] for s in range(STEPS)] == want
            assert trainer.replaced == 1
            assert trainer.step_number == STEPS
            for name, a in trainer.state.items():
                np.testing.assert_array_equal(a, state[name])

    def test_an_actor_that_hangs(self, ray: Any, package: Path) -> None:
        with Trainer(package, 2, timeout=5.0) as trainer:
            trainer.step(batch(0))
            os.kill(process_of(ray, trainer, 0), signal.SIGSTOP)
            trainer.step(batch(1))
            assert trainer.replaced == 1
            assert trainer.step_number == 2

    def test_errors_of_actors(self, ray: Any, package: Path, tmp_path: Path) -> None:
        with Trainer(package, 2) as trainer:
            bad = batch(0)
            bad["x"] = np.full_like(bad["x"], np.nan)
            with pytest.raises(li.ValueRangeError, match="worker 0: grads: loss is nan"):
                trainer.step(bad)
            assert trainer.step_number == 0
        with pytest.raises(li.PackageError, match="No such file"):
            Trainer(tmp_path / "none.lirpkg")

    def test_a_package_that_actors_do_not_find(self, ray: Any, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from lstm_ir.parallel import ray_actors

        start = ray_actors.Actors.start

        def elsewhere(self: ray_actors.Actors) -> ActorLink:
            self._opening = self._opening._replace(path="/nowhere.lirpkg")
            return start(self)

        monkeypatch.setattr(ray_actors.Actors, "start", elsewhere)
        with pytest.raises(li.PackageError, match=r"worker 0: /nowhere\.lirpkg: No such file"):
            Trainer(package, 2)

    def test_checkpoints(self, ray: Any, package: Path, tmp_path: Path) -> None:
        file = tmp_path / "c.safetensors"
        with Trainer(package, 2) as trainer:
            want = [trainer.step(batch(s))["loss"] for s in range(4)]
        with Trainer(package, 2, checkpoint=file) as trainer:
            found = [trainer.step(batch(s))["loss"] for s in range(2)]
        with Trainer(package, 2, checkpoint=file, resume=True) as trainer:
            assert trainer.step_number == 2
            assert found + [trainer.step(batch(s))["loss"] for s in range(2, 4)] == want


def test_num_cpus_is_a_number(package: Path) -> None:
    with pytest.raises(li.CallError, match="num_cpus is 'two'; expected a number of processors"):
        Trainer(package, num_cpus="two")  # type: ignore[arg-type]


def test_without_ray_the_message_names_what_to_install(package: Path) -> None:
    code = (
        "import sys\nsys.modules['ray'] = None\nfrom lstm_ir.ray import Trainer\n"
        "try:\n    Trainer(sys.argv[1])\nexcept ImportError as e:\n    print(type(e).__name__, e)\n"
    )
    told = python("-c", code, package).strip()
    assert told == "MissingLibraryError ray is not installed: pip install ray (or 'lstm-ir[ray]')"
