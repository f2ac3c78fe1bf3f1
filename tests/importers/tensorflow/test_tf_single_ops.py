"""Single ops: results and gradients beside TensorFlow's own, and that there is a case for each op of the table."""

from __future__ import annotations

import pytest
import tensorflow_models as tm
from device import need
from tensorflow_compare import compare
from tensorflow_op_cases import CASES

import lstm_ir as li

pytestmark = pytest.mark.xdist_group("tensorflow")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tm.Recorded]:
    need("tensorflow")
    return tm.made(tmp_path_factory.mktemp("ops"), 4, "tensorflow_op_cases", list(CASES))


@pytest.mark.parametrize("name", CASES)
def test_beside_tensorflow(name: str, models: dict[str, tm.Recorded]) -> None:
    want = models[name]
    graph = li.from_tf(want.path, outputs=list(want.outputs))
    assert isinstance(graph, li.Graph)
    compare(want, graph, gradients=bool(want.gradients))
