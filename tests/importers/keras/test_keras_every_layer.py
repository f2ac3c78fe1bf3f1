"""Each layer, operation and activation of the tables beside Keras itself, by the meaning of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need
from keras_models import CASES

import lstm_ir as li
from lstm_ir.importers.keras import handlers
from lstm_ir.importers.keras.config import LayerSpec, model_spec
from lstm_ir.importers.keras.handlers.activations import FUNCTIONS
from lstm_ir.importers.keras.older import HARD_SIGMOID
from lstm_ir.importers.keras.source import live
from lstm_ir.importers.keras.table import LAYERS, OPERATIONS

assert handlers.__doc__  # importing them fills the tables
pytestmark = [
    pytest.mark.xdist_group("keras"),
    pytest.mark.filterwarnings("ignore:__array__ implementation"),  # of Keras with NumPy 2
]
Build = Callable[[Any, Any], Any]  # keras.layers, the input
SERIES, IMAGE, FIRST = (7, 4), (8, 6, 4), (4, 8, 6)


def layer(kind: str, *args: Any, **words: Any) -> Build:
    return lambda L, x: getattr(L, kind)(*args, **words)(x)


def called(name: str, *args: Any, **words: Any) -> Build:
    """A function of `keras.ops`."""

    def build(L: Any, x: Any) -> Any:
        from keras import ops

        return getattr(ops, name)(x, *args, **words)

    return build


def squared(name: str, *args: Any, **words: Any) -> Build:
    """The same of x * x + 0.5."""
    return lambda L, x: called(name, *args, **words)(L, x * x + 0.5)


MORE: dict[str, tuple[tuple[int, ...], Build]] = {}


def _convolutions() -> None:
    options: dict[str, dict[str, Any]] = {
        "valid": {}, "same": {"padding": "same"}, "strides": {"strides": 2, "padding": "same", "activation": "relu"},
        "no_bias": {"use_bias": False},
    }  # fmt: skip
    for name, words in options.items():
        for kind, many in (("Conv", (6, 3)), ("DepthwiseConv", (3,)), ("SeparableConv", (6, 3))):
            MORE[f"{kind}1D_{name}"] = SERIES, layer(f"{kind}1D", *many, **words)
            MORE[f"{kind}2D_{name}"] = IMAGE, layer(f"{kind}2D", *many, **words)
    MORE["Conv2D_uneven"] = IMAGE, layer("Conv2D", 6, (3, 2), strides=(2, 1))
    MORE["Conv2D_dilation"] = IMAGE, layer("Conv2D", 6, 3, dilation_rate=(2, 1))
    MORE["Conv2D_dilation_same"] = IMAGE, layer("Conv2D", 6, 3, dilation_rate=2, padding="same")
    MORE["Conv2D_groups"] = IMAGE, layer("Conv2D", 6, 3, groups=2)
    MORE["Conv2D_channels_first"] = FIRST, layer("Conv2D", 6, 3, data_format="channels_first", padding="same")
    MORE["DepthwiseConv2D_depth"] = IMAGE, layer("DepthwiseConv2D", 3, depth_multiplier=2)
    MORE["SeparableConv2D_depth"] = IMAGE, layer("SeparableConv2D", 5, 3, depth_multiplier=3)


def _around() -> None:
    for kind in ("AveragePooling", "MaxPooling"):
        for name, words in (("valid", {}), ("same", {"padding": "same"}), ("strides", {"strides": 1})):
            MORE[f"{kind}1D_{name}"] = SERIES, layer(f"{kind}1D", 3, **words)
            # 7 rows: where pads are uneven, Keras over PyTorch repeats the edge, and over TensorFlow counts no padding.
            MORE[f"{kind}2D_{name}"] = (7, 6, 4), layer(f"{kind}2D", (3, 2) if name != "strides" else 3, **words)
        MORE[f"{kind}2D_first"] = FIRST, layer(f"{kind}2D", 2, data_format="channels_first")
    for word in ("Average", "Max"):
        for keep in (False, True):
            MORE[f"Global{word}1D_{keep}"] = SERIES, layer(f"Global{word}Pooling1D", keepdims=keep)
            MORE[f"Global{word}2D_{keep}"] = IMAGE, layer(f"Global{word}Pooling2D", keepdims=keep)
        MORE[f"Global{word}2D_first"] = FIRST, layer(f"Global{word}Pooling2D", data_format="channels_first")
        MORE[f"Adaptive{word}1D"] = SERIES, layer(f"Adaptive{word}Pooling1D", 3)
        MORE[f"Adaptive{word}2D"] = IMAGE, layer(f"Adaptive{word}Pooling2D", (4, 2))
    MORE["Cropping2D"] = IMAGE, layer("Cropping2D", ((1, 2), (0, 3)))
    MORE["ZeroPadding2D"] = IMAGE, layer("ZeroPadding2D", ((1, 0), (2, 3)))
    MORE["UpSampling2D"] = IMAGE, layer("UpSampling2D", (2, 3))
    MORE["UpSampling1D"] = SERIES, layer("UpSampling1D", 3)
    MORE["SpatialDropout2D"] = IMAGE, layer("SpatialDropout2D", 0.4)
    MORE["GaussianDropout"] = SERIES, layer("GaussianDropout", 0.4)
    MORE["AlphaDropout"] = SERIES, layer("AlphaDropout", 0.4)
    MORE["ActivityRegularization"] = SERIES, layer("ActivityRegularization", 0.1, 0.2)
    MORE["Identity"] = SERIES, layer("Identity")
    MORE["RMSNormalization"] = SERIES, layer("RMSNormalization")
    MORE["SpectralNormalization"] = SERIES, lambda L, x: L.SpectralNormalization(L.Dense(3))(x)
    MORE["Normalization"] = SERIES, layer("Normalization", mean=[0.1, 0.2, -0.3, 0.4], variance=[1.0, 2.0, 0.5, 3.0])
    MORE["Rescaling"] = SERIES, layer("Rescaling", 0.3, offset=-0.2)
    MORE["Softmax"] = SERIES, layer("Softmax", axis=1)
    MORE["Dot"] = SERIES, lambda L, x: L.Dot(axes=2, normalize=True)([x, L.Dense(4)(x)])
    MORE["Embedding"] = (5,), lambda L, x: L.Embedding(9, 3)(abs(x) * 2.0)
    MORE["LeakyReLU"] = SERIES, layer("LeakyReLU", negative_slope=0.4)
    MORE["ReLU"] = SERIES, layer("ReLU", max_value=0.8, negative_slope=0.3, threshold=0.2)
    for name in sorted(set(FUNCTIONS) - {HARD_SIGMOID}):
        MORE[f"activation_{name}"] = SERIES, layer("Activation", name)


def _operations() -> None:
    for name in ("abs", "absolute", "cos", "exp", "negative", "ones_like", "relu", "sigmoid", "silu", "sin", "softmax",
                 "softplus", "square", "tanh", "transpose", "zeros_like"):  # fmt: skip
        MORE[f"ops_{name}"] = SERIES, called(name)
    for name in ("log", "log1p", "sqrt"):
        MORE[f"ops_{name}"] = SERIES, squared(name)
    for name in ("add", "subtract", "multiply", "maximum", "minimum", "divide", "true_divide"):
        MORE[f"ops_{name}"] = SERIES, called(name, 0.7)
    for name in ("max", "mean", "min", "std", "sum", "var"):
        MORE[f"ops_{name}"] = SERIES, called(name, axis=1)
        MORE[f"ops_{name}_kept"] = SERIES, called(name, axis=(1, 2), keepdims=True)
    for name in ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"):
        MORE[f"ops_{name}"] = SERIES, called(name, 0.25)
    MORE["ops_power"] = SERIES, squared("power", 1.5)
    MORE["ops_matmul"] = SERIES, lambda L, x: called("matmul", called("transpose", (0, 2, 1))(L, x))(L, x)
    MORE["ops_logical"] = SERIES, _logical
    MORE["ops_shapes"] = SERIES, _shapes


def _logical(L: Any, x: Any) -> Any:
    from keras import ops

    a, b = ops.greater(x, 0.1), ops.less(x, 0.6)
    return ops.any(ops.logical_or(ops.logical_not(a), ops.logical_and(a, b)), axis=1)


def _shapes(L: Any, x: Any) -> Any:
    from keras import ops

    y = ops.squeeze(ops.expand_dims(x, 1), 1)
    return ops.concatenate([ops.flip(y, 1), ops.stack([y[:, 0], y[:, 1]], 1), ops.reshape(x, (-1, 7, 4))], axis=1)


_convolutions()
_around()
_operations()


def _model(shape: tuple[Any, ...], build: Build) -> Any:
    from keras_torch import keras

    keras.utils.clear_session(free_memory=False)
    x = keras.Input(shape, name="x")
    return keras.Model(x, build(keras.layers, x), name="model")


@pytest.mark.parametrize("name", MORE)
def test_beside_keras(name: str, rng: np.random.Generator) -> None:
    need("keras", "torch")
    from keras_beside import forward
    from keras_torch import randomised, results

    shape, build = MORE[name]
    model = randomised(_model(shape, build), rng)
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    given = {"x": rng.standard_normal((3, *shape)).astype(np.float32)}
    forward(graph, given, results(model, given), 2e-5)


def _kinds(spec: LayerSpec, found: set[tuple[str, bool]]) -> None:
    """All layers of a config, those inside others too."""
    found.add((spec.kind, spec.is_operation))
    for inner in _inner(spec.config):
        found.add((inner, False))
    if spec.kind in ("Functional", "Sequential"):
        for s in model_spec(spec).layers:
            _kinds(s, found)


def _inner(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        own = [tree["class_name"]] if isinstance(tree.get("class_name"), str) else []
        return own + [k for v in tree.values() for k in _inner(v)]
    return [k for v in tree for k in _inner(v)] if isinstance(tree, list) else []


@pytest.mark.slow
def test_every_layer_and_operation_has_a_case() -> None:
    """Here, or in oracles/keras_models.py, whose models test_keras_models.py holds against Keras."""
    need("keras", "torch")
    found: set[tuple[str, bool]] = set()
    for shape, build in [*MORE.values(), *((s, b) for b, s in CASES.values())]:
        _kinds(live(_model(shape, build)).spec, found)
    assert set(LAYERS) - {kind for kind, operation in found if not operation} == set()
    assert set(OPERATIONS) - {kind for kind, operation in found if operation} == {"Abs"}  # keras.ops.abs is Absolute
