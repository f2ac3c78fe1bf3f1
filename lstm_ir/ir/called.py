"""Functions called with arguments that they do not have: an error that says ours, in place of Python's TypeError."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from lstm_ir.ir.errors import ArgumentError, message
from lstm_ir.ir.location import here
from lstm_ir.ir.near_names import hint

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)
Instead = Callable[[str, str, Sequence[str]], str]
"""Of the function's name, a keyword and the parameters: what is meant, as the end of a sentence."""


def fitting(instead: Instead, name: str | None = None) -> Callable[[Function], Function]:
    """For functions, whose arguments that do not fit their parameters become an ArgumentError at the user's line.

    name: what it is called, for the `__init__` of a class.
    """

    def decorated(function: Function) -> Function:
        try:
            signature = inspect.signature(function)
        except ValueError:  # not a function of Python
            return function
        called = name or function.__name__

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except TypeError:
                problem = _problem(called, signature, args, named, instead)
                if problem is None:
                    raise
                raise ArgumentError(message(called, problem, (), here())) from None

        return cast(Function, call)

    return decorated


def told(words: Mapping[str, str], name: str | None = None) -> Callable[[Function], Function]:
    """As `fitting`, with what to write in place of other libraries' `words`."""

    def instead(_: str, keyword: str, parameters: Sequence[str]) -> str:
        if keyword in words:
            return f". Say {words[keyword]}"
        return hint(keyword, parameters, f"; they are {', '.join(parameters)}")

    return fitting(instead, name)


def told_class(words: Mapping[str, str]) -> Callable[[Class], Class]:
    """As `told`, for a class whose `__init__` is made for it."""

    def decorated(made: Class) -> Class:
        type.__setattr__(made, "__init__", told(words, made.__name__)(vars(made)["__init__"]))
        return made

    return decorated


def _problem(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], named: Mapping[str, Any], instead: Instead
) -> str | None:
    try:
        signature.bind(*args, **named)
    except TypeError as e:
        parameters = [p for p in signature.parameters if p != "self"]
        unknown = [k for k in named if k not in parameters]
        if unknown:
            words: dict[str, list[str]] = {}
            for k in unknown:
                words.setdefault(instead(name, k, parameters), []).append(repr(k))
            return "; ".join(f"there is no argument {' or '.join(ks)}{said}" for said, ks in words.items())
        return f"{e}; it is {name}({', '.join(parameters)})"
    return None
