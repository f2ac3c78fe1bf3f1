"""A module as an exported program, with the sizes open that the caller named."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import Dim

from lstm_ir.importers.torch.interception import intercepted
from lstm_ir.importers.torch.interface import Example
from lstm_ir.importers.torch.places import SizeWatch, of_guard
from lstm_ir.ir.errors import LstmIrError, ModelError

_MARKED = re.compile(r"You marked (L\S*)\.size\(\)\[(\d+)\] as dynamic but .* to be a constant \((\d+)\)")


def exported(module: Any, example: Example) -> Any:
    """The `ExportedProgram` of a module. ModelError where PyTorch does not export it, or fixes an open size."""
    args, kwargs = example.call(_at_least_two(example.values))
    shapes = example.each(lambda i: dict.fromkeys(i.open, Dim.DYNAMIC) or None)
    try:
        return program(module, args, kwargs, shapes)
    except LstmIrError:
        raise
    except Exception as e:  # whatever PyTorch, or the module itself, raises
        raise ModelError(f"{example.title}: {_why(e, module, example)}") from e


def program(module: Any, args: Any, kwargs: Any, shapes: Any = None) -> Any:
    """torch.export of a module, with its recurrent layers whole; raises what PyTorch raises."""
    with quiet(), intercepted():
        return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Without PyTorch's warnings and messages about its own workings."""
    names = [n for n in logging.root.manager.loggerDict if n.split(".")[0] == "torch"]
    loggers = [found for found in map(logging.getLogger, names) if not found.disabled]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for found in loggers:
                found.disabled = True
            yield
        finally:
            for found in loggers:
                found.disabled = False


def _at_least_two(values: Mapping[str, int]) -> dict[str, int]:
    """The named sizes of the example; PyTorch takes 0 and 1 for numbers, so those are larger here."""
    return {n: k if k > 1 else 2 + at for at, (n, k) in enumerate(values.items())}


def _why(e: Exception, module: Any, example: Example) -> str:
    fixed = _fixed(str(e), example)
    if fixed:
        return "; ".join(_with_place(f, module, example) for f in fixed)
    lines = [line for line in str(e).splitlines() if line.strip()]
    return f"torch.export does not take it: {lines[0] if lines else type(e).__name__}"


def _fixed(text: str, example: Example) -> list[tuple[str, int, str]]:
    """The inputs and axes that PyTorch found to be one number: their words."""
    places = {}
    for i in example.inputs:
        places[_tidy(i.name)] = i
    found = []
    for source, axis, number in _MARKED.findall(text):
        named = places.get(_tidy("_".join(_keys(source))))
        if named is not None:
            found.append((named.name, int(axis), number))
    return found


def _keys(source: str) -> list[str]:
    return [a or b for a, b in re.findall(r"'([^']+)'|\[(\d+)\]", source)]


def _tidy(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _with_place(fixed: tuple[str, int, str], module: Any, example: Example) -> str:
    name, axis, number = fixed
    (size,) = (i.shape[axis] for i in example.inputs if i.name == name)
    where = _place(module, example)
    return (
        f"{name} axis {axis} ({size}) is {number} whatever the call{where}: leave it out of sizes, or change the module"
    )


def _place(module: Any, example: Example) -> str:
    """Where the module fixes a size: the op's line, found by an export that lets PyTorch fix sizes."""
    args, kwargs = example.call(_at_least_two(example.values))
    watch = SizeWatch()
    try:
        with watch:
            ep = program(module, args, kwargs, example.each(lambda i: dict.fromkeys(i.open, Dim.AUTO) or None))
        env = shape_env(ep)
    except Exception:  # the refusal stands without its place
        return watch.place
    equal = [g for g in (env.guards if env else ()) if type(g.expr).__name__ == "Equality"]
    return next((of_guard(g) for g in equal if of_guard(g)), watch.place)


def shape_env(ep: Any) -> Any:
    """PyTorch's record of what it assumed of symbols; None where there are none."""
    for n in ep.graph.nodes:
        mode = getattr(n.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            return mode.shape_env
    return None
