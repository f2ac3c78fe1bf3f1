"""A failing graph made smaller: one output, then fewer nodes, as long as it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.ir.clone import clone

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Fails = Callable[[li.Graph, Arrays], bool]


def shrunk(graph: li.Graph, arrays: Mapping[str, Array], fails: Fails, seconds: float) -> tuple[li.Graph, Arrays]:
    """The smallest graph found in so many seconds, and its inputs."""
    end = time.monotonic() + seconds
    held: Arrays = dict(arrays)
    for n in graph.nodes:  # the first value that is wrong
        if n.op.name in ("parameter", "constant", "weight", "dim"):
            continue
        part = li.Graph("part", graph.params, {f"y{k}": v for k, v in enumerate(n.values)})
        if time.monotonic() < end and fails(part, held):
            graph = part
            break
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for n in reversed(graph.nodes[:-1]):
            if n.op.name == "parameter" or time.monotonic() > end:
                continue
            cut = _without(graph, held, n.values)
            if cut is not None and fails(*cut):
                (graph, held), changed = cut, True
                break
    used = [p for p in graph.params if graph.users.get(p) or p in graph.outputs]
    fewer = li.Graph(graph.name, used, dict(zip(graph.output_names, graph.outputs, strict=True)))
    names = set(fewer.input_names)
    kept = {k: a for k, a in held.items() if k in names}
    return (fewer, kept) if len(used) < len(graph.params) and fails(fewer, kept) else (graph, held)


def _without(graph: li.Graph, arrays: Arrays, values: tuple[li.Value, ...]) -> tuple[li.Graph, Arrays] | None:
    """These values as inputs, with what they were."""
    new = [li.parameter(f"cut{len(graph.params) + k}", v.type) for k, v in enumerate(values)]
    outputs = clone(graph.outputs, dict(zip(values, new, strict=True)))
    known = li.interpret(li.Graph("known", graph.params, {f"y{k}": v for k, v in enumerate(values)}), arrays)
    found = {p.node.attrs["name"]: known[f"y{k}"] for k, p in enumerate(new)}
    made = li.Graph(graph.name, [*graph.params, *new], dict(zip(graph.output_names, outputs, strict=True)))
    return made, arrays | found
