"""`scan` for IREE: two nested `scf.for`, each carrying ONE flat tensor of all carries and rows.

Why one: IREE packs what a step gives into one buffer and carries that handle, and its fence, once
per value. When the VM keeps one occurrence in its register, moving another clears it, and the next
step reads a null buffer or waits for nothing (iree-org/iree pull request 24781, open for 3.13). A
loop that carries one tensor carries one handle.
Why each step writes a new tensor instead of updating the carried one: IREE 3.13 updates in place
and lets a dispatch of the same step read a part after its successor has overwritten it. What is
read is never written here, and what is written is not read before the next step.
Why nested: the carried tensor is copied on every step. With whole results inside, the copies grow
with T^2; with chunks of K rows they fall to T^2/K + T*K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from lstm_ir import dims
from lstm_ir.backends.emitter import Emitter, element, tensor
from lstm_ir.backends.for_loop import Values, for_one
from lstm_ir.backends.loop import CHUNK, Loop
from lstm_ir.backends.lower_shape import reshape
from lstm_ir.dims import Dim
from lstm_ir.types import DType, TensorType

ALIGN = 16  # elements; a part begins where vector loads may


@dataclass(frozen=True)
class _Part:
    """Where one value lies in the flat tensor."""

    type: TensorType
    begin: Dim
    stored: DType

    @property
    def count(self) -> Dim:
        return dims.product(self.type.shape)

    @property
    def row(self) -> Dim:
        """Elements of one row."""
        return dims.product(self.type.shape[1:])


class Flat:
    """A flat tensor with a part for each type.

    Elements of mixed types are stored as bits of one width.
    """

    def __init__(self, e: Emitter, types: Sequence[TensorType]) -> None:
        self.e = e
        kinds = {t.dtype for t in types}
        self.stored = kinds.pop() if len(kinds) == 1 and DType.i1 not in kinds else None
        self.parts: list[_Part] = []
        begin: Dim = 0
        for t in types:
            self.parts.append(_Part(t, begin, t.dtype))
            words = dims.mul(dims.product(t.shape), self._words(t.dtype))
            begin = dims.add(
                begin, dims.mul(dims.floordiv(dims.add(words, ALIGN - 1), ALIGN), ALIGN)
            )
        self.type = TensorType((begin,), DType.i32 if self.stored is None else self.stored)

    def _words(self, dtype: DType) -> int:
        """Elements of the flat tensor that one element takes."""
        return 2 if self.stored is None and dtype.bits == 64 else 1

    def index(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """arith.`name` of two indices."""
        return self.e.make(f"arith.{name}", [a, b], [ir.IndexType.get()]).result

    def apart(self, values: Sequence[ir.Value]) -> Values:
        """What a loop starts from, made before it is written into a flat tensor.

        In SPIR-V, IREE 3.13 writes some starts to other elements where they are made in the dispatch
        that writes them: the gradient of an LSTM at h_n, named sizes, H = 23.
        """
        e = self.e
        if e.target is None or e.target.kind not in ("vulkan", "metal"):
            return list(values)
        made = [e.make("util.optimization_barrier", [v], [v.type]).result for v in values]
        return [e.tie(v, p.type) for v, p in zip(made, self.parts, strict=False)]

    def start(self, values: Sequence[ir.Value | None]) -> ir.Value:
        """A new flat tensor of these values; None is zeros."""
        flat = self.e.filled(0, self.type, own=True)
        for i, v in enumerate(values):
            flat = flat if v is None else self.put(flat, i, v)
        return flat

    def put(self, flat: ir.Value, i: int, v: ir.Value) -> ir.Value:
        """With part i replaced."""
        p = self.parts[i]
        return self.write(flat, v, p.type, self.e.size(p.begin))

    def get(self, flat: ir.Value, i: int) -> ir.Value:
        """Part i."""
        p = self.parts[i]
        return self.read(flat, p.type, self.e.size(p.begin))

    def keep(self, flat: ir.Value, i: int, old: ir.Value) -> ir.Value:
        """Part i as it is in another tensor of this layout."""
        p = self.parts[i]
        count = dims.mul(p.count, self._words(p.type.dtype))
        kind = tensor(TensorType((count,), self.type.dtype))
        begin = self.e.size(p.begin)
        part = self.e.extract_slice(old, self.type, [begin], [count], kind)
        return self.e.insert_slice(part, flat, [begin], [count])

    def put_row(self, flat: ir.Value, i: int, v: ir.Value, at: ir.Value) -> ir.Value:
        """With row `at` of part i replaced."""
        p = self.parts[i]
        return self.write(flat, v, p.type.with_shape(p.type.shape[1:]), self._row_begin(p, at))

    def move_rows(
        self,
        flat: ir.Value,
        i: int,
        at: ir.Value,
        source: Flat,
        given: ir.Value,
        k: int,
        low: ir.Value,
        rows: ir.Value,
    ) -> ir.Value:
        """Rows `low` to `low + rows` of part k of another tensor, as rows of part i from `at` on."""
        p, q = self.parts[i], source.parts[k]
        length = self.index("muli", rows, self.e.size(dims.mul(p.row, self._words(p.type.dtype))))
        dynamic = ir.RankedTensorType.get(
            [ir.ShapedType.get_dynamic_size()], element(self.type.dtype)
        )
        used = self.e.extract_slice(
            given, source.type, [source._row_begin(q, low)], [length], dynamic
        )
        return self.e.insert_slice(used, flat, [self._row_begin(p, at)], [length])

    def _row_begin(self, p: _Part, at: ir.Value) -> ir.Value:
        step = self.e.size(dims.mul(p.row, self._words(p.type.dtype)))
        return self.index("addi", self.e.size(p.begin), self.index("muli", at, step))

    def write(self, flat: ir.Value, v: ir.Value, t: TensorType, begin: ir.Value) -> ir.Value:
        """With `v`, of type `t`, from element `begin` on."""
        bits, kind = self._to_bits(v, t)
        count = dims.product(kind.shape)
        line = reshape(self.e, bits, kind, (count,))
        return self.e.insert_slice(line, flat, [begin], [count])

    def read(self, flat: ir.Value, t: TensorType, begin: ir.Value) -> ir.Value:
        """The value of type `t` from element `begin` on."""
        words = self._words(t.dtype)
        count = dims.mul(dims.product(t.shape), words)
        line_type = TensorType((count,), self.type.dtype)
        line = self.e.extract_slice(flat, self.type, [begin], [count], tensor(line_type))
        shape = (*t.shape, 2) if words == 2 else t.shape
        return self._from_bits(reshape(self.e, line, line_type, shape), t)

    def _to_bits(self, v: ir.Value, t: TensorType) -> tuple[ir.Value, TensorType]:
        if self.stored is not None:
            return v, t
        i32 = t.with_dtype(DType.i32)
        if t.dtype.bits == 64:
            pair = TensorType((*t.shape, 2), DType.i32)
            return self.e.hlo("bitcast_convert", [v], pair), pair
        if t.dtype.bits == 32:
            return (v if t.dtype is DType.i32 else self.e.hlo("bitcast_convert", [v], i32)), i32
        if t.dtype in (DType.f16, DType.bf16):  # exact in f32
            wide = self.e.hlo("convert", [v], t.with_dtype(DType.f32))
            return self.e.hlo("bitcast_convert", [wide], i32), i32
        return self.e.hlo("convert", [v], i32), i32

    def _from_bits(self, v: ir.Value, t: TensorType) -> ir.Value:
        if self.stored is not None or t.dtype is DType.i32:
            return v
        if t.dtype.bits >= 32:
            return self.e.hlo("bitcast_convert", [v], t)
        if t.dtype in (DType.f16, DType.bf16):
            wide = self.e.hlo("bitcast_convert", [v], t.with_dtype(DType.f32))
            return self.e.hlo("convert", [wide], t)
        return self.e.hlo("convert", [v], t)


class PackedLoop:
    """Emits one scan."""

    def __init__(self, e: Emitter, loop: Loop) -> None:
        self.e, self.loop = e, loop
        self.whole = Flat(e, [*loop.carries, *loop.stacked])
        chunks = [t.resized(0, CHUNK) for t in loop.stacked]
        self.chunk = Flat(e, [*loop.carries, *chunks])

    def index(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """arith.`name` of two indices."""
        return self.e.make(f"arith.{name}", [a, b], [ir.IndexType.get()]).result

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """Finals and stacked results."""
        e, loop = self.e, self.loop
        length = e.size(loop.length)
        n = length
        if count is not None:  # clamped, so that no value reads or writes outside
            n = self.index("minsi", self.index("maxsi", e.extract(count), e.size(0)), length)
        init = self.whole.apart(init)
        carries = len(loop.carries)
        if not loop.stacked or loop.length == CHUNK:
            return self._plain(consts, init, xs, n)

        def block(start: ir.Value, flat: ir.Value) -> ir.Value:
            steps = self.index("minsi", self.index("subi", n, start), e.size(CHUNK))
            given = self._chunk(
                [self.whole.get(flat, i) for i in range(carries)], consts, xs, start, steps, n
            )
            old, flat = (
                flat,
                self.whole.start(
                    [
                        *(self.chunk.get(given, i) for i in range(carries)),
                        *(None for _ in loop.stacked),
                    ]
                ),
            )
            for i, reverse in enumerate(loop.y_reverse, carries):
                flat = self.whole.keep(flat, i, old)
                low, at = e.size(0), start
                if reverse:  # the last `steps` rows of the chunk go to rows n - start - steps ..
                    low = self.index("subi", e.size(CHUNK), steps)
                    at = self.index("subi", self.index("subi", n, start), steps)
                flat = self.whole.move_rows(flat, i, at, self.chunk, given, i, low, steps)
            return flat

        first = self.whole.start([*init, *(None for _ in loop.stacked)])
        last = for_one(e, (e.size(0), n, e.size(CHUNK)), first, self.whole.type, block)
        return [self.whole.get(last, i) for i in range(carries + len(loop.stacked))]

    def _plain(self, consts: Values, init: Values, xs: Values, n: ir.Value) -> Values:
        """One loop, where chunks save nothing: to IREE the tensors of two loops would be one."""
        first = self.whole.start([*init, *(None for _ in self.loop.stacked)])
        step = self._step(self.whole, consts, xs, self.e.size(0), n, n)
        bounds = self.e.size(0), n, self.e.size(1)
        last = for_one(self.e, bounds, first, self.whole.type, step)
        return [self.whole.get(last, i) for i in range(len(self.whole.parts))]

    def _chunk(
        self,
        state: Values,
        consts: Values,
        xs: Values,
        start: ir.Value,
        steps: ir.Value,
        n: ir.Value,
    ) -> ir.Value:
        e = self.e
        first = self.chunk.start([*state, *(None for _ in self.loop.stacked)])
        step = self._step(self.chunk, consts, xs, start, n, e.size(CHUNK))
        return for_one(e, (e.size(0), steps, e.size(1)), first, self.chunk.type, step)

    def _step(
        self, into: Flat, consts: Values, xs: Values, start: ir.Value, n: ir.Value, rows: ir.Value
    ) -> Callable[[ir.Value, ir.Value], ir.Value]:
        """Step `start + j` of `n`, its carries and rows written to `into`, which has room for
        `rows` rows.
        """
        e, loop = self.e, self.loop
        carries = len(loop.carries)

        def step(j: ir.Value, flat: ir.Value) -> ir.Value:
            at = self.index("addi", start, j)
            back = self.index("subi", self.index("subi", n, e.size(1)), at)
            read = [
                self._row(x, t, back if rev else at)
                for x, t, rev in zip(xs, loop.scanned, loop.x_reverse, strict=True)
            ]
            held = [into.get(flat, i) for i in range(carries)]
            out = e.body(loop.body, [e.scalar(at, DType.i32), *consts, *held, *read])
            new = into.start([*out[:carries], *(None for _ in loop.stacked)])
            mirrored = self.index("subi", self.index("subi", rows, e.size(1)), j)
            for i, reverse in enumerate(loop.y_reverse, carries):
                new = into.keep(new, i, flat)
                new = into.put_row(new, i, out[i], mirrored if reverse else j)
            return new

        return step

    def _row(self, x: ir.Value, t: TensorType, at: ir.Value) -> ir.Value:
        row = tensor(t.with_shape(t.shape[1:]))
        return self.e.extract_slice(x, t, [at, *[0] * (t.rank - 1)], [1, *t.shape[1:]], row)
