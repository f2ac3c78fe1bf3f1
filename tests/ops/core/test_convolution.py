"""Convolutions, their transposes and pools with all gradients, against their definition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from convolution_cases import LIMIT, Case, check, near, random_case
from device import need

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipeline import Pipeline

FIXED = [Case("conv", 2, 12, (37,), (4,), 10, (3,), ((1, 5),), (2,), groups=2)]
OPEN = [
    Case("conv", "N", 5, ("L",), (4,), 1, padding=((1, 1),)),
    Case("conv", "N", 3, ("H", "W"), (2, 3), 6, (1, 2), ((1, 0), (2, 0)), groups=3),
]
MORE = [
    Case("conv", 1, 40, (100,), (5,), 64, padding=((2, 2),)),
    Case("conv", "N", 20, ("L",), (3,), 28, padding=((1, 1),)),
    Case("conv", 2, 3, (13, 21), (3, 2), 5, (2, 1), ((1, 0), (0, 1))),
    Case("conv", "N", 6, ("H", "W"), (3, 4), 12, (1, 2), ((1, 2), (3, 0)), groups=6),
    Case("transposed", 2, 6, (7,), (5,), 9, (2,), ((1, 2),), groups=3, more=(1,)),
    Case("transposed", "N", 3, ("H", "W"), (2, 3), 5, (2, 1), ((0, 1), (1, 0))),
]
POOLS = [
    Case("max", "N", 3, ("H", "W"), (3, 2), strides=(2, 3), padding=((1, 1), (0, 1)), ceil=True),
    Case("avg", 2, 3, ("L",), (4,), strides=(3,), padding=((2, 1),), ceil=True, counted=False),
]
KINDS = ["conv", "transposed", "max", "avg"]


def test_fixed_sizes(seed: int) -> None:
    check(FIXED, seed, device="local-task", weaker=False)


def test_open_sizes(seed: int) -> None:
    check([*OPEN, POOLS[0]], seed, device="local-task", weaker=False)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_more_of_both_kinds(device: str, seed: int) -> None:
    check([*MORE, *POOLS], seed, device=device, weaker=False)


def _by_torch(c: Case, arrays: dict[str, Any]) -> dict[str, Any]:
    import torch
    from torch.nn import functional

    given = {k: torch.tensor(a, requires_grad=True) for k, a in arrays.items() if k != "ct_y"}
    x, pads = given["x"], [p for pair in reversed(c.padding) for p in pair]
    if c.kind == "conv":
        f = (functional.conv1d, functional.conv2d)[c.rank - 1]
        x = functional.pad(x, pads)
        y = f(x, given["w"], given["b"], stride=c.strides, dilation=c.dilations, groups=c.groups)
    elif c.kind == "transposed":
        f = (functional.conv_transpose1d, functional.conv_transpose2d)[c.rank - 1]
        y = f(x, given["w"], None, c.strides, groups=c.groups, dilation=c.dilations)
        y = functional.pad(y, [n for m in reversed(c.more) for n in (0, m)])
        y = y[(..., *(slice(a, n - b) for (a, b), n in zip(c.padding, y.shape[2:], strict=True)))]
        y = y + given["b"].reshape(-1, *(1,) * c.rank)
    else:
        low = [a for a, _ in c.padding]
        if c.kind == "max":
            g = (functional.max_pool1d, functional.max_pool2d)[c.rank - 1]
            y = g(x, c.taps, c.strides, low, c.dilations, c.ceil)
        else:
            h = (functional.avg_pool1d, functional.avg_pool2d)[c.rank - 1]
            y = h(x, c.taps, c.strides, low, c.ceil, c.counted)
    y.backward(torch.tensor(arrays["ct_y"]))
    grads = {f"d_{k}": t.grad for k, t in given.items()}
    return {k: t.detach().numpy() for k, t in {"y": y, **grads}.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_expectation_agrees_with_torch(kind: str, rng: np.random.Generator) -> None:
    need("torch")
    for _ in range(10):
        c = random_case(rng, kind, most=16, dtype="f64")
        batch, sizes = c.calls()[0]
        arrays = c.arrays(rng, batch, sizes)
        want = c.expected(**arrays)
        for name, got in _by_torch(c, arrays).items():
            near(got, want[name], 1e-12, f"{c} {name}")


def test_output_padding_is_torchs() -> None:
    """Of a dilated kernel it may be as much as the stride, or more than the padding."""
    need("torch")
    import torch

    r = np.random.default_rng(0)
    x, w = r.standard_normal((2, 3, 5)), r.standard_normal((3, 4, 3))
    for stride, padding, more, dilation in ((2, 0, 1, 1), (1, 2, 1, 2), (2, 1, 2, 3), (3, 1, 2, 1)):
        a, b = li.input("x", x.shape, "f64"), li.input("w", w.shape, "f64")
        y = li.conv_transpose1d(a, b, stride, padding, more, dilation=dilation)
        got = li.interpret(li.Graph("g", [a, b], {"y": y}), x=x, w=w)["y"]
        given = torch.tensor(x), torch.tensor(w)
        want = torch.nn.functional.conv_transpose1d(*given, None, stride, padding, more, dilation=dilation)
        near(got, want.numpy(), 1e-12, str((stride, padding, more, dilation)))


@pytest.mark.parametrize("kind", KINDS)
def test_meaning_gradients_and_expansion(kind: str, rng: np.random.Generator) -> None:
    """Of the ops and of the primitives that they become; no compiler."""
    for k in range(8):
        c = random_case(rng, kind, most=16, dtype=("f64", "f64", "f32", "f16")[k % 4])
        graph = c.graph()
        batch, sizes = c.calls()[0]
        arrays = c.arrays(rng, batch, sizes)
        want = c.expected(**arrays)
        for form in (graph, Pipeline.parse("o0").run(graph).graph):
            for name, got in li.interpret(form, arrays).items():
                near(got, want[name], LIMIT[c.dtype], f"{c} {sizes} {name}")


def test_the_expansion_wraps_integers(rng: np.random.Generator) -> None:
    for dtype in ("i8", "u8", "i32"):
        for kind in ("conv", "transposed", "max"):
            c = random_case(rng, kind, most=16, dtype=dtype)
            graph = c.forward()
            batch, sizes = c.calls()[0]
            arrays = {k: a for k, a in c.arrays(rng, batch, sizes).items() if k != "ct_y"}
            got = li.interpret(Pipeline.parse("o0").run(graph).graph, arrays)["y"]
            np.testing.assert_array_equal(got, li.interpret(graph, arrays)["y"], err_msg=str(c))


def test_nan_and_padding_of_a_largest_element() -> None:
    x = li.input("x", (1, 1, "L"), "f32")
    graph = li.Graph("g", [x], {"y": li.max_pool1d(x, 3, 2, 1)})
    a = np.array([[[-5, -7, np.nan, -2, -3]]], np.float32)
    np.testing.assert_array_equal(li.interpret(graph, x=a)["y"], [[[-5, np.nan, -2]]])


def test_padding_takes_no_gradient_of_a_largest_element() -> None:
    """A window of -inf alone: its share goes to the first element of x, as PyTorch's does."""
    x = li.input("x", (1, 1, 4), "f32")
    back = li.grad(li.Graph("g", [x], {"loss": li.sum(li.max_pool1d(x, 3, 2, 1))}), "loss", ["x"])
    a = np.array([[[-np.inf, -np.inf, 2, 1]]], np.float32)
    np.testing.assert_array_equal(li.interpret(back, x=a)["d_x"], [[[1, 0, 1, 0]]])


def test_on_a_cpu_nothing_is_multiplied_by_a_copy_of_windows() -> None:
    """Forward and back to the operand are kernels' calls, whatever stride and groups."""
    for c in (*FIXED, *MORE):
        text = prepare(c.forward(), resolve("cpu:x86-64-v3")).text
        assert "stencil_" in text
        assert "dot_general" not in text, c


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_random_cases(part: int, rng: np.random.Generator, seed: int) -> None:
    device = ("local-task", "local-sync")[part % 2]
    check([random_case(rng, KINDS[part % 4]) for _ in range(4)], seed, device=device)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_other_floats(dtype: str, rng: np.random.Generator, seed: int) -> None:
    check([random_case(rng, kind, most=40, dtype=dtype) for kind in KINDS], seed, device="local-task")


@pytest.mark.slow
def test_many_taps_and_channels(seed: int) -> None:
    cases = [
        Case("conv", 2, 1, (1600,), (400,), 40, (160,)),
        Case("conv", "N", 3, ("L",), (33,), 5, (2,), ((8, 9),)),
        Case("conv", "N", 16, ("L",), (31,), 32, padding=((30, 30),), dilations=(2,), groups=16),
        Case("conv", 1, 256, (200,), (3,), 256, (2,), ((1, 1),)),
        Case("transposed", 1, 32, ("L",), (16,), 16, (8,), ((4, 4),)),
    ]
    check(cases, seed, device="local-task")


@pytest.mark.slow
def test_without_kernels(seed: int) -> None:
    check([*FIXED, *OPEN, *MORE], seed, options={"kernels": False})


@pytest.mark.slow
def test_vulkan(rng: np.random.Generator, seed: int) -> None:
    need("vulkan")
    check([random_case(rng, kind, most=16) for kind in KINDS], seed, target="vulkan")
    check([*FIXED, *OPEN], seed, target="vulkan")
