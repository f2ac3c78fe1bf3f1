"""The frame of campaigns: random trials by the thousand, run for a time that the caller chooses.

`python tests/campaigns/NAME.py --seconds N --seed S [--from K] [--to L]` runs trials K, K+1, … and ends with one
line of counts by outcome, and with code 1 if there was a defect; `--trial K` repeats one trial in this process.
A first trial that is not over after N seconds gets as many again; that none ends in them is a defect, too.

A script holds a function `trial(rng, number)`, which returns the outcome in a word or two, or that and a number of
calls, which are added up, and raises where it finds a defect; it ends with `campaign.main(trial, seconds=30)`.
Everything random comes from `rng`, which is made from the seed and the number alone. Trials run one after another in
a child process, in a temporary folder: one that hangs, or ends the process, is a defect too, and the next starts in a
new process.

A script writes `import campaign`, which the formatter puts before every `from …`: then the rooms of the tests
can be imported by bare names, as under pytest.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

sys.path += [p for p in (str(Path(__file__).parents[1] / "machine"),) if p not in sys.path]

from paths import ROOT, rooms

sys.path += [p for p in map(str, [*rooms(), ROOT]) if p not in sys.path]

Trial = Callable[[np.random.Generator, int], str | tuple[str, int]]


@dataclass(frozen=True)
class Done:
    """A trial that ended: its outcome, or what was wrong."""

    number: int
    outcome: str | None
    defect: str = ""
    calls: int = 0


def _nothing(*_: object) -> None:
    """What a script prepares and takes back, where it does not say."""


def main(
    trial: Trial,
    *,
    seconds: float,
    memory: int | None = None,
    prepare: Callable[[], object] = _nothing,
    undo: Callable[[Path], object] = _nothing,
) -> NoReturn:
    """Run the campaign of the script that calls, as its command line says.

    seconds: the time limit of one trial. memory: bytes of address space of the process that runs them.
    prepare: called once in that process, before the first trial's time begins.
    undo: takes back, before the trials' folder is removed, what a trial that was cut off would leave undeletable in it.
    """
    options = _options()
    if options.trial is not None:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            prepare()
            outcome = trial(_generator(options.seed, options.trial), options.trial)
            print(outcome if isinstance(outcome, str) else f"{outcome[0]}, {outcome[1]} calls")
        sys.exit(0)
    if options.worker is not None:
        prepare()
        _work(trial, options.seed, options.first, options.worker, memory)
    sys.exit(_run(options.seed, options.first, options.last, options.seconds, seconds, undo))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long trials are started")
    parser.add_argument("--seed", type=int, default=today(), help="by default the date, as in 20261123")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="K", help="the number of the first trial")
    parser.add_argument("--to", dest="last", type=int, default=sys.maxsize, metavar="L", help="and of the last")
    parser.add_argument("--trial", type=int, metavar="K", help="this trial alone, in this process")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)  # the pipe to the process that counts
    return parser.parse_args()


def today() -> int:
    """The date as a number, as in 20261123: the seed of the day."""
    return int(datetime.date.today().strftime("%Y%m%d"))


def _generator(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, number])


def _command(seed: int) -> str:
    return f"python {os.path.relpath(sys.argv[0], ROOT)} --seed {seed}"


@contextlib.contextmanager
def _folder(undo: Callable[[Path], object]) -> Iterator[str]:
    """A temporary folder that no file in it keeps from going, nor from an exit status of 0.

    `TemporaryDirectory(ignore_cleanup_errors=True)` of Python 3.11 raises PermissionError at an immutable file.
    """
    folder = tempfile.mkdtemp(prefix="campaign-")
    try:
        yield folder
    finally:
        undo(Path(folder))
        shutil.rmtree(folder, ignore_errors=True)


def _run(seed: int, first: int, last: int, seconds: float, limit: float, undo: Callable[[Path], object]) -> int:
    """The exit status: 1 after a defect."""
    for interruption in (signal.SIGINT, signal.SIGTERM):  # ends with the counts so far, in the background too
        signal.signal(interruption, signal.default_int_handler)
    counts: Counter[str] = Counter()
    defects, calls, number = 0, 0, first
    with _folder(undo) as folder, contextlib.suppress(KeyboardInterrupt):
        for done in _trials(seed, first, seconds, limit, folder):
            number = done.number + 1
            calls += done.calls
            if done.outcome is not None:
                counts[done.outcome] += 1
            else:
                defects += 1
                print(f"defect: {_command(seed)} --trial {done.number}\n{done.defect}", flush=True)
            if number > last:
                break
        if number == first:
            defects += 1
            print(f"defect: {_command(seed)} --from {first}\n  no trial ended in {2 * seconds:g} s", flush=True)
    found = [f"{n} {outcome}" for outcome, n in counts.most_common()]
    found += [f"{calls} calls"] if calls else []
    found.append("1 defect" if defects == 1 else f"{defects} defects")
    print(f"{Path(sys.argv[0]).stem}: seed {seed}, trials {first}..{number - 1}: {', '.join(found)}", flush=True)
    return 1 if defects else 0


def _trials(seed: int, first: int, seconds: float, limit: float, folder: str) -> Iterator[Done]:
    """Trials for so many seconds, in one process after another; twice as many where the first takes longer."""
    start = time.monotonic()
    end = start + 2 * seconds
    while time.monotonic() < end:
        worker = _Worker(seed, first, folder)
        try:
            while (left := end - time.monotonic()) > 0:
                done = worker.next(first, limit, left)
                if done is None:
                    break
                yield done
                first += 1
                end = start + seconds
                if worker.ended:
                    break
        finally:
            worker.stop()


class _Worker:
    """The process that runs trials, from the first that is asked for on."""

    def __init__(self, seed: int, first: int, folder: str) -> None:
        self.out, pipe = os.pipe()
        words = ["--seed", seed, "--from", first, "--worker", pipe]
        command = [sys.executable, os.path.abspath(sys.argv[0]), *map(str, words)]
        environment = {**os.environ, "TMPDIR": folder, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.child = subprocess.Popen(
            command, cwd=folder, env=environment, pass_fds=[pipe], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(pipe)
        self.lines: list[bytes] = []
        self.rest = b""
        self.ready = self.ended = False

    def next(self, number: int, limit: float, left: float) -> Done | None:
        """The trial of this number once it is over; None where the time that is left is, before that."""
        now = time.monotonic()
        end, late = now + left, now + limit
        while not self.lines:
            wait = min(end, late) if self.ready else end  # what a script imports is not its first trial's time
            if not select.select([self.out], [], [], max(0.0, wait - time.monotonic()))[0]:
                return None if wait == end else self._hangs(number, limit)
            data = os.read(self.out, 1 << 16)
            if not data:
                return self._died(number)
            *self.lines, self.rest = (self.rest + data).split(b"\n")
            if not self.ready:
                self.ready, late = True, time.monotonic() + limit
                del self.lines[0]
        done = Done(**json.loads(self.lines.pop(0)))
        assert done.number == number
        return done

    def _hangs(self, number: int, limit: float) -> Done:
        self.ended = True
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(signal.SIGABRT)  # faulthandler writes where it is
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(2)
        return Done(number, None, f"  runs for more than {limit:g} s")

    def _died(self, number: int) -> Done:
        self.ended = True
        code = self.child.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return Done(number, None, f"  ended its process: {how}")

    def stop(self) -> None:
        """End the process and those that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        os.close(self.out)


def _work(trial: Trial, seed: int, number: int, pipe: int, memory: int | None) -> NoReturn:
    """Run trials without end; the process that counts ends this one."""
    faulthandler.enable()
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.write(pipe, b"ready\n")
    while True:
        try:
            outcome = trial(_generator(seed, number), number)
            word, calls = (outcome, 0) if isinstance(outcome, str) else outcome
            done = {"number": number, "outcome": word, "calls": calls}
        except Exception:
            done = {"number": number, "outcome": None, "defect": traceback.format_exc(limit=-8)}
        os.write(pipe, json.dumps(done).encode() + b"\n")
        number += 1
