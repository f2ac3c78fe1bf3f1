"""onnxruntime's LSTM with integer weights: every matrix product quantises its left operand anew.

X and the state h become u8, by the range of all elements of the operand and 0; the products are of
integers; what is added to them, and the state c, stay f32. Of the operands X [T,B,I], W [D,I,4H],
R [D,H,4H], B [D,8H], sequence_lens [B], initial_h and initial_c [D,B,H], P [D,3H], then scale and
zero point of W and of R, [D] or [D,4H], all apart from the weights are those of LSTM.

Which elements share a range follows onnxruntime on one thread, found by comparing: of X those of
all rows up to the greatest length; of h those of all rows at a step, where rows that ended count
as 0. A row that is read backwards starts with the others. With several threads onnxruntime takes
the range of some of the rows, so its results change with the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.handlers.recurrent import LSTM, Layer
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.core import activations
from lstm_ir.ops.core.sizes import DIRECTIONS
from lstm_ir.ops.primitive.window import slice_axis


@dataclass(frozen=True)
class Weight:
    """Integers [D,K,4H], their scales [D,1] or [D,4H], and their zero points, of the same axes."""

    integers: Value
    scales: Value
    zero: Value | None

    @classmethod
    def of(cls, c: Call, name: str, at: int, scale_at: int, shape: tuple[Dim, ...]) -> Weight:
        """Operand `at`, with the operands of its scale and zero point."""
        w, scale, zero = c.value(at), c.value(scale_at), c.maybe(scale_at + 1)
        if w.dtype not in (DType.i8, DType.u8) or scale.dtype is not DType.f32:
            raise NodeRefusedError(f"{name} is {w.type} with a scale {scale.type}, not i8 or u8 with f32")
        _fits(c, name, w, shape)
        D, _, N = shape
        if zero is not None:
            if zero.dtype is not w.dtype:
                raise NodeRefusedError(f"the zero point of {name} is {zero.type}, {name} {w.type}")
            zero = _of_columns(c, f"the zero point of {name}", zero, D, N)
        return cls(w, _of_columns(c, f"the scale of {name}", scale, D, N), zero)

    def of_direction(self, d: int) -> tuple[Value, ...]:
        """What `dynamic_quantize_matmul` takes beside the rows."""
        return tuple(_picked(v, d) for v in (self.integers, self.scales, self.zero) if v is not None)


def _fits(c: Call, name: str, v: Value, shape: tuple[Dim, ...]) -> None:
    what = f"{name} is {v.type}, expected [{','.join(map(str, shape))}]"
    if v.rank != len(shape):
        raise NodeRefusedError(what)
    for size, want in zip(v.shape, shape, strict=True):
        c.agree(what, want, size)


def _of_columns(c: Call, name: str, v: Value, D: Dim, N: Dim) -> Value:
    """A number for each direction, or for each of its columns, as [D,1] or [D,N]."""
    if v.rank == 1:
        v = li.expand_dims(v, 1)
    _fits(c, name, v, (D, N if v.rank == 2 and v.shape[1] != 1 else 1))
    return v


def _picked(v: Value, d: int) -> Value:
    return li.squeeze(slice_axis(v, 0, d, d + 1), 0)


@taken(
    "DynamicQuantizeLSTM", 1, domain="com.microsoft", refused="elements other than f32, weights other than i8 and u8"
)
def dynamic_quantize_lstm(c: Call) -> list[Result]:
    """The LSTM of the standard operator set over such products."""
    x, r = c.value(0), c.value(2)
    direction = c.word("direction", "forward")
    if direction not in DIRECTIONS:
        raise NodeRefusedError(f"direction is {direction!r}, not one of {', '.join(DIRECTIONS)}")
    D = len(DIRECTIONS[direction])
    H = r.shape[1] if r.rank == 3 else None
    if x.rank != 3 or x.dtype is not DType.f32 or not isinstance(H, int) or c.integer("hidden_size", H) != H:
        raise NodeRefusedError(f"X is {x.type}, R {r.type}, hidden_size {c.integer('hidden_size', 0)}")
    T, B, inner = x.shape
    layer = Layer(c, LSTM, D, H, T, B, False, {})
    w = Weight.of(c, "W", 1, 8, (D, inner, 4 * H))
    recurrent = Weight.of(c, "R", 2, 10, (D, H, 4 * H))
    clip = c.real("clip") if c.has_attribute("clip") else None
    if clip is not None and not clip > 0:
        raise NodeRefusedError(f"clip is {clip}; a threshold is positive")
    biases, peephole = c.maybe(3), c.maybe(7)
    for name, v, shape in (("B", biases, (D, 8 * H)), ("P", peephole, (D, 3 * H))):
        if v is not None:
            layer.fits(name, v, shape)
    states = [layer.state(5, "initial_h"), layer.state(6, "initial_c")]
    lengths = layer.lengths()
    if lengths is not None:
        lengths = li.in_range(lengths, 0, T)
    found = layer.activations()
    parts: list[tuple[Value, Value, Value]] = []
    for d, backward in enumerate(DIRECTIONS[direction]):
        functions = tuple(map(activations.parse, found[5 * d : 5 * (d + 1)]))
        step = QuantizedStep(H, clip, c.flag("input_forget"), functions)
        start = [li.zeros((B, H), DType.f32) if s is None else _picked(s, d) for s in states]
        bias = None if biases is None else _picked(biases, d)
        given = None if peephole is None else _picked(peephole, d)
        run = step.run(x, w.of_direction(d), recurrent.of_direction(d), bias, given, start, lengths, bool(backward))
        parts.append(run)
    ys, hs, cs = zip(*parts, strict=True)
    return [li.stack(ys, 1), li.stack(hs, 0), li.stack(cs, 0)]


@dataclass(frozen=True)
class QuantizedStep:
    """What a step does: gates stand in ONNX's order i, o, f, g; functions are those of i, f, g, o and of c."""

    H: int
    clip: float | None
    input_forget: bool
    functions: tuple[activations.Act, ...]

    def run(
        self,
        x: Value,
        w: tuple[Value, ...],
        recurrent: tuple[Value, ...],
        bias: Value | None,
        peephole: Value | None,
        start: list[Value],
        lengths: Value | None,
        backward: bool,
    ) -> tuple[Value, Value, Value]:
        """One direction: y [T,B,H] and the final states [B,H]."""
        T = x.shape[0]
        rows = x
        if lengths is not None:
            rows = li.reverse_sequence(x, lengths) if backward else x
            used = li.less(li.iota((T,), 0, DType.i64), li.convert(li.max(lengths), DType.i64))
            rows = li.select(li.broadcast_in_dim(used, rows.shape, (0,)), rows, li.zeros_like(rows))
        z = li.dynamic_quantize_matmul(rows, *w)
        if bias is not None:
            both = slice_axis(bias, 0, 0, 4 * self.H) + slice_axis(bias, 0, 4 * self.H, 8 * self.H)
            z = z + both
        consts = [*recurrent, *(v for v in (peephole, lengths) if v is not None)]

        def cell(state: tuple[Value, ...], row: Value, *more: Value) -> tuple[tuple[Value, ...], Value]:
            h, c, *last = state
            rest = list(more[len(recurrent) : -1])
            p = rest.pop(0) if peephole is not None else None
            new_h, new_c = self.one(row + li.dynamic_quantize_matmul(h, *more[: len(recurrent)]), c, p)
            if lengths is None:
                return (new_h, new_c), new_h
            live = li.less(li.convert(more[-1], lengths.dtype), rest[0])
            live = li.broadcast_in_dim(live, h.shape, (0,))
            new_h = li.select(live, new_h, li.zeros_like(new_h))
            return (new_h, li.select(live, new_c, c), li.select(live, new_h, last[0])), new_h

        init = (*start, *(start[:1] if lengths is not None else ()))
        final, y = li.scan(
            cell, init, z, tuple(consts), reverse=backward and lengths is None, with_step=True, name="quantized_lstm"
        )
        if lengths is None:
            return y, *final
        return (li.reverse_sequence(y, lengths) if backward else y), final[2], final[1]

    def one(self, gates: Value, c: Value, peephole: Value | None) -> tuple[Value, Value]:
        """The new h and c [B,H] of gates [B,4H]."""
        i, o, f, g = (slice_axis(gates, 1, k * self.H, (k + 1) * self.H) for k in range(4))
        p = (
            [None] * 3
            if peephole is None
            else [slice_axis(peephole, 0, k * self.H, (k + 1) * self.H) for k in range(3)]
        )
        of_i, of_f, of_g, of_o, of_c = (a.build for a in self.functions)
        i = of_i(self.held(i, p[0], c))
        f = 1.0 - i if self.input_forget else of_f(self.held(f, p[2], c))
        new = f * c + i * of_g(self.held(g, None, c))
        return of_o(self.held(o, p[1], new)) * of_c(new), new

    def held(self, gate: Value, peephole: Value | None, c: Value) -> Value:
        """What enters an activation, within the clip."""
        z = gate if peephole is None else gate + peephole * c
        return z if self.clip is None else li.clamp(-self.clip, z, self.clip)
