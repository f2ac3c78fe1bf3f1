"""Real streaming models over a minute of speech: frame by frame, and in one call, beside onnxruntime."""

from __future__ import annotations

import re
import wave
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from device import model_file, need, need_target

import lstm_ir as li

RATE, FRAME, BEFORE = 16000, 512, 64  # of silero: samples of a frame, and of the one before that it sees again
PROBABILITY = 1e-4  # the largest difference of a probability to onnxruntime's
RELATIVE = 2e-5  # of the largest element: of masks, frames of sound, and states, whose cells have no bound
Array = np.ndarray[Any, Any]
TARGETS = ["cpu", pytest.param("vulkan", marks=[pytest.mark.vulkan, pytest.mark.slow])]


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


@cache
def speech() -> Array:
    """[960000] in -1 .. 1."""
    with wave.open(str(model_file("test.wav"))) as f:
        assert (f.getframerate(), f.getnchannels(), f.getsampwidth()) == (RATE, 1, 2)
        return np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float32) / 32768


def run(name: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model_file(name), options, providers=["CPUExecutionProvider"])


def frames() -> Array:
    """[1875, 1, 576]: frames with the last samples of the frame before."""
    whole = speech()
    rows = whole[: len(whole) // FRAME * FRAME].reshape(-1, FRAME)
    before = np.concatenate([np.zeros((1, BEFORE), np.float32), rows[:-1, -BEFORE:]])
    return np.concatenate([before, rows], 1)[:, None]


@cache
def silero() -> tuple[Array, Array]:
    """onnxruntime's probabilities [1875, 1, 1] and last state."""
    session, state, found = run("silero.onnx"), np.zeros((2, 1, 128), np.float32), []
    for x in frames():
        y, state = session.run(None, {"input": x, "state": state, "sr": np.array(RATE)})
        found.append(y)
    return np.array(found), state


SILERO: dict[str, Any] = {"constants": {"sr": RATE}, "sizes": {"input_0": 1, "input_1": FRAME + BEFORE}}


def on(target: str) -> str:
    need_target(target)
    return target


@pytest.mark.parametrize("target", TARGETS)
def test_silero_frame_by_frame(target: str) -> None:
    want, last = silero()
    assert len(want) == 1875
    assert want.min() < 0.1 < 0.9 < want.max()  # there is speech, and there are pauses
    program = li.from_onnx(model_file("silero.onnx"), **SILERO, stateful={"state": "stateN"})
    with li.compile(program, on(target)) as exe:
        step = exe.entries["step"]
        got = np.array([step(input=x)["output"] for x in frames()])
        assert np.abs(got - want).max() <= PROBABILITY
        assert np.abs(exe.state["state"] - last).max() <= PROBABILITY
        exe.entries["reset"]()
        assert np.abs(step(input=frames()[0])["output"] - want[0]).max() <= PROBABILITY


@pytest.mark.parametrize("target", TARGETS)
def test_silero_in_one_call(target: str) -> None:
    """All frames; on Mesa's software driver, where each frame takes a tenth of a second, the first 120."""
    graph = li.from_onnx(model_file("silero.onnx"), **SILERO)
    whole = li.over_time(graph, {"state": "stateN"}, ["input"])
    assert [str(p.type) for p in whole.params] == ["f32[T,1,576]", "f32[2,1,128]"]
    count = 1875 if target == "cpu" else 120
    (want, last), x, zero = silero(), frames()[:count], np.zeros((2, 1, 128), np.float32)
    with li.compile(whole, on(target)) as exe:
        out = exe(input=x, state=zero)
        assert out["output"].shape == (count, 1, 1)
        assert np.abs(out["output"] - want[:count]).max() <= PROBABILITY
        if target == "cpu":
            assert np.abs(out["stateN"] - last).max() <= PROBABILITY
        half = exe(input=x[: count // 3], state=zero)
        rest = exe(input=x[count // 3 :], state=half["stateN"])
        assert np.abs(np.concatenate([half["output"], rest["output"]]) - want[:count]).max() <= PROBABILITY


DTLN = {  # file: input, state, output, state that it becomes
    "dtln1.onnx": ("input_2", "input_3", "activation_2", "tf_op_layer_stack_2"),
    "dtln2.onnx": ("input_4", "input_5", "conv1d_3", "tf_op_layer_stack_5"),
}


def blocks() -> Iterator[Array]:
    """Blocks of 512 samples of the first twenty seconds, each 128 after the one before."""
    whole = speech()[: 20 * RATE]
    for at in range(0, len(whole) - 511, 128):
        yield whole[at : at + 512]


@cache
def dtln(name: str) -> tuple[Array, Array, Array]:
    """What the model gets, and what onnxruntime gives for it frame by frame: x, y, the last state."""
    given, state, made, _ = DTLN[name]
    rows = np.array(list(blocks()))
    if name == "dtln1.onnx":
        rows = np.abs(np.fft.rfft(rows)).astype(np.float32)
    x = rows[:, None, None]
    session, h, found = run(name), np.zeros((1, 2, 128, 2), np.float32), []
    for row in x:
        y, h = session.run([made, DTLN[name][3]], {given: row, state: h})
        found.append(y)
    return x, np.array(found), h


def near(got: Array, want: Array) -> None:
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= RELATIVE * max(1.0, float(np.abs(want).max()))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DTLN)
def test_dtln_frame_by_frame_and_in_one_call(name: str, target: str) -> None:
    given, state, made, becomes = DTLN[name]
    x, want, last = dtln(name)
    assert len(x) == 2497
    zero = np.zeros((1, 2, 128, 2), np.float32)
    with li.compile(li.from_onnx(model_file(name), stateful={state: becomes}), on(target)) as exe:
        got = np.array([exe.entries["step"](**{given: row})[made] for row in x])
        near(got, want)
        near(exe.state[state], last)
    whole = li.over_time(li.from_onnx(model_file(name)), {state: becomes}, [given])
    assert str(whole.params[0].type) == f"f32[T,1,1,{x.shape[-1]}]"
    with li.compile(whole, target) as exe:
        out = exe(**{given: x, state: zero})
        near(out[made], want)
        near(out[becomes], last)


AHEAD = {
    "zoo_rnnoise.onnx": ["/c1/Conv", "/c2/Conv", "/g.0/GRU", "/g.1/GRU", "/g.2/GRU"],  # no padding; states are inputs
    "zoo_tagger_packed.onnx": ["/r/LSTM", "/r/LSTM", "/r/LSTM_1", "/r/LSTM_1"],  # bidirectional, with lengths
    # Reflections of the first steps, of which one is what a convolution sees; rows behind the last step.
    "zoo_encodec_slstm.onnx": ["/Pad", "/c/c.2/Conv", "/o/ConvTranspose"],
}


@pytest.mark.parametrize("name", AHEAD)
def test_real_models_that_are_refused(name: str) -> None:
    with pytest.raises(li.ModelError) as e:
        li.from_onnx(model_file(name), stateful=True)
    assert re.findall(r"^  (\S+) \(", str(e.value), re.MULTILINE) == AHEAD[name]
