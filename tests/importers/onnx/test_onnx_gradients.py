"""Imported models are differentiated and trained; single ops stand in test_onnx_ops.py and its like."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need
from onnx_gradients import compare_slopes, loss_of, wide

import lstm_ir as li

T, B, I, H, O = 6, 3, 5, 4, 2
STEPS, RATE = 8, 0.1


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir")


def tagger(rng: np.random.Generator, direction: str = "forward") -> tuple[Any, dict[str, Any]]:
    """An LSTM, and Gemm of its last state: y [B, O] of x [T, B, I]."""
    D = 2 if direction == "bidirectional" else 1
    shapes = {
        "W": (D, 4 * H, I), "R": (D, 4 * H, H), "bias": (D, 8 * H), "dense": (O, D * H), "shift": (O,),
    }  # fmt: skip
    weights = {n: (0.5 * rng.standard_normal(s)).astype("f4") for n, s in shapes.items()}
    nodes = [
        om.node("LSTM", ["x", "W", "R", "bias"], ["Y", "h"], hidden_size=H, direction=direction),
        om.node("Transpose", ["h"], ["rows"], perm=[1, 0, 2]), om.node("Flatten", ["rows"], ["flat"]),
        om.node("Gemm", ["flat", "dense", "shift"], ["y"], transB=1),
    ]  # fmt: skip
    return om.model(nodes, {"x": (["T", "B", I], "f4")}, ["y"], weights), weights


def torch_losses(weights: dict[str, Any], x: Any, target: Any) -> list[float]:
    """Losses of PyTorch's layers with these weights, by plain descent: ONNX's gates i, o, f, c are its i, f, g, o."""
    import torch

    def turned(a: Any) -> Any:
        i, o, f, c = np.split(a, 4)
        return torch.tensor(np.concatenate([i, f, c, o]))

    D = len(weights["W"])
    lstm, dense = torch.nn.LSTM(I, H, bidirectional=D == 2), torch.nn.Linear(D * H, O)
    with torch.no_grad():
        for d, end in enumerate(("", "_reverse")[:D]):
            of_w, of_r = np.split(weights["bias"][d], 2)
            for name, a in (("weight_ih", weights["W"][d]), ("weight_hh", weights["R"][d]), ("bias_ih", of_w),
                            ("bias_hh", of_r)):  # fmt: skip
                getattr(lstm, f"{name}_l0{end}").copy_(turned(a))
        dense.weight.copy_(torch.tensor(weights["dense"]))
        dense.bias.copy_(torch.tensor(weights["shift"]))
    optimizer = torch.optim.SGD([*lstm.parameters(), *dense.parameters()], RATE)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        _, (h, _) = lstm(torch.tensor(x))
        loss = ((dense(h.transpose(0, 1).flatten(1)) - torch.tensor(target)) ** 2).mean()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_an_imported_model_trains_as_in_pytorch(direction: str, rng: np.random.Generator) -> None:
    """Both biases of the layer are trained, each by its own gradient."""
    need("torch")
    made, weights = tagger(rng, direction)
    x, target = rng.standard_normal((T, B, I), np.float32), rng.standard_normal((B, O), np.float32)
    graph = li.from_onnx(made)
    goal = li.input("target", ("B", O))
    missed = graph.output("y") - goal
    losses = li.Graph("tagger", [*graph.params, goal], {"loss": li.mean(missed * missed)})
    assert set(losses.weights) == set(weights)
    with li.compile(li.train_step(losses, "loss", li.sgd(RATE))) as exe:
        got = [float(exe.entries["train"](x=x, target=target)["loss"]) for _ in range(STEPS)]
    want = torch_losses(weights, x, target)
    assert want[-1] < 0.9 * want[0]
    np.testing.assert_allclose(got, want, rtol=2e-5)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_slopes_of_a_layer_both_ways(op: str, rng: np.random.Generator) -> None:
    """All operands are inputs; rows of 0, 6 and 2 steps."""
    G = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * H
    shapes = {"x": (T, B, I), "W": (2, G, I), "R": (2, G, H), "bias": (2, 2 * G), "h0": (2, B, H)}
    names = ["x", "W", "R", "bias", "n", "h0"]
    if op == "LSTM":
        shapes |= {"c0": (2, B, H), "P": (2, 3 * H)}
        names += ["c0", "P"]
    fed: dict[str, Any] = {n: 0.5 * rng.standard_normal(s) for n, s in shapes.items()}
    infos: dict[str, Any] = {n: (a.shape, "f4") for n, a in fed.items()} | {"n": ([B], "i4")}
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    node = om.node(op, names, outputs, hidden_size=H, direction="bidirectional", clip=2.5)
    loss = loss_of(li.from_onnx(wide(om.model([node], infos, outputs))))
    assert loss is not None
    compare_slopes(loss, {**fed, "n": np.array([0, T, 2], np.int32)}, rng, op)


def test_slopes_through_a_loop_and_a_scan(rng: np.random.Generator) -> None:
    """h tanh(w h + x[t]) by both, over an open number of steps."""
    state: Any = (["B", H], "f4")
    steps = [
        om.node("MatMul", ["h", "w"], ["p"]), om.node("Add", ["p", "row"], ["q"]), om.node("Tanh", ["q"], ["r"]),
        om.node("Mul", ["r", "h"], ["new"]), om.node("Neg", ["new"], ["out"]),
    ]  # fmt: skip
    at = [om.node("Gather", ["x", "i"], ["row"], name="at"), om.node("Identity", ["go"], ["on"])]
    body = om.graph([*at, *steps], {"i": ([], "i8"), "go": ([], "?"), "h": state}, ["on", "new", "out"])
    scan = om.graph(steps, {"h": state, "row": state}, ["new", "out"])
    nodes = [
        om.node("Shape", ["x"], ["s"]), om.node("Gather", ["s", "zero"], ["T"], name="T"),
        om.node("Loop", ["T", "", "h0"], ["a", "b"], body=body),
        om.node("Scan", ["h0", "x"], ["c", "d"], body=scan, num_scan_inputs=1),
    ]  # fmt: skip
    inputs: dict[str, Any] = {"x": (["T", "B", H], "f4"), "h0": state, "w": ([H, H], "f4")}
    made = om.model(nodes, inputs, ["a", "b", "c", "d"], {"zero": np.array(0)})
    fed = {"x": rng.standard_normal((T, B, H)), "h0": rng.standard_normal((B, H)), "w": rng.standard_normal((H, H))}
    loss = loss_of(li.from_onnx(wide(made)))
    assert loss is not None
    compare_slopes(loss, fed, rng, "loops")


NO_WAY: dict[str, Any] = {
    "Cast": lambda: [om.node("Cast", ["x"], ["i"], to=7), om.node("Cast", ["i"], ["y"], name="back", to=1)],
    "ArgMax": lambda: [om.node("ArgMax", ["x"], ["i"], axis=1), om.node("Cast", ["i"], ["y"], to=1)],
    "QuantizeLinear": lambda: [
        om.node("QuantizeLinear", ["x", "s", "z"], ["i"]), om.node("DequantizeLinear", ["i", "s", "z"], ["y"])
    ],
    "Greater": lambda: [om.node("Greater", ["x", "s"], ["i"]), om.node("Cast", ["i"], ["y"], to=1)],
}  # fmt: skip


@pytest.mark.parametrize("op", NO_WAY)
def test_what_goes_through_integers_has_no_gradient(op: str) -> None:
    given = {"s": np.float32(0.3), "z": np.uint8(9)}
    loss = loss_of(li.from_onnx(om.model(NO_WAY[op](), {"x": (["B", 3], "f4")}, ["y"], given)))
    assert loss is not None
    with pytest.raises(li.GradientError, match=r"x.* does not influence"):
        li.grad(loss, "loss", ["x"])
