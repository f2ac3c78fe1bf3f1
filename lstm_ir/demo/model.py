"""The demo's model, an LSTM that reads handwritten digits row by row, and its training in the module."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.data import digits
from lstm_ir.ir.location import Loc, at

Array = np.ndarray[Any, Any]
Weights = Mapping[str, Array]
HIDDEN, BATCH, EPOCHS, SEED = 64, 48, 30, 7
PEAK, WARM = 8e-3, 0.3  # the largest learning rate, and the share of the steps that leads to it
SHAPES = {
    "lstm/w_ih": (4 * HIDDEN, 8), "lstm/w_hh": (4 * HIDDEN, HIDDEN), "lstm/b": (4 * HIDDEN,),
    "head/w": (10, HIDDEN), "head/b": (10,),
}  # fmt: skip
KEPT = {"h0": "h_n", "c0": "c_n"}


def fresh(seed: int = SEED) -> dict[str, Array]:
    """Weights before training, uniform in +-1/sqrt(HIDDEN)."""
    rng, bound = np.random.default_rng(seed), 1 / math.sqrt(HIDDEN)
    return {n: rng.uniform(-bound, bound, s).astype(np.float32) for n, s in SHAPES.items()}


def classifier(weights: Weights) -> li.Graph:
    """Logits [B, 10] and the digit [B] from images [B, 8, 8], pixels 0 to 16."""
    with at(Loc(__file__, classifier.__code__.co_firstlineno)):  # the user's line is this one
        images = li.input("images", ("B", 8, 8))
        out = _read(images, weights)
        return li.Graph("digits", [images], {n: out[n] for n in ("logits", "digit")})


def learner(weights: Weights) -> li.Graph:
    """The loss beside the digits, given the labels [B]."""
    with at(Loc(__file__, learner.__code__.co_firstlineno)):
        images, labels = li.input("images", ("B", 8, 8)), li.input("labels", ("B",), "i32")
        out = _read(images, weights)
        loss = li.cross_entropy(out["logits"], labels, label_smoothing=0.05)
        return li.Graph("digits", [images, labels], {"loss": loss, "digit": out["digit"]})


def streamer(weights: Weights) -> li.Program:
    """`main` is the classifier; `step` takes the next rows [B, T, 8] of images and keeps h and c."""
    with at(Loc(__file__, streamer.__code__.co_firstlineno)):
        rows = li.input("rows", ("B", "T", 8))
        h0, c0 = (li.input(n, (1, "B", HIDDEN)) for n in KEPT)
        graph = li.Graph("digits", [rows, h0, c0], _read(rows, weights, h0, c0))
    made = li.stateful(graph, KEPT)
    whole = {**made.entries, "main": classifier(weights)}
    return dataclasses.replace(made, entries=whole).only("main", "step", "reset")


def _read(
    images: li.Value, weights: Weights, h0: li.Value | None = None, c0: li.Value | None = None
) -> dict[str, li.Value]:
    w = {n: li.weight(n, a) for n, a in weights.items()}
    rows = li.transpose(images / 16.0, (1, 0, 2))  # [T, B, 8]
    _, h_n, c_n = li.lstm(rows, w["lstm/w_ih"], w["lstm/w_hh"], w["lstm/b"], h0=h0, c0=c0)
    logits = li.dense(h_n[0], w["head/w"], w["head/b"])
    digit = li.argmax(logits, axis=1)
    return {"logits": logits, "digit": digit, "h_n": h_n, "c_n": c_n}


@dataclass(frozen=True)
class EpochResult:
    """Where the training is: the mean loss of the epoch, and the accuracy on both parts."""

    epoch: int
    step: int
    steps: int
    loss: float
    seen: float
    held_out: float

    def __str__(self) -> str:
        return (
            f"step {self.step} of {self.steps}, loss {self.loss:.3f}, "
            f"accuracy {self.seen:.1%}, held out {self.held_out:.1%}"
        )


def train(show: Callable[[EpochResult], None], epochs: int = EPOCHS, seed: int = SEED) -> Trained:
    """Weights trained from scratch, in a module on the CPU; `show` is called after every epoch.

    The held-out images are shown, never learned from, nor used to choose when to stop.
    """
    data, rng = digits(), np.random.default_rng(seed)
    images, labels = data.train_images.astype(np.float32), data.train_labels.astype(np.int32)
    held_out = data.test_images.astype(np.float32)
    made = li.train_step(learner(fresh(seed)), "loss", li.adamw("lr"), clip_norm=1.0)
    exe = li.compile(made.only("train", "infer"), "cpu", options={"cache": False})
    step, infer = exe.entries["train"], exe.entries["infer"]
    done, steps = 0, epochs * -(-len(images) // BATCH)
    for epoch in range(1, epochs + 1):
        losses = []
        for k in _batches(rng.permutation(len(images))):
            lr = np.float32(_rate(done, steps))
            losses.append(float(step(images=images[k], labels=labels[k], lr=lr)["loss"]))
            done += 1
        seen = float((infer(images=images)["digit"] == labels).mean())
        right = float((infer(images=held_out)["digit"] == data.test_labels).mean())
        show(EpochResult(epoch, done, steps, float(np.mean(losses)), seen, right))
    trained = Trained({n: exe.state[n] for n in SHAPES}, exe.report.compile_seconds)
    exe.close()
    return trained


@dataclass(frozen=True)
class Trained:
    """The weights, and how long the module of the training took to compile."""

    weights: dict[str, Array]
    compile_seconds: float


def _batches(order: Array) -> list[Array]:
    return np.split(order, range(BATCH, len(order), BATCH))


def _rate(done: int, steps: int) -> float:
    """Up in a straight line, and down again to 0."""
    share = (done + 1) / (steps + 1)
    return PEAK * min(share / WARM, (1 - share) / (1 - WARM))
