"""MLIR text with fresh names; constants go to the function's head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lstm_ir.ir.types import DType

_SCALAR = {
    DType.f16: "f16", DType.bf16: "bf16", DType.f32: "f32", DType.f64: "f64", DType.i8: "i8",
    DType.i32: "i32", DType.i64: "i64", DType.i1: "i1",
}  # fmt: skip

ZERO = "%zero"  # of GPU kernels: an index that is 0, which the compiler must not know


def scalar_type(dtype: DType) -> str:
    """The MLIR type of one element."""
    return _SCALAR[dtype]


def known(dtype: DType) -> bool:
    """Whether kernels compute with it."""
    return dtype in _SCALAR


def stored_type(dtype: DType) -> str:
    """The MLIR type of one element in memory: booleans are bytes."""
    return "i8" if dtype is DType.i1 else _SCALAR[dtype]


class Text:
    """One function's lines. Without lanes, what would be a vector is one element."""

    def __init__(self, lanes: int, prefix: str = "%v") -> None:
        self.lanes, self._prefix = lanes, prefix
        self.buffers: list[str] = []  # declarations of buffers
        self.lines: list[str] = []
        self._depth = 3
        self._n = 0
        self.constants: dict[tuple[str, str], str] = {}  # names by literal and type

    @property
    def head(self) -> list[str]:
        """What stands before the lines."""
        return [*(f"      {v} = arith.constant {_typed(*k)}" for k, v in self.constants.items()),
                *self.buffers]  # fmt: skip

    def fresh(self) -> str:
        """A new name."""
        self._n += 1
        return f"{self._prefix}{self._n}"

    def vector(self, element: str) -> str:
        """The vector type of full width."""
        return f"vector<{self.lanes}x{element}>" if self.lanes else element

    def line(self, text: str) -> None:
        """A statement."""
        self.lines.append("  " * self._depth + text)

    def op(self, text: str) -> str:
        """A statement with one result; gives its name."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def index(self, n: int) -> str:
        """A constant index."""
        return self.constant(str(n), "index")

    def constant(self, literal: str, kind: str) -> str:
        """A constant at the head."""
        key = literal, kind
        if key not in self.constants:
            self.constants[key] = f"%c{len(self.constants)}"
        return self.constants[key]

    def number(self, value: float, dtype: DType, wide: bool) -> str:
        """A constant scalar or vector of numbers."""
        kind = scalar_type(dtype)
        return self.constant(literal(value, dtype), self.vector(kind) if wide else kind)

    def stack(self, kind: str) -> str:
        """A buffer on the stack, made once at the head."""
        name = self.fresh()
        attrs = "alignment = 64 : i64, operandSegmentSizes = array<i32: 0, 0>"
        self.buffers.append(f'      {name} = "memref.alloca"() <{{{attrs}}}> : () -> {kind}')
        return name

    def binary(self, op: str, a: str, b: str, kind: str = "index") -> str:
        """arith op of two values of one type."""
        return self.op(f"arith.{op} {a}, {b} : {kind}")

    def add(self, a: str, n: int) -> str:
        """index + constant."""
        return a if n == 0 else self.binary("addi", a, self.index(n))

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        """Lines in braces."""
        self.line(opening + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(closing)

    @contextmanager
    def loop(self, low: str, high: str, by: str) -> Iterator[str]:
        """scf.for without results; gives the index."""
        at = self.fresh()
        with self.block(f"scf.for {at} = {low} to {high} step {by}"):
            yield at

    def carried(
        self, low: str, high: str, by: str, init: Sequence[str], kinds: Sequence[str]
    ) -> tuple[str, list[str], str]:
        """Opens scf.for with loop-carried values: (index, values inside, name of the results)."""
        at, out = self.fresh(), self.fresh()
        inside = [self.fresh() for _ in init]
        pairs = ", ".join(f"{a} = {b}" for a, b in zip(inside, init, strict=True))
        count = f":{len(init)}"
        self.line(
            f"{out}{count} = scf.for {at} = {low} to {high} step {by} iter_args({pairs})"
            f" -> ({', '.join(kinds)}) {{"
        )
        self._depth += 1
        return at, inside, out

    def close(self, values: Sequence[str], kinds: Sequence[str]) -> None:
        """Ends what `carried` opened."""
        self.line(f"scf.yield {', '.join(values)} : {', '.join(kinds)}")
        self._depth -= 1
        self.line("}")


def _typed(literal: str, kind: str) -> str:
    if kind == "i1":
        return literal
    return f"dense<{literal}> : {kind}" if kind.startswith("vector") else f"{literal} : {kind}"


def literal(value: float, dtype: DType) -> str:
    """A number as MLIR writes it; infinities and NaN by their bits."""
    if dtype is DType.i1:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    if math.isfinite(value):
        return repr(float(value)) if "e" not in repr(float(value)) else f"{float(value):.17e}"
    import numpy as np

    bits = np.asarray(value, dtype.numpy).tobytes()[::-1].hex().upper()
    return f"0x{bits}"
