"""A module looked at as a whole: what `from_torch` takes of it, without an error for what it refuses."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lstm_ir.importers.examined import Examined, examined
from lstm_ir.importers.report import Outcome
from lstm_ir.importers.torch.model import walked

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

    from lstm_ir.importers.torch.interface import AxisSizes
    from lstm_ir.importers.torch.walk import Walk


def examine(
    module: Module | ExportedProgram,
    example: tuple[Any, ...] | Mapping[str, Any] | None = None,
    *,
    sizes: Mapping[str, AxisSizes] | None = None,
) -> Examined:
    """What `from_torch` makes of a module, and what it refuses, without an error for that.

    The arguments are those of `from_torch`. Raises ModelError for what is no module, for what PyTorch does not export,
    and for sizes that the module fixes.
    """
    walk, graph = walked(module, example, sizes)
    import torch

    found = walk.refusals.all
    made = None if found else graph()
    size = sum(v.numel() * v.element_size() for v in walk.ep.state_dict.values())
    version = f"PyTorch {torch.__version__}"
    return examined(
        walk.title, size, version, _outcomes(walk), found, walk.inputs, walk.weights.values(), made
    )  # fmt: skip


def _outcomes(walk: Walk) -> Iterator[tuple[str, Outcome | None]]:
    """Op and outcome of each node, those of bodies too; sizes and parts of results are no ops."""
    import torch

    from lstm_ir.importers.torch.functional import nodes_of, op_name

    sizes = (torch.SymInt, torch.SymFloat, torch.SymBool)
    for n in nodes_of(walk.ep.graph_module):
        called = n.op == "call_function" and n.target is not operator.getitem
        if called and not isinstance(n.meta.get("val"), sizes):
            yield op_name(n.target), walk.outcomes.get(n)
