"""What `lstm_ir.ray.Trainer` says where Ray fails; a stand-in plays Ray, except in one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import local_ray
import numpy as np
import pytest
from trained_models import classifier

import lstm_ir as li
from lstm_ir.parallel.links import LostError
from lstm_ir.parallel.ray_actors import ActorLink, Actors


class StandInError(Exception):
    """Ray's own errors."""


class LateError(StandInError):
    """Ray's error of a time limit."""


class StandIn:
    """Of Ray, what links and transports use."""

    exceptions = SimpleNamespace(GetTimeoutError=LateError, RayError=StandInError)

    def __init__(self, error: Exception, *, gone: bool = False) -> None:
        self.error, self.gone = error, gone

    def get(self, *_: object, **__: object) -> Any:
        raise self.error

    put = get

    def cluster_resources(self) -> dict[str, float]:
        if self.gone:
            raise StandInError("there is no cluster")
        return {"CPU": 3.0, "memory": 1e9}

    def available_resources(self) -> dict[str, float]:
        return {"memory": 1e9}


@pytest.mark.parametrize(
    ("ray", "said"),
    [
        (StandIn(LateError()), "it did not answer for 7 s; the cluster has 3 processors, 0 of them free"),
        (StandIn(LateError(), gone=True), "it did not answer for 7 s"),
        (StandIn(StandInError("The actor died.\nIts process was killed.")), "The actor died."),
    ],
    ids=["late", "gone", "died"],
)
def test_why_a_worker_is_lost(ray: Any, said: str) -> None:
    with pytest.raises(LostError) as caught:
        ActorLink(ray, None, 7.0).receive()
    assert str(caught.value) == said


def transport(ray: Any, **more: Any) -> Actors:
    """One that is connected to the stand-in."""
    made = Actors.__new__(Actors)
    made._ray, made._timeout, made._opening = ray, 7.0, None  # type: ignore[assignment]
    made._kind = SimpleNamespace(**more)
    return made


def test_a_full_store_is_an_error_of_the_project() -> None:
    full = transport(StandIn(StandInError("The object store is full")))
    with pytest.raises(li.DeviceError, match=r"Ray's object store does not take .*: The object store is full"):
        full.share({"x": np.zeros(3)})


def test_an_actor_that_cannot_be_made_is_an_error_of_the_project() -> None:
    def refuse(_: object) -> Any:
        raise StandInError("Ray has not been started yet.")

    with pytest.raises(li.DeviceError, match=r"an actor cannot be started: .*Ray has not been started yet\."):
        transport(StandIn(StandInError()), remote=refuse).start()


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with local_ray.running(2) as running:
        yield running


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore")
def test_more_processors_than_there_are(ray: Any, tmp_path: Path) -> None:
    """Ray waits for machines that may come; the trainer waits for `timeout`, then says which worker and why."""
    from lstm_ir.ray import Trainer

    said = r"worker 0 was lost \d times while it started: it did not answer for 1 s; the cluster has 2 processors, 2 of"
    with pytest.raises(li.DeviceError, match=said):
        Trainer(classifier(tmp_path), 2, num_cpus=64, timeout=1.0)
