"""`li.stateful`: a recurrent graph that keeps its state between calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir.called import told
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import VerifyError
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.near_names import hint
from lstm_ir.ir.options import refuse
from lstm_ir.ir.program import Program, State, need_graph
from lstm_ir.streaming.start import MAX_BYTES, start_bytes, start_shape


@told({"states": "state, a dict from inputs to outputs", "init": "initial", "initial_state": "initial"})
def stateful(graph: Graph, state: Mapping[str, str], initial: Mapping[str, Any] | None = None) -> Program:
    """A program that feeds outputs back: `stateful(g, {"h0": "h_n"})` keeps h_n as the next call's h0.

    Entries: `main` the graph as it is, `step` without what is kept, `get_state` and `set_state` all of
    it by input name, `reset` starts it again. It starts as `initial`, or as zeros; a size with a name
    is that of the first call after a reset.
    """
    need_graph(
        "stateful", graph,
        "to train a stream, train_step(stateful(graph, ...), ...); to stream what was trained, stateful of the graph, "
        "with the weights that `state` of the executable holds",
    )  # fmt: skip
    if not isinstance(state, Mapping):
        raise refuse("stateful", "state", state, 'a dict from inputs to outputs, such as {"h0": "h_n"}')
    if not state:
        raise VerifyError("stateful: no input is named, so there is nothing to keep")
    params = dict(zip(graph.input_names, graph.params, strict=True))
    start = dict({} if initial is None else initial)
    for known, asked, what in (
        (params, state, "input"), (graph.output_names, state.values(), "output"), (state, start, "state"),
    ):  # fmt: skip
        unknown = sorted(set(asked) - set(known))
        if unknown:
            name, outputs = unknown[0], graph.output_names
            if what == "input" and name in outputs and state[name] in params:
                turned = f"{{{state[name]!r}: {name!r}}}"
                raise VerifyError(f"stateful: {name!r} is an output; state is {{input: output}}: {turned}")
            there = f"; there are {', '.join(map(str, known)) or 'none'}"
            raise VerifyError(f"stateful: graph @{graph.name} has no {what} {name!r}{hint(name, known, there)}")
    if len(set(state.values())) != len(state):
        raise VerifyError("stateful: one output is fed to two inputs")
    kept = {n: params[n] for n in state}
    return Program(
        graph.name,
        {"main": graph, "step": graph, **_by_name(kept), "reset": Graph("reset", [], {})},
        {n: _state(n, v, start.get(n)) for n, v in kept.items()},
        {
            "step": ({n: n for n in state}, {out: n for n, out in state.items()}),
            "get_state": ({n: n for n in state}, {}),
            "set_state": ({}, {n: n for n in state}),
        },
    )


def _by_name(state: Mapping[str, Value]) -> dict[str, Graph]:
    """Graphs that give their inputs back: what is bound makes one a reader, the other a writer."""
    out = {}
    for entry in ("get_state", "set_state"):
        values = {n: parameter(n, v.type) for n, v in state.items()}
        out[entry] = Graph(entry, list(values.values()), values)
    return out


def _state(name: str, like: Value, start: Any) -> State:
    if start is None:
        size = start_bytes(like.type)
        if size > MAX_BYTES:
            raise VerifyError(
                f"stateful: {name} is {like.type}: it starts as {size} bytes, at most {MAX_BYTES} are taken; give its "
                "axes names, or less rows"
            )
        return State(name, Data.of(np.zeros(start_shape(like.type), like.dtype.numpy)), like.type)
    return State(name, start, like.type)
