"""A module as IREE schedules it: what is done when it is loaded, and what in a call; and its dispatches in vectors."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.run.devices import resolve


def stream(graph: li.Graph, word: str = "cpu", *, kernels: bool = True) -> tuple[str, str]:
    """What is done at load, and in a call, as IREE schedules it."""
    target = resolve(word)
    flags = [*compiler.BASE_FLAGS, *target.flags, "--iree-opt-level=O3", "--compile-to=stream"]
    text = prepare(graph, target, {"kernels": kernels}).text
    out = compiler.run(text, flags, name="packing", target="cpu", timeout=120).decode()
    before, main, after = out.partition("util.func public @main")
    assert main
    return before, after


def vectors(graph: li.Graph, word: str) -> list[str]:
    """The dispatches of a module, each after IREE made vectors of it."""
    target = resolve(word)
    flags = [*compiler.BASE_FLAGS, *target.flags, "--iree-opt-level=O3"]
    printed = "--mlir-print-ir-after=iree-codegen-generic-vectorization"
    with TemporaryDirectory() as folder:
        module = Path(folder, "module.mlir")
        module.write_text(prepare(graph, target, {}).text, encoding="utf-8")
        command = [compiler.executable(), str(module), *flags, printed, "-o", str(Path(folder, "out"))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return done.stderr.split("// -----// IR Dump")[1:]
