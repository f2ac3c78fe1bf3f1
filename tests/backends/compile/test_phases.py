"""When IREE checks its module: after each pass, or where the next phase of a compilation reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_compiler import ADD, REFUSED, fake

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.compile.compiler import compile_mlir
from lstm_ir.backends.compile.compiler_errors import CompilerRefusedError, CompilerSlowError
from lstm_ir.backends.compile.phases import Checks
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.errors import CompileError

MASKED = """module @m { func.func @main(%h: tensor<Rx6xf32>, %w: tensor<6x24xf32>, %m: tensor<Rx6xi1>)
    -> tensor<Rx6xf32> {
  %0 = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0]
    : (tensor<Rx6xf32>, tensor<6x24xf32>) -> tensor<Rx24xf32>
  %1 = stablehlo.slice %0 [0:R, 0:6] : (tensor<Rx24xf32>) -> tensor<Rx6xf32>
  %2 = stablehlo.select %m, %1, %h : tensor<Rx6xi1>, tensor<Rx6xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0]
    : (tensor<Rx6xf32>, tensor<6x24xf32>) -> tensor<Rx24xf32>
  %4 = stablehlo.slice %3 [0:R, 0:6] : (tensor<Rx24xf32>) -> tensor<Rx6xf32>
  %5 = stablehlo.select %m, %4, %2 : tensor<Rx6xi1>, tensor<Rx6xf32>
  return %5 : tensor<Rx6xf32> } }"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("LSTM_IR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def seen_checks(monkeypatch: pytest.MonkeyPatch) -> list[Checks]:
    """Of each try."""
    real, tried = compiler.run, []

    def seen(text: str, flags: list[str], **kw: Any) -> bytes:
        tried.append(kw["checks"])
        return real(text, flags, **kw)

    monkeypatch.setattr(compiler, "run", seen)
    return tried


def test_the_compilers_own_checks_come_back_where_it_fails(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each pass, in every further try."""
    target = resolve("cpu")  # which the compiler is asked about, once per process
    tried = seen_checks(monkeypatch)
    assert compile_mlir(ADD, target, name="m", checks=Checks.PHASES)
    assert tried == [Checks.PHASES]
    with pytest.raises(CompileError, match=r"at model.py:78\n  IREE says: .*nobody"):
        compile_mlir(REFUSED, target, name="m", checks=Checks.PHASES)
    assert tried[1] is Checks.PHASES
    assert set(tried[2:]) == {Checks.PASSES}


@pytest.mark.parametrize(("target", "size", "asked", "checks"), [
    ("cpu", 3, None, Checks.PHASES), ("cpu", "B", None, Checks.PHASES), ("vulkan", 3, None, Checks.PASSES),
    ("cpu", 3, True, Checks.PASSES), ("cpu", "B", True, Checks.PASSES), ("vulkan", 3, False, Checks.PHASES),
])  # fmt: skip
def test_when_the_compiler_checks_its_module(
    store: Path, monkeypatch: pytest.MonkeyPatch, target: str, size: int | str, asked: bool | None,
    checks: Checks,
) -> None:  # fmt: skip
    """As option `verify` says, if it is given."""
    where = resolve(target)
    tried = seen_checks(monkeypatch)
    x = li.input("x", (size, 2))
    options = {} if asked is None else {"verify": asked}
    build(li.Graph("g", [x], {"y": x + 1.0}), where, options)
    assert tried == [checks]


@pytest.mark.parametrize("rows", [5, 7])
@pytest.mark.parametrize("checks", Checks)
def test_modules_that_iree_makes_invalid_are_refused(checks: Checks, rows: int) -> None:
    """IREE 3.13 packs the mask beside the second product as single bits, where memory has bytes. Never checked, the
    module is compiled, and computes other numbers."""
    target = resolve("cpu")
    flags = (*compiler.BASE_FLAGS, *target.flags, *compiler.option_flags(None, "cpu"))
    with pytest.raises(CompilerRefusedError, match=r"element types must match|expected padding_value has 'i8'"):
        compiler.run(MASKED.replace("R", str(rows)), flags, name="m", target="cpu", timeout=60, checks=checks)


def test_flags_of_the_caller_are_not_compiled_in_phases(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may name a phase themselves."""
    where = resolve("cpu")
    tried = seen_checks(monkeypatch)
    x = li.input("x", ("B", 2))
    build(li.Graph("g", [x], {"y": x + 1.0}), where, {"flags": ["--mlir-print-debuginfo"]})
    assert tried == [Checks.PASSES]


def test_the_phases_share_the_time_limit(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, "sleep 0.4; while [ $# -gt 1 ]; do shift; done; echo more > module.out")
    assert compiler.run(ADD, [], name="m", target="t", timeout=60, checks=Checks.PHASES) == b"more\n"
    with pytest.raises(CompilerSlowError, match=r"time limit of 0\.9 s"):
        compiler.run(ADD, [], name="m", target="t", timeout=0.9, checks=Checks.PHASES)


def test_a_phase_that_writes_nothing_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, f"echo begun >> {tmp_path}/runs")
    with pytest.raises(CompilerRefusedError, match="ended with exit status 0 and wrote no module"):
        compiler.run(ADD, [], name="m", target="t", timeout=60, checks=Checks.PHASES)
    assert (tmp_path / "runs").read_text() == "begun\n"
