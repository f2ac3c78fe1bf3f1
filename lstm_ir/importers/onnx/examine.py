"""An ONNX model looked at as a whole: what `from_onnx` takes of it, without an error for what it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lstm_ir.importers.examined import Examined, examined
from lstm_ir.importers.onnx.interface import Bindings
from lstm_ir.importers.onnx.model import Walk, walked
from lstm_ir.importers.onnx.reading import model_bytes, read
from lstm_ir.importers.report import Outcome
from lstm_ir.ir.types import DimLike

if TYPE_CHECKING:
    from lstm_ir.importers.onnx.reading import Model


def examine(
    model: Model, *, constants: Mapping[str, Any] | None = None, sizes: Mapping[str, DimLike] | None = None
) -> Examined:
    """What `from_onnx` makes of a model, and what it refuses, without an error for that.

    The arguments are those of `from_onnx`. Raises ModelError for what is no model, and for names of constants
    and sizes that the model does not have.
    """
    source = read(model)
    walk = walked(source, Bindings(source, constants or {}, sizes or {}))
    refusals = walk.refusals.all
    graph = None if refusals else walk.graph()
    size, version = model_bytes(model, source), f"operator set {source.opset}"
    return examined(
        source.file, size, version, _outcomes(walk), refusals, walk.inputs, walk.weights.values(), graph
    )  # fmt: skip


def _outcomes(walk: Walk) -> Iterator[tuple[str, Outcome | None]]:
    """Op and outcome of each node; the same node of a loop's body counts once."""
    for n in walk.source.model.graph.all_nodes():
        name = n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}"
        yield name, walk.outcomes.get(n)
