"""Per-row lengths in a loop's body: `select(time < lengths, new, old)` for every carry."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir import ops
from lstm_ir.ir.dims import Dim, add, mul
from lstm_ir.ir.graph import Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.size import size_value
from lstm_ir.passes.cell.terms import NoCellError
from lstm_ir.passes.lift import Dependence, Lift


@dataclass(frozen=True)
class MaskedLoop:
    """A loop's new carries before they are held, and the comparison that holds them, or None."""

    loop: Loop
    new: tuple[Value, ...]
    test: Value | None

    @classmethod
    def of(cls, loop: Loop) -> MaskedLoop:
        """The loop without its mask, if every carry has the same one."""
        found = [_held(v, p) for v, p in zip(loop.next, loop.carry_params, strict=True)]
        tests = {f[0] for f in found if f is not None}
        if len(tests) == 1 and all(f is not None for f in found):
            return cls(loop, tuple(f[1] for f in found if f is not None), tests.pop())
        return cls(loop, loop.next, None)

    def lengths(self, lift: Lift, reverse: bool, B: Dim) -> Value | None:
        """The lengths of B rows, outside, held in 0 .. T; NoCellError where the mask is another one."""
        if self.test is None:
            return None
        n = self.test.node
        if n.op.name != "compare" or n.attrs["direction"] != "LT":  # one for all rows, broadcast
            raise NoCellError("its carries are held by another mask than lengths", self.test)
        time, bound = n.inputs
        if time.op != "broadcast_in_dim":
            raise NoCellError("its carries are held by another mask than lengths", self.test)
        if lift.kind[bound] is not Dependence.fixed or bound.shape != (B,) or bound.dtype is not DType.i32:
            raise NoCellError("its carries are held by another mask than lengths", self.test)
        step = time.node.inputs[0]
        good = self._counts_down(step, lift) if reverse else step is self.loop.step
        if not good:
            raise NoCellError("its mask does not count the steps of its direction", self.test)
        return self._held(lift.fixed(bound))

    def _held(self, bound: Value) -> Value:
        """A bound outside of 0 .. T says no more than the nearest length, which is all that the op takes."""
        T = self.loop.length
        made = bound.node.inputs[0] if bound.op == "convert" else bound
        if made.op == "in_range" and (made.node.attrs["low"], made.node.attrs["high"]) == (0, T):
            return bound
        return ops.clamp(0, bound, ops.broadcast_to(size_value(T, DType.i32), bound.shape))

    def _counts_down(self, time: Value, lift: Lift) -> bool:
        """Whether time is n - 1 - step."""
        if time.op != "subtract" or time.node.inputs[1] is not self.loop.step:
            return False
        last = time.node.inputs[0]
        if lift.kind[last] is not Dependence.fixed:
            return False
        return self._is_last(lift.fixed(last))

    def _is_last(self, last: Value) -> bool:
        count = self.loop.count
        if count is None:
            return _size(last) == add(self.loop.length, -1)
        if last.op != "subtract" or splat(last.node.inputs[1]) != 1:
            return False
        n = last.node.inputs[0]
        n = n.node.inputs[0] if n.op == "convert" else n
        return n is count or (n.op == "clamp" and n.node.inputs[1] is count)

    def row(self, v: Value) -> tuple[Value, str]:
        """The new value that a stacked one shows, and its padding: zero, hold, or none ('')."""
        if self.test is None:
            return v, ""
        if v in self.loop.next:
            return self.new[self.loop.next.index(v)], "hold"
        if v.op == "select" and _test(v.node.inputs[0]) is self.test:
            _, there, else_ = v.node.inputs
            if splat(else_) == 0:
                return there, "zero"
            if else_ in self.loop.carry_params and there in self.new:
                k = self.loop.carry_params.index(else_)
                if self.new[k] is there:
                    return there, "hold"
        raise NoCellError("rows past their length show neither zero nor the held state", v)


def _size(v: Value) -> Dim | None:
    """The dimension expression that a scalar is; None for another value."""
    if v.op == "dim":
        size: Dim = v.node.attrs["size"]
        return size
    if v.op == "constant" and v.rank == 0 and v.dtype.is_int:
        return int(splat(v))
    if v.op != "subtract":
        return None
    a, b = map(_size, v.node.inputs)
    return None if a is None or b is None else add(a, mul(b, -1))


def _held(v: Value, p: Value) -> tuple[Value, Value] | None:
    """(test, new) of select(test, new, p)."""
    if v.op != "select" or v.node.inputs[2] is not p:
        return None
    return _test(v.node.inputs[0]), v.node.inputs[1]


def _test(pred: Value) -> Value:
    """The comparison [B] behind a mask [B,...]."""
    if pred.op == "broadcast_in_dim" and pred.node.attrs["broadcast_dimensions"] == (0,):
        return pred.node.inputs[0]
    return pred
