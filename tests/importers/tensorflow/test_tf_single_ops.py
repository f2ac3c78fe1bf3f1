"""Single ops: results and gradients beside TensorFlow's own, and that there is a case for each op of the table."""

from __future__ import annotations

import pytest
import tensorflow_models as tm
from device import need, need_target
from tensorflow_compare import close, compare
from tensorflow_op_cases import CASES

import lstm_ir as li

pytestmark = pytest.mark.xdist_group("tensorflow")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tm.Recorded]:
    need("tensorflow")
    return tm.made(tmp_path_factory.mktemp("ops"), 4, "tensorflow_op_cases", list(CASES))


def imported(want: tm.Recorded) -> li.Graph:
    graph = li.from_tf(want.path, outputs=list(want.outputs))
    assert isinstance(graph, li.Graph)
    return graph


@pytest.mark.parametrize("name", CASES)
def test_beside_tensorflow(name: str, models: dict[str, tm.Recorded]) -> None:
    want = models[name]
    compare(want, imported(want), gradients=bool(want.gradients))


GROUP = 16
GROUPS = [list(CASES)[at : at + GROUP] for at in range(0, len(CASES), GROUP)]
TARGETS = ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)]


@pytest.mark.slow
@pytest.mark.parametrize("group", range(len(GROUPS)))
@pytest.mark.parametrize("target", TARGETS)
def test_compiled(target: str, group: int, models: dict[str, tm.Recorded]) -> None:
    """Many in one module, an entry each: most of the time of compiling is a module's own."""
    need_target(target)
    wants = {n: models[n] for n in GROUPS[group]}
    entries = {n: imported(w) for n, w in wants.items()}
    with li.compile(li.Program("ops", entries), target) as exe:
        for name, want in wants.items():
            close(exe.entries[name](want.inputs), want.outputs, 2e-5)
