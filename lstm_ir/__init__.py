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

from lstm_ir.ir import at_fork as _at_fork  # noqa: F401  what it registers
from lstm_ir.ir.errors import ArgumentError as ArgumentError
from lstm_ir.ir.errors import BroadcastError as BroadcastError
from lstm_ir.ir.errors import BusyError as BusyError
from lstm_ir.ir.errors import CallError as CallError
from lstm_ir.ir.errors import CompileError as CompileError
from lstm_ir.ir.errors import DeadlineError as DeadlineError
from lstm_ir.ir.errors import DeviceError as DeviceError
from lstm_ir.ir.errors import DimError as DimError
from lstm_ir.ir.errors import GradientError as GradientError
from lstm_ir.ir.errors import IRError as IRError
from lstm_ir.ir.errors import LoweringError as LoweringError
from lstm_ir.ir.errors import LstmIrError as LstmIrError
from lstm_ir.ir.errors import MissingLibraryError as MissingLibraryError
from lstm_ir.ir.errors import ModelError as ModelError
from lstm_ir.ir.errors import OptionError as OptionError
from lstm_ir.ir.errors import PackageError as PackageError
from lstm_ir.ir.errors import ParseError as ParseError
from lstm_ir.ir.errors import PassError as PassError
from lstm_ir.ir.errors import TargetError as TargetError
from lstm_ir.ir.errors import ValueRangeError as ValueRangeError
from lstm_ir.ir.errors import VerifyError as VerifyError
from lstm_ir.ir.foreign_errors import refusals_become as _refusals_become

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
    from lstm_ir.api import lower as lower
    from lstm_ir.fitting.fit import fit as fit
    from lstm_ir.importers.convert_weights import convert_weights as convert_weights
    from lstm_ir.importers.keras.model import from_keras as from_keras
    from lstm_ir.importers.keras.to_keras import to_keras as to_keras
    from lstm_ir.importers.onnx.model import from_onnx as from_onnx
    from lstm_ir.importers.tensorflow.model import from_tf as from_tf
    from lstm_ir.importers.tensorflow.to_tf import to_tf as to_tf
    from lstm_ir.importers.torch.model import from_torch as from_torch
    from lstm_ir.importers.torch.weights import to_torch as to_torch
    from lstm_ir.ir.data import Data as Data
    from lstm_ir.ir.device_array import DeviceArray as DeviceArray
    from lstm_ir.ir.graph import Graph as Graph
    from lstm_ir.ir.graph import Node as Node
    from lstm_ir.ir.graph import Value as Value
    from lstm_ir.ir.interpret import interpret as interpret
    from lstm_ir.ir.location import Loc as Loc
    from lstm_ir.ir.parser import parse as parse
    from lstm_ir.ir.program import Program as Program
    from lstm_ir.ir.program import State as State
    from lstm_ir.ir.types import DType as DType
    from lstm_ir.ir.types import TensorType as TensorType
    from lstm_ir.loading import load as load
    from lstm_ir.loading import read_weights as read_weights
    from lstm_ir.loading import set_threads as set_threads
    from lstm_ir.loading import source as source
    from lstm_ir.ops import *  # noqa: F403  the builders, listed in lstm_ir.ops.__all__
    from lstm_ir.ops.by_name import op as op
    from lstm_ir.serving.batcher import Batcher as Batcher
    from lstm_ir.serving.sessions import Sessions as Sessions
    from lstm_ir.streaming.over_time import over_time as over_time
    from lstm_ir.streaming.stateful import stateful as stateful
    from lstm_ir.training.gradient import grad as grad
    from lstm_ir.training.gradient import vjp as vjp
    from lstm_ir.training.optimizers import adagrad as adagrad
    from lstm_ir.training.optimizers import adam as adam
    from lstm_ir.training.optimizers import adamw as adamw
    from lstm_ir.training.optimizers import momentum as momentum
    from lstm_ir.training.optimizers import rmsprop as rmsprop
    from lstm_ir.training.optimizers import sgd as sgd
    from lstm_ir.training.schedules import schedules as schedules
    from lstm_ir.training.trained_weights import with_weights as with_weights
    from lstm_ir.training.training import train_step as train_step
    from lstm_ir.verification.examine import examine as examine
    from lstm_ir.verification.verify import verify as verify

# All but the errors comes when it is asked for: what loads and runs a package imports no graph and no op.
_LAZY = {
    name: module
    for module, names in {
        "lstm_ir.api": "compile export lower",
        "lstm_ir.fitting.fit": "fit",
        "lstm_ir.importers.convert_weights": "convert_weights",
        "lstm_ir.importers.keras.model": "from_keras",
        "lstm_ir.importers.keras.to_keras": "to_keras",
        "lstm_ir.importers.onnx.model": "from_onnx",
        "lstm_ir.importers.tensorflow.model": "from_tf",
        "lstm_ir.importers.tensorflow.to_tf": "to_tf",
        "lstm_ir.importers.torch.model": "from_torch",
        "lstm_ir.importers.torch.weights": "to_torch",
        "lstm_ir.ir.data": "Data",
        "lstm_ir.ir.device_array": "DeviceArray",
        "lstm_ir.ir.graph": "Graph Node Value",
        "lstm_ir.ir.interpret": "interpret",
        "lstm_ir.ir.location": "Loc",
        "lstm_ir.ir.parser": "parse",
        "lstm_ir.ir.program": "Program State",
        "lstm_ir.ir.types": "DType TensorType",
        "lstm_ir.loading": "load read_weights set_threads source",
        "lstm_ir.ops.by_name": "op",
        "lstm_ir.serving.batcher": "Batcher",
        "lstm_ir.serving.sessions": "Sessions",
        "lstm_ir.streaming.over_time": "over_time",
        "lstm_ir.streaming.stateful": "stateful",
        "lstm_ir.training.gradient": "grad vjp",
        "lstm_ir.training.optimizers": "adagrad adam adamw momentum rmsprop sgd",
        "lstm_ir.training.schedules": "schedules",
        "lstm_ir.training.trained_weights": "with_weights",
        "lstm_ir.training.training": "train_step",
        "lstm_ir.verification.examine": "examine",
        "lstm_ir.verification.verify": "verify",
    }.items()
    for name in names.split()
}
_OPS = "lstm_ir.ops"
_ERRORS = [n for n, v in list(globals().items()) if isinstance(v, type) and issubclass(v, LstmIrError)]


def _builders() -> list[str]:
    """The names of the builders; this imports every op."""
    return list(importlib.import_module(_OPS).__all__)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*_ERRORS, *_LAZY, *_builders()]
    if name.startswith("_"):
        raise AttributeError(f"module 'lstm_ir' has no attribute {name!r}")
    with _refusals_become(LstmIrError, f"lstm_ir.{name} cannot be imported"):
        if name not in _LAZY and name not in _builders():
            words = importlib.import_module(f"{_OPS}.foreign_names").instead(name, __dir__())
            raise AttributeError(f"module 'lstm_ir' has no attribute {name!r}{words}")
        value = getattr(importlib.import_module(_LAZY.get(name, _OPS)), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_ERRORS, *_LAZY, *_builders()])
