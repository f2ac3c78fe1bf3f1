"""The cells of recurrent layers: weights in the order of the core ops, and one step of each as plain ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.conventions import CONVENTIONS
from lstm_ir.importers.keras.config import LayerSpec
from lstm_ir.importers.keras.handlers.activations import CORE, FUNCTIONS, name_of
from lstm_ir.importers.keras.holding import Holding
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.window import slice_axis

KINDS = {"LSTMCell": "lstm", "GRUCell": "gru", "SimpleRNNCell": "rnn"}
ORDERS = {"lstm": "ifgo", "gru": "rzn", "rnn": "h"}
KNOWN = frozenset(
    "units activation recurrent_activation use_bias unit_forget_bias dropout recurrent_dropout reset_after "
    "implementation return_sequences return_state go_backwards stateful unroll zero_output_for_mask use_cudnn "
    "time_major cell".split()
)
Masks = tuple[Value, ...]


@dataclass(frozen=True)
class KerasCell:
    """One cell: its kind, sizes, activations, and its weights as Keras lays them out."""

    kind: str
    units: int
    activations: tuple[str, ...]  # of the candidate (and the output), of the gates
    weights: Mapping[str, Value]
    reset_after: bool
    dropout: float
    recurrent_dropout: float

    @property
    def gates(self) -> int:
        """How many gates it has."""
        return len(ORDERS[self.kind])

    @property
    def states(self) -> int:
        """How many states it has."""
        return 2 if self.kind == "lstm" else 1

    @property
    def dtype(self) -> DType:
        """The type of its weights."""
        return self.weights["kernel"].dtype

    @property
    def core_activations(self) -> tuple[str, ...] | None:
        """Those of one direction for a core op; None where one is missing there."""
        found = tuple(CORE.get(a, "") for a in self.activations)
        if not all(found):
            return None
        if self.kind == "rnn":
            return (found[0],)
        new, gate = found
        return (gate, gate, new, gate, new) if self.kind == "lstm" else (gate, gate, new)

    def operands(self) -> dict[str, Value]:
        """w_ih, w_hh, b, b_hn of a core op."""
        w = {n: li.transpose(self.reordered(self.weights[k], 1)) for n, k in
             (("w_ih", "kernel"), ("w_hh", "recurrent_kernel"))}  # fmt: skip
        bias = self.weights.get("bias")
        if bias is None:
            return w
        if bias.rank == 1:
            return {**w, "b": self.reordered(bias, 0)}
        H = self.units
        of_x, of_h = (self.reordered(li.reshape(slice_axis(bias, 0, k, k + 1), (3 * H,)), 0) for k in (0, 1))
        both = slice_axis(of_x, 0, 0, 2 * H) + slice_axis(of_h, 0, 0, 2 * H)
        w["b"] = li.concat([both, slice_axis(of_x, 0, 2 * H, 3 * H)])
        return {**w, "b_hn": slice_axis(of_h, 0, 2 * H, 3 * H)}

    def reordered(self, v: Value, axis: int) -> Value:
        """The gate blocks of an axis in the order of the core ops."""
        have, want = CONVENTIONS["keras"].forms[self.kind].gates, ORDERS[self.kind]
        if have == want:
            return v
        H = self.units
        return li.concat([slice_axis(v, axis, have.index(g) * H, (have.index(g) + 1) * H) for g in want], axis)

    # -- one step, as Keras writes it

    def projected(self, x: Value, masks: Masks | None) -> Value:
        """x [...,I] times the kernel, plus the bias of x: [...,G*H]. Masks [B,I] for each gate drop columns."""
        kernel, bias = self.weights["kernel"], self.weights.get("bias")
        if masks is None or len(masks) == 1:
            z = li.matmul(x if masks is None else x * masks[0], kernel)
        else:
            z = li.concat([li.matmul(x * m, self.block(kernel, k)) for k, m in enumerate(masks)], x.rank - 1)
        if bias is None:
            return z
        return z + (bias if bias.rank == 1 else li.reshape(slice_axis(bias, 0, 0, 1), (bias.shape[1],)))

    def block(self, v: Value, k: int) -> Value:
        """Block k of the last axis."""
        return slice_axis(v, v.rank - 1, k * self.units, (k + 1) * self.units)

    def step(self, z: Value, states: tuple[Value, ...], masks: Masks | None) -> tuple[Value, ...]:
        """The states after a step, the output first; z [B,G*H] is what `projected` gives of x."""
        function: Callable[..., tuple[Value, ...]] = getattr(self, f"_{self.kind}")
        return function(z, *states, masks=masks)

    def _functions(self) -> tuple[Any, Any]:
        return FUNCTIONS[self.activations[0]], FUNCTIONS[self.activations[-1]]

    def _recurrent(self, h: Value, masks: Masks | None, k: int | None = None) -> Value:
        """h times the recurrent kernel, or its block k."""
        U = self.weights["recurrent_kernel"]
        if masks is None:
            return li.matmul(h, U if k is None else self.block(U, k))
        if k is not None or len(masks) == 1:
            place = 0 if len(masks) == 1 else k or 0
            return li.matmul(h * masks[place], U if k is None else self.block(U, k))
        return li.concat([li.matmul(h * m, self.block(U, i)) for i, m in enumerate(masks)], h.rank - 1)

    def _lstm(self, z: Value, h: Value, c: Value, masks: Masks | None) -> tuple[Value, ...]:
        new, gate = self._functions()
        z = z + self._recurrent(h, masks)
        i, f, g, o = (self.block(z, k) for k in range(4))
        c = gate(f) * c + gate(i) * new(g)
        return gate(o) * new(c), c

    def _gru(self, z: Value, h: Value, masks: Masks | None) -> tuple[Value, ...]:
        new, gate = self._functions()
        bias = self.weights.get("bias")
        if self.reset_after:
            inner = self._recurrent(h, masks)
            if bias is not None:
                inner = inner + li.reshape(slice_axis(bias, 0, 1, 2), (bias.shape[1],))
            u, r = (gate(self.block(z, k) + self.block(inner, k)) for k in range(2))
            n = new(self.block(z, 2) + r * self.block(inner, 2))
        else:
            u, r = (gate(self.block(z, k) + self._recurrent(h, masks, k)) for k in range(2))
            dropped = h if masks is None else h * masks[min(2, len(masks) - 1)]
            n = new(self.block(z, 2) + li.matmul(r * dropped, self.block(self.weights["recurrent_kernel"], 2)))
        return (u * h + (1.0 - u) * n,)

    def _rnn(self, z: Value, h: Value, masks: Masks | None) -> tuple[Value, ...]:
        new, _ = self._functions()
        return (new(z + self._recurrent(h, masks)),)


def cell(spec: LayerSpec, holding: Holding) -> KerasCell:
    """The cell of a config; RefusedError for one that is not Keras' own, or not known."""
    if not spec.own or spec.kind not in KINDS:
        what = f"{spec.kind} is not known" if spec.own else f"{spec.path} is not one of Keras"
        raise NodeRefusedError(f"the cell {what}")
    kind, config = KINDS[spec.kind], spec.config
    units = config.get("units")
    if isinstance(units, bool) or not isinstance(units, int) or units < 1:
        raise NodeRefusedError(f"units is {units!r:.40}")
    default = "tanh"
    activations: tuple[str, ...] = (name_of(config.get("activation", default)),)
    if kind != "rnn":
        activations += (name_of(config.get("recurrent_activation", "sigmoid")),)
    for word in activations:
        if "softmax" in word:
            raise NodeRefusedError(f"the activation {word} in a cell is not taken")
    weights = dict(holding.weights(spec))
    G = len(ORDERS[kind])
    for name, rank in (("kernel", 2), ("recurrent_kernel", 2)):
        v = weights[name]
        if v.rank != rank or v.shape[1] != G * units or (name == "recurrent_kernel" and v.shape[0] != units):
            raise NodeRefusedError(f"{name} is {v.type}, for {units} units")
    after = bool(config.get("reset_after", kind == "gru")) if kind == "gru" else False
    wanted = (2, G * units) if after else (G * units,)
    if "bias" in weights and weights["bias"].shape != wanted:
        raise NodeRefusedError(f"bias is {weights['bias'].type}, expected [{','.join(map(str, wanted))}]")
    rates = [0.0 if config.get(n) is None else config[n] for n in ("dropout", "recurrent_dropout")]
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
            raise NodeRefusedError(f"a rate of dropout is {rate!r:.40}")
    return KerasCell(kind, units, activations, weights, after, float(rates[0]), float(rates[1]))
