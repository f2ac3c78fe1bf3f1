"""Foreign ops against their origin: one row per op, the worst error on each target that runs here.

A family of ops registers what its origin computed, live or recorded:

    register("tf.BlockLSTM", cases)           in a module that FAMILIES names
    def cases() -> Vectors: ...               raises AbsentError("TensorFlow is not installed")
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.api import compile
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.interpret import interpret
from lstm_ir.ir.opdef import OPS
from lstm_ir.ir.program import Program

FAMILIES = ("lstm_ir.demo.oracle_vectors",)  # modules that call `register` when imported
MEANING = "NumPy meaning"  # the column of the interpreter

Array = np.ndarray[Any, Any]


class AbsentError(LstmIrError):
    """The oracle cannot be asked on this machine; the message says why."""


@dataclass(frozen=True)
class Case:
    """One call of the op: a graph around it, arrays for its inputs, and the origin's results."""

    graph: Graph
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]


@dataclass(frozen=True)
class Vectors:
    """What an origin computed: its name with version, and the cases."""

    oracle: str
    cases: Sequence[Case]


@dataclass(frozen=True)
class OracleRow:
    """One op; `cells` has, per column, a worst error or "not run: reason"."""

    op: str
    oracle: str
    cells: Mapping[str, str]


_SOURCES: dict[str, Callable[[], Vectors]] = {}


def register(op: str, cases: Callable[[], Vectors]) -> None:
    """Say where the results for `op` come from; `cases` is called when the table is made."""
    if op in _SOURCES:
        raise LstmIrError(f"{op} has two oracles")
    _SOURCES[op] = cases


def foreign_ops() -> list[str]:
    """Names of all ops that come from elsewhere: `tf.BlockLSTM`, `onnx.GRU`, …"""
    for family in FAMILIES:
        importlib.import_module(family)
    return sorted(name for name in OPS if "." in name)


def rows(targets: Sequence[str], absent: Mapping[str, str]) -> list[OracleRow]:
    """The table. targets: run here. absent: target -> why it does not run here."""
    return [_row(op, _SOURCES.get(op), targets, absent) for op in foreign_ops()]


def _row(op: str, source: Callable[[], Vectors] | None, targets: Sequence[str], absent: Mapping[str, str]) -> OracleRow:
    away = {t: f"not run: {reason}" for t, reason in absent.items()}
    columns = (MEANING, *targets)
    try:
        if source is None:
            raise AbsentError("no results of its origin are registered")
        vectors = source()
    except AbsentError as e:
        return OracleRow(op, "none", {**{c: f"not run: {e}" for c in columns}, **away})
    cells = {c: _worst(vectors.cases, c) for c in columns}
    return OracleRow(op, vectors.oracle, {**cells, **away})


def _worst(cases: Sequence[Case], column: str) -> str:
    try:
        errors = [error(got, c.expected) for c, got in zip(cases, _run(cases, column), strict=True)]
    except LstmIrError as e:  # a target that refuses a dtype says so in its cell
        return f"refused: {str(e).splitlines()[0]}"
    return f"{max(errors):.1e}" if errors else "not run: no cases"


def _run(cases: Sequence[Case], column: str) -> list[Mapping[str, Array]]:
    if column == MEANING:
        return [interpret(c.graph, c.inputs) for c in cases]
    entries = {f"case{i}": c.graph for i, c in enumerate(cases)}
    exe = compile(Program("oracle", entries), column)
    return [exe.entries[f"case{i}"](c.inputs) for i, c in enumerate(cases)]


def error(got: Mapping[str, Array], want: Mapping[str, Array]) -> float:
    """The largest |got - want| / max(1, |want|); infinite for a missing result or a new NaN."""
    if set(got) != set(want):
        return float("inf")
    worst = 0.0
    for name, w in want.items():
        a, b = np.asarray(got[name], np.float64), np.asarray(w, np.float64)
        if a.shape != b.shape:
            return float("inf")
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            off = np.where(same, 0.0, np.abs(a - b) / np.maximum(1.0, np.abs(b)))
        off = np.where(np.isnan(off), np.inf, off)
        worst = max(worst, float(off.max(initial=0.0)))
    return worst
