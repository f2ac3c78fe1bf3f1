"""lstm-ir: a graph compiler for recurrent networks.

import lstm_ir as li
x = li.input("x", ("T", "B", 64))
y, h_n, c_n = li.lstm(x, li.weight("w_ih", w_ih), li.weight("w_hh", w_hh))
exe = li.compile(li.Graph("tagger", [x], {"y": y}))
exe(x=a)["y"]
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import (
    BusyError,
    CallError,
    CompileError,
    DeadlineError,
    DeviceError,
    DimError,
    GradientError,
    IRError,
    LoweringError,
    LstmIrError,
    ModelError,
    PackageError,
    ParseError,
    PassError,
    TargetError,
    ValueRangeError,
    VerifyError,
)
from lstm_ir.ir.foreign_errors import refusals_become as _refusals_become
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.interpret import interpret
from lstm_ir.ir.location import Loc
from lstm_ir.ir.program import Program, State
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops import *  # noqa: F403  the builders, listed in lstm_ir.ops.__all__
from lstm_ir.ops import __all__ as _builders

_CHECKOUT = Path(__file__).parents[1]


class _Beside:
    """Finds the two packages that a checkout has beside this folder; a wheel has them in it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in ("lstm_ir.passes", "lstm_ir.backends"):
            return None
        return PathFinder.find_spec(name, [str(_CHECKOUT)])


if not Path(__file__).with_name("backends").exists() and (_CHECKOUT / "backends").exists():
    sys.meta_path.insert(0, _Beside)  # before the finder of an install that is another checkout's

if TYPE_CHECKING:  # _LAZY as a checker reads it: `as` says that the name is public
    from lstm_ir.api import compile as compile
    from lstm_ir.api import export as export
    from lstm_ir.api import load as load
    from lstm_ir.api import lower as lower
    from lstm_ir.api import set_threads as set_threads
    from lstm_ir.importers.onnx.model import from_onnx as from_onnx
    from lstm_ir.ir.parser import parse as parse
    from lstm_ir.ops.by_name import op as op
    from lstm_ir.serving.batcher import Batcher as Batcher
    from lstm_ir.serving.sessions import Sessions as Sessions
    from lstm_ir.streaming.over_time import over_time as over_time
    from lstm_ir.streaming.stateful import stateful as stateful
    from lstm_ir.training.gradient import grad as grad
    from lstm_ir.training.gradient import vjp as vjp
    from lstm_ir.training.optimizers import adam as adam
    from lstm_ir.training.optimizers import adamw as adamw
    from lstm_ir.training.optimizers import momentum as momentum
    from lstm_ir.training.optimizers import sgd as sgd
    from lstm_ir.training.training import train_step as train_step
    from lstm_ir.verification.verify import verify as verify

_LAZY = {  # what only some programs need: parsing, training, passes, the compiler, the runtime
    name: module
    for module, names in {
        "lstm_ir.api": "compile export load lower set_threads",
        "lstm_ir.importers.onnx.model": "from_onnx",
        "lstm_ir.ir.parser": "parse",
        "lstm_ir.ops.by_name": "op",
        "lstm_ir.serving.batcher": "Batcher",
        "lstm_ir.serving.sessions": "Sessions",
        "lstm_ir.streaming.over_time": "over_time",
        "lstm_ir.streaming.stateful": "stateful",
        "lstm_ir.training.gradient": "grad vjp",
        "lstm_ir.training.optimizers": "adam adamw momentum sgd",
        "lstm_ir.training.training": "train_step",
        "lstm_ir.verification.verify": "verify",
    }.items()
    for name in names.split()
}

__all__ = [
    "BusyError", "CallError", "CompileError", "DType", "Data", "DeadlineError", "DeviceError", "DimError",
    "GradientError", "Graph", "IRError", "Loc", "LoweringError", "LstmIrError", "ModelError", "Node", "PackageError",
    "ParseError", "PassError", "Program", "State", "TargetError", "TensorType", "Value", "ValueRangeError",
    "VerifyError", "interpret", *_LAZY, *_builders,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        with _refusals_become(LstmIrError, f"lstm_ir.{name} cannot be imported"):
            value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lstm_ir' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
