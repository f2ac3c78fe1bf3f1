"""CudnnRNN's layers as core ops: params cut into weights, one `lstm`, `gru` or `rnn` per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir.graph import Arg, Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import OPS
from lstm_ir.ir.types import DType
from lstm_ir.ops.cudnn.contract import CudnnCall
from lstm_ir.ops.cudnn.layout import Network, WeightRegion
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.shape import concat, expand_dims, reshape, swapaxes
from lstm_ir.ops.primitive.window import slice_axis


@dataclass(frozen=True)
class CudnnOperands:
    """The operands of a call, time-major and in the type that is computed in."""

    call: CudnnCall
    x: Value
    h0: Value
    c0: Value | None
    params: Value
    lengths: Value
    keep: Sequence[Value] | None

    def dropped(self, v: Value, layer: int) -> Value:
        """v [T,B,D*Q] between `layer` and the next, or its gradient."""
        if self.keep is None:
            return v
        return e.select(self.keep[layer], v * self.call.scale, constant(0, v.dtype))

    def operands(self, x: Value, layer: int) -> dict[str, Arg]:
        """Operands of the layer's core op, by name."""
        n, at = self.call.net, slice(layer * self.call.net.D, (layer + 1) * self.call.net.D)
        states = {"h0": _axis0(self.h0, at), "c0": None if self.c0 is None else _axis0(self.c0, at)}
        if not n.feeds(layer):
            x = concat([x] * (n.D * n.G), 2)
        return {"x": x, "lengths": self.lengths} | states | self.weights(layer)

    def weights(self, layer: int) -> dict[str, Arg]:
        """w_ih, w_hh, w_hr, b, b_hn of a layer, each with the direction axis."""
        n = self.call.net
        found = n.blocks[layer * n.D : (layer + 1) * n.D]

        def joined(kind: str) -> Value | None:
            parts = [getattr(b, kind) for b in found]
            if parts[0] is None:
                return None
            return concat([expand_dims(_region(self.params, r), 0) for r in parts])

        bW, bR = joined("b_in"), joined("b_rec")
        assert bW is not None
        assert bR is not None
        out: dict[str, Arg] = {"w_ih": joined("W"), "w_hh": joined("R"), "w_hr": joined("P")}
        if n.mode != "gru":
            return out | {"b": bW + bR}
        rz = slice_axis(bW, 1, 0, 2 * n.H) + slice_axis(bR, 1, 0, 2 * n.H)
        b = concat([rz, slice_axis(bW, 1, 2 * n.H, 3 * n.H)], 1)
        return out | {"b": b, "b_hn": slice_axis(bR, 1, 2 * n.H, 3 * n.H)}


def core(net: Network, suffix: str, operands: dict[str, Arg], **attrs: Any) -> Node:
    """A layer as `lstm`, `gru` or `rnn`, or with the suffix `_grad` its gradient."""
    name = net.mode if net.mode in ("lstm", "gru") else "rnn"
    op = OPS[name + suffix]
    direction = "bidirectional" if net.D == 2 else "forward"
    acts = ("relu",) * net.D if net.mode == "rnn_relu" else ()
    args = (operands.get(o.name) for o in op.operands)
    return make(op, *args, direction=direction, activations=acts, **attrs)


def got(node: Node, name: str) -> Value:
    """A result that this node has."""
    v = node.by_name[name]
    assert isinstance(v, Value)
    return v


def major(v: Value, time_major: bool) -> Value:
    """[T,B,.] from what the op takes, and back."""
    return v if time_major else swapaxes(v, 0, 1)


def narrow(v: Value, dtype: DType) -> Value:
    """A result in the op's type."""
    return v if v.dtype is dtype else e.convert(v, dtype)


def _region(params: Value, r: WeightRegion) -> Value:
    return reshape(slice_axis(params, 0, r.offset, r.offset + r.size), r.shape)


def _axis0(v: Value, at: slice) -> Value:
    return slice_axis(v, 0, at.start, at.stop)


def layers(v: CudnnOperands, save: bool) -> list[Node]:
    """The core ops, first layer first."""
    out: list[Node] = []
    x = v.x
    for layer in range(v.call.net.L):
        if out:
            x = v.dropped(got(out[-1], "y"), layer - 1)
        kept = save and v.call.net.G > 1
        out.append(core(v.call.net, "", v.operands(x, layer), save=kept))
    return out
