"""Activations of the recurrent ops: one table of meaning, graph, slope and default parameters.

The slope is computed from the output y, since that is what the saved results hold. Kinks: relu,
leaky_relu, elu and thresholded_relu have the left slope at their corner, hard_sigmoid has slope 0
at both ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import need
from lstm_ir.ops.primitive import activations as named
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive import numpy_math as nm
from lstm_ir.ops.primitive.fill import full

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Activation:
    """One row: y = f(x, *parameters), dy/dx from y, and for which parameters y does not tell."""

    defaults: tuple[float, ...]
    numpy: Callable[..., Any]
    build: Callable[..., Value]
    slope: Callable[..., Value]
    hidden: Callable[..., bool] = lambda *_: False


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _where(pred: Value, a: Any, b: Any, like: Value) -> Value:
    return e.select(pred, *(v if isinstance(v, Value) else constant(v, like.dtype) for v in (a, b)))


def _full(y: Value, number: float) -> Value:
    return full(y.shape, number, y.dtype)


def _scaled_tanh_slope(y: Value, a: float, b: float) -> Value:
    return _full(y, 0.0) if a == 0 else b * a - y * y * (b / a)


TABLE: dict[str, Activation] = {
    "sigmoid": Activation((), nm.logistic, e.logistic, lambda y: y * (1.0 - y)),
    "tanh": Activation((), np.tanh, e.tanh, lambda y: 1.0 - y * y),
    "relu": Activation((), lambda x: np.maximum(x, 0), named.relu, lambda y: _where(e.greater(y, 0.0), 1.0, 0.0, y)),
    "identity": Activation((), lambda x: x, lambda x: x, lambda y: _full(y, 1.0)),
    "softsign": Activation(
        (), lambda x: x / (1 + np.abs(x)), named.softsign, lambda y: (1.0 - e.abs(y)) * (1.0 - e.abs(y))
    ),
    "softplus": Activation((), _softplus, named.softplus, lambda y: -e.expm1(-y)),
    "affine": Activation((1.0, 0.0), lambda x, a, b: a * x + b, lambda x, a, b: x * a + b, lambda y, a, b: _full(y, a)),
    "hard_sigmoid": Activation(
        (0.2, 0.5),
        lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1),
        lambda x, a, b: named.at_most(named.at_least(x * a + b, 0.0), 1.0),
        lambda y, a, b: _where(e.logical_and(e.greater(y, 0.0), e.less(y, 1.0)), a, 0.0, y),
    ),
    "leaky_relu": Activation(
        (0.01,),
        lambda x, a: np.where(x > 0, x, a * x),
        named.leaky_relu,
        lambda y, a: _where(e.greater(y, 0.0), 1.0, a, y),
        hidden=lambda a: a < 0,
    ),
    "elu": Activation(
        (1.0,),
        lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
        named.elu,
        lambda y, a: _where(e.greater(y, 0.0), 1.0, y + a, y),
        hidden=lambda a: a < 0,
    ),
    "scaled_tanh": Activation(
        (1.0, 1.0), lambda x, a, b: a * np.tanh(b * x), lambda x, a, b: e.tanh(x * b) * a, _scaled_tanh_slope
    ),
    "thresholded_relu": Activation(
        (1.0,),
        lambda x, a: np.where(x > a, x, 0),
        named.thresholded_relu,
        lambda y, a: _where(e.not_equal(y, 0.0), 1.0, 0.0, y),
    ),
}


@dataclass(frozen=True)
class Act:
    """An activation with its parameters."""

    name: str
    parameters: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(repr, self.parameters))})" if self.parameters else self.name

    def numpy(self, x: Array) -> Array:
        """f(x), in x's dtype."""
        p = (x.dtype.type(v) for v in self.parameters)
        return np.asarray(TABLE[self.name].numpy(x, *p), dtype=x.dtype)

    def build(self, x: Value) -> Value:
        """f(x) as a graph."""
        return TABLE[self.name].build(x, *self.parameters)

    def slope(self, y: Value) -> Value:
        """df/dx where f(x) = y, as a graph."""
        return TABLE[self.name].slope(y, *self.parameters)

    @property
    def has_slope(self) -> bool:
        """Whether the output tells the slope."""
        return not TABLE[self.name].hidden(*self.parameters)


@lru_cache(maxsize=512)
def parse(text: str) -> Act:
    """The activation written as `name` or `name(0.2,0.5)`; a RuleError for an unknown one."""
    m = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    row = TABLE.get(m.group(1)) if m is not None else None
    if m is None or row is None:
        need(False, f"activation {text!r} is not one of {', '.join(TABLE)}")
        raise AssertionError
    given = m.group(2).split(",") if (m.group(2) or "").strip() else []
    need(len(given) <= len(row.defaults), f"activation {text!r}: {m.group(1)} has {len(row.defaults)} parameters")
    try:
        numbers = [float(p) for p in given]
    except ValueError:
        need(False, f"activation {text!r}: a parameter is not a number")
        raise AssertionError from None
    need(all(map(math.isfinite, numbers)), f"activation {text!r}: a parameter is not finite")
    return Act(m.group(1), (*numbers, *row.defaults[len(numbers) :]))
