"""What exceptions of Python and the system become: the project's class, with the limit that was met."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from child import environment

import lstm_ir as li
from lstm_ir.ir.foreign_errors import become, limit_in, refusals_become


def system(number: int) -> OSError:
    return OSError(number, os.strerror(number), "a file")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (system(errno.EMFILE), "Too many open files: this process may open no more files (ulimit -n)"),
        (system(errno.EAGAIN), "Resource temporarily unavailable: no more processes or threads may be started "
                               "(ulimit -u, or -v for their stacks)"),
        (system(errno.ENOSPC), "No space left on device: the disk is full"),
        (system(errno.ENOENT), "No such file or directory"),
        (MemoryError(), "Cannot allocate memory: there is not enough memory (ulimit -v)"),
        (ImportError("x.so: failed to map segment from shared object"),
         "Cannot allocate memory: there is not enough memory (ulimit -v)"),
        (li.DimError("a size"), "a size"),
    ],
)  # fmt: skip
def test_what_the_system_raises(raised: Exception, said: str) -> None:
    with pytest.raises(li.PackageError) as caught, become(li.PackageError, "f", "damaged"):
        raise raised
    if isinstance(raised, ImportError):
        said = f"damaged: {said}"
    assert str(caught.value) == f"f: {said}"
    assert caught.value.__cause__ is raised


def test_what_libraries_raise() -> None:
    with pytest.raises(li.PackageError, match=r"^f: damaged: IndexError$"), become(li.PackageError, "f", "damaged"):
        raise IndexError
    with pytest.raises(KeyboardInterrupt), become(li.PackageError, "f"):
        raise KeyboardInterrupt


def test_refusals_of_the_system_alone() -> None:
    with (
        pytest.raises(li.CompileError, match=r"^compile: Too many open files"),
        refusals_become(li.CompileError, "compile"),
    ):
        raise system(errno.EMFILE)
    with pytest.raises(li.CompileError, match=r"\(ulimit -v\)$"), refusals_become(li.CompileError, "compile"):
        raise SystemError("error return without exception set")
    for passes in (SystemError("bad argument"), ModuleNotFoundError("x"), KeyError("x"), li.DimError("x")):
        with pytest.raises(type(passes)), refusals_become(li.CompileError, "compile"):
            raise passes


def test_limits_in_messages() -> None:
    assert limit_in("sh: 1: Cannot fork") == limit_in("pthread_create failed: Resource temporarily unavailable")
    assert limit_in("escaped command line returned exit code 32512") == limit_in("Cannot fork")
    assert limit_in("error: a name that is unknown") is None


FIRST = """
import resource
import lstm_ir as li

resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    li.load("any.lirpkg")
except li.LstmIrError as e:
    print(e)
"""


def test_a_first_use_without_files() -> None:
    """The modules that loading needs are imported when it is first named."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=60, env=environment())
    assert done.stderr == ""
    told = "lstm_ir.load cannot be imported: Too many open files: this process may open no more files (ulimit -n): "
    assert done.stdout.startswith(told)
