"""li.grad and li.vjp over graphs: names, errors, and the graphs that come out."""

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.ir.parser import parse
from lstm_ir.training.gradient import grad, vjp


def mlp() -> tuple[li.Graph, dict[str, Any]]:
    rng = np.random.default_rng(1)
    x, n = li.input("x", ("B", 5), "f64"), li.input("n", ("B",), "i32")
    unused = li.input("unused", (2,), "f64")
    w = li.weight("dense/w", rng.normal(size=(5, 3)))
    logits = li.tanh(x @ w)
    picked = li.take(li.constant(np.eye(3)), n, 0)
    loss = -li.sum(li.log_softmax(logits) * picked)
    outputs = {"loss": loss, "logits": logits, "top": li.argmax(logits)}
    given = {"x": rng.normal(size=(4, 5)), "n": np.array([0, 2, 1, 1], np.int32)}
    return li.Graph("net", [x, n, unused], outputs), given | {"unused": np.zeros(2)}


def test_names_and_values() -> None:
    graph, given = mlp()
    back = grad(graph, "loss", ["dense/w", "x"])
    assert back.output_names == ("loss", "d_dense/w", "d_x")
    assert back.input_names == graph.input_names
    assert list(back.weights) == ["dense/w"]
    got = li.interpret(back, given)
    w = graph.weights["dense/w"].node.attrs["value"].array
    y = np.tanh(given["x"] @ w)
    p = np.exp(y) / np.exp(y).sum(1, keepdims=True)
    dy = (p - np.eye(3)[given["n"]]) * (1 - y**2)
    np.testing.assert_allclose(got["d_x"], dy @ w.T, atol=1e-13)
    np.testing.assert_allclose(got["d_dense/w"], given["x"].T @ dy, atol=1e-13)
    np.testing.assert_allclose(got["loss"], li.interpret(graph, given)["loss"])


def test_vjp_adds_cotangent_inputs() -> None:
    graph, given = mlp()
    back = vjp(graph, ["logits", "loss"], "x")
    assert back.input_names == (*graph.input_names, "ct_logits", "ct_loss")
    assert back.output_names == ("logits", "loss", "d_x")
    rng = np.random.default_rng(2)
    cts = {"ct_logits": rng.normal(size=(4, 3)), "ct_loss": np.float64(0.0)}
    w = graph.weights["dense/w"].node.attrs["value"].array
    y = np.tanh(given["x"] @ w)
    want = (cts["ct_logits"] * (1 - y**2)) @ w.T
    np.testing.assert_allclose(li.interpret(back, {**given, **cts})["d_x"], want, atol=1e-13)


def test_gradients_are_graphs() -> None:
    """They verify, print, and are read again."""
    graph, _ = mlp()
    back = grad(graph, "loss", "x")
    li.verify(back)
    weights = {n: v.node.attrs["value"].array for n, v in back.weights.items()}
    constants = [n.attrs["value"] for n in back.nodes if n.op.name == "constant"]
    table = {d.sha256: d.array for d in constants}
    again = parse(str(back), data={**weights, **table})
    assert str(again) == str(back)


def test_an_input_that_is_the_loss() -> None:
    x = li.input("x", (), "f64")
    back = grad(li.Graph("g", [x], {"loss": x}), "loss", "x")
    assert li.interpret(back, {"x": np.float64(3)})["d_x"] == 1


def test_one_value_under_two_names() -> None:
    x = li.input("x", (3,), "f64")
    y = x * x
    back = vjp(li.Graph("g", [x], {"a": y, "b": y}), ["a", "b"], "x")
    v = np.array([1.0, 2.0, 3.0])
    got = li.interpret(back, {"x": v, "ct_a": v, "ct_b": np.ones(3)})
    np.testing.assert_allclose(got["d_x"], 2 * v * (v + 1))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda g: grad(g, "los", "x"), "^grad: graph @net has no output 'los'; did you mean loss"),
        (lambda g: grad(g, "loss", "y"), "has no input or weight 'y'"),
        (lambda g: grad(g, "loss", "dense/v"), "did you mean dense/w"),
        (lambda g: grad(g, "logits", "x"), r"'logits' is f64\[B,3\], not a scalar"),
        (lambda g: grad(g, "top", "x"), r"only floats have a gradient"),
        (lambda g: grad(g, "loss", "n"), r"'n' is i32\[B\]; only floats"),
        (lambda g: grad(g, "loss", "unused"), "'unused' does not influence 'loss'"),
        (lambda g: grad(g, "loss", "unused"), "missing='zeros' gives zeros"),
        (lambda g: grad(g, "loss", "x", missing="nothing"), "missing is 'nothing'; it is 'error' or 'zeros'"),
        (lambda g: grad(g, "loss", "n", missing="zeros"), r"'n' is i32\[B\]; only floats"),
        (lambda g: vjp(g, "logits", "x", missing="no"), "^vjp: missing is 'no'; it is 'error' or 'zeros'"),
        (lambda g: grad(g, "loss", []), "is empty"),
        (lambda g: grad(g, "loss", ["x", "x"]), "names something twice"),
        (lambda g: grad(g, "loss", "x", remat=0), "^grad: remat is 0"),
        (lambda g: vjp(g, "logits", "x", memory="?"), "^vjp: memory is '[?]'; expected bytes"),
        (lambda g: vjp(g, "logits", "x", sizes={"B": 2}), "^vjp: sizes are those at which memory is counted"),
        (lambda g: vjp(g, ["loss", "top"], "x"), "^vjp: the output 'top' is i32.*only floats have a gradient"),
    ],
)
def test_what_cannot_be_asked_is_refused(call: Any, problem: str) -> None:
    with pytest.raises(li.GradientError, match=problem):
        call(mlp()[0])


def test_a_name_that_is_taken() -> None:
    x, ct = li.input("x", (2,), "f64"), li.input("ct_y", (2,), "f64")
    with pytest.raises(li.GradientError, match="already has an input 'ct_y'"):
        vjp(li.Graph("g", [x, ct], {"y": x * ct}), "y", "x")
    twice = li.Graph("g", [x], {"a": li.sum(x * x), "d_x": x * x})
    with pytest.raises(li.GradientError, match="output is already called 'd_x'; make a Graph"):
        vjp(twice, ["a", "d_x"], "x")
    first = grad(twice, "a", "x")
    second = vjp(li.Graph("g1", first.params, {"slope": first.output("d_x")}), "slope", "x")
    got = li.interpret(second, x=np.ones(2), ct_slope=np.ones(2))
    np.testing.assert_array_equal(got["d_x"], [2, 2])
    w = li.weight("x", np.ones(2))
    with pytest.raises(li.GradientError, match="both an input and a weight"):
        grad(li.Graph("g", [x], {"loss": li.sum(x * w)}), "loss", "x")


def test_an_integer_way_is_no_influence() -> None:
    x = li.input("x", (3,), "f64")
    rounded = li.convert(li.convert(x, "i32"), "f64")
    with pytest.raises(li.GradientError, match="does not influence"):
        grad(li.Graph("g", [x], {"loss": li.sum(rounded)}), "loss", "x")


def test_a_gradient_that_does_not_exist_may_be_zeros(rng: np.random.Generator) -> None:
    """Unused, through integers alone, and through the place of the largest; jax.grad gives the others."""
    need("jax")
    import jax

    x, u = li.input("x", ("T", 3), "f64"), li.input("u", ("T", 2), "f64")
    w = li.weight("w", rng.standard_normal((3, 4)))
    dead = li.weight("dead", rng.standard_normal(5))
    largest = li.convert(li.argmax(u, 1), "f64")
    whole = li.convert(li.convert(dead, "i32"), "f64")
    loss = li.sum(li.tanh(x @ w)) + li.sum(largest) + li.sum(whole)
    g = li.Graph("g", [x, u], {"loss": loss, "y": li.tanh(x @ w)})
    names = ["w", "dead", "x", "u"]
    given = {"x": rng.standard_normal((6, 3)), "u": rng.standard_normal((6, 2))}
    back = grad(g, "loss", names, missing="zeros")
    got = li.interpret(back, given)
    with jax.enable_x64(True):

        def theirs(w: Any, dead: Any, x: Any, u: Any) -> Any:
            rest = jax.numpy.argmax(u, 1).astype("f8").sum() + dead.astype("i4").astype("f8").sum()
            return jax.numpy.tanh(x @ w).sum() + rest

        held = {n: v.node.attrs["value"].array for n, v in g.weights.items()}
        want = jax.grad(theirs, (0, 1, 2, 3))(held["w"], held["dead"], given["x"], given["u"])
    for name, wanted in zip(names, want, strict=True):
        np.testing.assert_allclose(got[f"d_{name}"], wanted, atol=1e-12, err_msg=name)
    assert not got["d_dead"].any()
    assert not got["d_u"].any()
    with li.compile(li.Graph("d", back.params, {"d_u": back.output("d_u")})) as exe:
        assert exe(given)["d_u"].shape == (6, 2)
    ct = {"ct_y": rng.standard_normal((6, 4))}
    got = li.interpret(vjp(g, "y", ["x", "u"], missing="zeros"), {**given, **ct})
    np.testing.assert_array_equal(got["d_u"], np.zeros((6, 2)))
    want = (ct["ct_y"] * (1 - np.tanh(given["x"] @ held["w"]) ** 2)) @ held["w"].T
    np.testing.assert_allclose(got["d_x"], want, atol=1e-12)


def test_rules_keep_the_line() -> None:
    x = li.input("x", (3,), "f64")
    back = grad(li.Graph("g", [x], {"loss": li.sum(li.tanh(x))}), "loss", "x")
    made = [n for n in back.nodes if "grad" in n.loc.via]
    assert made
    assert all(n.loc.file == __file__ for n in made)
