"""`scan` for any compiler of StableHLO, as two nested loops; for a target by a kernel, or the loop of scan_packed.py.

The inner loop fills a chunk of rows, the outer one puts chunks into the result. Compilers may copy what a loop
carries in each iteration: with the whole result carried by one loop the copies grow with T^2, with chunks of K rows
with T^2/K + T*K. All loops are rolled: text and module have the same size for every T.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.for_loop import Values, for_loop, goes_on, number_of_steps, until_loop
from lstm_ir.backends.emit.mlir_types import array_attr, tensor
from lstm_ir.backends.emit.shapes import fill, fills_itself, number_filled
from lstm_ir.backends.kernels.lowering import lower_loop, pack_before
from lstm_ir.backends.lower.behind_loops import apart
from lstm_ir.backends.lower.gather import confined
from lstm_ir.backends.lower.scan_packed import PackedLoop
from lstm_ir.backends.lower.scan_until import UntilLoop, ended
from lstm_ir.backends.lower.tuned import CHUNK
from lstm_ir.ir.graph import Node
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import DType, TensorType

I32 = TensorType((), DType.i32)
STOP = TensorType((), DType.i1)


@lower("scan")
def _scan(e: Emitter, n: Node, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
    loop = Loop(n)
    if loop.length == 0:
        return [*init, *(e.full(0, t) for t in n.types[len(init) :])]
    given, compiled = loop.count, e.target is not None
    # 64 bits are moved into the range before anything takes their lower half.
    if count is not None and given is not None and (e.asserts or (compiled and given.dtype is DType.i64)):
        count, _ = confined(e, n, "count", count, 0, loop.length)
    if e.has_kernels:
        done = lower_loop(e, n, consts, init, xs, count)
        if done is not None:
            return done
    if fills_itself(e):
        init = _filled(e, loop, init)  # no kernel after all
    if e.target is not None:
        init = apart(e, loop.init, init)
        e.host_loops.add(n)
        with e.packed_before(pack_before(e, loop, consts) if e.has_cpu_kernels else {}):
            return (UntilLoop if loop.until else PackedLoop)(e, loop).run(consts, init, xs, count)
    if e.static:
        return _Static(e, loop).run(consts, init, xs, count)
    return _Dynamic(e, loop).run(consts, init, xs, count)


def _filled(e: Emitter, loop: Loop, init: Values) -> Values:
    """What a loop starts from, numbers as buffers, made where the numbers stand.

    IREE 3.13 ends in values that do not dominate their uses where a buffer is made further down.
    """
    out = []
    for v, value in zip(init, loop.init, strict=True):
        number = number_filled(value)
        if number is None:
            out.append(v)
            continue
        with ir.InsertionPoint(v.owner):
            out.append(fill(e, number, value.type))
    return out


class _Static:
    """Pure StableHLO: every size is an int; `count` may still be a run-time value."""

    def __init__(self, e: Emitter, loop: Loop) -> None:
        self.e, self.loop = e, loop
        assert isinstance(loop.length, int)
        self.length = loop.length
        self.k = min(CHUNK, self.length)
        self.blocks = -(-self.length // self.k)

    def i32(self, n: int) -> ir.Value:
        return self.e.constant(n, DType.i32)

    def arith(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.e.hlo(name, [a, b], I32)

    def less(self, a: ir.Value, b: ir.Value) -> ir.Value:
        direction = ir.Attribute.parse("#stablehlo<comparison_direction LT>")
        return self.e.hlo("compare", [a, b], TensorType((), DType.i1), comparison_direction=direction)

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        e, loop = self.e, self.loop
        # Rows before row 0 (reverse) or after the last (forward) take what a partly filled chunk
        # overhangs.
        self.pad = 0 if count is None and self.length % self.k == 0 else self.k
        n = self.i32(self.length) if count is None else self._clamped(count)
        buffers = [e.full(0, self._buffer(t)) for t in loop.y_types]
        carries = len(init)

        first = 1 + carries + loop.until

        def more(s: Values) -> ir.Value:
            return self._more(s, carries, n)

        def block(s: Values) -> Values:
            start, state, out = s[0], s[1:first], s[first:]
            left = self.arith("subtract", n, start)
            steps = self.arith("minimum", left, self.i32(self.k))
            done, state, chunks = self._chunk(consts, state, xs, start, steps, n)
            merged = [
                self._put(o, c, t, start, n, rev)
                for o, c, t, rev in zip(out, chunks, loop.y_types, loop.y_reverse, strict=True)
            ]
            return [self.arith("add", start, done if loop.until else self.i32(self.k)), *state, *merged]

        final = self._while([self.i32(0), *init, *self._going(), *buffers], more, block)
        ys = [self._cut(v, t, rev) for v, t, rev in zip(final[first:], loop.y_types, loop.y_reverse, strict=True)]
        return [*final[1 : 1 + carries], *final[: int(loop.until)], *ys]

    def _going(self) -> Values:
        """The flag that ends the loop, before its first step."""
        return [self.e.full(0, STOP)] if self.loop.until else []

    def _more(self, s: Values, carries: int, n: ir.Value) -> ir.Value:
        """Whether a step is left; s: step number, carries, the flag that ends the loop."""
        left = self.less(s[0], n)
        if not self.loop.until:
            return left
        return self.e.hlo("and", [left, self.e.hlo("not", [s[1 + carries]], STOP)], STOP)

    def _clamped(self, count: ir.Value) -> ir.Value:
        assert self.loop.count is not None
        t, e = self.loop.count.type, self.e  # as i32 a large count would be another number
        inside = e.hlo("clamp", [e.constant(0, t.dtype), count, e.constant(self.length, t.dtype)], t)
        return e.convert(inside, t, DType.i32)

    def _buffer(self, t: TensorType) -> TensorType:
        return t.resized(0, self.length + self.pad)

    def _chunk(
        self, consts: Values, state: Values, xs: Values, start: ir.Value, steps: ir.Value, n: ir.Value
    ) -> tuple[ir.Value, Values, Values]:
        """Steps that ran, carries with the flag that ends the loop, rows."""
        e, loop = self.e, self.loop
        chunk_types = [t.resized(0, self.k) for t in loop.y_types]
        empty = [e.full(0, t) for t in chunk_types]
        count, first = len(loop.init), loop.first_row

        def more(s: Values) -> ir.Value:
            return self._more(s, count, steps)

        def step(s: Values) -> Values:
            j, carries, chunks = s[0], s[1 : 1 + count], s[1 + first :]
            at = self.arith("add", start, j)
            back = self.arith("subtract", self.arith("subtract", n, self.i32(1)), at)
            rows = [
                self._row(x, t, back if rev else at) for x, t, rev in zip(xs, loop.x_types, loop.x_reverse, strict=True)
            ]
            out = e.body(loop.body, [at, *consts, *carries, *rows])
            mirrored = self.arith("subtract", self.i32(self.k - 1), j)
            new = [
                self._set(c, y, t, mirrored if rev else j)
                for c, y, t, rev in zip(chunks, out[first:], chunk_types, loop.y_reverse, strict=True)
            ]
            stop = [ended(e, v, s.type) for v, s in zip(out[count:first], loop.stop, strict=True)]
            return [self.arith("add", j, self.i32(1)), *out[:count], *stop, *new]

        final = self._while([self.i32(0), *state, *empty], more, step)
        return final[0], final[1 : 1 + first], final[1 + first :]

    def _starts(self, first: ir.Value, rank: int) -> Values:
        return [first, *(self.i32(0) for _ in range(rank - 1))]

    def _row(self, x: ir.Value, t: TensorType, at: ir.Value) -> ir.Value:
        sizes = [1, *(int(d) for d in t.shape[1:])]  # type: ignore[arg-type]
        one = t.resized(0, 1)
        v = self.e.hlo("dynamic_slice", [x, *self._starts(at, t.rank)], one, slice_sizes=array_attr(sizes))
        return self.e.hlo("reshape", [v], t.with_shape(t.shape[1:]))

    def _set(self, chunk: ir.Value, y: ir.Value, t: TensorType, at: ir.Value) -> ir.Value:
        row = self.e.hlo("reshape", [y], t.resized(0, 1))
        return self.e.hlo("dynamic_update_slice", [chunk, row, *self._starts(at, t.rank)], t)

    def _put(
        self, out: ir.Value, chunk: ir.Value, t: TensorType, start: ir.Value, n: ir.Value, reverse: bool
    ) -> ir.Value:
        at = start
        if reverse:  # rows n - start - k .. n - start, behind `pad` rows of overhang
            at = self.arith("subtract", self.arith("subtract", n, start), self.i32(self.k - self.pad))
        return self.e.hlo("dynamic_update_slice", [out, chunk, *self._starts(at, t.rank)], self._buffer(t))

    def _cut(self, v: ir.Value, t: TensorType, reverse: bool) -> ir.Value:
        if not self.pad:
            return v
        low = self.pad if reverse else 0
        rest = [int(d) for d in t.shape[1:]]  # type: ignore[arg-type]
        return self.e.hlo(
            "slice",
            [v],
            t,
            start_indices=array_attr([low, *(0 for _ in rest)]),
            limit_indices=array_attr([low + self.length, *rest]),
            strides=array_attr([1] * t.rank),
        )

    def _while(self, init: Values, more: Callable[[Values], ir.Value], step: Callable[[Values], Values]) -> Values:
        kinds = [v.type for v in init]
        loop = self.e.make("stablehlo.while", init, kinds, regions=2)
        locs = [ir.Location.unknown()] * len(kinds)
        test, body = (region.blocks.append(*kinds, arg_locs=locs) for region in loop.regions)
        with ir.InsertionPoint(test):
            self.e.make("stablehlo.return", [more(list(test.arguments))], [])
        with ir.InsertionPoint(body):
            self.e.make("stablehlo.return", step(list(body.arguments)), [])
        return list(loop.results)


class _Dynamic:
    """scf.for over tensors with named sizes."""

    def __init__(self, e: Emitter, loop: Loop) -> None:
        self.e, self.loop = e, loop

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        e, loop = self.e, self.loop
        n = number_of_steps(e, e.size(loop.length), count)
        k = e.size(CHUNK)
        carries = len(init)
        buffers = [e.full(0, t) for t in loop.y_types]

        kinds = [*loop.carry_types, *loop.y_types]

        def block(start: ir.Value, s: Values) -> tuple[ir.Value, ir.Value, Values]:
            steps = self.e.arith("minsi", self.e.arith("subi", n, start), k)
            done, on, state, chunks = self._chunk(consts, s[:carries], xs, start, steps, n)
            merged = [
                self._put(o, c, t, start, done, n, rev)
                for o, c, t, rev in zip(s[carries:], chunks, loop.y_types, loop.y_reverse, strict=True)
            ]
            return self.e.arith("addi", start, done), on, [*state, *merged]

        if loop.until:
            ran, _, last = until_loop(e, n, [*init, *buffers], kinds, block)
            return [*last[:carries], e.scalar(ran, DType.i32), *last[carries:]]
        return for_loop(e, (e.size(0), n, k), [*init, *buffers], kinds, lambda at, s: block(at, s)[2])

    def _chunk(
        self, consts: Values, state: Values, xs: Values, start: ir.Value, steps: ir.Value, n: ir.Value
    ) -> tuple[ir.Value, ir.Value, Values, Values]:
        """How many steps ran, whether to go on, carries, rows."""
        e, loop = self.e, self.loop
        types = [t.resized(0, CHUNK) for t in loop.y_types]
        empty = [e.full(0, t) for t in types]

        def step(j: ir.Value, s: Values) -> tuple[ir.Value, ir.Value, Values]:
            carries, chunks = s[: len(state)], s[len(state) :]
            at = self.e.arith("addi", start, j)
            back = self.e.arith("subi", self.e.arith("subi", n, e.size(1)), at)
            rows = [
                self._row(x, t, back if rev else at) for x, t, rev in zip(xs, loop.x_types, loop.x_reverse, strict=True)
            ]
            out = e.body(loop.body, [e.scalar(at, DType.i32), *consts, *carries, *rows])
            mirrored = self.e.arith("subi", e.size(CHUNK - 1), j)
            new = [
                e.insert_slice(y, c, [mirrored if rev else j, *[0] * (t.rank - 1)], [1, *t.shape[1:]])
                for c, y, t, rev in zip(chunks, out[loop.first_row :], types, loop.y_reverse, strict=True)
            ]
            on = goes_on(e, ended(e, out[len(state)], loop.stop[0].type)) if loop.until else j
            return self.e.arith("addi", j, e.size(1)) if loop.until else j, on, [*out[: len(state)], *new]

        kinds = [*loop.carry_types, *types]
        done = on = steps
        if loop.until:
            done, on, final = until_loop(e, steps, [*state, *empty], kinds, step)
        else:
            bounds = e.size(0), steps, e.size(1)
            final = for_loop(e, bounds, [*state, *empty], kinds, lambda j, s: step(j, s)[2])
        return done, on, final[: len(state)], final[len(state) :]

    def _row(self, x: ir.Value, t: TensorType, at: ir.Value) -> ir.Value:
        row = tensor(t.with_shape(t.shape[1:]))
        return self.e.extract_slice(x, t, [at, *[0] * (t.rank - 1)], [1, *t.shape[1:]], row)

    def _put(
        self,
        out: ir.Value,
        chunk: ir.Value,
        t: TensorType,
        start: ir.Value,
        steps: ir.Value,
        n: ir.Value,
        reverse: bool,
    ) -> ir.Value:
        zeros = [0] * (t.rank - 1)
        low: Any = 0
        at = start
        if reverse:  # the last `steps` rows of the chunk go to rows n - start - steps ..
            low = self.e.arith("subi", self.e.size(CHUNK), steps)
            at = self.e.arith("subi", self.e.arith("subi", n, start), steps)
        dynamic = ir.ShapedType.get_dynamic_size()
        shape = [dynamic, *(d if isinstance(d, int) else dynamic for d in t.shape[1:])]
        kind = ir.RankedTensorType.get(shape, ir.RankedTensorType(out.type).element_type)
        used = self.e.extract_slice(chunk, t, [low, *zeros], [steps, *t.shape[1:]], kind)
        return self.e.insert_slice(used, out, [at, *zeros], [steps, *t.shape[1:]])
