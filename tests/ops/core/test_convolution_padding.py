"""Paddings of convolutions by a word: as PyTorch where the stride is 1, as TensorFlow and Keras with strides."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]
any_: Any = li
X, W = np.zeros((2, 3, 9), "f4"), np.zeros((4, 3, 3), "f4")


def found(a: Array, w: Array, named: bool, compiled: bool, **options: Any) -> Array:
    """By li.conv1d or li.conv2d, with names for the sizes or numbers."""
    rank = a.ndim - 2
    sizes = ("H", "L")[2 - rank :] if named else a.shape[2:]
    x = li.input("x", ("N", a.shape[1], *sizes))
    build: Any = (li.conv1d, li.conv2d)[rank - 1]
    g = li.Graph("g", [x], {"y": build(x, w, **options)})
    return (li.compile(g)(x=a) if compiled else li.interpret(g, x=a))["y"]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("word", ["same", "valid"])
@pytest.mark.parametrize(("taps", "dilation"), [((4,), 1), ((3,), 3), ((2, 5), (2, 1))])
def test_as_torch(word: str, taps: Any, dilation: Any, named: bool, rng: np.random.Generator) -> None:
    need("torch")
    import torch

    a = rng.standard_normal((2, 3, *(11, 10)[: len(taps)])).astype("f4")
    w = rng.standard_normal((4, 3, *taps)).astype("f4")
    conv = (torch.nn.functional.conv1d, torch.nn.functional.conv2d)[len(taps) - 1]
    want = conv(torch.tensor(a), torch.tensor(w), padding=word, dilation=dilation).numpy()
    got = found(a, w, named, False, padding=word, dilation=dilation)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("taps", [(4,), (1,), (2, 5)])
def test_with_strides(taps: Any, stride: int, named: bool, rng: np.random.Generator) -> None:
    """ceil(size / stride) places, the larger part of the edges after: TensorFlow's documented rule, by PyTorch."""
    need("torch")
    import torch

    w = rng.standard_normal((4, 3, *taps)).astype("f4")
    conv: Any = (torch.nn.functional.conv1d, torch.nn.functional.conv2d)[len(taps) - 1]
    for size in (7, 8, 9, 10):
        a = rng.standard_normal((2, 3, *(size, 10)[: len(taps)])).astype("f4")
        totals = [max((math.ceil(n / stride) - 1) * stride + k - n, 0) for n, k in zip(a.shape[2:], taps, strict=True)]
        around = np.pad(a, [(0, 0), (0, 0), *((n // 2, n - n // 2) for n in totals)])
        want = conv(torch.tensor(around), torch.tensor(w), stride=stride).numpy()
        assert want.shape[2:] == tuple(math.ceil(n / stride) for n in a.shape[2:])
        got = found(a, w, named, size == 9, padding="same", stride=stride)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (1, 3), (2, 1)])
def test_causal_reads_nothing_that_comes_later(stride: int, dilation: int, rng: np.random.Generator) -> None:
    """Place t is the sum of what stands 0, d, 2 d, ... places before t stride."""
    a, w = rng.standard_normal((2, 3, 9)), rng.standard_normal((4, 3, 3))
    want = np.zeros((2, 4, -(-9 // stride)))
    for t in range(want.shape[2]):
        for k in range(3):
            at = t * stride - (2 - k) * dilation
            if at >= 0:
                want[:, :, t] += a[:, :, at] @ w[:, :, k].T
    for named in (False, True):
        got = found(a.astype("f4"), w.astype("f4"), named, named, padding="causal", stride=stride, dilation=dilation)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


REFUSED: dict[str, Callable[[], object]] = {
    "padding is 'sme'; expected valid, same or causal": lambda: li.conv1d(X, W, padding="sme"),
    "padding is 'causal'; expected valid or same": lambda: li.conv2d(X[None], W[None], padding="causal"),
    "strides and dilations are 1 or more": lambda: li.conv1d(X, W, 0, "same"),
    "the kernel size is K": lambda: li.conv1d(X, li.input("w", (4, 3, "K")), padding="same"),
    "takes x and w of rank 3": lambda: li.conv1d(X[0], W, padding="same"),
    "padding is 'same'; expected a number or a pair; conv1d and conv2d take words": (
        lambda: any_.max_pool1d(X, 2, padding="same")
    ),
    "padding is 'valid'; expected a number, or one or a pair for each of 2 axes; conv1d and": (
        lambda: any_.max_pool2d(X[None], 2, padding="valid")
    ),
    "stride is 2.0; expected a whole number": lambda: any_.conv1d(X, W, 2.0),
    "x has 6 channels, w takes 3: x is [N, C, ..]. Channels last? Give li.transpose(x, (0, 2, 1))": (
        lambda: li.conv1d(li.input("y", (2, 6, 3)), W)
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_no_padding_is_told(said: str) -> None:
    with pytest.raises(li.IRError, match=re.escape(said)):
        REFUSED[said]()
