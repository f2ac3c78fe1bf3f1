"""`ctc_loss`: minus the log of the probability that frames spell a sequence of labels.

Over the labels with blanks around each, l' of 2S + 1, one `scan` over the frames:

    a[s] = log(exp a[s] + exp a[s-1] + (l'[s] is a label other than l'[s-2]) exp a[s-2]) + log y[l'[s]]

Source: Graves, Fernández, Gomez & Schmidhuber, "Connectionist temporal classification", ICML 2006.
"""

from __future__ import annotations

from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.types import DType
from lstm_ir.ops.nn.lengths import exists, zeros_behind
from lstm_ir.ops.nn.softmax import log_softmax
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_to
from lstm_ir.ops.primitive.fill import arange, full
from lstm_ir.ops.primitive.gather import take
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.reduce import max, mean, sum
from lstm_ir.ops.primitive.shape import concat, expand_dims, reshape
from lstm_ir.ops.primitive.size import in_range, size
from lstm_ir.ops.scan.builder import scan

IMPOSSIBLE = -1e30  # stands for log 0: its differences are finite


def ctc_loss(
    logits: Any, labels: Any, input_lengths: Any, label_lengths: Any, *, blank: int = 0,
    reduction: str = "mean",
) -> Value:  # fmt: skip
    """Of logits [T,B,C], labels [B,S] (S >= 1), and lengths (i32 or i64) [B] of both, 0 ... T and 0 ... S; gives
    one number of the logits' type, or [B].

    16-bit floats are computed in f32. Logits and labels behind a row's lengths may be anything. `blank` is one of the
    C classes. What cannot be spelled costs infinity, with gradient 0. reduction: none ([B]), sum, or mean (each row
    divided by its number of labels, then averaged, as PyTorch does).
    """
    (v,) = as_values("ctc_loss", logits)
    at, n_in, n_out = (x if isinstance(x, Value) else constant(x) for x in (labels, input_lengths, label_lengths))
    problem = _wrong(v, at, n_in, n_out) or _wrong_choice(blank, v.shape[2], reduction)
    if problem is not None:
        given = [("logits", v.type), ("labels", at.type), ("input_lengths", n_in.type),
                 ("label_lengths", n_out.type)]  # fmt: skip
        raise IRError(message("ctc_loss", problem, given, here()))
    if n_in.dtype is not DType.i32:  # checked before they lose bits; those of i32 by the scan
        n_in = e.convert(in_range(n_in, 0, v.shape[0]), DType.i32)
    n_out = e.convert(in_range(n_out, 0, at.shape[1]), DType.i32)
    kind, v = v.dtype, zeros_behind(in_compute_dtype(v), exists(n_in, v.shape[0]))
    spelled, jumps = _spelled(at, n_out, blank, v.shape[2])
    chosen = _chosen(log_softmax(v), spelled)
    alpha = _forward(chosen, jumps, n_in)
    loss = _ends(alpha, n_out)
    if reduction == "mean":
        loss = mean(loss / e.convert(e.maximum(n_out, constant(1, n_out.dtype)), loss.dtype))
    return e.convert(sum(loss) if reduction == "sum" else loss, kind)


def _wrong(v: Value, labels: Value, n_in: Value, n_out: Value) -> str | None:
    """What is wrong with the types."""
    if v.rank != 3 or not v.dtype.is_float:
        return "logits are floats [T,B,C]"
    batch = (v.shape[1],)
    if labels.rank != 2 or labels.shape[:1] != batch or not labels.dtype.is_int:
        return "labels are integers [B,S], B that of logits [T,B,C]"
    if labels.shape[1] == 0:
        return "labels have room for none: S is at least 1 (a row's label_lengths may be 0)"
    for name, n in (("input_lengths", n_in), ("label_lengths", n_out)):
        if n.shape != batch or not n.dtype.is_int:
            return f"{name} are integers [B], B that of logits [T,B,C]"
    return None


def _wrong_choice(blank: Any, classes: Any, reduction: Any) -> str | None:
    """What is wrong with the options."""
    if not options.is_int(blank):
        return f"blank is {blank!r}, not an integer"
    if blank < 0 or dims.at_least(dims.add(classes, -1 - int(blank)), 0) is False:
        return f"blank is {blank}, which is no class: there are {classes}, from 0"
    if not isinstance(reduction, str) or reduction not in ("mean", "sum", "none"):
        return f"reduction is {reduction!r}; there are mean, sum and none"
    return None


def _spelled(labels: Value, lengths: Value, blank: int, classes: Any) -> tuple[Value, Value]:
    """The labels with blanks around [B, 2S+1], and where a blank may be jumped over."""
    count = labels.shape[1]
    real = exists(lengths, count, axis=1)
    held = in_range(e.select(real, labels, constant(blank, labels.dtype)), 0, classes - 1, "padded_labels")
    labels = e.convert(held, DType.i32)
    place = arange(dims.add(dims.mul(count, 2), 1))
    number = e.minimum(place // 2, _size(dims.add(count, -1)))  # of the label that stands there, or before the blank
    label, before = (take(labels, e.maximum(number - back, 0), axis=1) for back in (0, 1))
    is_label, gap = broadcast_to(e.equal(place % 2, 1), label.shape), constant(blank, DType.i32)
    return e.select(is_label, label, gap), is_label & e.not_equal(label, before) & e.not_equal(label, gap)


def _chosen(logp: Value, spelled: Value) -> Value:
    """logp [T,B,C] at spelled [B,L]: [T,B,L]."""
    frames, batch, classes = logp.shape
    first = broadcast_to(expand_dims(arange(batch) * _size(classes), 1), spelled.shape)
    flat = reshape(logp, (frames, dims.mul(batch, classes)))
    return take(flat, spelled + first, axis=1)


def _size(d: Any) -> Any:
    return constant(d, DType.i32) if isinstance(d, int) else size(d)


def _forward(chosen: Value, jumps: Value, lengths: Value) -> Value:
    """The last a [B,L] of every row."""
    _, batch, width = chosen.shape
    low = constant(IMPOSSIBLE, chosen.dtype)
    starts = broadcast_to(e.equal(arange(width), constant(0, DType.i32)), (batch, width))
    first = e.select(starts, constant(0, chosen.dtype), low)
    gap = full((batch, 2), IMPOSSIBLE, chosen.dtype)

    def cell(a: Value, y: Value, jump: Value, gap: Value) -> tuple[Value, Value]:
        one = concat([gap[:, :1], a[:, :-1]], 1)
        two = e.select(jump, concat([gap, a[:, :-2]], 1), constant(IMPOSSIBLE, a.dtype))
        top = e.maximum(a, e.maximum(one, two))
        new = top + e.log(e.exp(a - top) + e.exp(one - top) + e.exp(two - top)) + y
        return new, None  # type: ignore[return-value]

    alpha, _ = scan(cell, first, chosen, (jumps, gap), lengths=lengths)
    return alpha  # type: ignore[no-any-return]


def _ends(alpha: Value, lengths: Value) -> Value:
    """-log of the two ends of each row: on its last label, or on the blank after it."""
    place = broadcast_to(arange(alpha.shape[1]), alpha.shape)
    last = broadcast_to(expand_dims(lengths * 2, 1), alpha.shape)
    ends = e.equal(place, last) | e.equal(place + 1, last)
    a = e.select(ends, alpha, constant(IMPOSSIBLE, alpha.dtype))
    top = max(a, 1, keepdims=True)
    loss = -(reshape(top, (alpha.shape[0],)) + e.log(sum(e.exp(a - top), 1)))
    return e.select(e.greater(loss, -IMPOSSIBLE / 10), constant(float("inf"), loss.dtype), loss)
