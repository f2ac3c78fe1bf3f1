"""What a state starts as: the elements of a value that follow from the file alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Graph, Value, topological
from lstm_ir.ir.interpret import run_node
from lstm_ir.ir.sizes import sizes_of
from lstm_ir.streaming.facts import Fact, Fixed

Array = np.ndarray[Any, Any]


def start_of(v: Value, fact: Fact | None) -> Array | str:
    """The elements of `v`, with 1 in the place of named sizes, or why they are not known.

    The axes of named sizes have to be even: then the elements at size 1 are those at every size.
    """
    nodes = list(topological([v.node]))
    inputs = sorted(n.attrs["name"] for n in nodes if n.op.name == "parameter")
    if inputs:
        return f"comes from the input {inputs[0]}"
    even = fact.even if isinstance(fact, Fixed) else frozenset()
    if any(not isinstance(d, int) and axis not in even for axis, d in enumerate(v.shape)):
        return "differs along an axis whose size only a call knows"
    sizes = sizes_of(nodes)
    if any(isinstance(a, Graph) for n in nodes for a in n.attrs.values()):
        return "is the result of a loop"
    known: dict[Value, Array] = {}
    try:
        for n in nodes:
            known.update(zip(n.values, run_node(n, known, dict.fromkeys(sizes, 1)), strict=True))
    except LstmIrError as e:
        return f"cannot be computed: {str(e).splitlines()[0]}"
    return known[v]


def advice(why: str) -> str:
    """What to do where a state comes from an input."""
    return ": name it in `stateful`, with the output that it becomes" if "the input" in why else ""
