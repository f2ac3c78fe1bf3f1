"""Variables of a model: weights under their names, and those that the model writes as state."""

from __future__ import annotations

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
        self._now: dict[str, Value] = {}
        self._written: dict[str, Value] = {}
        self._data: dict[str, Data] = {}
        self.params: dict[str, Value] = {}
        self.weights: dict[str, Value] = {}

    def read(self, v: Variable) -> Value:
        """What the variable holds."""
        if v.node not in self._now:
            self._now[v.node] = self._first(v)
        return self._now[v.node]

    def assign(self, v: Variable, value: Value) -> None:
        """From here on the variable holds `value`."""
        before = self.read(v).type
        if value.dtype is not before.dtype or value.rank != before.rank:
            raise NodeRefusedError(f"the variable is {before}, what it is to hold {value.type}")
        for a, b in zip(before.shape, value.shape, strict=True):
            if a != b:
                name = plain(b)
                if name is None or not isinstance(a, int):
                    raise NodeRefusedError(f"the variable is {before}, what it is to hold {value.type}")
                raise UnifiedError(name, a)
        self._now[v.node] = self._written[self._names.name(self._names.key(v))] = value

    def frozen(self, name: str, data: Data) -> Value:
        """A weight whose values stand in the graph itself."""
        if 0 in data.type.shape:  # nothing to train, as the missing c of CudnnRNN
            return constant(data)
        if name not in self.weights:
            self.weights[name] = weight(name, data)
        return self.weights[name]

    def check_written(self, bindings: Bindings) -> None:
        """StateError where a variable is written that was read as a weight."""
        more = frozenset(self._written) - self._state
        if more:
            raise StateError(self._state | more)

    @property
    def written(self) -> dict[str, Value]:
        """By name what variables hold at the end."""
        return dict(self._written)

    def initial(self, name: str) -> Data:
        """What a variable of the state starts as."""
        return self._data[name]

    def _first(self, v: Variable) -> Value:
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
