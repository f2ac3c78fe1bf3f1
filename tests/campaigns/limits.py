"""Compiling, loading, reading and writing where the system gives too little: it works, or the project's error says
which limit was met.

Files, processes, memory, lengths of files, a temporary folder that is full or missing; each in a child process.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import campaign
import numpy as np

import lstm_ir as li
from lstm_ir import api
from lstm_ir.backends.files import parameters
from lstm_ir.backends.run import executable, package

Rng = np.random.Generator
SAID = ("ulimit", "disk is full", "temporary directory", "No such file", "no place")
MB = 1 << 20
X = li.input("x", ("T", 3))
A = np.ones((2, 3), np.float32)
GRAPH = li.Graph("g", [X], {"y": li.tanh(X @ li.weight("w", np.ones((3, 3), np.float32)))})


def folder() -> Path:
    """With a package, a weight file and a state file; made once."""
    place = Path("files").absolute()
    if not place.exists():
        child = os.fork()  # the runtime starts threads, which trials have to be free of
        if child == 0:
            place.mkdir()
            os.environ["LSTM_IR_CACHE"] = str(place / "cache")
            li.compile(GRAPH)
            li.export(GRAPH, place / "g.lirpkg")
            np.savez(place / "w.npz", w=np.ones((300, 300), np.float32))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    os.environ["LSTM_IR_CACHE"] = str(place / "cache")
    return place


def compiled(_: Path) -> None:
    li.compile(GRAPH, options={"cache": False})(x=A)


def loaded(files: Path) -> None:
    li.load(files / "g.lirpkg")(x=A)


def lowered(_: Path) -> None:
    li.lower(GRAPH)


def exported(_: Path) -> None:
    li.export(GRAPH, "out.lirpkg")  # compiled before, where the cache can be read


def weights(files: Path) -> None:
    parameters.read_weights(files / "w.npz")


ACTIONS: tuple[Callable[[Path], None], ...] = (compiled, loaded, loaded, loaded, lowered, exported, weights, weights)


def limited(rng: Rng, kind: str) -> str:
    """Put this process under a limit; in words."""
    if kind == "files":
        n = int(rng.integers(0, 24))
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
    elif kind == "processes":
        n = int(rng.integers(0, 16))
        _as_another_user()
        resource.setrlimit(resource.RLIMIT_NPROC, (n, n))
    elif kind == "memory":
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        n = now + int(rng.integers(0, 600 * MB))
        resource.setrlimit(resource.RLIMIT_AS, (n, n))
    elif kind == "length":
        n = int(2 ** rng.uniform(0, 18))
        resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python starts
    elif kind == "full folder":
        n = 4096 * int(2 ** rng.uniform(0, 9))
        os.environ["TMPDIR"] = _small_folder(n)
    else:
        n = 0
        os.environ["TMPDIR"] = os.path.abspath("missing")
        tempfile._candidate_tempdir_list = lambda: [os.environ["TMPDIR"]]  # type: ignore[attr-defined]
    tempfile.tempdir = None
    return f"{kind} {n}"


KINDS = ("files", "processes", "memory", "length", "full folder", "no folder")


def _as_another_user() -> None:
    """root has no limit of processes: another user, who may read what root may (Linux)."""
    if os.getuid() != 0:
        return
    libc, read = ctypes.CDLL(None), (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setresuid(54321, 54321, 54321)
    kept = sum(1 << c for c in read)
    assert libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", kept, kept, kept, 0, 0, 0)) == 0
    for c in read:
        assert libc.prctl(47, 2, c, 0, 0) == 0  # PR_CAP_AMBIENT, raise


def _small_folder(size: int) -> str:
    """A file system of so many bytes, which this process alone sees."""
    place, libc = os.path.abspath("small"), ctypes.CDLL(None, use_errno=True)
    os.makedirs(place, exist_ok=True)
    private, new_namespace = 1 << 18 | 1 << 14, 0x00020000  # MS_PRIVATE | MS_REC, CLONE_NEWNS
    if libc.unshare(new_namespace) or libc.mount(None, b"/", None, private, None):
        raise PermissionError("only root mounts")
    assert libc.mount(b"tmpfs", place.encode(), b"tmpfs", 0, f"size={size}".encode()) == 0
    return place


FIRST = """
import resource
import sys
from pathlib import Path
import numpy as np
import lstm_ir as li

kind, most, file = sys.argv[1:]
limit, now = resource.RLIMIT_NOFILE, 0
if kind == "memory":
    limit, now = resource.RLIMIT_AS, int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(limit, (now + int(most),) * 2)
try:
    li.load(file)(x=np.ones((2, 3), np.float32))
    print("worked")
except li.LstmIrError as e:
    print(f"refused {e}")
"""


def first_use(rng: Rng, kind: str, files: Path) -> str:
    """A package is loaded in a process that has imported the names alone: the rest is imported under the limit."""
    most = int(rng.integers(0, 24)) if kind == "files" else int(rng.integers(0, 60 * MB))
    command = [sys.executable, "-c", FIRST, kind, str(most), str(files / "g.lirpkg")]
    done = subprocess.run(command, capture_output=True, text=True)
    if kind == "memory" and done.returncode == -signal.SIGABRT:
        return "memory aborted"
    word, _, said = done.stdout.partition(" ")
    if done.returncode or (word == "refused" and not any(w in said for w in SAID)):
        raise AssertionError(f"{kind} {most}, first use: status {done.returncode}: {said}{done.stderr}")
    return f"{kind} first {word.strip()}"


def trial(rng: Rng, number: int) -> str:
    kind = KINDS[number % len(KINDS)]
    if kind in ("files", "memory") and rng.random() < 0.4:
        return first_use(rng, kind, folder())
    action = ACTIONS[int(rng.integers(len(ACTIONS)))]
    files = folder()
    out, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        os._exit(_child(rng, kind, action, files, pipe))
    os.close(pipe)
    with open(out, "rb") as f:
        said = f.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return f"{kind} {said}"
    if kind == "memory" and status == -signal.SIGABRT:
        return "memory aborted"  # LLVM, in this process, without memory
    raise AssertionError(f"{kind}, {action.__name__}: status {status}: {said}")


def _child(rng: Rng, kind: str, action: Callable[[Path], None], files: Path, pipe: int) -> int:
    said, code = "worked", 0
    try:
        limit = limited(rng, kind)
    except PermissionError:
        os.write(pipe, b"not tried")
        return 0
    try:
        action(files)
    except li.LstmIrError as e:
        said = "refused"
        if not any(w in str(e) for w in SAID):
            said, code = f"{limit}: the limit is not named: {type(e).__name__}: {e}", 1
    except BaseException:
        said, code = f"{limit}: {traceback.format_exc()}", 1
    os.write(pipe, said.encode())
    return code


if __name__ == "__main__":
    assert all((api, executable, package)), "imported before the limits"
    campaign.main(trial, seconds=60, prepare=folder)
