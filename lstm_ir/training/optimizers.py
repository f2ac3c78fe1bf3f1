"""Optimizers: how a weight moves along its gradient. Equations and defaults are PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive import elementwise as e

Slots = Mapping[str, Value]


def is_number(v: object) -> bool:
    """An int or a float, NumPy's too; no boolean."""
    return isinstance(v, (int, float, np.integer, np.floating)) and not isinstance(v, bool)


@dataclass(frozen=True)
class Optimizer:
    """`lr` is a number, or the name of an input f32[] that every step takes.

    `slots` are what is kept per weight, all zeros at first.
    """

    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]] = ()
    lr: float | str

    def __post_init__(self) -> None:
        if isinstance(self.lr, str):
            self._need(bool(self.lr), "lr", "an input's name is not empty")
        else:
            number = is_number(self.lr) and math.isfinite(self.lr) and self.lr >= 0
            self._need(number, "lr", "it is at least 0")
        self._need_amount("weight_decay")

    def _need_amount(self, field: str) -> None:
        """Refuse what is no finite number of at least 0. A field that is not there is 0."""
        v = getattr(self, field, 0.0)
        self._need(is_number(v) and 0 <= v < math.inf, field, "it is at least 0")

    def _need(self, holds: bool, field: str, rule: str) -> None:
        if not holds:
            raise IRError(f"{self.name}: {field} is {getattr(self, field)!r}; {rule}")

    def update(self, p: Value, g: Value, slots: Slots, t: Value, lr: Value | float) -> tuple[Value, Slots]:
        """The weight and its slots after step t = 1, 2, ... (a float scalar) with gradient g."""
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Optimizer):
    """g += decay p;  p -= lr g."""

    name = "sgd"
    weight_decay: float = 0.0

    def update(self, p: Value, g: Value, slots: Slots, t: Value, lr: Value | float) -> tuple[Value, Slots]:
        """As in the class."""
        return p - _decayed(p, g, self.weight_decay) * lr, {}


@dataclass(frozen=True)
class Momentum(Optimizer):
    """g += decay p;  v = m v + g;  p -= lr v, or with nesterov lr (g + m v)."""

    name = "momentum"
    slots = ("v",)
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        inside = is_number(self.momentum) and 0 <= self.momentum < 1
        self._need(inside, "momentum", "it lies in [0, 1)")

    def update(self, p: Value, g: Value, slots: Slots, t: Value, lr: Value | float) -> tuple[Value, Slots]:
        """As in the class."""
        g = _decayed(p, g, self.weight_decay)
        v = slots["v"] * self.momentum + g
        return p - (g + v * self.momentum if self.nesterov else v) * lr, {"v": v}


@dataclass(frozen=True)
class Adam(Optimizer):
    """m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= lr (m / k1) / (sqrt(v / k2) + epsilon).

    k = 1 - b^t. The decay is added to g, or, decoupled (AdamW), taken from p first: p -= lr decay p.
    Source: Kingma & Ba 2015; Loshchilov & Hutter 2019.
    """

    name = "adam"
    slots = ("m", "v")
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = isinstance(self.betas, (tuple, list)) and len(self.betas) == 2
        good = pair and all(is_number(b) and 0 <= b < 1 for b in self.betas)
        self._need(good, "betas", "two numbers, each in [0, 1)")
        self._need_amount("epsilon")

    def update(self, p: Value, g: Value, slots: Slots, t: Value, lr: Value | float) -> tuple[Value, Slots]:
        """As in the class."""
        (b1, b2), decay = self.betas, self.weight_decay
        if self.decoupled:
            p = p - p * (lr * decay) if decay else p
        else:
            g = _decayed(p, g, decay)
        m = slots["m"] * b1 + g * (1.0 - b1)
        v = slots["v"] * b2 + g * g * (1.0 - b2)
        root = e.sqrt(v) / e.sqrt(_correction(b2, t)) + self.epsilon
        return p - (lr / _correction(b1, t)) * (m / root), {"m": m, "v": v}


def _decayed(p: Value, g: Value, decay: float) -> Value:
    return g + p * decay if decay else g


def _correction(beta: float, t: Value) -> Value:
    """1 - beta^t without cancellation: -expm1(t log(beta))."""
    return e.negate(e.expm1(t * math.log(beta))) if beta else t * 0.0 + 1.0


def sgd(lr: float | str, *, weight_decay: float = 0.0) -> Optimizer:
    """Plain gradient descent."""
    return SGD(lr, weight_decay)


def momentum(lr: float | str, momentum: float = 0.9, *, nesterov: bool = False, weight_decay: float = 0.0) -> Optimizer:
    """Gradient descent with momentum."""
    return Momentum(lr, momentum, nesterov, weight_decay)


def adam(
    lr: float | str = 1e-3, betas: tuple[float, float] = (0.9, 0.999), *, epsilon: float = 1e-8,
    weight_decay: float = 0.0,
) -> Optimizer:  # fmt: skip
    """Adam; the decay is part of the gradient."""
    return Adam(lr, betas, epsilon, weight_decay)


def adamw(
    lr: float | str = 1e-3, betas: tuple[float, float] = (0.9, 0.999), *, epsilon: float = 1e-8,
    weight_decay: float = 1e-2,
) -> Optimizer:  # fmt: skip
    """Adam with decoupled decay."""
    return _AdamW(lr, betas, epsilon, weight_decay, True)


@dataclass(frozen=True)
class _AdamW(Adam):
    name = "adamw"
