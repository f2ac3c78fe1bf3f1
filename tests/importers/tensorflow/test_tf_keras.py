"""SavedModels that Keras 3 exports: results and gradients beside TensorFlow's own."""

from __future__ import annotations

import pytest
import tensorflow_models as tm
from device import need, need_target
from tensorflow_compare import compare
from tensorflow_keras_cases import CASES

import lstm_ir as li

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("models")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> dict[str, tm.Recorded]:
    need("tensorflow")
    folder = tmp_path_factory.mktemp("keras")
    return tm.made(folder, 1, "tensorflow_keras_cases", list(CASES))


@pytest.mark.parametrize("name", CASES)
def test_beside_tensorflow(name: str, models: dict[str, tm.Recorded]) -> None:
    compare(models[name], li.from_tf(models[name].path))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str, target: str, models: dict[str, tm.Recorded]) -> None:
    need_target(target)
    compare(models[name], li.from_tf(models[name].path), target, gradients=False)
