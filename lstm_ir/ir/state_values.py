"""Arrays as the state of a program: what its variables start as, and whether arrays from elsewhere fit them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.arrays import Conform, take
from lstm_ir.ir.errors import CallError, PackageError
from lstm_ir.ir.signature import Port, StateVar, bind_dims

Array = np.ndarray[Any, Any]


def start(variable: StateVar, initial: Array, sizes: Mapping[str, int]) -> Array:
    """What a variable holds before its first call, which has these sizes; CallError where they leave one open."""
    t = variable.type
    unknown = t.names - set(sizes)
    if unknown:
        raise CallError(f"state {variable.name!r} is {t}: {min(unknown)} is known after its first call")
    shape = tuple(dims.evaluate(d, sizes) for d in t.shape)
    return np.array(np.broadcast_to(initial, shape), order="C")


def fitting(variable: StateVar, value: Any) -> Array:
    """A copy of `value` where dtype, rank and numbered sizes are the variable's; else CallError."""
    t = variable.type
    a = take(Conform(variable.name, t.dtype), value)
    fits = len(a.shape) == t.rank and all(d == n for d, n in zip(t.shape, a.shape, strict=True) if isinstance(d, int))
    if not fits:
        raise CallError(f"state {variable.name!r}: expected {t}, got shape {list(a.shape)}")
    return np.array(a, order="C")


def agree(variables: Mapping[str, StateVar], arrays: Mapping[str, Array]) -> dict[str, int]:
    """The named sizes of the arrays; CallError where one name has two."""
    ports = [Port(n, v.type) for n, v in variables.items()]
    return bind_dims(ports, {n: a.shape for n, a in arrays.items()})


def whole(variables: Mapping[str, StateVar], arrays: Mapping[str, Any], where: str) -> dict[str, Array]:
    """Copies of the arrays, where they are the whole state and nothing else; PackageError names `where`."""
    missing, extra = set(variables) - set(arrays), set(arrays) - set(variables)
    if missing or extra:
        word, which = ("no", missing) if missing else ("an unknown", extra)
        raise PackageError(f"{where}: {word} state {min(map(str, which))[:80]!r}")
    try:
        found = {n: fitting(variables[n], a) for n, a in arrays.items()}
        agree(variables, found)
    except CallError as e:
        raise PackageError(f"{where}: {e}") from e
    return found
