"""lstm-ir: a graph compiler for recurrent networks.

import lstm_ir as li
x = li.input("x", ("T", "B", 64))
y, h_n, c_n = li.lstm(x, li.weight("w_ih", w_ih), li.weight("w_hh", w_hh))
exe = li.compile(li.Graph("tagger", [x], {"y": y}))
exe(x=a)["y"]
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.errors import (
    CallError,
    CompileError,
    DeviceError,
    DimError,
    GradientError,
    IRError,
    LoweringError,
    LstmIrError,
    PackageError,
    ParseError,
    PassError,
    TargetError,
    ValueRangeError,
    VerifyError,
)
from lstm_ir.ir.graph import Data, Graph, Node, Value
from lstm_ir.ir.interpret import interpret
from lstm_ir.ir.location import Loc
from lstm_ir.ir.program import Program, State
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ir.verify import verify
from lstm_ir.ops import *  # noqa: F403  the builders, listed in lstm_ir.ops.__all__
from lstm_ir.ops import __all__ as _builders

_here = Path(__file__).parent
if not (_here / "backends").exists() and (_here.parent / "backends").exists():
    # A checkout: passes and backends lie beside this folder, also where only a copy is installed.
    __path__.append(str(_here.parent))  # noqa: F405

if TYPE_CHECKING:
    from lstm_ir.api import compile, export, load, lower, set_threads
    from lstm_ir.ir.parser import parse
    from lstm_ir.ops.by_name import op
    from lstm_ir.training.gradient import grad, vjp
    from lstm_ir.training.optimizers import adam, adamw, momentum, sgd
    from lstm_ir.training.streaming import stateful
    from lstm_ir.training.training import train_step

_LAZY = {  # what only some programs need: parsing, passes, the compiler, the runtime
    "parse": "lstm_ir.ir.parser",
    "op": "lstm_ir.ops.by_name",
    "grad": "lstm_ir.training.gradient",
    "vjp": "lstm_ir.training.gradient",
    "stateful": "lstm_ir.training.streaming",
    "train_step": "lstm_ir.training.training",
    "adam": "lstm_ir.training.optimizers",
    "adamw": "lstm_ir.training.optimizers",
    "momentum": "lstm_ir.training.optimizers",
    "sgd": "lstm_ir.training.optimizers",
    "compile": "lstm_ir.api",
    "lower": "lstm_ir.api",
    "export": "lstm_ir.api",
    "load": "lstm_ir.api",
    "set_threads": "lstm_ir.api",
}

__all__ = [
    "CallError", "CompileError", "DType", "Data", "DeviceError", "DimError", "GradientError",
    "Graph", "IRError", "Loc", "LoweringError", "LstmIrError", "Node", "PackageError",
    "ParseError", "PassError", "Program", "State", "TargetError", "TensorType", "Value",
    "ValueRangeError", "VerifyError", "adam", "adamw", "compile", "export", "grad", "interpret",
    "load", "lower", "momentum", "op", "parse", "set_threads", "sgd", "stateful", "train_step",
    "verify", "vjp", *_builders,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lstm_ir' has no attribute {name!r}")
