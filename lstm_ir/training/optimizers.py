"""Optimizers: how a weight moves along its gradient. Equations and defaults are PyTorch's."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lstm_ir.ir.graph import Value
from lstm_ir.ops.keywords import told
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.training.optimizer import Groups, Optimizer, Slots
from lstm_ir.training.rates import Rate, is_number


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
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._need_share("momentum")

    def kept(self) -> dict[str, float]:
        """The velocity v."""
        return {"v": 0.0}

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

    def kept(self) -> dict[str, float]:
        """The means m and v of the gradient and of its square."""
        return {"m": 0.0, "v": 0.0}

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


@dataclass(frozen=True)
class _AdamW(Adam):
    name = "adamw"


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """g += decay p;  v = a v + (1 - a) g^2;  u = g / (sqrt(v) + epsilon);  p -= lr u.

    centered: sqrt(v - m^2), with the mean m = a m + (1 - a) g; what roundings make negative counts as 0.
    momentum: b = momentum b + u;  p -= lr b. Source: Tieleman & Hinton 2012; Graves 2013.
    """

    name = "rmsprop"
    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._need_share("alpha")
        self._need_share("momentum")
        self._need_amount("epsilon")
        self._need(isinstance(self.centered, bool), "centered", "it is True or False")

    def kept(self) -> dict[str, float]:
        """The mean v of the squares; m and b where they are used."""
        return {"v": 0.0} | ({"m": 0.0} if self.centered else {}) | ({"b": 0.0} if self.momentum else {})

    def update(self, p: Value, g: Value, slots: Slots, t: Value, lr: Value | float) -> tuple[Value, Slots]:
        """As in the class."""
        g, a = _decayed(p, g, self.weight_decay), self.alpha
        new = {"v": slots["v"] * a + g * g * (1.0 - a)}
        spread = new["v"]
        if self.centered:
            new["m"] = slots["m"] * a + g * (1.0 - a)
            spread = e.maximum(spread - new["m"] * new["m"], 0.0)
        move = g / (e.sqrt(spread) + self.epsilon)
        if self.momentum:
            move = new["b"] = slots["b"] * self.momentum + move
        return p - move * lr, new


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """g += decay p;  s += g^2;  p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + epsilon).

    Source: Duchi, Hazan & Singer 2011.
    """

    name = "adagrad"
    lr_decay: float = 0.0
    epsilon: float = 1e-10
    initial_accumulator_value: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("lr_decay", "epsilon", "initial_accumulator_value"):
            self._need_amount(field)

    def kept(self) -> dict[str, float]:
        """The sum s of the squares."""
        return {"s": float(self.initial_accumulator_value)}

    def update(self, p: Value, g: Value, slots: Slots, t: Value, lr: Value | float) -> tuple[Value, Slots]:
        """As in the class."""
        g = _decayed(p, g, self.weight_decay)
        s = slots["s"] + g * g
        rate = lr / ((t - 1.0) * self.lr_decay + 1.0) if self.lr_decay else lr
        return p - g / (e.sqrt(s) + self.epsilon) * rate, {"s": s}


def _decayed(p: Value, g: Value, decay: float) -> Value:
    return g + p * decay if decay else g


def _correction(beta: float, t: Value) -> Value:
    """1 - beta^t without cancellation: -expm1(t log(beta))."""
    return e.negate(e.expm1(t * math.log(beta))) if beta else t * 0.0 + 1.0


@told
def sgd(lr: Rate, *, weight_decay: float = 0.0, groups: Groups | None = None) -> Optimizer:
    """Plain gradient descent."""
    return SGD(lr, weight_decay, groups=groups)


@told
def momentum(
    lr: Rate, momentum: float = 0.9, *, nesterov: bool = False, weight_decay: float = 0.0, groups: Groups | None = None
) -> Optimizer:
    """Gradient descent with momentum."""
    return Momentum(lr, momentum, nesterov, weight_decay, groups=groups)


@told
def adam(
    lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), *, epsilon: float = 1e-8,
    weight_decay: float = 0.0, groups: Groups | None = None,
) -> Optimizer:  # fmt: skip
    """Adam; the decay is part of the gradient."""
    return Adam(lr, betas, epsilon, weight_decay, groups=groups)


@told
def adamw(
    lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), *, epsilon: float = 1e-8,
    weight_decay: float = 1e-2, groups: Groups | None = None,
) -> Optimizer:  # fmt: skip
    """Adam with decoupled decay."""
    return _AdamW(lr, betas, epsilon, weight_decay, True, groups=groups)


@told
def rmsprop(
    lr: Rate = 1e-2, alpha: float = 0.99, *, epsilon: float = 1e-8, momentum: float = 0.0, centered: bool = False,
    weight_decay: float = 0.0, groups: Groups | None = None,
) -> Optimizer:  # fmt: skip
    """Gradients divided by the root of their mean square, as far back as `alpha` looks."""
    return RMSprop(lr, alpha, epsilon, momentum, centered, weight_decay, groups=groups)


@told
def adagrad(
    lr: Rate = 1e-2, *, lr_decay: float = 0.0, epsilon: float = 1e-10, initial_accumulator_value: float = 0.0,
    weight_decay: float = 0.0, groups: Groups | None = None,
) -> Optimizer:  # fmt: skip
    """Gradients divided by the root of the sum of all their squares."""
    return Adagrad(lr, lr_decay, epsilon, initial_accumulator_value, weight_decay, groups=groups)
