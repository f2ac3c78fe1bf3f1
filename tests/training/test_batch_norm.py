"""Batch norms that are trained: running mean and variance are state, beside PyTorch's over 20 steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need, need_target

import lstm_ir as li

B, T, I, C, O, STEPS, RATE = 6, 5, 3, 4, 2, 20, 0.1
Array = np.ndarray[Any, Any]
WEIGHTS = {"w": (C, I), "scale": (C,), "bias": (C,), "out": (O, C)}
STATISTICS = ("mean", "var")


def start(rng: np.random.Generator) -> dict[str, Array]:
    found = {n: rng.uniform(-0.8, 0.8, s).astype("f4") for n, s in WEIGHTS.items()}
    found["scale"] += 1.0
    return found | {"mean": rng.uniform(-1, 1, C).astype("f4"), "var": rng.uniform(0.5, 2, C).astype("f4")}


def graph(arrays: dict[str, Array], batch: Any = "B", training: bool = True) -> li.Graph:
    """A product, a batch norm over rows and steps, its mean over steps, a second product."""
    w = {n: li.weight(n, a) for n, a in arrays.items()}
    x, want = li.input("x", (batch, T, I)), li.input("want", (batch, O))
    rows = li.swapaxes(li.dense(x, w["w"]), 1, 2)
    y = li.batch_norm(rows, w["mean"], w["var"], w["scale"], w["bias"], training=training, momentum=0.3).y
    scores = li.dense(li.mean(li.tanh(y), 2), w["out"])
    return li.Graph("normed", [x, want], {"loss": li.mse(scores, want), "scores": scores})


def batches(rng: np.random.Generator, n: int = STEPS) -> list[dict[str, Array]]:
    sizes = rng.integers(2, B + 1, n)
    return [{"x": (rng.standard_normal((b, T, I)) * 2 + 1).astype("f4"),
             "want": rng.standard_normal((b, O)).astype("f4")} for b in sizes]  # fmt: skip


class Torch:
    """The same by PyTorch in double precision, whose module keeps the statistics."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        import torch

        self.torch = torch
        self.p = {n: torch.tensor(arrays[n], dtype=torch.float64, requires_grad=True) for n in WEIGHTS}
        self.norm = torch.nn.BatchNorm1d(C, momentum=0.3).double()
        self.norm.weight = torch.nn.Parameter(self.p["scale"])
        self.norm.bias = torch.nn.Parameter(self.p["bias"])
        self.norm.running_mean.copy_(torch.tensor(arrays["mean"]))
        self.norm.running_var.copy_(torch.tensor(arrays["var"]))
        trained = [self.p["w"], self.norm.weight, self.norm.bias, self.p["out"]]
        self.sgd = torch.optim.SGD(trained, lr=RATE)

    def forward(self, x: Array) -> Any:
        rows = (self.torch.tensor(x).double() @ self.p["w"].T).transpose(1, 2)
        return self.torch.tanh(self.norm(rows)).mean(2) @ self.p["out"].T

    def step(self, batch: dict[str, Array]) -> float:
        self.sgd.zero_grad()
        loss = ((self.forward(batch["x"]) - self.torch.tensor(batch["want"])) ** 2).mean()
        loss.backward()
        self.sgd.step()
        return float(loss.detach())

    def statistics(self) -> dict[str, Array]:
        return {"mean": self.norm.running_mean.numpy(), "var": self.norm.running_var.numpy()}

    def infer(self, x: Array) -> Array:
        self.norm.eval()
        with self.torch.no_grad():
            found: Array = self.forward(x).numpy()
        self.norm.train()
        return found


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=[pytest.mark.vulkan, pytest.mark.slow])])
def test_twenty_steps_are_pytorchs(target: str, rng: np.random.Generator, tmp_path: Path) -> None:
    need("torch")
    need_target(target)
    arrays = start(rng)
    program = li.train_step(graph(arrays), "loss", li.sgd(RATE), evaluate=True)
    assert set(STATISTICS) < set(program.state)
    assert not {n for n in program.state if n.startswith("next ")}
    theirs, given = Torch(arrays), batches(rng)
    with li.compile(program, target) as ours:
        for k, batch in enumerate(given):
            want = theirs.step(batch)
            np.testing.assert_allclose(ours.entries["train"](batch)["loss"], want, rtol=2e-4, err_msg=f"step {k}")
            for n, a in theirs.statistics().items():
                np.testing.assert_allclose(ours.state[n], a, rtol=2e-4, atol=2e-5, err_msg=f"{n}, step {k}")
        x = given[0]["x"][:1]
        scores = theirs.infer(x)
        np.testing.assert_allclose(ours.entries["infer"](x=x)["scores"], scores, rtol=5e-4, atol=5e-5)
        found = ours.entries["evaluate"](given[0])
        assert set(found) == {"loss", "scores"}
        np.testing.assert_allclose(found["scores"], theirs.infer(given[0]["x"]), rtol=5e-4, atol=5e-5)
        np.testing.assert_allclose(ours.state["mean"], theirs.statistics()["mean"], rtol=2e-4, atol=2e-5)
        if target == "cpu":
            ours.save_state(tmp_path / "s.safetensors")
            kept = li.with_weights(graph(arrays, training=False), ours)
            shown = li.interpret(kept, x=x, want=np.zeros((1, O), "f4"))["scores"]
            np.testing.assert_allclose(shown, scores, rtol=5e-4, atol=5e-5)
    if target == "cpu":
        with li.load(li.export(program, tmp_path / "m.lirpkg", ["cpu:host"])) as again:
            again.load_state(tmp_path / "s.safetensors")
            np.testing.assert_allclose(again.entries["infer"](x=x)["scores"], scores, rtol=5e-4, atol=5e-5)
            more = theirs.step(given[1])
            np.testing.assert_allclose(again.entries["train"](given[1])["loss"], more, rtol=5e-4)
            np.testing.assert_allclose(again.state["var"], theirs.statistics()["var"], rtol=5e-4)


def test_gradients_of_the_statistics_are_not_asked_for(rng: np.random.Generator) -> None:
    """`grads` uses them, gives none of them, and changes none."""
    program = li.train_step(graph(start(rng)), "loss", li.adam(0.1), grads=True)
    reads, writes = program.binding["grads"]
    assert not writes
    assert set(program.entries["grads"].output_names) == {"loss", *(f"d_{n}" for n in WEIGHTS)}
    assert set(program.binding["train"][1].values()) > {"mean", "var"}
    assert not {"mean", "var"} & set(program.binding["apply"][0])
    assert {"mean", "var"} <= set(program.binding["infer"][0])
    assert not {n for n in program.state if n.startswith("adam/") and n.endswith(("/mean", "/var"))}
    assert reads


def test_accumulated_batches_each_move_them(rng: np.random.Generator) -> None:
    arrays, given = start(rng), batches(rng, 3)
    program = li.train_step(graph(arrays), "loss", li.sgd(RATE), accumulate=3)
    w, mean, var = arrays["w"].astype("f8"), arrays["mean"].astype("f8"), arrays["var"].astype("f8")
    with li.compile(program) as exe:
        for batch in given:
            exe.entries["train"](batch)
            rows = (batch["x"] @ w.T).reshape(-1, C)
            mean, var = 0.7 * mean + 0.3 * rows.mean(0), 0.7 * var + 0.3 * rows.var(0, ddof=1)
            np.testing.assert_allclose(exe.state["mean"], mean, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(exe.state["var"], var, rtol=1e-4, atol=1e-5)


def test_a_step_that_is_not_finite_moves_nothing(rng: np.random.Generator) -> None:
    arrays, (batch,) = start(rng), batches(rng, 1)
    with li.compile(li.train_step(graph(arrays), "loss", li.sgd(RATE))) as exe:
        with pytest.raises(li.ValueRangeError):
            exe.entries["train"](batch | {"x": batch["x"] * np.nan})
        np.testing.assert_array_equal(exe.state["mean"], arrays["mean"])


def test_what_cannot_be_kept_is_refused(rng: np.random.Generator) -> None:
    arrays = start(rng)
    with pytest.raises(li.GradientError, match="'mean' is a running statistic, which a batch norm moves"):
        li.train_step(graph(arrays), "loss", li.sgd(RATE), trainable=["w", "mean"])
    x, mean, var = li.input("x", (B, C)), li.weight("mean", arrays["mean"]), li.weight("var", arrays["var"])
    scale = li.weight("scale", arrays["scale"])
    once = li.batch_norm(x, mean, var, scale, training=True).y
    twice = li.batch_norm(once, mean, var, training=True).y
    with pytest.raises(li.GradientError, match="two batch norms move 'mean'"):
        li.train_step(li.Graph("g", [x], {"loss": li.sum(twice * twice)}), "loss", li.sgd(RATE))


@pytest.mark.parametrize("plain", ["mean", "var"])
@pytest.mark.parametrize("filled", [False, True])
def test_a_plain_array_is_no_running_statistic(plain: str, filled: bool, rng: np.random.Generator) -> None:
    """It would stay what it is, and `infer` and `evaluate` would normalise by it."""
    arrays = start(rng)
    x, out = li.input("x", ("B", C)), li.weight("out", arrays["out"])
    held: dict[str, Any] = {n: li.weight(n, arrays[n]) for n in STATISTICS}
    held[plain] = li.full((C,), 1.0) if filled else arrays[plain]
    y = li.dense(li.batch_norm(x, **held, training=True).y, out)
    message = rf"batch norm at .*test_batch_norm.py.* has a plain array as its {plain}, .*; make it li\.weight\(name, "
    with pytest.raises(li.GradientError, match=message):
        li.train_step(li.Graph("g", [x], {"loss": li.mean(y * y)}), "loss", li.sgd(RATE))


def test_the_choice_of_results(rng: np.random.Generator) -> None:
    """The op behind it, alone: its three results in training and after, their gradients, its text."""
    names = ("y", "mean", "var", "held_y", "held_mean", "held_var")
    shapes = ((2, 3), (3,), (3,), (2, 3), (3,), (3,))
    values = {n: li.input(n, s) for n, s in zip(names, shapes, strict=True)}
    arrays = {n: rng.standard_normal(s, np.float32) for n, s in zip(names, shapes, strict=True)}
    for training in (True, False):
        made = li.op("batch_norm_results", **values, training=training)
        g = li.Graph("g", list(values.values()), {"a": made.y * made.mean, "b": made.var})
        assert str(li.parse(str(g))) == str(g)
        p = "" if training else "held_"
        for run in (lambda a: li.interpret(g, a), li.compile(g)):  # noqa: B023
            got = run(arrays)
            np.testing.assert_allclose(got["a"], arrays[f"{p}y"] * arrays[f"{p}mean"], rtol=1e-6)
            np.testing.assert_array_equal(got["b"], arrays[f"{p}var"])
        back = li.vjp(g, ["b"], [f"{p}var"])
        ct = rng.standard_normal(3, np.float32)
        np.testing.assert_array_equal(li.interpret(back, **arrays, ct_b=ct)[f"d_{p}var"], ct)
    with pytest.raises(li.IRError, match="held_mean is"):
        li.op("batch_norm_results", **(values | {"held_mean": li.input("h", (2,))}))


def statistics_of(a: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Of x [N,C,T] the places that count, normalised, 0 elsewhere; their mean, and their variance by n - 1."""
    rows = a.astype("f8").transpose(0, 2, 1)[counts]
    y = np.zeros((a.shape[0], a.shape[2], a.shape[1]))
    y[counts] = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)
    return y.transpose(0, 2, 1), rows.mean(0), rows.var(0, ddof=1)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_padding_counts_for_nothing(kind: str, rng: np.random.Generator) -> None:
    """NaN in it reaches neither results nor gradients; rows of another length give what the rows alone give."""
    a = (2 * rng.standard_normal((4, 3, 5)) + 1).astype(li.DType(kind).numpy)
    counts = np.arange(5) < np.array([5, 2, 0, 4])[:, None]
    y, mean, var = statistics_of(a, counts)
    a = np.where(counts[:, None], a, np.nan).astype(a.dtype)
    x, k = li.input("x", ("N", 3, "T"), kind), li.input("k", ("N", "T"), "i1")
    m, v = (li.weight(n, np.full(3, w, li.DType(kind).numpy)) for n, w in (("m", 0.5), ("v", 2.0)))
    found = li.batch_norm(x, m, v, training=True, momentum=0.25, mask=k)
    g = li.Graph("padded", [x, k], {"y": found.y, "mean": found.mean, "var": found.var})
    back = li.vjp(g, ["y"], ["x"])
    given = {"x": a, "k": counts}
    ct = rng.standard_normal(a.shape).astype(a.dtype)
    bound = 1e-2 if kind == "f16" else 1e-4
    for run in (lambda g, **given: li.interpret(g, given), lambda g, **given: li.compile(g)(given)):
        out = run(g, **given)
        np.testing.assert_allclose(out["y"].astype("f8"), y, rtol=bound, atol=bound)
        np.testing.assert_allclose(out["mean"].astype("f8"), 0.375 + 0.25 * mean, rtol=bound, atol=bound)
        np.testing.assert_allclose(out["var"].astype("f8"), 1.5 + 0.25 * var, rtol=bound, atol=bound)
        d = run(back, **given, ct_y=ct)["d_x"].astype("f8").transpose(0, 2, 1)
        assert (d[~counts] == 0).all()
        np.testing.assert_allclose(d[counts].sum(0), 0, atol=10 * bound)  # y does not change where x is shifted
        assert (d[counts] != 0).any()


def test_without_a_place_that_counts_the_statistics_stay(rng: np.random.Generator) -> None:
    x, k = li.input("x", (2, 3)), li.input("k", (2,), "i1")
    m, v = rng.uniform(0.5, 2, (2, 3)).astype("f4")
    found = li.batch_norm(x, li.weight("m", m), li.weight("v", v), training=True, mask=k)
    g = li.Graph("none", [x, k], {"y": found.y, "mean": found.mean, "var": found.var})
    out = li.compile(g)(x=np.full((2, 3), np.nan, "f4"), k=np.zeros(2, bool))
    np.testing.assert_array_equal(out["y"], np.zeros((2, 3)))
    np.testing.assert_array_equal(out["mean"], m)
    np.testing.assert_array_equal(out["var"], v)


def test_a_step_over_padded_rows_is_one_over_the_rows(rng: np.random.Generator) -> None:
    """`train` and `infer` of a padded batch, beside those of the same rows without padding."""
    w = {"m": np.zeros(3, "f4"), "v": np.ones(3, "f4"), "s": rng.uniform(0.5, 2, 3).astype("f4")}

    def learner(masked: bool) -> Any:
        x, k = li.input("x", ("N", 3)), li.input("k", ("N",), "i1")
        m, v, s = (li.weight(n, a) for n, a in w.items())
        y = li.batch_norm(x, m, v, s, training=True, mask=k if masked else None).y
        count = li.sum(li.convert(k, "f32"))
        loss = li.sum(li.where(li.expand_dims(k, 1), li.tanh(y), 0.0)) / count
        g = li.Graph("g", [x, k], {"loss": loss, "y": y})
        return li.compile(li.train_step(g, "loss", li.sgd(0.1)))

    padded, plain = learner(True), learner(False)
    a, counts = rng.standard_normal((6, 3)).astype("f4"), np.array([True, True, False, True, False, True])
    for _ in range(3):
        got = padded.entries["train"](x=a, k=counts)["loss"]
        want = plain.entries["train"](x=a[counts], k=counts[counts])["loss"]
        np.testing.assert_allclose(got, want, rtol=1e-5)
    for n in w:
        np.testing.assert_allclose(padded.state[n], plain.state[n], rtol=1e-5, atol=1e-6)
    got, want = padded.entries["infer"](x=a, k=counts)["y"], plain.entries["infer"](x=a[counts])["y"]
    np.testing.assert_allclose(got[counts], want, rtol=1e-5, atol=1e-6)
    assert (got[~counts] == 0).all()
