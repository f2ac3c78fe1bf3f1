"""The demo: an LSTM learns to read handwritten digits, then reads them on every device that is here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import lstm_ir as li
from lstm_ir.backends.run.devices import available
from lstm_ir.data import digits
from lstm_ir.demo.model import EPOCHS, EpochResult, classifier, streamer, train
from lstm_ir.ir.errors import LstmIrError

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Executable

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


@dataclass(frozen=True)
class Streamed:
    """What `step` did with the held-out images, one row of all of them per call."""

    accuracy: tuple[float, ...]  # after each row
    error: float  # largest difference of a logit after the last row to the NumPy meaning
    row_ms: float  # median of calls with one row of one image

    def __str__(self) -> str:
        after = ", ".join(f"{a:.0%}" for a in self.accuracy)
        return (
            f"streamed row by row: accuracy {after}, largest difference {self.error:.1e}; "
            f"{self.row_ms:.2f} ms for one row"
        )


def stream(exe: Executable, held: Held, target: str, seconds: float = SECONDS) -> Streamed:
    """Feed the images row by row to one client, and to two that take turns; LstmIrError if it is wrong."""
    rows = np.split(held.images, held.images.shape[1], axis=1)  # 8 of [N, 1, 8]
    half = len(held.images) // 2
    with exe.session() as all_, exe.session() as first, exe.session() as second:
        outs = [all_.entries["step"](rows=r) for r in rows]
        for r in rows:
            turns = [s.entries["step"](rows=p) for s, p in ((first, r[:half]), (second, r[half:]))]
        logits = np.stack([outs[-1]["logits"], np.concatenate([t["logits"] for t in turns])])
        all_.entries["reset"]()
        row_ms = latency(lambda k: all_.entries["step"](rows=rows[k % len(rows)][:1]), seconds)
    error = float(np.abs(logits - held.logits).max())
    if not error < TOLERANCE:
        raise LstmIrError(
            f"demo on {target}: streamed row by row, the largest difference to the NumPy meaning is "
            f"{error:.1e}; expected less than {TOLERANCE:.0e}"
        )
    return Streamed(tuple(float((o["digit"] == held.labels).mean()) for o in outs), error, row_ms)


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
    found = available()
    return [a.kind for a in found if a.devices], {a.kind: a.reason for a in found if not a.devices}


def run(
    say: Callable[[str], None],
    package: Path,
    seconds: float = SECONDS,
    show: Callable[[EpochResult], None] = lambda _: None,
    epochs: int = EPOCHS,
) -> list[Score]:
    """The whole demo: train, compile, run, write the package, run and stream it from there."""
    start = time.perf_counter()
    seen: list[EpochResult] = []

    def passed(p: EpochResult) -> None:
        seen.append(p)
        show(p)

    trained = train(passed, epochs)
    say(
        f"trained from scratch on the CPU: {seen[-1].steps} steps in "
        f"{time.perf_counter() - start - trained.compile_seconds:.1f} s, after "
        f"{trained.compile_seconds:.1f} s of compiling; loss {seen[0].loss:.3f} -> {seen[-1].loss:.3f}"
    )
    graph = classifier(trained.weights)
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
    li.export(streamer(trained.weights), package, targets=here)
    say(f"package: {package.name}, {package.stat().st_size} bytes for {', '.join(here)}")
    for target in here:
        loaded = li.load(package, device=target)
        scores.append(score(loaded, held, f"package on {target}", seconds))
        say(f"package on {target}: {scores[-1]}")
        say(f"package on {target}: {stream(loaded, held, target, seconds)}")
        loaded.close()
    return scores
