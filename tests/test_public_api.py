"""The public names are a list that is only changed on purpose, each documented and typed."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from conftest import Golden

import lstm_ir as li

PUBLIC = [(name, getattr(li, name)) for name in li.__all__]


def test_names_are_the_listed_ones(golden: Golden) -> None:
    golden("public_api.txt", "\n".join(sorted(li.__all__)))


def test_names_are_unique_and_present() -> None:
    assert len(set(li.__all__)) == len(li.__all__)
    assert not [n for n in li.__all__ if n.startswith("_")]


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=[n for n, _ in PUBLIC])
def test_every_callable_has_a_docstring(name: str, value: Any) -> None:
    assert callable(value)
    doc = inspect.getdoc(value)
    assert doc, f"li.{name} has no docstring"
    if inspect.isclass(value):
        for key, member in vars(value).items():
            if not key.startswith("_") and inspect.isfunction(member):
                assert inspect.getdoc(member), f"li.{name}.{key} has no docstring"


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=[n for n, _ in PUBLIC])
def test_every_function_is_annotated(name: str, value: Any) -> None:
    if inspect.isfunction(value):
        signature = inspect.signature(value)
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
