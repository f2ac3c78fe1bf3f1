"""Every pass on every graph: same meaning, same object when idle, same text, user's lines."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from hypothesis import HealthCheck, given, settings
from random_graphs import graphs

import lstm_ir as li
from lstm_ir.passes.base import Pass
from lstm_ir.passes.pipeline import Pipeline
from lstm_ir.passes.pipelines import NAMED, PRECISIONS, registry

OWN = {Path(li.__file__).parent, *(Path(li.__file__).parents[1] / p for p in ("passes", "backends"))}
TEXTS = sorted(registry())
ROUNDING = (*PRECISIONS, "precision")  # these change results on purpose: test_precision.py

# Passes that fuse or move products sum in another order: a few roundings of values up to 10,
# through at most 11 steps. The others keep every bit; NumPy's products of transposes may not.
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "float64": 1e-11}


@cache
def animal(name: str) -> zoo.Animal:
    return zoo.get(name)


@cache
def meaning(name: str) -> dict[str, Any]:
    return li.interpret(animal(name).graph, animal(name).inputs)


def same(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert got.keys() == want.keys()
    for k, v in want.items():
        assert got[k].dtype == v.dtype
        assert got[k].shape == v.shape
        limit = TOLERANCE.get(v.dtype.name, 0)
        np.testing.assert_allclose(got[k], v, rtol=limit, atol=limit, err_msg=k)


def arrays(graph: li.Graph) -> dict[str, Any]:
    """Every array of the graph and its bodies, by hash."""
    out: dict[str, Any] = {}
    for n in graph.nodes:
        for a in n.attrs.values():
            if isinstance(a, li.Graph):
                out |= arrays(a)
            elif isinstance(a, li.Data):
                out[a.sha256] = a.array
    return out


def deep(graph: li.Graph) -> list[li.Node]:
    inner = [m for n in graph.nodes for a in n.attrs.values() if isinstance(a, li.Graph) for m in deep(a)]
    return [*graph.nodes, *inner]


def check(pipeline: Pipeline, graph: li.Graph) -> li.Graph:
    """The contract of passes, meaning apart."""
    after = pipeline.run(graph).graph
    li.verify(after)
    assert pipeline.run(after).graph is after, "the second run changed something"
    text = str(after)
    assert str(li.parse(text, arrays(after))) == text
    for n in deep(after):
        assert n.loc.line > 0
        assert Path(n.loc.file).parent not in OWN, (n, n.loc)
    return after


@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("text", TEXTS)
def test_contract(text: str, name: str) -> None:
    after = check(Pipeline.parse(text), animal(name).graph)
    if text not in ROUNDING:
        same(li.interpret(after, animal(name).inputs), meaning(name))


@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("text", [n for n in NAMED if n not in ROUNDING])
def test_pipelines_keep_the_meaning(text: str, name: str) -> None:
    after = Pipeline.parse(text).run(animal(name).graph).graph
    same(li.interpret(after, animal(name).inputs), meaning(name))


@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_second_pass_after_the_pipeline_keeps_the_meaning(name: str) -> None:
    """Every pass on scheduled graphs too: loops with hoisted operands, joined weights."""
    graph = Pipeline.parse("default").run(animal(name).graph).graph
    for text in TEXTS:
        after = check(Pipeline.parse(text), graph)
        if text not in ROUNDING:
            same(li.interpret(after, animal(name).inputs), meaning(name))


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs(case: tuple[li.Graph, dict[str, Any]]) -> None:
    graph, inputs = case
    want = li.interpret(graph, inputs)
    for text in TEXTS:
        after = check(Pipeline.parse(text), graph)
        if text not in ROUNDING:
            same(li.interpret(after, inputs), want)
    same(li.interpret(Pipeline.parse("default").run(graph).graph, inputs), want)


def test_every_pass_is_a_frozen_dataclass_with_a_name_and_a_docstring() -> None:
    for name, cls in registry().items():
        assert issubclass(cls, Pass)
        assert cls.name == name
        assert cls.__doc__
        with pytest.raises(AttributeError):
            cls().name = "other"  # type: ignore[misc]
