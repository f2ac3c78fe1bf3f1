"""Graphs of TensorFlow 1, frozen, with checkpoints, as SavedModels: results and gradients beside its own."""

from __future__ import annotations

import pytest
import tensorflow_models as tm
from device import need
from tensorflow_compare import compare
from tensorflow_graph_cases import CASES

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("models")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> dict[str, tm.Recorded]:
    need("tensorflow")
    folder = tmp_path_factory.mktemp("graphs")
    return tm.made(folder, 2, "tensorflow_graph_cases", list(CASES))


def imported(want: tm.Recorded) -> li.Graph:
    prefix = want.path.with_suffix("")
    there = prefix.with_name(f"{prefix.name}.index").exists()
    found = li.from_tf(
        want.path, checkpoint=prefix if there else None, outputs=list(want.outputs) if want.path.is_file() else None
    )
    assert isinstance(found, li.Graph)
    return found


@pytest.mark.parametrize("name", CASES)
def test_beside_tensorflow(name: str, models: dict[str, tm.Recorded]) -> None:
    want = models[name]
    if name == "block_saved":  # TensorFlow's gradient of BlockLSTMV2 is wrong (docs/tf-block-ops.md)
        want.gradients.clear()
    compare(want, imported(want), gradients=bool(want.gradients))


KEPT = {
    "block": "tf.BlockLSTM", "block_saved": "tf.BlockLSTMV2", "block_checkpoint": "tf.BlockLSTM",
    "block_cell": "tf.LSTMBlockCell",
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_block_ops_are_one_node_each(name: str, models: dict[str, tm.Recorded]) -> None:
    graph = imported(models[name])
    assert [n.op.name for n in graph.nodes if n.op.name.startswith("tf.")] == [KEPT[name]]


@pytest.mark.parametrize("name", ["dynamic", "time_major", "both_ways", "gru_block", "loop"])
def test_loops_are_scans(name: str, models: dict[str, tm.Recorded]) -> None:
    """One loop for each of the file's, whose rows are scanned, not gathered."""
    graph = imported(models[name])
    loops = [n for n in graph.nodes if n.op.name == "scan"]
    assert len(loops) == (2 if name == "both_ways" else 1)
    for n in loops:
        body = n.attrs["body"]
        assert not [m for m in body.nodes if m.op.name == "gather"]


@pytest.mark.parametrize("name", ["dynamic", "time_major"])
def test_cells_are_found(name: str, models: dict[str, tm.Recorded]) -> None:
    graph = Pipeline.parse("core").run(imported(models[name])).graph
    assert [n.op.name for n in graph.nodes if n.op.name in ("lstm", "scan")] == ["lstm"]


@pytest.mark.slow_cases(name=[n for n in CASES if n not in ("dynamic_lengths", "block", "loop", "both_ways")])
@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str, models: dict[str, tm.Recorded]) -> None:
    compare(models[name], imported(models[name]), "cpu", gradients=False)


@pytest.mark.vulkan
@pytest.mark.slow_cases(name=[n for n in CASES if n not in ("dynamic", "block")])
@pytest.mark.parametrize("name", CASES)
def test_on_vulkan(name: str, models: dict[str, tm.Recorded]) -> None:
    need("vulkan")
    compare(models[name], imported(models[name]), "vulkan", gradients=False)
