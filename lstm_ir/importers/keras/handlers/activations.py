"""Activations by Keras' names: of layers' arguments, and as layers of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall
from lstm_ir.importers.keras.older import HARD_SIGMOID, UNSTATED
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value

Function = Callable[[Value], Value]
SIXTH = 1 / 6  # Keras 3's hard_sigmoid is relu6(x + 3) / 6


def _softmax(x: Value) -> Value:
    return li.softmax(x, -1)


FUNCTIONS: dict[str, Function] = {
    "linear": lambda x: x,
    "relu": li.relu,
    "relu6": lambda x: li.clip(x, 0.0, 6.0),
    "leaky_relu": lambda x: li.leaky_relu(x, 0.2),
    "elu": li.elu,
    "celu": li.celu,
    "selu": li.selu,
    "softplus": li.softplus,
    "softsign": li.softsign,
    "silu": li.silu,
    "swish": li.silu,
    "gelu": li.gelu,
    "tanh": li.tanh,
    "sigmoid": li.sigmoid,
    "exponential": li.exp,
    "hard_sigmoid": lambda x: li.hard_sigmoid(x, SIXTH, 0.5),
    HARD_SIGMOID: lambda x: li.hard_sigmoid(x, 0.2, 0.5),
    "hard_silu": lambda x: x * li.hard_sigmoid(x, SIXTH, 0.5),
    "hard_swish": lambda x: x * li.hard_sigmoid(x, SIXTH, 0.5),
    "hard_tanh": lambda x: li.clip(x, -1.0, 1.0),
    "tanh_shrink": lambda x: x - li.tanh(x),
    "mish": li.mish,
    "log_sigmoid": li.log_sigmoid,
    "softmax": _softmax,
    "log_softmax": lambda x: li.log_softmax(x, -1),
    "squareplus": lambda x: (x + li.sqrt(x * x + 4.0)) / 2.0,
}
CORE = {  # the names that the recurrent ops have for them
    "tanh": "tanh", "sigmoid": "sigmoid", "relu": "relu", "linear": "identity", "softsign": "softsign",
    "softplus": "softplus", "elu": "elu(1.0)", "leaky_relu": "leaky_relu(0.2)",
    "hard_sigmoid": f"hard_sigmoid({SIXTH},0.5)", HARD_SIGMOID: "hard_sigmoid(0.2,0.5)",
}  # fmt: skip


def name_of(identifier: Any) -> str:
    """The activation's name, from a word or from the config of a function of Keras."""
    if identifier is None:
        return "linear"
    if isinstance(identifier, Mapping):
        registered = identifier.get("registered_name")
        own = identifier.get("module") in (None, "builtins", "keras.activations") or str(
            identifier.get("module")
        ).startswith("keras.")
        identifier = (
            identifier.get("config")
            if own and isinstance(identifier.get("config"), str)
            else identifier.get("class_name")
        )
        if not own:
            raise NodeRefusedError(f"the activation {registered or identifier!r:.60} is not one of Keras")
    if identifier == UNSTATED:
        raise NodeRefusedError(
            "the activation hard_sigmoid is not in Keras 2 what it is in Keras 3, and the file states no keras_version"
        )
    if not isinstance(identifier, str) or identifier not in FUNCTIONS:
        raise NodeRefusedError(f"the activation {identifier!r:.60} is not known")
    return identifier


def function_of(identifier: Any) -> Function:
    """The activation of an argument."""
    return FUNCTIONS[name_of(identifier)]


@taken("Activation", "activation", masks=True)
def activation(c: LayerCall) -> Value:
    """A function of each element, or of the last axis."""
    return function_of(c.get("activation"))(c.x)


@taken("ReLU", "max_value negative_slope threshold", masks=True)
def relu(c: LayerCall) -> Value:
    """x above the threshold, at most max_value; at and below it a slope, or 0."""
    x, top, slope, threshold = c.x, c.get("max_value"), c.real("negative_slope", 0.0), c.real("threshold", 0.0)
    if not slope and not threshold:
        return li.relu(x) if top is None else li.clip(x, 0.0, c.real("max_value"))
    above = x if top is None else li.clip(x, None, c.real("max_value"))
    return li.where(x > threshold, above, (x - threshold) * slope if slope else li.zeros_like(x))


@taken("LeakyReLU", "negative_slope alpha", masks=True)
def leaky_relu(c: LayerCall) -> Value:
    """x above 0, a slope elsewhere."""
    return li.leaky_relu(c.x, c.real("negative_slope", c.get("alpha", 0.3)))


@taken("ELU", "alpha", masks=True)
def elu(c: LayerCall) -> Value:
    """x above 0, alpha (e^x - 1) elsewhere."""
    return li.elu(c.x, c.real("alpha", 1.0))


@taken("PReLU", "alpha_initializer alpha_regularizer alpha_constraint shared_axes", masks=True)
def prelu(c: LayerCall) -> Value:
    """x above 0, alpha x elsewhere."""
    return li.prelu(c.x, c.weights()["alpha"])


@taken("Softmax", "axis", masks=True)
def softmax(c: LayerCall) -> Value:
    """Along an axis; steps that a mask names get nothing."""
    x, axis = c.x, c.get("axis", -1)
    if isinstance(axis, list) and len(axis) == 1:
        (axis,) = axis
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise NodeRefusedError(f"axis is {axis!r:.40}, not one axis")
    if c.mask is not None:
        raise NodeRefusedError("a mask on its operand is not taken")
    return li.softmax(x, c.axis_of(axis, x.rank))
