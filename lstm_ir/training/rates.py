"""Learning rates: numbers, inputs, functions of the step, and what a plateau makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import GradientError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive import elementwise as e

STEP = "step"
BEST, BAD, COOLDOWN, SCALE = (f"plateau/{n}" for n in ("best", "bad", "cooldown", "scale"))


def is_number(v: object) -> bool:
    """An int or a float, NumPy's too; no boolean."""
    return isinstance(v, (int, float, np.integer, np.floating)) and not isinstance(v, bool)


def is_amount(v: object) -> bool:
    """A finite number of at least 0."""
    return is_number(v) and 0 <= v < math.inf  # type: ignore[operator]


@dataclass(frozen=True)
class Plateau:
    """A rate that is multiplied by `factor` once a metric has not become better for `patience` reports.

    The state lies in the module: the best metric, how many reports were not better, how many of the cooldown are
    left, and the product of the factors so far. Meaning: PyTorch's ReduceLROnPlateau, whose `eps` is 0 here.
    """

    lr: Rate
    factor: float
    patience: int
    threshold: float
    threshold_mode: str
    cooldown: int
    min_scale: float
    mode: str

    def shares_state_with(self, other: Plateau) -> bool:
        """All but the rate is the same."""
        return all(getattr(self, f.name) == getattr(other, f.name) for f in fields(self) if f.name != "lr")

    def start(self, kind: DType) -> dict[str, Data]:
        """The state before the first report; floats are of `kind`."""
        worst = math.inf if self.mode == "min" else -math.inf
        numbers = {BEST: worst, SCALE: 1.0}
        counts = {n: Data.of(np.int64(0)) for n in (BAD, COOLDOWN)}
        return {n: Data.of(np.asarray(v, kind.numpy)) for n, v in numbers.items()} | counts

    def reported(self, metric: Value, held: Mapping[str, Value]) -> dict[str, Value]:
        """The state after a report of `metric`, of the state's float type."""
        best, bad, cooldown, scale = (held[n] for n in (BEST, BAD, COOLDOWN, SCALE))
        sign = -1.0 if self.mode == "min" else 1.0
        bound = best * (1.0 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        better = e.less(metric, bound) if self.mode == "min" else e.greater(metric, bound)
        zero = constant(0, DType.i64)
        bad = e.select(better, zero, bad + 1)
        cooling = e.greater(cooldown, zero)
        bad, cooldown = e.select(cooling, zero, bad), e.select(cooling, cooldown - 1, cooldown)
        late = e.greater(bad, constant(self.patience, DType.i64))
        return {
            BEST: e.select(better, metric, best),
            BAD: e.select(late, zero, bad),
            COOLDOWN: e.select(late, constant(self.cooldown, DType.i64), cooldown),
            SCALE: e.select(late, e.maximum(scale * self.factor, self.min_scale), scale),
        }


Rate = float | str | Callable[[Value], Any] | Plateau


def problem_of(rate: object) -> str | None:
    """Why this is no learning rate; None where it is one."""
    if isinstance(rate, str):
        number = f"a text names an input; write {rate} for the number" if _is_numeral(rate) else None
        return number if rate else "an input's name is not empty"
    if isinstance(rate, Plateau) or (callable(rate) and not isinstance(rate, type)):
        return None
    return None if is_amount(rate) else "it is at least 0"


def _is_numeral(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def computed(rate: Rate) -> bool:
    """The module computes it: it is neither a number nor an input."""
    return not isinstance(rate, str) and not is_number(rate)


def input_of(rate: Rate) -> str | None:
    """The name of the input that the rate is, or that a plateau scales."""
    if isinstance(rate, Plateau):
        return input_of(rate.lr)
    return rate if isinstance(rate, str) else None


def plateau_of(rates: Iterable[Rate]) -> Plateau | None:
    """The plateau of these rates, whose state they share; GradientError where two differ."""
    found = [r for r in rates if isinstance(r, Plateau)]
    if any(not found[0].shares_state_with(r) for r in found):
        raise GradientError("train_step: two plateaus differ in more than the rate; they share one state")
    return found[0] if found else None


@dataclass
class Rates:
    """The learning rates of one entry, over its state; each is made once. `inputs` are those that were asked for."""

    held: Mapping[str, Value]
    kind: DType
    inputs: dict[str, Value] = field(default_factory=dict)
    _made: dict[int, Value] = field(default_factory=dict)

    def of(self, rate: Rate, kind: DType) -> Value | float:
        """The rate as a scalar of `kind`, or a number as it is."""
        if is_number(rate):
            return rate  # type: ignore[return-value]
        return e.convert(self.value(rate), kind)

    def value(self, rate: Rate) -> Value:
        """The rate as a float scalar."""
        if isinstance(rate, str):
            if rate not in self.inputs:
                self.inputs[rate] = parameter(rate, TensorType((), DType.f32))
            return self.inputs[rate]
        if isinstance(rate, Plateau):
            return e.convert(self.value(rate.lr), self.kind) * self.held[SCALE]
        if not callable(rate):
            return constant(rate, self.kind)
        if id(rate) not in self._made:
            self._made[id(rate)] = scalar(rate(e.convert(self.held[STEP], self.kind)), self.kind, rate)
        return self._made[id(rate)]


def scalar(result: object, kind: DType, rate: object) -> Value:
    """What a function of the step gave, as a float scalar; GradientError for anything else."""
    v = constant(result, kind) if is_number(result) else result
    if not isinstance(v, Value) or v.rank or not v.dtype.is_float:
        shown = f"{v.type}" if isinstance(v, Value) else f"{result!r:.80}"
        raise GradientError(f"train_step: the learning rate {named(rate)} gave {shown}; expected a float without axes")
    return v


def named(rate: object) -> str:
    """What a rate is called in messages: a function by its name."""
    return f"{getattr(rate, '__name__', None) or repr(rate):.80}"
