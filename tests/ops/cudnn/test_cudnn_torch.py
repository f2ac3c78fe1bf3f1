"""CudnnRNN live against PyTorch: packed sequences and autograd in float64, all combinations."""

from itertools import product
from typing import Any

import cudnn_cases as cu
import numpy as np
import pytest
from cudnn_torch import Reference
from device import need

import lstm_ir as li

MODES: dict[str, dict[str, Any]] = {
    "rnn_relu": {"rnn_mode": "rnn_relu"},
    "rnn_tanh": {"rnn_mode": "rnn_tanh"},
    "gru": {"rnn_mode": "gru"},
    "lstm": {"rnn_mode": "lstm"},
    "projection": {"rnn_mode": "lstm", "num_proj": 4},
}
DIRECTIONS = ("unidirectional", "bidirectional")
TOLERANCE = 1e-11


@pytest.fixture(scope="module")
def torch() -> Any:
    need("torch")
    import torch

    return torch


def combinations() -> list[tuple[int, str, bool, bool]]:
    """Layers, input mode, time_major, whether lengths differ."""
    return list(product((1, 3), ("linear_input", "skip_input"), (True, False), (False, True)))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_all_combinations(mode: str, direction: str, torch: Any, rng: np.random.Generator) -> None:
    for L, input_mode, time_major, vary in combinations():
        attrs = MODES[mode] | {"direction": direction, "input_mode": input_mode}
        attrs |= {"time_major": time_major}
        skip = input_mode == "skip_input"
        T, B, I, H = 6, 3, 7 if skip else 5, 7
        lengths = rng.permutation([T, 1, 4]) if vary else None
        a = cu.operands(rng, L, (T, B, I, H), lengths=lengths, **attrs)
        what = (mode, direction, L, input_mode, time_major, vary)
        reference = Reference(torch, a, L, attrs)
        out, grads, b = cu.both(rng, a, attrs)
        want, d_want = reference.run(), reference.grads(b)
        cu.close(out, want, TOLERANCE, what)
        cu.close(grads, d_want, TOLERANCE, what)
        cu.close(li.interpret(cu.expanded(cu.graph(cu.FORWARD, a, attrs)), a), out, TOLERANCE, what)
        back = cu.graph(cu.BACKPROP, b, cu.back_attrs(attrs))
        cu.close(li.interpret(cu.expanded(back), b), grads, TOLERANCE, what)


@pytest.mark.parametrize("p", [0.3, 1.0])
@pytest.mark.parametrize("given", [False, True], ids=["drawn", "given"])
@pytest.mark.parametrize("mode", MODES)
def test_dropout(mode: str, given: bool, p: float, torch: Any, rng: np.random.Generator) -> None:
    """With the same masks; those that the op drew are found in its reserve."""
    attrs = MODES[mode] | {"direction": "bidirectional", "dropout": p, "seed": 5, "seed2": -7}
    L, (T, B, _, H) = 3, cu.SIZES
    a = cu.operands(rng, L, lengths=[T, 4, 1], **attrs)
    Q = int(a["input_h"].shape[2])
    keep = rng.random((L - 1, T, B, 2 * Q)) >= p
    if given:
        a["dropout_keep"] = keep.astype(np.uint8)
    out, grads, b = cu.both(rng, a, attrs)
    if not given:
        keep = masks(out["reserve_space"], L, T, B, H, Q, attrs["rnn_mode"])
        assert abs(float(keep.mean()) - (1 - p)) < 0.1
    reference = Reference(torch, a, L, attrs)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    cu.close(out, reference.run(keep, scale), TOLERANCE, mode)
    cu.close(grads, reference.grads(b), TOLERANCE, mode)
    cu.close(li.interpret(cu.expanded(cu.graph(cu.FORWARD, a, attrs)), a), out, TOLERANCE, mode)


def masks(reserve: Any, L: int, T: int, B: int, H: int, Q: int, mode: str) -> Any:
    """The keep masks in a reserve of two directions, by the table of docs/cudnn-rnn.md."""
    saved = {"lstm": 5, "gru": 4}.get(mode, 0) * 2 * H
    found, at = [], 0
    for layer in range(L):
        at += T * B * saved
        if layer < L - 1:
            at += T * B * 2 * Q
            found.append(reserve[at : at + T * B * 2 * Q].reshape(T, B, 2 * Q))
            at += T * B * 2 * Q
    assert at == len(reserve)
    assert set(np.unique(found)) <= {0.0, 1.0}
    return np.stack(found)


@pytest.mark.slow
def test_compiled_at_sizes_that_vectorise(torch: Any, rng: np.random.Generator) -> None:
    """float32 on the CPU, 64 units, named T and B; PyTorch in float64."""
    graphs, data, lengths = {}, {}, [11, 1, 3, 11, 7, 1, 9, 2]
    for mode in ("gru", "projection"):
        attrs = MODES[mode] | {"direction": "bidirectional"}
        if mode == "projection":
            attrs = attrs | {"num_proj": 32}
        a = cu.operands(rng, 2, (11, 8, 48, 64), np.float32, lengths, 0.1, **attrs)
        out = li.interpret(cu.graph(cu.FORWARD, a, attrs), a)
        b = cu.back_operands(rng, a, out)
        reference = Reference(torch, a, 2, attrs)
        named = {"input": ("T", "B", 48), "sequence_lengths": ("B",), "input_h": (4, "B", 64)}
        if mode == "projection":
            named |= {"input_h": (4, "B", 32), "input_c": (4, "B", 64)}
        graphs[mode] = cu.graph(cu.FORWARD, a, attrs, named)
        data[mode] = a, reference.run()
        graphs[f"{mode}_back"] = cu.graph(cu.BACKPROP, b, attrs)
        data[f"{mode}_back"] = b, reference.grads(b)
    exe = li.compile(li.Program("vectors", graphs))
    for name, (a, want) in data.items():
        cu.close(exe.entries[name](a), want, 2e-5, name)
