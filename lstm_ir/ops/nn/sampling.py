"""`sample`: one draw from logits, as generators of text draw the next token.

    scores   logits / temperature; temperature 0 is the largest logit, without a draw
    top_k    the k largest alone; of equal ones the first
    top_p    of these the most probable, until their probabilities reach p: token i is kept where those before it have
             less than p together (Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020)
    draw     the largest of what is kept, each with Gumbel's noise added

What is drawn is the largest of logits + temperature * noise, which has no quotient that could overflow; probabilities
are those of (logits - the largest) / temperature.

The order of the three is that of Hugging Face's `generate`.
"""

from __future__ import annotations

import math
from typing import Any

from lstm_ir.ir import options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ops.nn.random import random_gumbel
from lstm_ir.ops.nn.softmax import softmax
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_to
from lstm_ir.ops.primitive.precision import floats
from lstm_ir.ops.primitive.reduce import argmax, max, sum
from lstm_ir.ops.primitive.shape import expand_dims
from lstm_ir.ops.scan.order import first_by_weight, keys

# Temperatures: below f32's normal numbers processors may read 0; above 2^100 f32 logits below 1e30 draw alike, and
# times any noise it is finite.
_COLDEST, _HOTTEST = 2.0**-126, 2.0**100


def sample(
    logits: Any, key: Any, temperature: Any = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Value:
    """Places along the last axis of logits [..., V], i32 [...], drawn with probability softmax(logits / temperature).

    From a key u32[2]. temperature: a number from 0 on, or floats that broadcast to [...]; 0 takes the largest logit,
    and so do numbers below 2^-126, those of an input that are below 0, and NaN. Above 2^100 it is 2^100.
    top_k: only the k largest are drawn. top_p: only the most probable are, until p is reached; at least one.
    """
    v = floats("sample", logits, "logits")
    if v.rank == 0:
        raise IRError(message("sample", "the logits have no axes", [("logits", v.type)], here()))
    scores = e.convert(v, v.dtype.compute_dtype)
    share = _share(top_p)
    if top_k is not None and options.integer("sample", "top_k", top_k) < 1:
        raise options.refuse("sample", "top_k", top_k, "a whole number from 1 on")
    warm = _temperature(temperature, scores)
    if warm is None:
        return argmax(scores, -1)
    scores = _kept(scores, warm, top_k, share)
    noise = random_gumbel(key, scores.shape, scores.dtype)
    if isinstance(warm, Value):
        noise = noise * _column(warm)
    elif warm != 1.0:
        noise = noise * warm
    return argmax(scores + noise, -1)


def _kept(scores: Value, warm: Value | float, top_k: int | None, share: float | None) -> Value:
    """The scores with -inf where a filter holds."""
    n = scores.shape[-1]
    if top_k is not None and isinstance(n, int) and top_k > n:
        raise options.refuse("sample", "top_k", top_k, f"at most {n}, the number of logits")
    if top_k is None and share is None:
        return scores
    order = keys(scores, descending=True)
    if top_k is not None:
        scores = _where(first_by_weight(order, constant(1, scores.dtype), top_k), scores)
    if share is not None:
        scores = _where(first_by_weight(order, _chance(scores, warm), share), scores)
    return scores


def _where(condition: Value, scores: Value) -> Value:
    return e.select(condition, scores, constant(-math.inf, scores.dtype))


def _chance(scores: Value, warm: Value | float) -> Value:
    """Probabilities at the temperature; where that is none, at 1."""
    if isinstance(warm, Value):
        by: Any = _column(e.select(e.greater(warm, 0), warm, constant(1, warm.dtype)))
    elif warm == 1.0:
        return softmax(scores)
    else:
        by = warm
    parts = e.exp((scores - max(scores, -1, keepdims=True)) / by)
    return parts / sum(parts, -1, keepdims=True)


def _column(v: Value) -> Value:
    return expand_dims(v, v.rank)


def _share(top_p: Any) -> float | None:
    if top_p is None:
        return None
    share = options.real("sample", "top_p", top_p)
    if not 0 < share <= 1:
        raise options.refuse("sample", "top_p", top_p, "a number above 0, at most 1")
    return None if share == 1 else share


def _temperature(temperature: Any, scores: Value) -> Value | float | None:
    """A number from the coldest to the hottest, None for 0; or a value of the scores' rows, 0 where it is colder."""
    if isinstance(temperature, Value) or hasattr(temperature, "shape") or isinstance(temperature, (list, tuple)):
        rows = floats("sample", temperature, "temperature")
        rows = broadcast_to(e.convert(rows, scores.dtype), scores.shape[:-1])
        return e.select(e.greater_equal(rows, _COLDEST), e.minimum(rows, _HOTTEST), constant(0, rows.dtype))
    number = options.real("sample", "temperature", temperature)
    if number < 0:
        raise options.refuse("sample", "temperature", temperature, "a number from 0 on")
    return None if number < _COLDEST else min(number, _HOTTEST)
