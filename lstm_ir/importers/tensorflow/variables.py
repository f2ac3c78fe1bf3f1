"""Variables of a model: weights under their names, and those that the model writes as state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TypeAlias

from lstm_ir import ops as li
from lstm_ir.importers.choices import entering
from lstm_ir.importers.operands import plain
from lstm_ir.importers.refusals import NodeRefusedError, UnifiedError
from lstm_ir.importers.tensorflow.interface import Bindings
from lstm_ir.importers.tensorflow.reading import Source
from lstm_ir.importers.tensorflow.tensors import dtype_of
from lstm_ir.importers.tensorflow.variable import Variable
from lstm_ir.importers.tensorflow.variable_names import VariableNames
from lstm_ir.ir.data import Data
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant, parameter, weight

Held: TypeAlias = "Mapping[str, tuple[Variable, Value]]"  # by node what was written


class StateError(Exception):
    """Variables that were taken for weights are written: the walk starts again, and they are state."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self.names = names


class Variables:
    """What variables hold at a point of the walk. `state` are the names of those that the model writes."""

    def __init__(self, source: Source, state: frozenset[str]) -> None:
        self._source, self._state = source, state
        self._names = VariableNames(source)
        self._first: dict[str, Value] = {}  # by node what it holds before anything is written
        self._now: dict[str, tuple[Variable, Value]] = {}
        self._where: list[Value] = []  # conditions of the branches that read now
        self._data: dict[str, Data] = {}
        self.params: dict[str, Value] = {}
        self.weights: dict[str, Value] = {}

    def read(self, v: Variable) -> Value:
        """What the variable holds."""
        return reduce(entering, self._where, self._holds(v))

    @contextmanager
    def read_where(self, holds: Value) -> Iterator[None]:
        """Meanwhile a branch reads that runs where this condition holds."""
        self._where.append(holds)
        try:
            yield
        finally:
            self._where.pop()

    def _holds(self, v: Variable) -> Value:
        if v.node in self._now:
            return self._now[v.node][1]
        if v.node not in self._first:
            self._first[v.node] = self._start(v)
        return self._first[v.node]

    def assign(self, v: Variable, value: Value) -> None:
        """From here on the variable holds `value`."""
        before = self._holds(v).type
        if value.dtype is not before.dtype or value.rank != before.rank:
            raise NodeRefusedError(f"the variable is {before}, what it is to hold {value.type}")
        for a, b in zip(before.shape, value.shape, strict=True):
            if a != b:
                name = plain(b)
                if name is None or not isinstance(a, int):
                    raise NodeRefusedError(f"the variable is {before}, what it is to hold {value.type}")
                raise UnifiedError(name, a)
        self._now[v.node] = v, value

    def held(self) -> Held:
        """What was written up to here."""
        return dict(self._now)

    def hold(self, held: Held) -> None:
        """Go back to where `held` was asked for: another branch starts there."""
        self._now = dict(held)

    def choose(self, truth: Value, then: Held, other: Held) -> None:
        """From here on what stood at the end of one branch where the truth holds, and of the other elsewhere."""
        self._now = {node: held for node, held in then.items() if other.get(node) is held}
        for node, (v, _) in {**then, **other}.items():
            if node not in self._now:
                first = self.read(v)  # a branch that writes nothing leaves what the variable started with
                a, b = (side[node][1] if node in side else first for side in (then, other))
                self.assign(v, li.where(truth, a, b))

    def frozen(self, name: str, data: Data) -> Value:
        """A weight whose values stand in the graph itself."""
        if 0 in data.type.shape:  # nothing to train, as the missing c of CudnnRNN
            return constant(data)
        if name not in self.weights:
            self.weights[name] = weight(name, data)
        return self.weights[name]

    def check_written(self, bindings: Bindings) -> None:
        """StateError where a variable is written that was read as a weight."""
        more = frozenset(self.written) - self._state
        if more:
            raise StateError(self._state | more)

    @property
    def written(self) -> dict[str, Value]:
        """By name what variables hold at the end."""
        return {self._names.name(self._names.key(v)): value for v, value in self._now.values()}

    def initial(self, name: str) -> Data:
        """What a variable of the state starts as."""
        return self._data[name]

    def _start(self, v: Variable) -> Value:
        key = self._names.key(v)
        name = self._names.name(key)
        data = self._content(v, key)
        self._data[name] = data
        if name in self._state:
            self.params[name] = parameter(name, data.type)
            return self.params[name]
        if not data.type.dtype.is_float:
            return constant(data)
        if name not in self.weights:
            self.weights[name] = weight(name, data)
        return self.weights[name]

    def _content(self, v: Variable, key: str) -> Data:
        bundle = self._source.bundle
        if bundle is None:
            raise NodeRefusedError(f"the variable {v.name!r} has no value here: give checkpoint= (--checkpoint)")
        data = bundle.data(key)
        if data.type.dtype is not dtype_of(v.dtype):
            raise NodeRefusedError(f"the variable is {dtype_of(v.dtype)}, in the checkpoint it is {data.type}")
        stated = v.shape
        fits = stated is None or (
            len(stated) == data.type.rank and all(d in (None, s) for d, s in zip(stated, data.type.shape, strict=True))
        )
        if not fits:
            raise NodeRefusedError(f"the variable is {list(stated or ())}, in the checkpoint it is {data.type}")
        return data
