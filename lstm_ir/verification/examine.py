"""`li.examine`: the report of a foreign model, as `lstm-ir import` prints it for files, for live models too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lstm_ir.importers.examined import Examined, planned
from lstm_ir.importers.kinds import kind_of
from lstm_ir.ir.errors import ModelError


def examine(model: Any, *example: Any, target: str | None = "cpu", **options: Any) -> Examined:
    """What an importer takes of a model and what it refuses, without an error for that: `report`, and `graph`.

    model: a file, or a live model of Keras, module of PyTorch with an example, ONNX model. options: those of
    `from_onnx`, `from_keras`, `from_tf` and `from_torch`. target: for which the report says how recurrences run; None
    plans nothing. `print(found)` gives one screen. Raises ModelError for what no importer reads.
    """
    kind = kind_of(model)
    if kind is None:
        raise ModelError(f"examine: {type(model).__name__} is no model of ONNX, Keras, TensorFlow or PyTorch")
    found = kind.functions().examine(model, *example, **options)
    if found.graph is None or target is None:
        return found
    return replace(found, report=plan(found, target, {}))


def plan(examined: Examined, word: str, options: Mapping[str, Any]) -> Any:
    """The report of a graph that is taken, with how each recurrence runs on a target."""
    from lstm_ir.api import prepare  # passes and the module, only where a plan is asked for
    from lstm_ir.backends.run.devices import resolve  # IREE's runtime, likewise

    assert examined.graph is not None
    target = resolve(word)
    lowered = prepare(examined.graph, target, options, helpers=True)
    steps = [s for s in lowered.report.steps["main"] if s.name == "fuse-cell"]
    cells = steps[-1].after if steps else examined.graph
    return planned(examined.report, word, cells, lowered.report.notes, options.get("kernels", target.info.kernels))
