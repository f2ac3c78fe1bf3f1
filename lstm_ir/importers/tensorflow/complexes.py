"""What an op does to complex operands: arithmetic by its rule, moves and linear ops part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lstm_ir.importers import complex_numbers as cn
from lstm_ir.importers.complex_numbers import Complex
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import OpRule

ARITHMETIC: dict[str, Callable[..., Complex]] = {
    "Add": cn.add, "AddV2": cn.add, "Sub": cn.subtract, "Mul": cn.multiply, "RealDiv": cn.divide, "Div": cn.divide,
    "Exp": cn.exp, "Neg": lambda z: z.each(lambda x: -x), "Square": lambda z: cn.multiply(z, z),
    "AddN": lambda *terms: cn.total(terms),
}  # fmt: skip
LINEAR = ("Sum", "Mean", "ZerosLike", "Concat", "ConcatV2", "Pad")


def on_complex(entry: OpRule, call: Call, operands: Sequence[Any]) -> list[Any] | None:
    """The results of an op some operand of which is complex; None where none is, and where the op says itself."""
    if entry.complex or not any(isinstance(v, Complex) for v in operands):
        return None
    rule = ARITHMETIC.get(call.name)
    if rule is not None:
        if not all(isinstance(v, Complex) for v in operands):
            raise NodeRefusedError("it has complex and real operands")
        return [rule(*operands)]
    if not entry.moves and call.name not in LINEAR:
        raise NodeRefusedError("complex numbers are not taken by it")
    real, imag = (_built(entry, call, [_part(v, part) for v in operands]) for part in ("real", "imag"))
    return [Complex(a, b) for a, b in zip(real, imag, strict=True)]


def _part(v: Any, part: str) -> Any:
    return getattr(v, part) if isinstance(v, Complex) else v


def _built(entry: OpRule, call: Call, operands: Sequence[Any]) -> list[Any]:
    moved = call.with_inputs(operands)
    made: Any = entry.build(moved)
    moved.check_all_read()
    return list(made) if isinstance(made, (list, tuple)) else [made]
