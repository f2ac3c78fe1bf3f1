"""Gradients of imported models in f64, beside central differences of their meaning; of a case one node at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_models as om
from onnx_cases import Case, model_of

import lstm_ir as li

STEP = 1e-5
CLOSE = 1e-6  # of the largest slope: differences of f64 at this step are right to 1e-9 of values near 1
Arrays = dict[str, Any]


def wide(made: Any) -> Any:
    """The model with f64 in the place of f32, for its inputs and its literals."""
    from onnx import TensorProto, numpy_helper

    for v in made.graph.input:
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = TensorProto.DOUBLE
    for t in made.graph.initializer:
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(om.tensor(numpy_helper.to_array(t).astype("f8"), t.name))
    return made


def loss_of(graph: li.Graph) -> li.Graph | None:
    """The sum of squares of the outputs that are floats; None where none is."""
    floats = [v for v in graph.outputs if v.dtype.is_float]
    if not floats:
        return None
    total = li.sum(floats[0] * floats[0])
    for v in floats[1:]:
        total = total + li.sum(v * v)
    return li.Graph("squares", graph.params, {"loss": total})


def compare_gradient(case: Case, rng: np.random.Generator) -> None:
    """The slopes of a node, at the newest of its versions and with named sizes; of one that gives no floats nothing."""
    made, narrow = model_of(case, case.opsets[-1], True, rng)
    fed = {n: _apart(case.op, a.astype("f8")) for n, a in narrow.items()}
    loss = loss_of(li.from_onnx(wide(made)))
    if loss is None or not fed:
        return
    compare_slopes(loss, fed, rng, str(case))


def compare_slopes(loss: li.Graph, fed: Arrays, rng: np.random.Generator, what: str) -> None:
    """Slopes of a loss along a random direction through each input of floats."""
    names = [n for n, a in fed.items() if a.dtype.kind == "f"]
    found = li.interpret(li.grad(loss, "loss", names, missing="zeros"), fed)
    largest = max(float(np.abs(found[f"d_{n}"]).max(initial=1)) for n in names)
    for name in names:
        a = fed[name]
        assert found[f"d_{name}"].shape == a.shape
        along = rng.standard_normal(a.shape)
        ahead, back = (li.interpret(loss, {**fed, name: a + s * STEP * along})["loss"] for s in (1, -1))
        slope, got = (ahead - back) / (2 * STEP), np.sum(found[f"d_{name}"] * along)
        assert abs(slope - got) <= CLOSE * largest * a.size**0.5, (what, name, slope, got)


def _apart(op: str, a: Any) -> Any:
    """Numbers where the function of an op is smooth: not near 0, a step of Round, or the ends of Asin."""
    if op in ("Asin", "Acos"):
        return np.tanh(a) * 0.9
    return np.round(a * 4) / 4 + 0.1 if op in ("Ceil", "Floor", "Round") else a + np.copysign(0.05, a)
