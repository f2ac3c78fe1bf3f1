"""Zoneout, recurrent dropout and layer norm: against PyTorch's autograd, compiled, in training and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import samples_variants as cases
from device import need

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

pytestmark = [pytest.mark.slow_on("vulkan"), pytest.mark.together]
Array = np.ndarray[Any, Any]
T, B, I, H = 11, 3, 5, 7
STEP = np.int64(2**32 + 5)
OPEN: dict[str, tuple[Any, ...]] = {"x": ("T", "B", I), "h0": (1, "B", H), "c0": (1, "B", H), "lengths": ("B",)}
SHAPES = {"x": (T, B, I), "w_ih": (4 * H, I), "w_hh": (4 * H, H), "b": (4 * H,), "h0": (1, B, H),
          "c0": (1, B, H)}  # fmt: skip
NORM = {"scale_x": (4 * H,), "scale_h": (4 * H,), "scale_c": (H,), "bias_c": (H,)}


def given(op: str) -> dict[str, Array]:
    """All operands in f32, with NaN in rows of x that do not exist."""
    rng = np.random.default_rng(20261)
    shapes = SHAPES | (NORM if op == "layer_norm_lstm" else {})
    out = {n: rng.uniform(-0.7, 0.7, s).astype(np.float32) for n, s in shapes.items()}
    out["lengths"] = np.array([11, 0, 6], np.int32)
    return out


def graph(op: str, open_sizes: bool = True, training: bool = True) -> li.Graph:
    """A loss over y, h_n and c_n, and those themselves."""
    arrays = given(op)
    ins = {
        n: li.input(n, OPEN[n] if open_sizes and n in OPEN else a.shape, li.DType.of(a.dtype))
        for n, a in arrays.items()
    }
    step = li.input("step", (), "i64")
    more: dict[str, Any] = dict(cases.RATES[op])
    if op != "layer_norm_lstm":
        more |= {"key": li.random_key(3, step), "training": training}
    y, h_n, c_n = getattr(li, op)(**ins, **more)
    loss = li.sum(li.sin(3.0 * y)) + li.sum(h_n * h_n) - li.sum(c_n * li.tanh(c_n))
    return li.Graph(op, [*ins.values(), step], {"loss": loss, "y": y, "h_n": h_n, "c_n": c_n})


def wrt(op: str) -> list[str]:
    return [n for n in given(op) if n != "lengths"]


def torch_result(op: str, bits: Array | None) -> dict[str, Array]:
    """Loss, y and gradients by PyTorch's autograd in float64, from the equations as published."""
    import torch

    a = {n: torch.tensor(np.nan_to_num(v)).double().requires_grad_() for n, v in given(op).items()}
    ends, rates = given(op)["lengths"], cases.RATES[op]
    F, ys = torch.nn.functional, []
    h, c = a["h0"][0], a["c0"][0]
    below = None if bits is None else torch.tensor(bits.astype(np.int64))
    for t in range(T):
        wx, rh = a["x"][t] @ a["w_ih"].T, h @ a["w_hh"].T
        if op == "layer_norm_lstm":
            wx = F.layer_norm(wx, (4 * H,), a["scale_x"], eps=rates["epsilon"])
            rh = F.layer_norm(rh, (4 * H,), a["scale_h"], eps=rates["epsilon"])
        i, f, g, o = (wx + rh + a["b"]).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        if op == "recurrent_dropout_lstm":
            assert below is not None
            g = g * (below[0, t] >= rates["rate"] * 2**32) / (1 - rates["rate"])
        new = f * c + i * g
        shown = new
        if op == "layer_norm_lstm":
            shown = F.layer_norm(new, (H,), a["scale_c"], a["bias_c"], eps=rates["epsilon"])
        out = o * shown.tanh()
        if op == "zoneout_lstm":
            assert below is not None
            new = torch.where(below[0, 0, t] < rates["zoneout_c"] * 2**32, c, new)
            out = torch.where(below[1, 0, t] < rates["zoneout_h"] * 2**32, h, out)
        alive = torch.tensor(t < ends)[:, None]
        h, c = torch.where(alive, out, h), torch.where(alive, new, c)
        ys.append(torch.where(alive, out, 0))
    y = torch.stack(ys)
    loss = (3 * y).sin().sum() + (h * h).sum() - (c * c.tanh()).sum()
    loss.backward()
    found = {"loss": loss.item(), "y": y.detach().numpy()}
    return found | {f"d_{n}": a[n].grad.numpy() for n in wrt(op)}


def drawn(op: str) -> Array | None:
    """The bits of this step."""
    from lstm_ir.ops.nn import threefry

    shape = {"zoneout_lstm": (2, 1, T, B, H), "recurrent_dropout_lstm": (1, T, B, H)}.get(op)
    if shape is None:
        return None
    step = li.input("step", (), "i64")
    bits = threefry.random_bits(li.random_key(3, step), shape)
    return li.interpret(li.Graph("bits", [step], {"bits": bits}), step=STEP)["bits"]


def check(op: str, got: dict[str, Array], want: dict[str, Array]) -> None:
    for n, w in want.items():
        size = max(1.0, float(np.abs(w).max()))
        np.testing.assert_allclose(got[n] / size, w / size, rtol=0, atol=2e-6, err_msg=f"{op} {n}")


def wide(op: str, open_sizes: bool = True) -> li.Graph:
    return li.grad(graph(op, open_sizes), "loss", wrt(op))


@pytest.fixture(scope="module")
def exe() -> Iterator[Executable]:
    """Forward and gradient of all three, T and B open."""
    with li.compile(li.Program("variants", {op: wide(op) for op in cases.RATES})) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("op", cases.RATES)
def test_gradients_equal_autograd(op: str, exe: Executable) -> None:
    need("torch")
    want = torch_result(op, drawn(op))
    arrays = given(op)
    y = want.pop("y")
    check(op, li.interpret(graph(op), {**arrays, "step": STEP}), {"y": y})
    check(op, li.interpret(wide(op), {**arrays, "step": STEP}), want)
    check(op, exe.entries[op](arrays, step=STEP), want)
    past = np.arange(T)[:, None] >= arrays["lengths"]
    arrays["x"][past] = np.nan  # what does not exist never matters
    check(op, exe.entries[op](arrays, step=STEP), want)


@pytest.mark.slow_cases(op=["zoneout_lstm"])
@pytest.mark.parametrize("op", ["zoneout_lstm", "recurrent_dropout_lstm"])
def test_every_step_draws_anew(op: str, exe: Executable) -> None:
    losses = [float(exe.entries[op](given(op), step=np.int64(k))["loss"]) for k in (0, 1, 2, 0)]
    assert len(set(losses)) == 3
    assert losses[0] == losses[3]


def test_inference_is_the_expectation() -> None:
    """Of one step: the mean of h and c over many draws goes to what inference gives."""
    a = given("zoneout_lstm")
    n = 4000
    many = {k: a[k] for k in ("w_ih", "w_hh", "b")}
    many["x"] = np.broadcast_to(a["x"][:1, :1], (1, n, I))
    many |= {k: np.broadcast_to(a[k][:, :1], (1, n, H)) for k in ("h0", "c0")}
    for op, rates in list(cases.RATES.items())[:2]:
        ins = {k: li.input(k, v.shape) for k, v in many.items()}
        outs: dict[str, li.Value] = {}
        for training in (True, False):
            layer = getattr(li, op)(**ins, **rates, key=li.random_key(1), training=training)
            outs |= {f"{k}{training}": v for k, v in layer._asdict().items()}
        out = li.interpret(li.Graph("one", list(ins.values()), outs), many)
        for k in ("c_n", "y") if op == "zoneout_lstm" else ("c_n",):
            mean, spread = out[f"{k}True"].mean((0, 1)), out[f"{k}True"].std((0, 1))
            assert (spread > 1e-4).all()
            assert (np.abs(mean - out[f"{k}False"][0, 0]) < 4.5 * spread / np.sqrt(n)).all(), (op, k)


def test_without_training_recurrent_dropout_is_the_plain_layer() -> None:
    op = "recurrent_dropout_lstm"
    a = given(op)
    ins: dict[str, Any] = {n: li.input(n, v.shape, li.DType.of(v.dtype)) for n, v in a.items()}
    plain = li.interpret(li.Graph("l", list(ins.values()), li.lstm(**ins)._asdict()), a)
    got = li.interpret(graph(op, training=False), {**a, "step": STEP})
    for n, v in plain.items():
        np.testing.assert_allclose(got[n], v, rtol=0, atol=1e-6)


def test_what_is_trained_draws_and_what_infers_does_not() -> None:
    """train_step turns `training` off in `infer`."""
    for op in ("zoneout_lstm", "recurrent_dropout_lstm"):
        a = given(op)
        w = {n: li.weight(n, a[n]) for n in ("w_ih", "w_hh", "b")}
        x, step = li.input("x", ("T", "B", I)), li.input("step", (), "i64")
        y = getattr(li, op)(x, *w.values(), key=li.random_key(3, step), **cases.RATES[op]).y
        made = li.train_step(li.Graph("g", [x, step], {"loss": li.mean(y * y), "y": y}), "loss", li.sgd(0.1))
        flags = {entry: {n.attrs["training"] for n in g.nodes if n.op.name == op} for entry, g in made.entries.items()}
        assert flags["infer"] == {False}
        assert "threefry" not in {n.op.name for n in made.entries["infer"].nodes}
        assert "threefry" in {n.op.name for n in made.entries["train"].nodes}


@pytest.mark.vulkan
def test_the_same_draws_on_vulkan() -> None:
    need("vulkan")
    graphs = {op: graph(op, open_sizes=False) for op in cases.RATES}
    with li.compile(li.Program("variants", graphs), "vulkan") as exe:
        for op, g in graphs.items():
            got = exe.entries[op](given(op), step=STEP)
            want = li.interpret(g, {**given(op), "step": STEP})
            check(op, got, {n: want[n] for n in ("y", "h_n", "c_n")})
