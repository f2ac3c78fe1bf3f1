"""Convolutions and both their gradients over all attributes, beside torch, on the caller and on IREE's workers."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from convolution_cases import LIMIT, Case, near
from device import need

import lstm_ir as li

STRIDES, DILATIONS, TAPS = (1, 2, 3), (1, 2, 3), (1, 2, 3, 5)
CHANNELS = ((1, 1, 1), (3, 5, 1), (4, 6, 2), (3, 3, 3), (16, 24, 1), (17, 9, 1))  # in, out, groups
PADDINGS = ("none", "low", "high", "most")
# On two axes, which differ.
STRIDES2, DILATIONS2 = ((1, 1), (1, 2), (2, 3), (3, 1)), ((1, 1), (1, 3), (2, 1))
TAPS2 = ((1, 3), (2, 2), (3, 1), (3, 5))
OPEN2 = tuple(product((False, True), repeat=3))  # batch, height, width
DTYPES = ("f32", "f64", "f16", "bf16")


def _padding(kind: str, window: int) -> tuple[int, int]:
    most = window - 1
    return {"none": (0, 0), "low": (most, 0), "high": (0, (most + 1) // 2), "most": (most, most)}[kind]


def every() -> list[Case]:
    """All strides, dilations, kernel sizes and paddings; channels, lengths and what is open in turn."""
    found: list[Case] = []
    for k, (stride, dilation, taps, padding) in enumerate(product(STRIDES, DILATIONS, TAPS, PADDINGS)):
        c, o, groups = CHANNELS[k % len(CHANNELS)]
        window = (taps - 1) * dilation + 1
        length: Any = "L" if k % 4 in (1, 3) else window + k % 7
        batch: Any = "N" if k % 4 in (2, 3) else 1 + k % 3
        pads = (_padding(padding, window),)
        found.append(Case("conv", batch, c, (length,), (taps,), o, (stride,), pads, (dilation,), groups))
    return found


def every_on_two_axes() -> list[Case]:
    """All pairs of strides, dilations and taps, with all paddings; channels, dtypes and what is open in turn."""
    found: list[Case] = []
    for k, (strides, dilations, taps, padding) in enumerate(product(STRIDES2, DILATIONS2, TAPS2, PADDINGS)):
        c, o, groups = CHANNELS[k % len(CHANNELS)]
        windows = [(t - 1) * d + 1 for t, d in zip(taps, dilations, strict=True)]
        rows, height, width = OPEN2[k * 5 // 4 % len(OPEN2)]
        sizes = ("H" if height else windows[0] + k % 5, "W" if width else windows[1] + k % 3)
        pads = (_padding(padding, windows[0]), _padding(PADDINGS[k // 4 % 4], windows[1]))
        batch: Any = "N" if rows else 1 + k % 2
        dtype = DTYPES[k // 7 % len(DTYPES)]
        found.append(Case("conv", batch, c, sizes, taps, o, strides, pads, dilations, groups, dtype=dtype))
    return found


def by_torch(c: Case, x: Any, w: Any, b: Any, ct_y: Any) -> dict[str, Any]:
    """y and the gradients of x, w and the bias by torch in float64."""
    import torch

    leaves = {n: torch.tensor(v.astype("f8"), requires_grad=True) for n, v in (("x", x), ("w", w), ("b", b))}
    padded = torch.nn.functional.pad(leaves["x"], [n for pair in reversed(c.padding) for n in pair])
    conv: Any = (torch.nn.functional.conv1d, torch.nn.functional.conv2d)[c.rank - 1]
    y = conv(padded, leaves["w"], leaves["b"], c.strides, 0, c.dilations, c.groups)
    y.backward(torch.tensor(ct_y.astype("f8")))
    found = {"y": y.detach().numpy()}
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        found[f"d_{name}"] = leaf.grad.numpy()
    return found


def held(cases: list[Case], seed: int, **how: Any) -> None:
    """All cases in one module, at all their sizes."""
    need("torch")
    exe = li.compile(li.Program("convolutions", {f"c{k}": c.graph() for k, c in enumerate(cases)}), **how)
    for k, c in enumerate(cases):
        for batch, sizes in c.calls():
            arrays = c.arrays(np.random.default_rng([seed, k, batch]), batch, sizes)
            got, want = exe.entries[f"c{k}"](arrays), by_torch(c, **arrays)
            for name, right in want.items():
                near(got[name], right, LIMIT[c.dtype], f"seed {seed}: {c} {(batch, sizes)} {name}")


def test_every_attribute_is_here() -> None:
    cases = every()
    for of, values in (("strides", STRIDES), ("dilations", DILATIONS), ("taps", TAPS)):
        assert {getattr(c, of)[0] for c in cases} == set(values)
    assert {(c.channels, c.outputs, c.groups) for c in cases} == set(CHANNELS)
    assert {(isinstance(c.batch, str), isinstance(c.sizes[0], str)) for c in cases} == set(
        product((False, True), repeat=2)
    )


def test_every_attribute_is_here_on_two_axes() -> None:
    """Each dtype with each group and each way to be open, too."""
    cases = every_on_two_axes()
    assert {(c.strides, c.dilations, c.taps) for c in cases} == set(product(STRIDES2, DILATIONS2, TAPS2))
    assert {(c.dtype, c.groups) for c in cases} == set(product(DTYPES, (1, 2, 3)))
    is_open = {(c.dtype, isinstance(c.batch, str), *(isinstance(n, str) for n in c.sizes)) for c in cases}
    assert is_open == set(product(DTYPES, *[(False, True)] * 3))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_every_convolution_on_two_axes(part: int, seed: int) -> None:
    held(every_on_two_axes()[part::16], seed)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["local-sync", "local-task"])
@pytest.mark.parametrize("part", range(6))
def test_every_convolution(part: int, device: str, seed: int) -> None:
    """The second device finds the modules of the first in the cache."""
    held(every()[part::6], seed, device=device)


@pytest.mark.slow
@pytest.mark.vulkan
@pytest.mark.parametrize("part", range(6))
def test_every_convolution_on_vulkan(part: int, seed: int) -> None:
    need("vulkan")
    held(every()[part::24], seed, target="vulkan")
