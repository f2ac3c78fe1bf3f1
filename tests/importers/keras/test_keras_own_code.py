"""Classes and functions of one's own that have the names of Keras': refused, never taken for Keras'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("keras")
    need("torch")


def classes(L: Any) -> dict[str, Any]:
    """A layer, a cell and a recurrent layer: each computes something else than what its name says."""

    class Dense(L.Dense):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return super().call(x) * 2

    class LSTMCell(L.LSTMCell):  # type: ignore[misc]
        def call(self, x: Any, states: Any, training: bool = False) -> Any:
            return super().call(x * 2, states, training)

    return {"layer": Dense(3), "cell": L.RNN(LSTMCell(4)), "inside": L.TimeDistributed(Dense(3))}


@pytest.mark.parametrize("name", ["layer", "cell", "inside"])
@pytest.mark.parametrize("file", [False, True])
def test_classes(name: str, file: bool, tmp_path: Path) -> None:
    from keras_torch import keras, saved

    x = keras.Input((5, 3), name="x")
    model = keras.Model(x, classes(keras.layers)[name](x))
    with pytest.raises(li.ModelError, match="is not one of Keras") as refused:
        li.from_keras(saved(model, tmp_path / "m.keras") if file else model)
    assert "None." not in str(refused.value)


def relu(x: Any) -> Any:
    return x * 7.0


def test_functions_of_a_live_model() -> None:
    """A config says the name of a function alone, and a file too: there Keras itself takes its own."""
    from keras_torch import keras

    L, x = keras.layers, keras.Input((5, 3), name="x")
    for layer in (L.Dense(3, relu), L.Activation(relu), L.RNN(L.GRUCell(3, recurrent_activation=relu))):
        with pytest.raises(
            li.ModelError, match=r"its (recurrent_)?activation is test_keras_own_code\.relu, which is not"
        ):
            li.from_keras(keras.Model(x, layer(x)))
    for layer in (L.Dense(3, keras.ops.relu), L.Activation(keras.activations.relu), L.Dense(3, "relu")):
        li.from_keras(keras.Model(x, layer(x)))
