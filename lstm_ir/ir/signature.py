"""What a compiled program takes and gives: plain data, its JSON, and the check of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.arrays import Conform, take
from lstm_ir.ir.cached import cached_property
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import CallError, ValueRangeError
from lstm_ir.ir.immutable import Immutable
from lstm_ir.ir.types import TensorType

_LARGEST = int(np.iinfo(np.int32).max)  # places and numbers of steps are counted in 32 bits
_MEMO = 256  # bound shape combinations remembered per entry


class Port(NamedTuple):
    """A named input or output."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class Check(NamedTuple):
    """The values of an integer input lie in [low, high]; None is no bound."""

    input: str
    low: Dim | None
    high: Dim | None
    what: str


class Requirement(NamedTuple):
    """An expression that is >= 0 once names are bound, and what it is for."""

    dim: Dim
    what: str


class StateVar(NamedTuple):
    """A named tensor that lives between calls."""

    name: str
    type: TensorType


def starts(initial: TensorType, whole: TensorType) -> bool:
    """Whether an array of type `initial` broadcasts to a state variable of type `whole`."""
    pairs = zip(reversed(initial.shape), reversed(whole.shape), strict=False)
    fits = initial.rank <= whole.rank and all(a in (1, b) for a, b in pairs)
    return fits and initial.dtype is whole.dtype


class CallSizes(NamedTuple):
    """What the shapes of a call determine: sizes by name, and the bounds of its integer inputs."""

    env: dict[str, int]
    checks: tuple[tuple[Check, int | None, int | None], ...]


class Entry(Immutable):
    """One callable of a program. `dims` are the names that its inputs determine.

    The compiled function takes the inputs, then the state variables `reads`; it gives the outputs,
    then the new values of the state variables `writes`. A call whose outputs, or inputs, of
    the names `finite` are not finite fails, and writes nothing.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    requires: tuple[Requirement, ...]
    checks: tuple[Check, ...]
    dims: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    finite: tuple[str, ...]

    def __init__(
        self, name: str, inputs: tuple[Port, ...], outputs: tuple[Port, ...], requires: tuple[Requirement, ...] = (),
        checks: tuple[Check, ...] = (), dims: tuple[str, ...] = (), reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (), finite: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._set(name=name, inputs=inputs, outputs=outputs, requires=requires, checks=checks)
        self._set(dims=dims, reads=reads, writes=writes, finite=finite)

    @property
    def restarts(self) -> bool:
        """It takes no input and gives nothing: it starts again the state that it reads, or all if it reads none."""
        return not (self.inputs or self.outputs or self.writes)

    def watched(self) -> tuple[tuple[tuple[int, str], ...], ...]:
        """Places and names of the inputs, then of the outputs, that must be finite; a name that both
        have is the output's.
        """
        named = [{p.name: i for i, p in enumerate(ports)} for ports in (self.inputs, self.outputs)]
        ours = [[n for n in self.finite if n not in named[1]], self.finite]
        return tuple(tuple((at[n], n) for n in names if n in at) for at, names in zip(named, ours, strict=True))

    @cached_property
    def _conform(self) -> tuple[tuple[str, Conform], ...]:
        return tuple((p.name, Conform(p.name, p.type.dtype)) for p in self.inputs)

    @cached_property
    def _memo(self) -> dict[tuple[tuple[int, ...], ...], CallSizes]:
        return {}

    def bound(self, shapes: tuple[tuple[int, ...], ...]) -> CallSizes:
        """Names and value bounds for these input shapes, in input order; CallError if none fit."""
        found = self._memo.get(shapes)
        if found is None:
            named = {p.name: s for p, s in zip(self.inputs, shapes, strict=True)}
            env = bind_dims(self.inputs, named)
            for r in self.requires:
                if not dims.names(r.dim) <= env.keys():
                    continue  # a size of state alone: the module asserts it
                if dims.evaluate(r.dim, env) < 0:
                    raise CallError(f"{self.name}: {r.what}{_unmet(r.dim, env)}")
            checks = tuple((c, _value(c.low, env), _value(c.high, env)) for c in self.checks)
            found = CallSizes(env, checks)
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            self._memo[shapes] = found
        return found


def _unmet(d: Dim, env: Mapping[str, int]) -> str:
    """The sizes of a call, and how they miss d >= 0 unless that is one size below a number."""
    names = sorted(dims.names(d))
    sizes = ", ".join(f"{n} = {env[n]}" for n in names)
    alone = len(names) == 1 and isinstance(dims.add(d, dims.mul(dims.name(names[0]), -1)), int)
    return f" ({sizes})" if alone else f": {d} >= 0 does not hold ({sizes})"


class Signature(Immutable):
    """A program: entries, weights and state by name."""

    name: str
    entries: dict[str, Entry]
    weights: dict[str, TensorType]
    state: dict[str, StateVar]

    def __init__(
        self, name: str, entries: dict[str, Entry],
        weights: dict[str, TensorType] | None = None, state: dict[str, StateVar] | None = None,
    ) -> None:  # fmt: skip
        self._set(name=name, entries=entries, weights=weights or {}, state=state or {})

    @property
    def together(self) -> list[tuple[str, ...]]:
        """State variables that one call takes or gives, so that their named sizes are the same: of each entry."""
        return [(*dict.fromkeys((*e.reads, *e.writes)),) for e in self.entries.values()]

    @property
    def main(self) -> Entry | None:
        """The entry `main`, or the only one."""
        if len(self.entries) == 1:
            return next(iter(self.entries.values()))
        return self.entries.get("main")


def _value(d: Dim | None, env: Mapping[str, int]) -> int | None:
    return None if d is None else dims.evaluate(d, env)


def bind_dims(ports: Sequence[Port], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Every dimension name of `ports`, solved from the input shapes (by port name).

    Plain names come first, then expressions with one unknown, linear in it: 2*B+1 = 7 gives B = 3.
    """
    env: dict[str, int] = {}
    source: dict[str, str] = {}
    todo: list[tuple[Port, int, Dim, int]] = []
    for p in ports:
        shape = tuple(shapes[p.name])
        if len(shape) != p.type.rank:
            raise CallError(_misshapen(p, shape, f"rank {p.type.rank}, got rank {len(shape)}"))
        for axis, (d, size) in enumerate(zip(p.type.shape, shape, strict=True)):
            if isinstance(d, int):
                if d != size:
                    raise CallError(_misshapen(p, shape, f"axis {axis} is {d}, got {size}"))
            elif (plain := _plain(d)) is None:
                todo.append((p, axis, d, size))
            elif plain not in env:
                env[plain], source[plain] = size, f"{p.name} (axis {axis})"
            elif env[plain] != size:
                raise CallError(
                    f"two sizes for {plain}: {env[plain]} from {source[plain]}, {size} from {p.name} (axis {axis})"
                )
    _solve(todo, env, source)
    for p, axis, d, size in todo:
        _confirm(p, axis, d, size, env, source)
    for n, value in env.items():
        if value > _LARGEST:
            raise CallError(f"{source[n]}: {n} is {value}; sizes that have names go up to {_LARGEST}")
    return env


def _plain(d: dims.Expr) -> str | None:
    """The name, if `d` is nothing but a name."""
    mono, k = d.terms[0]
    if len(d.terms) == 1 and k == 1 and len(mono) == 1 and isinstance(mono[0], str):
        return mono[0]
    return None


def _solve(todo: Sequence[tuple[Port, int, Dim, int]], env: dict[str, int], source: dict[str, str]) -> None:
    progress = True
    while progress:
        progress = False
        for p, axis, d, size in todo:
            known: dict[str, Dim] = dict(env)
            rest = dims.substitute(d, known)
            unknown = dims.names(rest)
            if isinstance(rest, int) or len(unknown) != 1:
                continue
            (n,) = unknown
            terms = dict(rest.terms)
            offset, k = terms.pop((), 0), terms.pop((n,), 0)
            if terms or k == 0:
                continue  # not linear
            value, left = divmod(size - offset, k)
            if left or value < 0:
                raise CallError(f"{p.name}: axis {axis} has size {size}; expected {d}, and no {n} >= 0 gives that")
            env[n], source[n] = value, f"{p.name} (axis {axis})"
            progress = True


def _confirm(p: Port, axis: int, d: Dim, size: int, env: Mapping[str, int], source: Mapping[str, str]) -> None:
    missing = sorted(dims.names(d) - set(env))
    if missing:
        raise CallError(
            f"{p.name}: the sizes of the inputs do not determine {', '.join(missing)} (axis {axis} is {d} = {size})"
        )
    value = dims.evaluate(d, env)
    if value != size:
        why = ", ".join(f"{n} = {env[n]} from {source[n]}" for n in sorted(dims.names(d)))
        raise CallError(f"{p.name}: axis {axis} is {d} = {value} ({why}); got {size}")


def _misshapen(p: Port, shape: tuple[int, ...], problem: str) -> str:
    return f"{p.name}: expected {p.type}, got shape [{','.join(map(str, shape))}]: {problem}"


def by_name(entry: Entry, positional: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arrays of a call by name: `named`, and those of a mapping, which is all that `positional` may be.

    CallError for arrays without names, and for a name that is given twice.
    """
    if len(positional) > 1 or not isinstance(positional[0], Mapping):
        got = type(positional[0]).__name__ if len(positional) == 1 else f"{len(positional)} positional arguments"
        raise CallError(f"{entry.name}: takes arrays by name, got {got}; {_written(entry)}")
    if not named and type(positional[0]) is dict:  # another mapping may make what it lacks
        return positional[0]
    twice = named.keys() & positional[0].keys()
    if twice:
        raise CallError(f"{entry.name}: input {min(twice)} is given twice")
    return {**positional[0], **named}


def _written(entry: Entry) -> str:
    """How a call of the entry is written."""
    names = [p.name for p in entry.inputs]
    if not names:
        return "it takes none"
    if all(n.isidentifier() and not iskeyword(n) for n in names):
        return f"write ({', '.join(f'{n}=...' for n in names)})"
    return f"write ({{{', '.join(f'{n!r}: ...' for n in names)}}})"


def check_call(entry: Entry, arrays: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs as native contiguous arrays in input order, or CallError / ValueRangeError."""
    values = call_values(entry, arrays)
    return dict(zip((p.name for p in entry.inputs), values, strict=True))


def call_values(entry: Entry, arrays: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    """As `check_call`, without names: one array for each input, in order."""
    values, shapes = native(entry, arrays)
    confirm(entry, entry.bound(shapes), values)
    return values


def native(
    entry: Entry, arrays: Mapping[str, Any], taken: Callable[..., Any] = take
) -> tuple[list[np.ndarray[Any, Any]], tuple[tuple[int, ...], ...]]:
    """The inputs in order, as native contiguous arrays, and their shapes; CallError for names and element types.

    taken: what becomes of a value that is no such array.
    """
    conform = entry._conform
    if len(arrays) != len(conform):
        raise CallError(_names(entry, arrays))
    values: list[np.ndarray[Any, Any]] = []
    shapes: list[tuple[int, ...]] = []
    try:
        for n, c in conform:  # a comprehension is a function that is made and called, here with cold caches
            a = arrays[n]
            if type(a) is not np.ndarray or a.dtype is not c.as_is or not a.flags.c_contiguous:
                a = taken(c, a)
            values.append(a)
            shapes.append(a.shape)
        return values, tuple(shapes)
    except KeyError as e:
        if e.args and e.args[0] in (n for n, _ in conform):
            raise CallError(_names(entry, arrays)) from None
        raise


def confirm(entry: Entry, bound: CallSizes, values: list[np.ndarray[Any, Any]]) -> None:
    """ValueRangeError for an integer input outside its bounds."""
    for check, low, high in bound.checks:
        at = next(i for i, p in enumerate(entry.inputs) if p.name == check.input)
        _check_values(check, low, high, values[at])


def _names(entry: Entry, arrays: Mapping[str, Any]) -> str:
    wanted = [p.name for p in entry.inputs]
    missing = [n for n in wanted if n not in arrays]
    extra = [str(n) for n in arrays if n not in wanted]
    parts = [f"missing input {n}" for n in missing] + [f"unknown input {n}" for n in extra]
    inputs = ", ".join(str(p) for p in entry.inputs)
    return f"{entry.name}: {'; '.join(parts)}; the inputs are ({inputs})"


def _check_values(c: Check, low: int | None, high: int | None, a: np.ndarray[Any, Any]) -> None:
    if a.size == 0:
        return
    a = np.asarray(a)  # what lies on a device
    lowest, highest = int(a.min()), int(a.max())
    below, above = low is not None and lowest < low, high is not None and highest > high
    if below or above:
        value = lowest if below else highest
        at = [int(i) for i in np.unravel_index(int(np.argmax(a == value)), a.shape)]
        where = f" at index {at}" if at else ""
        raise ValueRangeError(f"{c.input}: {c.what}: expected {_range(c, low, high)}, got {value}{where}")


def _range(c: Check, low: int | None, high: int | None) -> str:
    def shown(d: Dim | None, v: int | None) -> str:
        return str(v) if isinstance(d, int) else f"{d} = {v}"

    if high is None:
        return f"{c.input} >= {shown(c.low, low)}"
    if low is None:
        return f"{c.input} <= {shown(c.high, high)}"
    return f"{shown(c.low, low)} <= {c.input} <= {shown(c.high, high)}"
