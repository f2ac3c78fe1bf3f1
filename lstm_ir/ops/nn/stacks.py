"""Stacks of recurrent layers: each reads what the one below gives, with dropout between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lstm_ir.ir import options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.no_operand import several
from lstm_ir.ir.types import DType
from lstm_ir.ops.core.gru import gru
from lstm_ir.ops.core.layer_words import LAYER
from lstm_ir.ops.core.lstm import lstm
from lstm_ir.ops.nn.dropout import dropout as drop
from lstm_ir.ops.nn.threefry import fold_in
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.shape import concat
from lstm_ir.ops.primitive.window import slice_axis

Layer = Mapping[str, Any]
DIRECTIONS = ("forward", "reverse", "bidirectional")


@several
class LSTMStack(NamedTuple):
    """Results of `lstm_stack`: y of the last layer, last states of all."""

    y: Value
    h_n: Value
    c_n: Value


@several
class GRUStack(NamedTuple):
    """Results of `gru_stack`: y of the last layer, last states of all."""

    y: Value
    h_n: Value


def lstm_stack(
    x: Any, layers: Sequence[Layer], h0: Any = None, c0: Any = None, *, direction: str = "forward",
    lengths: Any = None, dropout: float = 0.0, key: Any = None, training: bool = True, layout: str = "time",
) -> LSTMStack:  # fmt: skip
    """LSTM layers one above the other: y [T,B,D*P] of the last, h_n [L*D,B,P] and c_n [L*D,B,H] of all L.

    layers: of each a mapping with operands of `lstm`: w_ih [D,4H,I], w_hh, and, if wanted, b, w_hr, peephole; I is D*P
    above the first. h0 [L*D,B,P] and c0 [L*D,B,H]: those of the first layer first, as PyTorch orders them. direction,
    lengths and layout are those of `lstm`. dropout: the share of y that is dropped between layers, by `key` u32[2] of
    `random_key`, in training.
    """
    names = ("w_ih", "w_hh", "b", "w_hr", "peephole")
    y, states = stacked("lstm_stack", lstm, names, x, layers, {"h0": h0, "c0": c0}, direction, lengths, dropout, key,
                       training, layout)  # fmt: skip
    return LSTMStack(y, *states)


def gru_stack(
    x: Any, layers: Sequence[Layer], h0: Any = None, *, direction: str = "forward",
    lengths: Any = None, dropout: float = 0.0, key: Any = None, training: bool = True, layout: str = "time",
) -> GRUStack:  # fmt: skip
    """GRU layers one above the other: y [T,B,D*H] of the last, h_n [L*D,B,H] of all L.

    layers: of each a mapping with operands of `gru`: w_ih [D,3H,I], w_hh, and, if wanted, b and b_hn. The others as
    in `lstm_stack`.
    """
    names = ("w_ih", "w_hh", "b", "b_hn")
    y, states = stacked("gru_stack", gru, names, x, layers, {"h0": h0}, direction, lengths, dropout, key, training,
                       layout)  # fmt: skip
    return GRUStack(y, *states)


def stacked(
    op: str, layer: Callable[..., Any], names: Sequence[str], x: Any, layers: Any, states: dict[str, Any],
    direction: str, lengths: Any, rate: float, key: Any, training: bool, layout: str,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """y of the last layer and last states of all, of any `layer` that takes x, the operands `names` and `states`."""
    (y,) = as_values(op, x)
    if not isinstance(layers, (list, tuple)) or not layers:
        raise options.refuse(op, "layers", layers, "a list of mappings, one for each layer")
    sides = 2 if options.choice(op, "direction", direction, DIRECTIONS) == "bidirectional" else 1
    share = options.real(op, "dropout", rate)
    if not 0 <= share < 1:
        raise options.refuse(op, "dropout", rate, "a number in [0, 1)")
    keyed = None
    if share and len(layers) > 1:
        if key is None:
            raise options.refuse(op, "key", key, "a key of random_key, since dropout is not 0")
        keyed = key if isinstance(key, Value) else constant(key)
    firsts = {n: _states(op, n, v, y, len(layers) * sides) for n, v in states.items()}
    last: list[list[Value]] = []
    for i, given in enumerate(layers):
        _check(op, i, given, names)
        if i and keyed is not None:
            y = drop(y, share, fold_in(keyed, constant(i, DType.i64)), training=training)
        begin = {n: None if v is None else slice_axis(v, 0, i * sides, (i + 1) * sides) for n, v in firsts.items()}
        y, *ends = layer(y, **given, **begin, lengths=lengths, direction=direction, layout=layout)
        last.append(ends)
    return y, [concat(of) for of in zip(*last, strict=True)]


def _states(op: str, name: str, v: Any, x: Value, count: int) -> Value | None:
    if v is None:
        return None
    _, s = as_values(op, x, v)
    if s.rank != 3 or s.shape[0] != count:
        problem = f"{name} is {s.type}; its first axis counts layers times directions, {count}"
        raise IRError(message(op, problem, (), here()))
    return s


def _check(op: str, number: int, weights: Any, names: Sequence[str]) -> None:
    if not isinstance(weights, Mapping):
        raise options.refuse(op, f"layer {number}", weights, "a mapping with w_ih and w_hh")
    unknown = sorted(map(str, set(weights) - set(names)))
    if unknown:
        meant = LAYER.get(unknown[0], f"one of {', '.join(names)}")
        raise options.refuse(op, f"a name of layer {number}", unknown[0], meant)
    if missing := [name for name in ("w_ih", "w_hh") if name not in weights]:
        raise options.refuse(op, f"layer {number}", list(weights), f"{' and '.join(missing)} too")
