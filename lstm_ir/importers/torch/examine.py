"""A module looked at as a whole: what `from_torch` takes of it, without an error for what it refuses."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lstm_ir.importers.examined import Examined, examined
from lstm_ir.importers.report import Outcome
from lstm_ir.importers.torch.model import walked
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import TensorType

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

    from lstm_ir.importers.torch.exporting import NotExportedError
    from lstm_ir.importers.torch.interface import AxisSizes
    from lstm_ir.importers.torch.walk import Walk


def examine(
    module: Module | ExportedProgram,
    example: tuple[Any, ...] | Mapping[str, Any] | None = None,
    *,
    sizes: Mapping[str, AxisSizes] | None = None,
) -> Examined:
    """What `from_torch` makes of a module, and what it refuses, without an error for that.

    The arguments are those of `from_torch`. Raises ModelError for what is no module, and for an example or sizes that
    do not fit it.
    """
    try:
        walk, graph = walked(module, example, sizes)
    except ModelError as e:
        if not e.refusals:
            raise
        return _not_exported(module, e)  # type: ignore[arg-type]  # no other of walked's errors has refusals
    found = walk.refusals.all
    made = None if found else graph()
    size = _bytes(walk.ep)
    return examined(
        walk.title, size, _version(), _outcomes(walk), found, walk.inputs, walk.weights.values(), made
    )  # fmt: skip


def _not_exported(module: Module | ExportedProgram, e: NotExportedError) -> Examined:
    """The report of a module of which there is no program: its inputs, and the refusal."""
    from lstm_ir.importers.torch.tensors import dtype_of

    given = [parameter(name, TensorType(shape, dtype_of(dtype))) for name, shape, dtype in e.inputs]
    return examined(e.title, _bytes(module), _version(), (), (e.refusal,), given, (), None)


def _bytes(held: Any) -> int:
    """Of the state of a module or a program."""
    state = held.state_dict() if callable(held.state_dict) else held.state_dict
    return sum(v.numel() * v.element_size() for v in state.values())


def _version() -> str:
    import torch

    return f"PyTorch {torch.__version__}"


def _outcomes(walk: Walk) -> Iterator[tuple[str, Outcome | None]]:
    """Op and outcome of each node, those of bodies too; sizes and parts of results are no ops."""
    import torch

    from lstm_ir.importers.torch.functional import nodes_of, op_name

    sizes = (torch.SymInt, torch.SymFloat, torch.SymBool)
    for n in nodes_of(walk.ep.graph_module):
        called = n.op == "call_function" and n.target is not operator.getitem
        if called and not isinstance(n.meta.get("val"), sizes):
            yield op_name(n.target), walk.outcomes.get(n)
