"""An imported model beside what TensorFlow recorded: by the meaning of its ops, compiled, and its gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow_models import Recorded

import lstm_ir as li
from lstm_ir.importers.report import Outcome
from lstm_ir.importers.tensorflow.model import walks

Array = np.ndarray[Any, Any]


def compare(want: Recorded, graph: Any, target: str | None = None, gradients: bool = True, atol: float = 2e-5) -> None:
    """Outputs, and gradients of their sum weighted by the cotangents, as TensorFlow has them."""
    assert isinstance(graph, li.Graph)
    assert set(graph.input_names) == set(want.inputs)
    assert set(graph.output_names) == set(want.outputs)
    found = li.interpret(graph, **want.inputs)
    close(found, want.outputs, atol)
    if target is not None:
        with li.compile(graph, target=target) as exe:
            close(exe(**want.inputs), want.outputs, atol)
    if gradients:
        assert want.gradients
        check_gradients(want, graph, atol)


def check_gradients(want: Recorded, graph: li.Graph, atol: float = 2e-5) -> None:
    """Gradients by input and by weight."""
    made = li.vjp(graph, list(want.cotangents), list(want.gradients), missing="zeros")
    found = li.interpret(made, **want.inputs, **{f"ct_{n}": c for n, c in want.cotangents.items()})
    close({n: found[f"d_{n}"] for n in want.gradients}, want.gradients, 5 * atol)


def taken(want: Recorded, outputs: Sequence[str] | None = None, checkpoint: Any = None) -> set[str]:
    """The ops that the importer takes of a model: those of which a node was built."""
    made = walks(want.path, checkpoint, None, outputs, None, None).values()
    return {node.op for walk in made for node, outcome in walk.outcomes.items() if outcome is Outcome.taken}


def close(found: Mapping[str, Any], want: Mapping[str, Array], atol: float) -> None:
    for name, w in want.items():
        got = np.asarray(found[name])
        assert (got.shape, got.dtype) == (w.shape, w.dtype), name
        scale = max(1.0, float(np.abs(w).max(initial=0))) if w.dtype.kind == "f" else 1.0
        np.testing.assert_allclose(got, w, atol=atol * scale, rtol=0, err_msg=name)


def sizes_agree(want: Recorded, graph: Any, target: str | None = None) -> None:
    """As `compare`, with the calls of other sizes that `more` holds as `NUMBER/NAME`, x among the names."""
    compare(want, graph, target)
    for k in sorted({n.partition("/")[0] for n in want.more}):
        held = {n.partition("/")[2]: a for n, a in want.more.items() if n.startswith(f"{k}/")}
        x = held.pop("x")
        close(li.interpret(graph, x=x), held, 2e-5)
