"""Between MPSGraph's layout of recurrent ops and that of the core ops, as ops of the graph.

MPSGraph puts the directions side by side in one axis of weights, biases and states; the core ops
have an axis for them. Gate blocks change places on the weights, so that this is derived from them
once, outside any loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.mps.contract import plain_mask
from lstm_ir.ops.primitive.broadcast import broadcast_to
from lstm_ir.ops.primitive.shape import concat, expand_dims, reshape
from lstm_ir.ops.primitive.window import slice_axis

Order = tuple[str, ...]
Values = Mapping[str, Value | None]


def named(names: Sequence[str], values: Sequence[Value | None]) -> dict[str, Value | None]:
    """Operands by name."""
    return dict(zip(names, values, strict=True))


@dataclass(frozen=True)
class MpsOperands:
    """The operands of a call, and how they become those of a core op."""

    v: Values
    D: int
    H: int
    order: Order
    core: Order
    direction: str

    @classmethod
    def of(cls, v: Values, a: Mapping[str, Any], order: Order, core: Order) -> MpsOperands:
        """From the operands, the descriptor, and the gate orders here and in the core op."""
        R = v["recurrentWeight"]
        assert R is not None
        H = R.shape[-1]
        assert isinstance(H, int)
        way = "reverse" if a["reverse"] else "forward"
        both = a["bidirectional"]
        return cls(v, 2 if both else 1, H, order, core, "bidirectional" if both else way)

    def there(self, name: str) -> Value:
        """An operand that is not nil."""
        v = self.v[name]
        assert v is not None
        return v

    def shared(self) -> dict[str, Any]:
        """The operands that all core ops have, and the direction."""
        x, W = self.there("source"), self.v["inputWeight"]
        return {
            "x": self.gates(x) if W is None else x,
            "w_ih": None if W is None else self.matrix(W),
            "w_hh": self.matrix(self.there("recurrentWeight")),
            "b": self.vector("bias"),
            "h0": self.state("initState"),
            "recurrent_mask": self.mask(),
            "direction": self.direction,
        }

    def gates(self, rows: Value) -> Value:
        """[T,N,D*G*H] with the gate blocks in the core op's order."""
        return _permuted(rows, 2, self.D, self.order, self.core)

    def gates_back(self, rows: Value) -> Value:
        """The opposite of `gates`."""
        return _permuted(rows, 2, self.D, self.core, self.order)

    def matrix(self, w: Value) -> Value:
        """[D*G*H,n] or [D,G*H,n] as [D,G*H,n] in the core op's order."""
        width = len(self.order) * self.H
        whole = reshape(w, (self.D, width, w.shape[-1]))
        return _permuted(whole, 1, 1, self.order, self.core)

    def matrix_back(self, name: str, w: Value) -> Value:
        """The opposite of `matrix`, in the operand's shape."""
        return reshape(_permuted(w, 1, 1, self.core, self.order), self.there(name).shape)

    def vector(self, name: str) -> Value | None:
        """One block per gate as [D,G*H] in the core op's order; None for nil."""
        b = self.v[name]
        if b is None:
            return None
        whole = reshape(b, (self.D, len(self.order) * self.H))
        return _permuted(whole, 1, 1, self.order, self.core)

    def state(self, name: str) -> Value | None:
        """[N,D*H] or [1,N,H] as [D,N,H]; None for nil."""
        v = self.v[name]
        return None if v is None else self._apart(v)

    def state_back(self, name: str, v: Value) -> Value:
        """The opposite of `state`, in the operand's shape."""
        shape = self.there(name).shape
        if self.D == 1:
            return reshape(v, shape)
        parts = [reshape(slice_axis(v, 0, d, d + 1), v.shape[1:]) for d in range(2)]
        return concat(parts, 1)

    def mask(self) -> Value | None:
        """The mask as [D,N,H]; None for nil."""
        m = self.v["mask"]
        if m is None:
            return None
        N: Dim = self.there("source").shape[1]
        plain = reshape(m, plain_mask(m.shape))
        return self._apart(broadcast_to(plain, (N, self.D * self.H)))

    def _apart(self, v: Value) -> Value:
        if v.rank == 3:
            return v
        parts = (slice_axis(v, 1, d * self.H, (d + 1) * self.H) for d in range(self.D))
        return concat([expand_dims(p, 0) for p in parts], 0) if self.D > 1 else expand_dims(v, 0)

    def back(self, d: Any) -> dict[str, Value]:
        """The gradients that all three ops have, from those of the core op's operands."""
        projected = self.v["inputWeight"] is None
        out = {"source": self.gates_back(d.d_x) if projected else d.d_x}
        out["recurrentWeight"] = self.matrix_back("recurrentWeight", d.d_w_hh)
        if not projected:
            out["inputWeight"] = self.matrix_back("inputWeight", d.d_w_ih)
        if self.v["bias"] is not None:
            out["bias"] = self.vector_back("bias", d.d_b)
        if self.v["initState"] is not None:
            out["initState"] = self.state_back("initState", d.d_h0)
        return out

    def vector_back(self, name: str, v: Value) -> Value:
        """The opposite of `vector`, in the operand's shape."""
        return reshape(_permuted(v, 1, 1, self.core, self.order), self.there(name).shape)


def _permuted(v: Value, axis: int, directions: int, order: Order, to: Order) -> Value:
    """The gate blocks of an axis in another order, direction by direction; `v` itself if equal."""
    if order == to:
        return v
    size = v.shape[axis]
    assert isinstance(size, int)
    width = size // (directions * len(order))
    starts = [d * len(order) + order.index(n) for d in range(directions) for n in to]
    return concat([slice_axis(v, axis, k * width, (k + 1) * width) for k in starts], axis)
