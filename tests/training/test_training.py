"""Training: programs of `train_step` against PyTorch, in files, in packages, on CPU and Vulkan."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import compiled, need

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable
from lstm_ir.ir.errors import GradientError, IRError, ValueRangeError, VerifyError

pytestmark = [
    pytest.mark.slow_on("vulkan"), pytest.mark.together, pytest.mark.xdist_group("trained"),
    pytest.mark.one_day("optimizers"),
]  # fmt: skip
Array = np.ndarray[Any, Any]
V, E, H, C, T, B = 13, 5, 7, 4, 11, 3
SHAPES = {
    "emb": (V, E), "lstm/w_ih": (4 * H, E), "lstm/w_hh": (4 * H, H), "lstm/b": (4 * H,),
    "out/w": (C, H), "out/b": (C,),
}  # fmt: skip
KINDS = ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)]


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(20261)
    return {n: rng.uniform(-0.4, 0.4, s).astype(np.float32) for n, s in SHAPES.items()}


def tagger(rate: float = 0.0) -> li.Graph:
    """ids, labels and mask [T, B] -> loss, logits [T, B, C]; with dropout where rate is not 0."""
    w = {n: li.weight(n, a) for n, a in weights().items()}
    ids, labels = (li.input(n, ("T", "B"), "i32") for n in ("ids", "labels"))
    mask, step = li.input("mask", ("T", "B"), "i1"), li.input("step", (), "i64")
    x = li.embedding(w["emb"], ids)
    if rate:
        x = li.dropout(x, rate, li.random_key(7, step))
    y, _, _ = li.lstm(x, w["lstm/w_ih"], w["lstm/w_hh"], w["lstm/b"])
    logits = li.dense(y, w["out/w"], w["out/b"])
    loss = li.cross_entropy(logits, labels, mask)
    return li.Graph("tagger", [ids, labels, mask, step], {"loss": loss, "logits": logits})


def batches(seed: int, count: int) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        ids = rng.integers(0, V, (T, B)).astype(np.int32)
        labels = (ids % C).astype(np.int32)
        yield {"ids": ids, "labels": labels, "mask": rng.random((T, B)) < 0.8}


OPTIMIZERS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "sgd": (li.sgd(1.0, weight_decay=1e-3), "SGD", {"lr": 1.0, "weight_decay": 1e-3}),
    "momentum": (li.momentum(0.2, 0.8, nesterov=True), "SGD", {"lr": 0.2, "momentum": 0.8, "nesterov": True}),
    "adam": (li.adam(2e-2, weight_decay=1e-3), "Adam", {"lr": 2e-2, "weight_decay": 1e-3}),
    "adamw": (
        li.adamw(2e-2, (0.8, 0.99), weight_decay=0.1),
        "AdamW",
        {"lr": 2e-2, "betas": (0.8, 0.99), "weight_decay": 0.1},
    ),
}


def torch_curve(kind: str, options: dict[str, Any], seed: int, clip: float, count: int) -> list[float]:
    """PyTorch's losses on the same batches from the same weights."""
    import torch

    w = {n: torch.tensor(a) for n, a in weights().items()}
    emb, cell, out = torch.nn.Embedding(V, E), torch.nn.LSTM(E, H), torch.nn.Linear(H, C)
    with torch.no_grad():
        emb.weight.copy_(w["emb"])
        cell.weight_ih_l0.copy_(w["lstm/w_ih"])
        cell.weight_hh_l0.copy_(w["lstm/w_hh"])
        cell.bias_ih_l0.copy_(w["lstm/b"])
        cell.bias_hh_l0.zero_()
        out.weight.copy_(w["out/w"])
        out.bias.copy_(w["out/b"])
    cell.bias_hh_l0.requires_grad_(False)  # this project's cell has the sum of both
    parameters = [p for m in (emb, cell, out) for p in m.parameters() if p.requires_grad]
    optimizer = getattr(torch.optim, kind)(parameters, **options)
    curve = []
    for b in batches(seed, count):
        optimizer.zero_grad()
        y, _ = cell(emb(torch.tensor(b["ids"])))
        labels = torch.tensor(np.where(b["mask"], b["labels"], -100), dtype=torch.int64)
        loss = torch.nn.functional.cross_entropy(out(y).reshape(-1, C), labels.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        curve.append(loss.item())
    return curve


def together() -> li.Program:
    """`train` of every optimizer as an entry of its own, in one module; sessions keep them apart."""
    parts = {
        n: li.train_step(tagger(), "loss", ours, clip_norm=0.3).only("train") for n, (ours, _, _) in OPTIMIZERS.items()
    }
    state: dict[str, li.State] = {}
    for p in parts.values():
        state |= p.state
    return li.Program(
        "optimizers",
        {n: p.entries["train"] for n, p in parts.items()},
        state,
        {n: p.binding["train"] for n, p in parts.items()},
        {n: p.finite["train"] for n, p in parts.items()},
    )


@pytest.fixture(scope="module", params=KINDS)
def optimizers(request: pytest.FixtureRequest) -> Iterator[Executable]:
    yield from compiled(together(), request.param)


@pytest.mark.slow_cases(optimizers=["cpu"], name=["adam", "adamw"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_loss_follows_pytorch(name: str, optimizers: Executable, seed: int) -> None:
    need("torch")
    _, theirs, options = OPTIMIZERS[name]
    short = optimizers.target.info.kind == "vulkan" and name != "adam"  # a second for each step
    count = 20 if short else 100
    with optimizers.session() as s:
        got = [float(s.entries[name](b)["loss"]) for b in batches(seed, count)]
    want = torch_curve(theirs, options, seed, 0.3, count)
    assert short or want[-1] < 0.8 * want[0], "the model learns nothing: it would prove little"
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


@pytest.fixture(scope="module", params=KINDS)
def exe(request: pytest.FixtureRequest) -> Iterator[Executable]:
    """With dropout, Adam, and the learning rate as an input."""
    yield from compiled(dropped(), request.param)


def dropped() -> li.Program:
    return li.train_step(tagger(0.25), "loss", li.adam("lr"), clip_norm=0.5, grads=True)


LR = {"lr": np.float32(0.02)}


def test_stopped_and_resumed_equals_uninterrupted(exe: Executable, seed: int, tmp_path: Path) -> None:
    with exe.session() as whole, exe.session() as first, exe.session() as second:
        given = list(batches(seed, 12))
        losses = [float(whole.entries["train"](b, **LR)["loss"]) for b in given]
        for b in given[:5]:
            first.entries["train"](b, **LR)
        first.save_state(tmp_path / "state.safetensors")
        second.load_state(tmp_path / "state.safetensors")
        assert second.state["step"] == 5
        rest = [float(second.entries["train"](b, **LR)["loss"]) for b in given[5:]]
        assert rest == losses[5:]
        for n in whole.state:
            np.testing.assert_array_equal(second.state[n], whole.state[n], err_msg=n)


@pytest.mark.slow_cases(exe=["cpu"])
def test_grads_and_apply_make_a_step(exe: Executable, seed: int) -> None:
    with exe.session() as whole, exe.session() as parts:
        for b in batches(seed, 3):
            one = whole.entries["train"](b, **LR)
            two = parts.entries["grads"](b)
            np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-6)
            norm = parts.entries["apply"]({n: a for n, a in two.items() if n != "loss"}, **LR)
            np.testing.assert_allclose(norm["grad_norm"], one["grad_norm"], rtol=1e-5)
        assert parts.state["step"] == 3
        for n in SHAPES:
            np.testing.assert_allclose(parts.state[n], whole.state[n], atol=1e-5, err_msg=n)


def test_every_step_drops_anew_and_inference_drops_nothing(exe: Executable, seed: int) -> None:
    (b,) = batches(seed, 1)
    still = {"lr": np.float32(0.0)}
    graph = tagger()
    with exe.session() as s:
        losses = [float(s.entries["train"](b, **still)["loss"]) for _ in range(4)]
        assert len(set(losses)) == 4
        dropping = tagger(0.25)
        for k, loss in enumerate(losses):  # the NumPy meaning drops the same elements
            want = li.interpret(dropping, {**b, "step": np.int64(k)})["loss"]
            np.testing.assert_allclose(loss, want, rtol=1e-5)
        np.testing.assert_allclose(
            s.entries["infer"](ids=b["ids"])["logits"],
            li.interpret(graph, {**b, "step": np.int64(0)})["logits"],
            atol=1e-5,
        )


def test_not_a_number_stops_and_keeps_the_state(exe: Executable, seed: int) -> None:
    with exe.session() as s:
        for b in batches(seed, 2):
            s.entries["train"](b, **LR)
        s.state["out/b"] = np.full(C, np.nan, np.float32)
        before = {n: s.state[n] for n in s.state}
        with pytest.raises(ValueRangeError, match="loss is nan at step 3; the state is that before"):
            s.entries["train"](b, **LR)
        for n, a in before.items():
            np.testing.assert_array_equal(s.state[n], a, err_msg=n)
        s.state["out/b"] = weights()["out/b"]
        s.entries["train"](b, **LR)
        assert s.state["step"] == 3


@pytest.mark.parametrize("lr", [np.nan, np.inf])
def test_a_learning_rate_that_is_none(exe: Executable, seed: int, lr: float) -> None:
    wrong = {"lr": np.float32(lr)}
    with exe.session() as s:
        (b,) = batches(seed, 1)
        s.entries["train"](b, **LR)
        found = {n: a for n, a in s.entries["grads"](b).items() if n != "loss"}
        before = {n: s.state[n] for n in s.state}
        for name, given in (("train", b), ("apply", found)):
            with pytest.raises(ValueRangeError, match=f"{name}: lr is {lr} at step 2; the state is"):
                s.entries[name](given, **wrong)
        for n, a in before.items():
            np.testing.assert_array_equal(s.state[n], a, err_msg=n)


def test_an_update_is_not_in_place(exe: Executable, seed: int) -> None:
    """What a step read is unchanged by it, so a failing step has nothing to undo: measured on buffers."""
    (b,) = batches(seed, 1)
    with exe.session() as s:
        s.entries["train"](b, **LR)
        old = s.state["out/w"]
        held = s.state._values["out/w"]
        s.entries["train"](b, **LR)
        assert held[0] is not s.state._values["out/w"][0]
        assert not np.array_equal(s.state["out/w"], old)
        s.state._values["out/w"] = held
        np.testing.assert_array_equal(s.state["out/w"], old)


def test_only_what_matches_is_trained(seed: int) -> None:
    made = li.train_step(tagger(), "loss", li.momentum(0.1), trainable=["out/*", "emb"])
    assert set(made.weights) == {"lstm/w_ih", "lstm/w_hh", "lstm/b"}
    assert set(made.state) == {
        "emb", "out/w", "out/b", "momentum/v/emb", "momentum/v/out/w", "momentum/v/out/b", "step"
    }  # fmt: skip
    (b,) = batches(seed, 1)
    start = {n: v.initial.array for n, v in made.state.items()}
    after = li.interpret(made.entries["train"], {**b, **start})
    for n in ("emb", "out/w", "out/b"):
        assert not np.array_equal(after[n], weights()[n])


def test_only_some_entries() -> None:
    made = li.train_step(tagger(), "loss", li.momentum(0.1), grads=True)
    assert set(made.only("train").entries) == {"train"}
    assert set(made.only("train", "infer").state) == set(made.state)
    assert set(made.only("infer").state) == set(SHAPES)
    assert (made.only("infer").finite, set(made.only("apply").finite)) == ({}, {"apply"})
    with pytest.raises(VerifyError, match="no entry 'fit'"):
        made.only("train", "fit")


def test_what_can_be_finite() -> None:
    made = li.train_step(tagger(), "loss", li.momentum("lr"), grads=True)
    assert made.finite == {"train": ("loss", "grad_norm", "lr"), "grads": ("loss",),
                           "apply": ("grad_norm", "lr")}  # fmt: skip
    assert li.train_step(tagger(), "loss", li.momentum("lr"), stop_on_nan=False).finite == {}
    graph = tagger()
    for name, problem in (("rate", "no output or input 'rate'"), ("ids", "'ids' is not of floats")):
        with pytest.raises(VerifyError, match=problem):
            li.Program("p", {"main": graph}, finite={"main": (name,)})


def test_text(seed: int) -> None:
    made = dropped()
    data = {s.initial.sha256: s.initial.array for s in made.state.values()}
    again = li.parse(str(made), data)
    assert str(again) == str(made)
    assert isinstance(again, li.Program)
    for name, e in made.signature().entries.items():
        other = again.signature().entries[name]
        for field in ("inputs", "outputs", "reads", "writes", "finite", "dims"):
            assert getattr(other, field) == getattr(e, field)


BARE = """
    import sys
    import numpy as np
    class Only:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("torch", "lark", "networkx", "click", "rich", "ml_dtypes", "safetensors") \\
                    or name.startswith("iree.compiler"):
                raise ImportError(name)
    sys.meta_path.insert(0, Only())
    import lstm_ir as li
    data = np.load(sys.argv[2])
    with li.load(sys.argv[1], "cpu") as exe:
        for k in range(4):
            given = {n: data[f"{n}{k}"] for n in ("ids", "labels", "mask")}
            print(float(exe.entries["train"](given, lr=np.float32(0.02))["loss"]))
        exe.save_state(sys.argv[3])
"""


@pytest.mark.parametrize("exe", ["cpu"], indirect=True)
def test_a_package_trains_without_the_compiler(exe: Executable, seed: int, tmp_path: Path) -> None:
    package = li.export(dropped().only("train"), tmp_path / "m.lirpkg", ["cpu:host"])
    arrays: dict[str, Any] = {f"{n}{k}": a for k, b in enumerate(batches(seed, 4)) for n, a in b.items()}
    np.savez(tmp_path / "data.npz", **arrays)
    command = [sys.executable, "-c", textwrap.dedent(BARE), str(package), str(tmp_path / "data.npz")]
    done = subprocess.run([*command, str(tmp_path / "state")], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    with exe.session() as s:
        want = [float(s.entries["train"](b, **LR)["loss"]) for b in batches(seed, 4)]
        np.testing.assert_allclose([float(x) for x in done.stdout.split()], want, rtol=1e-5)
        s.load_state(tmp_path / "state")
        assert s.state["step"] == 4


def named(
    weights: Sequence[str] = ("a",), inputs: Mapping[str, str] | None = None, *, loss: str = "loss",
    other: str = "y", lr: str = "lr", dtype: str = "f32", **options: Any,
) -> li.Program:  # fmt: skip
    """A step of Adam on dense layers with these weights and scalar inputs."""
    x = li.input("x", ("B", 3), dtype)
    ports = [li.input(n, (), t) for n, t in (inputs or {}).items()]
    y = x * 0
    for n in weights:
        y = y + li.dense(x, li.weight(n, np.ones((3, 3), x.dtype.numpy)))
    for p in ports:
        y = y * li.convert(p, dtype)
    g = li.Graph("g", [x, *ports], {loss: li.mean(y * y), other: y})
    return li.train_step(g, loss, li.adam(lr), **options)


def cell() -> li.Graph:
    h = li.input("h", (2,))
    n = li.tanh(h * li.weight("w", np.ones(2, np.float32)))
    return li.Graph("cell", [h], {"n": n, "loss": li.sum(n)})


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: named(["a", "adam/m/a"]), "weight is called 'adam/m/a', as what is kept for 'a'"),
        (lambda: named(["adam/v/a", "a"], trainable="a"), "as what is kept for 'a'"),
        (lambda: named(["step"]), "a weight is called 'step', as the step counter is"),
        (lambda: named(loss="a"), "the loss is called 'a', as a weight that is trained is"),
        (lambda: named(loss="step"), "the loss is called 'step', as the step counter is"),
        (lambda: named(loss="grad_norm"), "output is called 'grad_norm', as the gradients' norm"),
        (lambda: named(other="grad_norm"), "output is called 'grad_norm', as the gradients' norm"),
        (lambda: named(inputs={"a": "f32"}), "an input is called 'a', as a weight"),
        (lambda: named(inputs={"adam/v/a": "f32"}), "an input is called 'adam/v/a', as what is"),
        (lambda: named(inputs={"step": "i32"}), r"input 'step' is i32\[\]; it is fed .* i64\[\]"),
        (lambda: named(inputs={"lr": "f32"}), "learning rate is called 'lr', as an input"),
        (lambda: named(lr="d_a"), "learning rate is called 'd_a', as the gradient of 'a'"),
        (lambda: named(lr="loss"), "learning rate is called 'loss', as the loss is"),
        (lambda: named(lr="grad_norm"), "learning rate is called 'grad_norm', as the gradients'"),
        (lambda: named(lr="step"), "learning rate is called 'step', as the step counter"),
        (lambda: named(clip_norm="x"), "clip_norm is 'x'"),
        (lambda: named(dtype="f16"), "'a' is f16.*; only f32 and f64 are trained"),
        (lambda: li.train_step(tagger(), "los", li.sgd(0.1)), "no output 'los'"),
        (lambda: li.train_step(tagger(), "logits", li.sgd(0.1)), "not a scalar"),
        (lambda: li.train_step(tagger(), "loss", li.sgd(0.1), "decoder/*"), "matches 'decoder/\\*'"),
        (lambda: li.train_step(tagger(), "loss", li.sgd(0.1), clip_norm=0.0), "clip_norm is 0.0"),
        (lambda: li.train_step(named(), "loss", li.sgd(0.1)), "got the program 'g'; train the graph"),
        (
            lambda: li.stateful(li.train_step(cell(), "loss", li.sgd(0.1)), {"h": "n"}),  # type: ignore[arg-type]
            "got the program 'cell'; to train a stream, train_step",
        ),
        (lambda: li.stateful([cell()], {"h": "n"}), "stateful: takes a graph, got list"),  # type: ignore[arg-type]
        (lambda: li.sgd(-1.0), "lr is -1.0"),
        (lambda: li.momentum(0.1, 1.0), "momentum is 1.0"),
        (lambda: li.adam(0.1, (0.9, 1.0)), "betas is"),
        (lambda: li.adam(0.1, epsilon=-1.0), "epsilon is -1.0"),
        (lambda: li.adam(0.1, epsilon="x"), "epsilon is 'x'"),  # type: ignore[arg-type]
        (lambda: li.adamw(0.1, weight_decay=-1.0), "adamw: weight_decay is -1.0"),
        (lambda: li.sgd(0.1, weight_decay=float("nan")), "sgd: weight_decay is nan"),
        (lambda: li.momentum(0.1, "x"), "momentum is 'x'"),  # type: ignore[arg-type]
    ],
)
def test_refused(make: Any, problem: str) -> None:
    with pytest.raises((GradientError, IRError), match=problem):
        make()
