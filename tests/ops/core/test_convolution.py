"""Compiled convolutions and both their gradients, against one sum per tap in float64."""

from __future__ import annotations

import numpy as np
import pytest
from convolution_cases import Case, check, near, random_case
from device import need

import lstm_ir as li
from lstm_ir.ops.core.convolution_windows import DIRECT, folded, windows
from lstm_ir.passes.base import Pipeline

FIXED = [
    Case(1, 256, 200, 256, 3, 2, 1, (1, 1)),
    Case(1, 40, 1000, 256, 5, 1, 1, (2, 2)),
    Case(2, 12, 37, 10, 4, 3, 2, (1, 5), groups=2),
]
OPEN = [Case("N", 80, "L", 128, 3, 1, 1, (1, 1)), Case("N", 6, "L", 12, 4, 2, 1, (1, 2), groups=6)]


@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_fixed_sizes(device: str, seed: int) -> None:
    check(FIXED, seed, device=device, weaker=False)


def test_open_sizes(seed: int) -> None:
    check(OPEN, seed, device="local-task", weaker=False)


def test_expectation_agrees_with_torch(rng: np.random.Generator) -> None:
    need("torch")
    import torch

    for _ in range(40):
        c = random_case(rng, most=16, dtype="f64")
        arrays = c.arrays(rng, *c.sizes()[0])
        x, w = (torch.tensor(arrays[k], requires_grad=True) for k in "xw")
        padded = torch.nn.functional.pad(x, c.padding)
        y = torch.nn.functional.conv1d(padded, w, stride=c.stride, dilation=c.dilation, groups=c.groups)
        y.backward(torch.tensor(arrays["ct_y"]))
        want = c.expected(**arrays)
        for name, got in (("y", y), ("d_x", x.grad), ("d_w", w.grad)):
            assert got is not None
            near(got.detach().numpy(), want[name], 1e-12, f"{c} {name}")


def test_the_expansion_means_what_the_op_means(rng: np.random.Generator) -> None:
    """Integers wrap, two-byte floats are summed in f32; no compiler."""
    for dtype in ("i8", "u8", "i32", "f16", "f64"):
        for _ in range(12):
            c = random_case(rng, most=16, dtype=dtype)
            x = li.input("x", (c.batch, c.channels, c.length), dtype)
            w = li.input("w", c.weights, dtype)
            y = li.conv1d(x, w, c.stride, c.padding, c.dilation, c.groups)
            graph = li.Graph("convolution", [x, w], {"y": y})
            arrays = c.arrays(rng, *c.sizes()[0])
            given = {k: arrays[k] for k in "xw"}
            got = li.interpret(Pipeline.parse("o0").run(graph).graph, given)["y"]
            want = li.interpret(graph, given)["y"]
            if dtype == "f16":
                near(got, want.astype("f8"), 2e-3, str(c))
            else:
                np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=str(c))


@pytest.mark.parametrize("taps", [1, 2, DIRECT, DIRECT + 1, 31, 300])
def test_windows_and_their_transpose(taps: int, rng: np.random.Generator) -> None:
    """<windows(x), r> = <x, folded(r)>, and windows are what they are said to be."""
    for stride, dilation, low in ((1, 1, 0), (3, 1, 2), (1, 2, 1), (2, 3, 1), (7, 2, 0)):
        spare, steps, channels = int(rng.integers(stride)), int(rng.integers(1, 6)), 3
        length = (steps - 1) * stride + (taps - 1) * dilation + 1 + spare
        x, r = li.input("x", (length, channels), "f64"), li.input("r", (steps, taps * channels), "f64")
        seen = windows(x, taps, stride, dilation, steps)
        back = folded(r, taps, stride, dilation, low, length - low)
        graph = li.Graph("taps", [x, r], {"seen": seen, "back": back})
        a, b = rng.standard_normal((length, channels)), rng.standard_normal(r.shape)
        a[:low] = 0
        out = li.interpret(graph, x=a, r=b)
        at = stride * np.arange(steps)[:, None] + dilation * np.arange(taps)
        np.testing.assert_array_equal(out["seen"], a[at].reshape(steps, -1))
        np.testing.assert_allclose((out["seen"] * b).sum(), (a[low:] * out["back"]).sum(), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(12))
def test_random_convolutions(part: int, rng: np.random.Generator, seed: int) -> None:
    device = ("local-task", "local-sync")[part % 2]
    check([random_case(rng) for _ in range(3)], seed, device=device)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_other_floats(dtype: str, rng: np.random.Generator, seed: int) -> None:
    check([random_case(rng, 80, dtype) for _ in range(3)], seed, device="local-task")


@pytest.mark.slow
def test_many_taps(seed: int) -> None:
    cases = [
        Case(2, 1, 1600, 40, 400, 160),
        Case("N", 3, "L", 5, 33, 2, 1, (8, 9)),
        Case("N", 16, "L", 32, 31, 1, 2, (30, 30), groups=16),
    ]
    check(cases, seed, device="local-task")


@pytest.mark.slow
def test_vulkan(rng: np.random.Generator, seed: int) -> None:
    need("vulkan")
    check([random_case(rng, 40) for _ in range(4)], seed, target="vulkan")
