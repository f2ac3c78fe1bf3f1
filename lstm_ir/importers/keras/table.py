"""The table of Keras' layers, and of the functions of `keras.ops`, that are taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from lstm_ir.importers.keras.call import LayerCall
from lstm_ir.importers.table import OpEntry, Table

Build: TypeAlias = Callable[[LayerCall], Any]


@dataclass(frozen=True)
class LayerRule(OpEntry[LayerCall]):
    """One layer. `masks`: whether its result keeps the mask of its operand; `cast`: whether floats become its dtype.

    `known`: the arguments that are read, apart from those that every layer has.
    """

    masks: bool
    known: frozenset[str]
    cast: bool


LAYERS: Table[str, LayerRule] = Table("layer")
OPERATIONS: Table[str, LayerRule] = Table("operation")
IGNORED = frozenset(
    "name trainable dtype activity_regularizer quantization_config batch_input_shape input_dtype "
    "kernel_initializer recurrent_initializer bias_initializer kernel_regularizer recurrent_regularizer "
    "bias_regularizer kernel_constraint recurrent_constraint bias_constraint seed noise_shape".split()
)
"""Arguments that change nothing that a graph computes."""


def taken(
    name: str, known: str = "", *, masks: bool = False, refused: str = "", cast: bool = True
) -> Callable[[Build], Build]:
    """Register the decorated function as the meaning of a layer; `known`: the arguments of its config that it reads."""

    def register(build: Build) -> Build:
        LAYERS.add(name, LayerRule(name, build, (), None, refused, masks, frozenset(known.split()), cast))
        return build

    return register


def operation(name: str) -> Callable[[Build], Build]:
    """Register the decorated function as the meaning of a function of `keras.ops`."""

    def register(build: Build) -> Build:
        OPERATIONS.add(name, LayerRule(name, build, (), None, "", False, frozenset(), False))
        return build

    return register
