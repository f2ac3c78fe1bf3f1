"""Numbers that PyTorch computes of sizes, as `x / x.shape[1] ** 0.5` has one, as scalars that a call computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.symbols import Symbols
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.size import size_value

_RULES: dict[str, Callable[..., Value]] = {
    "Add": lambda *a: reduce(li.add, a),
    "Mul": lambda *a: reduce(li.multiply, a),
    "FloatPow": li.power,
    "Pow": li.power,
    "PowByNatural": li.power,
    "FloatTrueDiv": li.divide,
    "IntTrueDiv": li.divide,
    "ToFloat": lambda x: x,
    "OpaqueUnaryFn_sqrt": li.sqrt,
    "OpaqueUnaryFn_log": li.log,
    "OpaqueUnaryFn_exp": li.exp,
}


def scalar(e: Any, symbols: Symbols) -> Value:
    """The number, f32[]. RefusedError for what is not arithmetic."""
    if e.is_Integer or e.is_Float or e.is_Rational:
        return li.constant(float(e), "f32")
    if e.is_Symbol:
        return li.convert(size_value(symbols.of(e), DType.i64), DType.f32)
    rule = _RULES.get(type(e).__name__)
    if rule is None:
        raise NodeRefusedError(f"the number {e} of sizes is not taken")
    return rule(*(scalar(a, symbols) for a in e.args))
