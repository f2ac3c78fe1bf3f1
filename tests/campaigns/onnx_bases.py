"""Sound ONNX models of every kind that an importer meets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_models as om

SEED = 11
Info = tuple[list[Any], str]
ANY: Info = ([], "i8")
BOOL: Info = ([], "?")


def models() -> dict[str, Any]:
    """ModelProtos by name."""
    rng = np.random.default_rng(SEED)
    return {
        **{op.lower(): recurrent(op, rng) for op in ("LSTM", "GRU", "RNN")},
        "lengths": recurrent("LSTM", rng, lengths=True),
        "quantized": quantized(rng),
        "front": front(rng),
        "shapes": shapes(rng),
        "indices": indices(rng),
        "numbers": numbers(rng),
        "loop": loop(rng),
        "scan": scan(),
        "sequences": sequences(),
        "branches": branches(),
        "functions": functions(),
        "external": external(rng),
    }


def sequences() -> Any:
    """Sequences outside of loops, and one that a loop makes longer."""
    from onnx import TensorProto, helper

    row: Info = (["B", 4], "f4")
    steps = [
        om.node("Identity", ["go"], ["on"]), om.node("SequenceAt", ["rows", "i"], ["row"]),
        om.node("Add", ["h", "row"], ["new"]), om.node("SequenceInsert", ["s", "new"], ["longer"]),
    ]  # fmt: skip
    body = om.graph(steps, {"i": ANY, "go": BOOL, "h": row}, ["on", "new", "longer"])
    body.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    body = om.typed(body, on=BOOL, new=row)
    body.output.append(helper.make_tensor_sequence_value_info("longer", TensorProto.FLOAT, None))
    nodes = [
        om.node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0), om.node("SequenceLength", ["rows"], ["T"]),
        om.node("SequenceEmpty", [], ["s0"]), om.node("Loop", ["T", "yes", "h0", "s0"], ["h", "s"], body=body),
        om.node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
        om.node("SequenceConstruct", ["h", "h0"], ["two"]), om.node("SequenceInsert", ["two", "h", "one"], ["three"]),
        om.node("SequenceErase", ["three", "one"], ["back"]), om.node("SequenceAt", ["back", "one"], ["z"]),
        om.node("ConcatFromSequence", ["back"], ["w"], name="joined", axis=1),
    ]  # fmt: skip
    weights = {"one": np.array(1), "yes": np.array(True)}
    return om.model(nodes, {"x": (["T", "B", 4], "f4"), "h0": row}, ["y", "z", "w"], weights)


def floats(rng: np.random.Generator, *shape: int) -> Any:
    return (0.5 * rng.standard_normal(shape)).astype("f4")


def recurrent(op: str, rng: np.random.Generator, lengths: bool = False) -> Any:
    """A layer both ways over open sizes, and a dense layer over its rows."""
    G, H, I = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 4, 3
    weights = {"W": floats(rng, 2, G * H, I), "R": floats(rng, 2, G * H, H), "B": floats(rng, 2, 2 * G * H)}
    weights |= {"V": floats(rng, 2 * H, 5), "shape": np.array([0, 0, -1])}
    inputs: dict[str, Any] = {"x": (["T", "B", I], "f4")}
    operands = ["x", "W", "R", "B"]
    if lengths:
        inputs["n"] = (["B"], "i4")
        operands.append("n")
    nodes = [
        om.node(op, operands, ["y", "h"], hidden_size=H, direction="bidirectional"),
        om.node("Transpose", ["y"], ["t"], perm=[0, 2, 1, 3]), om.node("Reshape", ["t", "shape"], ["rows"]),
        om.node("MatMul", ["rows", "V"], ["z"]), om.node("Softmax", ["z"], ["p"], axis=-1),
    ]  # fmt: skip
    return om.model(nodes, inputs, ["p", "h"], weights, 17)


def quantized(rng: np.random.Generator) -> Any:
    from onnx import helper

    H, I = 4, 3
    weights = {
        "W": rng.integers(-99, 99, (1, I, 4 * H)).astype("i1"), "R": rng.integers(-99, 99, (1, H, 4 * H)).astype("i1"),
        "s": np.array([0.01], "f4"), "z": np.array([3], "i1"), "q": rng.integers(-9, 9, (4, 5)).astype("i1"),
    }  # fmt: skip
    nodes = [
        om.node("DynamicQuantizeLSTM", ["x", "W", "R", "", "", "", "", "", "s", "z", "s", "z"], ["y"], hidden_size=H,
                domain="com.microsoft"),
        om.node("DynamicQuantizeLinear", ["y"], ["u", "us", "uz"]), om.node("MatMulInteger", ["u", "q", "uz"], ["i"]),
        om.node("Cast", ["i"], ["f"], to=1), om.node("Mul", ["f", "us"], ["out"]),
    ]  # fmt: skip
    made = om.model(nodes, {"x": (["T", "B", I], "f4")}, ["out"], weights, 17)
    made.opset_import.extend([helper.make_opsetid("com.microsoft", 1)])
    return made


def front(rng: np.random.Generator) -> Any:
    """Convolutions, norms and pools."""
    weights = {
        "k": floats(rng, 4, 2, 3),
        "b": floats(rng, 4),
        "u": floats(rng, 4, 3, 4),
        "m": np.abs(floats(rng, 4)) + 1,
    }
    nodes = [
        om.node("Conv", ["x", "k", "b"], ["c"], pads=[1, 1], strides=[2]),
        om.node("BatchNormalization", ["c", "b", "b", "b", "m"], ["n"]), om.node("LeakyRelu", ["n"], ["r"], alpha=0.2),
        om.node("ConvTranspose", ["r", "u"], ["t"], strides=[2], pads=[1, 1]),
        om.node("MaxPool", ["t"], ["p"], kernel_shape=[2], strides=[2]),
        om.node("AveragePool", ["t"], ["a"], kernel_shape=[3], strides=[1], ceil_mode=0),
        om.node("GlobalAveragePool", ["a"], ["g"]),
    ]  # fmt: skip
    return om.model(nodes, {"x": (["B", 2, 12], "f4")}, ["p", "g"], weights, 17)


def shapes(rng: np.random.Generator) -> Any:
    """Sizes through arithmetic to what makes shapes of them."""

    def one(*v: int) -> Any:
        return np.array(v, np.int64)

    weights = {
        "zero": one(0),
        "one": one(1),
        "two": one(2),
        "minus": one(-1),
        "five": one(5),
        "w": floats(rng, 1, 1, 5),
    }
    nodes = [
        om.node("Shape", ["x"], ["s"]), om.node("Gather", ["s", "zero"], ["B"]),
        om.node("Slice", ["s", "one", "two"], ["T"], name="slice_sizes"), om.node("Mul", ["B", "T"], ["BT"]),
        om.node("Concat", ["BT", "five"], ["flat"], axis=0), om.node("Reshape", ["x", "flat"], ["rows"]),
        om.node("Concat", ["B", "T", "five"], ["wide"], axis=0, name="concat_wide"),
        om.node("Expand", ["w", "wide"], ["e"]), om.node("Add", ["x", "e"], ["a"]),
        om.node("ConstantOfShape", ["flat"], ["zeros"]), om.node("Sub", ["rows", "zeros"], ["r"]),
        om.node("Slice", ["a", "one", "minus", "two"], ["cut"], name="slice_rows"),
        om.node("Split", ["a"], ["left", "right"], axis=2, num_outputs=2), om.node("Tile", ["r", "pair"], ["tiled"]),
        om.node("Pad", ["cut", "pads"], ["padded"]), om.node("Unsqueeze", ["left", "zero"], ["u"]),
    ]  # fmt: skip
    weights |= {"pair": one(1, 2), "pads": one(0, 1, 0, 0, 0, 2)}
    return om.model(nodes, {"x": (["B", "T", 5], "f4")}, ["r", "padded", "tiled", "u", "right"], weights, 18)


def indices(rng: np.random.Generator) -> Any:
    weights = {
        "table": floats(rng, 7, 4), "places": np.array([[0, 1], [1, 2]]), "rows": floats(rng, 2, 4),
        "k": np.array([2]), "depth": np.array(7), "pair": floats(rng, 2), "zero": np.array(0),
    }  # fmt: skip
    nodes = [
        om.node("Gather", ["table", "i"], ["g"]), om.node("TopK", ["g", "k"], ["top", "where"]),
        om.node("ArgMax", ["g"], ["best"], axis=-1, keepdims=0), om.node("OneHot", ["i", "depth", "pair"], ["hot"]),
        om.node("CumSum", ["g", "zero"], ["sums"]), om.node("GatherND", ["table", "places"], ["picked"]),
        om.node("ScatterND", ["table", "first", "rows"], ["put"]), om.node("Trilu", ["sums"], ["tri"]),
    ]  # fmt: skip
    weights["first"] = np.array([[0], [3]])
    outputs = ["top", "where", "best", "hot", "tri", "picked", "put"]
    return om.model(nodes, {"i": (["B", 3], "i8")}, outputs, weights, 17)


def numbers(rng: np.random.Generator) -> Any:
    """A chain of arithmetic, comparison and reduction."""
    weights = {"w": floats(rng, 3), "two": np.float32(2), "low": np.float32(-0.5), "axes": np.array([1])}
    nodes = [
        om.node("Mul", ["x", "w"], ["a"]), om.node("Exp", ["a"], ["b"]), om.node("Sqrt", ["b"], ["c"]),
        om.node("Pow", ["c", "two"], ["d"]), om.node("Less", ["x", "w"], ["less"]),
        om.node("Where", ["less", "d", "x"], ["e"]), om.node("Clip", ["e", "low", "two"], ["f"]),
        om.node("ReduceMean", ["f", "axes"], ["g"]), om.node("ReduceMax", ["x", "axes"], ["m"], keepdims=0),
        om.node("LayerNormalization", ["f", "w"], ["h"]), om.node("Gemm", ["h", "v"], ["y"], alpha=0.5),
        om.node("Cast", ["y"], ["i"], to=7), om.node("Einsum", ["x", "v"], ["k"], equation="bi,io->ob"),
    ]  # fmt: skip
    weights["v"] = floats(rng, 3, 4)
    return om.model(nodes, {"x": (["B", 3], "f4")}, ["y", "g", "m", "k"], weights, 18)


def _typed(graph: Any, **outputs: Any) -> Any:
    del graph.output[:]
    graph.output.extend(om.value_info(n, s, d) for n, (s, d) in outputs.items())
    return graph


def loop(rng: np.random.Generator) -> Any:
    state: Info = (["B", 4], "f4")
    nodes = [
        om.node("Identity", ["go"], ["on"]), om.node("Gather", ["x", "i"], ["row"], name="row"),
        om.node("MatMul", ["h", "w"], ["hw"]), om.node("Add", ["hw", "row"], ["s"]), om.node("Tanh", ["s"], ["new"]),
        om.node("Neg", ["new"], ["y"]),
    ]  # fmt: skip
    body = _typed(om.graph(nodes, {"i": ANY, "go": BOOL, "h": state}, ["on", "new", "y"]), on=BOOL, new=state, y=state)
    outer = [
        om.node("Shape", ["x"], ["s_"]), om.node("Gather", ["s_", "zero"], ["T"]),
        om.node("Loop", ["T", "", "h0"], ["h", "ys"], body=body),
    ]  # fmt: skip
    weights = {"w": floats(rng, 4, 4), "zero": np.int64(0)}
    return om.model(outer, {"x": (["T", "B", 4], "f4"), "h0": state}, ["h", "ys"], weights, 17)


def scan() -> Any:
    row: Info = ([3], "f4")
    nodes = [
        om.node("Mul", ["h", "x"], ["a"]),
        om.node("Add", ["a", "x"], ["new"]),
        om.node("Identity", ["new"], ["y"]),
    ]
    body = _typed(om.graph(nodes, {"h": row, "x": row}, ["new", "y"]), new=row, y=row)
    node = om.node("Scan", ["h0", "xs"], ["h", "ys"], body=body, num_scan_inputs=1, scan_input_directions=[1])
    return om.model([node], {"h0": row, "xs": (["T", 3], "f4")}, ["h", "ys"], {}, 17)


def branches() -> Any:
    two: Info = (["N", 2], "f4")
    then = _typed(om.graph([om.node("Add", ["x", "w"], ["a"])], {}, ["a"]), a=two)
    other = _typed(om.graph([om.node("Neg", ["x"], ["b"])], {}, ["b"]), b=two)
    nodes = [
        om.node("Shape", ["x"], ["s"]), om.node("Gather", ["s", "one"], ["n"]), om.node("Less", ["n", "three"], ["c"]),
        om.node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]  # fmt: skip
    weights = {"w": np.ones(2, "f4"), "one": np.int64(1), "three": np.int64(3)}
    return om.model(nodes, {"x": two}, ["y"], weights, 17)


def functions() -> Any:
    from onnx import helper

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    inner = [om.node("Add", ["x", "x"], ["d"]), om.node("LeakyRelu", ["d"], ["y"])]
    calls = [om.node("Half", [a], [b], domain="my", name=b) for a, b in (("x", "h"), ("h", "y"))]
    made = [
        helper.make_function("my", n, ["x"], ["y"], body, opsets) for n, body in (("Half", inner), ("Twice", calls))
    ]
    node = om.node("Twice", ["x"], ["y"], domain="my")
    return om.model([node], {"x": (["N"], "f4")}, ["y"], {}, 17, made)


def external(rng: np.random.Generator) -> Any:
    """16 numbers in another file, which the campaign writes."""
    from onnx import TensorProto

    made = om.model(
        [om.node("MatMul", ["x", "w"], ["y"])], {"x": (["N", 4], "f4")}, ["y"], {"w": floats(rng, 4, 4)}, 17
    )
    (w,) = made.graph.initializer
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data.bin", "offset": "0", "length": "64"}.items():
        w.external_data.add(key=key, value=value)
    return made
