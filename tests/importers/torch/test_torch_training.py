"""A module imported, trained here, and written back: PyTorch goes on as if it had trained itself."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

STEPS, RATE, B, T = 100, 0.05, 4, 7


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def _model() -> Any:
    import torch

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(11, 5)
            self.lstm = torch.nn.LSTM(5, 6, num_layers=2, batch_first=True, bidirectional=True)
            self.norm = torch.nn.LayerNorm(12)
            self.out = torch.nn.Linear(12, 3)

        def forward(self, ids: Any) -> Any:
            return self.out(self.norm(torch.tanh(self.lstm(self.embed(ids))[0])))

    torch.manual_seed(3)
    return Tagger().eval()


def _step(module: Any, optimizer: Any, ids: Any, tags: Any) -> float:
    import torch

    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(module(ids).flatten(0, 1), tags.flatten())
    loss.backward()
    optimizer.step()
    return float(loss.item())


@pytest.mark.slow
@pytest.mark.parametrize(("double", "limit"), [(False, 1e-4), (True, 1e-9)])  # rounding grows from step to step
@pytest.mark.parametrize("source", ["executable", "state"])
def test_torch_goes_on(source: str, double: bool, limit: float) -> None:
    import torch

    module = _model().double() if double else _model()
    alone = copy.deepcopy(module)
    rng = np.random.default_rng(4)
    ids, tags = rng.integers(0, 11, (B, T)), rng.integers(0, 3, (B, T)).astype(np.int32)
    graph = li.from_torch(module, (torch.tensor(ids),), sizes={"ids": ("B", "T")})
    assert set(graph.weights) == set(module.state_dict())
    labels = li.input("tags", ("B", "T"), "i32")
    loss = li.Graph("loss", [*graph.params, labels], {"loss": li.cross_entropy(graph.outputs[0], labels)})
    optimizer = torch.optim.SGD(alone.parameters(), lr=RATE)
    kind = graph.params[0].dtype.numpy
    with li.compile(li.train_step(loss, "loss", li.sgd(RATE))) as exe:
        train = exe.entries["train"]
        for k in range(STEPS):
            got = float(train(ids=ids.astype(kind), tags=tags)["loss"])
            want = _step(alone, optimizer, torch.tensor(ids), torch.tensor(tags, dtype=torch.int64))
            assert got == pytest.approx(want, abs=limit), k
        given = exe if source == "executable" else {n: exe.state[n] for n in graph.weights}
        assert li.to_torch(given, module) is module
    later = torch.optim.SGD(module.parameters(), lr=RATE)
    for _ in range(20):
        args = torch.tensor(ids), torch.tensor(tags, dtype=torch.int64)
        assert _step(module, later, *args) == pytest.approx(_step(alone, optimizer, *args), abs=limit)


def test_dropout_of_a_module_in_training(rng: np.random.Generator) -> None:
    """A share of the elements is 0 and the others are larger, as PyTorch has it; other ones in the next call."""
    import torch

    rate, x = 0.25, rng.standard_normal((64, 96), np.float32)
    module = torch.nn.Sequential(torch.nn.Dropout(rate))
    graph = li.from_torch(module.train(), (torch.tensor(x),), sizes={"input": ("B", None)})
    assert graph.input_names == ("input", "step")
    back = li.vjp(graph, ["y"], ["input"])
    masks = []
    for step in (0, 1):
        y = li.interpret(graph, input=x, step=np.int64(step))["y"]
        np.testing.assert_allclose(y[y != 0], (x / (1 - rate))[y != 0], 1e-6)
        assert abs((y == 0).mean() - rate) < 5 * (rate * (1 - rate) / x.size) ** 0.5
        slope = li.interpret(back, input=x, step=np.int64(step), ct_y=np.ones_like(x))["d_input"]
        np.testing.assert_allclose(slope, (y != 0) / np.float32(1 - rate), 1e-6)
        masks.append(y == 0)
    assert (masks[0] != masks[1]).any()
    assert li.from_torch(module.eval(), (torch.tensor(x),)).input_names == ("input",)


def test_dropout_between_layers(rng: np.random.Generator) -> None:
    """The second layer gives what it reads, so its rows are those of the first, as PyTorch drops them."""
    import torch

    torch.manual_seed(4)
    module, rate = torch.nn.RNN(5, 6, 2, nonlinearity="relu", dropout=0.5, batch_first=True), 0.5
    with torch.no_grad():
        module.weight_ih_l1.copy_(torch.eye(6))
        for p in (module.weight_hh_l1, module.bias_ih_l1, module.bias_hh_l1):
            p.zero_()
    x = torch.randn(16, 30, 5)
    whole = module.eval()(x)[0].detach().numpy()
    graph = li.from_torch(module.train(), (x,), sizes={"input": ("B", "T", None)})
    y = li.interpret(graph, input=x.numpy(), step=np.int64(3))[graph.output_names[0]]
    np.testing.assert_allclose(y[y != 0], (whole / (1 - rate))[y != 0], 1e-5, 1e-6)
    on = whole > 0
    assert abs((y[on] == 0).mean() - rate) < 5 * (rate * (1 - rate) / on.sum()) ** 0.5


def test_norms_in_training(rng: np.random.Generator) -> None:
    """By the statistics of the batch; running ones would change, so that they are refused."""
    import torch
    import torch_cases as tc

    torch.manual_seed(4)
    n, x = torch.nn, torch.randn(B, T, 5)
    for norm in (n.BatchNorm1d(T, track_running_stats=False), n.InstanceNorm1d(T), n.GroupNorm(1, T)):
        tc.held(n.Sequential(norm).train(), (x,), {"input": ("B", None, None)}, [(torch.randn(2, T, 5),)], rng)
    running = n.Sequential(n.Linear(5, 5), n.BatchNorm1d(T)).train()
    with pytest.raises(li.ModelError, match=r"1\.running_mean \(buffer\): forward writes to it; .*module\.eval\(\)"):
        li.from_torch(running, (x,))
    assert not running[1].running_mean.any()


def test_what_does_not_fit_changes_nothing() -> None:
    module = _model()
    before = {n: v.clone() for n, v in module.state_dict().items()}
    fits = np.zeros(3, np.float32)
    for arrays, text in (
        ({"out.bias": fits, "other": fits}, "Tagger has no 'other'"),
        ({"out.bias": fits, "out.weight": fits}, r"out\.weight is f32\[3\], in Tagger f32\[3,12\]"),
        ({"out.bias": fits.astype(np.float64)}, r"out\.bias is f64\[3\], in Tagger f32\[3\]"),
        (fits, "arrays by name, got ndarray"),
    ):
        with pytest.raises(li.ModelError, match=text):
            li.to_torch(arrays, module)  # type: ignore[arg-type]
        assert all((v == before[n]).all() for n, v in module.state_dict().items())
    with pytest.raises(li.ModelError, match=r"an nn\.Module, got dict"):
        li.to_torch({}, {})


@pytest.mark.parametrize("optimizer", [li.sgd(0.1), li.adam(0.1)], ids=["sgd", "adam"])
def test_an_executable_whose_weights_are_not_the_modules(optimizer: Any) -> None:
    """A trained weight that the module lacks is refused; what the optimizer keeps is passed over."""
    import torch

    x = li.input("x", ("B", 5))
    layer = torch.nn.Linear(5, 2)
    before = layer.weight.detach().clone()
    for names, refused in ((("weight", "bias"), None), (("weight", "b"), "'b'"), (("w", "b"), "'w'")):
        weight, bias = li.weight(names[0], np.ones((2, 5), "f4")), li.weight(names[1], np.ones(2, "f4"))
        graph = li.Graph("g", [x], {"loss": li.mean(li.dense(x, weight, bias) ** 2.0)})
        with li.compile(li.train_step(graph, "loss", optimizer)) as exe:
            exe.entries["train"](x=np.ones((3, 5), "f4"))
            if refused is None:
                li.to_torch(exe, layer)
                np.testing.assert_array_equal(layer.weight.detach().numpy(), exe.state["weight"])
                layer.weight.data = before.clone()
                continue
            with pytest.raises(li.ModelError, match=f"to_torch: Linear has no {refused}"):
                li.to_torch(exe, layer)
        assert torch.equal(layer.weight, before)


def test_files_and_other_things_are_refused(tmp_path: Any) -> None:
    for given, text in (
        (tmp_path / "m.pt", "not the file"),
        (b"PK", "not bytes"),
        (lambda x: x, "got function"),
        (_model(), "example is missing"),
    ):
        with pytest.raises(li.ModelError, match=text):
            li.from_torch(given)
