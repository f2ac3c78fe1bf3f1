"""Products that round before anything is added to them.

The backends of LLVM contract `a * b + c` to an FMA where the product has one reader, whatever flags
the ops have. `a * b + z` with a z that is -0.0, and that the compiler cannot see, may be contracted:
its result is the rounded product either way, and to that nothing more is contracted. It costs no
operation where there are FMAs, and one more tensor of a dispatch.
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.builder import Builder
from lstm_ir.backends.emit.unseen import unseen
from lstm_ir.ir.types import TensorType

# What IREE writes with a product at its end.
_PRODUCTS = {
    "multiply", "exponential", "exponential_minus_one", "log", "log_plus_one", "rsqrt", "sine",
    "cosine", "dot_general",
}  # fmt: skip


def rounded(e: Builder, name: str, v: ir.Value, t: TensorType) -> ir.Value:
    """`v`, the result of stablehlo.`name`, with the same bits for all that read it."""
    if not t.dtype.is_float:
        return v
    if t.dtype.bits == 16:  # IREE widens again what was not rounded yet
        return e.opaque(v, t) if name == "convert" else v
    if name not in _PRODUCTS:
        return v
    return e.op("stablehlo.add", [v, unseen(e, -0.0, t)], t)
