"""onnxruntime's `DynamicQuantizeLSTM`, against onnxruntime on one thread and the equations in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import exported_models as em
import numpy as np
import onnx_models as om
import pytest
import quantized_lstm
from device import need
from quantized_lstm import EachRow, InPairs, Quantized, of_onnxruntime

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve

T, B, I, H = 6, 3, 5, 7
SCALES = ("W_scale", "W_zero_point", "R_scale", "R_zero_point")
NAMES = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P", *SCALES)
FED = ("X", "sequence_lens", "initial_h", "initial_c")
MARGIN = 1e-4  # of one integer: nearer to the middle between two, either is right
TOLERANCE = 3e-6
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "unsigned": {"dtype": np.uint8},
    "scales of columns": {"columns": True, "zero": False, "more": ("B",)},
    "unsigned columns": {"columns": True, "zero": False, "dtype": np.uint8},
    "states and peepholes": {"more": ("B", "initial_h", "initial_c", "P")},
    "reverse": {"attrs": {"direction": "reverse"}},
    "both ways": {"attrs": {"direction": "bidirectional"}, "more": ("B", "initial_h", "initial_c")},
    "lengths": {"more": ("sequence_lens", "B")},
    "lengths backwards": {"attrs": {"direction": "reverse"}, "more": ("sequence_lens", "B", "initial_h", "initial_c")},
    "lengths both ways": {
        "attrs": {"direction": "bidirectional"},
        "more": ("sequence_lens", "B", "initial_h", "initial_c"),
    },
    "clip": {"attrs": {"clip": 0.4}, "more": ("B",)},
    "input_forget": {"attrs": {"input_forget": 1}, "more": ("B", "P", "initial_c")},
}


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


def drawn(case: dict[str, Any], rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    attrs = {"hidden_size": H, "direction": "forward"} | case.get("attrs", {})
    D = 2 if attrs["direction"] == "bidirectional" else 1
    dtype = np.dtype(case.get("dtype", np.int8))
    info = np.iinfo(dtype)
    arrays: dict[str, Any] = {"X": rng.normal(size=(T, B, I)).astype("f4") + np.float32(0.3)}
    for name, rows in (("W", I), ("R", H)):
        shape = (D, 4 * H) if case.get("columns") else (D,)
        middle = rng.integers(-9, 10, shape) + (128 if info.min == 0 else 0)
        arrays[name] = rng.integers(info.min, info.max + 1, (D, rows, 4 * H)).astype(dtype)
        arrays[f"{name}_scale"] = (0.002 + 0.003 * rng.random(shape)).astype("f4")
        arrays[f"{name}_zero_point"] = (middle * case.get("zero", True)).astype(dtype)
    some = {
        "B": (D, 8 * H), "P": (D, 3 * H), "initial_h": (D, B, H), "initial_c": (D, B, H)
    }  # fmt: skip
    for name in case.get("more", ()):
        if name == "sequence_lens":
            arrays[name] = rng.permutation(np.array([T - 1, 2, T - 3], "i4"))
        else:
            arrays[name] = rng.normal(size=some[name]).astype("f4")
    return arrays, attrs


def settled(
    case: dict[str, Any], rng: np.random.Generator, *products: type[Quantized], margin: float = MARGIN
) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """Arrays none of whose numbers is near the middle between two integers, and the results by each of `products`."""
    for _ in range(200):
        arrays, attrs = drawn(case, rng)
        made = [quantized_lstm.run(arrays, attrs, p) for p in products]
        if min(found for _, found in made) > margin:
            return arrays, attrs, [want for want, _ in made]
    raise AssertionError("every draw was near a tie")


def model(arrays: dict[str, Any], attrs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from onnx import helper

    inputs = [n if n in arrays else "" for n in NAMES]
    node = om.node("DynamicQuantizeLSTM", inputs, ["Y", "Y_h", "Y_c"], domain="com.microsoft", **attrs)
    fed = {n: arrays[n] for n in FED if n in arrays}
    named: dict[str, list[Any]] = {"X": ["T", "B", I], "sequence_lens": ["B"]}
    infos = {n: (named.get(n, [len(a), "B", H]), a.dtype) for n, a in fed.items()}
    made = om.model([node], infos, ["Y", "Y_h", "Y_c"], {n: a for n, a in arrays.items() if n not in fed}, 17)
    made.opset_import.extend([helper.make_opsetid("com.microsoft", 1)])
    return made, fed


def near(found: Any, wanted: Any) -> None:
    for got, want in zip(found, wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, atol=TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_by_the_meaning(name: str, rng: np.random.Generator) -> None:
    """The equations are onnxruntime's, but for how this processor sums, and so is the graph."""
    arrays, attrs, (want, there) = settled(CASES[name], rng, Quantized, of_onnxruntime())
    made, fed = model(arrays, attrs)
    near(om.run(made, fed), there)
    near(li.interpret(li.from_onnx(made), fed).values(), want)


@pytest.mark.slow_cases(name=[n for n in CASES if n != "lengths both ways"])
@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str, rng: np.random.Generator) -> None:
    arrays, attrs, (want,) = settled(CASES[name], rng, Quantized)
    made, fed = model(arrays, attrs)
    with li.compile(li.from_onnx(made)) as exe:
        near(exe(**fed).values(), want)


@pytest.mark.slow_cases(name=[n for n in CASES if n not in ("unsigned columns", "lengths both ways")])
@pytest.mark.parametrize("name", CASES)
def test_as_kernels(name: str, rng: np.random.Generator) -> None:
    """int8-dynamic: each row has a range of its own, and every loop is a kernel."""
    arrays, attrs, (want,) = settled(CASES[name], rng, EachRow, margin=1e-5)
    made, fed = model(arrays, attrs)
    graph, options = li.from_onnx(made), {"precision": "int8-dynamic"}
    with li.compile(graph, options=options) as exe:
        near(exe(**fed).values(), want)
    notes = prepare(graph, resolve("cpu"), options).report.notes
    assert notes
    assert all("kernel" in line and "loop:" not in line for line in notes), notes


@pytest.mark.parametrize("word", ["int8", "int8-dynamic"])
def test_a_layer_of_dequantized_weights(word: str, rng: np.random.Generator) -> None:
    """LSTM over DequantizeLinear: the loop reads int8, near the weights of the file."""
    arrays: dict[str, Any] = {n: rng.integers(-127, 128, (1, 4 * H, k)).astype("i1") for n, k in (("W", I), ("R", H))}
    scales = {f"{n}_scale": rng.uniform(0.001, 0.003, 4 * H).astype("f4") for n in arrays}
    nodes = [om.node("DequantizeLinear", [n, f"{n}_scale"], [f"{n}_wide"], name=n, axis=1) for n in arrays]
    nodes.append(om.node("LSTM", ["X", "W_wide", "R_wide"], ["Y"], hidden_size=H))
    made = om.model(nodes, {"X": (["T", "B", I], "f4")}, ["Y"], {**arrays, **scales})
    x = rng.standard_normal((T, B, I)).astype("f4")
    (want,) = om.run(made, {"X": x})
    graph, options = li.from_onnx(made), {"precision": word}
    with li.compile(graph, options=options) as exe:
        np.testing.assert_allclose(exe(X=x)["Y"], want, atol=0.01)
    lowered = prepare(graph, resolve("cpu"), options)
    assert all(": kernel" in line for line in lowered.report.notes)
    loops = [n for n in lowered.report.steps["main"][-1].after.nodes if n.op.name == "scan"]
    matrices = [str(c.type) for n in loops for c in n.arg("consts") if c.rank == 2]  # type: ignore[union-attr]
    assert sorted(matrices) == [f"i8[{4 * H},{I}]", f"i8[{4 * H},{H}]"]


def test_zero_points_of_columns(rng: np.random.Generator) -> None:
    """onnxruntime refuses those that are not 0; the equations say what they mean."""
    arrays, attrs, (want,) = settled({"columns": True, "more": ("B",)}, rng, Quantized)
    made, fed = model(arrays, attrs)
    near(li.interpret(li.from_onnx(made), fed).values(), want)


def test_zeros_alone(rng: np.random.Generator) -> None:
    """A range of 0 has the scale 1."""
    arrays, attrs = drawn({"more": ("B",)}, rng)
    arrays["X"] *= 0
    made, fed = model(arrays, attrs)
    want, margin = quantized_lstm.run(arrays, attrs)
    there, margin_there = quantized_lstm.run(arrays, attrs, of_onnxruntime())
    assert min(margin, margin_there) > MARGIN
    near(om.run(made, fed), there)
    near(li.interpret(li.from_onnx(made), fed).values(), want)


def test_verify_says_where_onnxruntime_is_not_exact(rng: np.random.Generator) -> None:
    arrays, attrs, _ = settled({}, rng, Quantized)
    made, _ = model(arrays, attrs)
    found = li.verify(li.from_onnx(made), against=made, calls=1, seconds=0.0, cold=False)
    said = found.original.endswith("whose products of u8 and i8 are not exact on this processor")
    assert said == (of_onnxruntime() is InPairs)


def test_what_the_quantizer_of_onnxruntime_writes(tmp_path: Path) -> None:
    """A model of PyTorch, its LSTM and dense layer quantized, over open sizes; few numbers, none of them near a tie."""
    need("torch")
    rng = np.random.default_rng(3)
    from onnxruntime.quantization import QuantType, quantize_dynamic

    made = em.built("amplifier", 3)
    (tmp_path / "whole.onnx").write_bytes(made.exported("trace", 17, np.random.default_rng(3)))
    files = (tmp_path / "whole.onnx", tmp_path / "small.onnx")
    narrow = of_onnxruntime() is InPairs  # weights of 7 bits, whose products do not saturate there
    quantize_dynamic(*files, weight_type=QuantType.QInt8, reduce_range=narrow)
    data = (tmp_path / "small.onnx").read_bytes()
    assert b"DynamicQuantizeLSTM" in data
    g = li.from_onnx(data)
    for sizes in ({"T": 4, "B": 2}, {"T": 5, "B": 1}):
        given = made.arrays(sizes, rng)
        got, want = li.interpret(g, given), om.run_bytes(data, given)
        for a, b in zip(got.values(), want, strict=True):
            np.testing.assert_allclose(a, b, atol=TOLERANCE)


def _columns(arrays: dict[str, Any]) -> None:
    arrays["W_scale"] = np.ones((1, 5), "f4")


def _wide(arrays: dict[str, Any]) -> None:
    arrays["R"] = arrays["R"].astype("i4")


def _other(arrays: dict[str, Any]) -> None:
    arrays["R_zero_point"] = arrays["R_zero_point"].astype("u1")


def _rows(arrays: dict[str, Any]) -> None:
    arrays["W"] = arrays["W"][:, 1:]


REFUSED = [
    (_columns, r"the scale of W is f32\[1,5\], expected \[1,28\]"),
    (_wide, r"R is i32\[1,7,28\] with a scale f32\[1\], not i8 or u8 with f32"),
    (_other, r"the zero point of R is u8\[1\], R i8\[1,7,28\]"),
    (_rows, r"W is i8\[1,4,28\], expected \[1,5,28\]"),
]


@pytest.mark.parametrize(("damage", "why"), REFUSED, ids=[d.__name__ for d, _ in REFUSED])
def test_refused(damage: Any, why: str, rng: np.random.Generator) -> None:
    arrays, attrs = drawn({}, rng)
    damage(arrays)
    with pytest.raises(li.ModelError, match=why):
        li.from_onnx(model(arrays, attrs)[0])
    for name, value in (("clip", 0.0), ("direction", "backward"), ("hidden_size", 8), ("layout", 1)):
        arrays, attrs = drawn({}, rng)
        with pytest.raises(li.ModelError, match=name):
            li.from_onnx(model(arrays, attrs | {name: value})[0])
