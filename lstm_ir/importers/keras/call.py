"""One call of a layer as its handler sees it: tensors with their masks, the config, the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lstm_ir import ops as li
from lstm_ir.importers.keras.config import LayerSpec
from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.operands import Operands, Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType, TensorType

if TYPE_CHECKING:
    from lstm_ir.importers.keras.holding import Holding


class Tensor(NamedTuple):
    """A value, and the mask [B,T] that Keras attaches to it: false where a step does not exist."""

    value: Value
    mask: Value | None = None


@dataclass(frozen=True)
class Masked:
    """What a handler gives that decides on masks itself: one for each result."""

    values: tuple[Value, ...]
    masks: tuple[Value | None, ...]


class Walker(Protocol):
    """What a call asks of the walk over the model."""

    knowledge: Knowledge
    training: bool

    def key(self) -> Value:
        """A key for random numbers that no other layer has."""
        ...

    @property
    def states(self) -> Mapping[str, tuple[Value, Value]]:
        """By name, what a stateful layer keeps: before and after a call."""
        ...

    def state(self, name: str, kind: TensorType) -> Value:
        """The state of a stateful layer before the call."""
        ...

    def keep(self, name: str, after: Value) -> None:
        """The state after the call."""
        ...

    def apply(self, spec: LayerSpec, holding: Holding, args: list[Any], kwargs: dict[str, Any]) -> list[Tensor]:
        """What another layer gives."""
        ...


class LayerCall(Operands):
    """Tensors in Keras' order, the first argument's structure, and other arguments."""

    def __init__(
        self, spec: LayerSpec, walk: Walker, holding: Holding, args: Sequence[Any], kwargs: Mapping[str, Any], mask: Any
    ) -> None:
        self.spec, self.walk, self.holding = spec, walk, holding
        self.args, self.kwargs, self.mask = list(args), dict(kwargs), mask
        super().__init__(spec.kind, [t.value for t in tensors(self.first)], walk.knowledge)

    @property
    def first(self) -> Any:
        """The first argument: a tensor or a structure of tensors."""
        return self.args[0] if self.args else next(iter(self.kwargs.values()), None)

    def with_inputs(self, inputs: Sequence[Result]) -> LayerCall:
        """The same layer over one other tensor."""
        (v,) = inputs
        assert isinstance(v, Value)
        return LayerCall(self.spec, self.walk, self.holding, [Tensor(v)], {}, None)

    def check_all_read(self) -> None:
        """Keras itself has checked its operands."""

    @property
    def x(self) -> Value:
        """The only tensor of the first argument."""
        if len(self.inputs) != 1:
            raise NodeRefusedError(f"it is called with {len(self.inputs)} tensors, not one")
        return self.value(0)

    @property
    def masks(self) -> list[Value | None]:
        """The masks of the tensors of the first argument."""
        return [t.mask for t in tensors(self.first)]

    @property
    def training(self) -> bool:
        """Whether the model is imported as it trains.

        Keras writes the value of the call that built the model into its nodes, and `model(x, training=...)` goes
        before it, whatever it is.
        """
        return self.walk.training

    def key(self) -> Value:
        """A random key of its own, for one use."""
        return self.walk.key()

    def weights(self) -> dict[str, Value]:
        """The layer's own weights by Keras' names."""
        return self.holding.weights(self.spec)

    # -- the config

    def get(self, name: str, default: Any = None) -> Any:
        """An argument of the layer."""
        return self.spec.config.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean argument."""
        found = self.get(name, default)
        if not isinstance(found, bool):
            raise NodeRefusedError(f"{name} is {found!r:.40}, not true or false")
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        found = self.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int):
            raise NodeRefusedError(f"{name} is {found!r:.40}, not a whole number")
        return found

    def real(self, name: str, default: float | None = None) -> float:
        """A number."""
        found = self.get(name, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise NodeRefusedError(f"{name} is {found!r:.40}, not a number")
        return float(found)

    def word(self, name: str, default: str | None = None, among: Sequence[str] = ()) -> str:
        """A word, one of `among` where they are given."""
        found = self.get(name, default)
        if not isinstance(found, str) or (among and found not in among):
            raise NodeRefusedError(f"{name} is {found!r:.40}, not {' or '.join(among) if among else 'a word'}")
        return found

    def integers(self, name: str, count: int, default: int | None = None) -> list[int]:
        """So many whole numbers; one stands for all."""
        found = self.get(name, default)
        found = [found] * count if isinstance(found, int) else found
        if not isinstance(found, (list, tuple)) or len(found) != count or any(
            isinstance(k, bool) or not isinstance(k, int) for k in found
        ):  # fmt: skip
            raise NodeRefusedError(f"{name} is {self.get(name)!r:.40}, not {count} whole numbers")
        return list(found)

    @property
    def channels_last(self) -> bool:
        """Whether the channels stand behind the other axes."""
        return self.word("data_format", "channels_last", ("channels_last", "channels_first")) == "channels_last"


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of a structure, in Keras' order."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, Mapping):
        return [t for k in sorted(tree) for t in tensors(tree[k])]
    if isinstance(tree, (list, tuple)):
        return [t for v in tree for t in tensors(v)]
    return []


DTYPES = {
    "float32": DType.f32, "float64": DType.f64, "float16": DType.f16, "bfloat16": DType.bf16, "int8": DType.i8,
    "uint8": DType.u8, "int32": DType.i32, "uint32": DType.u32, "int64": DType.i64, "bool": DType.i1,
}  # fmt: skip


def dtype_named(word: Any) -> DType:
    """The element type of Keras' word."""
    found = DTYPES.get(word) if isinstance(word, str) else None
    if found is None:
        raise NodeRefusedError(f"elements of the type {word!r:.40} are not taken")
    return found


def policy(spec: LayerSpec) -> DType:
    """The type in which a layer computes, which has to be that of its weights."""
    given = spec.config.get("dtype", "float32")
    if isinstance(given, Mapping):
        inner = given.get("config")
        given = inner.get("name") if isinstance(inner, Mapping) else None
    if given is None:
        return DType.f32
    if not isinstance(given, str) or given not in DTYPES:
        raise NodeRefusedError(f"its dtype policy {given!r:.40} is not taken")
    return DTYPES[given]


def as_floats(v: Value, dtype: DType) -> Value:
    """Floats in the layer's type; other elements as they are."""
    return li.convert(v, dtype) if v.dtype.is_float and dtype.is_float and v.dtype is not dtype else v


def zeros_type(shape: Sequence[Any], dtype: DType) -> TensorType:
    """The type of a state."""
    return TensorType(tuple(shape), dtype)
