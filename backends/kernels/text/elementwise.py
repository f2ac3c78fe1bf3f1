"""Elementwise ops as arith and math text, on scalars or vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from lstm_ir.backends.emit import formulas
from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.text import integers
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import ZERO, Text, scalar_type
from lstm_ir.ir.types import DType

_FLOAT = {
    "add": "arith.addf", "subtract": "arith.subf", "multiply": "arith.mulf", "divide": "arith.divf",
    "maximum": "arith.maximumf", "minimum": "arith.minimumf",
}  # fmt: skip
_UNARY = {
    "negate": "arith.negf", "abs": "math.absf", "floor": "math.floor", "ceil": "math.ceil",
    "round_nearest_even": "math.roundeven", "exponential": "math.exp", "sqrt": "math.sqrt",
    "rsqrt": "math.rsqrt", "log": "math.log", "log_plus_one": "math.log1p",
    "exponential_minus_one": "math.expm1",
}  # fmt: skip
_F32_ONLY = {"erf": "math.erf", "sine": "math.sin", "cosine": "math.cos"}
# Ops that end in a product, or may: LLVM makes an FMA of a product and a sum where nothing forbids it.
_PRODUCTS = {
    "multiply", "exponential", "exponential_minus_one", "log", "log_plus_one", "rsqrt", "tanh", "atan2",
    *_F32_ONLY,
}  # fmt: skip
_F64_FORMULAS = {"exponential_minus_one": formulas.expm1, "log_plus_one": formulas.log1p}
_GPU_FORMULAS = {"exponential_minus_one": formulas.expm1_single, "log_plus_one": formulas.log1p_single}
_ORDERED = {"EQ": "oeq", "NE": "une", "LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge"}
_SELECT = "arith.select {}, {}, {} : {}, {}"


class Ops:
    """Writes one elementwise op; `wide` says whether operands are vectors.

    rounds: products round before something is added to them, so that all copies of a value have
    the same bits (`decisions.py`).
    """

    def __init__(self, text: Text, rounds: bool = False) -> None:
        self.t, self.rounds = text, rounds

    def kind(self, dtype: DType, wide: bool) -> str:
        """The MLIR type."""
        return self.t.vector(scalar_type(dtype)) if wide else scalar_type(dtype)

    def emit(self, a: Atom, args: Sequence[TextOperand], wide: bool) -> TextOperand:
        """The op of atom `a` on operands of equal width."""
        v = self._emit(a, args, wide)
        return self._rounded(v, a.dtype, wide) if self.rounds and a.op in _PRODUCTS else v

    def _rounded(self, v: TextOperand, dtype: DType, wide: bool) -> TextOperand:
        """`v`, with which nothing is contracted. On GPUs 0 is subtracted, which drivers cannot see."""
        t, kind = self.t, self.kind(dtype, wide)
        if not dtype.is_float:
            return v
        if t.lanes:
            return t.op('llvm.call_intrinsic "llvm.arithmetic.fence"({}) : ({}) -> {}', v, kind, kind)
        zero = t.op("arith.index_cast {} : index to i32", ZERO)
        return t.binary("subf", v, t.op("arith.sitofp {} : i32 to {}", zero, kind), kind)

    def _emit(self, a: Atom, args: Sequence[TextOperand], wide: bool) -> TextOperand:
        dtype, kind = a.args[0].dtype, self.kind(a.args[0].dtype, wide)
        if a.op == "compare":
            assert a.node is not None
            way = a.node.attrs["direction"]
            if dtype.is_float:
                held, kind = self._in_f32(args, dtype, wide)
                return self.t.op("arith.cmpf {}, {} : {}", _ORDERED[way], held, kind)
            return self.t.compare(integers.order(way, dtype), args[0], args[1], kind)
        if a.op == "select":
            chosen = self.kind(a.dtype, wide)
            return self.t.op("arith.select {} : {}, {}", args, self.kind(DType.i1, wide), chosen)
        if a.op == "convert":
            return self.convert(args[0], dtype, a.dtype, wide)
        if a.op == "bitcast_convert":
            to = self.kind(a.dtype, wide)
            return args[0] if to == kind else self.t.op("arith.bitcast {} : {} to {}", args[0], kind, to)
        if dtype.is_float and dtype.bits < 32:
            held, kind = self._in_f32(args, dtype, wide)
            out = self._float(a, held, DType.f32, kind, wide)
            return out if a.dtype is DType.i1 else self.convert(out, DType.f32, dtype, wide)
        if dtype.is_float:
            return self._float(a, args, dtype, kind, wide)
        made = integers.emit(self.t, a.op, args, dtype, kind, wide)
        if made is None:
            raise RefusedError(f"{a.op} of {dtype} in a kernel", _value(a), instead.OUTSIDE)
        return made

    def _in_f32(self, args: Sequence[TextOperand], dtype: DType, wide: bool) -> tuple[list[TextOperand], str]:
        """Two-byte floats widened: an op computes in f32, and rounds once."""
        if dtype.bits >= 32:
            return list(args), self.kind(dtype, wide)
        return [self.convert(x, dtype, DType.f32, wide) for x in args], self.kind(DType.f32, wide)

    def _float(self, a: Atom, args: Sequence[TextOperand], dtype: DType, kind: str, wide: bool) -> TextOperand:
        t = self.t
        if a.op in _FLOAT:
            return t.op("{} {}, {} : {}", _FLOAT[a.op], args[0], args[1], kind)
        if a.op == "ceil" and dtype is DType.f64:  # none links for baseline x86-64
            below = t.op("math.floor {} : {}", t.op("arith.negf {} : {}", args[0], kind), kind)
            return t.op("arith.negf {} : {}", below, kind)
        if dtype is DType.f64 and a.op in _F64_FORMULAS:
            return _F64_FORMULAS[a.op](KernelCalc(self, dtype, wide), args[0])
        if not t.lanes and a.op in _GPU_FORMULAS:  # SPIR-V has no such function; all GPUs take one text
            return _GPU_FORMULAS[a.op](KernelCalc(self, dtype, wide), args[0])
        if a.op == "atan2":
            return formulas.angle(KernelCalc(self, dtype, wide), args[0], args[1], double=dtype is DType.f64)
        if a.op in ("sine", "cosine") and (dtype is DType.f64 or t.lanes):
            return self._wave(args[0], dtype, wide, a.op == "cosine")
        if a.op in _UNARY:
            return t.op("{} {} : {}", _UNARY[a.op], args[0], kind)
        if a.op in _F32_ONLY and dtype is DType.f32:
            out = t.op("{} {} : {}", _F32_ONLY[a.op], args[0], kind)
            # IREE's function gives 0 at -0
            return t.op("math.copysign {}, {} : {}", out, args[0], kind) if a.op == "erf" else out
        if a.op == "clamp":
            low = t.op("arith.maximumf {}, {} : {}", args[0], args[1], kind)
            return t.op("arith.minimumf {}, {} : {}", low, args[2], kind)
        special: dict[str, Callable[[TextOperand, DType, str, bool], TextOperand]] = {
            "tanh": self._tanh, "logistic": self._logistic,
            "sign": self._sign, "is_finite": self._finite,
        }  # fmt: skip
        if a.op in special:
            return special[a.op](args[0], dtype, kind, wide)
        raise RefusedError(f"{a.op} of {dtype} in a kernel", _value(a), instead.of_arithmetic(a.op))

    def _tanh(self, x: TextOperand, dtype: DType, kind: str, wide: bool) -> TextOperand:
        if dtype is DType.f32:
            return self.t.op("math.tanh {} : {}", x, kind)
        return formulas.tanh64(KernelCalc(self, dtype, wide), x)  # none links for f64

    def _wave(self, x: TextOperand, dtype: DType, wide: bool, cosine: bool) -> TextOperand:
        """In f64: IREE's f32 functions err by 1e-5 at 355, and give infinities at 1e15."""
        inside = self.convert(x, dtype, DType.f64, wide)
        out = formulas.wave(KernelCalc(self, DType.f64, wide), inside, cosine, double=True)
        return self.convert(out, DType.f64, dtype, wide)

    def _logistic(self, x: TextOperand, dtype: DType, kind: str, wide: bool) -> TextOperand:
        t = self.t
        one = t.number(1.0, dtype, wide)
        e = t.op("math.exp {} : {}", t.op("arith.negf {} : {}", x, kind), kind)
        return t.binary("divf", one, t.binary("addf", one, e, kind), kind)

    def _sign(self, x: TextOperand, dtype: DType, kind: str, wide: bool) -> TextOperand:
        t = self.t
        mask = self.kind(DType.i1, wide)
        zero, one = t.number(0.0, dtype, wide), t.number(1.0, dtype, wide)
        unit = t.op("math.copysign {}, {} : {}", one, x, kind)
        plain = t.op("arith.cmpf une, {}, {} : {}", x, zero, kind)
        signed = t.op("arith.select {}, {}, {} : {}, {}", plain, unit, x, mask, kind)
        nan = t.op("arith.cmpf uno, {}, {} : {}", x, x, kind)
        return t.op("arith.select {}, {}, {} : {}, {}", nan, x, signed, mask, kind)

    def _finite(self, x: TextOperand, dtype: DType, kind: str, wide: bool) -> TextOperand:
        t = self.t
        size = t.op("math.absf {} : {}", x, kind)
        return t.op("arith.cmpf olt, {}, {} : {}", size, t.number(math.inf, dtype, wide), kind)

    def convert(self, x: TextOperand, old: DType, new: DType, wide: bool) -> TextOperand:
        """`x` as another element type."""
        t = self.t
        a, b = self.kind(old, wide), self.kind(new, wide)
        if old is new:
            return x
        if new is DType.i1:
            zero = t.number(0, old, wide)
            way = "cmpf une" if old.is_float else "cmpi ne"
            test = f"arith.{way}, {{}}, {{}} : {{}}"
            return t.op(test, x, zero, a)
        if new.is_float and new.bits < 32 and old is not DType.f32 and (old.is_float or old.bits > 8):
            if old is DType.f64 and new is DType.f16:
                x, old = self._odd(x, wide), DType.f32
            else:
                x, old = self.convert(x, old, DType.f32, wide), DType.f32
            a = self.kind(old, wide)
        if new is DType.bf16 and old is DType.f32:
            return self._to_bf16(x, wide)
        if old.is_float and new.is_float:
            return t.op("arith.{} {} : {} to {}", "extf" if new.bits > old.bits else "truncf", x, a, b)
        if old.is_float:
            (held,), _ = self._in_f32([x], old, wide)
            return self._to_integer(held, DType.f32 if old.bits < 32 else old, new, wide)
        if new.is_float:
            return t.op("arith.{} {} : {} to {}", "sitofp" if old.is_signed else "uitofp", x, a, b)
        if new.bits == old.bits:
            return x
        way = "trunci" if new.bits < old.bits else "extsi" if old.is_signed else "extui"
        return t.op("arith.{} {} : {} to {}", way, x, a, b)

    def _to_integer(self, x: TextOperand, old: DType, new: DType, wide: bool) -> TextOperand:
        """Cut off towards 0, at the ends of `new` where it is beyond them; NaN is 0."""
        t, kind, mask = self.t, self.kind(old, wide), self.kind(DType.i1, wide)
        end = 1 << (new.bits - new.is_signed)
        plain = t.op("arith.cmpf ord, {}, {} : {}", x, x, kind)
        x = t.op(_SELECT, plain, x, t.number(0.0, old, wide), mask, kind)
        low = t.op("arith.maximumf {}, {} : {}", x, t.number(float(-end if new.is_signed else 0), old, wide), kind)
        below = t.op("arith.cmpf olt, {}, {} : {}", low, t.number(float(end), old, wide), kind)
        inside = t.op(_SELECT, below, low, t.number(0.0, old, wide), mask, kind)
        held = new if new.bits >= 32 else DType.i32
        whole = self.kind(held, wide)
        way = "fptosi" if held.is_signed else "fptoui"
        out = t.op("arith.{} {} : {} to {}", way, inside, kind, whole)
        out = t.op(_SELECT, below, out, t.number(end - 1, held, wide), mask, whole)
        return out if held is new else t.op("arith.trunci {} : {} to {}", out, whole, self.kind(new, wide))

    def _to_bf16(self, x: TextOperand, wide: bool) -> TextOperand:
        """f32 as bf16, rounded to nearest and even before the truncation, which IREE drops where the
        kernel widens its result again: it does arithmetic in bf16 in f32."""
        t, kind, whole = self.t, self.kind(DType.f32, wide), self.kind(DType.i32, wide)

        def number(n: int) -> TextOperand:
            return t.number(n, DType.i32, wide)

        bits = t.op("arith.bitcast {} : {} to {}", x, kind, whole)
        last = t.binary("shrui", bits, number(16), whole)
        half = t.binary("addi", t.binary("andi", last, number(1), whole), number(0x7FFF), whole)
        cut = t.binary("andi", t.binary("addi", bits, half, whole), number(-(1 << 16)), whole)
        rounded = t.op("arith.bitcast {} : {} to {}", cut, whole, kind)
        nan = t.op("arith.cmpf uno, {}, {} : {}", x, x, kind)
        kept = t.op(_SELECT, nan, x, rounded, self.kind(DType.i1, wide), kind)
        return t.op("arith.truncf {} : {} to {}", kept, kind, self.kind(DType.bf16, wide))

    def _odd(self, x: TextOperand, wide: bool) -> TextOperand:
        """f64 as f32, cut off, with the last bit set where bits are lost: the next rounding is right."""
        t, kind, whole = self.t, self.kind(DType.f64, wide), self.kind(DType.i64, wide)
        low = t.number((1 << 29) - 1, DType.i64, wide)
        bits = t.op("arith.bitcast {} : {} to {}", x, kind, whole)
        lost = t.binary("addi", t.binary("andi", bits, low, whole), low, whole)
        cut = t.binary("andi", t.binary("ori", bits, lost, whole), t.number(-(1 << 29), DType.i64, wide), whole)
        odd = t.op("arith.bitcast {} : {} to {}", cut, whole, kind)
        return t.op("arith.truncf {} : {} to {}", odd, kind, self.kind(DType.f32, wide))


Number: TypeAlias = "TextOperand | float"


class KernelCalc:
    """Elementwise ops over floats of one type, for formulas; a number stands for its constant."""

    def __init__(self, ops: Ops, dtype: DType, wide: bool) -> None:
        self.ops, self.dtype, self.wide = ops, dtype, wide
        self.kind, self.mask = ops.kind(dtype, wide), ops.kind(DType.i1, wide)

    def _value(self, x: Number) -> TextOperand:
        return x if isinstance(x, TextOperand) else self.ops.t.number(x, self.dtype, self.wide)

    def op(self, name: str, *xs: Number) -> TextOperand:
        """An op by StableHLO's name."""
        values = [self._value(x) for x in xs]
        if name == "sign":
            return self.ops._sign(values[0], self.dtype, self.kind, self.wide)
        return self.ops.t.op("{} {} : {}", (_FLOAT | _UNARY)[name], values, self.kind)

    def add(self, a: Number, b: Number) -> TextOperand:
        """a + b."""
        return self.op("add", a, b)

    def sub(self, a: Number, b: Number) -> TextOperand:
        """a - b."""
        return self.op("subtract", a, b)

    def mul(self, a: Number, b: Number) -> TextOperand:
        """a b."""
        return self.op("multiply", a, b)

    def div(self, a: Number, b: Number) -> TextOperand:
        """a / b."""
        return self.op("divide", a, b)

    def polynomial(self, x: TextOperand, coefficients: Sequence[float]) -> TextOperand:
        """The polynomial in x by Horner's rule, highest power first."""
        out = self._value(coefficients[0])
        for c in coefficients[1:]:
            out = self.add(self.mul(out, x), c)
        return out

    def compare(self, direction: str, a: Number, b: Number) -> TextOperand:
        """a EQ|NE|LT|LE|GT|GE b."""
        way = f"arith.cmpf {_ORDERED[direction]}, {{}}, {{}} : {{}}"
        return self.ops.t.op(way, self._value(a), self._value(b), self.kind)

    def either(self, a: TextOperand, b: TextOperand) -> TextOperand:
        """a or b, booleans."""
        return self.ops.t.binary("ori", a, b, self.mask)

    def pick(self, p: TextOperand, a: Number, b: Number) -> TextOperand:
        """a where p, else b."""
        return self.ops.t.op(_SELECT, p, self._value(a), self._value(b), self.mask, self.kind)


def _value(a: Atom):  # type: ignore[no-untyped-def]
    return None if a.node is None else a.node.values[0]
