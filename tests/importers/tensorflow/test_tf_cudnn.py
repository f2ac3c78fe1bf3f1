"""CudnnRNN, V2 and V3 in SavedModels: one node each, its results and gradients beside PyTorch's.

TensorFlow writes these graphs and cannot run them without a GPU. PyTorch's parameters, in its own order, are the vector
`params` ([how](../../../docs/cudnn-rnn.md)).
"""

from __future__ import annotations

import cudnn_cases as cu
import numpy as np
import pytest
import tensorflow_models as tm
from cudnn_torch import Reference
from device import need
from tensorflow_compare import close
from tensorflow_cudnn_cases import ATTRIBUTES, CASES, LAYERS

import lstm_ir as li

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("models")]
LIMIT = 2e-5


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tm.Recorded]:
    need("tensorflow")
    return tm.made(tmp_path_factory.mktemp("cudnn"), 6, "tensorflow_cudnn_cases", list(CASES))


@pytest.mark.parametrize("name", [n for n in CASES if n != "dropped"])
def test_beside_torch(name: str, models: dict[str, tm.Recorded]) -> None:
    need("torch")
    import torch

    want = models[name]
    graph = li.from_tf(want.path)
    assert isinstance(graph, li.Graph)
    assert [n.op.name for n in graph.nodes if n.op.name.startswith("tf.")] == ["tf.CudnnRNNV3"]
    reference = Reference(torch, want.more, LAYERS[name], ATTRIBUTES[name])
    outputs = {n: a.astype(np.float32) for n, a in reference.run().items()}
    got = li.interpret(graph, want.inputs)
    close(got, outputs, LIMIT)
    back = cu.back_operands(np.random.default_rng(7), want.more, got)
    slopes = {k.removesuffix("_backprop"): a.astype(np.float32) for k, a in reference.grads(back).items()}
    wrt = list(slopes)
    made = li.vjp(graph, list(outputs), wrt, missing="zeros")
    found = li.interpret(made, {**want.inputs, **{f"ct_{n}": back[f"{n}_backprop"] for n in outputs}})
    close({n: found[f"d_{n}"] for n in wrt}, slopes, 5 * LIMIT)


COMPILED = [n for n in CASES if n in ("CudnnRNN_gru_unidirectional", "CudnnRNNV3_lstm_bidirectional", "projected")]


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str, models: dict[str, tm.Recorded]) -> None:
    graph = li.from_tf(models[name].path)
    assert isinstance(graph, li.Graph)
    with li.compile(graph) as exe:
        close(exe(models[name].inputs), li.interpret(graph, models[name].inputs), LIMIT)


def test_dropout_in_training_is_refused(models: dict[str, tm.Recorded]) -> None:
    with pytest.raises(li.ModelError, match=r"CudnnRNNV2.*dropout in training draws random numbers"):
        li.from_tf(models["dropped"].path)
