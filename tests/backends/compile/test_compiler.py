"""The compiler in its child process, and the cache: faults, time limits, other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_compiler import ADD, REFUSED, fake

import lstm_ir as li
from lstm_ir.backends.compile import cache as caching
from lstm_ir.backends.compile import child as children
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.compile.cache import Cache, folder, key
from lstm_ir.backends.compile.compiler import compile_mlir
from lstm_ir.backends.compile.compiler_errors import CompilerRefusedError
from lstm_ir.backends.compile.phases import Checks
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.targets.target import Target
from lstm_ir.ir.errors import CompileError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("LSTM_IR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, which must be empty again at the end."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


def test_error_names_the_users_line(store: Path, scratch: Path) -> None:
    with pytest.raises(CompileError) as e:
        compile_mlir(REFUSED, resolve("cpu"), name="tagger")
    lines = str(e.value).splitlines()
    assert lines[0].startswith("tagger: the compiler refused the module, target cpu")
    assert lines[1] == "  at model.py:78"
    assert lines[2].startswith("  IREE says: failed to legalize operation 'stablehlo.custom_call'")
    assert not list(store.glob("*.vmfb"))


def test_syntax_error(store: Path, scratch: Path) -> None:
    with pytest.raises(CompileError, match=r"bad: the compiler refused the module, target .*\n  IREE says: expected"):
        compile_mlir("module {", resolve("cpu"), name="bad")


def test_crash_is_an_error(store: Path, scratch: Path) -> None:
    flags = ("--iree-hal-target-device=vulkan", "--iree-vulkan-target=bogus")
    with pytest.raises(CompileError, match=r"m: the compiler crashed \(SIG"):
        compile_mlir(ADD, Target(resolve("vulkan").info, flags, ()), name="m")


def test_exit_without_a_word(store: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, "exit 1\n")
    with pytest.raises(CompileError, match="ended with exit status 1 and wrote no module"):
        compile_mlir(ADD, resolve("vulkan"), name="m")
    fake(tmp_path, monkeypatch, "exit 0\n")
    with pytest.raises(CompileError, match="ended with exit status 0 and wrote no module"):
        compile_mlir(ADD, resolve("vulkan"), name="m")


def test_messages_are_bounded(store: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(
        tmp_path,
        monkeypatch,
        "echo 'model.py:5:0: error: first' >&2\n"
        "yes 'model.py:9:1: note: noise noise' | head -c 30000000 >&2\n"
        "echo 'model.py:7:0: error: last' >&2\nexit 1\n",
    )
    with pytest.raises(CompileError) as e:
        compile_mlir(ADD, resolve("vulkan"), name="m")
    text = str(e.value)
    assert len(text) < 20_000
    assert text.startswith("m: the compiler refused the module, target vulkan\n")
    assert text.splitlines()[1:4] == ["  at model.py:5", "  at model.py:7", "  IREE says: first"]


def test_reproducer(store: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSTM_IR_DUMP", str(tmp_path / "dump"))
    with pytest.raises(CompileError) as e:
        compile_mlir(REFUSED, resolve("cpu"), name="../a b")
    (kept,) = (tmp_path / "dump").iterdir()
    assert f"reproducer: {kept}" in str(e.value)
    assert kept.read_text().endswith(REFUSED)
    monkeypatch.delenv("LSTM_IR_DUMP")
    with pytest.raises(CompileError) as e:
        compile_mlir(REFUSED, resolve("cpu"), name="m")
    assert "reproducer" not in str(e.value)


def test_time_limit(store: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid\nsleep 600 & wait\n")
    start = time.monotonic()
    with pytest.raises(CompileError, match=r"past its time limit of 0.3 s"):
        compile_mlir(ADD, resolve("vulkan"), name="m", timeout=0.3)
    assert time.monotonic() - start < 20
    assert _group_ended(int((tmp_path / "pid").read_text()))


def _group_ended(pid: int) -> bool:
    for _ in range(400):
        if not _group_runs(pid):
            return True
        time.sleep(0.05)
    return False


def _group_runs(pid: int) -> bool:
    """Whether a process of the group still runs; one that only waits to be reaped does not."""
    if Path("/proc/self/stat").is_file():
        for place in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group = place.read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue  # ended meanwhile
            if int(group) == pid and state not in "ZX":
                return True
        return False
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


ENDED = """
import sys
from pathlib import Path
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.targets import targets
from lstm_ir.cli.group import run
targets.resolve("vulkan")
compiler.executable = lambda: sys.argv[1]
if len(sys.argv) > 2:
    sys.exit(run(["compile", "-t", "vulkan", sys.argv[2], "-o", sys.argv[2] + ".lirpkg"]))
try:
    compiler.compile_mlir("module {}", targets.resolve("vulkan"), name="m")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_the_child_ends_with_its_parent(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the library, SIGTERM on the command line; after SIGKILL the next compilation tidies up."""
    scratch, store = tmp_path / "scratch", tmp_path / "cache"
    scratch.mkdir()
    script = tmp_path / "iree-compile"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\ntouch $TMPDIR/x\nsleep 600 & wait\n")
    if how == "SIGKILL":  # which reaches no children of the child
        script.write_text(script.read_text().replace("sleep 600 & wait", "exec sleep 600"))
    script.chmod(0o755)
    (tmp_path / "g").write_text(str(li.Graph("g", [x := li.input("x", (2,))], {"y": x + 1.0})))
    env = {**os.environ, "TMPDIR": str(scratch), "LSTM_IR_CACHE": str(store)}
    words = [str(script)] + ([str(tmp_path / "g")] if how == "SIGTERM" else [])
    parent = subprocess.Popen(
        [sys.executable, "-c", ENDED, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        for _ in range(1200):
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
                break
            time.sleep(0.05)
        child = int((tmp_path / "pid").read_text())
        assert len(list(scratch.iterdir())) == 1  # the compile is under way
        parent.send_signal(signal.Signals[how])
        out, err = parent.communicate(timeout=30)
    finally:
        parent.kill()
    expected = {"SIGINT": (0, "interrupted", ""), "SIGTERM": (143, "", "lstm-ir: terminated"), "SIGKILL": (-9, "", "")}
    assert (parent.returncode, out.decode().strip(), err.decode().strip()) == expected[how]
    assert how != "SIGKILL" or sys.platform == "linux" or pytest.skip("only Linux ends children with their parents")
    assert _group_ended(child)
    if how == "SIGKILL":
        monkeypatch.setattr("tempfile.tempdir", str(scratch))
        compiler.run(ADD, ["--compile-to=input"], name="m", target="vulkan", timeout=60)
    assert list(scratch.iterdir()) == []
    assert not store.exists() or list(store.iterdir()) == []


def test_a_compiler_without_parent_has_its_time_limit(tmp_path: Path) -> None:
    """Where the system cannot end it with its parent: by a clock of its own."""
    command = children.bounded([sys.executable, "-c", "import signal; print(signal.alarm(0))"], 77)
    left = int(subprocess.run(command, capture_output=True, timeout=60, check=True).stdout)
    assert 77 < left <= 87


def test_what_cannot_be_written_is_a_compile_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    with pytest.raises(CompileError, match=r"m: the compiler cannot be run: .*nowhere"):
        compile_mlir(ADD, resolve("vulkan"), name="m")


def test_options(store: Path) -> None:
    for bad, said in (
        ({"opt_level": "O9"}, "opt_level"),
        ({"data_tiling": 1}, "data_tiling"),
        ({"flags": "--x"}, "flags"),
        ({"speed": "high"}, "unknown option 'speed'"),
    ):
        with pytest.raises(CompileError, match=said):
            compile_mlir(ADD, resolve("vulkan"), name="m", options=bad)


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    runs: list[str] = []
    real = compiler.run

    def counted(text: str, *args: Any, **kw: Any) -> bytes:
        runs.append(kw["name"])
        return real(text, *args, **kw)

    monkeypatch.setattr(compiler, "run", counted)
    return runs


def test_cache_is_used(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = resolve("vulkan")
    runs = count_runs(monkeypatch)
    first = compile_mlir(ADD, target, name="m")
    assert compile_mlir(ADD, target, name="m") == first
    assert len(runs) == 1
    # anything that changes the result is another entry
    compile_mlir(ADD + " ", target, name="m")
    compile_mlir(ADD, resolve("vulkan:rdna3"), name="m")
    compile_mlir(ADD, target, name="m", options={"opt_level": "O1"})
    monkeypatch.setattr(compiler, "versions", lambda: ("other", "other"))
    compile_mlir(ADD, target, name="m")
    assert len(runs) == 5
    compile_mlir(ADD, target, name="m", use_cache=False)
    assert len(runs) == 6
    assert store.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:-1],
        lambda d: d[:20],
        lambda d: b"",
        lambda d: d + b"\0",
        lambda d: d[:100] + bytes([d[100] ^ 1]) + d[101:],
        lambda d: b"\0" * len(d),
    ],
)
def test_damaged_entry(store: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]) -> None:
    runs = count_runs(monkeypatch)
    first = compile_mlir(ADD, resolve("vulkan"), name="m")
    (entry,) = store.glob("*.vmfb")
    entry.write_bytes(damage(entry.read_bytes()))
    assert compile_mlir(ADD, resolve("vulkan"), name="m") == first
    assert len(runs) == 2
    assert compile_mlir(ADD, resolve("vulkan"), name="m") == first
    assert len(runs) == 2


def test_key_separates_its_parts() -> None:
    assert len({key("ab", "c"), key("a", "bc"), key("abc"), key("abc", ""), key("", "abc")}) == 5


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720])
def test_folder_of_others_is_refused(store: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store.mkdir()
    store.chmod(mode)
    monkeypatch.setattr(caching, "_warned", set())
    with pytest.warns(RuntimeWarning, match="other users can write"):
        assert compile_mlir(ADD, resolve("vulkan"), name="m")
    assert list(store.iterdir()) == []


def test_folder_of_another_user(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.mkdir(mode=0o700)
    monkeypatch.setattr(caching, "_warned", set())
    monkeypatch.setattr(os, "getuid", lambda: store.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="belongs to user"):
        assert Cache().path is None


def test_folder_that_is_a_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_text("")
    monkeypatch.setattr(caching, "_warned", set())
    with pytest.warns(RuntimeWarning, match="no compile cache"):
        assert Cache().path is None


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LSTM_IR_CACHE", "off")
    assert folder() is None
    assert Cache().path is None
    monkeypatch.delenv("LSTM_IR_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "lstm-ir"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says to ignore it
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder() == tmp_path / "home" / ".cache" / "lstm-ir"
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert folder() == tmp_path / "home" / "Library" / "Caches" / "lstm-ir"


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    store = Cache(tmp_path, limit=3500)
    for i in range(3):
        store.put(f"e{i}", bytes([i]) * 1000)
        os.utime(tmp_path / f"e{i}", (i + 1, i + 1))
    assert store.get("e0") == bytes(1000)  # used again
    store.put("e3", b"\3" * 1000)
    assert store.get("e1") is None
    assert [store.get(f"e{i}") is not None for i in (0, 2, 3)] == [True, True, True]


def test_full_disk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Cache(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store.put("e", b"data")
    assert list(tmp_path.iterdir()) == []


def test_concurrent_processes(tmp_path: Path) -> None:
    script = (
        "import hashlib\nfrom lstm_ir.backends.compile import compiler\nfrom lstm_ir.backends.targets import targets\n"
        f"blob = compiler.compile_mlir({ADD!r}, targets.resolve('vulkan'), name='m')\n"
        "print(hashlib.sha256(blob).hexdigest())\n"
    )
    env = {**os.environ, "LSTM_IR_CACHE": str(tmp_path)}
    started = [subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE) for _ in range(4)]
    outs = {p.communicate(timeout=120)[0].decode().strip() for p in started}
    assert len(outs) == 1
    assert len(outs.pop()) == 64
    (entry,) = tmp_path.iterdir()  # one entry, nothing half-written
    assert Cache(tmp_path).get(entry.name) is not None


def refuse_o3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler ends without a word where it is to optimise fully."""
    real = compiler.run

    def refusing(text: str, flags: list[str], **kw: Any) -> bytes:
        if "--iree-opt-level=O3" in flags:
            raise CompilerRefusedError("m: it ended without a word\nmore")
        return real(text, flags, **kw)

    monkeypatch.setattr(compiler, "run", refusing)


def test_weaker_flags_leave_a_note(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the module comes from the cache."""
    real = compiler.run
    refuse_o3(monkeypatch)
    target = resolve("vulkan")
    for _ in range(2):
        notes: list[str] = []
        assert compile_mlir(ADD, target, name="m", notes=notes)
        (note,) = notes
        assert note.startswith("compiled with ")
        assert "--iree-opt-level=O1" in note
        assert note.endswith("because without it: m: it ended without a word")
    assert len(list(store.iterdir())) == 1  # so that the module is never there without its note
    fine: list[str] = []
    monkeypatch.setattr(compiler, "run", real)
    compile_mlir(ADD + " ", target, name="m", notes=fine)
    assert fine == []


def test_a_module_of_weaker_flags_is_not_that_of_a_caller_who_chose(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Even where the chosen flags are those that are tried first."""
    refuse_o3(monkeypatch)
    assert compile_mlir(ADD, resolve("vulkan"), name="m")
    with pytest.raises(CompileError, match="it ended without a word"):
        compile_mlir(ADD, resolve("vulkan"), name="m", options={"opt_level": "O3"})


def test_a_module_made_with_fewer_checks_is_another(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = count_runs(monkeypatch)
    for checks in [*Checks, *Checks]:
        compile_mlir(ADD, resolve("vulkan"), name="m", checks=checks)
    assert len(runs) == len(Checks)


def test_a_flag_of_the_caller_stands_in_place_of_ours() -> None:
    """Each flag is given once, and the value is the caller's."""
    x = li.input("x", ("N",))
    name = compiler.LESS_FUSION.partition("=")[0]
    flags = [f"{name}=true"]
    made = compiler.option_flags({"flags": flags}, "cpu")
    assert [f for f in made if f.partition("=")[0] == name] == flags
    exe = li.compile(li.Graph("g", [x], {"y": x + x}), options={"flags": flags, "cache": False})
    np.testing.assert_array_equal(exe(x=np.ones(3, np.float32))["y"], np.full(3, 2.0, np.float32))


def test_a_flag_without_effect_is_refused() -> None:
    x = li.input("x", (3,))
    flags = ["--iree-stream-resource-min-offset-alignment=64"]
    with pytest.raises(li.CompileError, match="min-offset-alignment has no effect for CPUs"):
        li.compile(li.Graph("g", [x], {"y": x + x}), options={"flags": flags})
    assert flags[0] in compiler.option_flags({"flags": flags}, "vulkan")
