"""docs/api.md has every public name, option and variable, with the signatures of the code."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import api_document as document
import numpy as np
import pytest
from paths import ROOT

import lstm_ir as li
from lstm_ir import api, options

PAGE = document.PAGE.read_text(encoding="utf-8")
SESSION = "lstm_ir.backends.run.executable:Session"


def section(title: str) -> str:
    """The text below a heading, up to the next one of its level."""
    level = title.partition(" ")[0]
    return re.split(rf"^{level} ", PAGE.partition(f"\n{title}\n")[2], flags=re.M)[0]


def rows(text: str) -> set[str]:
    """The names in the first column of tables."""
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.M)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_tables_and_signatures_are_those_of_the_code(request: pytest.FixtureRequest) -> None:
    made = document.renewed(PAGE)
    if request.config.getoption("--update-golden"):
        document.PAGE.write_text(made, encoding="utf-8")
        return
    assert made == PAGE, "docs/api.md is not up to date: python tests/machine/child.py tests/documents/api_document.py"


def test_every_public_name_has_one_entry_and_every_entry_is_one() -> None:
    assert sorted(document.documented(PAGE)) == sorted(li.__all__)


@pytest.mark.parametrize("place", ["lstm_ir.parallel", "lstm_ir.ray"])
def test_modules_with_names_of_their_own_have_an_entry_for_each(place: str) -> None:
    names = {f"{place}.{n}" for n in importlib.import_module(place).__all__}
    assert set(re.findall(rf"^### `({re.escape(place)}\.\w+)`\n\n```python\n\1\(", PAGE, re.M)) == names


def test_functions_with_a_heading_show_their_signature() -> None:
    named = {n for n in document.HEADING.findall(PAGE) if inspect.isfunction(getattr(li, n))}
    assert named <= set(re.findall(r"^### `(\w+)`\n\n```python\n\1\(", PAGE, re.M))


def test_every_option_of_compile_has_a_row() -> None:
    assert rows(section("### `compile`")) == set(options.OPTIONS)


def test_every_variable_that_is_read_has_a_row() -> None:
    texts = [
        p.read_text(encoding="utf-8")
        for folder in ("lstm_ir", "passes", "backends", "tests", "benchmarks", "examples")
        for p in (ROOT / folder).rglob("*.py")
    ]
    read = {name for t in texts for name in re.findall(r"\bLSTM_IR_[A-Z0-9_]*[A-Z0-9]\b", t)}
    assert rows(section("## Environment variables")) == read


def test_members_of_executables_and_sessions_have_a_row() -> None:
    x = li.input("x", (3,))
    shown = rows(section("## Executables and sessions"))
    with li.compile(li.Graph("g", [x], {"y": x + x})) as exe:
        held = {n for n in vars(exe) if not n.startswith("_")}
    assert {f"exe.{n}" for n in held} <= shown
    fields = {n for n in vars(api.Report("cpu")) if not n.startswith("_")}
    assert fields <= shown
    for name, _ in document.members(document.found(SESSION)):
        assert re.search(rf"`session\.{name}\b", PAGE), name


X = li.input("x", ("T", 3))
G = li.Graph("g", [X], {"y": X + 1.0})
STATE = li.State("h", li.Data.of(np.zeros(3, "f4")))
OBJECTS: dict[str, Any] = {
    "Graph": G, "Value": X, "Node": X.node, "Data": STATE.initial, "TensorType": X.type, "DType": X.dtype,
    "Loc": X.node.loc, "Program": li.Program.of(G), "State": STATE,
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_attribute_stands_below_its_heading(name: str) -> None:
    shown = set(re.findall(r"`(?:\w+\.)?(\w+)(?:\([^`]*\))?`", section(f"### `{name}`")))
    assert {n for n in dir(OBJECTS[name]) if not n.startswith("_")} <= shown


def test_every_public_attribute_of_executables_and_sessions_has_a_row() -> None:
    shown = rows(section("## Executables and sessions"))
    with li.compile(li.Graph("g", [X], {"y": X + 1.0})) as exe, exe.session() as session:
        for prefix, thing in (("exe", exe), ("session", session)):
            names = {f"{prefix}.{n}" for n in dir(thing) if not n.startswith("_")}
            assert names <= {n.partition("(")[0] for n in shown}
