"""Losses and layers against PyTorch: values and gradients, interpreted and compiled; dropout's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.ir.errors import CallError, IRError, ValueRangeError

pytestmark = pytest.mark.slow_on("vulkan")
Array = np.ndarray[Any, Any]
T, B, C, S, N = 11, 3, 5, 4, 7


def both(g: li.Graph, given: dict[str, Array], wrt: list[str]) -> list[dict[str, Array]]:
    """Loss and gradients: the NumPy meaning, and compiled for the CPU."""
    wide = li.grad(g, "loss", wrt)
    with li.compile(wide) as exe:
        return [li.interpret(wide, given), exe(given)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("masked", [False, True])
def test_cross_entropy(masked: bool, smoothing: float, rng: np.random.Generator) -> None:
    need("torch")
    import torch

    x = (3 * rng.standard_normal((T, B, C))).astype(np.float32)
    labels = rng.integers(0, C, (T, B)).astype(np.int32)
    mask = rng.random((T, B)) < 0.6
    v, at = li.input("x", ("T", "B", C)), li.input("labels", ("T", "B"), "i32")
    m = li.input("mask", ("T", "B"), "f32" if smoothing else "i1")
    loss = li.cross_entropy(v, at, m if masked else None, label_smoothing=smoothing)
    g = li.Graph("ce", [v, at, m] if masked else [v, at], {"loss": loss})
    given = {"x": x, "labels": labels}
    if masked:  # what is left out may be anything
        left = np.where(rng.random(x.shape) < 0.5, np.nan, np.inf).astype(np.float32)
        given["x"] = np.where(mask[:, :, None], x, left)
        given["mask"] = mask.astype(m.dtype.numpy)
    p = torch.tensor(x.astype(np.float64), requires_grad=True)
    target = torch.tensor(np.where(mask, labels, -100) if masked else labels).long()
    want = torch.nn.functional.cross_entropy(p.reshape(-1, C), target.reshape(-1), label_smoothing=smoothing)
    want.backward()
    for got in both(g, given, ["x"]):
        np.testing.assert_allclose(got["loss"], want.item(), rtol=1e-5)
        np.testing.assert_allclose(got["d_x"], p.grad.numpy(), atol=1e-6)


def test_cross_entropy_edges() -> None:
    v, at = li.input("x", ("N", C)), li.input("labels", ("N",), "i32")
    m = li.input("mask", ("N",), "i1")
    masked = li.Graph("ce", [v, at, m], {"loss": li.cross_entropy(v, at, m)})
    x = np.zeros((2, C), np.float32)
    none = {"x": x, "labels": np.array([-100, 99], np.int32), "mask": np.zeros(2, bool)}
    for got in both(masked, none, ["x"]):
        assert got["loss"] == 0
        np.testing.assert_array_equal(got["d_x"], 0)
    plain = li.Graph("ce", [v, at], {"loss": li.cross_entropy(v, at)})
    with li.compile(plain) as exe, pytest.raises((CallError, ValueRangeError), match="labels"):
        exe(x=x, labels=np.array([0, C], np.int32))


def test_mse_with_a_mask(rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((T, B)).astype(np.float32) for _ in range(2))
    mask = rng.random((T, B)) < 0.5
    b[~mask] = np.inf
    v, w = li.input("a", ("T", B)), li.input("b", ("T", B))
    m = li.input("mask", ("T", B), "i1")
    g = li.Graph("m", [v, w, m], {"loss": li.mse(v, w, m)})
    difference = np.where(mask, a.astype(np.float64) - np.where(mask, b, 0), 0)
    for got in both(g, {"a": a, "b": b, "mask": mask}, ["a"]):
        np.testing.assert_allclose(got["loss"], (difference**2).sum() / mask.sum(), rtol=1e-5)
        np.testing.assert_allclose(got["d_a"], 2 * difference / mask.sum(), atol=1e-6)


def test_a_mask_is_repeated_as_numpy_repeats_it(rng: np.random.Generator) -> None:
    """The mean divides by the sum of what is repeated: here rows of C, and columns of T."""
    a, b = (rng.standard_normal((T, B, C)).astype(np.float32) for _ in range(2))
    mask = rng.random((T, B)) < 0.5
    v, w, m = li.input("a", ("T", "B", C)), li.input("b", ("T", "B", C)), li.input("mask", ("T", "B", 1), "i1")
    g = li.Graph("m", [v, w, m], {"loss": li.mse(v, w, m)})
    want = ((a.astype(np.float64) - b) ** 2)[mask].mean()
    for got in both(g, {"a": a, "b": b, "mask": mask[:, :, None]}, ["a"]):
        np.testing.assert_allclose(got["loss"], want, rtol=1e-5)
    labels, rows = rng.integers(0, C, (T, B)).astype(np.int32), np.array([2, 0, 1], np.float32)
    v, at, weights = li.input("a", ("T", B, C)), li.input("labels", ("T", B), "i32"), li.input("weights", (B,))
    g = li.Graph("ce", [v, at, weights], {"loss": li.cross_entropy(v, at, weights)})
    logp = a - np.log(np.exp(a.astype(np.float64)).sum(-1, keepdims=True))
    each = -np.take_along_axis(logp, labels[..., None], -1)[..., 0]
    for got in both(g, {"a": a, "labels": labels, "weights": rows}, ["a"]):
        np.testing.assert_allclose(got["loss"], (each * rows).sum() / (T * rows.sum()), rtol=1e-5)


def test_a_mask_of_another_shape_is_refused() -> None:
    v, at = li.input("x", ("T", "B", C)), li.input("labels", ("T", "B"), "i32")
    refused = r"mask is f32\[T\], whose shape NumPy does not repeat to \[T,B\]; an axis that repeats has the size 1"
    with pytest.raises(IRError, match=refused):
        li.cross_entropy(v, at, li.input("mask", ("T",)))
    with pytest.raises(IRError, match=r"mask is i32\[T,B\], expected i1 or floats"):
        li.cross_entropy(v, at, li.input("mask", ("T", "B"), "i32"))


def test_layer_norm_and_dense(rng: np.random.Generator) -> None:
    need("torch")
    import torch

    shapes = {"x": (T, B, N), "s": (N,), "b": (N,), "w": (C, N), "v": (C,)}
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    p = {n: li.input(n, s if n != "x" else ("T", "B", N)) for n, s in shapes.items()}
    y = li.dense(li.layer_norm(p["x"], p["s"], p["b"]), p["w"], p["v"])
    g = li.Graph("layers", list(p.values()), {"loss": li.mean(li.tanh(y))})
    t = {n: torch.tensor(a.astype(np.float64), requires_grad=True) for n, a in given.items()}
    normed = torch.nn.functional.layer_norm(t["x"], (N,), t["s"], t["b"])
    loss = torch.nn.functional.linear(normed, t["w"], t["v"]).tanh().mean()
    loss.backward()
    for got in both(g, given, list(shapes)):
        np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-4, atol=1e-6)
        for n, v in t.items():
            np.testing.assert_allclose(got[f"d_{n}"], v.grad.numpy(), atol=2e-6, err_msg=n)


def test_ctc(rng: np.random.Generator) -> None:
    need("torch")
    import torch

    x = (2 * rng.standard_normal((T, B, C))).astype(np.float32)
    labels = np.array([[1, 2, 2, 3], [4, 4, 9, 9], [3, -1, -1, -1]], np.int32)
    frames, counts = np.array([11, 7, 4], np.int32), np.array([4, 2, 1], np.int32)
    v, at = li.input("x", ("T", "B", C)), li.input("labels", ("B", "S"), "i32")
    n, k = li.input("frames", ("B",), "i32"), li.input("counts", ("B",), "i32")
    seen = np.arange(T)[:, None, None] < frames[:, None]
    behind = np.where(seen, x, np.float32(np.nan))
    given = {"x": behind, "labels": labels, "frames": frames, "counts": counts}
    for reduction in ("mean", "sum"):
        loss = li.ctc_loss(v, at, n, k, reduction=reduction)
        p = torch.tensor(x.astype(np.float64), requires_grad=True)
        want = torch.nn.functional.ctc_loss(
            p.log_softmax(-1), torch.tensor(np.clip(labels, 0, C - 1)).long(),
            torch.tensor(frames).long(), torch.tensor(counts).long(), reduction=reduction,
        )  # fmt: skip
        want.backward()
        for got in both(li.Graph("ctc", [v, at, n, k], {"loss": loss}), given, ["x"]):
            np.testing.assert_allclose(got["loss"], want.item(), rtol=1e-5)
            np.testing.assert_allclose(got["d_x"], p.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
def test_ctc_lengths_are_checked(dtype: str) -> None:
    v, at = li.input("x", ("T", "B", C)), li.input("labels", ("B", 2), "i32")
    n, k = (li.input(name, ("B",), dtype) for name in ("frames", "counts"))
    g = li.Graph("ctc", [v, at, n, k], {"loss": li.ctc_loss(v, at, n, k)})
    given = {"x": np.zeros((3, 1, C), np.float32), "labels": np.array([[1, 2]], np.int32)}
    wrong = [(4, 2), (3, 3)] + [(-1, 2), (3, -1)] * (dtype != "u8")
    with li.compile(g) as exe:
        for run in (lambda a: li.interpret(g, a), exe):
            for frames, counts in wrong:
                lengths = {"frames": np.array([frames]), "counts": np.array([counts])}
                arrays = {m: a.astype(n.dtype.numpy) for m, a in lengths.items()}
                with pytest.raises(ValueRangeError):
                    run(given | arrays)


def test_ctc_that_cannot_be_spelled() -> None:
    v = li.input("x", (3, 1, C))
    loss = li.ctc_loss(v, np.array([[1, 1]]), np.array([2]), np.array([2]))
    out = li.interpret(
        li.grad(li.Graph("ctc", [v], {"loss": loss}), "loss", "x"), {"x": np.zeros((3, 1, C), np.float32)}
    )
    assert out["loss"] == np.inf
    np.testing.assert_array_equal(out["d_x"], 0)


def test_dropout_takes_a_key_as_an_array() -> None:
    x = li.input("x", ("N",))
    g = li.Graph("d", [x], {"y": li.dropout(x, 0.5, np.array([5, 0], np.uint32))})
    kept = li.interpret(g, x=np.ones(64, np.float32))["y"]
    same = li.Graph("d", [x], {"y": li.dropout(x, 0.5, li.constant(np.array([5, 0], np.uint32)))})
    np.testing.assert_array_equal(kept, li.interpret(same, x=np.ones(64, np.float32))["y"])
    assert 0 < (kept == 0).sum() < 64


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_dropout_has_the_same_bits_everywhere(target: str, rng: np.random.Generator) -> None:
    if target != "cpu":
        need(target)
    x, step = li.input("x", ("T", "B")), li.input("step", (), "i64")
    g = li.Graph("d", [x, step], {"y": li.dropout(x, 0.3, li.random_key(5, step, stream=2))})
    seen = []
    with li.compile(g, target) as exe:
        for k in (0, 1, 2**33 + 1):
            x_given = rng.standard_normal((301, 7)).astype(np.float32)
            given = {"x": x_given, "step": np.int64(k)}
            got = exe(given)["y"]
            np.testing.assert_array_equal(got, li.interpret(g, given)["y"])
            np.testing.assert_allclose(got[got != 0], (x_given / 0.7)[got != 0], rtol=1e-6)
            seen.append(got == 0)
            assert abs(seen[-1].mean() - 0.3) < 0.04  # four standard deviations of 2107 draws
    assert all((a != b).any() for a, b in zip(seen, [*seen[1:], seen[0]], strict=True))


def test_dropout_passes_the_gradient_it_passed() -> None:
    x, step = li.input("x", ("T", "B")), li.input("step", (), "i64")
    y = li.dropout(x, 0.3, li.random_key(5, step))
    g = li.Graph("d", [x, step], {"y": y, "loss": li.sum(y)})
    given = {"x": np.ones((31, 7), np.float32), "step": np.int64(3)}
    out = li.interpret(li.grad(g, "loss", "x"), given)
    np.testing.assert_array_equal(out["d_x"], li.interpret(g, given)["y"])


def variant(name: str, **given: Any) -> Any:
    key = {} if name == "layer_norm_lstm" else {"key": np.array([1, 0], np.uint32)}
    w = [np.ones((4, 1), np.float32)] * 2
    return getattr(li, name)(li.input("x", (3, 2, 1)), *w, **key, **given)


def smoothed(x: li.Value, by: Any) -> li.Value:
    return li.cross_entropy(x, np.zeros(3, np.int32), label_smoothing=by)


def ctc(**given: Any) -> li.Value:
    """The loss of three frames of one row, but for what is given."""
    one = np.array([1], np.int32)
    labels, frames, counts = (given.pop(k, a) for k, a in (("labels", one[:, None]), ("frames", one), ("counts", one)))
    return li.ctc_loss(li.input("x", (3, 1, C)), labels, frames, counts, **given)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda x: li.dropout(x, 1.0, li.random_key(1)), "rate is 1.0"),
        (lambda x: li.dropout(x, 0.5, li.constant(np.zeros(3, np.uint32))), "expected u32"),
        (lambda x: li.dropout(x, "x", li.random_key(1)), "rate is 'x'"),  # type: ignore[arg-type]
        (lambda x: li.dropout(x, 0.5, "x"), "element type"),
        (lambda x: variant("zoneout_lstm", zoneout_c="x", zoneout_h=0.1), "zoneout_c is 'x'"),
        (lambda x: variant("recurrent_dropout_lstm", rate="x"), "rate is 'x'"),
        (lambda x: variant("layer_norm_lstm", epsilon="x"), "epsilon is 'x'"),
        (lambda x: li.dropout(x, 0.5, np.array([1, 2])), "expected u32"),
        (lambda x: li.random_key(0.5), "seed is 0.5"),
        (lambda x: li.random_key(2**64), "seed is 18446744073709551616, outside"),
        (lambda x: li.random_key(-1), "seed is -1, outside"),
        (lambda x: li.random_key(1, stream=2**64), "stream is 18446744073709551616, outside"),
        (lambda x: li.random_key(1, stream=0.5), "stream is 0.5"),  # type: ignore[arg-type]
        (lambda x: li.random_key(1, x), r"step is f32\[3,5\], not an integer"),
        (lambda x: li.cross_entropy(x, x), "not integers"),
        (lambda x: smoothed(x, 1.5), "label_smoothing is 1.5"),
        (lambda x: smoothed(x, "x"), "label_smoothing is 'x'"),
        (lambda x: li.cross_entropy(x, np.zeros((2, 3), np.int32)), "without the last"),
        (lambda x: li.cross_entropy(x, np.zeros(3, np.int32), reduction="all"), "reduction"),
        (lambda x: li.mse(x, np.zeros((3, 2), np.float32)), "differ in type"),
        (lambda x: li.dense(x, np.zeros(3, np.float32)), "the weight is"),
        (lambda x: li.embedding(x[0], np.zeros(3, np.int32)), "two axes"),
        (lambda x: li.layer_norm(x, epsilon=-5.0), "epsilon is -5.0"),
        (lambda x: li.layer_norm(x, epsilon=float("nan")), "epsilon is nan"),
        (lambda x: li.layer_norm(x, epsilon="x"), "epsilon is 'x'"),  # type: ignore[arg-type]
        (lambda x: li.ctc_loss(x, x, x, x), r"logits are floats \[T,B,C\]"),
        (lambda x: ctc(labels=np.ones((2, 2), np.int32)), r"labels are integers \[B,S\]"),
        (lambda x: ctc(labels=np.ones((1, 2), np.float32)), r"labels are integers \[B,S\]"),
        (lambda x: ctc(labels=np.ones((1, 0), np.int32)), "S is at least 1"),
        (lambda x: ctc(frames=np.array([[3]], np.int32)), r"input_lengths are integers \[B\]"),
        (lambda x: ctc(counts=np.array([1.0], np.float32)), r"label_lengths are integers \[B\]"),
        (lambda x: ctc(reduction="all"), "reduction is 'all'; there are mean"),
        (lambda x: ctc(blank=C), f"blank is {C}, which is no class: there are {C}"),
        (lambda x: ctc(blank=-1), "blank is -1, which is no class"),
        (lambda x: ctc(blank=0.5), "blank is 0.5, not an integer"),
    ],
)
def test_refused(make: Any, problem: str) -> None:
    with pytest.raises(IRError, match=problem):
        make(li.input("x", (3, C)))
