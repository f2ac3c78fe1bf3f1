"""Where someone speaks: the voice detector Silero VAD over a wav file, as a stream and in one call.

The model takes 512 samples at 16 kHz, with the last 64 of the frame before in front of them, and a
state. As a stream every frame is a call, and the session keeps the state (`stateful`). In one call
`li.over_time` makes a loop of the model, and the whole recording goes in at once. Both give the same
probabilities.

Run: python examples/silero_stream.py silero_vad.onnx speech.wav
"""

import argparse
import time
import wave
from pathlib import Path

import numpy as np

import lstm_ir as li

RATE, FRAME, BEFORE = 16000, 512, 64
TOLERANCE = 1e-4
STARTS, ENDS = 0.5, 0.35  # a segment starts at a probability of so much, and ends below so much
PAUSE = 0.1  # seconds; a shorter pause is part of the segment


def samples(path: Path) -> np.ndarray:
    """Of a file with one channel of 16 bits at 16 kHz: f32[n] in -1 .. 1."""
    with wave.open(str(path), "rb") as f:
        if (f.getframerate(), f.getnchannels(), f.getsampwidth()) != (RATE, 1, 2):
            raise SystemExit(f"{path.name}: one channel of 16 bits at {RATE} Hz is needed")
        return np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float32) / 32768


def frames(sound: np.ndarray) -> np.ndarray:
    """[n, 1, 576]: frames with the end of the one before; the last is filled with zeros."""
    rows = np.pad(sound, (0, -len(sound) % FRAME)).reshape(-1, FRAME)
    ends = np.zeros((len(rows), BEFORE), np.float32)
    ends[1:] = rows[:-1, -BEFORE:]
    return np.concatenate([ends, rows], 1)[:, None]


def segments(probabilities: np.ndarray) -> list[tuple[float, float]]:
    """(start, end) in seconds, of frames in which someone speaks."""
    found: list[tuple[float, float]] = []
    start = None
    for k, p in enumerate(probabilities):
        now = k * FRAME / RATE
        if start is None and p >= STARTS:
            start = now
        elif start is not None and p < ENDS:
            found.append((start, now))
            start = None
    if start is not None:
        found.append((start, len(probabilities) * FRAME / RATE))
    joined = found[:1]
    for begin, end in found[1:]:
        if begin - joined[-1][1] < PAUSE:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def as_stream(model: Path, rows: np.ndarray) -> np.ndarray:
    """A call for every frame; the state stays in the session."""
    given = {"constants": {"sr": RATE}, "sizes": {"input_0": 1, "input_1": FRAME + BEFORE}}
    program = li.from_onnx(model, **given, stateful={"state": "stateN"})
    with li.compile(program) as exe:
        step = exe.entries["step"]
        return np.array([step(input=row)["output"][0, 0] for row in rows], np.float32)


def in_one_call(model: Path, rows: np.ndarray) -> np.ndarray:
    """The model as the body of a loop over all frames."""
    graph = li.from_onnx(model, constants={"sr": RATE}, sizes={"input_0": 1, "input_1": FRAME + BEFORE})
    whole = li.over_time(graph, {"state": "stateN"}, ["input"])
    with li.compile(whole) as exe:
        return exe(input=rows, state=np.zeros((2, 1, 128), np.float32))["output"][:, 0, 0]


def main() -> None:
    about = argparse.ArgumentParser(description="Silero VAD over a wav file.")
    about.add_argument("model", type=Path, help="silero_vad.onnx")
    about.add_argument("sound", type=Path, help="a wav file: one channel of 16 bits at 16 kHz")
    given = about.parse_args()
    rows = frames(samples(given.sound))
    found = {}
    for way in (as_stream, in_one_call):
        begin = time.perf_counter()
        found[way] = way(given.model, rows)
        print(f"{way.__name__}: {len(rows)} frames, {time.perf_counter() - begin:.1f} s with import and compilation")
    worst = float(np.abs(found[as_stream] - found[in_one_call]).max(initial=0))
    print(f"largest difference of the two ways {worst:.1e}")
    assert worst < TOLERANCE
    for start, end in segments(found[as_stream]):
        print(f"speech from {start:.2f} s to {end:.2f} s")


if __name__ == "__main__":
    main()
