"""A module as IREE schedules it: what is done when it is loaded, and what in a call."""

from __future__ import annotations

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.targets.targets import resolve


def stream(graph: li.Graph, word: str = "cpu", *, kernels: bool = True) -> tuple[str, str]:
    """What is done at load, and in a call, as IREE schedules it."""
    target = resolve(word)
    flags = [*compiler.BASE_FLAGS, *target.flags, "--iree-opt-level=O3", "--compile-to=stream"]
    text = prepare(graph, target, {"kernels": kernels}).text
    out = compiler.run(text, flags, name="packing", target="cpu", timeout=120).decode()
    before, main, after = out.partition("util.func public @main")
    assert main
    return before, after
