"""What an op is: operands, attributes, type rule, NumPy meaning, gradient, expansion.

`define` registers one op; everything that is the same for every target stands in that one call.
How an op is lowered belongs to `backends/`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.signature import Requirement
from lstm_ir.ir.types import TensorType

if TYPE_CHECKING:
    from lstm_ir.ir.graph import Node, Value


class RuleError(IRError):
    """A type rule was broken; `make` adds the op, the operands and the user's line."""


class Level(Enum):
    """The stages at which an op may occur (source, core, scheduled)."""

    primitive = "primitive"  # every stage
    core = "core"  # source and core: `decompose` removes it
    composite = "composite"  # source only: `expand` removes it


class Trait(Enum):
    """What generic code may assume of an op."""

    elementwise = "elementwise"  # one result; operands and result have one shape
    commutative = "commutative"  # two operands that may change places
    leaf = "leaf"  # no operands; never merged or folded by identity of attributes alone
    data_movement = "data_movement"  # result elements are copies of operand elements
    batched = "batched"  # rows along the first axis of the first operand and of the result, each by itself


REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Attr:
    """An attribute: its kind, and the default or REQUIRED.

    Kinds: int float bool str dim dtype graph data, and lists: ints floats bools strs dims
    offsets (as dims, but an integer may be negative).
    """

    kind: str
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: `x` required, `x?` may be None, `x*` a list, `x!` must be a constant.

    `x:i64` states the dtype that `li.op` gives to a plain number.
    """

    name: str
    optional: bool = False
    many: bool = False
    constant: bool = False
    number: str | None = None

    @classmethod
    def parse(cls, text: str) -> Operand:
        """The operand written as in `define`."""
        text, _, number = text.partition(":")
        bare = text.rstrip("?*!")
        marks = text[len(bare) :]
        return cls(bare, "?" in marks, "*" in marks, "!" in marks, number if number else None)


@dataclass(frozen=True, slots=True)
class Range:
    """A value precondition: every element of `operand` lies in [low, high].

    `note` is what a message adds: what the values are, and what to write for those that lie outside.
    """

    operand: str
    low: Dim
    high: Dim
    note: str = ""

    @property
    def added(self) -> str:
        """The note as the end of a sentence."""
        return f" ({self.note})" if self.note else ""


TypeOrList: TypeAlias = "TensorType | tuple[TensorType, ...]"
TypeResult: TypeAlias = "TensorType | Mapping[str, TypeOrList | None]"


@dataclass(frozen=True, slots=True)
class JointVjp:
    """One gradient for several nodes of an op that read one value.

    takes   (node) -> whether the node's cotangent waits for those of the others
    vjp     (value, (node, cotangent) pairs) -> the value's gradient, or None: each node has its own
    """

    takes: Callable[[Node], bool]
    vjp: Callable[[Value, Sequence[tuple[Node, Value]]], Value | None]


@dataclass(frozen=True, eq=False)
class Op:
    """One op; compare by identity."""

    name: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Attr]
    results: tuple[str, ...]
    types: Callable[..., TypeResult]
    numpy: Callable[..., Any]
    vjp: Callable[..., Any] | None
    expand: Callable[..., Any] | None
    level: Level
    traits: frozenset[Trait]
    ranges: Callable[[Node], tuple[Range, ...]] | None = None
    source: str = ""
    training: str | None = None
    joint_vjp: JointVjp | None = None
    _index: Mapping[str, int] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def operand_index(self, name: str) -> int:
        """Position of the operand called `name`."""
        return self._index[name]


class _Registry(Mapping[str, Op]):
    """Ops by name. Asked for one that it does not have, or for all, it imports the families, which define theirs."""

    def __init__(self) -> None:
        self._held: dict[str, Op] = {}

    def add(self, op: Op) -> None:
        """Enter the op; IRError where its name is taken."""
        if op.name in self._held:
            raise IRError(f"op {op.name} is defined twice")
        self._held[op.name] = op

    def __getitem__(self, name: str) -> Op:
        found = self._held.get(name)
        return self._all()[name] if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Op]:
        importlib.import_module(FAMILIES)
        return self._held


FAMILIES = "lstm_ir.ops"  # importing it defines every op; by name, since nothing here may depend on an op
OPS = _Registry()


def define(
    name: str,
    operands: str,
    *,
    types: Callable[..., TypeResult],
    numpy: Callable[..., Any],
    vjp: Callable[..., Any] | None,
    attrs: Mapping[str, Attr] | None = None,
    results: str = "result",
    expand: Callable[..., Any] | None = None,
    level: Level = Level.primitive,
    traits: tuple[Trait, ...] = (),
    ranges: Callable[[Node], tuple[Range, ...]] | None = None,
    source: str = "",
    training: str | None = None,
    joint_vjp: JointVjp | None = None,
) -> Op:
    """Register an op.

    types   (*operand types, **attrs) -> the type, or {result: type | tuple | None}; None is absent.
            An operand marked `!` arrives as its array.
    numpy   (*arrays, **attrs) -> array or tuple of all results in order (lists flat). Dimension
    attributes
            arrive as ints, a graph as a callable over arrays.
    vjp     (node, cotangents) -> one gradient per operand; None states that there is no gradient.
    expand  (*values, **attrs) -> Value or {result: Value | tuple}, built from ops of a lower level.
    training  the attribute under which the op draws at random; False is inference. None where
            nothing is drawn, whatever an attribute is called (mps ops: `training` asks for z).
    joint_vjp  one gradient for all nodes of the op that read the same value.
    """
    parsed = tuple(Operand.parse(t) for t in operands.split())
    op = Op(
        name, parsed, dict(attrs or {}), tuple(results.split()), types, numpy, vjp, expand, level,
        frozenset(traits), ranges, source, training, joint_vjp,
        {o.name: i for i, o in enumerate(parsed)},
    )  # fmt: skip
    OPS.add(op)
    return op


_REQUIREMENTS: ContextVar[list[Requirement] | None] = ContextVar("requirements", default=None)


def need(condition: bool, problem: str) -> None:
    """Inside a type rule: refuse unless `condition`."""
    if not condition:
        raise RuleError(problem)


def need_equal(a: Dim, b: Dim, problem: str) -> None:
    """Inside a type rule: refuse unless the two sizes are equal for every value of their names."""
    if a != b:
        undecided = isinstance(dims.add(a, dims.mul(b, -1)), dims.Expr)
        hint = "; name them alike if they are equal" if undecided else ""
        raise RuleError(f"{problem}{hint}")


def need_at_least(d: Dim, low: int, problem: str) -> None:
    """Inside a type rule: refuse if d < low; where only a call can tell, leave a requirement."""
    known = dims.at_least(d, low)
    if known is False:
        raise RuleError(problem)
    if known is None:
        pending = _REQUIREMENTS.get()
        if pending is not None:
            pending.append(Requirement(dims.add(d, -low), problem))


def need_rows(d: Dim, symbol: str, where: str) -> None:
    """Inside a type rule: refuse an axis without rows; `symbol` is its name in the op's definition."""
    shown = symbol if str(d) == symbol else f"{symbol} = {d}"
    need_at_least(d, 1, f"{where}: {shown} must be at least 1")


def derive(
    op: Op, arg_types: tuple[Any, ...], attrs: Mapping[str, Any]
) -> tuple[tuple[tuple[str, TypeOrList], ...], tuple[Requirement, ...]]:
    """Run the type rule: present results in order, and the requirements that are left."""
    pending: list[Requirement] = []
    token = _REQUIREMENTS.set(pending)
    try:
        out = op.types(*arg_types, **attrs)
    finally:
        _REQUIREMENTS.reset(token)
    if isinstance(out, TensorType):
        out = {op.results[0]: out}
    return tuple((n, t) for n, t in out.items() if t is not None), tuple(pending)


Expansion: TypeAlias = "Value | Mapping[str, Value | tuple[Value, ...]]"
