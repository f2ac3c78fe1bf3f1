"""The recorded results that ship with the package, as rows of the oracle table."""

from __future__ import annotations

import json
from functools import cache, partial
from importlib import resources
from typing import Any

import numpy as np

from lstm_ir.demo.oracle_table import Case, Vectors, register
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.parser import parse

Array = np.ndarray[Any, Any]


@cache
def _file() -> tuple[list[dict[str, str]], dict[str, Array]]:
    """The cases' op, oracle and graph text; and all arrays. `tests/oracles/make_vectors.py` writes them."""
    with (resources.files("lstm_ir.data") / "vectors.npz").open("rb") as file:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("meta").item()), arrays


def vectors(op: str) -> Vectors:
    """Every shipped case of the op."""
    meta, arrays = _file()
    found, oracle = [], ""
    for i, entry in enumerate(meta):
        if entry["op"] == op:
            oracle = entry["oracle"]
            graph = parse(entry["text"])
            assert isinstance(graph, Graph)
            given = {n: arrays[f"{i}/in/{n}"] for n in graph.input_names}
            want = {n: arrays[f"{i}/out/{n}"] for n in graph.output_names}
            found.append(Case(graph, given, want))
    return Vectors(oracle, found)


def _register() -> None:
    for op in dict.fromkeys(entry["op"] for entry in _file()[0]):
        register(op, partial(vectors, op))


_register()
