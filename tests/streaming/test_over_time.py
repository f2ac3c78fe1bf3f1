"""`li.over_time`: frame by frame in NumPy, PyTorch's gradients through the frames, and wrong arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]
I, H, B, T = 3, 5, 2, 7


def frame(rng: np.random.Generator) -> tuple[li.Graph, dict[str, Array]]:
    """h' = tanh(x w + h r + bias k), y = h' v, and how large the frame is; k is the same for all frames."""
    w = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("w", (I, H)), ("r", (H, H)), ("v", (H, 4)))}
    x, h, k = li.input("x", ("B", I)), li.input("h", ("B", H)), li.input("k", (H,))
    new = li.tanh(x @ li.weight("w", w["w"]) + h @ li.weight("r", w["r"]) + k)
    y = new @ li.weight("v", w["v"])
    return li.Graph("cell", [k, h, x], {"y": y, "h_n": new, "energy": li.sum(x * x, 1)}), w


def plain(w: dict[str, Array], x: Array, h: Array, k: Array) -> dict[str, Array]:
    """The same in float64, frame by frame."""
    y = []
    for row in x.astype("f8"):
        h = np.tanh(row @ w["w"] + h @ w["r"] + k)
        y.append(h @ w["v"])
    return {"y": np.reshape(y, (len(x), B, 4)), "h_n": h, "energy": (x.astype("f8") ** 2).sum(2)}


@pytest.mark.parametrize("frames", [0, 1, T])
def test_frames_in_one_call(frames: int, rng: np.random.Generator) -> None:
    g, w = frame(rng)
    whole = li.over_time(g, {"h": "h_n"}, ["x"])
    assert whole.input_names == ("k", "h", "x")
    assert [str(v.type) for v in whole.params] == ["f32[5]", "f32[B,5]", "f32[T,B,3]"]
    assert [str(v.type) for v in whole.outputs] == ["f32[T,B,4]", "f32[B,5]", "f32[T,B]"]
    a = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("x", (frames, B, I)), ("h", (B, H)), ("k", (H,)))}
    want = plain(w, a["x"], a["h"], a["k"])
    with li.compile(whole) as exe:
        for got in (li.interpret(whole, a), exe(**a)):
            for n, value in want.items():
                assert got[n].shape == value.shape
                np.testing.assert_allclose(got[n], value, rtol=2e-5, atol=2e-5)


def test_gradients_pass_through_the_frames(rng: np.random.Generator) -> None:
    need("torch")
    import torch

    g, w = frame(rng)
    whole = li.over_time(g, {"h": "h_n"}, ["x"], length=T, name="many")
    assert whole.name == "many"
    loss = li.sum(whole.output("y") * whole.output("y")) + li.sum(whole.output("h_n"))
    wrt = ["w", "r", "v", "x", "h", "k"]
    gradient = li.grad(li.Graph("loss", whole.params, {"loss": loss}), "loss", wrt)
    a = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("x", (T, B, I)), ("h", (B, H)), ("k", (H,)))}
    t = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in {**w, **a}.items()}
    h, total = t["h"], torch.zeros((), dtype=torch.float64)
    for row in t["x"]:
        h = torch.tanh(row @ t["w"] + h @ t["r"] + t["k"])
        total = total + ((h @ t["v"]) ** 2).sum()
    (total + h.sum()).backward()
    sized = {n: v for n, v in a.items()}
    with li.compile(gradient) as exe:
        got = exe(**sized)
    for n in wrt:
        want = t[n].grad.numpy()
        np.testing.assert_allclose(got[f"d_{n}"], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_a_layer_inside_a_frame(rng: np.random.Generator) -> None:
    """Each frame runs an LSTM over an axis of its own; the frame after it starts where that ended."""
    x, h, c = li.input("x", (4, 1, I)), li.input("h", (1, 1, H)), li.input("c", (1, 1, H))
    w_ih, w_hh = (rng.standard_normal(s).astype(np.float32) * 0.5 for s in ((4 * H, I), (4 * H, H)))
    y, h_n, c_n = li.lstm(x, li.weight("w_ih", w_ih), li.weight("w_hh", w_hh), h0=h, c0=c)
    g = li.Graph("block", [x, h, c], {"y": y, "h_n": h_n, "c_n": c_n})
    whole = li.over_time(g, {"h": "h_n", "c": "c_n"}, ["x"], length="frames")
    a = rng.standard_normal((6, 4, 1, I)).astype(np.float32)
    zero = np.zeros((1, 1, H), np.float32)
    need("torch")
    import torch

    lstm = torch.nn.LSTM(I, H, bias=False)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(torch.tensor(w_ih))
        lstm.weight_hh_l0.copy_(torch.tensor(w_hh))
        want, (last, _) = lstm(torch.tensor(a.reshape(24, 1, I)))
    with li.compile(whole) as exe:
        got = exe(x=a, h=zero, c=zero)
    np.testing.assert_allclose(got["y"].reshape(24, 1, H), want.numpy(), atol=2e-5)
    np.testing.assert_allclose(got["h_n"], last.numpy(), atol=2e-5)


any_: Any = li.over_time
OPEN = li.input("open", ("T", I))
WITH_T = li.Graph("t", [OPEN], {"y": OPEN + 1.0})
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "input": (lambda g: li.over_time(g, {"q": "h_n"}, ["x"]), li.VerifyError, "graph @cell has no input 'q'"),
    "frames": (lambda g: li.over_time(g, {"h": "h_n"}, ["q"]), li.VerifyError, "graph @cell has no input 'q'"),
    "output": (lambda g: li.over_time(g, {"h": "q"}, ["x"]), li.VerifyError, "graph @cell has no output 'q'"),
    "none": (lambda g: li.over_time(g, {"h": "h_n"}, []), li.VerifyError, "xs names no input"),
    "both": (lambda g: li.over_time(g, {"h": "h_n"}, ["h"]), li.VerifyError, "the input 'h' is named twice"),
    "two": (
        lambda g: li.over_time(g, {"h": "h_n", "k": "h_n"}, ["x"]), li.VerifyError, "output 'h_n' is named twice"
    ),
    "type": (
        lambda g: li.over_time(g, {"h": "y"}, ["x"]), li.VerifyError,
        r"the state 'h' goes in as f32\[B,5\] and comes out as f32\[B,4\] \('y'\)",
    ),
    "taken": (lambda g: li.over_time(WITH_T, {}, ["open"]), li.VerifyError, "has the size T already"),
    "size": (lambda g: li.over_time(g, {"h": "h_n"}, ["x"], length=-1), li.VerifyError, "length: a size is -1"),
    "text": (lambda g: any_(g, {"h": "h_n"}, "x"), li.IRError, "xs.*'x'.*a list"),
    "no mapping": (lambda g: any_(g, ["h"], ["x"]), li.IRError, "state.*names of inputs and outputs"),
    "program": (
        lambda g: any_(li.stateful(g, {"h": "h_n"}), {}, ["x"]), li.GradientError, "run one of its entries over time",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case: str, rng: np.random.Generator) -> None:
    call, error, why = WRONG[case]
    with pytest.raises(error, match=why):
        call(frame(rng)[0])
