"""What whole models share: weights, inputs, a training step, and their runners.

A training step clips the norm of all gradients at 5 and updates by Adam with rate 0.001; it gives the loss and that
norm. Every runner starts with the same weights and gets the same calls, so numbers of call k are equal everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from lstm_ir.bench.subject import Array, BenchCall, Maker, TimedRun
from lstm_ir.bench.whole.model import BETAS, CLIP, EPSILON, RATE

Weights = dict[str, Array]


@dataclass(frozen=True)
class Whole(ABC):
    """A model with sizes; subclasses say what it is in the words of each library."""

    T: int
    B: int
    training: bool = False

    kind: ClassVar[str]
    turn_calls: ClassVar[int] = 10

    @property
    def name(self) -> str:
        """For example `tagger2-t40-b16` and `ctc-t400-b8-train`."""
        return f"{self.kind}-t{self.T}-b{self.B}" + ("-train" if self.training else "")

    @property
    def group(self) -> str:
        """Inference or training of models."""
        return "models, training" if self.training else "models, inference"

    @property
    def flops(self) -> float:
        """Of the products forward, counted from the graph with numbers; three times that in a training step."""
        from lstm_ir.bench.whole.counting import products

        return products(self.graph(names=False)) * (3 if self.training else 1)

    # -- what a model says

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weights, by name."""

    @abstractmethod
    def inputs(self, rng: np.random.Generator) -> dict[str, Array]:
        """Those of one call."""

    @abstractmethod
    def graph(self, names: bool) -> Any:
        """The graph: output y, or loss where it trains."""

    @abstractmethod
    def torch(self, w: Weights) -> Any:
        """A module that takes the inputs by name and gives y, or the loss."""

    @abstractmethod
    def jax(self, w: Any, inputs: Any) -> Any:
        """y, or the loss."""

    @abstractmethod
    def onnx(self, w: Weights) -> Any:
        """The model, with open axes."""

    # -- the benchmark's side

    def weights(self) -> Weights:
        """Uniform in +-1/sqrt(columns)."""
        rng = np.random.default_rng(sum(map(ord, self.kind)))
        return {n: (rng.uniform(-1, 1, s) / np.sqrt(s[-1])).astype(np.float32) for n, s in self.shapes().items()}

    def calls(self, count: int = 4) -> list[BenchCall]:
        """Inputs, the same ones for every runner."""
        rng = np.random.default_rng(sum(map(ord, self.name)))
        return [BenchCall(self.inputs(rng), 0) for _ in range(count)]

    def program(self, names: bool = False) -> Any:
        """The graph, or its training step."""
        import lstm_ir as li

        graph = self.graph(names)
        if not self.training:
            return graph
        optimizer = li.adam(RATE, BETAS, epsilon=EPSILON)
        return li.train_step(graph, "loss", optimizer, clip_norm=CLIP, stop_on_nan=False).only("train")

    def runner(self, exe: Any) -> TimedRun:
        """The compiled or loaded program."""
        step = exe.entries["train" if self.training else "main"]
        return TimedRun(lambda call: step(call.arrays), dict)

    def peers(self) -> Mapping[str, Maker]:
        """torch eager, onnxruntime and jax.jit."""
        from lstm_ir.bench.whole import runners

        return {name: partial(make, self) for name, make in runners.HERE.items()}

    def peers_elsewhere(self) -> Mapping[str, Maker]:
        """torch.compile: what it starts and changes stays out of the other runners."""
        from lstm_ir.bench.whole import runners

        return {"torch.compile": partial(runners.torch_compiled, self)}
