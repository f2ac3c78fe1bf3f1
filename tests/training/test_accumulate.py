"""Gradients that are summed over several calls of `train`: one step of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

pytestmark = pytest.mark.one_day("exe")
Array = np.ndarray[Any, Any]
K, T, B, I, H, C = 3, 5, 2, 3, 4, 2
SHAPES = {"w_ih": (4 * H, I), "w_hh": (4 * H, H), "out": (C, H)}
RNG = np.random.default_rng(20261124)
START = {n: RNG.uniform(-0.7, 0.7, s) for n, s in SHAPES.items()}
KINDS = {"f4": "f32", "f8": "f64"}


def graph(kind: str = "f4", rate: float = 0.0) -> li.Graph:
    w = {n: li.weight(n, a.astype(kind)) for n, a in START.items()}
    x, label = li.input("x", ("T", "B", I), KINDS[kind]), li.input("label", ("B",), "i32")
    step = li.input("step", (), "i64")
    given = li.dropout(x, rate, li.random_key(5, step)) if rate else x
    _, h_n, _ = li.lstm(given, w["w_ih"], w["w_hh"])
    loss = li.cross_entropy(li.dense(h_n[0], w["out"]), label)
    return li.Graph("g", [x, label, step], {"loss": loss, "h_n": h_n})


def program(kind: str = "f4", accumulate: int = K, **options: Any) -> li.Program:
    return li.train_step(graph(kind), "loss", li.momentum(0.5, 0.8), clip_norm=0.05, accumulate=accumulate, **options)


def batch(rng: np.random.Generator, kind: str = "f4") -> dict[str, Array]:
    x = rng.standard_normal((T, B, I)).astype(kind)
    return {"x": x, "label": rng.integers(0, C, B).astype("i4")}


@pytest.fixture(scope="module", params=["f4", "f8"])
def exe(request: pytest.FixtureRequest) -> Iterator[Executable]:
    with li.compile(program(request.param).only("train")) as made:
        yield made


def kind_of(exe: Executable) -> str:
    return exe.entries["train"].inputs[0].type.dtype.numpy.str[1:]


def torch_steps(batches: list[dict[str, Array]], count: int) -> tuple[dict[str, Array], list[float]]:
    """Weights after `count` updates, and the norms before clipping, each of K batches joined into one."""
    import torch

    kind = batches[0]["x"].dtype
    p = {n: torch.tensor(a.astype(kind), requires_grad=True) for n, a in START.items()}
    cell = torch.nn.LSTM(I, H, bias=False, dtype=p["out"].dtype)
    optimizer, norms = torch.optim.SGD(p.values(), lr=0.5, momentum=0.8), []
    for k in range(count):
        joined = batches[k * K : (k + 1) * K]
        x = torch.tensor(np.concatenate([b["x"] for b in joined], 1))
        label = torch.tensor(np.concatenate([b["label"] for b in joined])).long()
        optimizer.zero_grad()
        held = {"weight_ih_l0": p["w_ih"], "weight_hh_l0": p["w_hh"]}
        _, (h_n, _) = torch.func.functional_call(cell, held, (x,))
        torch.nn.functional.cross_entropy(h_n[0] @ p["out"].T, label).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(p.values()), 0.05)))
        optimizer.step()
    return {n: v.detach().numpy() for n, v in p.items()}, norms


@pytest.mark.slow_cases(exe=["f8"])
def test_k_calls_are_one_step_of_the_joined_batch(exe: Executable, seed: int) -> None:
    need("torch")
    rng, kind = np.random.default_rng(seed), kind_of(exe)
    given = [batch(rng, kind) for _ in range(4 * K)]
    with exe.session() as s:
        norms = []
        for k, b in enumerate(given):
            before = {n: s.state[n] for n in START}
            norms.append(float(s.entries["train"](b)["grad_norm"]))
            assert (int(s.state["step"]), int(s.state["micro_step"])) == ((k + 1) // K, (k + 1) % K)
            same = all(np.array_equal(s.state[n], a) for n, a in before.items())
            assert same == ((k + 1) % K != 0), "weights change in the K-th call, and in no other"
        got = {n: s.state[n] for n in START}
        assert not any(s.state[f"accumulated/{n}"].any() for n in START)
    want, torch_norms = torch_steps(given, 4)
    limit = 1e-11 if kind == "f8" else 2e-5
    assert max(torch_norms) > 0.05, "nothing is clipped"
    np.testing.assert_allclose(norms[K - 1 :: K], torch_norms, rtol=limit)
    for n, a in want.items():
        np.testing.assert_allclose(got[n], a, rtol=0, atol=limit, err_msg=n)


@pytest.mark.slow_cases(exe=["f8"])
def test_stopped_in_the_middle_and_resumed(exe: Executable, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    given = [batch(rng, kind_of(exe)) for _ in range(3 * K)]
    with exe.session() as whole, exe.session() as first, exe.session() as second:
        losses = [whole.entries["train"](b)["loss"] for b in given]
        for b in given[: K + 1]:
            first.entries["train"](b)
        first.save_state(tmp_path / "s")
        second.load_state(tmp_path / "s")
        assert (int(second.state["step"]), int(second.state["micro_step"])) == (1, 1)
        assert [second.entries["train"](b)["loss"] for b in given[K + 1 :]] == losses[K + 1 :]
        for n in whole.state:
            np.testing.assert_array_equal(second.state[n], whole.state[n], err_msg=n)


@pytest.mark.slow_cases(exe=["f8"])
def test_a_batch_that_is_not_finite_is_left_out(exe: Executable, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = [batch(rng, kind_of(exe)) for _ in range(K)]
    bad = {**given[0], "x": given[0]["x"] * np.nan}
    with exe.session() as one, exe.session() as two:
        for b in given:
            one.entries["train"](b)
        for b in given[:2]:
            two.entries["train"](b)
        with pytest.raises(li.ValueRangeError, match="train: loss is nan at step 1; the state is that before"):
            two.entries["train"](bad)
        assert two.state["micro_step"] == 2
        two.entries["train"](given[2])
        for n in one.state:
            np.testing.assert_array_equal(two.state[n], one.state[n], err_msg=n)


def test_every_call_draws_anew(rng: np.random.Generator) -> None:
    """The input `step` counts batches: K*step + micro_step."""
    step = li.train_step(graph(rate=0.5), "loss", li.sgd(0.0), accumulate=K)
    state = {n: v.initial.array for n, v in step.state.items()}
    b = batch(rng)
    for k in range(2 * K):
        out = li.interpret(step.entries["train"], {**state, **b})
        want = li.interpret(graph(rate=0.5), {**b, "step": np.int64(k)})["loss"]
        np.testing.assert_allclose(out["loss"], want, rtol=1e-6)
        state |= {n: out[n] for n in state}


def test_a_schedule_counts_updates(rng: np.random.Generator) -> None:
    step = li.train_step(graph(), "loss", li.sgd(li.schedules.exponential(0.5, 0.5)), accumulate=K)
    state, b, rates = {n: v.initial.array for n, v in step.state.items()}, batch(rng), []
    for _ in range(2 * K):
        out = li.interpret(step.entries["train"], {**state, **b})
        state |= {n: out[n] for n in state}
        rates.append(float(out["lr"]))
    np.testing.assert_allclose(rates, [0.5] * K + [0.25] * K)


def test_apply_takes_means_and_leaves_the_sums(rng: np.random.Generator) -> None:
    step = program(grads=True)
    state = {n: v.initial.array for n, v in step.state.items()}
    out = li.interpret(step.entries["train"], {**state, **batch(rng)})
    state |= {n: out[n] for n in state}
    reads = step.entries["apply"].input_names
    given = {n: rng.standard_normal(SHAPES[n[2:]]).astype("f4") for n in reads if n.startswith("d_")}
    done = li.interpret(step.entries["apply"], {**given, **{n: state[n] for n in reads if n in state}})
    assert done["step"] == 1
    assert not any(n.startswith(("accumulated/", "micro")) for n in done)


def test_one_call_for_each_update_keeps_nothing_more() -> None:
    assert str(program(accumulate=1)) == str(li.train_step(graph(), "loss", li.momentum(0.5, 0.8), clip_norm=0.05))
    assert "micro_step" not in program(accumulate=1).state


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_refused(wrong: Any) -> None:
    with pytest.raises(li.GradientError, match=f"accumulate is {wrong!r}; a number of calls, at least 1"):
        program(accumulate=wrong)


@pytest.mark.parametrize("name", ["micro_step", "accumulated/w"])
def test_names_that_are_taken(name: str) -> None:
    x, w, v = li.input("x", (3,)), li.weight("w", np.ones(3, "f4")), li.weight(name, np.ones(3, "f4"))
    with pytest.raises(li.GradientError, match=f"a weight is called '{name}', as the"):
        li.train_step(li.Graph("g", [x], {"loss": li.sum(x * w * v)}), "loss", li.sgd(0.1), accumulate=2)
