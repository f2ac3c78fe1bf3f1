"""A signature as JSON values, and back: strict, since the file comes from somewhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, PackageError
from lstm_ir.ir.signature import Check, Entry, Port, Requirement, Signature, StateVar
from lstm_ir.ir.types import TensorType, parse_type

_TEXT = 4096  # characters of a name, a type or a note
_ITEMS = 100_000  # ports, weights, entries
T = TypeVar("T")


def dump(s: Signature) -> dict[str, Any]:
    """JSON values of `s`."""
    return {
        "name": s.name,
        "entries": [_dump_entry(e) for e in s.entries.values()],
        "weights": [[n, str(t)] for n, t in s.weights.items()],
        "state": [[v.name, str(v.type)] for v in s.state.values()],
    }


def _dump_entry(e: Entry) -> dict[str, Any]:
    return {
        "name": e.name,
        "inputs": [[p.name, str(p.type)] for p in e.inputs],
        "outputs": [[p.name, str(p.type)] for p in e.outputs],
        "requires": [[shown_dim(r.dim), r.what] for r in e.requires],
        "checks": [[c.input, shown_dim(c.low), shown_dim(c.high), c.what] for c in e.checks],
        "dims": list(e.dims),
        "reads": list(e.reads),
        "writes": list(e.writes),
        "finite": list(e.finite),
    }


def shown_dim(d: Dim | None) -> int | str | None:
    """A size expression as a JSON value."""
    return d if d is None or isinstance(d, int) else str(d)


def load(data: object) -> Signature:
    """The signature that `dump` wrote as `data`."""
    top = _fields(data, "signature", ("name", "entries", "weights", "state"))
    weights = [_port(w, "weight") for w in _list(top["weights"], "weights")]
    state = [_port(v, "state") for v in _list(top["state"], "state")]
    known = {v.name: v.type for v in state}
    entries = [_load_entry(e, known) for e in _list(top["entries"], "entries")]
    if not entries:
        raise PackageError("signature: no entries")
    return Signature(
        _text(top["name"], "name"),
        _unique(entries, "entry", lambda e: e.name),
        {n: p.type for n, p in _unique(weights, "weight", lambda p: p.name).items()},
        {n: StateVar(n, p.type) for n, p in _unique(state, "state", lambda p: p.name).items()},
    )


def _load_entry(data: object, state: Mapping[str, TensorType]) -> Entry:
    fields = ("name", "inputs", "outputs", "requires", "checks", "dims", "reads", "writes", "finite")
    f = _fields(data, "entry", fields)
    name = _text(f["name"], "entry name")
    inputs = tuple(_port(p, "input") for p in _list(f["inputs"], "inputs"))
    outputs = tuple(_port(p, "output") for p in _list(f["outputs"], "outputs"))
    known = set(_unique(list(inputs), f"{name}: input", lambda p: p.name))
    given = _unique(list(outputs), f"{name}: output", lambda p: p.name)
    reads, writes = (_states(f[k], name, state) for k in ("reads", "writes"))
    finite = tuple(_text(n, "name") for n in _list(f["finite"], "finite"))
    strange = set(finite) - set(given) - known
    if strange:
        raise PackageError(f"{name}: there is no output or input {min(strange)!r}")
    named = tuple(_text(n, "dimension name") for n in _list(f["dims"], "dims"))
    bindable = {n for p in inputs for n in p.type.names}
    entry = Entry(
        name,
        inputs,
        outputs,
        tuple(_requirement(r) for r in _list(f["requires"], "requires")),
        tuple(_check(c) for c in _list(f["checks"], "checks")),
        named,
        reads,
        writes,
        finite,
    )
    bounds = [c.low for c in entry.checks] + [c.high for c in entry.checks]
    used = [*(r.dim for r in entry.requires), *(b for b in bounds if b is not None)]
    free = {n for d in used for n in dims.names(d)} | set(named)
    free |= {n for p in outputs for n in p.type.names}
    free -= {n for v in reads for n in state[v].names}
    if free - bindable:
        raise PackageError(f"{name}: no input has the dimension {min(free - bindable)}")
    for c in entry.checks:
        if c.input not in known:
            raise PackageError(f"{name}: a check names {c.input!r}, which is no input")
    return entry


def _states(data: object, entry: str, known: Mapping[str, TensorType]) -> tuple[str, ...]:
    names = [_text(n, "state name") for n in _list(data, "state names")]
    for n in _unique(names, f"{entry}: state", str):
        if n not in known:
            raise PackageError(f"{entry}: there is no state {n!r}")
    return tuple(names)


def _port(data: object, what: str) -> Port:
    name, kind = _pair(data, what, 2)
    return Port(_text(name, f"{what} name"), _type(kind, what))


def _requirement(data: object) -> Requirement:
    d, what = _pair(data, "requirement", 2)
    found = load_dim(d)
    if found is None:
        raise PackageError("requirement: no expression")
    return Requirement(found, _text(what, "requirement", empty=True))


def _check(data: object) -> Check:
    name, low, high, what = _pair(data, "check", 4)
    what = _text(what, "check", empty=True)
    return Check(_text(name, "check"), load_dim(low), load_dim(high), what)


def load_dim(data: object) -> Dim | None:
    """The size expression that `shown_dim` wrote; PackageError for anything else."""
    if data is None:
        return None
    if isinstance(data, int) and not isinstance(data, bool) and abs(data) < dims.LIMIT:
        return data
    try:
        return dims.parse(_text(data, "dimension"))
    except (IRError, RecursionError) as e:
        raise PackageError(f"dimension: {e}") from e


def _type(data: object, what: str) -> TensorType:
    try:
        return parse_type(_text(data, f"{what} type"))
    except (IRError, RecursionError) as e:
        raise PackageError(f"{what}: {e}") from e


def _fields(data: object, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise PackageError(f"{what}: expected an object, got {type(data).__name__}")
    missing, extra = set(names) - set(data), set(data) - set(names)
    if missing or extra:
        word, which = ("missing", missing) if missing else ("unknown", extra)
        raise PackageError(f"{what}: {word} field {str(min(which, key=str))[:80]!r}")
    return data


def _list(data: object, what: str) -> list[Any]:
    if not isinstance(data, list) or len(data) > _ITEMS:
        raise PackageError(f"{what}: expected a list of at most {_ITEMS}")
    return data


def _pair(data: object, what: str, count: int) -> list[Any]:
    if not isinstance(data, list) or len(data) != count:
        raise PackageError(f"{what}: expected a list of {count} values")
    return data


def _text(data: object, what: str, *, empty: bool = False) -> str:
    if not isinstance(data, str) or len(data) > _TEXT or not (data or empty):
        raise PackageError(f"{what}: expected a text of at most {_TEXT} characters")
    return data


def _unique(items: list[T], what: str, key: Callable[[T], str]) -> dict[str, T]:
    out: dict[str, T] = {}
    for item in items:
        if key(item) in out:
            raise PackageError(f"{what} {key(item)!r} appears twice")
        out[key(item)] = item
    return out
