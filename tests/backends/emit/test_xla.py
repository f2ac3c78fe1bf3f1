"""Static graphs are pure StableHLO: XLA's CPU compiler takes them and computes the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xla
import zoo
from device import need

import lstm_ir as li
from lstm_ir.data import digits, digits_lstm
from lstm_ir.ir.binding import bind_sizes

STATIC = sorted(zoo.ZOO)
DIALECTS = {"builtin", "func", "stablehlo"}
OP = re.compile(r'^\s*(?:%[\w:#, %]+ = )?"?([a-z_]+)\.[a-z_]+', re.M)


def static(name: str) -> tuple[li.Graph, dict[str, np.ndarray]]:
    """The animal with its named sizes bound to those of its inputs."""
    animal = zoo.get(name)
    sizes: dict[str, int] = {}
    for p, n in zip(animal.graph.params, animal.graph.input_names, strict=True):
        for d, size in zip(p.shape, animal.inputs[n].shape, strict=True):
            if not isinstance(d, int) and str(d).isidentifier():
                sizes[str(d)] = size
    return bind_sizes(animal.graph, sizes), animal.inputs


@pytest.mark.parametrize("name", STATIC)
def test_static_graphs_are_pure_stablehlo(name: str) -> None:
    graph, _ = static(name)
    assert graph.is_static
    text = li.lower(graph)
    used = set(OP.findall(text)) - {"module", "return"}
    assert used <= DIALECTS
    assert "stablehlo" in used


@pytest.mark.parametrize("name", STATIC)
def test_xla_computes_the_numpy_meaning(name: str) -> None:
    need("jax")
    graph, inputs = static(name)
    want = li.interpret(graph, inputs)
    got = xla.run(graph, inputs)
    assert set(got) == set(want)
    for key, w in want.items():
        assert got[key].dtype == w.dtype
        tolerance = 2e-3 if w.dtype.itemsize == 2 else 2e-5  # halves round each result to 11 bits
        np.testing.assert_allclose(got[key].astype("f8"), w.astype("f8"), rtol=tolerance, atol=tolerance, err_msg=key)


def test_xla_reads_digits_as_well() -> None:
    need("jax")
    w, data = digits_lstm(), digits()
    x = li.input("x", (8, 360, 8))
    _, h, _ = li.lstm(x, *(li.weight(f"lstm/{n}", w[f"lstm/{n}"]) for n in ("w_ih", "w_hh", "b")))
    logits = h[0] @ li.transpose(li.weight("head/w", w["head/w"]), (1, 0)) + w["head/b"]
    graph = li.Graph("digits", [x], {"logits": logits})
    rows = np.ascontiguousarray(data.test_images.transpose(1, 0, 2) / np.float32(16), np.float32)
    said = xla.run(graph, {"x": rows})["logits"].argmax(axis=1)
    assert float((said == data.test_labels).mean()) > 0.95


def test_weights_are_arguments_in_the_order_of_the_source() -> None:
    x = li.input("x", (11, 3, 5))
    a, b = np.ones((28, 5), "f4"), np.ones((28, 7), "f4")
    y, _, _ = li.lstm(x, li.weight("in", a), li.weight("rec", b))
    graph = li.Graph("g", [x], {"y": y})
    assert list(graph.weights) == ["in", "rec"]
    head = li.lower(graph).partition("->")[0]
    assert re.findall(r"tensor<(\w+)>", head) == ["11x3x5xf32", "28x5xf32", "28x7xf32"]
