"""Dropout between the layers of LSTM, GRU and RNN in training: projected, packed, in both directions, three layers.

Which elements are dropped is drawn here, by the number of the call, and not by PyTorch's generator: so what is dropped
is read from the graph, and PyTorch's layers, one by one with these elements dropped between them, say what has to
come of it, forward and backward. A mask is drawn anew for each pair of layers and each call; what is left is larger by
1 / (1 - p), the last layer's results are whole, and in evaluation nothing is dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need, need_target

import lstm_ir as li

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")
T, B, I, H, P = 9, 6, 5, 4, 3
RATE = 0.375
Arrays = dict[str, Any]
FORMS: dict[str, dict[str, Any]] = {
    "LSTM": {"num_layers": 2},
    "LSTM projected": {"num_layers": 2, "proj_size": P},
    "LSTM projected, both ways": {"num_layers": 3, "proj_size": P, "bidirectional": True, "bias": False},
    "GRU of three": {"num_layers": 3},
    "GRU both ways": {"num_layers": 2, "bidirectional": True},
    "RNN": {"num_layers": 2},
}


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def layer(form: str) -> Any:
    import torch

    return getattr(torch.nn, form.split()[0].strip(","))(I, H, dropout=RATE, **FORMS[form])


def one_by_one(whole: Any) -> list[Any]:
    """Layers of one layer each, with the weights of a stack: the same tensors."""
    import torch

    found = []
    for k in range(whole.num_layers):
        columns = I if k == 0 else (whole.proj_size or H) * (1 + whole.bidirectional)
        more = {"proj_size": whole.proj_size} if whole.proj_size else {}
        one = type(whole)(columns, H, bias=whole.bias, bidirectional=whole.bidirectional, **more)
        for name, _ in list(one.named_parameters()):
            setattr(one, name, getattr(whole, name.replace("_l0", f"_l{k}")))
        one._flat_weights = [getattr(one, n) for n in one._flat_weights_names]
        found.append(one)
    assert isinstance(found[0], torch.nn.Module)
    return found


def masks(graph: li.Graph, arrays: Arrays, exists: Any = None) -> list[Any]:
    """Of each dropout of a graph which elements stay, b[T,B,C]; its results are checked against what it reads."""
    found = [n for n in graph.nodes if n.op.name == "dropout"]
    ends = {f"{w}{k}": v for k, n in enumerate(found) for w, v in (("x", n.inputs[0]), ("y", n.values[0]))}
    read = {p.node.attrs["name"] for p in graph.params}
    got = li.interpret(li.Graph("ends", graph.params, ends), {k: v for k, v in arrays.items() if k in read})
    out = []
    for k in range(len(found)):
        x, y = got[f"x{k}"], got[f"y{k}"]
        there = np.ones(x.shape, bool) if exists is None else np.broadcast_to(exists[:, :, None], x.shape)
        stays = y != 0
        np.testing.assert_allclose(y, np.where(stays, x / np.float32(1 - RATE), 0), 1e-6)
        share = (~stays)[there].mean()
        assert abs(share - RATE) < 5 * (RATE * (1 - RATE) / there.sum()) ** 0.5, share
        out.append(stays)
    return out


def beside(module: Any, graph: li.Graph, arrays: Arrays, run: Any, rng: np.random.Generator, target: str = "") -> None:
    """Results and all gradients, where `run(layers, masks, x)` is what PyTorch's layers make of the masks."""
    import torch

    lengths = arrays.get("lengths")
    exists = None if lengths is None else np.arange(T)[:, None] < lengths
    kept = [torch.tensor(m) for m in masks(graph, arrays, exists)]
    x = torch.tensor(arrays["x"], requires_grad=True)
    results = run(one_by_one(module.layer), kept, x)
    names = list(graph.output_names)
    cts = {n: rng.standard_normal(tuple(y.shape)).astype(np.float32) for n, y in zip(names, results, strict=True)}
    wrt = {"x": x} | dict(module.named_parameters())
    found = torch.autograd.grad(results, list(wrt.values()), [torch.tensor(cts[n]) for n in names])
    backward = li.vjp(graph, names, list(wrt))
    given = {**arrays, **{f"ct_{n}": a for n, a in cts.items()}}
    if target:
        with li.compile(backward, target) as exe:
            got = {n: np.asarray(a) for n, a in exe(given).items()}
    else:
        got = li.interpret(backward, given)
    for n, y in zip(names, results, strict=True):
        tc.close(got[n], y, n)
    for n, want in zip(wrt, found, strict=True):
        tc.close(got[f"d_{n}"], want, f"d_{n}", factor=5)


def stack(form: str) -> Any:
    """A stack whose results are y and the last states h of all layers."""
    import torch

    class Stack(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(form)

        def forward(self, x: Any) -> Any:
            y, state = self.layer(x)
            return y, state[0] if isinstance(state, tuple) else state

    return Stack()


def in_turn(layers: list[Any], kept: list[Any], x: Any) -> Any:
    import torch

    last = []
    for k, one in enumerate(layers):
        x, state = one(x)
        last.append(state[0] if isinstance(state, tuple) else state)
        if k < len(kept):
            x = x * kept[k] / (1 - RATE)
    return x, torch.cat(last)


@pytest.mark.parametrize("form", FORMS)
def test_between_layers(form: str, seed: int, rng: np.random.Generator) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    module, example = stack(form).train(), torch.randn(4, 2, I)
    graph = li.from_torch(module, (example,), sizes={"x": ("T", "B", None)})
    assert graph.input_names == ("x", "step")
    assert sum(n.op.name == "dropout" for n in graph.nodes) == module.layer.num_layers - 1
    arrays = {"x": rng.standard_normal((T, B, I), np.float32), "step": np.int64(3)}
    beside(module, graph, arrays, in_turn, rng)


def tagger(form: str) -> Any:
    """A stack over packed rows [T,B,I], and y unpacked."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(form)

        def forward(self, x: Any, lengths: Any) -> Any:
            y, state = self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
            h = state[0] if isinstance(state, tuple) else state
            return pad_packed_sequence(y, total_length=x.shape[0])[0], h

    return Tagger()


def packed_in_turn(lengths: Any) -> Any:
    """PyTorch's layers over packed rows, unpacked between two of them to be dropped."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    def run(layers: list[Any], kept: list[Any], x: Any) -> Any:
        last = []
        for k, one in enumerate(layers):
            y, state = one(pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False))
            x = pad_packed_sequence(y, total_length=T)[0]
            last.append(state[0] if isinstance(state, tuple) else state)
            if k < len(kept):
                x = x * kept[k] / (1 - RATE)
        return x, torch.cat(last)

    return run


LENGTHS = np.array([4, T, 1, 7, T, 2])


@pytest.mark.parametrize("form", FORMS)
def test_between_layers_of_packed_rows(form: str, seed: int, rng: np.random.Generator) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    module, example = tagger(form).train(), (torch.randn(4, 2, I), torch.tensor([3, 4]))
    graph = li.from_torch(module, example, sizes={"x": ("T", "B", None), "lengths": ("B",)})
    arrays = {"x": rng.standard_normal((T, B, I), np.float32), "lengths": LENGTHS, "step": np.int64(5)}
    beside(module, graph, arrays, packed_in_turn(LENGTHS), rng)


@pytest.mark.slow_cases(target=["vulkan"])
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_compiled(target: str, seed: int, rng: np.random.Generator) -> None:
    """The way back drops what the way there dropped."""
    import torch

    need_target(target)
    torch.manual_seed(seed % 2**31)
    module, example = tagger("LSTM projected").train(), (torch.randn(4, 2, I), torch.tensor([3, 4]))
    graph = li.from_torch(module, example, sizes={"x": ("T", "B", None), "lengths": ("B",)})
    arrays = {"x": rng.standard_normal((T, B, I), np.float32), "lengths": LENGTHS, "step": np.int64(5)}
    beside(module, graph, arrays, packed_in_turn(LENGTHS), rng, target)


def test_calls_and_layers_have_masks_of_their_own(seed: int, rng: np.random.Generator) -> None:
    """The number of the call draws: the same again where it is the same."""
    import torch

    torch.manual_seed(seed % 2**31)
    graph = li.from_torch(stack("GRU of three").train(), (torch.randn(4, 2, I),), sizes={"x": ("T", "B", None)})
    x = rng.standard_normal((T, B, I), np.float32)
    first, again, other = (masks(graph, {"x": x, "step": np.int64(k)}) for k in (0, 0, 1))
    for a, b, c in zip(first, again, other, strict=True):
        assert (a == b).all()
        assert (a != c).any()
    assert (first[0] != first[1]).any()


def test_nothing_is_dropped_in_evaluation(seed: int, rng: np.random.Generator) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    module, x = tagger("LSTM projected").eval(), torch.randn(4, 2, I)
    sizes = {"x": ("T", "B", None), "lengths": ("B",)}
    calls = [(torch.randn(T, B, I), torch.tensor(LENGTHS))]
    graph = tc.held(module, (x, torch.tensor([3, 4])), sizes, calls, rng)
    assert graph.input_names == ("x", "lengths")
    assert not any(n.op.name == "dropout" for n in graph.nodes)


def test_a_layer_alone_drops_nothing(rng: np.random.Generator) -> None:
    """As in PyTorch, which warns: dropout stands between layers."""
    import torch

    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        module = torch.nn.LSTM(I, H, dropout=RATE)
    tc.held(module.train(), (torch.randn(4, 2, I),), {"input": ("T", "B", None)}, [(torch.randn(T, B, I),)], rng)


def test_a_rate_of_one_is_refused() -> None:
    import torch

    with pytest.raises(li.ModelError, match=r"lstm.*a dropout of 1 is not taken"):
        li.from_torch(torch.nn.LSTM(I, H, 2, dropout=1.0).train(), (torch.randn(4, 2, I),))
