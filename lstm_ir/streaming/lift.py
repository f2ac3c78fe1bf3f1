"""From a graph over a whole recording to a program that takes it in parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.data import Data
from lstm_ir.ir.graph import Arg, Graph, Node, Value, make_node, map_arg
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.program import Program
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.primitive.shape import concat
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.streaming.causality import Causality
from lstm_ir.streaming.findings import Kept, LoopState, RunningSum, WindowContext
from lstm_ir.streaming.stateful import stateful

FINALS = {"h0": "h_n", "c0": "c_n"}


def _with(numbers: tuple[int, ...], at_: int, number: int) -> tuple[int, ...]:
    return (*numbers[:at_], number, *numbers[at_ + 1 :])


def lifted(causality: Causality) -> Program:
    """The program of `li.stateful` whose state is what the analysis keeps; no reason may be left."""
    assert not causality.reasons
    graph, lift = causality.graph, _Lift(causality.graph)
    env: dict[Value, Value] = {}
    for old in graph.nodes:
        with at(old.loc.through("stateful")):
            new = lift.over(old, tuple(map_arg(a, env) for a in old.args), causality.carried.get(old))
        env |= {o: v for o, v in zip(old.values, new.values, strict=True) if o is not v}
    outputs = {n: env.get(v, v) for n, v in zip(graph.output_names, graph.outputs, strict=True)}
    whole = Graph(graph.name, [*graph.params, *lift.inputs.values()], outputs | lift.outputs)
    return stateful(whole, {n: n for n in lift.inputs}, lift.starts)


class _Lift:
    """States by name, as they are made: their inputs, outputs, and what they start as."""

    def __init__(self, graph: Graph) -> None:
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.starts: dict[str, Any] = {}
        self._taken = {*graph.input_names, *graph.output_names}

    def over(self, old: Node, args: tuple[Arg, ...], carried: Kept | None) -> Node:
        """The node over new arguments, with what it keeps."""
        if carried is None:
            return old.with_args(args)
        if isinstance(carried, WindowContext):
            return self._window(old, args, carried)
        if isinstance(carried, RunningSum):
            return self._sum(old, args, carried)
        return self._loop(old, args, carried) if old.op.name == "scan" else self._layer(old, args, carried)

    def _window(self, old: Node, args: tuple[Arg, ...], context: WindowContext) -> Node:
        """Over the kept rows and those of the call, without padding before them."""
        a = old.attrs
        if old.op.name == "concatenate":
            values = args[0]
            assert isinstance(values, tuple)
            at_ = next(i for i, v in enumerate(values) if not isinstance(v.shape[context.axis], int))
            return concat([self._joined(old, values[at_], context), *values[at_ + 1 :]], context.axis).node
        x = args[0]
        assert isinstance(x, Value)
        joined = self._joined(old, x, context)
        if old.op.name == "pad":
            changed = {"edge_padding_low": _with(a["edge_padding_low"], context.axis, 0)}
        elif old.op.name == "convolution_transpose":  # what the rows before give stands before, and is cut off
            axis = context.axis - 2
            more = a["padding_low"][axis] + context.rows * a["strides"][axis]
            changed = {"padding_low": _with(a["padding_low"], axis, more)}
        else:
            changed = {"padding_low": _with(a["padding_low"], context.axis - 2, 0)}
        return make_node(old.op, (joined, *args[1:]), {**a, **changed}, old.loc)

    def _joined(self, old: Node, x: Value, context: WindowContext) -> Value:
        """The kept rows and those of the call; the last of both are kept."""
        name, first = self._state(old, "context", x.type.resized(context.axis, context.rows), context.value)
        joined = concat([first, x], context.axis)
        end = dims.add(joined.shape[context.axis], -context.more)
        self.outputs[name] = slice_axis(joined, context.axis, dims.add(end, -context.rows), end)
        return joined

    def _sum(self, old: Node, args: tuple[Arg, ...], kept: RunningSum) -> Node:
        """The sum so far is added to those of the call, and the last of them is kept."""
        x, axis = args[0], kept.axis
        assert isinstance(x, Value)
        name, before = self._state(old, "sum", x.type.resized(axis, 1), None)
        sums = make_node(old.op, args, {**old.attrs, "exclusive": False}, old.loc).values[0] + before
        joined = concat([before, sums], axis)
        self.outputs[name] = slice_axis(joined, axis, x.shape[axis], joined.shape[axis])
        return (slice_axis(joined, axis, 0, x.shape[axis]) if old.attrs["exclusive"] else sums).node

    def _loop(self, old: Node, args: tuple[Arg, ...], state: LoopState) -> Node:
        loop, index = Loop(old), old.op.operand_index("init")
        states = [
            self._state(old, f"carry{i}", v.type, start)
            for i, (v, start) in enumerate(zip(loop.init, state.starts.values(), strict=True))
        ]
        node = old.with_args((*args[:index], tuple(v for _, v in states), *args[index + 1 :]))
        self.outputs |= {name: v for (name, _), v in zip(states, Loop(node).finals, strict=True)}
        return node

    def _layer(self, old: Node, args: tuple[Arg, ...], state: LoopState) -> Node:
        new, names = list(args), {}
        for operand, start in state.starts.items():
            final = old.result(FINALS[operand])
            assert isinstance(final, Value)
            names[operand], new[old.op.operand_index(operand)] = self._state(old, operand[0], final.type, start)
        node = old.with_args(tuple(new))
        for operand, name in names.items():
            final = node.result(FINALS[operand])
            assert isinstance(final, Value)
            self.outputs[name] = final
        return node

    def _state(self, old: Node, word: str, kind: TensorType, start: Any) -> tuple[str, Value]:
        """A new input for a state, and its name: that of the node in its file, and a word."""
        base = f"{old.loc.node or old.op.name}.{word}"
        name, n = base, 2
        while name in self._taken:
            name, n = f"{base}#{n}", n + 1
        self._taken.add(name)
        self.inputs[name] = parameter(name, kind)
        if start is not None:
            self.starts[name] = Data.of(np.asarray(start, kind.dtype.numpy))
        return name, self.inputs[name]
