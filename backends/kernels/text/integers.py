"""Elementwise ops of integers as arith text; StableHLO's open cases are those of `ops/primitive/elementwise_ops.py`."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.ir.types import DType

_PLAIN = {
    "add": "addi", "subtract": "subi", "multiply": "muli", "and": "andi", "or": "ori", "xor": "xori",
}  # fmt: skip
_SHIFTS = {"shift_left": "shli", "shift_right_logical": "shrui", "shift_right_arithmetic": "shrsi"}


def order(direction: str, dtype: DType) -> str:
    """The word of a comparison."""
    word = direction.lower()
    return word if word in ("eq", "ne") else ("s" if dtype.is_signed else "u") + word


def emit(t: Text, op: str, args: Sequence[TextOperand], dtype: DType, kind: str, wide: bool) -> TextOperand | None:
    """The op on integers or booleans; None for one that there is not."""
    if dtype is DType.i1:
        if op in ("and", "or", "xor"):
            return t.binary(_PLAIN[op], args[0], args[1], kind)
        return t.binary("xori", args[0], t.number(1, dtype, wide), kind) if op == "not" else None
    return Integers(t, dtype, kind, wide).emit(op, args)


class Integers:
    """Ops of one integer type, on vectors or on single elements."""

    def __init__(self, t: Text, dtype: DType, kind: str, wide: bool) -> None:
        self.t, self.dtype, self.kind, self.wide = t, dtype, kind, wide
        self.sign = "s" if dtype.is_signed else "u"
        self._mask = t.vector("i1") if wide else "i1"

    def emit(self, op: str, args: Sequence[TextOperand]) -> TextOperand | None:
        """The op; None for one that there is not."""
        if op in _PLAIN:
            return self._two(_PLAIN[op], *args)
        if op in _SHIFTS:
            return self._shift(_SHIFTS[op], *args)
        match op:
            case "maximum" | "minimum":
                return self._extreme(op[:3], *args)
            case "clamp":
                return self._extreme("min", self._extreme("max", args[0], args[1]), args[2])
            case "not":
                return self._two("xori", args[0], self._number((1 << self.dtype.bits) - 1))
            case "negate":
                return self._two("subi", self._number(0), args[0])
            case "abs":
                return (
                    self._extreme("max", args[0], self._two("subi", self._number(0), args[0]))
                    if self.signed
                    else args[0]
                )
            case "sign":
                low = self._extreme("max", args[0], self._number(-1)) if self.signed else args[0]
                return self._extreme("min", low, self._number(1))
            case "divide":
                return self._divide(*args)
            case "remainder":
                return self._remainder(*args)
        return None

    @property
    def signed(self) -> bool:
        """Whether the type has a sign."""
        return self.dtype.is_signed

    def _two(self, word: str, a: TextOperand, b: TextOperand) -> TextOperand:
        return self.t.binary(word, a, b, self.kind)

    def _extreme(self, word: str, a: TextOperand, b: TextOperand) -> TextOperand:
        return self._two(f"{word}{self.sign}i", a, b)

    def _number(self, n: int) -> TextOperand:
        """A number, by its bits."""
        bits = self.dtype.bits
        held = n % (1 << bits)
        return self.t.number(held - (1 << bits) if self.signed and held >> (bits - 1) else held, self.dtype, self.wide)

    def _is(self, a: TextOperand, n: int) -> TextOperand:
        return self.t.compare("eq", a, self._number(n), self.kind)

    def _pick(self, flag: TextOperand, a: TextOperand, b: TextOperand) -> TextOperand:
        return self.t.op("arith.select {}, {}, {} : {}, {}", flag, a, b, self._mask, self.kind)

    def _divide(self, a: TextOperand, b: TextOperand) -> TextOperand:
        """x / 0 has all bits set, MIN / -1 is MIN: a processor traps on both."""
        zero = self._is(b, 0)
        return self._pick(zero, self._number(-1), self._quotient(a, b, zero))

    def _remainder(self, a: TextOperand, b: TextOperand) -> TextOperand:
        """x % 0 is x."""
        zero = self._is(b, 0)
        return self._pick(zero, a, self._two("subi", a, self._two("muli", self._quotient(a, b, zero), b)))

    def _quotient(self, a: TextOperand, b: TextOperand, zero: TextOperand) -> TextOperand:
        """a / b where b is not 0."""
        one = self._number(1)
        if not self.signed:
            return self._two("divui", a, self._pick(zero, one, b))
        minus = self._is(b, -1)
        out = self._two("divsi", a, self._pick(self.t.binary("ori", zero, minus, self._mask), one, b))
        return self._pick(minus, self._two("subi", self._number(0), a), out)

    def _shift(self, word: str, a: TextOperand, by: TextOperand) -> TextOperand:
        """A count outside 0 .. bits-1 gives 0, or the sign repeated."""
        last = self._number(self.dtype.bits - 1)
        inside = self.t.compare("ule", by, last, self.kind)
        if word == "shrsi":
            return self._two(word, a, self._pick(inside, by, last))
        out = self._two(word, a, self._pick(inside, by, self._number(0)))
        return self._pick(inside, out, self._number(0))


REDUCED = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min"}


def reduction(kind: str, dtype: DType) -> tuple[str, int, str]:
    """(arith op, the number that it begins with, the word across lanes) of a reduction of integers."""
    word = REDUCED[kind]
    if word == "add":
        return "addi", 0, "add"
    bits, sign = dtype.bits, "s" if dtype.is_signed else "u"
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)
    return f"{word}{sign}i", least if word == "max" else most, f"{word}{sign}i"
