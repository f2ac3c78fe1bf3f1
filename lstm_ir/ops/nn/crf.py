"""A linear-chain conditional random field: the loss of a sequence of tags, and the best sequence.

    score(y) = start[y_1] + sum of emissions[t, y_t] + sum of transitions[y_(t-1), y_t] + end[y_T]
    loss     = log(sum over all sequences of exp(score)) - score(tags)

The sum is that of the forward algorithm, the best sequence that of Viterbi, each a `scan` over the steps. Steps
that a mask leaves out are as if they were not there; of no steps at all the loss is 0.

Source: Lafferty, McCallum & Pereira, "Conditional random fields", ICML 2001.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lstm_ir.ir import dims, options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.no_operand import several
from lstm_ir.ir.types import DType
from lstm_ir.ops.nn.lengths import exists, zeros_behind
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.along_axis import gather_elements, picked
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_in_dim, broadcast_to
from lstm_ir.ops.primitive.fill import arange, full, zeros
from lstm_ir.ops.primitive.gather import take
from lstm_ir.ops.primitive.reduce import argmax, max, mean, sum
from lstm_ir.ops.primitive.shape import expand_dims, reshape, squeeze
from lstm_ir.ops.primitive.size import in_range, size_value
from lstm_ir.ops.primitive.statistics import logsumexp
from lstm_ir.ops.scan.builder import scan


@several
class Decoded(NamedTuple):
    """Results of `crf_decode`: the best tags i32[T,B], 0 where there is no step, and their score [B]."""

    tags: Value
    score: Value


class _Field(NamedTuple):
    """The operands, in the type they are computed in; mask i1[T,B]."""

    emissions: Value
    transitions: Value
    start: Value
    end: Value
    mask: Value


def crf_loss(
    emissions: Any, tags: Any, transitions: Any, start: Any = None, end: Any = None, *, lengths: Any = None,
    mask: Any = None, reduction: str = "mean",
) -> Value:  # fmt: skip
    """Minus the log of the probability of `tags` [T,B] by emissions [T,B,C] and transitions [C,C], from tag to tag.

    start and end [C] are zeros if not given. lengths, integers [B] in 0 ... T, or mask i1[T,B] says which steps there
    are; others may hold anything. reduction: none ([B]), sum, or mean over the rows.
    """
    op = "crf_loss"
    how = options.choice(op, "reduction", reduction, ("mean", "sum", "none"))
    field, kind = _field(op, emissions, transitions, start, end, lengths, mask)
    at = tags if isinstance(tags, Value) else constant(tags)
    if at.shape != field.mask.shape or not at.dtype.is_int:
        raise IRError(message(op, "tags are integers [T,B]", [("emissions", field.emissions.type), ("tags", at.type)],
                              here()))  # fmt: skip
    loss = e.convert(_log_total(field) - _score(field, at), kind)
    return loss if how == "none" else (sum if how == "sum" else mean)(loss)


def crf_decode(
    emissions: Any, transitions: Any, start: Any = None, end: Any = None, *, lengths: Any = None, mask: Any = None
) -> Decoded:
    """The tags of the highest score, of equal ones the lowest: a named tuple (tags i32[T,B], score [B]).

    Operands as in `crf_loss`. Tags are 0 where there is no step.
    """
    field, kind = _field("crf_decode", emissions, transitions, start, end, lengths, mask)
    _, batch, classes = field.emissions.shape
    same = broadcast_to(arange(classes), (batch, classes))

    def forward(carry: tuple[Value, Value], x: tuple[Value, Value]) -> tuple[tuple[Value, Value], Value]:
        (alpha, begun), (emission, there) = carry, x
        ways = expand_dims(alpha, 2) + expand_dims(field.transitions, 0)  # [B, from, to]
        goes = _rows(there & begun, alpha)
        best = e.select(_rows(begun, alpha), max(ways, 1), broadcast_to(field.start, alpha.shape)) + emission
        back = e.select(goes, argmax(ways, 1), same)
        return (e.select(_rows(there, alpha), best, alpha), begun | there), back

    (alpha, begun), back = scan(forward, _begin(field), (field.emissions, field.mask), name="viterbi")
    ends = alpha + e.select(_rows(begun, alpha), broadcast_to(field.end, alpha.shape), constant(0, alpha.dtype))
    last = argmax(ends, 1)

    def backward(tag: Value, x: tuple[Value, Value]) -> tuple[Value, Value]:
        pointers, there = x
        from_tag = squeeze(gather_elements(pointers, expand_dims(tag, 1), 1), 1)
        return from_tag, e.select(there, tag, constant(0, DType.i32))

    _, tags = scan(backward, last, (back, field.mask), reverse=True, name="trace")
    return Decoded(tags, e.convert(max(ends, 1), kind))


def _rows(flags: Value, like: Value) -> Value:
    return broadcast_in_dim(flags, like.shape, (0,))


def _begin(field: _Field) -> tuple[Value, Value]:
    """Scores [B,C] before the first step, and whether there was one."""
    _, batch, classes = field.emissions.shape
    return zeros((batch, classes), field.emissions.dtype), full((batch,), False, DType.i1)


def _log_total(field: _Field) -> Value:
    """[B]: the log of the sum of exp(score) over all sequences."""

    def step(carry: tuple[Value, Value], x: tuple[Value, Value]) -> tuple[tuple[Value, Value], None]:
        (alpha, begun), (emission, there) = carry, x
        reached = logsumexp(expand_dims(alpha, 2) + expand_dims(field.transitions, 0), 1)
        new = e.select(_rows(begun, alpha), reached, broadcast_to(field.start, alpha.shape)) + emission
        return (e.select(_rows(there, alpha), new, alpha), begun | there), None

    (alpha, begun), _ = scan(step, _begin(field), (field.emissions, field.mask), name="crf")
    total = logsumexp(alpha + field.end, 1)
    return e.select(begun, total, constant(0, total.dtype))


def _score(field: _Field, tags: Value) -> Value:
    """[B]: the score of the tags."""
    classes, zero = field.emissions.shape[2], constant(0, field.emissions.dtype)
    held = e.select(field.mask, tags, constant(0, tags.dtype))
    at = e.convert(in_range(held, 0, dims.add(classes, -1), "tags"), DType.i32)

    def remember(before: tuple[Value, Value], x: tuple[Value, Value]) -> tuple[Any, Any]:
        (tag, begun), (now, there) = before, x
        return (e.select(there, now, tag), begun | there), before

    batch = tags.shape[1]
    none = zeros((batch,), DType.i32), full((batch,), False, DType.i1)
    (last, any_), (previous, begun) = scan(remember, none, (at, field.mask), name="previous")
    chosen = squeeze(gather_elements(field.emissions, expand_dims(at, 2), 2), 2)
    pair = previous * size_value(classes, DType.i32) + at
    moved = picked("crf_loss", reshape(field.transitions, (dims.mul(classes, classes),)), pair)
    entered = e.select(begun, moved, take(field.start, at))
    steps = sum(e.select(field.mask, chosen + entered, zero), 0)
    return steps + e.select(any_, take(field.end, last), zero)


def _field(
    op: str, emissions: Any, transitions: Any, start: Any, end: Any, lengths: Any, mask: Any
) -> tuple[_Field, DType]:
    """The operands checked, and the type of the result."""
    x, moves = as_values(op, emissions, transitions)
    given = [("emissions", x.type), ("transitions", moves.type)]
    if x.rank != 3 or not x.dtype.is_float or moves.type != x.type.with_shape((x.shape[2],) * 2):
        raise IRError(message(op, "emissions are floats [T,B,C], transitions [C,C] of their type", given, here()))
    kind = x.dtype.compute_dtype
    first, last = (_border(op, x, v, name) for name, v in (("start", start), ("end", end)))
    there = _there(op, x, lengths, mask)
    wide = e.convert(x, kind)
    seen = zeros_behind(wide, there)
    moves, first, last = (e.convert(w, kind) for w in (moves, first, last))
    return _Field(seen, moves, first, last, there), x.dtype


def _border(op: str, x: Value, v: Any, name: str) -> Value:
    """start or end [C]."""
    w = zeros((x.shape[2],), x.dtype) if v is None else as_values(op, x, v)[1]
    if w.type != x.type.with_shape((x.shape[2],)):
        problem = f"{name} is {w.type}; expected [C] of the type of emissions"
        raise IRError(message(op, problem, [("emissions", x.type)], here()))
    return w


def _there(op: str, x: Value, lengths: Any, mask: Any) -> Value:
    """Which steps there are, i1[T,B]."""
    shape = x.shape[:2]
    if lengths is not None and mask is not None:
        raise options.refuse(op, "mask", mask, "None, since lengths are given")
    if mask is not None:
        m = mask if isinstance(mask, Value) else constant(mask)
        if m.dtype is not DType.i1 or m.shape != shape:
            raise IRError(message(op, f"mask is {m.type}, expected i1 [T,B]", [("emissions", x.type)], here()))
        return m
    if lengths is None:
        return full(shape, True, DType.i1)
    n = lengths if isinstance(lengths, Value) else constant(lengths)
    if not n.dtype.is_int or n.shape != shape[1:]:
        raise IRError(message(op, f"lengths are {n.type}, expected integers [B]", [("emissions", x.type)], here()))
    return exists(e.convert(in_range(n, 0, shape[0]), DType.i32), shape[0])
