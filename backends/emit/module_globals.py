"""Module globals: weights as parameters, and what is computed from them once.

IREE holds neither unsigned nor one-bit elements in a global: these are kept as signed bytes and words.
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.ir.types import DType, TensorType

_HELD = {DType.u8: DType.i8, DType.u32: DType.i32, DType.i1: DType.i8}


def held_type(t: TensorType) -> TensorType:
    """The type of the global that holds a `t`."""
    return t.with_dtype(_HELD.get(t.dtype, t.dtype))


def declare(symbol: str, t: TensorType, parameter: str | None = None) -> None:
    """util.global for a `t`; `parameter` is where its value is found: `"scope"::"key"`."""
    kind = tensor(held_type(t))
    attrs = {
        "sym_name": ir.StringAttr.get(symbol),
        "sym_visibility": ir.StringAttr.get("private"),
        "type": ir.TypeAttr.get(kind),
    }
    if parameter is not None:
        attrs["initial_value"] = ir.Attribute.parse(f"#flow.parameter.named<{parameter}> : {kind}")
    ir.Operation.create("util.global", attributes=attrs)


def load(e: Emitter, symbol: str, t: TensorType) -> ir.Value:
    """The value of a global."""
    kind = held_type(t)
    attrs = {"global": ir.FlatSymbolRefAttr.get(symbol)}
    v = e.make("util.global.load", [], [tensor(kind)], attrs).result
    if t.dtype is DType.i1:
        word = ir.Attribute.parse("#stablehlo<comparison_direction NE>")
        return e.hlo("compare", [v, e.full(0, kind)], t, comparison_direction=word)
    return v if kind == t else e.hlo("bitcast_convert", [v], t)


def store(e: Emitter, symbol: str, v: ir.Value, t: TensorType) -> None:
    """Set a global, inside an initializer."""
    kind = held_type(t)
    if t.dtype is DType.i1:
        v = e.hlo("convert", [v], kind)
    elif kind != t:
        v = e.hlo("bitcast_convert", [v], kind)
    e.make("util.global.store", [v], [], {"global": ir.FlatSymbolRefAttr.get(symbol)})
