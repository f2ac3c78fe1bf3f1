"""Arithmetic on tensors of one type, for rules that are formulas."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.builder import Builder
from lstm_ir.ir.types import DType, TensorType


class Calc:
    """Elementwise ops over values of type `t`; a number stands for a tensor of that number."""

    def __init__(self, e: Builder, t: TensorType) -> None:
        self.e, self.t = e, t
        self.logical = t.with_dtype(DType.i1)

    def value(self, x: ir.Value | float) -> ir.Value:
        """The operand itself, or the number repeated."""
        return x if isinstance(x, ir.Value) else self.e.full(x, self.t)

    def op(self, name: str, *xs: ir.Value | float) -> ir.Value:
        """stablehlo.`name` with a result of type `t`."""
        return self.e.hlo(name, [self.value(x) for x in xs], self.t)

    def add(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        """a + b."""
        return self.op("add", a, b)

    def sub(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        """a - b."""
        return self.op("subtract", a, b)

    def mul(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        """a b."""
        return self.op("multiply", a, b)

    def div(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        """a / b."""
        return self.op("divide", a, b)

    def polynomial(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """The polynomial in x by Horner's rule, highest power first."""
        out = self.value(coefficients[0])
        for c in coefficients[1:]:
            out = self.add(self.mul(out, x), c)
        return out

    def compare(self, direction: str, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        """a EQ|NE|LT|LE|GT|GE b."""
        return compare(self.e, direction, self.value(a), self.value(b), self.logical)

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a and b, booleans."""
        return self.e.hlo("and", [a, b], self.logical)

    def either(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a or b, booleans."""
        return self.e.hlo("or", [a, b], self.logical)

    def pick(self, p: ir.Value, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        """a where p, else b."""
        return self.op("select", p, a, b)


def compare(e: Builder, direction: str, a: ir.Value, b: ir.Value, result: TensorType) -> ir.Value:
    """stablehlo.compare."""
    word = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")
    return e.hlo("compare", [a, b], result, comparison_direction=word)
