"""What defines the gradient ops of `lstm`, `gru` and `rnn`: types, meaning, and the forward op's
rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lstm_ir.ir.errors import GradientError, message
from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Graph, Node, Value, make
from lstm_ir.ir.interpret import evaluate
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.opdef import OPS, Attr, Op
from lstm_ir.ir.pullback import Cts, session, through
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.core.activations import parse

MASKS = ("lengths", "count")


def grad_attrs(attrs: Mapping[str, Attr]) -> dict[str, Attr]:
    """The forward op's attributes without `save`."""
    return {k: v for k, v in attrs.items() if k != "save"}


def grad_results(names: Sequence[str]) -> str:
    """`d_NAME` for every operand that has a gradient."""
    return " ".join(f"d_{n}" for n in names if n not in MASKS)


def grad_types(names: Sequence[str], operands: Sequence[Any]) -> dict[str, TensorType | None]:
    """One result per present operand, of its type."""
    pairs = zip(names, operands, strict=False)
    return {f"d_{n}": t for n, t in pairs if n not in MASKS}


def by_expansion(name: str) -> Callable[..., Any]:
    """The meaning of a gradient op: that of the primitives it expands into."""

    def run(*arrays: Any, **attrs: Any) -> Any:
        op = OPS[name]
        types = [None if a is None else TensorType(a.shape, DType.of(a.dtype)) for a in arrays]
        params = [
            None if t is None else parameter(o.name, t)
            for o, t in zip(op.operands, types, strict=True)
        ]
        node = make(op, *params, **attrs)
        there = [p for p in params if p is not None]
        graph = Graph(name, there, expansion(node, "meaning"))
        return evaluate(graph, [a for a in arrays if a is not None], {})

    return run


def layer_vjp(node: Node, cts: Cts, grad: Op, saved: Sequence[str], names: Sequence[str]) -> Any:
    """The gradient of a forward op by its gradient op, from what a saving twin of it kept.

    With `remat` nothing is saved: the layer is differentiated as the loop that it is. So is one
    with an activation whose output does not tell its slope.
    """
    active = session()
    hidden = [t for t in node.attrs["activations"] if not parse(t).has_slope]
    if active.remat is not None or hidden:
        _need_the_loops_clip(node, hidden)
        return through(node, expansion(node, "grad"), cts, active.remat)
    kept = node
    if not node.attrs["save"]:
        kept = make(node.op, *node.args, **{**node.attrs, "save": True})
        active.twin(node, kept)
    arrived: dict[str, Value] = {}
    for (name, _), ct in zip(node.results, cts, strict=True):
        if ct is not None:
            arrived[f"d_{name}"] = ct
    further = [o.name for o in grad.operands[len(names) :]]
    more = [kept.result(n) if n in saved else arrived.get(n) for n in further]
    attrs = {k: v for k, v in node.attrs.items() if k != "save"}
    out = make(grad, *node.args, *more, **attrs)
    return tuple(out.result(f"d_{n}") for n in names)


def _need_the_loops_clip(node: Node, hidden: Sequence[str]) -> None:
    """Refuse a clip that is passed straight through: in the loop it is an op, whose gradient is
    the true one."""
    a = node.attrs
    if a.get("cell_clip", 0.0) > 0 and a["clip_gradient"] == "straight_through":
        why = f"activation {hidden[0]}" if hidden else "remat"
        problem = f'{why} does not go with clip_gradient="straight_through"'
        raise GradientError(message(node.op.name, problem, (), node.loc))


def with_saved(
    op: Op,
    operands: Sequence[Value | None],
    a: Mapping[str, Any],
    saved: Sequence[str],
    needs: Sequence[str],
    either: bool = False,
) -> tuple[Value | None, ...]:
    """A gradient op's operands with all of `needs` there (`either`: one of them), from another run
    of the layer `op` where they are not."""
    n = len(op.operands)
    given = dict(zip(saved, operands[n:], strict=False))
    absent = [given[k] is None for k in needs]
    if all(absent) if either else any(absent):
        again = make(op, *operands[:n], **a, save=True)
        given = {k: saved_value(again, k) if v is None else v for k, v in given.items()}
    return *operands[:n], *given.values(), *operands[n + len(saved) :]


def saved_value(node: Node, name: str) -> Value | None:
    """A result of a forward node; None where it has no such result."""
    v = node.result(name)
    assert not isinstance(v, tuple)
    return v


def expanded_vjp(node: Node, cts: Cts) -> Any:
    """The gradient of a gradient op: that of the primitives it expands into."""
    return through(node, expansion(node, "grad"), cts, session().remat)
