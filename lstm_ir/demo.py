"""The demo: an LSTM that reads handwritten digits row by row, on every device that is here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import lstm_ir as li
from lstm_ir.data import digits, digits_lstm
from lstm_ir.errors import LstmIrError
from lstm_ir.location import Loc, at

if TYPE_CHECKING:
    from lstm_ir.backends.executable import Executable

Array = np.ndarray[Any, Any]
LEAST = 0.95  # accuracy below it is a fault
TOLERANCE = 1e-4  # logits are of size 10: float32 roundings of 8 steps and a sum over 64
SECONDS = 1.0  # spent on each latency


@dataclass(frozen=True)
class Score:
    """What one executable did on the held-out images."""

    target: str
    accuracy: float
    error: float  # largest difference of a logit to the NumPy meaning
    same: int  # digits that agree with the NumPy meaning
    of: int
    one_ms: float  # median of calls with one image
    all_ms: float  # median of calls with all images

    def __str__(self) -> str:
        return (
            f"accuracy {self.accuracy:.1%}, {self.same} of {self.of} digits as the NumPy meaning, "
            f"largest difference {self.error:.1e}; "
            f"{self.one_ms:.2f} ms for one image, {self.all_ms:.1f} ms for {self.of}"
        )


def classifier() -> li.Graph:
    """Logits [B, 10] and the digit [B] from images [B, 8, 8], pixels 0 to 16, read row by row."""
    with at(Loc(__file__, classifier.__code__.co_firstlineno)):  # the user's line is this one
        return _classifier()


def _classifier() -> li.Graph:
    w = {name: li.weight(name, array) for name, array in digits_lstm().items()}
    images = li.input("images", ("B", 8, 8))
    rows = li.transpose(images / 16.0, (1, 0, 2))  # [T=8, B, 8]
    _, h_n, _ = li.lstm(rows, w["lstm/w_ih"], w["lstm/w_hh"], w["lstm/b"])
    logits = h_n[0] @ li.transpose(w["head/w"], (1, 0)) + w["head/b"]
    return li.Graph("digits", [images], {"logits": logits, "digit": li.argmax(logits, axis=1)})


@dataclass(frozen=True)
class Held:
    """The held-out images, their labels, and what the NumPy meaning says."""

    images: Array
    labels: Array
    logits: Array
    digit: Array

    @classmethod
    def of(cls, graph: li.Graph) -> Held:
        """Interpret the graph on the held-out part."""
        data = digits()
        images = data.test_images.astype(np.float32)
        out = li.interpret(graph, images=images)
        return cls(images, data.test_labels, out["logits"], out["digit"])

    @property
    def accuracy(self) -> float:
        """Of the NumPy meaning."""
        return float((self.digit == self.labels).mean())


def score(exe: Executable, held: Held, target: str, seconds: float = SECONDS) -> Score:
    """Run the executable on the held-out part; LstmIrError if it is wrong."""
    out = exe(images=held.images)
    accuracy = float((out["digit"] == held.labels).mean())
    error = float(np.abs(out["logits"] - held.logits).max())
    same = int((out["digit"] == held.digit).sum())
    if not (accuracy > LEAST and error < TOLERANCE):
        raise LstmIrError(
            f"demo on {target}: accuracy {accuracy:.1%}, largest difference to the NumPy meaning "
            f"{error:.1e}; expected more than {LEAST:.0%} and less than {TOLERANCE:.0e}"
        )
    count = len(held.images)
    one = latency(lambda k: exe(images=held.images[k % count : k % count + 1]), seconds)
    whole = latency(lambda k: exe(images=np.roll(held.images, k, axis=0)), seconds)
    return Score(target, accuracy, error, same, count, one, whole)


def latency(call: Callable[[int], Any], seconds: float) -> float:
    """Median milliseconds of calls with changing input, at least three."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    call(0)
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call(len(times) + 1)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def devices() -> tuple[list[str], dict[str, str]]:
    """Kinds of target that run here, and why the others do not."""
    from lstm_ir.backends.devices import available

    found = available()
    return [a.kind for a in found if a.devices], {a.kind: a.reason for a in found if not a.devices}


def run(say: Callable[[str], None], package: Path, seconds: float = SECONDS) -> list[Score]:
    """The whole demo: compile, run, write the package, run it again from there."""
    graph = classifier()
    held = Held.of(graph)
    say(f"{len(held.labels)} held-out images of handwritten digits, 8 rows of 8 pixels each")
    say(f"NumPy meaning: accuracy {held.accuracy:.1%}")
    here, absent = devices()
    scores = []
    for target in here:
        exe = li.compile(graph, target, options={"cache": False})
        say(f"{target}: compiled in {exe.report.compile_seconds:.2f} s for {exe.target}")
        scores.append(score(exe, held, target, seconds))
        say(f"{target}: {scores[-1]}")
        exe.close()
    for target, reason in absent.items():
        say(f"{target}: not run: {reason}")
    li.export(graph, package, targets=here)
    say(f"package: {package.name}, {package.stat().st_size} bytes for {', '.join(here)}")
    for target in here:
        loaded = li.load(package, device=target)
        scores.append(score(loaded, held, f"package on {target}", seconds))
        say(f"package on {target}: {scores[-1]}")
        loaded.close()
    return scores
