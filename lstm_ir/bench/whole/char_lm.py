"""A character language model's training step: embedding, two layers, dense, cross entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lstm_ir.bench.subject import Array
from lstm_ir.bench.whole import parts
from lstm_ir.bench.whole.whole import Weights, Whole


@dataclass(frozen=True)
class CharLm(Whole):
    """Characters ids i32[T,B] of V to scores [T,B,V], or the loss by the next ones, want i32[T,B]."""

    V: int = 96
    E: int = 64
    H: int = 256
    layers: int = 2

    kind: ClassVar[str] = "char-lm"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Embedding, layers, dense."""
        stack = parts.lstm_shapes(self.E, self.H, self.layers)
        return {"emb": (self.V, self.E), **stack, "out/w": (self.V, self.H), "out/b": (self.V,)}

    def inputs(self, rng: np.random.Generator) -> dict[str, Array]:
        """Random text."""
        names = ("ids", "want") if self.training else ("ids",)
        return {n: rng.integers(0, self.V, (self.T, self.B)).astype(np.int32) for n in names}

    def graph(self, names: bool) -> Any:
        """The mean cross entropy of all characters."""
        import lstm_ir as li

        sizes = ("T", "B") if names else (self.T, self.B)
        ids, want = li.input("ids", sizes, "i32"), li.input("want", sizes, "i32")
        w = {n: li.weight(n, a) for n, a in self.weights().items()}
        y, _, _ = parts.ours(li.embedding(w["emb"], ids), w, self.layers)
        scores = li.dense(y, w["out/w"], w["out/b"])
        if not self.training:
            return li.Graph("lm", [ids], {"y": scores})
        return li.Graph("lm", [ids, want], {"loss": li.cross_entropy(scores, want)})

    def torch(self, w: Weights) -> Any:
        """As most write it."""
        import torch as t

        class Module(t.nn.Module):  # type: ignore[misc]
            def __init__(self, layers: int) -> None:
                super().__init__()
                self.emb, self.lstm = parts.torch_weight(w["emb"]), parts.torch_lstm(w, layers)
                self.w, self.b = parts.torch_weight(w["out/w"]), parts.torch_weight(w["out/b"])

            def forward(self, ids: Any, want: Any = None) -> Any:
                f = t.nn.functional
                scores = f.linear(self.lstm(f.embedding(ids, self.emb))[0], self.w, self.b)
                return scores if want is None else f.cross_entropy(scores.flatten(0, 1), want.flatten().long())

        return Module(self.layers)

    def jax(self, w: Any, inputs: Any) -> Any:
        """The same."""
        import jax
        import jax.numpy as jnp

        y, _ = parts.jax_lstm(w["emb"][inputs["ids"]], w, self.layers)
        scores = y @ w["out/w"].T + w["out/b"]
        if not self.training:
            return scores
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), inputs["want"][..., None], 2).mean()

    def onnx(self, w: Weights) -> Any:
        """Gather, LSTM, MatMul."""
        n = parts.OnnxNodes()
        y = n.add("Gather", n.constant(w["emb"]), "ids")
        for k in range(self.layers):
            y = n.lstm(y, w, k)[0]
        return n.model({"ids": ("i32", ("T", "B"))}, {n.dense(y, w["out/w"], w["out/b"]): ("T", "B", self.V)})
