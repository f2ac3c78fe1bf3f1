"""Operands of other element types than floats, and numbers at the edges of functions, beside Keras itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

pytestmark = [
    pytest.mark.xdist_group("keras"),
    pytest.mark.filterwarnings("ignore:__array__ implementation"),  # of Keras with NumPy 2
]
Build = Callable[[Any, Mapping[str, Any]], Any]  # keras.ops, the inputs by element type
DTYPES = ("int32", "float32", "bool", "uint8", "float16")
OPERANDS: dict[str, Build] = {
    "a half of integers": lambda o, x: x["int32"] / 2,
    "a half of bytes": lambda o, x: o.divide(x["uint8"], 2.0),
    "integers by integers": lambda o, x: x["int32"] / (x["int32"] * x["int32"] + 1),
    "one by integers": lambda o, x: 1.0 / (x["int32"] * 2 + 1),
    "integers times a float": lambda o, x: x["int32"] * 2.5,
    "integers and a float": lambda o, x: 0.25 + x["int32"],
    "integers less a float": lambda o, x: x["int32"] - 0.5,
    "integers times integers": lambda o, x: x["int32"] * 3,
    "the larger": lambda o, x: o.maximum(x["int32"], 0.5),
    "the smaller": lambda o, x: o.minimum(x["int32"], x["float32"]),
    "a comparison": lambda o, x: o.less(x["int32"], 0.5),
    "a comparison of two": lambda o, x: o.greater_equal(x["int32"], x["float32"]),
    "integers that are no float": lambda o, x: o.equal(x["int32"], 0.5),
    "integers and floats": lambda o, x: x["int32"] + x["float32"],
    "truths and floats": lambda o, x: x["bool"] * x["float32"],
    "truths and integers": lambda o, x: x["int32"] * x["bool"],
    "truths and a number": lambda o, x: x["bool"] * 3,
    "truths and a float": lambda o, x: x["bool"] * 0.5,
    "floats and a number": lambda o, x: x["float32"] * 3,
    "halves and a float": lambda o, x: x["float16"] * 0.5,
    "halves and floats": lambda o, x: x["float16"] + x["float32"],
    "an array": lambda o, x: x["int32"] * np.array([0.5, 1.5, -2.0], "f4"),
    "and": lambda o, x: o.logical_and(x["int32"], x["uint8"]),
    "or": lambda o, x: o.logical_or(x["int32"], x["float32"]),
    "or of truths": lambda o, x: o.logical_or(x["bool"], x["uint8"]),
    "not": lambda o, x: o.logical_not(x["int32"]),
    "not of floats": lambda o, x: o.logical_not(x["float32"]),
}


def arrays(rng: np.random.Generator) -> dict[str, Any]:
    """Small numbers, of which some are 0, and bits that meet in none: 1 and 2."""
    found = {n: rng.integers(0, 3, (4, 3)).astype(n) for n in DTYPES}
    found["int32"] = rng.integers(-3, 4, (4, 3)).astype("int32")
    found["int32"][0], found["uint8"][0], found["float32"][0] = (1, 2, 0), (2, 1, 1), (0, 0.5, 1)
    return found


@pytest.mark.parametrize("name", OPERANDS)
def test_elements_of_two_types(name: str, rng: np.random.Generator) -> None:
    need("keras", "torch")
    from keras_beside import forward
    from keras_torch import keras, results

    ops = keras.ops
    keras.utils.clear_session(free_memory=False)
    inputs = {n: keras.Input((3,), name=n, dtype=n) for n in DTYPES}
    y = OPERANDS[name](ops, inputs)
    ends = [ops.add(inputs[n], inputs[n]) for n in DTYPES if n != "bool"]  # so that every input is read
    ends.append(ops.logical_not(inputs["bool"]))
    model = keras.Model(list(inputs.values()), [y, *ends], name="model")
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    given = arrays(rng)
    forward(graph, given, results(model, given), 2e-6)


REFUSED: dict[str, Build] = {
    "integers of two sizes": lambda o, x: x["int32"] + x["uint8"],
    "an array of other integers": lambda o, x: x["uint8"] + np.array([1, 2, 300]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_backends_promote_in_their_own_ways(name: str) -> None:
    need("keras", "torch")
    from keras_torch import keras

    ops = keras.ops
    keras.utils.clear_session(free_memory=False)
    inputs = {n: keras.Input((3,), name=n, dtype=n) for n in ("int32", "uint8")}
    ends = [ops.add(v, v) for v in inputs.values()]
    model = keras.Model(list(inputs.values()), [REFUSED[name](ops, inputs), *ends], name="model")
    with pytest.raises(li.ModelError, match=r"\(Add\): its operand(s are i32 and u8| array.* that u8 does not have)"):
        li.from_keras(model)


# numbers at the edges ---------------------------------------------------------------------------


def beside(build: Callable[[Any, Any], Any], x: np.ndarray[Any, Any]) -> None:
    """A layer over x, and over it alone."""
    need("keras", "torch")
    from keras_beside import forward
    from keras_torch import keras, results

    keras.utils.clear_session(free_memory=False)
    i = keras.Input(x.shape[1:], name="x")
    model = keras.Model(i, build(keras.layers, i), name="model")
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    with np.errstate(invalid="ignore"):
        forward(graph, {"x": x}, results(model, {"x": x}), 2e-6)


RELU: list[dict[str, float]] = [
    {"threshold": 1.0}, {"threshold": 1.0, "negative_slope": 0.25}, {"threshold": 1.0, "max_value": 2.0},
    {"threshold": 1.5, "negative_slope": 0.5, "max_value": 2.0}, {"negative_slope": 0.25}, {"max_value": 2.0},
]  # fmt: skip


@pytest.mark.parametrize("options", RELU, ids=str)
def test_a_rectifier_at_its_threshold(options: dict[str, float]) -> None:
    """At the threshold it is 0, far below it too."""
    x = np.array([[-np.inf, -3, -0.5, 0, 0.5, 1, 1.25, 1.5, 1.75, 2, 3, np.inf]], "f4")
    beside(lambda L, i: L.ReLU(**options)(i), x)


@pytest.mark.parametrize("size", [1e-4, 1e-8, 1e-14, 0])
def test_vectors_that_are_almost_0(size: float, rng: np.random.Generator) -> None:
    """UnitNormalization and Dot have least norms of their own, 1e-12 and 1e-7."""
    x = (rng.uniform(0.5, 1, (3, 5, 4)) * size).astype("f4")
    beside(lambda L, i: L.UnitNormalization()(i), x)
    beside(lambda L, i: L.UnitNormalization(axis=[1, 2])(i), x)
    beside(lambda L, i: L.Dot(axes=2, normalize=True)([i, L.Dropout(0.5)(i)]), x)


def test_the_slope_of_a_vector_of_zeros(rng: np.random.Generator) -> None:
    """It is a number; that of PyTorch's formula is none."""
    need("keras", "torch")
    from keras_torch import keras

    keras.utils.clear_session(free_memory=False)
    i = keras.Input((4,), name="x")
    model = keras.Model(i, keras.layers.UnitNormalization(name="y")(i), name="model")
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    back = li.vjp(graph, ["y"], ["x"])
    got = li.interpret(back, {"x": np.zeros((2, 4), "f4"), "ct_y": np.ones((2, 4), "f4")})["d_x"]
    assert np.isfinite(got).all()
