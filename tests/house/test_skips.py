"""A test that is left out says why, and the end of a run knows what it lacked."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import device
import pytest
import selection
from paths import ROOT, files
from syntax import parsed

pytestmark = pytest.mark.xdist_group("syntax")

# Errors of other systems that have this class: named to be caught, or raised to play them.
FOREIGN = {
    "backends/bindings.py": "what IREE's bindings raise",
    "lstm_ir/ir/errors.py": "LoweringError is one",
    "lstm_ir/serving/stop_signals.py": "asyncio's on Windows",
    "tests/backends/compile/test_limits.py": "IREE's bindings, played",
    "tests/serving/test_stop_signals.py": "asyncio's on Windows, played",
}


@cache
def calls(folder: str) -> list[tuple[Path, ast.Call, str]]:
    """Every call of a folder's files, with the text of what is called."""
    return [
        (path, n, ast.unparse(n.func))
        for path in files(folder)
        for n in ast.walk(parsed(path))
        if isinstance(n, ast.Call)
    ]


def test_every_skip_has_a_reason() -> None:
    count = 0
    for path, n, what in calls("tests"):
        said = {k.arg for k in n.keywords}
        if what == "pytest.skip":
            assert n.args, f"{path}:{n.lineno}"
        elif what in ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"):
            assert "reason" in said, f"{path}:{n.lineno}"
        else:
            continue
        count += 1
    assert count > 30


def test_an_expected_failure_fails_when_it_is_mended() -> None:
    for path, n, what in calls("tests"):
        if what == "pytest.mark.xfail":
            assert any(k.arg == "strict" and ast.unparse(k.value) == "True" for k in n.keywords), f"{path}:{n.lineno}"


def test_libraries_to_compare_with_are_asked_for_by_need() -> None:
    """It counts what a run used, and LSTM_IR_REQUIRE makes a failure of what is not here."""
    for path, n, what in calls("tests"):
        if what == "pytest.importorskip":
            assert ast.literal_eval(n.args[0]).partition(".")[0] not in device.WORDS, f"{path}:{n.lineno}"


def test_what_every_environment_of_tests_has_is_imported() -> None:
    """A skip would hide that it is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    here = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in wanted}
    assert {"numpy", "httpx", "prometheus_client"} <= here
    for path, n, what in calls("tests"):
        if what == "pytest.importorskip":
            assert ast.literal_eval(n.args[0]).partition(".")[0] not in here, f"{path}:{n.lineno}"


def test_nothing_of_the_project_is_not_implemented() -> None:
    """What subclasses write is abstract; what is not supported raises an error of the project that names it."""
    named = set()
    for folder in ("lstm_ir", "passes", "backends", "benchmarks", "examples", "tests"):
        for path in files(folder):
            if any(isinstance(n, ast.Name) and n.id == "NotImplementedError" for n in ast.walk(parsed(path))):
                named.add(path.relative_to(ROOT).as_posix())
    assert named == set(FOREIGN)


def test_every_test_that_takes_turns_is_there() -> None:
    """A name that nobody has left out would take nothing out, and say that it does."""
    for name in selection.listed():
        file, _, test = name.partition("::")
        functions = {n.name for n in ast.walk(parsed(ROOT / file)) if isinstance(n, ast.FunctionDef)}
        assert test.rpartition("::")[2] in functions, name


def test_every_long_fixture_that_has_a_day_is_there() -> None:
    """Without the fixture its tests would run every day, each for itself."""
    count = 0
    for path, n, what in calls("tests"):
        if what == "pytest.mark.one_day":
            names = {ast.literal_eval(a) for a in n.args}
            found = {f.name for f in parsed(path).body if isinstance(f, ast.FunctionDef) and f.decorator_list}
            assert names, f"{path}:{n.lineno}"
            assert names <= found, f"{path}:{n.lineno}"
            count += 1
    assert count > 10
