"""The public names are a list that is only changed on purpose, each documented and typed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import Golden

import lstm_ir as li
from lstm_ir import ops

PUBLIC = [(name, getattr(li, name)) for name in li.__all__]


def test_names_are_the_listed_ones(golden: Golden) -> None:
    golden("public_api.txt", "\n".join(sorted(li.__all__)))


def test_names_are_unique_and_present() -> None:
    assert len(set(li.__all__)) == len(li.__all__)
    assert not [n for n in li.__all__ if n.startswith("_")]


def imported(module: ModuleType, *, for_checkers: bool) -> dict[str, str]:
    """The module of each name that is imported at the top of a file, or in its TYPE_CHECKING."""
    assert module.__file__ is not None
    body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    if for_checkers:
        body = [n for i in body if isinstance(i, ast.If) for n in i.body]
    froms = [n for n in body if isinstance(n, ast.ImportFrom) and str(n.module).startswith("lstm_ir")]
    return {a.asname or a.name: str(n.module) for n in froms for a in n.names}


def test_what_is_imported_is_what_is_listed() -> None:
    lists = {"lstm_ir.ops": ops.__all__, "lstm_ir": [n for n in li.__all__ if n not in ops.__all__]}
    kept = {"*", "bind", "told", "_at_fork", "_refusals_become"}
    families = {n for n, v in vars(ops).items() if isinstance(v, ModuleType)}
    eager = set(imported(ops, for_checkers=False)) - kept - families
    assert eager == set(lists["lstm_ir.ops"])
    eager = set(imported(li, for_checkers=False)) - kept
    assert eager == set(li._ERRORS)
    assert eager | set(li._LAZY) == set(lists["lstm_ir"])
    shown = imported(li, for_checkers=True)
    assert shown.pop("*") == li._OPS
    assert shown == li._LAZY


def test_dir_shows_the_public_names() -> None:
    assert dir(li) == sorted(li.__all__)


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=[n for n, _ in PUBLIC])
def test_every_callable_has_a_docstring(name: str, value: Any) -> None:
    assert callable(value)
    doc = inspect.getdoc(value)
    assert doc, f"li.{name} has no docstring"
    if inspect.isclass(value):
        for key, member in vars(value).items():
            if not key.startswith("_") and inspect.isfunction(member):
                assert inspect.getdoc(member), f"li.{name}.{key} has no docstring"


FUNCTIONS = [v for _, v in PUBLIC if inspect.isfunction(v)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_function_is_annotated(function: Callable[..., Any]) -> None:
    signature = inspect.signature(function)
    bare = [p for p in signature.parameters.values() if p.annotation is p.empty]
    assert not bare
    assert signature.return_annotation is not signature.empty


def test_errors_have_one_root() -> None:
    errors = [v for _, v in PUBLIC if inspect.isclass(v) and issubclass(v, Exception)]
    assert len(errors) > 10
    assert all(issubclass(e, li.LstmIrError) for e in errors)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_that_name'"):
        _ = li.nothing_of_that_name
