"""The gradient ops of `lstm`, `gru` and `rnn`: operands, types and meaning, which follow from the
forward op; and the forward ops with their rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lstm_ir.ir.errors import GradientError, message
from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Graph, Node, Value, make
from lstm_ir.ir.interpret import evaluate
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.opdef import OPS, Attr, Level, Op, define, need
from lstm_ir.ir.pullback import Cts, session, through
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.core import sizes as layer_sizes
from lstm_ir.ops.core.activations import parse
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.cell import Cell

MASKS = ("lengths", "count")
"""Operands that have no gradient."""
FINALS = ("h_n", "c_n")
"""Results that are states after the last step."""


def saved_names(forward: Op) -> tuple[str, ...]:
    """The results of a forward op that its gradient op takes: those with a row for each step."""
    return tuple(n for n in forward.results if n not in FINALS)


def arriving_names(forward: Op) -> tuple[str, ...]:
    """The operands of a gradient op that hold the gradient of a result of `forward`."""
    return tuple(f"d_{n}" for n in forward.results)


def define_layer(
    cell: Cell, attrs: Mapping[str, Attr], results: str, *,
    types: Callable[..., Any], numpy: Callable[..., Any], expand: Callable[..., Any],
) -> Op:  # fmt: skip
    """The forward op of a cell; its gradient is by `NAME_grad`."""
    return define(
        cell.op, cell.written, attrs=attrs, results=results, types=types, numpy=numpy, vjp=layer_vjp, expand=expand,
        level=Level.core, ranges=layer_sizes.ranges,
    )  # fmt: skip


def define_gradient(forward: Op, cell: Cell, expand: Callable[..., Any]) -> Op:
    """`NAME_grad`: the operands of NAME, what it saved, and the gradients of its results, all of
    these optional; gives a gradient for every operand that is there."""
    name, n = f"{forward.name}_grad", len(cell.names)
    further = (*saved_names(forward), *arriving_names(forward))

    def types(*operands: TensorType | None, **a: Any) -> dict[str, TensorType | None]:
        results = forward.types(*operands[:n], **a, save=True)
        assert not isinstance(results, TensorType)
        D = len(layer_sizes.DIRECTIONS[a["direction"]])
        layer_sizes.need_slopes(layer_sizes.acts(a["activations"], cell.acts, D))
        for operand, t in zip(further, operands[n:], strict=True):
            base = operand.removeprefix("d_")
            want = results[base]
            assert not isinstance(want, tuple)
            if want is None:
                need(t is None, f"{operand} is given, but with these attributes there is no {base}")
            else:
                layer_sizes.same(operand, t, want)
        pairs = zip(cell.names, operands, strict=False)
        return {f"d_{k}": t for k, t in pairs if k not in MASKS}

    return define(
        name,
        " ".join([cell.written, *(f"{k}?" for k in further)]),
        attrs={k: v for k, v in forward.attrs.items() if k != "save"},
        results=" ".join(f"d_{k}" for k in cell.names if k not in MASKS),
        types=types,
        numpy=_by_expansion(name),
        vjp=_expanded_vjp,
        expand=expand,
        level=Level.core,
        ranges=layer_sizes.ranges,
    )


def gradients(op: Op, arguments: dict[str, Any]) -> dict[str, Any]:
    """The results of a gradient op over operands and attributes by name."""
    attrs = {"direction": "forward", **arguments}
    operands = tuple(attrs.pop(o.name, None) for o in op.operands)
    node = layer_node(op, operands, **attrs)
    return {n: node.result(n) for n in op.results}


def _by_expansion(name: str) -> Callable[..., Any]:
    """The meaning of a gradient op: that of the primitives it expands into."""

    @lru_cache(maxsize=64)
    def expanded(types: tuple[TensorType | None, ...], attrs: tuple[tuple[str, Any], ...]) -> Graph:
        op = OPS[name]
        params = [None if t is None else parameter(o.name, t) for o, t in zip(op.operands, types, strict=True)]
        node = make(op, *params, **dict(attrs))
        return Graph(name, [p for p in params if p is not None], expansion(node, "meaning"))

    def run(*arrays: Any, **attrs: Any) -> Any:
        types = tuple(None if a is None else TensorType(a.shape, DType.of(a.dtype)) for a in arrays)
        return evaluate(expanded(types, tuple(attrs.items())), [a for a in arrays if a is not None], {})

    return run


def layer_vjp(node: Node, cts: Cts) -> Any:
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
    pairs = zip(node.results, cts, strict=True)
    arrived = {f"d_{name}": ct for (name, _), ct in pairs}
    saved = [kept.result(n) for n in saved_names(node.op)]
    attrs = {k: v for k, v in node.attrs.items() if k != "save"}
    out = make(
        OPS[f"{node.op.name}_grad"], *node.args, *saved, *(arrived.get(n) for n in arriving_names(node.op)), **attrs
    )
    return tuple(out.result(f"d_{o.name}") for o in node.op.operands)


def _need_the_loops_clip(node: Node, hidden: Sequence[str]) -> None:
    """Refuse a clip that is passed straight through: in the loop it is an op, whose gradient is
    the true one."""
    a = node.attrs
    if a.get("cell_clip", 0.0) > 0 and a["clip_gradient"] == "straight_through":
        why = f"activation {hidden[0]}" if hidden else "remat"
        problem = f'{why} does not go with clip_gradient="straight_through"'
        raise GradientError(message(node.op.name, problem, (), node.loc))


def with_saved(
    op: Op, operands: Sequence[Value | None], a: Mapping[str, Any], needs: Sequence[str], either: bool = False
) -> tuple[Value | None, ...]:
    """A gradient op's operands with all of `needs` there (`either`: one of them), from another run
    of the layer `op` where they are not."""
    n, saved = len(op.operands), saved_names(op)
    given = dict(zip(saved, operands[n:], strict=False))
    absent = [given[k] is None for k in needs]
    if all(absent) if either else any(absent):
        again = make(op, *operands[:n], **a, save=True)
        given = {k: _saved_value(again, k) if v is None else v for k, v in given.items()}
    return *operands[:n], *given.values(), *operands[n + len(saved) :]


def _saved_value(node: Node, name: str) -> Value | None:
    """A result of a forward node; None where it has no such result."""
    v = node.result(name)
    assert not isinstance(v, tuple)
    return v


def _expanded_vjp(node: Node, cts: Cts) -> Any:
    """The gradient of a gradient op: that of the primitives it expands into."""
    return through(node, expansion(node, "grad"), cts, session().remat)
