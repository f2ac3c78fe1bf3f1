"""Truncated back-propagation: h and c go from call to call, gradients do not."""

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
CHUNKS, T, B, I, H, C = 6, 5, 3, 4, 7, 2
SHAPES = {"w_ih": (4 * H, I), "w_hh": (4 * H, H), "out": (C, H)}
RNG = np.random.default_rng(20261124)
START = {n: RNG.uniform(-0.7, 0.7, s) for n, s in SHAPES.items()}
KINDS = {"f4": "f32", "f8": "f64"}
FED = {"h0": "h_n", "c0": "c_n"}


def graph(kind: str = "f4", *, begins: bool = False) -> li.Graph:
    """x [T,B,I], want [T,B,C], h0, c0 -> loss, y, h_n, c_n; `begins` [B] marks rows whose sequence is a new one."""
    w = {n: li.weight(n, a.astype(kind)) for n, a in START.items()}
    x, want = li.input("x", ("T", "B", I), KINDS[kind]), li.input("want", ("T", "B", C), KINDS[kind])
    held = [li.input(n, (1, "B", H), KINDS[kind]) for n in FED]
    new = li.input("begins", ("B",), "i1")
    first = [li.where(new[None, :, None], 0.0, h) for h in held] if begins else held
    y, h_n, c_n = li.lstm(x, w["w_ih"], w["w_hh"], h0=first[0], c0=first[1])
    scores = li.dense(y, w["out"])
    outputs = {"loss": li.mse(scores, want), "y": scores, "h_n": h_n, "c_n": c_n}
    return li.Graph("chunk", [x, want, *held, *([new] if begins else [])], outputs)


def stream(kind: str = "f4", **options: Any) -> li.Program:
    return li.stateful(graph(kind, **options), FED)


def chunks(seed: int, kind: str, rows: int = B) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    x, want = (rng.standard_normal((CHUNKS * T, rows, n)).astype(kind) for n in (I, C))
    return [{"x": x[k * T : (k + 1) * T], "want": want[k * T : (k + 1) * T]} for k in range(CHUNKS)]


def program(kind: str, **options: Any) -> li.Program:
    return li.train_step(stream(kind), "loss", li.adam(0.05), evaluate=True, **options)


@pytest.fixture(scope="module", params=["f4", "f8"])
def exe(request: pytest.FixtureRequest) -> Iterator[Executable]:
    with li.compile(program(request.param).only("train", "evaluate", "reset")) as made:
        yield made


def kind_of(exe: Executable) -> str:
    return exe.entries["train"].inputs[0].type.dtype.numpy.str[1:]


def torch_run(
    given: list[dict[str, Array]], *, detach: bool = True, begins: list[Array] | None = None
) -> tuple[list[float], dict[str, Array]]:
    """Losses and what is left: weights, h0 and c0 of the next chunk."""
    import torch

    kind = given[0]["x"].dtype
    p = {n: torch.tensor(a.astype(kind), requires_grad=True) for n, a in START.items()}
    cell = torch.nn.LSTM(I, H, bias=False, dtype=p["out"].dtype)
    optimizer = torch.optim.Adam(p.values(), lr=0.05)
    rows = given[0]["x"].shape[1]
    h, c = (torch.zeros(1, rows, H, dtype=p["out"].dtype) for _ in range(2))
    losses, total = [], torch.zeros((), dtype=p["out"].dtype)
    for k, b in enumerate(given):
        if begins is not None:
            kept = torch.tensor(~begins[k])[None, :, None]
            h, c = h * kept, c * kept
        optimizer.zero_grad()
        held = {"weight_ih_l0": p["w_ih"], "weight_hh_l0": p["w_hh"]}
        y, (h, c) = torch.func.functional_call(cell, held, (torch.tensor(b["x"]), (h, c)))
        loss = torch.mean((y @ p["out"].T - torch.tensor(b["want"])) ** 2)
        total = total + loss
        losses.append(loss.item())
        if detach:
            loss.backward()
            optimizer.step()
            h, c = h.detach(), c.detach()
    if not detach:
        total.backward()
    left = p | {"h0": h, "c0": c}
    if not detach:
        left = {f"d_{n}": v.grad for n, v in p.items()}
    return losses, {n: v.detach().numpy() for n, v in left.items()}


LIMIT = {"f4": 1e-4, "f8": 1e-10}


@pytest.mark.slow_cases(exe=["f4"])
def test_losses_and_state_are_those_of_detached_torch(exe: Executable, seed: int) -> None:
    need("torch")
    kind = kind_of(exe)
    given = chunks(seed, kind)
    want, left = torch_run(given)
    with exe.session() as s:
        got = [float(s.entries["train"](b)["loss"]) for b in given]
        np.testing.assert_allclose(got, want, rtol=0, atol=LIMIT[kind])
        for n, a in left.items():
            np.testing.assert_allclose(s.state[n], a, rtol=0, atol=10 * LIMIT[kind], err_msg=n)


@pytest.mark.slow_cases(exe=["f4"])
def test_without_what_is_carried_losses_differ(exe: Executable, seed: int) -> None:
    """The test above would notice a state that starts again with each chunk."""
    given = chunks(seed, kind_of(exe))
    with exe.session() as carries, exe.session() as forgets:
        one = [float(carries.entries["train"](b)["loss"]) for b in given]
        two = []
        for b in given:
            two.append(float(forgets.entries["train"](b)["loss"]))
            forgets.reset("h0", "c0")
        assert one[0] == two[0]
        assert abs(one[1] - two[1]) > 10 * LIMIT["f4"]


def test_no_gradient_crosses_the_border(seed: int) -> None:
    """At fixed weights the gradients of two chunks add up to others than torch's through both."""
    need("torch")
    step = li.train_step(stream("f8"), "loss", li.sgd(0.0), grads=True)
    entry = step.entries["grads"]
    given = chunks(seed, "f8")[:2]
    carried: dict[str, Array] = {n: np.zeros((1, B, H)) for n in FED}
    total = {f"d_{n}": np.zeros(s) for n, s in SHAPES.items()}
    for b in given:
        out = li.interpret(entry, {**b, **carried, **{n: START[n] for n in entry.input_names if n in START}})
        assert set(out) == {"loss", *total, *FED}
        carried = {n: out[n] for n in FED}
        total = {n: a + out[n] for n, a in total.items()}
    _, through = torch_run(given, detach=False)
    assert max(np.abs(total[n] - a).max() for n, a in through.items()) > 1e-3
    out_only = "d_out"  # reads no carried state's gradient
    np.testing.assert_allclose(total[out_only], through[out_only], atol=1e-10)


@pytest.mark.slow_cases(exe=["f4"])
def test_reset_starts_what_is_carried_and_nothing_else(exe: Executable, seed: int) -> None:
    kind = kind_of(exe)
    given = chunks(seed, kind)
    with exe.session() as s:
        for b in given[:2]:
            s.entries["train"](b)
        before = {n: s.state[n] for n in s.state}
        assert before["h0"].any()
        s.entries["reset"]()
        for n in set(before) - set(FED):
            np.testing.assert_array_equal(s.state[n], before[n], err_msg=n)
        small = {n: a[:, :2] for n, a in given[2].items()}  # two rows: the sizes start again too
        s.entries["train"](small)
        assert s.state["h0"].shape == (1, 2, H)
        with pytest.raises(li.CallError, match=r"state 'h0' has 2 on axis 1, this call has B = 3"):
            s.entries["train"](given[3])
        assert s.state["step"] == 3


@pytest.mark.slow_cases(exe=["f4"])
def test_evaluate_takes_and_gives_what_is_carried(exe: Executable, seed: int) -> None:
    kind = kind_of(exe)
    given = chunks(seed, kind)
    with exe.session() as s:
        s.entries["train"](given[0])
        before = {n: s.state[n] for n in s.state}
        carried = {n: np.zeros((1, B, H), kind) for n in FED}
        whole = {n: np.concatenate([b[n] for b in given[1:]]) for n in ("x", "want")}
        at_once = s.entries["evaluate"]({**whole, **carried})
        losses, y = [], []
        for b in given[1:]:
            out = s.entries["evaluate"]({**b, **carried})
            assert set(out) == {"loss", "y", "h0", "c0"}
            carried = {n: out[n] for n in FED}
            losses.append(out["loss"])
            y.append(out["y"])
        np.testing.assert_allclose(np.mean(losses), at_once["loss"], rtol=1e-5)
        np.testing.assert_allclose(np.concatenate(y), at_once["y"], atol=1e-5)
        np.testing.assert_allclose(carried["h0"], at_once["h0"], atol=1e-5)
        for n, a in before.items():
            np.testing.assert_array_equal(s.state[n], a, err_msg=n)


def test_entries_that_change_nothing_take_what_is_carried() -> None:
    step = li.train_step(stream(), "loss", li.sgd(0.1), evaluate=True, grads=True)
    made = step.signature().entries
    assert set(made) == {"train", "grads", "apply", "infer", "evaluate", "reset"}
    wanted = {"infer": ["x", "h0", "c0"], "evaluate": ["x", "want", "h0", "c0"], "grads": ["x", "want", "h0", "c0"]}
    for name, inputs in wanted.items():
        assert [p.name for p in made[name].inputs] == inputs
        assert not made[name].writes
        assert {p.name for p in made[name].outputs} >= set(FED)
    assert [p.name for p in made["infer"].outputs] == ["y", "h0", "c0"]
    assert [p.name for p in made["train"].inputs] == ["x", "want"]
    assert not set(made["apply"].reads) & set(FED)


@pytest.mark.slow_cases(exe=["f4"])
def test_sessions_train_apart_and_are_saved(exe: Executable, seed: int, tmp_path: Path) -> None:
    kind = kind_of(exe)
    mine, other = chunks(seed, kind), chunks(seed + 1, kind, rows=2)
    with exe.session() as one, exe.session() as two, exe.session() as alone, exe.session() as again:
        got = []
        for k, (a, b) in enumerate(zip(mine, other, strict=True)):
            got.append(one.entries["train"](a)["loss"])
            two.entries["train"](b)
            if k == 2:
                one.save_state(tmp_path / "s")
        assert [alone.entries["train"](a)["loss"] for a in mine] == got
        again.load_state(tmp_path / "s")
        assert [again.entries["train"](a)["loss"] for a in mine[3:]] == got[3:]
        for n in one.state:
            np.testing.assert_array_equal(again.state[n], one.state[n], err_msg=n)
        assert two.state["h0"].shape == (1, 2, H)


def test_rows_begin_anew_by_a_mask(seed: int) -> None:
    """The graph's own input says which rows begin; torch's state is set to 0 there."""
    need("torch")
    given = chunks(seed, "f8")
    begins = [np.random.default_rng(seed + k).random(B) < 0.4 for k in range(CHUNKS)]
    assert any(b.any() and not b.all() for b in begins)
    want, left = torch_run(given, begins=begins)
    with li.compile(li.train_step(stream("f8", begins=True), "loss", li.adam(0.05)).only("train")) as made:
        got = [float(made.entries["train"](b, begins=m)["loss"]) for b, m in zip(given, begins, strict=True)]
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)
        np.testing.assert_allclose(made.state["c0"], left["c0"], rtol=0, atol=1e-9)


def test_the_last_state_may_be_shown_and_gradients_summed(seed: int) -> None:
    step = li.train_step(stream(), "loss", li.sgd(0.1), outputs="h_n", accumulate=2)
    state: dict[str, Any] = {n: v.initial.array for n, v in step.state.items()}
    for n in FED:
        state[n] = np.zeros((1, B, H), "f4")
    for b in chunks(seed, "f4"):
        out = li.interpret(step.entries["train"], {**state, **b})
        np.testing.assert_array_equal(out["h_n"], out["h0"])
        state |= {n: out[n] for n in state}
    assert (state["step"], state["micro_step"]) == (CHUNKS // 2, 0)


def test_a_package_carries_too(seed: int, tmp_path: Path) -> None:
    given = chunks(seed, "f4")
    made = program("f4").only("train", "reset")
    path = li.export(made, tmp_path / "m.lirpkg", ["cpu:host"])
    with li.compile(made) as here, li.load(path) as there:
        for exe in (here, there):
            exe.entries["train"](given[0])
            exe.entries["train"](given[1])
            exe.entries["reset"]()
        assert here.entries["train"](given[2])["loss"] == there.entries["train"](given[2])["loss"]
        assert there.state["step"] == 3


def test_text() -> None:
    made = program("f4")
    again = li.parse(str(made), {s.initial.sha256: s.initial.array for s in made.state.values()})
    assert str(again) == str(made)
    assert isinstance(again, li.Program)
    assert again.signature().entries["reset"].reads == ("h0", "c0")


def test_programs_that_stream_in_another_way_are_refused() -> None:
    x = li.input("x", (3,))
    w = li.weight("w", np.ones(3, "f4"))
    g = li.Graph("g", [x], {"loss": li.sum(x * w), "y": x * w})
    kept = li.State("kept", li.Data.of(np.zeros(3, "f4")))
    other = li.Program("p", {"step": g}, {"kept": kept}, {"step": ({"x": "kept"}, {"y": "kept"})})
    plain = li.Program("p", {"step": g})
    for wrong in (other, plain):
        with pytest.raises(li.GradientError, match=r"got the program 'p'; train the graph .* of li.stateful"):
            li.train_step(wrong, "loss", li.sgd(0.1))


def test_names_that_are_taken() -> None:
    h, step = li.input("h", ()), li.input("step", (), "i64")
    w = li.weight("w", np.float32(2.0))
    g = li.Graph("g", [h, step], {"loss": h * w, "n": step + 1, "h": h})
    with pytest.raises(li.GradientError, match="an input is called 'step', as the step counter is"):
        li.train_step(li.stateful(g, {"step": "n"}), "loss", li.sgd(0.1))
    with pytest.raises(li.GradientError, match="an output is called 'h', as what is carried is"):
        li.train_step(li.stateful(g, {"h": "loss"}), "loss", li.sgd(0.1))
