"""Bidirectional taggers: embedding, two or four layers with lengths, dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lstm_ir.bench.subject import Array
from lstm_ir.bench.whole import parts
from lstm_ir.bench.whole.whole import Weights, Whole


@dataclass(frozen=True)
class Tagger(Whole):
    """Words ids i32[T,B] of V to scores [T,B,K]; rows end at lengths i32[B]."""

    layers: int = 2
    V: int = 10000
    E: int = 100
    H: int = 128
    K: int = 20

    kind: ClassVar[str] = "tagger"

    @property
    def name(self) -> str:
        """With the number of layers: `tagger4-t40-b16`."""
        return super().name.replace("tagger", f"tagger{self.layers}", 1)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Embedding, layers, dense."""
        stack = parts.lstm_shapes(self.E, self.H, self.layers, 2)
        return {"emb": (self.V, self.E), **stack, "out/w": (self.K, 2 * self.H), "out/b": (self.K,)}

    def inputs(self, rng: np.random.Generator) -> dict[str, Array]:
        """Lengths from half of T on; one row is as long as T."""
        lengths = rng.integers(max(self.T // 2, 1), self.T + 1, self.B).astype(np.int32)
        lengths[0] = self.T
        return {"ids": rng.integers(0, self.V, (self.T, self.B)).astype(np.int32), "lengths": lengths}

    def graph(self, names: bool) -> Any:
        """Embedding, layers, dense."""
        import lstm_ir as li

        T, B = ("T", "B") if names else (self.T, self.B)
        ids, lengths = li.input("ids", (T, B), "i32"), li.input("lengths", (B,), "i32")
        w = {n: li.weight(n, a) for n, a in self.weights().items()}
        y, _, _ = parts.ours(li.embedding(w["emb"], ids), w, self.layers, 2, lengths)
        return li.Graph("tagger", [ids, lengths], {"y": li.dense(y, w["out/w"], w["out/b"])})

    def torch(self, w: Weights) -> Any:
        """Packed rows."""
        import torch as t

        class Module(t.nn.Module):  # type: ignore[misc]
            def __init__(self, layers: int) -> None:
                super().__init__()
                self.emb, self.lstm = parts.torch_weight(w["emb"]), parts.torch_lstm(w, layers)
                self.w, self.b = parts.torch_weight(w["out/w"]), parts.torch_weight(w["out/b"])

            def forward(self, ids: Any, lengths: Any) -> Any:
                f = t.nn.functional
                return f.linear(parts.torch_packed(self.lstm, f.embedding(ids, self.emb), lengths)[0], self.w, self.b)

        return Module(self.layers)

    def jax(self, w: Any, inputs: Any) -> Any:
        """Selects by lengths in the scan."""
        y, _ = parts.jax_lstm(w["emb"][inputs["ids"]], w, self.layers, inputs["lengths"])
        return y @ w["out/w"].T + w["out/b"]

    def onnx(self, w: Weights) -> Any:
        """sequence_lens."""
        n = parts.OnnxNodes()
        y = n.add("Gather", n.constant(w["emb"]), "ids")
        for k in range(self.layers):
            y = n.lstm(y, w, k, "lengths")[0]
        y = n.dense(y, w["out/w"], w["out/b"])
        return n.model({"ids": ("i32", ("T", "B")), "lengths": ("i32", ("B",))}, {y: ("T", "B", self.K)})
