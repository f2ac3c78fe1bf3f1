"""Programs that train on the processor and on Vulkan: schedules, plateaus, sums of gradients, carried state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need
from fit_model import batches, model

import lstm_ir as li

pytestmark = pytest.mark.slow_on("vulkan")
KINDS = ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)]


def interpreted(program: li.Program, entry: str, state: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What the entry gives by its NumPy meaning; the state moves on."""
    graph = program.entries[entry]
    out = li.interpret(graph, {n: {**state, **given}[n] for n in graph.input_names})
    _, writes = program.binding[entry]
    state |= {name: out[n] for n, name in writes.items()}
    return {n: a for n, a in out.items() if n not in writes}


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_step_may_have(kind: str, seed: int) -> None:
    if kind == "vulkan":
        need("vulkan")
    rate = li.schedules.plateau(li.schedules.warmup(2, li.schedules.one_cycle(0.05, 9)), 0.5, 0)
    groups: dict[str, Any] = {"*/b": {"lr": li.schedules.step(0.02, 2, 0.3), "momentum": 0.2}, "out/*": {"lr": "slow"}}
    optimizer = li.rmsprop(rate, 0.8, centered=True, momentum=0.4, weight_decay=0.01, groups=groups)
    program = model(optimizer, accumulate=2, clip_norm=0.2).only("train", "plateau", "evaluate")
    state: dict[str, Any] = {n: s.initial.array for n, s in program.state.items()}
    with li.compile(program, kind) as exe:
        for k, b in enumerate(batches(seed, 8)):
            got = exe.entries["train"](b, slow=np.float32(0.01))
            want = interpreted(program, "train", state, {**b, "slow": np.float32(0.01)})
            assert set(got) == {"loss", "grad_norm", "accuracy", "lr", "lr/*/b"} == set(want)
            for n, a in want.items():  # roots of small sums amplify roundings
                np.testing.assert_allclose(got[n], a, atol=2e-4, err_msg=f"{n} in call {k + 1}")
            if k % 2:
                metric = np.float32((1.0, 2.0, 0.5, 0.7)[k // 2])
                scale = exe.entries["plateau"](metric=metric)["scale"]
                assert scale == interpreted(program, "plateau", state, {"metric": metric})["scale"]
        assert exe.entries["evaluate"](b).keys() == {"loss", "accuracy", "scores"}
        for n, a in state.items():
            np.testing.assert_allclose(exe.state[n], a, atol=5e-4, err_msg=n)
        assert (int(exe.state["step"]), float(exe.state["plateau/scale"])) == (4, 0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_carried_state(kind: str, rng: np.random.Generator) -> None:
    if kind == "vulkan":
        need("vulkan")
    x, h = li.input("x", ("T", "B", 3)), li.input("h", (1, "B", 4))
    w, r = (li.weight(n, rng.uniform(-0.5, 0.5, (4, k)).astype("f4")) for n, k in (("w", 3), ("r", 4)))
    y, h_n = li.rnn(x, w, r, h0=h)
    graph = li.Graph("g", [x, h], {"loss": li.mean(y * y * y), "h_n": h_n})
    program = li.train_step(li.stateful(graph, {"h": "h_n"}), "loss", li.sgd(0.5)).only("train", "reset")
    start: dict[str, Any] = {n: s.initial.array for n, s in program.state.items()} | {"h": np.zeros((1, 2, 4), "f4")}
    with li.compile(program, kind) as exe:
        state = dict(start)
        for k in range(5):
            if k == 3:
                exe.entries["reset"]()
                state["h"] = start["h"]
            a = rng.standard_normal((6, 2, 3)).astype("f4")
            got, want = exe.entries["train"](x=a), interpreted(program, "train", state, {"x": a})
            np.testing.assert_allclose(got["loss"], want["loss"], atol=1e-5)
            np.testing.assert_allclose(exe.state["h"], state["h"], atol=1e-4)
