"""Single ops: results and gradients beside TensorFlow's own, and that each op of the table has a case somewhere."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow_models as tm
from device import need, need_target
from tensorflow_compare import close, compare, taken
from tensorflow_graph import written
from tensorflow_op_cases import CASES

import lstm_ir as li
from lstm_ir.importers.tensorflow.table import TABLE

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("models")]


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


# Ops that need a model around them: a module of cases, which a test of its own compares with TensorFlow.
ELSEWHERE = {
    "tensorflow_graph_cases": {
        "BlockLSTM", "BlockLSTMV2", "Enter", "Exit", "GRUBlockCell", "LSTMBlockCell", "Merge", "Switch", "VariableV2",
    },
    "tensorflow_cudnn_cases": {"CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"},
    "tensorflow_module_cases": {"StatefulPartitionedCall", "StopGradient", "While"},
    "tensorflow_branch_cases": {
        "Assert", "Assign", "AssignAdd", "AssignAddVariableOp", "AssignSub", "AssignSubVariableOp", "AssignVariableOp",
        "If", "NoOp", "PrintV2", "ReadVariableOp", "RefMerge", "RefSwitch",
    },
}  # fmt: skip
WITHOUT = {
    "LoopCond": "a loop reads its operand, not the node",
    "Placeholder": "an input, which is there before nodes are built",
    "PlaceholderV2": "TensorFlow makes no more of them: test_an_op_of_before",
    "RefEnter": "TensorFlow makes none for a loop of today; its rule is that of Enter",
    "RefExit": "TensorFlow makes none for a loop of today; its rule is that of Exit",
    "Variable": "TensorFlow makes VariableV2 instead; its rule is the same",
}


def test_every_op_has_a_case(models: dict[str, tm.Recorded]) -> None:
    refused = {op for op in TABLE if (TABLE[op].refused or "").startswith("always")}
    here = {op for n, want in models.items() for op in taken(want, list(want.outputs))}
    listed = set().union(*ELSEWHERE.values(), WITHOUT)
    assert set(TABLE) - refused - here == listed


@pytest.mark.slow
@pytest.mark.parametrize("module", ELSEWHERE)
def test_what_stands_elsewhere(module: str, tmp_path: Path) -> None:
    """Of graphs that have no signature the outputs are those that were recorded."""
    need("tensorflow")
    found: set[str] = set()
    for want in tm.made(tmp_path, 4, module, list(importlib.import_module(module).CASES)).values():
        graph = want.path.suffix == ".pb"
        beside = want.path.with_suffix("") if want.path.with_suffix(".index").exists() else None
        found |= taken(want, list(want.outputs) if graph else None, beside)
    assert found >= ELSEWHERE[module]


def test_an_op_of_before(tmp_path: Path) -> None:
    """PlaceholderV2 is an input as Placeholder is."""
    pytest.importorskip("google.protobuf.message")
    w = np.arange(15, dtype="f4").reshape(3, 5)
    written(tmp_path / "g.pb", w, lambda graph: setattr(graph.node[0], "op", "PlaceholderV2"))
    graph = li.from_tf(tmp_path / "g.pb")
    assert isinstance(graph, li.Graph)
    x = np.array([[0.1, -0.2, 0.3]], np.float32)
    np.testing.assert_allclose(li.interpret(graph, x=x)["y"], np.tanh(x @ w), atol=1e-6)
