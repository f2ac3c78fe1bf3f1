"""Gradients written by hand: against JAX's custom_vjp and torch.autograd.Function, in loops, training and texts."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import xla
from device import need

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

Array = np.ndarray[Any, Any]
T, B, I, H = 7, 3, 5, 4
SLOPE, DECAY = 3.0, 0.8


def spike(v: Any) -> Any:
    """1 where v is above 0; the gradient is that of SuperSpike (Zenke & Ganguli 2018), 1 / (1 + s|v|)^2."""
    return li.convert(v > 0.0, v.dtype), v


def spike_back(v: Any, ct: Any) -> Any:
    wide = 1.0 + SLOPE * li.abs(v)
    return ct / (wide * wide)


fire = li.custom_vjp(spike, spike_back)


def neuron(state: Any, x: Any, w: Any, u: Any) -> Any:
    """A leaky neuron with a soft reset, whose spikes feed back."""
    v, s = state
    v = v * DECAY + x @ w + s @ u - li.stop_gradient(s)
    s = fire(v - 1.0)
    return (v, s), s


def values(kind: str) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    made = {"x": rng.normal(size=(T, B, I)), "w": rng.normal(size=(I, H)), "u": rng.normal(size=(H, H)) / 2}
    return {k: v.astype(kind) for k, v in made.items()}


@cache
def network(kind: str = "f4", weights: bool = False, time: Any = "T") -> li.Graph:
    given, dtype = values(kind), {"f4": "f32", "f8": "f64"}[kind]
    x = li.input("x", (time, B, I), dtype)
    w, u = (li.weight(n, given[n]) if weights else li.input(n, given[n].shape, dtype) for n in "wu")
    zero = li.zeros((B, H), dtype)
    (v, _), s = li.scan(neuron, (zero, zero), x, (w, u))
    return li.Graph("lif", [x] if weights else [x, w, u], {"loss": li.mean(s * s * s) + li.mean(v * v)})


@cache
def of_jax() -> dict[str, Array]:
    """The network's loss and gradients by JAX in double precision."""
    need("jax")
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def fire(v: Any) -> Any:
        return (v > 0).astype(v.dtype)

    fire.defvjp(lambda v: (fire(v), v), lambda v, ct: (ct / (1 + SLOPE * jnp.abs(v)) ** 2,))

    def loss(g: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            v, s = state
            v = v * DECAY + x @ g["w"] + s @ g["u"] - jax.lax.stop_gradient(s)
            s = fire(v - 1.0)
            return (v, s), s

        zero = jnp.zeros((B, H), jnp.float64)
        (v, _), s = jax.lax.scan(step, (zero, zero), g["x"])
        return (s**3).mean() + (v * v).mean()

    with jax.enable_x64(True):
        found, d = jax.value_and_grad(loss)({k: jnp.asarray(v) for k, v in values("f8").items()})
        return {"loss": np.asarray(found), **{f"d_{k}": np.asarray(v) for k, v in d.items()}}


def same(got: dict[str, Array], want: dict[str, Array], limit: float) -> None:
    assert got.keys() == want.keys()
    for k, v in want.items():
        np.testing.assert_allclose(got[k], v, rtol=limit, atol=limit, err_msg=k)


@pytest.mark.parametrize("remat", [None, 1, 3])
def test_a_spiking_network_against_jax(remat: int | None) -> None:
    back = li.grad(network("f8"), "loss", ["x", "w", "u"], remat=remat)
    same(li.interpret(back, values("f8")), of_jax(), 1e-12)
    assert np.abs(of_jax()["d_u"]).max() > 1e-3, "nothing fired"


@pytest.mark.parametrize("options", [{}, {"kernels": False}], ids=["kernels", "loops"])
@pytest.mark.parametrize("remat", [None, pytest.param(3, marks=pytest.mark.slow)])
def test_compiled(options: Any, remat: int | None) -> None:
    back = li.grad(network(), "loss", ["x", "w", "u"], remat=remat)
    same(li.compile(back, options=options)(values("f4")), of_jax(), 2e-5)


def test_on_vulkan() -> None:
    need("vulkan")
    back = li.grad(network(), "loss", ["x", "w", "u"])
    same(li.compile(back, "vulkan")(values("f4")), of_jax(), 2e-5)


def test_in_a_portable_module() -> None:
    need("jax")
    back = li.grad(network(time=T), "loss", ["x", "w", "u"])
    same(xla.run(back, values("f4")), of_jax(), 2e-5)


def test_trained() -> None:
    """One step of gradient descent goes along JAX's gradient."""
    learner = li.compile(li.train_step(network(weights=True), "loss", li.sgd(0.5), remat=2).only("train"))
    learner.entries["train"](x=values("f4")["x"])
    for n in "wu":
        np.testing.assert_allclose(learner.state[n], values("f8")[n] - 0.5 * of_jax()[f"d_{n}"], rtol=2e-5, atol=2e-5)


def test_passes_that_come_before_gradients_keep_it() -> None:
    """At the core stage the op is there; decompose puts its forward graph in its place."""
    core = Pipeline.parse("core").run(network("f8")).graph
    same(li.interpret(li.grad(core, "loss", ["x", "w", "u"]), values("f8")), of_jax(), 1e-12)
    (loop,) = (n for n in Pipeline.parse("core,decompose").run(core).graph.nodes if n.op.name == "scan")
    assert not {"custom_vjp", "stop_gradient"} & {n.op.name for n in loop.attrs["body"].nodes}


def test_text_holds_it() -> None:
    graph = network(weights=True)
    arrays = {n: v.node.attrs["value"].array for n, v in graph.weights.items()}
    again = li.parse(str(graph), arrays)
    assert isinstance(again, li.Graph)
    assert str(again) == str(graph)
    want = li.interpret(li.grad(graph, "loss", ["w"]), x=values("f4")["x"])
    same(li.interpret(li.grad(again, "loss", ["w"]), x=values("f4")["x"]), want, 0)


TEXT = """graph @g(%x: f32[3]) {
  %0 = custom_vjp([%x]) {residuals=1, gradients=[true]} : [f32[3]] with forward {
    graph @f(%a: f32[3]) {
      return %a, %a
    }
  } with backward {
    graph @b(%a: f32[3], %ct: f32[3]) {
      return %ct
    }
  }
  return %0
}
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("@f(%a: f32[3])", "@f(%a: f32[4])", "forward takes f32[4], the operands are f32[3]"),
        ("residuals=1", "residuals=3", "forward gives 2 results, of which 3 are residuals"),
        ("residuals=1", "residuals=0", "the text says (f32[3],), its operands give (f32[3], f32[3])"),
        ("@b(%a: f32[3],", "@b(%a: f32[4],", "backward takes f32[4], f32[3]; residuals and cotangents are"),
        ("gradients=[true]", "gradients=[]", "gradients has 0 flags for 1 operands"),
        ("gradients=[true]", "gradients=[false]", "backward gives 1 gradients for 0 operands"),
        ("%ct: f32[3]", "%ct: f64[3]", "backward takes f32[3], f64[3]; residuals and cotangents are"),
        ("return %ct", "%s = slice(%ct) {start_indices=[0], limit_indices=[2], strides=[1]} : f32[2] return %s",
         "backward gives f32[2] as the gradient of operand 0 (a), which is f32[3]"),
    ],
)  # fmt: skip
def test_texts_that_do_not_fit(old: str, new: str, problem: str) -> None:
    graph = li.parse(TEXT)
    assert isinstance(graph, li.Graph)
    li.verify(graph)
    with pytest.raises(li.IRError) as found:
        li.parse(TEXT.replace(old, new))
    assert problem in str(found.value)


def torch_function(forward: Any, backward: Any) -> Any:
    import torch

    class Function(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y, kept = forward(torch, x)
            ctx.save_for_backward(y if kept is y else kept)
            return y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return backward(torch, ctx.saved_tensors[0], ct)

    return Function.apply


CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    # straight through: the gradient of rounding is 1
    "straight through": (
        lambda x: (li.round(x), x), lambda r, ct: ct,
        lambda t, x: (t.round(x), x), lambda t, r, ct: ct,
    ),
    # a clipped gradient: what arrives is held between -1 and 1
    "clipped": (
        lambda x: (x * 1.0, x), lambda r, ct: li.clip(ct, -1.0, 1.0),
        lambda t, x: (x * 1.0, x), lambda t, r, ct: ct.clamp(-1, 1),
    ),
    # the gradient depends on the operand, and has a derivative
    "surrogate": (
        lambda x: (li.convert(x > 0.0, x.dtype), x), lambda r, ct: ct / (1.0 + r * r),
        lambda t, x: ((x > 0).to(x.dtype), x), lambda t, r, ct: ct / (1 + r * r),
    ),
    # the residual is the result: its own gradient is the one written, 1 - y / 2, not tanh's
    "of the result": (
        lambda x: (lambda y: (y, y))(li.tanh(x)), lambda y, ct: ct * (1.0 - y * 0.5),
        lambda t, x: (lambda y: (y, y))(t.tanh(x)), lambda t, y, ct: ct * (1 - y * 0.5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_first_and_second_derivatives_against_torch(name: str, rng: np.random.Generator) -> None:
    need("torch")
    import torch

    forward, backward, torch_forward, torch_backward = CASES[name]
    a = rng.normal(size=(3, 5)) * 2
    x = li.input("x", (3, 5), "f64")
    y = li.custom_vjp(forward, backward)(li.sin(x) * 3.0)
    once = li.grad(li.Graph("g", [x], {"loss": li.sum(y * y * y)}), "loss", "x")
    slope = li.Graph("g1", once.params, {"slope": li.sum(once.output("d_x") * once.output("d_x"))})
    twice = li.grad(slope, "slope", "x")
    other = torch.tensor(a, requires_grad=True)
    made = torch_function(torch_forward, torch_backward)(torch.sin(other) * 3)
    (first,) = torch.autograd.grad((made**3).sum(), other, create_graph=True)
    (second,) = torch.autograd.grad((first * first).sum(), other)
    same(li.interpret(once, x=a), {"loss": (made.detach() ** 3).sum().numpy(), "d_x": first.detach().numpy()}, 1e-12)
    np.testing.assert_allclose(li.interpret(twice, x=a)["d_x"], second.numpy(), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(li.compile(twice)(x=a)["d_x"], second.numpy(), rtol=1e-11, atol=1e-11)


def test_second_derivatives_against_jax(rng: np.random.Generator) -> None:
    """A residual that forward computes on its way is differentiated op by op, in JAX too."""
    need("jax")
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def f(a: Any, b: Any) -> Any:
        return jnp.exp(a * b) + a

    f.defvjp(lambda a, b: (f(a, b), (a, jnp.exp(a * b))), lambda r, ct: (ct * r[1], ct * r[0] * r[1] * 2))

    def mine(a: Any, b: Any) -> Any:
        e = li.exp(a * b)
        return e + a, {"a": a, "e": e}

    x, y = (li.input(n, (4,), "f64") for n in "xy")
    z = li.custom_vjp(mine, lambda r, ct: (ct * r["e"], ct * r["a"] * r["e"] * 2.0))(li.sin(x), y)
    once = li.grad(li.Graph("g", [x, y], {"loss": li.sum(z * z)}), "loss", ["x", "y"])
    slope = li.Graph("g1", once.params, {"slope": li.sum(once.output("d_x") * once.output("d_y"))})
    a, b = rng.normal(size=(2, 4))
    with jax.enable_x64(True):

        def loss(x: Any, y: Any) -> Any:
            return (f(jnp.sin(x), y) ** 2).sum()

        def product(x: Any, y: Any) -> Any:
            d = jax.grad(loss, (0, 1))(x, y)
            return (d[0] * d[1]).sum()

        want = jax.grad(product, (0, 1))(jnp.asarray(a), jnp.asarray(b))
        first = jax.grad(loss, (0, 1))(jnp.asarray(a), jnp.asarray(b))
    got = li.interpret(once, x=a, y=b)
    for k, w in zip("xy", first, strict=True):
        np.testing.assert_allclose(got[f"d_{k}"], w, rtol=1e-12)
    got = li.interpret(li.grad(slope, "slope", ["x", "y"]), x=a, y=b)
    for k, w in zip("xy", want, strict=True):
        np.testing.assert_allclose(got[f"d_{k}"], w, rtol=1e-11)


def test_an_argument_without_gradient() -> None:
    x, n = li.input("x", (3,)), li.input("n", (3,), "i32")
    scale = li.custom_vjp(lambda x, n: (x * li.convert(n, "f32"), n), lambda n, ct: (ct * li.convert(n, "f32"), None))
    back = li.grad(li.Graph("g", [x, n], {"loss": li.sum(scale(x, n))}), "loss", "x")
    assert (li.interpret(back, x=np.ones(3, "f4"), n=np.array([2, 5, 7], np.int32))["d_x"] == [2, 5, 7]).all()
    still = li.custom_vjp(lambda x: (x * 2.0, ()), lambda r, ct: (None,))
    with pytest.raises(li.GradientError, match="'x' does not influence 'loss'"):
        li.grad(li.Graph("g", [x], {"loss": li.sum(still(x))}), "loss", "x")


def test_stop_gradient() -> None:
    x = li.input("x", (3,))
    back = li.grad(li.Graph("g", [x], {"loss": li.sum(x * li.stop_gradient(x))}), "loss", "x")
    a = np.array([1, -2, 5], np.float32)
    assert (li.interpret(back, x=a)["d_x"] == a).all()
    alone = li.Graph("g", [x], {"loss": li.sum(li.stop_gradient(x))})
    with pytest.raises(li.GradientError, match="'x' does not influence 'loss'"):
        li.grad(alone, "loss", "x")
    assert not li.interpret(li.grad(alone, "loss", "x", missing="zeros"), x=a)["d_x"].any()


def test_a_value_of_the_body_around_it_is_refused() -> None:
    """In a loop too what is read is an argument, so that no gradient is lost."""

    def cell(h: Any, x: Any) -> Any:
        gate = li.logistic(x)
        f = li.custom_vjp(lambda h: (h * gate, ()), lambda r, ct: ct)
        return f(h), h

    with pytest.raises(li.IRError, match="forward reads the value 'x0' from around it; give it as an argument"):
        li.scan(cell, li.zeros((3,)), li.input("x", ("T", 3)))
