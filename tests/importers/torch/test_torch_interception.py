"""The exchange of PyTorch's functions while a module is exported: only known releases, only the exporting thread."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def _module() -> tuple[Any, Any]:
    import torch

    return torch.nn.LSTM(3, 4).eval(), (torch.zeros(5, 2, 3),)


NAMES = ("pack_padded_sequence", "pad_packed_sequence", "LSTM.forward", "GRU.forward", "RNN.forward")


def _named(name: str) -> Any:
    import torch
    from torch.nn.utils import rnn

    return getattr(torch.nn, name.partition(".")[0]).forward if "." in name else getattr(rnn, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_function_with_another_signature_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a release would have it that gives the function one argument more."""
    function = _named(name)
    known = inspect.signature(function)
    more = inspect.Parameter("more", inspect.Parameter.KEYWORD_ONLY, default=None)
    changed = known.replace(parameters=[*known.parameters.values(), more])
    monkeypatch.setattr(function, "__signature__", changed, raising=False)
    with pytest.raises(li.ModelError, match=rf"has another {name} than the releases that are known"):
        li.from_torch(*_module())


def test_packed_sequences_with_other_fields_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.nn.utils import rnn

    monkeypatch.setattr(rnn.PackedSequence, "_fields", (*rnn.PackedSequence._fields, "more"))
    with pytest.raises(li.ModelError, match="has another PackedSequence than"):
        li.from_torch(*_module())


def _calls(form: str) -> Any:
    """A module that calls `torch.lstm` itself."""
    import torch

    class Direct(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(3, 4)

        def forward(self, x: Any) -> Any:
            h = torch.zeros(1, x.shape[1], 4)
            weights = [p for n, p in self.layer.named_parameters()]
            rest = {"has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False, "bidirectional": False}
            if form == "places":
                return torch.lstm(x, (h, h), weights, *rest.values(), False)[0]
            return torch.lstm(x, (h, h), weights, **rest, batch_first=False)[0]

    return Direct().eval()


@pytest.mark.parametrize("form", ["places", "names"])
def test_arguments_by_place_and_by_name(form: str) -> None:
    """Both are one op over an open length."""
    import torch

    module = _calls(form)
    graph = li.from_torch(module, (torch.zeros(5, 2, 3),), sizes={"x": ("T", "B", None)})
    assert isinstance(graph, li.Graph)
    assert [n.op.name for n in graph.nodes if n.op.name in ("lstm", "scan")]
    x = torch.randn(6, 2, 3)
    (got,) = li.interpret(graph, {graph.input_names[0]: x.numpy()}).values()
    with torch.no_grad():
        np.testing.assert_allclose(got, module(x).numpy(), atol=1e-6)


@pytest.mark.parametrize(("count", "names"), [(8, []), (10, []), (8, ["more"]), (9, ["more"])])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_a_call_of_another_number_of_arguments_is_refused(name: str, count: int, names: list[str]) -> None:
    """PyTorch itself refuses it today. A release that took it would be exported step by step, without a word."""
    import torch

    from lstm_ir.importers.torch.interception import _WholeOps

    with pytest.raises(li.ModelError, match=rf"has another torch\.{name} than the releases that are known"):
        _WholeOps().__torch_function__(getattr(torch._VF, name), (), (None,) * count, dict.fromkeys(names))


def test_a_second_thread_meanwhile_has_pytorchs_own() -> None:
    """Layers and packed sequences of a thread that does not export, before, during and after an export."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    from lstm_ir.importers.torch.interception import intercepted

    layers = [getattr(torch.nn, kind)(3, 4).eval() for kind in ("LSTM", "GRU", "RNN")]
    x, lengths = torch.randn(5, 2, 3), torch.tensor([5, 3])

    def run() -> list[Any]:
        out = []
        with torch.no_grad():
            for layer in layers:
                packed = pack_padded_sequence(x, lengths)
                assert type(packed.data) is torch.Tensor
                y, n = pad_packed_sequence(layer(packed)[0], padding_value=2.0)
                out += [y, n, layer(x)[0]]
        return out

    before = run()
    inside: list[Any] = []
    with intercepted():
        other = threading.Thread(target=lambda: inside.extend(run()))
        other.start()
        other.join(60)
    assert len(inside) == len(before)
    for a, b, c in zip(before, inside, run(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
