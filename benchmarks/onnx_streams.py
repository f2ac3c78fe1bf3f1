"""A streaming ONNX model beside onnxruntime: one frame a call, and the whole recording in one call.

    pip install 'lstm-ir[onnx,oracles]'
    python benchmarks/onnx_streams.py silero_vad.onnx --wav speech.wav

onnxruntime runs the same file frame by frame, on one thread, which is what it can do with it; in the
row "whole recording" its time is that of all these calls. Ours is `stateful`, a call for each frame, and
`li.over_time`, one call. Same frames, same run; every result is compared first. The model is Silero VAD or
one of the two of DTLN, known by the names of its inputs; DTLN gets blocks of 512 samples, each 128 after
the one before.
"""

import json
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import lstm_ir as li
from lstm_ir.cli.files import OutputFile
from lstm_ir.measurement.side_by_side import OURS, Times, interleaved

Array = np.ndarray[Any, Any]
PEER = "onnxruntime"
WORST = 1e-3  # of a result to onnxruntime's, relative to the largest


@dataclass(frozen=True)
class Streaming:
    """A model: the input of a frame, its state, the result, the state's next value."""

    x: str
    state: str
    result: str
    becomes: str
    constants: dict[str, Any]
    sizes: dict[str, int]
    shape: tuple[int, ...]  # of the state

    def frames(self, sound: Array) -> Array:
        """[n, ...]: what the model gets, frame by frame."""
        if self.x == "input":
            rows = sound[: len(sound) // 512 * 512].reshape(-1, 512)
            before = np.concatenate([np.zeros((1, 64), np.float32), rows[:-1, -64:]])
            return np.concatenate([before, rows], 1)[:, None]
        rows = np.lib.stride_tricks.sliding_window_view(sound, 512)[::128]
        if self.x == "input_2":
            rows = np.abs(np.fft.rfft(rows))
        return np.ascontiguousarray(rows[:, None, None], np.float32)


KNOWN = (
    Streaming("input", "state", "output", "stateN", {"sr": 16000}, {"input_0": 1, "input_1": 576}, (2, 1, 128)),
    Streaming("input_2", "input_3", "activation_2", "tf_op_layer_stack_2", {}, {}, (1, 2, 128, 2)),
    Streaming("input_4", "input_5", "conv1d_3", "tf_op_layer_stack_5", {}, {}, (1, 2, 128, 2)),
)


def sound_of(path: str | None) -> Array:
    """A file of 16 bits at 16 kHz, or ten seconds of noise."""
    if path is None:
        return (0.1 * np.random.default_rng(7).standard_normal(160000)).astype(np.float32)
    with wave.open(path, "rb") as f:
        if (f.getframerate(), f.getnchannels(), f.getsampwidth()) != (16000, 1, 2):
            raise click.ClickException(f"{path}: one channel of 16 bits at 16 kHz is needed")
        return np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float32) / 32768


class Peer:
    """onnxruntime over the same file, one call for each frame."""

    def __init__(self, model: str, which: Streaming) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.which = which
        self.fixed = {n: np.asarray(v) for n, v in which.constants.items()}
        self.reset()

    def reset(self) -> None:
        """Start again."""
        self.state = np.zeros(self.which.shape, np.float32)

    def step(self, x: Array) -> Array:
        """The result of the next frame."""
        names, fed = [self.which.result, self.which.becomes], {self.which.x: x, self.which.state: self.state}
        y, self.state = self.session.run(names, {**fed, **self.fixed})
        found: Array = y
        return found

    def whole(self, rows: Array) -> Array:
        """The results of all frames from the start on."""
        self.reset()
        return np.array([self.step(x) for x in rows])


def measure(model: str, which: Streaming, rows: Array, seconds: float) -> dict[str, Times]:
    """Times of one frame, and of the recording."""
    given: dict[str, Any] = {"constants": which.constants, "sizes": which.sizes}
    step = li.compile(li.from_onnx(model, **given, stateful={which.state: which.becomes}))
    whole = li.compile(li.over_time(li.from_onnx(model, **given), {which.state: which.becomes}, [which.x]))
    peer, zero = Peer(model, which), np.zeros(which.shape, np.float32)
    want = peer.whole(rows)
    ours = np.array([step.entries["step"]({which.x: x})[which.result] for x in rows])
    once = whole({which.x: rows, which.state: zero})[which.result]
    for name, got in (("frame by frame", ours), ("in one call", once)):
        worst = float(np.abs(got - want).max()) / max(1.0, float(np.abs(want).max()))
        print(f"{len(rows)} frames {name}: largest difference to onnxruntime {worst:.1e}", flush=True)
        if not worst <= WORST:  # NaN too
            raise click.ClickException("the results differ")
    frames = {OURS: lambda x: step.entries["step"]({which.x: x}), PEER: peer.step}
    recording = {OURS: lambda x: whole({which.x: x, which.state: zero}), PEER: peer.whole}
    return {
        "one frame": interleaved(frames, list(rows[:256]), seconds),
        "whole recording": interleaved(recording, [rows], seconds),
    }


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option("--wav", type=click.Path(exists=True, dir_okay=False), help="16 bits at 16 kHz; noise if not given")
@click.option("--seconds", default=5.0, show_default=True, help="spent on each runner of a row")
@click.option("-o", "--output", type=OutputFile(), help="figures as JSON")
def main(model: str, wav: str | None, seconds: float, output: str | None) -> None:
    """Measure one model."""
    import onnxruntime

    names = [i.name for i in onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()]
    which = next((k for k in KNOWN if {k.x, k.state} <= set(names)), None)
    if which is None:
        raise click.ClickException(f"{Path(model).name}: takes {', '.join(names)}; Silero VAD and DTLN are known")
    rows = which.frames(sound_of(wav))
    found = measure(model, which, rows, seconds)
    print("| call | frames | lstm-ir us a frame | onnxruntime us a frame | ratio (90 % interval) |")
    print("|---|---|---|---|---|")
    results = []
    for call, times in found.items():
        count = 1 if call == "one frame" else len(rows)
        us = {w: 1e6 * times.median(w) / count for w in (OURS, PEER)}
        low, high = times.interval()
        results.append({"call": call, "frames": count, "us": us, "ratio": times.ratio, "interval": [low, high]})
        print(f"| {call} | {count} | {us[OURS]:.4g} | {us[PEER]:.4g} | {times.ratio:.2f} ({low:.2f}-{high:.2f}) |")
    if output is not None:
        Path(output).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
