"""`custom_vjp` and `stop_gradient`: values whose gradient is written by hand, as graphs.

    custom_vjp   (outs..., residuals...) = forward(operands...)          its results are the outs
                 d_operands... = backward(residuals..., d_outs...)       asked for by a gradient alone

`gradients` has one flag per operand: whether backward gives it a gradient. Outs that are no floats have no cotangent;
an out at which nothing arrived has zeros. `stop_gradient` with a reason in `unknown` refuses to be differentiated.
Both are core ops: they stay while a gradient may still be taken, and `decompose` puts forward, and the operand itself,
in their place.

A residual that is an out, or is computed from outs, reads the node's own results: their gradient is the one written
here whoever asks, in second derivatives too. All else that backward computes is differentiated op by op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstm_ir.ir import options
from lstm_ir.ir.clone import clone
from lstm_ir.ir.errors import GradientError, IRError, message
from lstm_ir.ir.graph import Graph, Node, Value, make
from lstm_ir.ir.interpret import InterpretedBody
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import Attr, Level, Trait, define, need
from lstm_ir.ir.pullback import Cts
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.elementwise_grad import none
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.tree import Tree, captured, closed, flatten, unflatten

Fault = Callable[[str], IRError]


def _shown(types: Any) -> str:
    return ", ".join(map(str, types)) if types else "nothing"


def _types(
    operands: tuple[TensorType, ...], *, residuals: int, gradients: tuple[bool, ...], forward: Graph, backward: Graph
) -> dict[str, Any]:
    takes = tuple(p.type for p in forward.params)
    need(takes == operands, f"forward takes {_shown(takes)}, the operands are {_shown(operands)}")
    gives = tuple(v.type for v in forward.outputs)
    need(0 <= residuals <= len(gives), f"forward gives {len(gives)} results, of which {residuals} are residuals")
    outs, kept = gives[: len(gives) - residuals], gives[len(gives) - residuals :]
    need(len(gradients) == len(operands), f"gradients has {len(gradients)} flags for {len(operands)} operands")
    for i, (t, asked) in enumerate(zip(operands, gradients, strict=True)):
        need(t.dtype.is_float or not asked, f"operand {i} is {t}, which has no gradient")
    wants = (*kept, *(t for t in outs if t.dtype.is_float))
    takes = tuple(p.type for p in backward.params)
    need(takes == wants, f"backward takes {_shown(takes)}; residuals and cotangents are {_shown(wants)}")
    wanted = [(i, t) for i, (t, asked) in enumerate(zip(operands, gradients, strict=True)) if asked]
    found = [v.type for v in backward.outputs]
    need(len(found) == len(wanted), f"backward gives {len(found)} gradients for {len(wanted)} operands")
    for (i, t), f in zip(wanted, found, strict=True):
        need(f == t, f"backward gives {f} as the gradient of operand {i} ({forward.input_names[i]}), which is {t}")
    return {"outs": outs}


def _numpy(
    operands: Any, *, residuals: int, gradients: Any, forward: InterpretedBody, backward: InterpretedBody
) -> list[Any]:
    results = forward(*operands)
    return results[: len(results) - residuals]


def _expand(operands: tuple[Value, ...], *, residuals: int, forward: Graph, **_: Any) -> dict[str, Any]:
    outs = forward.outputs[: len(forward.outputs) - residuals]
    return {"outs": tuple(clone(outs, dict(zip(forward.params, operands, strict=True))))}


def _vjp(node: Node, cts: Cts) -> tuple[Any]:
    forward, backward, k = node.attrs["forward"], node.attrs["backward"], len(node.values)
    env = dict(zip(forward.outputs[:k], node.values, strict=True))  # outs keep the gradient written here
    env |= dict(zip(forward.params, node.inputs, strict=True))
    kept = clone(forward.outputs[k:], env)
    arrived = [zeros_like(v) if ct is None else ct for v, ct in zip(node.values, cts, strict=True) if v.dtype.is_float]
    found = iter(clone(backward.outputs, dict(zip(backward.params, [*kept, *arrived], strict=True))))
    return (tuple(next(found) if asked else None for asked in node.attrs["gradients"]),)


CUSTOM_VJP = define(
    "custom_vjp", "operands*",
    attrs={"residuals": Attr("int"), "gradients": Attr("bools"), "forward": Attr("graph"), "backward": Attr("graph")},
    results="outs", types=_types, numpy=_numpy, vjp=_vjp, expand=_expand, level=Level.core,
)  # fmt: skip


def _stopped(node: Node, cts: Cts) -> Cts:
    """None goes through; GradientError where one is asked for that is not known."""
    if node.attrs["unknown"]:
        raise GradientError(message("stop_gradient", node.attrs["unknown"], [("operand", node.types[0])], node.loc))
    return none(node, cts)


STOP_GRADIENT = define(
    "stop_gradient", "operand", attrs={"unknown": Attr("str", "")}, types=lambda operand, *, unknown: operand,
    numpy=lambda x, *, unknown: x, vjp=_stopped, expand=lambda operand, *, unknown: operand, level=Level.core,
    traits=(Trait.elementwise,),
)  # fmt: skip


def stop_gradient(x: Any) -> Value:
    """x, a constant to gradients: none goes through it."""
    (v,) = as_values("stop_gradient", x)
    return make(STOP_GRADIENT, v).values[0]


def unknown_gradient(x: Any, why: str) -> Value:
    """x, whose gradient is refused with this reason: what a foreign model has of it cannot be read."""
    (v,) = as_values("stop_gradient", x)
    return make(STOP_GRADIENT, v, unknown=why).values[0] if v.dtype.is_float else v


def custom_vjp(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes `forward` and has `backward` as its gradient.

        forward(*args) -> (outputs, residuals)        backward(residuals, cotangents) -> gradients of args

    All are values, or tuples, lists, dicts of values; the cotangents have the form of the outputs, with None for one
    that is no float. backward gives a tuple with one entry per argument (of one argument, the entry alone will do),
    each in the argument's form; None: no gradient. What the two read they are given: an input or a weight that
    is read from around them is refused. Raises IRError for a gradient of another shape or dtype.
    """
    for name, f in (("forward", forward), ("backward", backward)):
        if not callable(f):
            raise options.refuse("custom_vjp", name, f, "a function")

    def called(*args: Tree) -> Tree:
        return _Call(forward, backward, args).results()

    called.__name__ = getattr(forward, "__name__", "custom_vjp")
    called.__doc__ = forward.__doc__
    return called


class _Call:
    """One call: the two functions as graphs over its arguments."""

    def __init__(self, forward: Callable[..., Any], backward: Callable[..., Any], args: tuple[Tree, ...]) -> None:
        self.forward, self.backward, self.args = forward, backward, args
        self.loc, self.operands = here(), flatten(args)

    def fault(self, problem: str) -> IRError:
        """The error, at the line of the call."""
        return IRError(message("custom_vjp", problem, [("operands", [v.type for v in self.operands])], self.loc))

    def results(self) -> Tree:
        """The outputs, in forward's form."""
        inside = [parameter(f"x{i}", v.type) for i, v in enumerate(self.operands)]
        out = self.forward(*unflatten(self.args, list(inside)))
        if not isinstance(out, tuple) or len(out) != 2:
            raise self.fault("forward must return (outputs, residuals)")
        outputs, residuals = out
        outs, kept = flatten(outputs), flatten(residuals)
        if not outs:
            raise self.fault("forward returns no outputs")
        forward = self._graph("forward", self.forward, inside, [*outs, *kept])
        saved = [parameter(f"residual{i}", v.type) for i, v in enumerate(kept)]
        cts = [parameter(f"ct{i}", v.type) if v.dtype.is_float else None for i, v in enumerate(outs)]
        found = self.backward(unflatten(residuals, list(saved)), unflatten(outputs, list(cts)))
        grads = self._gradients(found)
        given = [g for g in grads if g is not None]
        backward = self._graph("backward", self.backward, [*saved, *(c for c in cts if c is not None)], given)
        node = make(
            CUSTOM_VJP, tuple(self.operands), loc=self.loc, residuals=len(kept),
            gradients=tuple(g is not None for g in grads), forward=forward, backward=backward,
        )  # fmt: skip
        return unflatten(outputs, list(node.values))

    def _gradients(self, gradients: Tree) -> list[Value | None]:
        """One per operand."""
        many = len(self.args)
        if many == 1 and not (isinstance(gradients, tuple) and len(gradients) == 1):
            gradients = (gradients,)
        if not isinstance(gradients, tuple) or len(gradients) != many:
            got = f"{len(gradients)} of them" if isinstance(gradients, tuple) else type(gradients).__name__
            raise self.fault(f"backward must return a tuple with a gradient, or None, for each of {many}, got {got}")
        grads: list[Value | None] = []
        for i, (arg, g) in enumerate(zip(self.args, gradients, strict=True)):
            self._matched(f"argument {i}", arg, g, grads)
        return grads

    def _matched(self, where: str, arg: Tree, g: Tree, out: list[Value | None]) -> None:
        """Gradients of a tree in the order of its values."""
        many = flatten(arg)
        if g is None or not many:
            out.extend(None for _ in many)
        elif isinstance(arg, dict):
            if not isinstance(g, dict) or set(g) != set(arg):
                raise self.fault(f"backward's gradient of {where} is not a dict with {', '.join(map(repr, arg))}")
            for k in arg:
                self._matched(f"{where}[{k!r}]", arg[k], g[k], out)
        elif isinstance(arg, (tuple, list)):
            if not isinstance(g, (tuple, list)) or len(g) != len(arg):
                raise self.fault(f"backward's gradient of {where} is not {len(arg)} gradients")
            for i, (a, b) in enumerate(zip(arg, g, strict=True)):
                self._matched(f"{where}[{i}]", a, b, out)
        else:
            self._one(where, many[0].type, g, out)

    def _one(self, where: str, kind: TensorType, g: Tree, out: list[Value | None]) -> None:
        if isinstance(g, (tuple, list, dict)):
            raise self.fault(f"backward's gradient of {where} is a {type(g).__name__}; the argument is one value")
        (v,) = flatten(g)
        if not kind.dtype.is_float:
            raise self.fault(f"backward gives a gradient of {where}, which is {kind}; give None")
        if v.type != kind:
            raise self.fault(f"backward gives {v.type} as the gradient of {where}, which is {kind}")
        out.append(v)

    def _graph(self, role: str, function: Callable[..., Any], params: list[Value], outputs: list[Value]) -> Graph:
        for v in captured(outputs, set(params)):
            name = v.node.attrs["name"]
            what = "the weight" if v.op == "weight" else "the value"
            raise self.fault(
                f"{role} reads {what} {name!r} from around it; give it as an argument"
                + (", so that backward says its gradient" if role == "forward" else " of forward, and as a residual")
            )
        return closed(getattr(function, "__name__", role), params, outputs, {})
