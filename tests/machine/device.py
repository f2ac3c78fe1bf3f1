"""What a test needs beyond the package itself: a device, or another library to compare with.

`need("vulkan")` skips the test where there is none, and fails it where LSTM_IR_REQUIRE names it.
What was used is counted; the end of a run names it (conftest.py).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import aarch64
import iree_build
import pytest
from paths import MODELS

REQUIRED = frozenset(w for w in os.environ.get("LSTM_IR_REQUIRE", "").split(",") if w)
DEVICES = ("vulkan", "cuda", "hip", "metal")
LIBRARIES = {  # word -> name of the distribution
    "torch": "torch", "tensorflow": "tensorflow-cpu", "jax": "jax", "onnx": "onnx", "onnx_ir": "onnx-ir",
    "onnxruntime": "onnxruntime", "onnxscript": "onnxscript",
    "keras": "keras", "safetensors": "safetensors", "hypothesis": "hypothesis", "ray": "ray",
}  # fmt: skip
PROGRAMS = {"qemu-aarch64": ("qemu-aarch64-static", "qemu-aarch64")}
IREE_BUILD = "iree-build"
WORDS = (*DEVICES, *LIBRARIES, *PROGRAMS, IREE_BUILD)

used: list[str] = []  # by the running test; conftest.py empties it


def need(what: str, *more: str) -> str:
    """The version or device name of `what`; skips or fails the test where it, or one of `more`, is absent."""
    found, text = look(what)
    if found:
        used.append(f"{what} ({text})")
        for other in more:
            need(other)
        return text
    if what in REQUIRED:
        pytest.fail(f"{what} is required (LSTM_IR_REQUIRE) and not here: {text}", pytrace=False)
    pytest.skip(f"{what}: {text}", allow_module_level=True)


def need_target(target: str) -> None:
    """Skips the test where the target is a device that is not here; a CPU always is."""
    if target in DEVICES:
        need(target)


def model_file(name: str) -> Path:
    """A model of others, or what one is given; skips the test where none lies beside the checkout."""
    path = MODELS / name
    if not path.is_file():
        pytest.skip(f"{name} is not in shared/models beside the checkout")
    return path


def compiled(graph: Any, target: str) -> Iterator[Any]:
    """For a fixture: the executable, as long as it is used; skips where the target is a device that is not here."""
    from lstm_ir import compile

    need_target(target)
    with compile(graph, target) as exe:
        yield exe


def has(what: str) -> bool:
    """Whether `what` is here."""
    return look(what)[0]


@cache
def look(what: str) -> tuple[bool, str]:
    """Whether it is here, and its version or why not."""
    if what in DEVICES:
        return _device(what)
    if what in LIBRARIES:
        return _library(what)
    if what in PROGRAMS:
        path = next(filter(None, map(shutil.which, PROGRAMS[what])), None)
        return path is not None, "not installed" if path is None else path
    if what == IREE_BUILD:
        return iree_build.look()
    raise ValueError(f"need({what!r}): known are {', '.join(WORDS)}")


def _library(name: str) -> tuple[bool, str]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:  # a folder of tests that has the library's name is found, too
        return False, "not installed"
    for distribution in (LIBRARIES[name], name):
        try:
            return True, importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return True, "version unknown"


def _device(kind: str) -> tuple[bool, str]:
    from lstm_ir.backends.run.runtime import devices_of

    names, reason = devices_of(kind)
    return (True, names[0]) if names else (False, reason)


def qemu() -> str:
    found = need("qemu-aarch64")
    if not aarch64.found():
        pytest.skip("qemu-aarch64: no aarch64 runtime; python tests/machine/aarch64.py fetches it")
    return found
