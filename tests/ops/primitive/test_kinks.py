"""Derivatives where formulas have a corner or an end that the function has not, and kinks that must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]


def slopes(build: Any, a: Array, order: int) -> list[Array]:
    """The derivative of that order of an elementwise function, by its meaning and compiled."""
    x = li.input("x", a.shape, li.DType.of(a.dtype))
    name, g = "y", li.Graph("g", [x], {"y": li.sum(build(x))})
    for _ in range(order):
        back = li.grad(g, name, "x")
        g = li.Graph("g", back.params, {"y": li.sum(back.output("d_x")), "d": back.output("d_x")})
    with li.compile(g) as exe:
        return [li.interpret(g, x=a)["d"], exe(x=a)["d"]]


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_softplus_has_no_corner(beta: float, order: int) -> None:
    """Its derivative is beta's logistic, s; then beta s (1 - s), and beta^2 s (1 - s) (1 - 2 s)."""
    a = np.array([0.0, -0.0, 1.5, -1.5, 30.0, -30.0, np.inf, -np.inf])
    with np.errstate(over="ignore"):
        s = 1 / (1 + np.exp(-beta * a))
    want = [s, beta * s * (1 - s), beta**2 * s * (1 - s) * (1 - 2 * s)][order - 1]
    for got in slopes(lambda x: li.softplus(x, beta), a, order):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_log_sigmoid_and_mish_at_zero() -> None:
    """log s has the second derivative -s (1 - s); mish that of PyTorch beside 0, where both sides agree."""
    zero = np.zeros(1)
    for got in slopes(li.log_sigmoid, zero, 2):
        np.testing.assert_allclose(got, [-0.25], rtol=1e-12)
    need("torch")
    import torch

    x = torch.tensor([1e-7], dtype=torch.double, requires_grad=True)
    (first,) = torch.autograd.grad(torch.nn.functional.mish(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    for got in slopes(li.mish, zero, 2):
        np.testing.assert_allclose(got, second.numpy(), rtol=1e-5)


def test_the_value_of_softplus_is_as_it_was() -> None:
    a = np.array([-800.0, -1.0, -0.0, 0.0, 1e-8, 1.0, 800.0, np.inf, -np.inf, np.nan])
    x = li.input("x", a.shape, "f64")
    g = li.Graph("g", [x], {"y": li.softplus(x)})
    want = np.maximum(a, 0) + np.log1p(np.exp(-np.abs(a)))
    np.testing.assert_array_equal(li.interpret(g, x=a)["y"], want)


def test_angles_at_infinity_have_no_slope() -> None:
    a = np.array([np.inf, -np.inf, 0.0, 2.0, 1e30, np.nan], np.float32)
    for got in slopes(li.atan, a, 1):
        np.testing.assert_allclose(got, np.array([0, 0, 1, 0.2, 0, np.nan]), rtol=1e-6)
    y, x = li.input("y", (4,)), li.input("x", (4,))
    g = li.grad(li.Graph("g", [y, x], {"loss": li.sum(li.atan2(y, x))}), "loss", ["y", "x"])
    given = {"y": np.array([np.inf, np.inf, 1, 3], "f4"), "x": np.array([1, -np.inf, np.inf, 4], "f4")}
    with li.compile(g) as exe:
        for out in (li.interpret(g, given), exe(given)):
            np.testing.assert_allclose(out["d_y"], [0, 0, 0, 4 / 25], rtol=1e-6)
            np.testing.assert_allclose(out["d_x"], [0, 0, 0, -3 / 25], rtol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "hard_sigmoid(0.2,0.5)"])
def test_slopes_at_kinks_do_not_depend_on_remat(activation: str) -> None:
    """The slope at a kink is 0, as PyTorch's relu and hardsigmoid have it, whether states are kept or made again."""
    at = {"relu": 0.0, "hard_sigmoid(0.2,0.5)": 2.5}[activation]  # where the second one reaches 1
    x = li.input("x", (4, 1, 1))
    w, zero = np.ones((1, 1), "f4"), np.zeros((1, 1), "f4")
    y, _ = li.rnn(x, w, zero, activations=(activation,))
    g = li.Graph("g", [x], {"loss": li.sum(y)})
    a = np.full((4, 1, 1), at, "f4")
    for remat in (None, 2):
        wide = li.grad(g, "loss", "x", remat=remat)
        np.testing.assert_array_equal(li.interpret(wide, x=a)["d_x"], 0, err_msg=f"remat={remat}")


def test_empty_parameters_of_an_activation_are_refused() -> None:
    x = li.input("x", (4, 1, 1))
    w = np.ones((1, 1), "f4")
    for text in ("affine(,2)", "affine(1,)", "affine(,)"):
        with pytest.raises(li.IRError, match="a parameter is not a number"):
            li.rnn(x, w, w, activations=(text,))


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_the_sign_of_a_negative_zero_is_one(dtype: str, kernels: bool) -> None:
    """As StableHLO, TensorFlow and JAX have it: by its meaning, compiled, and in a loop."""
    rows, first = li.input("rows", ("T", 6), dtype), li.input("first", (6,), dtype)
    last, signs = li.scan(lambda c, x: (li.tanh(c * 0.5 + x), li.sign(x)), first, rows)
    g = li.Graph("g", [rows, first], {"whole": li.sign(rows), "steps": signs, "last": last})
    kind = li.DType(dtype).numpy
    a = np.array([-0.0, 0.0, np.nan, -2, 3, -np.inf], "f4").astype(kind)
    want = np.array([[-0.0, 0, np.nan, -1, 1, -1]] * 3)
    with li.compile(g, options={"kernels": kernels}) as exe:
        for out in (li.interpret(g, rows=np.stack([a] * 3), first=a), exe(rows=np.stack([a] * 3), first=a)):
            for name in ("whole", "steps"):
                got = np.asarray(out[name]).astype("f8")
                np.testing.assert_array_equal(got, want)
                np.testing.assert_array_equal(np.signbit(got[:, :2]), [[True, False]] * 3)
