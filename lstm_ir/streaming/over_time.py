"""`li.over_time`: of a graph for one frame a graph for a whole recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.called import told
from lstm_ir.ir.clone import clone
from lstm_ir.ir.errors import DimError, VerifyError
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.options import refuse, several
from lstm_ir.ir.program import need_graph
from lstm_ir.ir.sizes import sizes_of
from lstm_ir.ir.types import DimLike, shape_of
from lstm_ir.ops.scan.builder import scan


@told({"inputs": "xs", "carry": "state", "init": "state", "time": "length, the name of a size"})
def over_time(
    graph: Graph, state: Mapping[str, str], xs: Sequence[str], *, length: DimLike = "T", name: str | None = None
) -> Graph:
    """A graph that runs `graph`, which takes one frame, over all frames of a recording in one call.

    state: `{"h0": "h_n"}` says that the output h_n of a frame is the input h0 of the next one. xs:
    the inputs that have one row for each frame. They gain a leading axis of size `length`; so do
    the outputs that are no state. The inputs of `state` are those of the first frame, its outputs
    those of the last one; without frames they are the inputs. All other inputs are the same at every
    frame. Gradients pass through it. name: that of the new graph. Raises VerifyError for a name that
    the graph does not have, a state that changes its type, and a `length` that the graph uses already.
    """
    need_graph("over_time", graph, "run one of its entries over time")
    if not isinstance(state, Mapping):
        raise refuse("over_time", "state", state, "names of inputs and outputs")
    rows = _rows(graph, length)
    params = dict(zip(graph.input_names, graph.params, strict=True))
    scanned = [str(n) for n in several("over_time", "xs", xs)]
    _check_names(graph, state, scanned)
    for taken, given in state.items():
        if params[taken].type != graph.output(given).type:
            problem = f"goes in as {params[taken].type} and comes out as {graph.output(given).type}"
            raise VerifyError(f"over_time: the state {taken!r} {problem} ({given!r})")
    new = {n: parameter(n, v.type.with_shape((rows, *v.shape)) if n in scanned else v.type) for n, v in params.items()}
    still = {params[n]: new[n] for n in params if n not in scanned and n not in state}
    stacked = [n for n in graph.output_names if n not in state.values()]
    results = [graph.output(n) for n in (*state.values(), *stacked)]

    def frame(carry: tuple[Value, ...], x: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        env = dict(zip((params[n] for n in state), carry, strict=True))
        env |= dict(zip((params[n] for n in scanned), x, strict=True))
        out = tuple(clone(results, {**still, **env}))
        return out[: len(state)], out[len(state) :]

    last, ys = scan(frame, tuple(new[n] for n in state), tuple(new[n] for n in scanned), name=f"{graph.name}_frame")
    found: dict[str, Any] = dict(zip((*state.values(), *stacked), (*last, *ys), strict=True))
    return Graph(name or f"{graph.name}_over_time", list(new.values()), {n: found[n] for n in graph.output_names})


def _rows(graph: Graph, length: DimLike) -> dims.Dim:
    try:
        (rows,) = shape_of((length,))
    except DimError as e:
        raise VerifyError(f"over_time: length: {e}") from None
    shared = sorted(dims.names(rows) & sizes_of(graph.nodes))
    if shared:
        raise VerifyError(f"over_time: graph @{graph.name} has the size {shared[0]} already; give another `length`")
    return rows


def _check_names(graph: Graph, state: Mapping[str, str], xs: Sequence[str]) -> None:
    if not xs:
        raise VerifyError("over_time: xs names no input, so there are no frames")
    for known, asked, what in (
        (graph.input_names, (*state, *xs), "input"), (graph.output_names, state.values(), "output"),
    ):  # fmt: skip
        unknown = sorted(set(asked) - set(known))
        if unknown:
            raise VerifyError(f"over_time: graph @{graph.name} has no {what} {unknown[0]!r}")
    for names, what in (((*state, *xs), "the input"), (tuple(state.values()), "the output")):
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise VerifyError(f"over_time: {what} {twice!r} is named twice")
