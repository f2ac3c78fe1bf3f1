"""Graphs of one foreign op, its expansion, its results compared, and the files of its recorded cases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.ir.expansion import expansion

Array = np.ndarray[Any, Any]


def graph(
    op: str,
    arrays: Mapping[str, Array],
    attrs: Mapping[str, Any],
    named: Mapping[str, tuple[Any, ...]] | None = None,
    name: str = "g",
    prefix: str = "",
) -> li.Graph:
    """The op over inputs; `named` gives shapes with dimension names, `prefix` stands before names of results."""
    shapes = {k: a.shape for k, a in arrays.items()} | dict(named or {})
    ins = {k: li.input(k, shapes[k], li.DType.of(a.dtype)) for k, a in arrays.items()}
    outputs = {f"{prefix}{k}": v for k, v in li.op(op, **ins, **attrs)._asdict().items()}
    return li.Graph(name, list(ins.values()), outputs)


def expanded(g: li.Graph) -> li.Graph:
    """The graph with its one op replaced by what it expands into."""
    return g.replace(expansion(g.outputs[0].node, "expand"))


def close(got: Mapping[str, Any], want: Mapping[str, Any], tolerance: float, what: object) -> None:
    """Every result within `tolerance`, absolute and relative."""
    assert list(got) == list(want), what
    for k in want:
        a, b = np.asarray(got[k]), np.asarray(want[k])
        assert a.shape == b.shape, f"{what}: {k} is {a.shape}, expected {b.shape}"
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"{what}: {k}")


@cache
def manifest(folder: Path) -> Any:
    """The description of the recorded cases."""
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def check_files(folder: Path) -> None:
    """The files of the cases are those that were recorded."""
    for entry in manifest(folder)["cases"]:
        data = (folder / entry["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"], entry["file"]
