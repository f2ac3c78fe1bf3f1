"""Gradients where slopes jump: equal elements, bounds, zeros. There TensorFlow's choice is the right one."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow_models as tm
from device import need
from tensorflow_compare import close
from tensorflow_kink_cases import FUNCTIONS

import lstm_ir as li

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("model")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[tm.Recorded, li.Graph]:
    need("tensorflow")
    want = tm.made(tmp_path_factory.mktemp("kinks"), 5, "tensorflow_kink_cases", ["all"])["all"]
    graph = li.from_tf(want.path)
    assert isinstance(graph, li.Graph)
    return want, graph


@pytest.mark.parametrize("name", FUNCTIONS)
def test_beside_tensorflow(name: str, model: tuple[tm.Recorded, li.Graph]) -> None:
    want, graph = model
    back = li.vjp(graph, [name], ["x"], missing="zeros")
    found = li.interpret(back, {"x": want.inputs["x"], f"ct_{name}": want.cotangents[name]})
    close(found, {name: want.outputs[name]}, 2e-5)
    np.testing.assert_allclose(found["d_x"], want.gradients[name], atol=2e-5, rtol=1e-5)
