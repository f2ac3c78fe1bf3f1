"""Losses of narrow types: labels of 8 bits, and 16-bit floats whose sums no 16-bit float holds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from device import need

import lstm_ir as li

HALVES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_labels_of_8_bits_and_more_classes(kind: str, rng: np.random.Generator) -> None:
    logits = rng.standard_normal((4, 300)).astype(np.float32)
    labels = np.array([0, 1, 44, 127]).astype(li.DType(kind).numpy)  # 44 is 300 in 8 bits
    x, at = li.input("x", (4, 300)), li.input("labels", (4,), kind)
    g = li.Graph("g", [x, at], {"loss": li.cross_entropy(x, at)})
    logp = logits - np.log(np.exp(logits.astype("f8")).sum(-1, keepdims=True))
    want = -logp[np.arange(4), labels.astype(int)].mean()
    with li.compile(g) as exe:
        for out in (li.interpret(g, x=logits, labels=labels), exe(x=logits, labels=labels)):
            np.testing.assert_allclose(out["loss"], want, rtol=1e-5)


@pytest.mark.parametrize("kind", HALVES)
def test_a_masked_mean_of_more_than_a_half_holds(kind: str) -> None:
    """70000 rows, each of the same loss: their sum and their number are beyond f16."""
    n = 70000
    x, want = np.full((n, 1), 2, HALVES[kind]), np.zeros((n, 1), HALVES[kind])
    v, w, m = li.input("x", ("N", 1), kind), li.input("w", ("N", 1), kind), li.input("m", ("N", 1), "i1")
    labels = np.zeros(n, "i4")
    logits, at = li.input("logits", ("N", 2), kind), li.input("labels", ("N",), "i32")
    loss = {"mse": li.mse(v, w, m), "ce": li.cross_entropy(logits, at, m[:, 0])}
    g = li.Graph("g", [v, w, m, logits, at], loss)
    mask = np.ones((n, 1), bool)
    mask[0] = False
    given = {"x": x, "w": want, "m": mask, "logits": np.zeros((n, 2), HALVES[kind]), "labels": labels}
    with li.compile(g) as exe:
        for out in (li.interpret(g, given), exe(given)):
            assert out["mse"].dtype == x.dtype
            np.testing.assert_allclose(out["mse"].astype("f8"), 4.0, rtol=1e-2)
            np.testing.assert_allclose(out["ce"].astype("f8"), np.log(2.0), rtol=1e-2)


@pytest.mark.parametrize("kind", HALVES)
def test_ctc_of_halves(kind: str, rng: np.random.Generator) -> None:
    """PyTorch's loss in double precision of the same logits; 40 frames are too many for sums in bf16."""
    need("torch")
    import torch

    T, B, C = 40, 3, 5
    x = (2 * rng.standard_normal((T, B, C))).astype(HALVES[kind])
    labels = np.array([[1, 2, 2, 3], [4, 4, 1, 1], [3, 1, 1, 1]], np.int32)
    frames, counts = np.array([40, 31, 12], np.int32), np.array([4, 2, 1], np.int32)
    v = li.input("x", ("T", B, C), kind)
    g = li.Graph("ctc", [v], {"each": li.ctc_loss(v, labels, frames, counts, reduction="none")})
    logp = torch.tensor(x.astype("f8")).log_softmax(-1)
    at, n, k = (torch.tensor(a).long() for a in (labels, frames, counts))
    want = torch.nn.functional.ctc_loss(logp, at, n, k, reduction="none").numpy()
    tolerance = float(ml_dtypes.finfo(HALVES[kind]).eps)
    with li.compile(g) as exe:
        for out in (li.interpret(g, x=x), exe(x=x)):
            assert out["each"].dtype == x.dtype
            np.testing.assert_allclose(out["each"].astype("f8"), want, rtol=tolerance)


def test_a_row_in_f16_that_cannot_be_spelled_costs_infinity() -> None:
    v = li.input("x", (1, 1, 3), "f16")
    g = li.Graph("ctc", [v], {"y": li.ctc_loss(v, np.array([[1, 1]]), np.array([1]), np.array([2]))})
    assert li.interpret(g, x=np.zeros((1, 1, 3), "f2"))["y"] == np.inf
