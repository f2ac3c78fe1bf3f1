"""Arrays as the state of a program: what its variables start as, and whether arrays from elsewhere fit them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.arrays import Conform, take
from lstm_ir.ir.errors import CallError, PackageError
from lstm_ir.ir.signature import Entry, Port, StateVar, bind_dims

Array = np.ndarray[Any, Any]


def start(variable: StateVar, initial: Array, sizes: Mapping[str, int]) -> Array:
    """What a variable holds before its first call, which has these sizes; CallError where they leave one open."""
    t = variable.type
    unknown = t.names - set(sizes)
    if unknown:
        raise CallError(
            f"state {variable.name!r} is {t}: {min(unknown)} is known after its first call, or once "
            f"it is set: state[{variable.name!r}] = array"
        )
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


def agree(variables: Mapping[str, StateVar], arrays: Mapping[str, Array], together: Iterable[Iterable[str]]) -> None:
    """CallError where a named size has two values in arrays that one call takes; `together` has the names of each."""
    for names in together:
        ports = [Port(n, variables[n].type) for n in names if n in arrays]
        bind_dims(ports, {p.name: arrays[p.name].shape for p in ports})


def whole(
    variables: Mapping[str, StateVar], arrays: Mapping[str, Any], where: str, together: Iterable[Iterable[str]],
    remedy: str = "",
) -> dict[str, Array]:  # fmt: skip
    """Copies of the arrays, where they are the whole state and nothing else; PackageError names `where`.

    remedy: what the error says to do where names differ.
    """
    missing, extra = set(variables) - set(arrays), set(arrays) - set(variables)
    if missing or extra:
        word, which = ("no", missing) if missing else ("an unknown", extra)
        raise PackageError(f"{where}: {word} state {min(map(str, which))[:80]!r}{remedy}")
    return checked(variables, arrays, where, together)


def shared(
    variables: Mapping[str, StateVar], arrays: Mapping[str, Any], where: str, together: Iterable[Iterable[str]],
    entries: Iterable[Entry] = (),
) -> dict[str, Array]:  # fmt: skip
    """Copies of the arrays that are state, by their names; PackageError where none is.

    Counts of a program that trains, with these entries, are left out where what they count is not all there.
    """
    gone = set(_uncounted(variables, arrays, tuple(entries)))
    found = {n: a for n, a in arrays.items() if n in variables and n not in gone}
    if not found:
        have, want = (", ".join(list(names)[:4]) or "nothing" for names in (arrays, variables))
        raise PackageError(f"{where}: it holds {have:.80}, none of the state here: {want:.80}")
    return checked(variables, found, where, together)


def _uncounted(variables: Mapping[str, StateVar], arrays: Mapping[str, Any], entries: Sequence[Entry]) -> Iterator[str]:
    """Counts of training that `arrays` does not have all weights and moments for, or all sums of gradients.

    An optimizer corrects moments by the count of updates, so a weight whose moments start anew needs one that does.
    Scalars are no such moments: counts, and what a plateau keeps. Nor is what an entry without inputs starts again.
    """
    written = {n for e in entries if e.name in ("train", "apply") and "step" in e.writes for n in e.writes}
    carried = {n for e in entries if not (e.inputs or e.outputs or e.writes) for n in e.reads}
    missing = {n for n in written - carried - set(arrays) if variables[n].type.rank}
    sums = {n for n in missing if n.startswith("accumulated/")}
    if missing - sums:
        yield "step"
    if missing and "micro_step" in written:
        yield "micro_step"


def checked(
    variables: Mapping[str, StateVar], arrays: Mapping[str, Any], where: str, together: Iterable[Iterable[str]]
) -> dict[str, Array]:
    """Copies of the arrays of these variables; PackageError where one does not fit, or two do not go together."""
    try:
        found = {n: fitting(variables[n], a) for n, a in arrays.items()}
        agree(variables, found, together)
    except CallError as e:
        raise PackageError(f"{where}: {e}") from e
    return found
