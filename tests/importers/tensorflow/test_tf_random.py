"""A few of the campaign's random modules of TensorFlow: results at three sizes and gradients beside its own."""

from __future__ import annotations

import pytest
import tensorflow_models as tm
from device import need, need_target
from tensorflow_compare import compare, sizes_agree

import lstm_ir as li

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("models")]
NUMBERS = range(8)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tm.Recorded]:
    need("tensorflow")
    return tm.made(tmp_path_factory.mktemp("random"), 9, "tensorflow_random", [f"random_{k}" for k in NUMBERS])


@pytest.mark.parametrize("number", NUMBERS)
def test_beside_tensorflow(number: int, models: dict[str, tm.Recorded]) -> None:
    want = models[f"random_{number}"]
    sizes_agree(want, li.from_tf(want.path))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("number", NUMBERS)
def test_compiled(number: int, target: str, models: dict[str, tm.Recorded]) -> None:
    need_target(target)
    want = models[f"random_{number}"]
    compare(want, li.from_tf(want.path), target, gradients=False)
