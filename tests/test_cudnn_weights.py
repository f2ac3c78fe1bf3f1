"""params from and to PyTorch's state_dict and Keras' weights, on real layers of both."""

import os
from collections.abc import Callable
from typing import Any

import cudnn_cases as cu
import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.cudnn_weights import from_keras, from_torch, to_keras, to_torch

# PyTorch's tensors, which Keras converts, have an __array__ that NumPy 2 finds old
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
MODES = ("rnn_relu", "rnn_tanh", "gru", "lstm")
DIRECTIONS = ("unidirectional", "bidirectional")


@pytest.fixture(scope="module")
def torch() -> Any:
    need("torch")
    import torch

    return torch


@pytest.fixture(scope="module")
def keras() -> Any:
    need("keras")
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras  # type: ignore[import-untyped, unused-ignore]

    return keras


def run(a: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return li.interpret(cu.graph(cu.FORWARD, a, attrs), a)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("mode", [*MODES, "projection"])
def test_a_torch_module(mode: str, direction: str, torch: Any, rng: np.random.Generator) -> None:
    """A whole module: the op with its state_dict gives its results, and the way back is exact."""
    L, P = 3, 4 * (mode == "projection")
    _, _, I, H = cu.SIZES
    rnn_mode = "lstm" if P else mode
    more: dict[str, Any] = {"proj_size": P} if P else {}
    more |= {"nonlinearity": mode[4:]} if mode.startswith("rnn") else {}
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(rnn_mode, torch.nn.RNN)
    both = direction == "bidirectional"
    module = kind(I, H, L, bidirectional=both, dtype=torch.float64, **more)
    attrs: dict[str, Any] = {"rnn_mode": rnn_mode, "direction": direction, "num_proj": P}
    a = cu.operands(rng, L, **attrs)
    state = {f"encoder.{k}": v for k, v in module.state_dict().items()}
    a["params"] = from_torch(state, rnn_mode=rnn_mode, prefix="encoder.")
    x, h, c = (torch.from_numpy(a[k]) for k in cu.OPERANDS[:3])
    y, last = module(x, (h, c) if rnn_mode == "lstm" else h)
    last = last if rnn_mode == "lstm" else (last,)
    names = zip(("output", "output_h", "output_c"), (y, *last), strict=False)
    cu.close(run(a, attrs), {k: v.detach().numpy() for k, v in names}, 1e-12, mode)
    sizes: dict[str, Any] = {"num_layers": L, "num_units": H, "input_size": I}
    again = to_torch(a["params"], **sizes, **attrs)
    assert set(again) == set(module.state_dict())
    for k, v in module.state_dict().items():
        np.testing.assert_array_equal(again[k], v.numpy())
    module.load_state_dict({k: torch.from_numpy(v) for k, v in again.items()})


def test_torch_without_biases(torch: Any) -> None:
    module = torch.nn.GRU(5, 7, bias=False)
    params = from_torch(module.state_dict(), rnn_mode="gru")
    assert params.dtype == np.float32
    assert params.shape == (3 * 7 * (5 + 7) + 2 * 3 * 7,)
    assert (params[-42:] == 0).all()
    assert (params[:-42] != 0).any()


def test_torch_bfloat16(torch: Any) -> None:
    module = torch.nn.LSTM(5, 7, dtype=torch.bfloat16)
    params = from_torch(module.state_dict())
    assert li.DType.of(params.dtype) is li.DType.bf16
    want = torch.cat([p.detach().float().reshape(-1) for p in module.parameters()])
    np.testing.assert_array_equal(params.astype(np.float32), want.numpy())


def keras_layers(keras: Any, mode: str, direction: str, seed: int) -> list[Any]:
    """Two layers with random biases, in float32."""
    kinds = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}
    kind, more = kinds.get(mode, keras.layers.SimpleRNN), {}
    if mode.startswith("rnn"):
        more["activation"] = mode.removeprefix("rnn_")
    out = []
    for k in range(2):
        noise = keras.initializers.RandomNormal(seed=seed + k)
        layer = kind(7, return_sequences=True, return_state=True, bias_initializer=noise, **more)
        out.append(keras.layers.Bidirectional(layer) if direction == "bidirectional" else layer)
    return out


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_keras_layers(
    mode: str, direction: str, keras: Any, rng: np.random.Generator, seed: int
) -> None:
    """Same weights, same masks; on masked steps Keras repeats the output before, the op has 0."""
    T, _, I, H = cu.SIZES
    lengths = np.array([T, 4, 1])
    mask = np.arange(T) < lengths[:, None]
    layers = keras_layers(keras, mode, direction, seed % 10**6)
    attrs: dict[str, Any] = {"rnn_mode": mode, "direction": direction, "time_major": False}
    a = cu.operands(rng, 2, kind=np.float32, lengths=lengths, **attrs)
    a["input_h"][:], a["input_c"][...] = 0, 0  # Keras' first states
    y, finals = a["input"], []
    for layer in layers:
        y, *states = layer(y, mask=mask)
        finals.append([keras.ops.convert_to_numpy(s) for s in states])
    weights = [layer.get_weights() for layer in layers]
    a["params"] = from_keras(weights, rnn_mode=mode, direction=direction)
    out = run(a, attrs)
    valid = mask[:, :, None]
    want = np.where(valid, keras.ops.convert_to_numpy(y), 0)
    per = 2 if mode == "lstm" else 1
    h = np.stack([f[k] for f in finals for k in range(0, len(f), per)], axis=1)
    tolerance = 2e-6  # both in float32
    cu.close(out, {"output": want, "output_h": h}, tolerance, (mode, direction))
    if mode == "lstm":
        c = np.stack([f[k] for f in finals for k in range(1, len(f), 2)], axis=1)
        cu.close(out, {"output_c": c}, tolerance, (mode, direction))
    back = to_keras(
        a["params"], num_layers=2, num_units=H, input_size=I, rnn_mode=mode, direction=direction
    )
    for layer, arrays, given in zip(layers, back, weights, strict=True):
        for got, old in zip(arrays, given, strict=True):
            np.testing.assert_array_equal(got, old)
        layer.set_weights(arrays)


def test_keras_without_biases(keras: Any) -> None:
    layer = keras.layers.LSTM(7, use_bias=False)
    layer.build((3, 11, 5))
    params = from_keras([layer.get_weights()])
    assert (params[-56:] == 0).all()


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "torch, no weights": (lambda: from_torch({"x": np.zeros(3)}), "there are x"),
    "torch, one left over": (
        lambda: from_torch({**small(), "weight_ih_l7": np.zeros(3)}),
        "weight_ih_l7 is no weight",
    ),
    "torch, one missing": (lambda: from_torch({"weight_hh_l0": np.zeros((4, 1))}), "is missing"),
    "torch, a gap": (lambda: from_torch({"weight_hh_l1": np.zeros((4, 1))}), "no weight_hh_l0"),
    "torch, wrong mode": (lambda: from_torch(small(), rnn_mode="gru"), "not the 3 gates of gru"),
    "unknown mode": (lambda: from_torch(small(), rnn_mode="mgu"), "not one of rnn_relu"),
    "keras, reset before": (
        lambda: from_keras([[np.zeros((5, 21)), np.zeros((7, 21)), np.zeros(21)]], rnn_mode="gru"),
        "reset_after=False",
    ),
    "keras, directions": (
        lambda: from_keras([[np.zeros((5, 28))] * 3], direction="bidirectional"),
        "3 weights for 2 directions",
    ),
    "keras, mixed types": (
        lambda: from_keras([[np.zeros((5, 28), np.float32), np.zeros((7, 28))]]),
        "float64, the first weight float32",
    ),
    "wrong length": (
        lambda: to_torch(np.zeros(5), num_layers=1, num_units=7, input_size=5),
        r"these sizes have \(392,\)",
    ),
    "wrong shape": (
        lambda: from_torch({**small(), "bias_ih_l0": np.zeros(27)}),
        r"has shape \(27,\), expected \(28,\)",
    ),
}


def small() -> dict[str, Any]:
    """An LSTM of 7 units over 5 columns."""
    return {"weight_ih_l0": np.zeros((28, 5)), "weight_hh_l0": np.zeros((28, 7))}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name: str) -> None:
    call, words = BAD[name]
    with pytest.raises(li.IRError, match=words):
        call()
