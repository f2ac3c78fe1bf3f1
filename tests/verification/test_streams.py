"""Programs that keep state beside originals that keep none: in parts, and frame by frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_models as om
import onnx_streams
import pytest
from device import model_file, need

import lstm_ir as li
from lstm_ir.cli import group
from lstm_ir.importers.original import CallableOriginal
from lstm_ir.verification.streams import verify_frames, verify_parts

Arrays = Mapping[str, Any]
Capture = pytest.CaptureFixture[str]
SILERO = ["--constant", "sr=16000", "--size", "input_0=B", "--size", "input_1=576"]
REAL = {
    "dtln1.onnx": ["--state", "input_3=tf_op_layer_stack_2"],
    "dtln2.onnx": ["--state", "input_5=tf_op_layer_stack_5"],
    "silero.onnx": [*SILERO, "--state", "state=stateN"],
    "zoo_rnnoise.onnx": ["--state", "h1=92", "--state", "h2=157", "--state", "h3=222"],
}


def leaky() -> li.Program:
    """h1 = h / 2 + x, [B, 3]."""
    x, h = li.input("x", ("B", 3)), li.input("h", ("B", 3))
    return li.stateful(li.Graph("leaky", [x, h], {"y": x - h, "h1": h * 0.5 + x}), {"h": "h1"})


@pytest.mark.parametrize("fault", ["none", "forgets", "output", "last state"])
def test_frame_by_frame(fault: str) -> None:
    """The state of the original goes from frame to frame; a difference in an output or in a state is found."""

    def original(arrays: Arrays) -> dict[str, Any]:
        x, h = arrays["x"], arrays["h"]
        before = 0 * h if fault == "forgets" else h
        after = before / 2 + x
        return {
            "y": x - before + np.float32(fault == "output"),
            "h1": after + np.float32(fault == "last state" and bool(h.any())),
        }

    program = leaky()
    with li.compile(program) as exe:
        found = verify_frames(exe, program.entries["step"], CallableOriginal(original), {"h": "h1"})
    assert found.ok is (fault == "none"), str(found)
    assert [o.name for o in found.outputs] == ["y", "h1"]
    assert max(c.sizes["frames"] for c in found.cases) > 1
    assert found.name == "leaky frame by frame"


def test_frame_by_frame_of_a_size_that_is_called_frames() -> None:
    x, h = li.input("x", ("frames", 3)), li.input("h", ("frames", 3))
    program = li.stateful(li.Graph("g", [x, h], {"y": x - h, "h1": h + x}), {"h": "h1"})
    with li.compile(program) as exe:
        found = verify_frames(
            exe, program.entries["step"],
            CallableOriginal(lambda a: {"y": a["x"] - a["h"], "h1": a["h"] + a["x"]}), {"h": "h1"},
        )  # fmt: skip
    assert found.ok
    assert set(found.cases[0].sizes) == {"frames_", "frames"}


@pytest.mark.parametrize("fault", ["none", "starts anew"])
def test_in_parts(fault: str) -> None:
    """Running sums in parts, beside those of a whole recording; one that starts anew in its middle differs."""
    x, h = li.input("x", ("B", "T", 3)), li.input("h", ("B", 3))
    last, (y,) = li.scan(lambda h, x: ((h[0] + x[0],), (h[0] + x[0],)), (h,), (x.transpose(1, 0, 2),))
    graph = li.Graph("sums", [x, h], {"y": y.transpose(1, 0, 2), "h1": last[0], "two": li.constant(np.float32(2))})
    program = li.stateful(graph, {"h": "h1"})

    def original(arrays: Arrays) -> dict[str, Any]:
        y = np.cumsum(arrays["x"], 1, dtype=np.float32)
        if fault == "starts anew" and y.shape[1] > 1:
            y[:, -1] = arrays["x"][:, -1]
        return {"y": y, "two": np.float32(2)}

    with li.compile(program) as exe:
        found = verify_parts(exe, program.entries["step"], CallableOriginal(original), "T")
    assert found.ok is (fault == "none"), str(found)
    assert [o.name for o in found.outputs] == ["y", "two"]
    assert max(c.sizes["T"] for c in found.cases) > 1


@pytest.mark.slow_cases(case=[1, 2])
@pytest.mark.parametrize("case", range(3))
def test_import_checks_a_stream_that_it_found(
    case: int, rng: np.random.Generator, tmp_path: Any, capsys: Capture
) -> None:
    """The original whole, ours in parts, of random causal models; a call takes a multiple of so many frames."""
    need("onnx", "onnx_ir", "onnxruntime")
    while True:
        c = onnx_streams.chain(rng, 5)
        if "layer" in c.blocks and {"strided_conv", "causal_conv"} & set(c.blocks):
            break
    (tmp_path / "m.onnx").write_bytes(c.made().SerializeToString())
    assert group.run(["import", str(tmp_path / "m.onnx"), "--stateful", "--check"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("kept ") for line in said)
    assert said[-1].startswith("g in parts: equal to m.onnx by onnxruntime")
    assert group.run(["import", str(tmp_path / "m.onnx"), "--stateful", "--check", "--precision", "int8"]) == 1
    assert "g in parts: NOT equal to m.onnx" in capsys.readouterr().out


def test_import_checks_a_stream_whose_states_are_named(
    rng: np.random.Generator, tmp_path: Any, capsys: Capture
) -> None:
    need("onnx", "onnx_ir", "onnxruntime")
    w = {n: rng.standard_normal(s).astype("f4") for n, s in {"w": (1, 12, 3), "r": (1, 12, 4)}.items()}
    layer = om.node("GRU", ["x", "w", "r", "", "", "h"], ["y", "n"], hidden_size=4)
    inputs: dict[str, Any] = {"x": (["T", "B", 3], np.float32), "h": ([1, "B", 4], np.float32)}
    (tmp_path / "m.onnx").write_bytes(om.model([layer], inputs, ["y", "n"], w).SerializeToString())
    words = ["import", str(tmp_path / "m.onnx"), "--state", "h=n", "--check"]
    assert group.run(words) == 0
    assert "g frame by frame: equal to m.onnx by onnxruntime" in capsys.readouterr().out
    assert group.run([*words, "--json"]) == 0
    assert "g frame by frame: equal to m.onnx by onnxruntime" in capsys.readouterr().err
    assert group.run([*words, "--precision", "int8"]) == 1
    assert "g frame by frame: NOT equal" in capsys.readouterr().out


@pytest.mark.slow_cases(file=["dtln2.onnx", "silero.onnx", "zoo_rnnoise.onnx"])
@pytest.mark.parametrize("file", REAL)
def test_import_checks_real_streams(file: str, capsys: Capture) -> None:
    need("onnx", "onnx_ir", "onnxruntime")
    assert group.run(["import", str(model_file(file)), *REAL[file], "--check"]) == 0
    assert f"frame by frame: equal to {file} by onnxruntime" in capsys.readouterr().out
