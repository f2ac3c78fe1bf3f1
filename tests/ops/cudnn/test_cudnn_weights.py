"""params from and to PyTorch's state_dict and Keras' weights, on real layers of both."""

from collections.abc import Callable
from typing import Any

import cudnn_cases as cu
import keras_child
import numpy as np
import pytest
from device import need
from keras_child import Job, Ran

import lstm_ir as li
from lstm_ir.ops.cudnn.weights import from_keras, from_torch, to_keras, to_torch

pytestmark = pytest.mark.one_day("keras")
MODES = ("rnn_relu", "rnn_tanh", "gru", "lstm")
DIRECTIONS = ("unidirectional", "bidirectional")


@pytest.fixture(scope="module")
def torch() -> Any:
    need("torch")
    import torch

    return torch


CASES = [(mode, direction, True) for mode in MODES for direction in DIRECTIONS]
CASES.append(("lstm", "unidirectional", False))  # without biases


@pytest.fixture(scope="module")
def keras(request: pytest.FixtureRequest) -> dict[tuple[str, str, bool], tuple[Ran, Any, Any]]:
    """By mode, direction and biases: what Keras' layers gave, their input, and its lengths."""
    need("keras")
    need("torch")
    base = int(request.config.getoption("--seed"))
    print(f"seed {base}")
    r = np.random.default_rng(base)
    T, B, I, H = cu.SIZES
    jobs: list[Job] = []
    lengths = np.array([T, 4, 1])
    for n, (mode, direction, bias) in enumerate(CASES):
        attrs = {"mode": mode, "direction": direction, "bias": bias, "units": H, "seed": base + n}
        x = r.standard_normal((B, T, I)).astype(np.float32)
        jobs.append((attrs, x, np.arange(T) < lengths[:, None]))
    ran = keras_child.run(jobs)
    return {case: (out, x, lengths) for case, out, (_, x, _) in zip(CASES, ran, jobs, strict=True)}


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


def test_a_module_is_not_its_state(torch: Any) -> None:
    with pytest.raises(li.IRError, match=r"expected a state_dict, got LSTM; give its state_dict\(\)"):
        from_torch(torch.nn.LSTM(5, 7))


def test_torch_bfloat16(torch: Any) -> None:
    module = torch.nn.LSTM(5, 7, dtype=torch.bfloat16)
    params = from_torch(module.state_dict())
    assert li.DType.of(params.dtype) is li.DType.bf16
    want = torch.cat([p.detach().float().reshape(-1) for p in module.parameters()])
    np.testing.assert_array_equal(params.astype(np.float32), want.numpy())


@pytest.mark.slow_cases(mode=["rnn_relu", "rnn_tanh"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_keras_layers(mode: str, direction: str, keras: Any, rng: np.random.Generator) -> None:
    """Same weights, same masks; on masked steps Keras repeats the output before, the op has 0."""
    T, _, I, H = cu.SIZES
    theirs, x, lengths = keras[mode, direction, True]
    attrs: dict[str, Any] = {"rnn_mode": mode, "direction": direction, "time_major": False}
    a = cu.operands(rng, 2, kind=np.float32, lengths=lengths, **attrs)
    a["input"] = x
    a["input_h"][:], a["input_c"][...] = 0, 0  # Keras' first states
    a["params"] = from_keras(theirs.weights, rnn_mode=mode, direction=direction)
    out = run(a, attrs)
    valid = (np.arange(T) < lengths[:, None])[:, :, None]
    want = np.where(valid, theirs.y, 0)
    per = 2 if mode == "lstm" else 1
    h = np.stack([f[k] for f in theirs.states for k in range(0, len(f), per)], axis=1)
    tolerance = 2e-6  # both in float32
    cu.close(out, {"output": want, "output_h": h}, tolerance, (mode, direction))
    if mode == "lstm":
        c = np.stack([f[k] for f in theirs.states for k in range(1, len(f), 2)], axis=1)
        cu.close(out, {"output_c": c}, tolerance, (mode, direction))
    back = to_keras(a["params"], num_layers=2, num_units=H, input_size=I, rnn_mode=mode, direction=direction)
    for arrays, given in zip(back, theirs.weights, strict=True):
        assert len(arrays) == len(given)
        for got, old in zip(arrays, given, strict=True):
            np.testing.assert_array_equal(got, old)


def test_keras_without_biases(keras: Any) -> None:
    theirs, _, _ = keras["lstm", "unidirectional", False]
    assert [len(w) for w in theirs.weights] == [2, 2]
    params = from_keras(theirs.weights)
    assert (params[-2 * 2 * 4 * cu.SIZES[3] :] == 0).all()


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "torch, no weights": (lambda: from_torch({"x": np.zeros(3)}), "there are x"),
    "torch, one left over": (lambda: from_torch({**small(), "weight_ih_l7": np.zeros(3)}), "weight_ih_l7 is no weight"),
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
    "torch, one bias lost": (
        lambda: from_torch({**small(), "bias_hh_l0": np.zeros(28)}),
        r"bias_ih_l0 missing; 1 of 2 biases are there.* bias=False none",
    ),
    "torch, one layer's biases lost": (
        lambda: from_torch(two_layers(lost=1), prefix="enc."),
        r"enc\.bias_ih_l1, enc\.bias_hh_l1 missing; 2 of 4",
    ),
    "torch, one direction's biases lost": (
        lambda: from_torch(both_ways("bias_ih_l0", "bias_hh_l0")),
        r"bias_ih_l0_reverse, bias_hh_l0_reverse missing; 2 of 4",
    ),
    "torch, no mapping": (lambda: from_torch(None), "expected a state_dict, got NoneType"),  # type: ignore[arg-type]
    "torch, no names": (lambda: from_torch({1: np.zeros(3)}), "keys are names; got 1"),  # type: ignore[dict-item]
    "torch, integers": (
        lambda: from_torch({k: v.astype(np.int32) for k, v in small().items()}),
        "from_torch: weight_ih_l0 has int32 elements, not floats",
    ),
    "torch, no matrix": (
        lambda: from_torch({**small(), "weight_hh_l0": np.zeros(28)}),
        r"weight_hh_l0 has shape \(28,\), expected 2 sizes",
    ),
    "sizes that are no integers": (
        lambda: to_torch(np.zeros(392), num_layers=1.0, num_units=7, input_size=5),  # type: ignore[arg-type]
        "to_torch: num_layers is 1.0, not an integer",
    ),
    "keras, sizes that are no integers": (
        lambda: to_keras(np.zeros(392), num_layers=1, num_units="7", input_size=5),  # type: ignore[arg-type]
        "to_keras: num_units is '7', not an integer",
    ),
    "complex": (
        lambda: to_torch(np.zeros(392, complex), num_layers=1, num_units=7, input_size=5),
        "params has complex128 elements, not floats",
    ),
    "keras, nothing": (lambda: from_keras(None), "layers are NoneType, no list"),  # type: ignore[arg-type]
    "keras, a layer": (
        lambda: from_keras([KerasLayer()]),  # type: ignore[list-item]
        r"of layer 0 are KerasLayer.*get_weights",
    ),
    "keras, integers": (
        lambda: from_keras([[np.zeros((5, 28), int), np.zeros((7, 28), int)]]),
        "from_keras: layer 0, weight 0 has int64 elements, not floats",
    ),
    "keras, no matrix": (lambda: from_keras([[np.zeros(28), np.zeros((7, 28))]]), "no matrices"),
    "wrong length": (
        lambda: to_torch(np.zeros(5), num_layers=1, num_units=7, input_size=5),
        r"these sizes have \(392,\)",
    ),
    "wrong shape": (
        lambda: from_torch({**small(), "bias_ih_l0": np.zeros(27), "bias_hh_l0": np.zeros(28)}),
        r"has shape \(27,\), expected \(28,\)",
    ),
}


class KerasLayer:
    """What a layer looks like from outside."""

    def get_weights(self) -> list[Any]:
        return []


def two_layers(lost: int) -> dict[str, Any]:
    """Two layers under a prefix, the biases of layer `lost` not there."""
    out = {f"enc.weight_ih_l{k}": np.zeros((28, 7)) for k in range(2)}
    out |= {f"enc.weight_hh_l{k}": np.zeros((28, 7)) for k in range(2)}
    return out | {f"enc.bias_{n}_l{1 - lost}": np.zeros(28) for n in ("ih", "hh")}


def both_ways(*biases: str) -> dict[str, Any]:
    """A layer of two directions with these biases alone."""
    weights = {k + end: v for k, v in small().items() for end in ("", "_reverse")}
    return weights | {k: np.zeros(28) for k in biases}


def small() -> dict[str, Any]:
    """An LSTM of 7 units over 5 columns."""
    return {"weight_ih_l0": np.zeros((28, 5)), "weight_hh_l0": np.zeros((28, 7))}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name: str) -> None:
    call, words = BAD[name]
    with pytest.raises(li.IRError, match=words):
        call()
