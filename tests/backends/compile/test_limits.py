"""A limit of the machine that stops the compiler is named, and is no fault of the module or of IREE."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lstm_ir.backends import bindings
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.compile.compiler_errors import CompilerRefusedError
from lstm_ir.backends.run import runtime
from lstm_ir.ir.errors import CompileError, DeviceError, PackageError


def raising(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def run() -> bytes:
    return compiler.run("module {}", [], name="g", target="cpu", timeout=20)


def test_what_the_system_refuses_before_the_compiler_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name, number, said in (
        (subprocess, "Popen", errno.EAGAIN, "no more processes"),
        (subprocess, "Popen", errno.EMFILE, "open no more files"),
        (compiler, "new_folder", errno.ENOSPC, "the disk is full"),
        (compiler, "new_folder", errno.ENOENT, "No such file"),
    ):
        with monkeypatch.context() as m:
            m.setattr(place, name, raising(number))
            with pytest.raises(CompileError, match=f"^g: the compiler cannot be run: .*{said}"):
                run()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'LLVM ERROR: pthread_create failed: Resource temporarily unavailable' >&2; kill -ABRT $$", "ulimit -u"),
        ("echo 'error: module.out: No space left on device' >&2; exit 1", "the disk is full"),
        ("echo 'terminate called after throwing std::bad_alloc' >&2; kill -ABRT $$", "ulimit -v"),
        ("echo 'PLEASE submit a bug report to IREE' >&2; kill -XFSZ $$", "ulimit -f"),
        ("kill -KILL $$", "memory runs out"),
    ],
)
def test_what_stops_the_compiler(script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "iree-compile"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(compiler, "executable", lambda: str(fake))
    with pytest.raises(CompileError, match=f"^g: the compiler met a limit of this machine, .*{said}") as caught:
        run()
    assert not isinstance(caught.value, CompilerRefusedError)  # weaker flags would not help
    assert "report" not in str(caught.value)


def test_drivers_name_limits() -> None:
    assert "ulimit -u" in bindings.short("iree/base/thread.c:1: INTERNAL; thread creation failed with 11")
    assert "ulimit -n" in bindings.short("x.c:1: RESOURCE_EXHAUSTED; eventfd creation failed (24)")
    assert bindings.short("x.c:1: INTERNAL; nothing of the kind") == "nothing of the kind"


@pytest.mark.parametrize("raised", [IndexError, ValueError, RuntimeError, NotImplementedError])
def test_what_the_bindings_raise(raised: type[Exception]) -> None:
    """One class for each status code: IndexError where a module's own checks fail, for one."""
    with pytest.raises(DeviceError, match=r"^loading g: bad \(OUT_OF_RANGE\)"), runtime.reporting("loading g"):
        raise raised("x.c:1: OUT_OF_RANGE; bad")
    with pytest.raises(PackageError, match=r"^g: bad"), runtime.reporting("g", PackageError):
        raise raised("x.c:1: OUT_OF_RANGE; bad")
