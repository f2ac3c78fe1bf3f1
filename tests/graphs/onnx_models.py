"""Small ONNX models, built node by node, and what onnxruntime gives for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Shape = Sequence["int | str | None"]


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], *, name: str = "", domain: str = "", **attrs: Any
) -> Any:
    """One node; it is called `the_<op>` unless it has a name."""
    from onnx import helper

    return helper.make_node(op, list(inputs), list(outputs), name=name or f"the_{op}", domain=domain, **attrs)


def value_info(name: str, shape: Shape | None, dtype: Any = np.float32) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def tensor(array: Any, name: str = "literal") -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.asarray(array), name)


def graph(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[Shape, Any]],
    outputs: Sequence[str],
    initializers: Mapping[str, Any] | None = None,
) -> Any:
    """A GraphProto; inputs are (shape, dtype), outputs state nothing but a name."""
    from onnx import ValueInfoProto, helper, numpy_helper

    results = [ValueInfoProto(name=n) for n in outputs]
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in (initializers or {}).items()]
    return helper.make_graph(list(nodes), "g", [value_info(n, *s) for n, s in inputs.items()], results, weights)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[Shape, Any]],
    outputs: Sequence[str],
    initializers: Mapping[str, Any] | None = None,
    opset: int = 22,
    functions: Sequence[Any] = (),
) -> Any:
    """A ModelProto of one graph."""
    from onnx import helper

    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in {f.domain for f in functions})]
    return helper.make_model(
        graph(nodes, inputs, outputs, initializers), opset_imports=opsets, ir_version=10, functions=list(functions)
    )


def asks_for_a_size() -> Any:
    """A model of x, T by 3, whose If has the condition that T is 5."""
    then, other = (graph([node(op, ["x"], [op])], {}, [op]) for op in ("Neg", "Abs"))
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "first"], ["T"]),
        node("Equal", ["T", "five"], ["is"]),
        node("If", ["is"], ["y"], then_branch=then, else_branch=other),
    ]  # fmt: skip
    return model(nodes, {"x": (["T", 3], "f4")}, ["y"], {"first": np.array(0), "five": np.array(5)})


def run(made: Any, arrays: Mapping[str, Any]) -> list[Any]:
    """onnxruntime's results in order."""
    return run_bytes(made.SerializeToString(), arrays)


def run_bytes(data: bytes, arrays: Mapping[str, Any]) -> list[Any]:
    """The same of a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, dict(arrays))
    return found


def typed(graph: Any, **outputs: Any) -> Any:
    """onnxruntime wants types of a body's results."""
    del graph.output[:]
    graph.output.extend(value_info(n, s, d) for n, (s, d) in outputs.items())
    return graph
