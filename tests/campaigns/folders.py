"""Readers and writers at places that a file system can be bad at: each succeeds, or raises the error that it promises.

After a writer that failed the old file is whole, and nothing is beside it. As root the trials run as another user, and
some of the places (`bad_places.py`) are made by root.
`python tests/campaigns/folders.py --seconds 60 [--seed S] [--trial K]`
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import bad_places
import campaign
import click
import numpy as np

import lstm_ir as li
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.compile.cache import Cache
from lstm_ir.backends.files import npy, state_file
from lstm_ir.backends.files.parameters import read_weights, write_irpa
from lstm_ir.cli import files, group

NOBODY = 65534
ARRAYS = {"w": np.arange(20_000, dtype=np.float32)}
ADD = """module @m { func.func @main(%a: tensor<7xf32>) -> tensor<7xf32> {
  %0 = stablehlo.add %a, %a : tensor<7xf32>
  return %0 : tensor<7xf32> } }"""
Act = Callable[[str], Any]


@cache
def graph() -> li.Graph:
    x = li.input("x", (20_000,))
    return li.Graph("g", [x], {"y": x + li.weight("w", ARRAYS["w"])})


@cache
def good(suffix: str) -> bytes:
    """The bytes of a file of this kind."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/a{suffix}"
        WRITERS[suffix](path)
        if suffix in READERS:  # imports what another user may not read
            READERS[suffix](path)
        return Path(path).read_bytes()


def dump(path: str) -> None:
    """The folder of reproducers: `path` stands for it."""
    os.environ["LSTM_IR_DUMP"] = path
    try:
        compiler.run("module {", [], name="m", target="t", timeout=60)
    except li.CompileError as e:
        assert "reproducer" in str(e) or not path
    finally:
        del os.environ["LSTM_IR_DUMP"]


def scratch(path: str) -> None:
    """The folder of temporary files: `path` stands for it."""
    before, tempfile.tempdir = tempfile.tempdir, path
    try:
        compiler.run(ADD, ["--compile-to=input"], name="m", target="t", timeout=60)
    finally:
        tempfile.tempdir = before


def store(path: str) -> None:
    """The folder of the cache: without one it works, and says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = Cache(Path(path))
        kept.put("a", b"data" * 99)
        assert kept.get("a") in (None, b"data" * 99)


def command_line(path: str) -> None:
    """A code of 0, 1 or 2, whatever happens; no fault of its own."""
    code = group.run(["run", path])
    assert code in (0, 1, 2)


WRITERS: dict[str, Act] = {
    ".lirpkg": lambda p: li.export(graph(), p),
    ".safetensors": lambda p: state_file.write(p, ARRAYS),
    ".npz": lambda p: files.write_arrays(Path(p), ARRAYS),
    ".npy": lambda p: files.write_arrays(Path(p), ARRAYS),
    ".lir": lambda p: files.write_text(p, str(graph())),
    ".irpa": lambda p: write_irpa(p, ARRAYS),
}
READERS: dict[str, Act] = {
    ".lirpkg": lambda p: li.load(p).close(),
    ".safetensors": state_file.read,
    ".npz": read_weights,
    ".npy": lambda p: npy.read(Path(p)),
    ".lir": files.read_program,
}
OTHERS: dict[str, Act] = {"dump": dump, "scratch": scratch, "cache": store, "command line": command_line}
# Of the library, errors of the project; the command line makes one message of an OSError that names the file.
STRICT = {".lirpkg", ".safetensors", "dump", "scratch", "cache", "command line"}
AS_ROOT = {"dump", "scratch", "command line"}  # which start programs, or import what another user may not read


@contextmanager
def as_another(wanted: bool) -> Iterator[None]:
    """Root may write everywhere: as another user then."""
    if not wanted or os.geteuid() != 0:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if size else before[0], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def prepare() -> None:
    """Files to copy, and mounts that are gone with this process."""
    os.environ["LSTM_IR_CACHE"] = "off"
    for word in WRITERS:
        good(word)
    MOUNTS.append(bad_places.private_mounts())


MOUNTS: list[bool] = []  # whether root may make places, once it is known


def trial(rng: np.random.Generator, number: int) -> str:
    """One reader or writer at one place, on a disk with room or without."""
    group_of = str(rng.choice(["read", "write", "write", "other"]))
    acts = {"read": READERS, "write": WRITERS, "other": OTHERS}[group_of]
    kind = str(rng.choice(list(acts)))
    size = int(rng.choice([0, 0, 1, 5000, 70_000])) if group_of == "write" else 0
    name = str(rng.choice([*bad_places.BY_ANYBODY, *bad_places.BY_ROOT]))
    return once(group_of, kind, name, size)


def once(group_of: str, kind: str, name: str, size: int) -> str:
    """The act of this group and kind at the place of this name; no file grows beyond `size`, where it is not 0."""
    acts = {"read": READERS, "write": WRITERS, "other": OTHERS}[group_of]
    if name in bad_places.BY_ROOT and not MOUNTS[0]:
        return "not root"
    if name == "null character" and kind in OTHERS:
        return "no argument and no variable of a process holds a null character"
    if name == "pipe" and group_of == "write":
        return "a writer into a pipe waits for its reader"
    if os.geteuid() == 0:
        Path.cwd().chmod(0o755)
    start, root = Path.cwd(), Path(tempfile.mkdtemp(dir=Path.cwd()))
    (root / "scratch").mkdir()
    if os.geteuid() == 0:
        os.chown(root, NOBODY, NOBODY)
        os.chown(root / "scratch", NOBODY, NOBODY)
    suffix, data = (kind, good(kind)) if kind in WRITERS else ("", b"old")
    try:
        path = bad_places.BY_ROOT[name](root, suffix, data) if name in bad_places.BY_ROOT else ""
        with as_another(kind not in AS_ROOT):
            if name in bad_places.BY_ANYBODY:
                path = bad_places.BY_ANYBODY[name](root, suffix, data)
            return f"{group_of}: {_tried(acts[kind], kind, path, name, size, root)}"
    except bad_places.NotHereError:
        return "not on this file system"
    finally:
        os.chdir(start)
        bad_places.undone(root)
        shutil.rmtree(root, ignore_errors=True)


def _tried(act: Act, kind: str, path: str, name: str, size: int, root: Path) -> str:
    before = _look(root)
    what = f"{kind} at {name}, room {size or 'enough'}"
    scratch_before, tempfile.tempdir = tempfile.tempdir, str(root / "scratch")
    try:
        with room(size):
            act(path)
        outcome = "done"
    except (li.LstmIrError, click.UsageError):
        outcome = "refused"
    except OSError as e:
        if kind in STRICT or not isinstance(e.filename, str):
            raise AssertionError(f"{what}: {e!r}") from e
        outcome = "refused"
    except Exception as e:
        raise AssertionError(f"{what}: {e!r}") from e
    finally:
        tempfile.tempdir = scratch_before
    after = _look(root)
    hidden = [n for n in after if "lstm-ir-" in n]
    assert not hidden, f"{what}: left {hidden}"
    if outcome == "refused":
        assert after == before, f"{what}: {set(after.items()) ^ set(before.items())}"
    if outcome == "done" and name == "link":
        assert Path(path).is_symlink()
    return outcome


def _look(root: Path) -> dict[str, tuple[int, int]]:
    """Every file below `root`: its mode, and a number that its bytes have."""
    found: dict[str, tuple[int, int]] = {}
    for folder, _, names in os.walk(root):
        for n in names:
            p = Path(folder) / n
            mode, data = 0, b""
            with suppress(OSError):
                mode, size = p.lstat().st_mode, p.lstat().st_size
                data = p.read_bytes() if stat.S_ISREG(mode) and size < 1 << 22 else str(size).encode()
            found[str(p)] = (mode, hash(data))
    return found


if __name__ == "__main__":
    campaign.main(trial, seconds=60, prepare=prepare, undo=bad_places.all_undone)
