"""What the builders of `lstm`, `gru` and `rnn` share: literals, and the direction axis that may be
left out."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir import options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.no_operand import refuse_what_is_none
from lstm_ir.ir.opdef import Op
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.elementwise import convert
from lstm_ir.ops.primitive.shape import expand_dims
from lstm_ir.ops.primitive.size import in_range

RANKS = {
    "w_ih": 3, "w_hh": 3, "w_hr": 3, "b": 2, "b_hn": 2, "peephole": 2, "h0": 3, "c0": 3,
    "recurrent_mask": 3, "d_h_n": 3, "d_c_n": 3, "scale_x": 2, "scale_h": 2, "scale_c": 2, "bias_c": 2,
}  # fmt: skip
"""Ranks with the direction axis, of the operands that have one."""


def layer_node(op: Op, operands: tuple[Any, ...], **attrs: Any) -> Node:
    """The node of `op` over values, arrays and numbers."""
    for name in attrs.keys() & {"direction", "layout"}:
        options.text(op.name, name, attrs[name])
    lead = next((v.dtype for v in operands if isinstance(v, Value) and v.dtype.is_float), None)
    args = tuple(
        _operand(op, spec.name, v, lead, attrs["direction"]) for spec, v in zip(op.operands, operands, strict=True)
    )
    x = args[0]
    if x is not None and x.rank == 3:
        steps = x.shape[1 if attrs.get("layout") == "batch" else 0]
        args = tuple(
            _narrowed(v, steps) if spec.name == "lengths" else v for spec, v in zip(op.operands, args, strict=True)
        )
    return make(op, *args, **attrs)


def _narrowed(lengths: Value | None, steps: Dim) -> Value | None:
    """Lengths as i32; those of i64 are checked before they lose bits."""
    if lengths is None or lengths.dtype is not DType.i64:
        return lengths
    return convert(in_range(lengths, 0, steps), DType.i32)


def _operand(op: Op, name: str, argument: Any, lead: DType | None, direction: str) -> Value | None:
    if argument is None:
        return None
    integer = name in ("lengths", "count")
    if isinstance(argument, Value):
        v = argument
    else:
        refuse_what_is_none(op.name, argument)
        narrow = DType.i32 if integer else lead
        v = constant(argument) if hasattr(argument, "dtype") and not integer else constant(argument, narrow)
    rank = RANKS.get(name)
    if rank is not None and v.rank == rank - 1 and direction != "bidirectional":
        v = expand_dims(v, 0)
    return v
