"""Architectures from papers, exported by both of PyTorch's exporters: by the meaning and compiled, at several sizes.

Expected values are torch's; onnxruntime, which runs the same file, agrees with them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import exported_models as em
import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li

LIMIT = 1e-5  # of the largest element of a result
NEWEST = {"trace": 20, "export": 25}
CASES = [(way, name) for way in em.WAYS for name in em.NAMES if way == "trace" or name not in em.PACKED]
VULKAN = ("text line", "basecaller", "suppressor", "amplifier")


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch", "onnx", "onnx_ir", "onnxruntime", "onnxscript")


@cache
def file(name: str, way: str, opset: int) -> tuple[em.Exported, bytes]:
    made = em.built(name, 5)
    return made, made.exported(way, opset, np.random.default_rng(5))


def held(call: Any, name: str, way: str, opset: int, rng: np.random.Generator, other: bool = False) -> None:
    """Results of calls of all sizes beside torch's; with `other` onnxruntime's too."""
    made, data = file(name, way, opset)
    for sizes in made.sizes(data):
        given = made.arrays(sizes, rng)
        wanted = made.results(given)
        sides = [list(call(given).values())]
        if other:
            sides.append(om.run_bytes(data, given))
        for side in sides:
            for got, want in zip(side, wanted, strict=True):
                assert (got.shape, got.dtype) == (want.shape, want.dtype), sizes
                worst = np.abs(got.astype("f8") - want).max(initial=0)
                assert worst <= LIMIT * max(1.0, np.abs(want).max(initial=0)), (sizes, worst)


def meant(name: str, way: str, opset: int, rng: np.random.Generator) -> None:
    g = li.from_onnx(file(name, way, opset)[1])
    named = {d for shape in em.built(name, 3).inputs.values() for d in shape if isinstance(d, str) and d != "i"}
    closed = set(em.CLOSED.get(name, "")) if way == "export" else set()
    assert g.is_static == (named <= closed)
    held(lambda given: li.interpret(g, {n: given[n] for n in g.input_names}), name, way, opset, rng, other=True)


@pytest.mark.parametrize("name", em.NAMES)
def test_traced(name: str, rng: np.random.Generator) -> None:
    """By the older exporter."""
    meant(name, "trace", NEWEST["trace"], rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in em.NAMES if n not in em.PACKED])
def test_exported(name: str, rng: np.random.Generator) -> None:
    """By the newer exporter, at its first and its newest operator set."""
    for opset in (em.OPSETS["export"][0], NEWEST["export"]):
        meant(name, "export", opset, rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", em.NAMES)
def test_every_operator_set(name: str, rng: np.random.Generator) -> None:
    """By the older exporter."""
    for opset in em.OPSETS["trace"]:
        if opset >= em.FIRST.get(name, 0):
            meant(name, "trace", opset, rng)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "name"), CASES)
def test_compiled(way: str, name: str, rng: np.random.Generator) -> None:
    g = li.from_onnx(file(name, way, NEWEST[way])[1])
    with li.compile(g) as exe:
        held(lambda given: exe(**{n: given[n] for n in g.input_names}), name, way, NEWEST[way], rng)


@pytest.mark.slow
@pytest.mark.vulkan
@pytest.mark.parametrize("name", VULKAN)
def test_on_vulkan(name: str, rng: np.random.Generator) -> None:
    need("vulkan")
    with li.compile(li.from_onnx(file(name, "trace", NEWEST["trace"])[1]), "vulkan") as exe:
        held(lambda given: exe(**given), name, "trace", NEWEST["trace"], rng)
