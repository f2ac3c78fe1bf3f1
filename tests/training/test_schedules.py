"""Learning-rate schedules against torch.optim.lr_scheduler, as graphs and in programs that train."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

Array = np.ndarray[Any, Any]
STEPS = 130
sched = li.schedules

# name: (ours, torch's of an optimizer, the first rate that torch is given, steps that both define)
CASES: dict[str, tuple[Any, Callable[[Any, Any], Any], float, int]] = {
    "linear": (sched.linear(0.3, 0.06, 50), lambda s, o: s.LinearLR(o, 1.0, 0.2, 50), 0.3, STEPS),
    "linear_up": (sched.linear(0.02, 0.4, 31), lambda s, o: s.LinearLR(o, 0.05, 1.0, 31), 0.4, STEPS),
    "exponential": (sched.exponential(0.5, 0.93), lambda s, o: s.ExponentialLR(o, 0.93), 0.5, STEPS),
    "growing": (sched.exponential(1e-3, 1.05), lambda s, o: s.ExponentialLR(o, 1.05), 1e-3, STEPS),
    "step": (sched.step(0.4, 17, 0.3), lambda s, o: s.StepLR(o, 17, 0.3), 0.4, STEPS),
    "each_step": (sched.step(0.4, 1, 0.9), lambda s, o: s.StepLR(o, 1, 0.9), 0.4, STEPS),
    "milestones": (sched.step(0.4, [3, 40, 41], 0.5), lambda s, o: s.MultiStepLR(o, [3, 40, 41], 0.5), 0.4, STEPS),
    "cosine": (sched.cosine(0.7, 90, 0.1), lambda s, o: s.CosineAnnealingLR(o, 90, 0.1), 0.7, 91),
    "cosine_to_0": (sched.cosine(0.7, 33), lambda s, o: s.CosineAnnealingLR(o, 33), 0.7, 34),
    "one_cycle": (sched.one_cycle(0.8, 110), lambda s, o: s.OneCycleLR(o, 0.8, 110, cycle_momentum=False), 0.8, 110),
    "one_cycle_all": (
        sched.one_cycle(0.8, 97, 0.45, div_factor=7.0, final_div_factor=50.0),
        lambda s, o: s.OneCycleLR(
            o, 0.8, 97, pct_start=0.45, div_factor=7.0, final_div_factor=50.0, cycle_momentum=False
        ),
        0.8, 97,
    ),
    "warmup": (
        sched.warmup(12, 0.6, 0.1),
        lambda s, o: s.LinearLR(o, 0.1, 1.0, 12), 0.6, STEPS,
    ),
    "warmup_then": (
        sched.warmup(20, sched.cosine(0.6, 80, 0.05), 0.25),
        lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.25, 1.0, 20), s.CosineAnnealingLR(o, 80, 0.05)], [20]),
        0.6, 101,
    ),
    "own": (
        lambda t: 0.3 / (t * 0.01 + 1.0),
        lambda s, o: s.LambdaLR(o, lambda t: 1 / (1 + 0.01 * t)), 0.3, STEPS,
    ),
}  # fmt: skip


def theirs(name: str) -> list[float]:
    """PyTorch's rate of each update: its scheduler is asked after each."""
    import torch

    _, make, lr, count = CASES[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    out = []
    for k in range(count):
        out.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        if k < count - 1:
            scheduler.step()
    return out


@pytest.fixture(scope="module", params=["f32", "f64"])
def rates(request: pytest.FixtureRequest) -> Iterator[Executable]:
    """step -> the rate of every case."""
    t = li.input("step", (), request.param)
    made = {n: ours(t) for n, (ours, _, _, _) in CASES.items()}
    with li.compile(li.Graph("rates", [t], made)) as exe:
        yield exe


@pytest.mark.filterwarnings("ignore")  # of the schedulers, which warn of their own ways
@pytest.mark.parametrize("name", CASES)
def test_the_rate_of_each_update_is_pytorchs(name: str, rates: Executable) -> None:
    need("torch")
    want = np.array(theirs(name))
    kind = rates.inputs[0].type.dtype.numpy
    got = np.array([rates(step=kind.type(k))[name] for k in range(len(want))], "f8")
    assert np.ptp(want) > 1e-3, "it is constant: it would prove little"
    limit = 1e-12 if kind == np.dtype("f8") else 1e-6
    np.testing.assert_allclose(got, want, rtol=8 * limit, atol=limit * want.max())


@pytest.mark.parametrize(("name", "end"), [("cosine", 0.1), ("cosine_to_0", 0.0), ("one_cycle", 0.8 / 25 / 1e4)])
def test_after_the_last_step_the_rate_stays(name: str, end: float, rates: Executable) -> None:
    kind = rates.inputs[0].type.dtype.numpy.type
    for step in (CASES[name][3], 1000, 2**24):
        assert abs(float(rates(step=kind(step))[name]) - end) < 1e-7


W, N = 5, 40


def graph(kind: str = "f4") -> li.Graph:
    x = li.input("x", ("B", W), {"f4": "f32", "f8": "f64"}[kind])
    w = li.weight("w", np.linspace(-1, 1, W).astype(kind))
    bias = li.weight("bias", np.zeros(1, kind))
    return li.Graph("g", [x], {"loss": li.mean(li.tanh(x @ w + bias) * x[:, 0])})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_weights_follow_pytorch_under_a_schedule(kind: str, seed: int) -> None:
    """Two groups, each with a schedule; `train` shows both rates."""
    need("torch")
    import torch

    rng = np.random.default_rng(seed)
    given = [rng.standard_normal((3, W)).astype(kind) for _ in range(N)]
    main = sched.warmup(8, sched.cosine(0.5, 30, 0.01), 0.2)
    groups = {"bias": {"lr": sched.exponential(0.2, 0.9)}}
    with li.compile(li.train_step(graph(kind), "loss", li.momentum(main, 0.6, groups=groups)).only("train")) as exe:
        shown = [exe.entries["train"](x=x) for x in given]
        got = {n: exe.state[n] for n in ("w", "bias")}
    w = torch.tensor(np.linspace(-1, 1, W).astype(kind), requires_grad=True)
    bias = torch.zeros(1, dtype=w.dtype, requires_grad=True)
    optimizer = torch.optim.SGD([{"params": [w]}, {"params": [bias]}], lr=1.0, momentum=0.6)

    def cosine(t: int) -> float:
        return 0.01 + 0.49 * (1 + math.cos(math.pi * min(t, 30) / 30)) / 2

    def rate(t: int) -> float:
        return 0.5 * (0.2 + 0.8 * t / 8) if t < 8 else cosine(t - 8)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [rate, lambda t: 0.2 * 0.9**t])
    for k, x in enumerate(given):
        optimizer.zero_grad()
        tx = torch.tensor(x)
        torch.mean(torch.tanh(tx @ w + bias) * tx[:, 0]).backward()
        for name, group in zip(("lr", "lr/bias"), optimizer.param_groups, strict=True):
            np.testing.assert_allclose(shown[k][name], group["lr"], rtol=1e-12 if kind == "f8" else 2e-6)
        optimizer.step()
        schedule.step()
    limit = 1e-12 if kind == "f8" else 1e-5
    np.testing.assert_allclose(got["w"], w.detach().numpy(), rtol=0, atol=limit)
    np.testing.assert_allclose(got["bias"], bias.detach().numpy(), rtol=0, atol=limit)


PLATEAUS: dict[str, dict[str, Any]] = {
    "plain": {"factor": 0.5, "patience": 2},
    "at_once": {"factor": 0.3, "patience": 0, "threshold": 0.05},
    "absolute": {"factor": 0.5, "patience": 1, "threshold": 0.1, "threshold_mode": "abs", "cooldown": 3},
    "highest": {"factor": 0.7, "patience": 1, "mode": "max", "cooldown": 1},
    "highest_absolute": {"factor": 0.6, "patience": 2, "mode": "max", "threshold": 0.2, "threshold_mode": "abs"},
    "least": {"factor": 0.2, "patience": 0, "min_scale": 0.03},
}


@pytest.mark.parametrize("name", PLATEAUS)
def test_a_plateau_is_pytorchs(name: str, seed: int) -> None:
    """60 reports of a noisy metric; one of them is no number."""
    need("torch")
    import torch

    options = dict(PLATEAUS[name])
    step = li.train_step(graph("f8"), "loss", li.sgd(sched.plateau(0.4, **options)))
    entry, state = step.entries["plateau"], {n: s.initial.array for n, s in step.state.items()}
    low = 0.4 * options.pop("min_scale", 0.0)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options, min_lr=low, eps=0.0)
    rng = np.random.default_rng(seed)
    metrics = 2.0 / (1 + 0.2 * np.arange(60)) + rng.uniform(-0.3, 0.3, 60)
    metrics[17] = np.nan
    seen = set()
    for metric in metrics:
        out = li.interpret(entry, {n: state[n] for n in entry.input_names if n != "metric"}, metric=metric)
        state |= {n: a for n, a in out.items() if n != "scale"}
        scheduler.step(metric)
        np.testing.assert_allclose(0.4 * out["scale"], optimizer.param_groups[0]["lr"], rtol=1e-13)
        np.testing.assert_allclose(out["plateau/best"], scheduler.best, rtol=1e-15)
        assert (out["plateau/bad"], out["plateau/cooldown"]) == (scheduler.num_bad_epochs, scheduler.cooldown_counter)
        seen.add(float(out["scale"]))
    assert len(seen) > 2, "the rate never falls: it would prove little"


def test_a_plateau_scales_a_schedule_and_groups_and_is_saved(tmp_path: Any, rng: np.random.Generator) -> None:
    main = sched.plateau(sched.linear(0.4, 0.2, 10), 0.5, 0)
    slow = sched.plateau("slow", 0.5, 0)
    step = li.train_step(graph(), "loss", li.sgd(main, groups={"bias": {"lr": slow}}))
    x, low = rng.standard_normal((3, W)).astype("f4"), np.float32(0.125)
    with li.compile(step.only("train", "plateau")) as exe:
        assert [p.name for p in exe.entries["plateau"].inputs] == ["metric"]
        train = exe.entries["train"]
        scales = [1.0]
        for k, metric in enumerate((1.0, 2.0, 0.5, 0.5)):
            out = train(x=x, slow=low)
            np.testing.assert_allclose(out["lr"], (0.4 - 0.02 * k) * scales[-1], rtol=1e-6)
            np.testing.assert_allclose(out["lr/bias"], 0.125 * scales[-1], rtol=1e-6)
            scales.append(float(exe.entries["plateau"](metric=np.float32(metric))["scale"]))
        assert scales == [1.0, 1.0, 0.5, 0.5, 0.25]
        exe.save_state(tmp_path / "s")
        with exe.session() as other:
            other.load_state(tmp_path / "s")
            again = other.entries["train"](x=x, slow=low)
            np.testing.assert_allclose(again["lr"], 0.32 * 0.25, rtol=1e-6)
        with pytest.raises(li.ValueRangeError, match="train: slow is nan at step 5"):
            train(x=x, slow=np.float32(np.nan))


def test_a_plateau_of_a_rate_by_input(rng: np.random.Generator) -> None:
    """The input and the rate that was used, smaller by the plateau, may both be called lr."""
    step = li.train_step(graph(), "loss", li.sgd(sched.plateau("lr", 0.5, 0)))
    x = rng.standard_normal((3, W)).astype("f4")
    with li.compile(step.only("train", "plateau")) as exe:
        used = []
        for rate, metric in ((0.25, 1.0), (0.25, 2.0), (0.5, 3.0), (0.5, 0.5)):
            used.append(float(exe.entries["train"](x=x, lr=np.float32(rate))["lr"]))
            exe.entries["plateau"](metric=np.float32(metric))
        assert used == [0.25, 0.25, 0.25, 0.125]


def test_a_rate_that_becomes_no_number_stops() -> None:
    step = li.train_step(graph(), "loss", li.sgd(lambda t: 1.0 / (2.0 - t) - 1.0 / (2.0 - t)))
    assert step.finite["train"] == ("loss", "grad_norm", "lr")
    x = np.ones((2, W), "f4")
    with li.compile(step.only("train")) as exe:
        exe.entries["train"](x=x)
        exe.entries["train"](x=x)
        before = exe.state["w"]
        with pytest.raises(li.ValueRangeError, match=r"train: lr is -?nan at step 3; the state is that before"):
            exe.entries["train"](x=x)
        np.testing.assert_array_equal(exe.state["w"], before)


any_: Any = li.schedules


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: sched.linear(-1, 0.5, 3), r"linear\(-1, 0.5, 3\): start is -1; it is at least 0"),
        (lambda: sched.linear(1, 0.5, 0), "steps is 0; a whole number of steps, at least 1"),
        (lambda: any_.cosine(0.5, 3.0), "steps is 3.0; a whole number of steps"),
        (lambda: sched.cosine(float("inf"), 3), "lr is inf; it is at least 0"),
        (lambda: sched.exponential(0.5, 0.0), "factor is 0.0; it is above 0"),
        (lambda: any_.exponential("lr", 0.5), "lr is 'lr'; it is at least 0"),
        (lambda: sched.step(0.5, []), r"at is \[\]; a number of steps, or steps in ascending order"),
        (lambda: sched.step(0.5, [3, 3]), "or steps in ascending order"),
        (lambda: any_.cosine(0.1, 33.3), "steps is 33.3; a whole number of steps, at least 1"),
        (lambda: sched.step(0.5, 0), "at is 0; a whole number of steps, at least 1"),
        (lambda: any_.step(0.5, "3"), "at is '3'; a number of steps, or"),
        (lambda: sched.one_cycle(0.5, 3), "warmup is 0.3; a share in"),
        (lambda: sched.one_cycle(0.5, 30, div_factor=0.0), "div_factor is 0.0; it is above 0"),
        (lambda: sched.warmup(3, 0.5, 2.0), r"start is 2.0; it lies in \[0, 1\]"),
        (lambda: any_.warmup(3, "lr"), "then is 'lr'; a number or a function of the step"),
        (lambda: any_.warmup(3, sched.plateau(0.1)), r"plateau takes a warm-up"),
        (lambda: sched.plateau(sched.plateau(0.1)), "a plateau of a plateau"),
        (lambda: sched.plateau(-0.1), "plateau: lr is -0.1"),
        (lambda: sched.plateau(0.1, 1.0), r"plateau: factor is 1.0; it lies in \(0, 1\)"),
        (lambda: sched.plateau(0.1, patience=-1), "plateau: patience is -1; a number of reports"),
        (lambda: sched.plateau(0.1, min_scale=1.5), r"plateau: min_scale is 1.5; it lies in \[0, 1\]"),
        (lambda: sched.plateau(0.1, mode="lowest"), "plateau: mode is 'lowest'; it is min or max"),
        (lambda: sched.plateau(0.1, threshold_mode="x"), "threshold_mode is 'x'; it is rel or abs"),
    ],
)
def test_refused(make: Any, problem: str) -> None:
    with pytest.raises(li.IRError, match=problem):
        make()


@pytest.mark.parametrize(
    ("lr", "problem"),
    [
        (lambda t: "a", "gave 'a'; expected a float without axes"),
        (lambda t: li.zeros((2,)), r"gave f32\[2\]; expected a float without axes"),
        (lambda t: li.convert(t, "i32"), r"gave i32\[\]; expected a float"),
        (sched.plateau("w"), "the input of the learning rate is called 'w', as a weight that is trained is"),
        (sched.plateau("loss"), "the input of the learning rate is called 'loss', as the loss is"),
    ],
)
def test_rates_that_do_not_fit_the_program(lr: Any, problem: str) -> None:
    with pytest.raises(li.GradientError, match=problem):
        li.train_step(graph(), "loss", li.sgd(lr))


def test_two_plateaus_that_differ() -> None:
    groups = {"bias": {"lr": sched.plateau(0.1, patience=3)}}
    with pytest.raises(li.GradientError, match="two plateaus differ in more than the rate; they share one state"):
        li.train_step(graph(), "loss", li.sgd(sched.plateau(0.1, patience=4), groups=groups))


def test_names_that_schedules_take() -> None:
    x, w = li.input("x", (3,)), li.weight("plateau/best", np.ones(3, "f4"))
    g = li.Graph("g", [x], {"loss": li.sum(x * w), "lr": x * w})
    with pytest.raises(li.GradientError, match="a weight is called 'plateau/best', as what the plateau keeps is"):
        li.train_step(g, "loss", li.sgd(sched.plateau(0.1)))
    with pytest.raises(li.GradientError, match="an output is called 'lr', as a learning rate is"):
        li.train_step(g, "loss", li.sgd(sched.cosine(0.1, 5)))
    li.train_step(g, "loss", li.sgd(0.1))


def test_the_text_of_a_schedule_is_whole() -> None:
    inner = sched.one_cycle(0.123456789, 100000, 0.3333, div_factor=125.5, final_div_factor=10000.5)
    assert repr(sched.warmup(100, inner)) == f"warmup(100, {inner!r}, 0.0)"
    assert repr(inner).endswith("final_div_factor=10000.5)")


words: Any = li  # called with those of other libraries


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: words.adam(0.1, eps=1e-6), "adam: there is no argument 'eps'. Did you mean epsilon?"),
        (lambda: words.rmsprop(0.1, rho=0.9), "rmsprop: there is no argument 'rho'. Did you mean alpha?"),
        (
            lambda: words.sgd(0.1, momentum=0.9),
            "sgd: there is no argument 'momentum'. Say li.momentum(lr, momentum, nesterov=...)",
        ),
        (
            lambda: words.schedules.cosine(0.1, total_steps=9),
            "cosine: there is no argument 'total_steps'. Did you mean steps?",
        ),
        (
            lambda: words.schedules.plateau(0.1, gamma=0.9),
            "plateau: there is no argument 'gamma'. Did you mean factor?",
        ),
    ],
)
def test_arguments_of_other_libraries_are_named(make: Callable[[], object], told: str) -> None:
    with pytest.raises(li.ArgumentError) as e:
        make()
    assert str(e.value).splitlines()[0] == told
