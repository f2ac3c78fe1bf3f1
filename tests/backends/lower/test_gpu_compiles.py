"""Forms that IREE's compiler refused for GPUs: each is compiled for one that is not here."""

from __future__ import annotations

import pytest

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.run.devices import resolve

GPUS = ("cuda:sm_89", "hip:gfx942")


def compiles(graph: li.Graph, target: str) -> None:
    _, blob = build(li.Program("p", {"main": graph}), resolve(target), {})
    assert len(blob) > 1000


@pytest.mark.parametrize("target", GPUS)
def test_sums_of_negated_elements(target: str) -> None:
    x = li.input("x", ("N",))
    compiles(li.Graph("sums", [x], {"y": li.sum(-x), "z": li.sum(-li.exp(x))}), target)


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_scatters_of_halves(dtype: str, target: str) -> None:
    x, u, v = (li.input(n, s, dtype) for n, s in (("x", (5, 7)), ("u", (6, 7)), ("v", (5, 6))))
    i = li.input("i", (6,), "i32")
    outs = {"rows": li.scatter_add(x, i, u), "columns": li.scatter_add(x, i, v, 1)}
    compiles(li.Graph("scatters", [x, u, v, i], outs), target)


@pytest.mark.parametrize("steps", [5, "T"])
def test_a_loop_that_starts_from_bfloat16(steps: int | str) -> None:
    x = li.input("x", (steps, 3, 9))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        new = li.convert((row + li.convert(h, "f32") * 0.5) * 1.5, "bf16")
        return new, li.convert(new, "f32")

    _, y = li.scan(cell, li.zeros((3, 9), "bf16"), x)
    compiles(li.Graph("loop", [x], {"y": y}), GPUS[0])
