"""A model that TensorFlow trained on real digits: the same answers, and the same training from there on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow_models as tm
from device import need, need_target
from sonnet_letters import sure_of_one
from tensorflow_compare import close
from tensorflow_digits_cases import RATE, STEPS, rows
from tensorflow_text_cases import LAST, unseen

import lstm_ir as li
from lstm_ir.data import digits

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tensorflow")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tm.Recorded:
    need("tensorflow")
    return tm.made(tmp_path_factory.mktemp("digits"), 8, "tensorflow_digits_cases", ["digits"])["digits"]


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_the_same_digits(target: str, trained: tm.Recorded) -> None:
    need_target(target)
    (want,) = trained.outputs.values()
    graph = li.from_tf(trained.path)
    assert isinstance(graph, li.Graph)
    with li.compile(graph, target) as exe:
        found = exe(trained.inputs)
    close(found, trained.outputs, 2e-5)
    (got,) = found.values()
    assert (got.argmax(1) == want.argmax(1)).all()
    assert (got.argmax(1) == digits().test_labels).mean() > 0.85


def test_it_trains_on_as_in_tensorflow(trained: tm.Recorded) -> None:
    graph = li.from_tf(trained.path)
    assert isinstance(graph, li.Graph)
    data, want = digits(), dict(trained.more)
    losses = want.pop("losses")
    label = li.input("label", ("B",), "i32")
    loss = li.cross_entropy(graph.outputs[0], label)
    made = li.Graph("digits", [*graph.params, label], {"loss": loss})
    got = []
    with li.compile(li.train_step(made, "loss", li.sgd(RATE))) as exe:
        for k in range(STEPS):
            part = rows(k)
            x, labels = data.train_images[part].astype(np.float32) / 16, data.train_labels[part].astype(np.int32)
            got.append(exe.entries["train"](x=x, label=labels)["loss"])
        np.testing.assert_allclose(got, losses, atol=1e-4)
        assert set(want) == set(graph.weights)
        close({n: exe.state[n] for n in want}, want, 2e-4)


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_the_same_letters(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The letters that come next in lines that the model has not seen, longer than those that it has."""
    need("tensorflow")
    need_target(target)
    want = tm.made(tmp_path_factory.mktemp("text"), 8, "tensorflow_text_cases", ["text"])["text"]
    assert float(want.more["loss"]) < LAST
    graph = li.from_tf(want.path)
    assert isinstance(graph, li.Graph)
    with li.compile(graph, target) as exe:
        found = exe(ids=want.inputs["ids"])
    close(found, want.outputs, 2e-5)
    np.testing.assert_array_equal(want.inputs["ids"], unseen())
    ((got,), (right,)) = found.values(), want.outputs.values()
    sure_of_one(got, right)
