"""What a state starts as: the elements of a value that follow from the file alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Graph, Value, topological
from lstm_ir.ir.interpret import run_node
from lstm_ir.ir.sizes import sizes_of
from lstm_ir.ir.types import TensorType
from lstm_ir.streaming.facts import Fact, Fixed

Array = np.ndarray[Any, Any]
MAX_BYTES = 2**31 - 1  # of what a state starts as; one axis of a damaged file may say more than a machine has


def start_shape(t: TensorType) -> tuple[int, ...]:
    """The shape of a start of this type: 1 in the place of named sizes."""
    return tuple(d if isinstance(d, int) else 1 for d in t.shape)


def start_bytes(t: TensorType) -> int:
    """How much a start of this type takes."""
    return math.prod(start_shape(t)) * t.dtype.bytes


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
    largest = max(start_bytes(t) for n in nodes for t in n.types)
    if largest > MAX_BYTES:
        return f"takes {largest} bytes, more than {MAX_BYTES}"
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
