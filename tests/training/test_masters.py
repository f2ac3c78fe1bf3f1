"""`train_step(precision=…)`: f32 masters, products of rounded weights; beside PyTorch with the rounding passed over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

T, B, I, H = 5, 3, 4, 6
RNG = np.random.default_rng(17)
WEIGHTS = {
    "w_ih": RNG.uniform(-0.5, 0.5, (4 * H, I)).astype(np.float32),
    "w_hh": RNG.uniform(-0.5, 0.5, (4 * H, H)).astype(np.float32),
    "b": RNG.uniform(-0.5, 0.5, 4 * H).astype(np.float32),
    "out": RNG.uniform(-0.5, 0.5, (2, H)).astype(np.float32),
}
CALL = {
    "x": RNG.standard_normal((T, B, I)).astype(np.float32),
    "want": RNG.standard_normal((T, B, 2)).astype(np.float32),
}
WORDS = ("bf16", "f16")


def _graph(sizes: tuple[Any, Any] = ("T", "B")) -> li.Graph:
    x, want = li.input("x", (*sizes, I)), li.input("want", (*sizes, 2))
    w = {n: li.weight(n, a) for n, a in WEIGHTS.items()}
    y = li.dense(li.lstm(x, w["w_ih"], w["w_hh"], w["b"])[0], w["out"])
    return li.Graph("g", [x, want], {"loss": li.mean((y - want) * (y - want)), "y": y})


def _by_torch(word: str, steps: int) -> tuple[list[float], dict[str, Any]]:
    """Losses and masters: the rounding is seen by products, and not by the gradient."""
    need("torch")
    import torch

    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[word]
    masters = {n: torch.tensor(a, requires_grad=True) for n, a in WEIGHTS.items()}
    optimizer = torch.optim.Adam(masters.values(), lr=0.02)
    x, want = (torch.tensor(CALL[n]) for n in ("x", "want"))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        w = {n: v + (v.to(kind).float() - v).detach() if v.dim() > 1 else v for n, v in masters.items()}
        h, c, rows = torch.zeros(B, H), torch.zeros(B, H), []
        for t in range(T):
            i, f, g, o = (x[t] @ w["w_ih"].T + h @ w["w_hh"].T + w["b"]).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            rows.append(h @ w["out"].T)
        loss = ((torch.stack(rows) - want) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {n: v.detach().numpy() for n, v in masters.items()}


@pytest.mark.parametrize("sizes", [("T", "B"), (T, B)], ids=["names", "numbers"])
@pytest.mark.parametrize("word", WORDS)
def test_steps_are_those_of_torch(word: str, sizes: tuple[Any, Any]) -> None:
    losses, masters = _by_torch(word, 12)
    with li.compile(li.train_step(_graph(sizes), "loss", li.adam(0.02), precision=word)) as exe:
        got = [float(exe.entries["train"](CALL)["loss"]) for _ in losses]
        assert np.allclose(got, losses, rtol=2e-4)
        for n, want in masters.items():
            assert exe.state[n].dtype == np.float32
            assert np.allclose(exe.state[n], want, atol=2e-3), n
    with li.compile(li.train_step(_graph(sizes), "loss", li.adam(0.02))) as exe:
        plain = [float(exe.entries["train"](CALL)["loss"]) for _ in losses]
    assert not np.allclose(plain, losses, rtol=1e-7)  # the rounding is there


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_every_entry_reads_rounded_weights(word: str) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if word == "bf16" else np.float16
    w = {n: a.astype(kind).astype(np.float32) if a.ndim > 1 else a for n, a in WEIGHTS.items()}
    program = li.train_step(_graph(), "loss", li.sgd(0.1), evaluate=True, grads=True, precision=word)
    x = li.input("x", ("T", "B", I))
    y = li.dense(li.lstm(x, *(li.constant(w[n]) for n in ("w_ih", "w_hh", "b")))[0], li.constant(w["out"]))
    want = li.interpret(li.Graph("rounded", [x], {"y": y}), x=CALL["x"])["y"]
    with li.compile(program) as exe:
        assert np.allclose(exe.entries["infer"](x=CALL["x"])["y"], want, atol=1e-5)
        assert np.allclose(exe.entries["evaluate"](CALL)["y"], want, atol=1e-5)
        loss = np.mean((want - CALL["want"]) ** 2)
        assert np.isclose(exe.entries["grads"](CALL)["loss"], loss, rtol=1e-4)


def test_every_op_reads_trained_weights_rounded_and_the_others_as_they_are() -> None:
    import ml_dtypes

    table = RNG.uniform(1.0, 2.0, (3, 4)).astype(np.float32)
    ids = np.array([2, 0], np.int32)
    i = li.input("ids", (2,), "i32")
    rows = li.embedding(li.weight("table", table), i) + li.weight("frozen", table[1:])
    graph = li.Graph("g", [i], {"loss": li.sum(rows), "rows": rows})
    program = li.train_step(graph, "loss", li.sgd(0.1), "table", outputs="rows", infer=(), precision="bf16")
    short = table.astype(ml_dtypes.bfloat16).astype(np.float32)
    got = li.compile(program).entries["train"](ids=ids)["rows"]
    assert np.array_equal(got, short[ids] + table[1:])


def test_masters_keep_what_a_rounded_weight_would_lose() -> None:
    """Updates below half a step of bf16 add up."""
    v = li.input("v", (1, 1))
    w = li.weight("w", np.ones((1, 1), np.float32))
    program = li.train_step(li.Graph("g", [v], {"loss": li.sum(v @ w)}), "loss", li.sgd(1e-4), precision="bf16")
    with li.compile(program) as exe:
        for _ in range(50):
            exe.entries["train"](v=np.ones((1, 1), np.float32))
        assert np.isclose(exe.state["w"][0, 0], 1 - 50e-4, atol=1e-6)


def test_the_loops_of_a_cpu_read_weights_in_16_bits() -> None:
    program = li.train_step(_graph((T, 1)), "loss", li.sgd(0.1), precision="bf16")
    with li.compile(program) as exe:
        notes = str(exe.report)
    assert notes.count("fired widen a matrix in the loop") >= 2  # forward and backward
    assert "scan at" in notes


def test_other_weights_stay() -> None:
    x = li.input("x", (2,), "f64")
    w = li.weight("w", np.array([[1.0, 2.0], [3.0, 4.1]]))
    program = li.train_step(li.Graph("g", [x], {"loss": li.sum(w @ x)}), "loss", li.sgd(0.1), precision="bf16")
    assert not any(n.op.name == "convert" and n.types[0].dtype is li.DType.bf16 for n in program.entries["train"].nodes)


@pytest.mark.parametrize("word", ["int8", "f32", 16])
def test_words_that_are_none(word: Any) -> None:
    with pytest.raises(li.GradientError, match=r"train_step: precision is .*; expected one of bf16, f16, or None"):
        li.train_step(_graph(), "loss", li.sgd(0.1), precision=word)


@pytest.mark.vulkan
def test_on_vulkan() -> None:
    need("vulkan")
    losses, _ = _by_torch("bf16", 3)
    with li.compile(li.train_step(_graph((T, B)), "loss", li.adam(0.02), precision="bf16"), "vulkan") as exe:
        assert np.allclose([float(exe.entries["train"](CALL)["loss"]) for _ in losses], losses, rtol=2e-4)
