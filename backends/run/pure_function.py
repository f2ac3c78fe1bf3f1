"""An entry as a function of its state, for callers who keep the state of many clients themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lstm_ir.backends.run import runtime
from lstm_ir.ir import state_values
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.signature import Entry, Port, Signature, by_name, confirm, native

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]
PREFIX = "state "  # of a variable's name among inputs and outputs


class PureFunction:
    """What an entry computes from its inputs and its state: `f({"x": a, "state h0": h})` -> outputs and new state.

    The state of the session that it belongs to is neither read nor changed. `entry` has the state variables that are
    read among its inputs, those that are written among its outputs, each as `state NAME`.
    """

    def __init__(
        self, entry: Entry, signature: Signature, initial: Mapping[str, Array],
        run: Callable[[list[Array], Shapes], dict[str, Array]],
    ) -> None:  # fmt: skip
        if entry.finite or entry.restarts:
            what = "refuses numbers that are not finite" if entry.finite else "starts state again"
            raise CallError(f"{entry.name}: it {what}, so it is no function of its state alone")
        self.state = signature.state
        self._initial, self._run = initial, run
        inputs = (*entry.inputs, *(Port(PREFIX + n, self.state[n].type) for n in entry.reads))
        outputs = (*entry.outputs, *(Port(PREFIX + n, self.state[n].type) for n in entry.writes))
        self.entry = Entry(entry.name, inputs, outputs, entry.requires, entry.checks, entry.dims)
        names = [p.name for p in inputs]
        if len(set(names)) != len(names):
            raise CallError(f"{entry.name}: an input and a state have one name")

    def __call__(self, arrays: Mapping[str, Any] | None = None, /, *more: Any, **named: Any) -> dict[str, Array]:
        """Outputs and new state by name; arrays by name and errors as of a call: `f({"state h0": h}, x=a)`."""
        given = named if arrays is None and not more else by_name(self.entry, (arrays, *more), named)
        values, shapes = native(self.entry, given)
        confirm(self.entry, self.entry.bound(shapes), values)
        with runtime.reporting(self.entry.name):
            return self._run(values, shapes)

    def start(self, name: str, sizes: Mapping[str, int]) -> Array:
        """What the state variable starts as in a call with these named sizes."""
        return state_values.start(self.state[name], self._initial[name], sizes)
