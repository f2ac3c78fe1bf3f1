"""Weights on their way back into the model that they came from: what is given, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.has_weights import HasWeights
from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]
V = TypeVar("V")  # a variable of the library


def fitting(
    word: str,
    weights: HasWeights | Mapping[str, Any],
    title: str,
    there: Mapping[str, V],
    kind: Callable[[V], tuple[DType, tuple[int, ...]]],
) -> list[tuple[V, Array]]:
    """Each variable of which an array is given, with that array.

    word: the function that is called. title: the model's name in messages. there: its variables by name; kind: of a
    variable, its dtype and its shape. ModelError for a name that the model does not have, another shape or dtype.
    """
    held = getattr(weights, "weights", weights)
    if not isinstance(held, Mapping):
        raise ModelError(f"{word}: the first argument is an executable or arrays by name, got {type(weights).__name__}")
    state = getattr(weights, "state", None)
    if isinstance(state, Mapping):  # of a program that trains, the weights as they are now
        trained = _trained(weights, state)
        held = {**held, **{name: state[name] for name in state if name in there or name in trained}}
    out = []
    for name, given in held.items():
        if name not in there:
            raise ModelError(f"{word}: {title} has no {name!r}")
        variable = there[name]
        try:
            array = np.asarray(given)
            (want, shape), got = kind(variable), DType.of(array.dtype)
        except (NodeRefusedError, ValueError, TypeError, RuntimeError) as e:  # of what is no array, of tensors too
            raise ModelError(f"{word}: {name}: {e}") from None
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if shape != array.shape or want is not got:
            shapes = [",".join(map(str, s)) for s in (array.shape, shape)]
            raise ModelError(f"{word}: {name} is {got}[{shapes[0]}], in {title} {want}[{shapes[1]}]")
        out.append((variable, array))
    return out


def _trained(holder: Any, state: Mapping[str, Any]) -> set[str]:
    """The weights in the state of an executable that trains: not counts, the optimizer's own, nor what is carried."""
    entries = {name: function.entry for name, function in getattr(holder, "entries", {}).items()}
    carried = {n for e in entries.values() if e.restarts for n in e.reads}
    written = {n for word in ("train", "apply") if word in entries for n in entries[word].writes} - carried
    kept = {n for n in written for w in written if n.endswith(f"/{w}")}
    return {n for n in written - kept if np.ndim(state[n])}
