"""Runs of `li.fit` over the classifier of fit_model.py that are stopped and go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from fit_model import batches, model

import lstm_ir as li

EPOCHS, COUNT = 4, 5


def with_all_state() -> li.Program:
    """With a plateau, an accumulation over two batches and dropout-free evaluation: all state that there is."""
    rate = li.schedules.plateau(li.schedules.warmup(4, 0.1), 0.5, 0)
    return model(li.adam(rate), accumulate=2).only("train", "evaluate", "plateau")


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
