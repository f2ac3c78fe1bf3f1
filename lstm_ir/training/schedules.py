"""Learning-rate schedules: functions of the step, which the module computes from its counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.near_names import hint
from lstm_ir.ir.options import is_int
from lstm_ir.ops.keywords import told
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.training.rates import Plateau, Rate, is_amount, is_number, named, problem_of, scalar


@dataclass(frozen=True)
class Schedule:
    """A learning rate by the step: called with the number of updates done before, a float scalar, it gives one."""

    text: str
    at: Callable[[Value], Value]

    def __call__(self, step: Value) -> Value:
        """The rate at this step."""
        return self.at(step)

    def __repr__(self) -> str:
        return self.text


class _Named(type):
    """Says what there is for a name that is no schedule."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            there = [n for n in vars(cls) if not n.startswith("_")]
            warm = "li.schedules.warmup(steps, li.schedules.cosine(lr, more_steps)), or another schedule"
            said = f"write {warm}" if "warmup" in name.lower() else f"there are {', '.join(there)}"
            raise AttributeError(f"li.schedules has no {name!r}{hint(name, there, f'; {said}')}", name=name, obj=cls)


class schedules(metaclass=_Named):  # noqa: N801  used as a module is: li.schedules.cosine(...)
    """Learning-rate schedules, for the `lr` of an optimizer. The first update has step 0, as in PyTorch."""

    @staticmethod
    @told
    def linear(start: float, end: float, steps: int) -> Schedule:
        """From `start` to `end` in equal steps, then `end`."""
        text = f"linear({start}, {end}, {steps})"
        _amounts(text, start=start, end=end)
        _steps(text, steps=steps)
        return Schedule(text, lambda t: _part(t, 0, steps) * (end - start) + start)

    @staticmethod
    @told
    def exponential(lr: float, factor: float) -> Schedule:
        """`lr` times `factor` to the power of the step."""
        text = f"exponential({lr}, {factor})"
        _amounts(text, lr=lr)
        _factor(text, factor)
        return Schedule(text, lambda t: e.exp(t * math.log(factor)) * lr)

    @staticmethod
    @told
    def step(lr: float, at: int | Sequence[int], factor: float = 0.1) -> Schedule:
        """`lr`, multiplied by `factor` after every `at` updates, or at each of these steps."""
        text = f"step({lr}, {at}, {factor})"
        _amounts(text, lr=lr)
        _factor(text, factor)
        if is_int(at):
            every: Any = at
            _steps(text, at=every)
            return Schedule(text, lambda t: e.exp(e.floor((t + 0.5) / every) * math.log(factor)) * lr)
        places: list[Any] = list(at) if isinstance(at, (list, tuple)) else [None]
        if not places or not all(is_int(a) and a > 0 for a in places) or places != sorted(set(places)):
            raise IRError(f"{text}: at is {at!r:.80}; a number of steps, or steps in ascending order")

        def stairs(t: Value) -> Value:
            rate = constant(lr, t.dtype)
            for k, place in enumerate(places, 1):
                rate = e.select(e.greater_equal(t, float(place)), constant(lr * factor**k, t.dtype), rate)
            return rate

        return Schedule(text, stairs)

    @staticmethod
    @told
    def cosine(lr: float, steps: int, end: float = 0.0) -> Schedule:
        """From `lr` to `end` along half a cosine, then `end`."""
        text = f"cosine({lr}, {steps}, {end})"
        _amounts(text, lr=lr, end=end)
        _steps(text, steps=steps)
        return Schedule(text, lambda t: _swing(_part(t, 0, steps), lr, end))

    @staticmethod
    @told
    def one_cycle(
        lr: float, steps: int, warmup: float = 0.3, *, div_factor: float = 25.0, final_div_factor: float = 1e4
    ) -> Schedule:
        """From `lr / div_factor` up to `lr` in the share `warmup` of the steps, then down to
        `lr / div_factor / final_div_factor`, both along half a cosine.

        After the last step the rate stays. PyTorch's OneCycleLR without its momentum.
        """
        text = f"one_cycle({lr}, {steps}, {warmup}, div_factor={div_factor}, final_div_factor={final_div_factor})"
        _amounts(text, lr=lr)
        _steps(text, steps=steps)
        if not (is_number(warmup) and 0 < warmup < 1 and warmup * steps > 1):
            raise IRError(f"{text}: warmup is {warmup!r}; a share in (0, 1), of more than one step")
        for name, v in (("div_factor", div_factor), ("final_div_factor", final_div_factor)):
            if not (is_amount(v) and v > 0):
                raise IRError(f"{text}: {name} is {v!r}; it is above 0")
        top, last, low = warmup * steps - 1, steps - 1, lr / div_factor

        def cycle(t: Value) -> Value:
            down = _swing(_part(t, top, last - top), lr, low / final_div_factor)
            return e.select(e.less_equal(t, top), _swing(_part(t, 0, top), low, lr), down)

        return Schedule(text, cycle)

    @staticmethod
    @told
    def warmup(steps: int, then: float | Callable[[Value], Any], start: float = 0.0) -> Schedule:
        """For `steps` updates from the share `start` of the first rate of `then` up to it, in equal steps; after
        that `then`, from its step 0.
        """
        text = f"warmup({steps}, {then.text if isinstance(then, Schedule) else named(then)}, {start})"
        _steps(text, steps=steps)
        if not (is_number(start) and 0 <= start <= 1):
            raise IRError(f"{text}: start is {start!r}; it lies in [0, 1]")
        if isinstance(then, (str, Plateau)) or problem_of(then) is not None:
            raise IRError(f"{text}: then is {then!r:.80}; a number or a function of the step (plateau takes a warm-up)")

        def rate(t: Value) -> Value:
            return scalar(then(t), t.dtype, then) if callable(then) else constant(then, t.dtype)

        def warm(t: Value) -> Value:
            first = rate(constant(0.0, t.dtype)) * (_part(t, 0, steps) * (1.0 - start) + start)
            return e.select(e.less(t, float(steps)), first, rate(e.maximum(t - float(steps), 0.0)))

        return Schedule(text, warm)

    @staticmethod
    @told
    def plateau(
        lr: Rate, factor: float = 0.1, patience: int = 10, *, threshold: float = 1e-4, threshold_mode: str = "rel",
        cooldown: int = 0, min_scale: float = 0.0, mode: str = "min",
    ) -> Plateau:  # fmt: skip
        """`lr`, multiplied by `factor` where a metric has not become better for `patience` reports.

        The program gets an entry `plateau`, which takes the metric (a validation loss). `lr` may be a schedule, or
        the name of an input. The product of the factors is at least `min_scale`. Other options as PyTorch's
        ReduceLROnPlateau.
        """
        text = "plateau"
        problem = None if not isinstance(lr, Plateau) else "a plateau of a plateau"
        problem = problem_of(lr) if problem is None else problem
        if problem is not None:
            raise IRError(f"{text}: lr is {lr!r:.80}; {problem}")
        _amounts(text, threshold=threshold, min_scale=min_scale)
        if min_scale > 1:
            raise IRError(f"{text}: min_scale is {min_scale!r}; it lies in [0, 1]")
        if not (is_number(factor) and 0 < factor < 1):
            raise IRError(f"{text}: factor is {factor!r}; it lies in (0, 1)")
        for name, v in (("patience", patience), ("cooldown", cooldown)):
            if not is_int(v) or v < 0:
                raise IRError(f"{text}: {name} is {v!r}; a number of reports, at least 0")
        for name, word, words in (("threshold_mode", threshold_mode, ("rel", "abs")), ("mode", mode, ("min", "max"))):
            if not isinstance(word, str) or word not in words:
                raise IRError(f"{text}: {name} is {word!r:.80}; it is {' or '.join(words)}")
        return Plateau(lr, factor, patience, threshold, threshold_mode, cooldown, min_scale, mode)


def _part(t: Value, first: float, length: float) -> Value:
    """How much of the steps from `first` on is done, held in [0, 1]."""
    return e.clamp(constant(0.0, t.dtype), (t - float(first)) / float(length), constant(1.0, t.dtype))


def _swing(part: Value, start: float, end: float) -> Value:
    """From `start` to `end` along half a cosine."""
    return (e.cos(part * math.pi) + 1.0) * (0.5 * (start - end)) + end


def _amounts(text: str, **amounts: object) -> None:
    for name, v in amounts.items():
        if not is_amount(v):
            raise IRError(f"{text}: {name} is {v!r:.80}; it is at least 0")


def _steps(text: str, **steps: object) -> None:
    for name, v in steps.items():
        if not is_int(v) or v < 1:
            raise IRError(f"{text}: {name} is {v!r:.80}; a whole number of steps, at least 1")


def _factor(text: str, factor: object) -> None:
    if not is_amount(factor) or not factor:
        raise IRError(f"{text}: factor is {factor!r:.80}; it is above 0")
