"""Every optimizer against torch.optim, with all options, and groups of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

pytestmark = pytest.mark.one_day("exe")
Array = np.ndarray[Any, Any]
STEPS, B, I, H, O = 20, 7, 5, 4, 3
SHAPES = {"encoder/w": (H, I), "encoder/bias": (H,), "out/w": (O, H), "out/bias": (O,)}
RNG = np.random.default_rng(20261124)
START = {n: RNG.uniform(-0.8, 0.8, s) for n, s in SHAPES.items()}
DECAY = {"weight_decay": 0.05}

# name: (ours, torch's class, torch's options); options that both have stand once
CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {}


def case(name: str, ours: Any, theirs: str, options: dict[str, Any], **renamed: Any) -> None:
    """Options have torch's names; `renamed` are those that this project calls otherwise."""
    mine = {k: v for k, v in options.items() if k not in ("eps", "momentum" if theirs == "SGD" else "eps")}
    CASES[name] = (ours(**{**mine, **renamed}), theirs, options)


case("sgd", li.sgd, "SGD", {"lr": 0.3})
case("sgd_decay", li.sgd, "SGD", {"lr": 0.3, **DECAY})
case("momentum", li.momentum, "SGD", {"lr": 0.1, "momentum": 0.7, **DECAY}, momentum=0.7)
case(
    "nesterov", li.momentum, "SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, **DECAY}, momentum=0.8
)  # fmt: skip
case("adam", li.adam, "Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, **DECAY}, epsilon=1e-6)
case("adamw", li.adamw, "AdamW", {"lr": 0.05, "betas": (0.7, 0.9), "eps": 1e-5, "weight_decay": 0.2}, epsilon=1e-5)
case("rmsprop", li.rmsprop, "RMSprop", {})
case("rmsprop_decay", li.rmsprop, "RMSprop", {"lr": 0.02, "alpha": 0.9, "eps": 1e-4, **DECAY}, epsilon=1e-4)
case("rmsprop_momentum", li.rmsprop, "RMSprop", {"lr": 0.01, "alpha": 0.8, "momentum": 0.6, **DECAY})
case("rmsprop_centered", li.rmsprop, "RMSprop", {"lr": 0.02, "alpha": 0.9, "centered": True, **DECAY})
case(
    "rmsprop_all", li.rmsprop, "RMSprop",
    {"lr": 0.01, "alpha": 0.85, "eps": 1e-3, "momentum": 0.5, "centered": True, **DECAY}, epsilon=1e-3,
)  # fmt: skip
case("adagrad", li.adagrad, "Adagrad", {})
case(
    "adagrad_all", li.adagrad, "Adagrad",
    {"lr": 0.2, "lr_decay": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-4, **DECAY}, epsilon=1e-4,
)  # fmt: skip
case("adam_defaults", li.adam, "Adam", {})
case("adamw_defaults", li.adamw, "AdamW", {})

# pattern: options of both; torch's names, which are those of this project here
GROUPS: dict[str, dict[str, Any]] = {"*/bias": {"weight_decay": 0.0, "lr": 0.2}, "out/w": {"lr": 0.01}}
CASES["groups_sgd"] = (li.sgd(0.3, weight_decay=0.05, groups=GROUPS), "SGD", {"lr": 0.3, **DECAY})
CASES["groups_adamw"] = (li.adamw(0.05, weight_decay=0.3, groups=GROUPS), "AdamW", {"lr": 0.05, "weight_decay": 0.3})
ALPHAS: dict[str, dict[str, Any]] = {"encoder/*": {"alpha": 0.7, "centered": True}, "out/w": {"momentum": 0.4}}
CASES["groups_rmsprop"] = (li.rmsprop(0.02, groups=ALPHAS), "RMSprop", {"lr": 0.02})
GROUPS_OF = {"groups_sgd": GROUPS, "groups_adamw": GROUPS, "groups_rmsprop": ALPHAS}


def graph(kind: str) -> li.Graph:
    w = {n: li.weight(n, a.astype(kind)) for n, a in START.items()}
    dtype = {"f4": "f32", "f8": "f64"}[kind]
    x, want = li.input("x", (B, I), dtype), li.input("want", (B, O), dtype)
    y = li.dense(li.tanh(li.dense(x, w["encoder/w"], w["encoder/bias"])), w["out/w"], w["out/bias"])
    return li.Graph("g", [x, want], {"loss": li.mse(y, want)})


def batches(seed: int) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((B, I)), rng.standard_normal((B, O))) for _ in range(STEPS)]


@pytest.fixture(scope="module", params=["f4", "f8"])
def exe(request: pytest.FixtureRequest) -> Iterator[Executable]:
    """`train` of every case as an entry of its own; sessions keep them apart."""
    parts = {
        n: li.train_step(graph(request.param), "loss", ours).only("train") for n, (ours, _, _) in CASES.items()
    }  # fmt: skip
    state = {f"{n}:{k}": li.State(f"{n}:{k}", v.initial) for n, p in parts.items() for k, v in p.state.items()}
    bound = {
        n: tuple({port: f"{n}:{s}" for port, s in side.items()} for side in p.binding["train"])
        for n, p in parts.items()
    }
    made = li.Program("all", {n: p.entries["train"] for n, p in parts.items()}, state, bound)  # type: ignore[arg-type]
    with li.compile(made) as loaded:
        yield loaded


def torch_run(name: str, kind: str, given: list[tuple[Array, Array]]) -> dict[str, Array]:
    """The weights after all steps."""
    import torch

    _, theirs, options = CASES[name]
    p = {n: torch.tensor(a.astype(kind), requires_grad=True) for n, a in START.items()}
    left, sets = dict(p), []
    for pattern, own in GROUPS_OF.get(name, {}).items():
        chosen = [n for n in p if n in ("encoder/bias", "out/bias")] if pattern == "*/bias" else \
            [n for n in p if n.startswith("encoder/")] if pattern == "encoder/*" else [pattern]  # fmt: skip
        sets.append({"params": [left.pop(n) for n in chosen], **own})
    optimizer = getattr(torch.optim, theirs)([{"params": list(left.values())}, *sets], **options)
    for x, want in given:
        optimizer.zero_grad()
        tx, tw = torch.tensor(x.astype(kind)), torch.tensor(want.astype(kind))
        hidden = torch.tanh(tx @ p["encoder/w"].T + p["encoder/bias"])
        torch.mean((hidden @ p["out/w"].T + p["out/bias"] - tw) ** 2).backward()
        optimizer.step()
    return {n: v.detach().numpy() for n, v in p.items()}


@pytest.mark.slow_cases(exe=["f8"])
@pytest.mark.parametrize("name", CASES)
def test_weights_follow_pytorch(name: str, exe: Executable, seed: int) -> None:
    need("torch")
    kind = "f8" if exe.entries[name].inputs[0].type.dtype is li.DType.f64 else "f4"
    given = batches(seed)
    with exe.session() as s:
        for x, want in given:
            s.entries[name](x=x.astype(kind), want=want.astype(kind))
        got = {n: s.state[f"{name}:{n}"] for n in START}
        assert s.state[f"{name}:step"] == STEPS
    expected = torch_run(name, kind, given)
    for n, a in expected.items():
        assert np.abs(a - START[n]).max() > 1e-3, "nothing moves: it would prove little"
        np.testing.assert_allclose(got[n], a, rtol=0, atol=1e-12 if kind == "f8" else 2e-5, err_msg=n)


def test_what_is_kept_has_names_and_starts() -> None:
    made = li.train_step(graph("f4"), "loss", li.adagrad(initial_accumulator_value=0.25)).state
    np.testing.assert_array_equal(made["adagrad/s/out/w"].initial.array, np.full((O, H), 0.25, "f4"))
    made = li.train_step(graph("f4"), "loss", li.rmsprop(groups=ALPHAS)).state
    assert {n for n in made if n.startswith("rmsprop/")} == {
        *(f"rmsprop/v/{n}" for n in START), "rmsprop/m/encoder/w", "rmsprop/m/encoder/bias", "rmsprop/b/out/w",
    }  # fmt: skip


def test_a_centered_spread_that_roundings_make_negative() -> None:
    """The same gradient in every step: its variance is 0 or, rounded, below."""
    x = li.input("x", (3,))
    w = li.weight("w", np.array([1.0, 2.0, 3.0], "f4"))
    step = li.train_step(li.Graph("g", [x], {"loss": li.sum(x * w)}), "loss", li.rmsprop(centered=True, alpha=0.5))
    state = {n: v.initial.array for n, v in step.state.items()}
    for _ in range(60):
        out = li.interpret(step.entries["train"], {**state, "x": np.array([0.1, 0.3, 0.7], "f4")})
        state = {n: out[n] for n in state}
        assert all(np.isfinite(a).all() for a in state.values())


any_: Any = li


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: li.rmsprop(alpha=1.0), "rmsprop: alpha is 1.0; it lies in"),
        (lambda: li.rmsprop(momentum=-0.1), "rmsprop: momentum is -0.1; it lies in"),
        (lambda: li.rmsprop(epsilon=float("nan")), "rmsprop: epsilon is nan; it is at least 0"),
        (lambda: any_.rmsprop(centered=1), "rmsprop: centered is 1; it is True or False"),
        (lambda: li.rmsprop(weight_decay=-1), "rmsprop: weight_decay is -1"),
        (lambda: li.adagrad(lr_decay=-1), "adagrad: lr_decay is -1; it is at least 0"),
        (lambda: li.adagrad(initial_accumulator_value=-1), "adagrad: initial_accumulator_value is -1"),
        (lambda: any_.sgd(0.1, groups=[]), r"sgd: groups is \[\]; expected options by patterns"),
        (lambda: any_.sgd(0.1, groups={"a": 5}), "sgd: groups is {'a': 5}; expected options by patterns"),
        (lambda: any_.sgd(0.1, groups={5: {}}), "sgd: groups is {5: {}}; expected options by patterns"),
        (
            lambda: li.adamw(groups={"a": {"decay": 1}}),
            "adamw: group 'a': there is no option 'decay'; there are lr, be",
        ),
        (lambda: li.adamw(groups={"a": {"decoupled": False}}), "group 'a': there is no option 'decoupled'"),
        (lambda: li.adamw(groups={"a": {"lr": -1}}), "group 'a': adamw: lr is -1; it is at least 0"),
    ],
)
def test_options_that_are_none(make: Any, problem: str) -> None:
    with pytest.raises(li.IRError, match=problem):
        make()


def test_groups_that_fit_no_weight_or_two_to_one() -> None:
    def trained(groups: Any, trainable: str = "*") -> None:
        li.train_step(graph("f4"), "loss", li.sgd(0.1, groups=groups), trainable)

    with pytest.raises(
        li.GradientError, match=r"no weight that is trained is in group 'decoder/\*'; there is encoder/w"
    ):
        trained({"decoder/*": {"lr": 0.2}})
    with pytest.raises(li.GradientError, match="no weight that is trained is in group 'out/w'"):
        trained({"out/w": {"lr": 0.2}}, "encoder/*")
    with pytest.raises(li.GradientError, match=r"'out/bias' is in two groups, '\*/bias' and 'out/\*'"):
        trained({"*/bias": {"weight_decay": 0.0}, "out/*": {"lr": 0.2}})


def test_a_group_may_have_an_input_as_its_rate(rng: np.random.Generator) -> None:
    step = li.train_step(graph("f4"), "loss", li.sgd("lr", groups={"out/*": {"lr": "slow"}}))
    state = {n: v.initial.array for n, v in step.state.items()}
    given = {"x": rng.standard_normal((B, I)).astype("f4"), "want": rng.standard_normal((B, O)).astype("f4")}
    out = li.interpret(step.entries["train"], {**state, **given, "lr": np.float32(0.5), "slow": np.float32(0.0)})
    for n in START:
        assert np.array_equal(out[n], state[n]) == n.startswith("out/"), n
    assert step.finite["train"] == ("loss", "grad_norm", "lr", "slow")
