"""LSTM, GRU and RNN: PyTorch's list of parameters as the operands of our layers.

Of each layer and direction the parameters are w_ih [G*H, I], w_hh [G*H, P], b_ih [G*H], b_hh [G*H], w_hr [P, H]; the
last one with a projection, the biases where the layer has them. Gates stand in our order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.graph import Value
from lstm_ir.ops.nn.stacks import stacked
from lstm_ir.ops.primitive.window import slice_axis

Parts = dict[str, Value]


@dataclass(frozen=True)
class Kind:
    """What is told apart between the four ops."""

    builder: Callable[..., Any]
    names: tuple[str, ...]  # operands of one of our layers
    gates: int
    activation: str | None = None

    def options(self, sides: int) -> dict[str, Any]:
        """Options of the builder, for so many directions."""
        return {} if self.activation is None else {"activations": (self.activation,) * sides}


KINDS = {
    "lstm": Kind(li.lstm, ("w_ih", "w_hh", "b", "w_hr"), 4),
    "gru": Kind(li.gru, ("w_ih", "w_hh", "b", "b_hn"), 3),
    "rnn_tanh": Kind(li.rnn, ("w_ih", "w_hh", "b"), 1),
    "rnn_relu": Kind(li.rnn, ("w_ih", "w_hh", "b"), 1, "relu"),
}


def biases(kind: Kind, b_ih: Value, b_hh: Value) -> Parts:
    """Both biases as one; that of a GRU's candidate, which the reset gate multiplies, by itself."""
    if kind.builder is not li.gru:
        return {"b": b_ih + b_hh}
    last = b_ih.rank - 1
    (H,) = (d // 3 for d in b_hh.shape[last:] if isinstance(d, int))
    both = slice_axis(b_ih, last, 0, 2 * H) + slice_axis(b_hh, last, 0, 2 * H)
    return {
        "b": li.concat([both, slice_axis(b_ih, last, 2 * H, 3 * H)], last), "b_hn": slice_axis(b_hh, last, 2 * H, 3 * H)
    }  # fmt: skip


def _layers(c: Call, kind: Kind, sides: int) -> list[Parts]:
    """The operands of each layer, those of both directions joined."""
    given = c.tensors("params")
    has_biases, count = c.flag("has_biases"), c.integer("num_layers")
    each, more = divmod(len(given), count * sides)
    projected = each == 3 + 2 * has_biases and "w_hr" in kind.names
    if more or each != 2 + 2 * has_biases + projected:
        raise NodeRefusedError(f"{len(given)} parameters for {count} layers in {sides} directions")
    out = []
    for layer in range(count):
        halves = []
        for side in range(sides):
            w_ih, w_hh, *rest = given[(layer * sides + side) * each :][:each]
            half = {"w_ih": w_ih, "w_hh": w_hh}
            if has_biases:
                half |= biases(kind, *rest[:2])
            if projected:
                half["w_hr"] = rest[-1]
            halves.append(half)
        out.append(halves[0] if sides == 1 else {k: li.stack([h[k] for h in halves]) for k in halves[0]})
    return out


def _state(c: Call, v: Value) -> Value | None:
    """An initial state; None where it is zero."""
    return None if c.is_zero(v) else v


def _states(c: Call) -> list[Value]:
    found = c.any("hx")
    return found if isinstance(found, list) else [found]


def layer(c: Call, kind: Kind, x: Value, lengths: Value | None, layout: str) -> list[Value]:
    """y and last states of a stack of layers."""
    sides = 2 if c.flag("bidirectional") else 1
    rate, training = c.real("dropout"), c.flag("train")
    layers = _layers(c, kind, sides)
    begin = [_state(c, v) for v in _states(c)]
    drops = training and rate > 0 and len(layers) > 1
    if drops and rate >= 1:
        raise NodeRefusedError("a dropout of 1 is not taken")

    def one(y: Any, **operands: Any) -> Any:
        return kind.builder(y, **operands, **kind.options(sides))

    y, states = stacked(
        "from_torch", one, kind.names, x, layers, dict(zip(("h0", "c0"), begin, strict=False)),
        "bidirectional" if sides == 2 else "forward", lengths, rate if drops else 0.0,
        c.context.key() if drops else None, True, layout,
    )  # fmt: skip
    return [y, *states]


def _register(name: str, kind: Kind) -> None:
    def whole(c: Call) -> list[Value]:
        batch = c.flag("batch_first")
        return layer(c, kind, c.tensor("input"), None, "batch" if batch else "time")

    taken(f"aten.{name}.input", f"lstm_ir.{name}.default")(whole)


for _name, _kind in KINDS.items():
    _register(_name, _kind)
