"""What an error of the compiler says: ours first (what was being lowered, what to try), IREE's words below."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Golden

import lstm_ir as li
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.compile.compiler_errors import CompilerRefusedError
from lstm_ir.backends.run.devices import resolve

HERE = Path(__file__).name
TARGET = "cpu:x86-64-v3"


def model(rows: int | str) -> li.Graph:
    x = li.input("x", ("T", rows, 5))
    y = li.lstm(x, np.full((28, 5), 0.1, "f4"), np.full((28, 7), 0.1, "f4")).y
    return li.Graph("tagger", [x], {"y": li.softmax(y)})


def line_of(text: str) -> int:
    lines, first = inspect.getsourcelines(model)
    return first + next(i for i, line in enumerate(lines) if text in line)


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A compiler that refuses every module, with these words."""

    resolve(TARGET)  # the compiler is asked about it, once per process

    def put(script: str) -> None:
        path = tmp_path / "iree-compile"
        path.write_text(f"#!/bin/sh\n{script}\nexit 1\n")
        path.chmod(0o755)
        monkeypatch.setattr(compiler, "executable", lambda: str(path))
        monkeypatch.setenv("LSTM_IR_CACHE", "off")

    return put


def said(graph: li.Graph, **options: Any) -> str:
    with pytest.raises(li.CompileError) as caught:
        li.compile(graph, TARGET, options=options)
    text = str(caught.value)
    return text.replace(f":{line_of('li.lstm')}", ":N").replace(f":{line_of('li.softmax')}", ":M")


def test_a_time_limit_names_what_was_lowered_and_what_to_try(refusing: Any) -> None:
    refusing("sleep 30")
    assert said(model("B"), timeout=0.2, kernels=True).splitlines() == [
        "tagger: the compiler ran past its time limit of 0.2 s (option timeout)",
        "  being lowered: entry main, 11 nodes",
        "  to try: a larger timeout; numbers for the sizes B, T; "
        "LSTM_IR_DUMP=folder, which keeps what the compiler was given",
    ]


def test_a_refusal_names_nodes_and_ways(refusing: Any, golden: Golden) -> None:
    at = f"{HERE}:{line_of('li.softmax')}:0"
    refusing(f"echo \"{at}: error: failed to legalize operation 'x.y'\" >&2; echo '{at}: note: see here' >&2")
    golden("compile_errors/of_a_line.txt", said(model("B")))


def test_a_refusal_of_chosen_options(refusing: Any, golden: Golden) -> None:
    at = f"{HERE}:{line_of('li.lstm')}:0"
    refusing(f"echo '{at}: error: exceeded stack' >&2")
    golden("compile_errors/of_chosen_options.txt", said(model(3), opt_level="O2"))


def test_a_crash_names_what_was_lowered(refusing: Any, golden: Golden) -> None:
    refusing("kill -SEGV $$")
    golden("compile_errors/of_a_crash.txt", said(model(3), kernels=True))


def test_numbers_for_sizes_are_named_only_where_sizes_have_names(refusing: Any) -> None:
    refusing("echo 'module.mlir:3:1: error: no' >&2")
    x = li.input("x", (3, 5))
    fixed = li.Graph("fixed", [x], {"y": x * 2.0})
    with pytest.raises(li.CompileError) as caught:
        li.compile(fixed, TARGET)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("fixed: the compiler refused the module, target cpu")
    assert lines[1].startswith("  being lowered: entry main, ")
    assert lines[2] == "  to try: LSTM_IR_DUMP=folder, which keeps what the compiler was given"
    assert lines[3] == "  IREE says: no"


def test_the_note_of_another_way_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kernels, after a refusal: the report keeps IREE's reason in one line."""
    real = compiler.run

    def failing(text: str, flags: Any, **kw: Any) -> bytes:
        if "hal.executable" in text or "recurrence_" in text:
            raise CompilerRefusedError("tagger: refused", "kernels are not for me", (), "  | much\n  | more")
        return real(text, flags, **kw)

    monkeypatch.setattr(compiler, "run", failing)
    monkeypatch.setenv("LSTM_IR_CACHE", "off")
    with li.compile(model(3)) as exe:
        assert "because IREE refuses it otherwise: kernels are not for me" in str(exe.report)
        a = np.ones((4, 3, 5), "f4")
        np.testing.assert_allclose(exe(x=a)["y"], li.interpret(model(3), x=a)["y"], rtol=1e-4, atol=1e-5)


FAULTS = {
    "echo \"module.mlir:3:1: error: 'x.y' is illegal\"": "'x.y' is illegal",
    "echo \"model.py:54:0: error: 'x.y' is illegal\"": "'x.y' is illegal at model.py:54",
    "echo '<unknown>:0: error: exceeded stack'": "exceeded stack",
    "echo 'error: no such dialect'": "no such dialect",
    "echo 'LLVM ERROR: Broken module found'; echo 'PLEASE submit a bug report'": "LLVM ERROR: Broken module found",
    "echo 'x.cpp:7: f(): Assertion `a < b` failed.'; kill -ABRT $$": "Assertion `a < b` failed.",
    "true": "small: the compiler ended with exit status 1 and wrote no module, target cpu:x86-64-v3",
}


@pytest.mark.parametrize("script", FAULTS)
def test_the_reason_is_one_line_with_its_place(script: str, refusing: Any) -> None:
    """As the note of a module that was compiled in another way tells it."""
    refusing(f"({script}) >&2" if "kill" not in script else f"exec >&2; {script}")
    x = li.input("x", (3,))
    with pytest.raises(CompilerRefusedError) as caught:
        li.compile(li.Graph("small", [x], {"y": x + x}), TARGET)
    assert caught.value.reason == FAULTS[script]
