"""`li.op`: every op by its name, with the operand, attribute and result names of its origin."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from functools import cache
from typing import Any

from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import AbsentResultError, IRError, message
from lstm_ir.ir.graph import Arg, Graph, Node, Value, make_node
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.near_names import nearest
from lstm_ir.ir.opdef import OPS, Op, Operand, RuleError
from lstm_ir.ir.types import DType


def op(name: str, /, **arguments: Any) -> Any:
    """One node of the op called `name`; gives a named tuple with exactly the results that this call
    has.

    Operands and attributes come by keyword; arrays and numbers are taken as constants (of the dtype
    of the first operand that is a value, where a number has none), a list operand is a sequence, an
    absent operand is None. Raises IRError for an unknown name, a missing operand, or anything that
    the op's type rule refuses.
    """
    found = OPS.get(name)
    if found is None or name == "parameter":
        near = nearest(name, OPS)
        hint = f"; is it {' or '.join(near)}?" if near else ""
        raise IRError(message(name, f"there is no op of this name{hint}", (), here()))
    loc = here()
    operands = {o.name for o in found.operands}
    attrs = {k: v for k, v in arguments.items() if k not in operands}
    try:
        args = tuple(_arg(o, arguments.get(o.name), _lead(arguments, operands)) for o in found.operands)
    except RuleError as e:
        raise IRError(message(name, str(e), (), loc)) from None
    return named(make_node(found, args, attrs, loc))


def named(node: Node) -> Any:
    """The node's results as a named tuple in the origin's order."""
    results: Mapping[str, Any] = node.by_name
    return _tuple(node.op, tuple(results))(*results.values())


@cache
def _tuple(op: Op, names: tuple[str, ...]) -> Any:
    make: Any = namedtuple  # the checker wants a name that is written out
    plain = make(op.name.rpartition(".")[2], names, rename=True)
    absent = frozenset(op.results) - set(names)
    if not absent:
        return plain

    def missing(self: Any, name: str) -> Any:
        if name not in absent:
            raise AttributeError(f"{op.name} has no result {name!r}", name=name, obj=self)
        is_operand = any(o.name == name for o in op.operands)
        why = "its operand is None" if is_operand else "its attributes do not ask for it"
        problem = f"this call has no result {name}, since {why}; it has {', '.join(names)}"
        raise AbsentResultError(message(op.name, problem, (), here()))

    return type(plain.__name__, (plain,), {"__slots__": (), "__getattr__": missing})


def _lead(arguments: Mapping[str, Any], operands: set[str]) -> Any:
    """dtype for plain floats: that of the first float operand given as a value or array."""
    for k, v in arguments.items():
        if k in operands:
            kind = _kind(v)
            if kind is not None and kind.is_float:
                return kind
    return None


def _kind(v: Any) -> DType | None:
    if isinstance(v, Value):
        return v.dtype
    try:
        return Data.of(v).type.dtype if hasattr(v, "dtype") else None
    except IRError:  # `_arg` refuses it, and says which operand it is
        return None


def _arg(spec: Operand, value: Any, lead: Any) -> Arg:
    if value is None:
        if not spec.optional:
            raise RuleError(f"operand {spec.name} is required")
        return None
    if spec.many and not isinstance(value, (list, tuple)):
        raise RuleError(f"operand {spec.name} is a list, got {type(value).__name__}")
    try:
        if spec.many:
            return tuple(_one(v, lead) for v in value)
        if spec.number is not None and type(value) is int:
            return constant(value, spec.number)
        return _one(value, lead)
    except IRError as e:
        raise RuleError(f"operand {spec.name}: {e}") from None


def _one(value: Any, lead: Any) -> Value:
    if isinstance(value, Value):
        return value
    if isinstance(value, Graph):
        raise RuleError("a graph is not an operand")
    literal = constant(value)
    if lead is not None and not hasattr(value, "dtype") and literal.dtype.is_float:
        return constant(value, lead)
    return literal
