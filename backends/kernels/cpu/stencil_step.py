"""A loop of one step that is a stencil and what follows it, as `fuse-epilogues` makes them, by the stencil's kernel."""

from __future__ import annotations

from typing import NamedTuple

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.cpu.stencil import panel_stencil, takes
from lstm_ir.backends.kernels.cpu.stencil_after import AfterOperand, AfterSums, Along
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.types import DType, TensorType

Values = list[ir.Value]


def of_stencil(loop: Loop) -> bool:
    """Whether it is a loop of one step with one stencil, and one result."""
    once = loop.length == 1 and not loop.init and not loop.until and len(loop.rows) == 1
    return once and [n.op.name for n in loop.body.nodes].count("stencil") == 1


def lower_stencil_step(e: Emitter, loop: Loop, consts: Values, xs: Values) -> Values | None:
    """The result of such a loop by the kernel; None where none takes it: its ops by themselves are as good."""
    (n,) = (n for n in loop.body.nodes if n.op.name == "stencil")
    (x, w), to, after = n.inputs, n.types[0], _after(loop, n)
    brought = dict(zip((*loop.const_params, *loop.x_params), (*consts, *xs), strict=True))
    if after is None or not {x, w} <= brought.keys() or not takes(e, n, brought[x], to) or not e.at_top:
        return None
    call = panel_stencil(e, n, to)
    if call is None:
        return None
    brought |= {v: reshape(e, brought[v], v.type.with_shape((1, *v.shape)), v.shape) for v in loop.x_params}
    read = (*after.repeated.items(), *((v, v) for v in after.tensors))
    operands = [_operand(e, v, brought[p], p.type, after.along(v)) for v, p in read]
    rounds = any(m in e.decided.nodes for m in loop.body.nodes)
    behind = AfterSums(after.nodes, n.values[0], loop.rows[0], tuple(operands), rounds)
    try:
        out = call.run(brought[x], x.type, call.packed(brought[w]), to, behind)
    except RefusedError:  # an op that no kernel has in this dtype, or more tensors than a dispatch takes
        return None
    return [reshape(e, out, call.lines(to), loop.node.types[0].shape)]


def _operand(e: Emitter, inside: Value, v: ir.Value, t: TensorType, along: Along) -> AfterOperand:
    """`v` of type t as lines: its last two axes are places, where it differs along them."""
    lines, places = (t.shape[:-2], t.shape[-2:]) if along.places else (t.shape, ())
    flat = t.with_shape((dims.product(lines), *([dims.product(places)] if places else [])))
    return AfterOperand(inside, reshape(e, v, t, flat.shape), flat, along)


class _After(NamedTuple):
    """Elementwise nodes, what they repeat by the parameter with its numbers, and what they read element by element."""

    nodes: tuple[Node, ...]
    repeated: dict[Value, Value]
    tensors: tuple[Value, ...]

    def along(self, v: Value) -> Along:
        """What a value that they read differs along."""
        axes = v.node.attrs["broadcast_dimensions"] if v in self.repeated else range(5)
        return Along(*(first in axes for first in (0, 1, 3)))


def _after(loop: Loop, stencil: Node) -> _After | None:
    """What follows the stencil; None where that is more than elements of one dtype."""
    result, nodes, repeated = stencil.types[0], list[Node](), dict[Value, Value]()
    for n in loop.body.nodes:
        v, values = n.values[0], (*n.inputs, *n.values)
        if n is stencil or n.op.name == "parameter" or splat(v) is not None:
            continue
        if v.shape == result.shape and _repeats(n, loop):
            repeated[v] = n.inputs[0]
        elif Trait.elementwise in n.op.traits and all(x.shape == result.shape for x in values):
            nodes.append(n)
        else:
            return None
    read = [v for n in nodes for v in n.inputs]
    if {v.dtype for v in (*read, *loop.rows)} - {DType.i1} != {result.dtype} or loop.rows[0].dtype is DType.i1:
        return None
    return _After(tuple(nodes), repeated, tuple(dict.fromkeys(v for v in read if v in loop.x_params)))


def _repeats(n: Node, loop: Loop) -> bool:
    """Whether a node repeats a parameter along batches, along the outputs of all groups, or along all places."""
    if n.op.name != "broadcast_in_dim" or n.inputs[0] not in loop.const_params:
        return False
    axes, to = n.attrs["broadcast_dimensions"], n.types[0].shape
    whole = all((first in axes) == (first + 1 in axes) for first in (1, 3))
    return whole and axes == tuple(sorted(axes)) and n.inputs[0].shape == tuple(to[i] for i in axes)
