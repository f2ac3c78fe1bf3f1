"""Writes the statements of a function, with fresh names; constants go to its head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from lstm_ir.backends.kernels.text.kernel import KernelFunction, KernelSignature
from lstm_ir.backends.kernels.text.statements import (
    Body,
    CallStatement,
    Constant,
    Kind,
    MemRef,
    Name,
    Operation,
    Part,
    RegionStatement,
    Statement,
    TextOperand,
    WorkgroupId,
    argument,
    operation,
)
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.types import DType

DIVISIONS = ("divui", "remui", "ceildivui")  # by numbers that a compiler should know
_STEP = (3,)  # which operand of a loop is its step

_SCALAR = {
    DType.f16: "f16", DType.bf16: "bf16", DType.f32: "f32", DType.f64: "f64", DType.i8: "i8",
    DType.i32: "i32", DType.i64: "i64", DType.i1: "i1", DType.u8: "i8", DType.u32: "i32",
}  # fmt: skip

_STORED = {DType.i1: DType.i8, DType.u8: DType.i8, DType.u32: DType.i32}

ZERO = argument("zero")  # of GPU kernels: an index that is 0, which the compiler must not know


def scalar_type(dtype: DType) -> str:
    """The MLIR type of one element."""
    return _SCALAR[dtype]


def known(dtype: DType) -> bool:
    """Whether kernels compute with it."""
    return dtype in _SCALAR


def stored_dtype(dtype: DType) -> DType:
    """The element type in memory: booleans are bytes, and integers have no sign."""
    return _STORED.get(dtype, dtype)


def stored_type(dtype: DType) -> str:
    """The MLIR type of one element in memory: booleans are bytes."""
    return "i8" if dtype is DType.i1 else _SCALAR[dtype]


class Text:
    """Writes one function's statements. Without lanes, what would be a vector is one element."""

    def __init__(self, lanes: int, prefix: str = "%v", sizes: Mapping[Dim, Name] | None = None) -> None:
        """sizes: what the function knows named sizes as."""
        self.lanes, self._prefix = lanes, prefix
        self.sizes: Mapping[Dim, Name] = {} if sizes is None else sizes
        self.cuts: dict[Expr, Name] = {}  # how many turns of a loop come before a boundary that the call places
        self.buffers: list[Operation] = []
        self.own: set[str] = set()  # names of values that are defined here
        self._constants: dict[tuple[str, str], Constant] = {}  # by literal and type
        self._n = 0
        self._bodies: list[list[Statement]] = [[]]  # of the regions that are open
        self._loops: list[Operation] = []  # those that `carried` opened

    @property
    def body(self) -> Body:
        """All statements."""
        return tuple(self._bodies[0])

    def function(self, name: str, signature: KernelSignature, attributes: str = "") -> KernelFunction:
        """What was written, as a function."""
        constants = tuple(self._constants.values())
        return KernelFunction(name, signature, constants, tuple(self.buffers), self.body, attributes)

    def fresh(self, kind: Kind | None = None) -> Name:
        """A new value."""
        self._n += 1
        text = f"{self._prefix}{self._n}"
        self.own.add(text)
        return Name(text, kind)

    def vector(self, element: str, lanes: int = 0) -> str:
        """The vector type of full width, or of so many lanes."""
        lanes = lanes or self.lanes
        return f"vector<{lanes}x{element}>" if lanes else element

    # -- statements

    def put(self, s: Statement) -> None:
        """Any statement."""
        self._bodies[-1].append(s)

    def line(self, template: str, *parts: Part) -> None:
        """An operation without results."""
        self.put(operation(template, *parts))

    def op(self, template: str, *parts: Part, to: Name | None = None) -> Name:
        """An operation with one result, which is `to`, or a new value."""
        out = self.fresh() if to is None else to
        self.put(operation(template, *parts, to=out))
        return out

    def binary(self, op: str, a: TextOperand, b: TextOperand, kind: str = "index", to: Name | None = None) -> Name:
        """arith op of two values of one type."""
        out = self.fresh(kind) if to is None else to
        known = (0, 1) if op in DIVISIONS else ()
        self.put(operation(f"arith.{op} {{}}, {{}} : {kind}", a, b, to=out, known=known))
        return out

    def compare(self, way: str, a: TextOperand, b: TextOperand, kind: str = "index") -> Name:
        """Whether a is less than b, equal, ..., as integers."""
        return self.op(f"arith.cmpi {way}, {{}}, {{}} : {kind}", a, b)

    def select(self, flag: TextOperand, a: TextOperand, b: TextOperand, kind: str = "index") -> Name:
        """a where the flag is set, else b."""
        return self.op(f"arith.select {{}}, {{}}, {{}} : {kind}", flag, a, b, to=self.fresh(kind))

    def opposite(self, flag: TextOperand) -> Name:
        """Whether the flag is not set."""
        return self.binary("xori", flag, self.constant("true", "i1"), "i1")

    def mask(self, count: TextOperand, lanes: int = 0) -> Name:
        """So many of the first lanes of a vector."""
        return self.op("vector.create_mask {} : {}", count, self.vector("i1", lanes))

    def add(self, a: TextOperand, n: Dim) -> TextOperand:
        """index + a number or a size."""
        return a if n == 0 else self.binary("addi", a, self.extent(n))

    def call(self, call: CallStatement) -> None:
        """A call, whose constants are this function's."""
        for a in call.arguments:
            if isinstance(a, Constant):
                self.constant(a.literal, a.kind)
        self.put(call)

    def workgroup(self) -> Name:
        """The number of this workgroup."""
        out = self.fresh("index")
        self.put(WorkgroupId(out))
        return out

    # -- constants and buffers

    def index(self, n: int) -> Constant:
        """A constant index."""
        return self.constant(str(n), "index")

    def extent(self, d: Dim) -> TextOperand:
        """A size as an index: a number, one of the call's, or one of those with cuts added."""
        if isinstance(d, int):
            return self.index(d)
        if d in self.sizes:
            return self.sizes[d]
        added = [(Expr(((mono, 1),)), k) for mono, k in d.terms]
        added = [(c, k) for c, k in added if c in self.cuts]
        assert added, f"{d} is no size of the call"
        total = self.extent(dims.total([d, *(dims.mul(c, -k) for c, k in added)]))
        for c, k in added:
            total = self.binary("addi", total, self.binary("muli", self.cuts[c], self.index(k)))
        return total

    def constant(self, literal: str, kind: str) -> Constant:
        """A constant at the head."""
        found = self._constants.get((literal, kind))
        if found is None:
            found = self._constants[literal, kind] = Constant(literal, kind)
        return found

    def number(self, value: float, dtype: DType, wide: bool) -> Constant:
        """A constant scalar or vector of numbers."""
        kind = scalar_type(dtype)
        return self.constant(literal(value, dtype), self.vector(kind) if wide else kind)

    def stack(self, kind: MemRef) -> Name:
        """A buffer on the stack, made once at the head."""
        out = self.fresh(kind)
        attrs = "alignment = 64 : i64, operandSegmentSizes = array<i32: 0, 0>"
        template = f'"memref.alloca"() <{{{attrs}}}> : () -> {{}}'
        self.buffers.append(operation(template, kind, to=out))
        return out

    # -- regions

    @contextmanager
    def block(self, template: str, *parts: Part, to: Name | None = None, results: int = 1) -> Iterator[None]:
        """An operation with what is written inside."""
        self._bodies.append([])
        yield
        self._end(operation(template, *parts, to=to, results=results))

    @contextmanager
    def region(self, word: str, *arguments: Name) -> Iterator[None]:
        """One more region of the operation that was written last."""
        self._bodies.append([])
        yield
        last = self._bodies[-2].pop()
        assert isinstance(last, Operation)
        self._end(last, word, arguments)

    def _end(self, owner: Operation, word: str = "", arguments: tuple[Name, ...] = ()) -> None:
        region = RegionStatement(word, arguments, tuple(self._bodies.pop()))
        self.put(owner._replace(regions=(*owner.regions, region)))

    @contextmanager
    def when(self, flag: TextOperand) -> Iterator[None]:
        """scf.if without results."""
        with self.block("scf.if {}", flag):
            yield

    @contextmanager
    def loop(self, low: TextOperand, high: TextOperand, by: TextOperand) -> Iterator[Name]:
        """scf.for without results; gives the index."""
        at = self.fresh("index")
        self._bodies.append([])
        yield at
        self._end(operation("scf.for {} = {} to {} step {}", at, low, high, by, known=_STEP))

    def carried(
        self, low: TextOperand, high: TextOperand, by: TextOperand, init: Sequence[TextOperand],
        kinds: Sequence[str],
    ) -> tuple[Name, list[Name], list[Name]]:  # fmt: skip
        """Opens scf.for with loop-carried values: (index, values inside, results)."""
        at, out = self.fresh("index"), self.fresh()
        inside = [self.fresh(k) for k in kinds]
        pairs = ", ".join(["{} = {}"] * len(init))
        template = f"scf.for {{}} = {{}} to {{}} step {{}} iter_args({pairs}) -> ({{}})"
        carried = (v for pair in zip(inside, init, strict=True) for v in pair)
        self._loops.append(
            operation(template, at, low, high, by, *carried, kinds, to=out, results=len(init), known=_STEP)
        )
        self._bodies.append([])
        return at, inside, self.results(out, kinds)

    def close(self, values: Sequence[TextOperand], kinds: Sequence[str]) -> None:
        """Ends what `carried` opened."""
        self.line("scf.yield {} : {}", values, kinds)
        self._end(self._loops.pop())

    def results(self, out: Name, kinds: Sequence[str]) -> list[Name]:
        """The results of an operation that has several."""
        made = [Name(f"{out.text}#{i}", k) for i, k in enumerate(kinds)]
        self.own.update(m.text for m in made)
        return made


def literal(value: float, dtype: DType) -> str:
    """A number as MLIR writes it; infinities and NaN by their bits."""
    if dtype is DType.i1:
        return "true" if value else "false"
    if not dtype.is_float:
        n = int(value)
        return str(n if dtype.is_signed or n < 1 << (dtype.bits - 1) else n - (1 << dtype.bits))  # the same bits
    if math.isfinite(value):
        return repr(float(value)) if "e" not in repr(float(value)) else f"{float(value):.17e}"
    bits = np.asarray(value, dtype.numpy).tobytes()[::-1].hex().upper()
    return f"0x{bits}"
