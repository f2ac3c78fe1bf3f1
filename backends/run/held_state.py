"""The state variables of one session: on the device, read and written by name."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from lstm_ir.backends import bindings, process
from lstm_ir.backends.run.transfer import BorderType, Extent, Mover
from lstm_ir.ir import dims, state_values
from lstm_ir.ir.errors import CallError, DeviceError
from lstm_ir.ir.near_names import hint
from lstm_ir.ir.signature import Signature, StateVar

Array = np.ndarray[Any, Any]


# The value of a variable: its buffer, and the sizes of the last call that it fitted. A plain tuple: each step makes
# one for each variable.
HeldValue = tuple[Any, Mapping[str, int] | None]


class HeldState(MutableMapping[str, Array]):
    """Name -> array. Reading copies from the device, writing checks the type and copies to it.

    A variable with named sizes starts at the first call that needs it, with the sizes of that call.
    """

    def __init__(
        self,
        signature: Signature,
        initial: Mapping[str, Array],
        move: Mover,
        lock: process.Lock,
        owner: str = "session",
    ) -> None:
        variables, self._together, self._entries = signature.state, signature.together, signature.entries
        missing = [n for n in variables if n not in initial]
        if missing:
            raise CallError(f"state {missing[0]!r} has no initial value")
        self._variables, self._initial, self._move, self._lock = variables, initial, move, lock
        self._kinds = {n: BorderType(v.type.dtype) for n, v in variables.items()}
        self._values: dict[str, HeldValue] = {}
        self._closed, self._owner = False, owner
        # Buffers must go before their device: at exit too, where Python frees in any order.
        weakref.finalize(self, _free, self._values)

    @property
    def variables(self) -> Mapping[str, StateVar]:
        """Names and types."""
        return self._variables

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def get(self, name: str, default: Any = None) -> Any:
        """The array, or `default` where there is no such variable."""
        return self[name] if name in self else default

    def __getitem__(self, name: str) -> Array:
        self._known(name)
        with self._turn():
            return self._read(name)

    def _read(self, name: str) -> Array:
        held = self._values.get(name)
        return (self._start(name, {}) if held is None else self._fetched(name, held)).copy()

    def _fetched(self, name: str, held: HeldValue) -> Array:
        results = bindings.native().VmVariantList(1)
        results.push_ref(held[0])
        fetched: Array = self._move.arrays(results, ((name, self._kinds[name]),), None)[name]
        return fetched

    def snapshot(self) -> dict[str, Array]:
        """Every variable, all as of one moment between two calls; CallError for sizes that differ."""
        with self._turn():
            out = {n: self._read(n) for n in self._variables}
        state_values.agree(self._variables, out, self._together)
        return out

    def __setitem__(self, name: str, value: Any) -> None:
        a = self._checked(name, value)
        with self._turn():
            self._values[name] = self._put(name, a)

    def _put(self, name: str, a: Array) -> HeldValue:
        return self._move.put(a, self._kinds[name]), None

    def kind(self, name: str) -> BorderType:
        """The element type of a variable."""
        return self._kinds[name]

    def _checked(self, name: str, value: Any) -> Array:
        return state_values.fitting(self._known(name), value)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with process.turn(self._lock):
            if self._closed:
                raise DeviceError(f"the {self._owner} is closed")
            yield

    def __delitem__(self, name: str) -> None:
        raise CallError(f"state {name!r} cannot be removed; reset() starts it again")

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def reset(self, *names: str) -> None:
        """Start these variables again; all without names."""
        for name in names:
            self._known(name)
        with self._turn():
            self.restart(*names)

    def restart(self, *names: str) -> None:
        """As `reset`. The caller holds the lock."""
        for name in names or tuple(self._values):
            self._values.pop(name, None)

    def start(self, name: str, sizes: Mapping[str, int]) -> Array:
        """What a variable starts as in a call with these named sizes; CallError where they leave one open."""
        self._known(name)
        return self._start(name, sizes)

    def scalar(self, name: str) -> Any:
        """The value of a variable without axes; None where there is none.

        The caller holds the lock.
        """
        found = self._variables.get(name)
        if found is None or found.type.rank:
            return None
        return self._read(name).item()

    def update_all(self, arrays: Mapping[str, Array], where: str, remedy: str = "") -> None:
        """Every variable from `arrays`, or none of them; PackageError names `where`, and says `remedy` of names."""
        self._take(state_values.whole(self._variables, arrays, where, self._together, remedy))

    def update_shared(self, arrays: Mapping[str, Array], where: str) -> None:
        """The variables that `arrays` has, or none of them; PackageError names `where`, also where it has none."""
        entries = self._entries.values()
        self._take(state_values.shared(self._variables, arrays, where, self._together, entries))

    def update(self, other: Any = (), /, **named: Any) -> None:
        """These variables, between two calls, or none of them: all values are checked before one is written.

        Those of another session are of one moment too.
        """
        given = dict(other.snapshot() if isinstance(other, HeldState) else other, **named)
        checked = {n: self._checked(n, value) for n, value in given.items()}
        state_values.agree(self._variables, checked, self._together)
        self._take(checked)

    def _take(self, checked: Mapping[str, Array]) -> None:
        with self._turn():
            made = {n: self._put(n, a) for n, a in checked.items()}
            self._values.update(made)

    def close(self) -> None:
        """Free the buffers; from then on every read and write is an error.

        The caller holds the lock.
        """
        self._closed = True
        self._values.clear()

    def read(self, names: tuple[str, ...], env: Mapping[str, int]) -> list[HeldValue]:
        """The values for a call with these sizes. The caller holds the lock, and keeps them once
        the call has succeeded: a call that fails leaves no start values, whose sizes would stay.

        Calls of equal sizes give one and the same `env`: a stream looks at the sizes of its state once.
        """
        out = []
        for name in names:
            held = self._values.get(name)
            if held is None:
                held = self._put(name, self._start(name, env))
            view, fitted = held
            if fitted is not env:
                self._fits(name, tuple(view.shape), env)
                held = view, env
            out.append(held)
        return out

    def arrays(self, names: tuple[str, ...], env: Mapping[str, int]) -> list[Array]:
        """What a call with these sizes would read. The caller holds the lock."""
        return [self._read(n) if n in self._values else self._start(n, env) for n in names]

    def keep(self, names: tuple[str, ...], values: list[HeldValue]) -> None:
        """What a call that succeeded has read or written. The caller holds the lock."""
        self._values.update(zip(names, values, strict=True))

    def copied(self, name: str, held: HeldValue) -> HeldValue:
        """The value in memory of its own."""
        return self._put(name, self._fetched(name, held))[0], held[1]

    def extent(self, name: str, held: HeldValue) -> Extent | None:
        """The memory of a value, where that is the host's."""
        return self._move.extent(held[0], self._kinds[name])

    def _known(self, name: str) -> StateVar:
        found = self._variables.get(name)
        if found is None:
            raise CallError(
                f"there is no state {name!r}{hint(name, self, '; there is ' + (', '.join(self) or 'none'))}"
            )
        return found

    def _start(self, name: str, env: Mapping[str, int]) -> Array:
        return state_values.start(self._variables[name], self._initial[name], env)

    def _fits(self, name: str, shape: tuple[int, ...], env: Mapping[str, int]) -> None:
        t = self._variables[name].type
        for axis, (d, have) in enumerate(zip(t.shape, shape, strict=True)):
            if dims.names(d) <= set(env) and dims.evaluate(d, env) != have:
                raise CallError(
                    f"state {name!r} has {have} on axis {axis}, this call has {d} = "
                    f"{dims.evaluate(d, env)}; reset({name!r}) starts it again"
                )


def _free(values: dict[str, HeldValue]) -> None:
    if not process.forked():  # there they are the parent's, as their device is
        values.clear()
