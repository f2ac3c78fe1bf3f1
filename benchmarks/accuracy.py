"""How far results move when weights have fewer bits: three trained models, after 1, 100 and 2000 steps.

    python benchmarks/accuracy.py [--models FOLDER]

Each model is compiled with every word of the option `precision`, and `li.verify` compares it with itself in f32 on
real data that the model has not learned from. `digits`: a classifier of 64 units, trained here, over the rows of
handwritten digits, one image after the other. `text`: a character model of 128 units, trained here on 140 sonnets.
`speech` (with --models): the voice detector `silero.onnx` over `test.wav`, both in FOLDER.

Columns: the largest difference of a probability over all steps, and of how many steps the most likely class changes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import lstm_ir as li
from lstm_ir.data import digits
from lstm_ir.measurement.machine import machine
from lstm_ir.passes.pipelines import PRECISIONS

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import char_lm_text as text
import silero_stream as silero

STEPS = (1, 100, 2000)
Arrays = dict[str, np.ndarray]
Weights = Mapping[str, li.Value]


@dataclass(frozen=True)
class Case:
    """A trained model whose output `p` are probabilities of each step, and data for it."""

    name: str
    graph: li.Graph
    arrays: Arrays  # steps on axis 0, but of what `state` names
    state: tuple[str, ...] = ()

    def first(self, steps: int) -> Arrays:
        """The inputs of so many steps; data that is shorter begins again."""
        return {n: a if n in self.state else np.resize(a, (steps, *a.shape[1:])) for n, a in self.arrays.items()}


def trained(weights: Arrays, scores: Callable[[Weights], li.Value], inputs: list[li.Value], batches: Iterable[Arrays],
            rate: Callable[[int], float]) -> Weights:  # fmt: skip
    """The weights after training on batches, with the cross entropy of the input `labels`; -1 is no label."""
    labels = li.input("labels", ("T", "B"), "i32")
    start = {name: li.weight(name, array) for name, array in weights.items()}
    loss = li.cross_entropy(scores(start), labels, mask=li.greater_equal(labels, 0))
    learner = li.train_step(
        li.Graph("learner", [*inputs, labels], {"loss": loss}), "loss", li.adam("lr"), clip_norm=1.0
    )
    with li.compile(learner) as exe:
        for step, batch in enumerate(batches):
            exe.entries["train"](**batch, lr=np.float32(rate(step)))
        return {name: li.weight(name, exe.state[name]) for name in weights}


def of_digits() -> Case:
    """The classes after each row, the state carried from image to image; learned from sequences of 12 images."""
    T, B, H, steps = 96, 32, 64, 400
    rng = np.random.default_rng(1)
    shapes = {"w_ih": (4 * H, 8), "w_hh": (4 * H, H), "b": (4 * H,), "out/w": (10, H), "out/b": (10,)}
    fresh = {n: rng.uniform(-(H**-0.5), H**-0.5, s).astype(np.float32) for n, s in shapes.items()}
    x, d = li.input("x", ("T", "B", 8)), digits()

    def scores(w: Weights) -> li.Value:
        return li.dense(li.lstm(x, w["w_ih"], w["w_hh"], w["b"])[0], w["out/w"], w["out/b"])

    def batches() -> Iterator[Arrays]:
        for _ in range(steps):
            at = rng.integers(0, len(d.train_images), (T // 8, B))
            rows = np.moveaxis(d.train_images[at], 2, 1).reshape(T, B, 8).astype(np.float32) / 16
            labels = np.full((T, B), -1, np.int32)
            labels[7::8] = d.train_labels[at]
            yield {"x": rows, "labels": labels}

    w = trained(fresh, scores, [x], batches(), lambda step: 1e-2 * (1 - step / steps))
    rows = d.test_images.reshape(-1, 1, 8).astype(np.float32) / 16
    return Case("digits", li.Graph("digits", [x], {"p": li.softmax(scores(w), -1)}), {"x": rows})


def of_text() -> Case:
    """The next character's probabilities; 900 training steps, about half a minute."""
    ids = li.input("ids", ("T", "B"), "i32")

    def scores(w: Weights) -> li.Value:
        y = li.lstm(li.embedding(w["embedding"], ids), w["lstm/w_ih"], w["lstm/w_hh"], w["lstm/b"])[0]
        return li.dense(y, w["out/w"], w["out/b"])

    w = trained(text.fresh(), scores, [ids], text.batches(), text.rate)
    return Case("text", li.Graph("text", [ids], {"p": li.softmax(scores(w), -1)}), {"ids": text.held_out()["ids"]})


def of_speech(folder: Path) -> Case:
    """The probability that someone speaks, frame by frame; 2000 frames are 64 seconds."""
    graph = li.from_onnx(
        folder / "silero.onnx",
        constants={"sr": silero.RATE},
        sizes={"input_0": 1, "input_1": silero.FRAME + silero.BEFORE},
    )
    whole = li.over_time(graph, {"state": "stateN"}, ["input"])
    speaks = whole.outputs[whole.output_names.index("output")]
    outputs = {"p": li.concat([1 - speaks, speaks], -1)}
    rows = silero.frames(silero.samples(folder / "test.wav"))
    arrays = {"input": rows, "state": np.zeros((2, 1, 128), np.float32)}
    return Case("speech", li.Graph("speech", whole.params, outputs), arrays, state=("state",))


def rows(case: Case) -> Iterator[str]:
    """A row of the table for each word."""
    with li.compile(case.graph) as plain:
        for word in PRECISIONS:
            with li.compile(case.graph, options={"precision": word}) as exe:
                cells = [f"{case.name:8} {word:13}"]
                for steps in STEPS:
                    arrays = case.first(steps)
                    result = li.verify(exe, against=lambda a: plain(a), arrays=[arrays], seconds=0.0, cold=False)
                    ours, wide = exe(arrays)["p"], plain(arrays)["p"]
                    changed = np.mean(ours.argmax(-1) != wide.argmax(-1))
                    cells.append(f"{result.outputs[0].absolute:9.1e} {changed:7.2%}")
                yield " |".join(cells)


def main() -> None:
    about = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    about.add_argument("--models", type=Path, help="a folder with silero.onnx and test.wav")
    folder = about.parse_args().models
    print(machine())
    print(f"{'':22} |" + " |".join(f"{f'{steps} steps':^17}" for steps in STEPS))
    for case in (of_digits(), of_text(), *([] if folder is None else [of_speech(folder)])):
        for row in rows(case):
            print(row, flush=True)


if __name__ == "__main__":
    main()
