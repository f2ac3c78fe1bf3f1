"""An encoder-decoder with attention, the target given.

A bidirectional encoder of the source starts a decoder of the target; each step of it weighs what the encoder saw by a
product and a softmax over the source (Luong et al., 2015, "global" with score "dot"), and a dense layer with tanh joins
both before the scores of the words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lstm_ir.bench.subject import Array
from lstm_ir.bench.whole import parts
from lstm_ir.bench.whole.whole import Weights, Whole


@dataclass(frozen=True)
class Attention(Whole):
    """source i32[S,B] that ends at lengths i32[B], target i32[T,B]: scores [T,B,V], or the loss by want i32[T,B]."""

    S: int = 35
    V: int = 2000
    E: int = 128
    H: int = 128  # of each direction of the encoder; the decoder has 2 H

    kind: ClassVar[str] = "attention"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Two embeddings, encoder, decoder, the dense layer that joins, scores."""
        H = 2 * self.H
        layers = parts.lstm_shapes(self.E, self.H, 1, 2, "enc") | parts.lstm_shapes(self.E, H, 1, 1, "dec")
        return {
            "emb/source": (self.V, self.E), "emb/target": (self.V, self.E), **layers, "join": (H, 2 * H),
            "out/w": (self.V, H), "out/b": (self.V,),
        }  # fmt: skip

    def inputs(self, rng: np.random.Generator) -> dict[str, Array]:
        """Lengths from half of S on."""
        lengths = rng.integers(max(self.S // 2, 1), self.S + 1, self.B).astype(np.int32)
        lengths[0] = self.S
        ids = {n: (s, self.B) for n, s in (("source", self.S), ("target", self.T), ("want", self.T))}
        found = {n: rng.integers(0, self.V, shape).astype(np.int32) for n, shape in ids.items()}
        if not self.training:
            del found["want"]
        return {**found, "lengths": lengths}

    def graph(self, names: bool) -> Any:
        """Attention with a mask by lengths."""
        import lstm_ir as li

        S, T, B = ("S", "T", "B") if names else (self.S, self.T, self.B)
        source, target = li.input("source", (S, B), "i32"), li.input("target", (T, B), "i32")
        lengths, want = li.input("lengths", (B,), "i32"), li.input("want", (T, B), "i32")
        w = {n: li.weight(n, a) for n, a in self.weights().items()}
        seen, h, c = parts.ours(li.embedding(w["emb/source"], source), w, 1, 2, lengths, "enc")
        first = {n: li.expand_dims(li.concat([v[0], v[1]], 1), 0) for n, v in (("h0", h), ("c0", c))}
        y, _, _ = parts.ours(li.embedding(w["emb/target"], target), w, 1, 1, None, "dec", **first)
        rows, keys = li.swapaxes(y, 0, 1), li.swapaxes(seen, 0, 1)
        live = li.less(li.iota((B, 1, S), 2), li.reshape(lengths, (B, 1, 1)))
        met = li.attention(rows, keys, keys, live, scale=1.0)
        joined = li.tanh(li.dense(li.concat([met, rows], 2), w["join"]))
        scores = li.dense(li.swapaxes(joined, 0, 1), w["out/w"], w["out/b"])
        if not self.training:
            return li.Graph("attention", [source, target, lengths], {"y": scores})
        return li.Graph("attention", [source, target, want, lengths], {"loss": li.cross_entropy(scores, want)})

    def torch(self, w: Weights) -> Any:
        """scaled_dot_product_attention with a mask."""
        import torch as t

        class Module(t.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enc, self.dec = parts.torch_lstm(w, 1, "enc"), parts.torch_lstm(w, 1, "dec")
                self.w = t.nn.ParameterDict(
                    {n.replace("/", "_"): parts.torch_weight(a) for n, a in w.items() if n[:3] not in ("enc", "dec")}
                )

            def forward(self, source: Any, target: Any, lengths: Any, want: Any = None) -> Any:
                f, w = t.nn.functional, self.w
                seen, last = parts.torch_packed(self.enc, f.embedding(source, w["emb_source"]), lengths)
                first = tuple(t.cat([v[0], v[1]], 1)[None] for v in last)
                y, _ = self.dec(f.embedding(target, w["emb_target"]), first)
                rows, keys = y.transpose(0, 1), seen.transpose(0, 1)
                live = t.arange(source.shape[0]) < lengths[:, None, None]
                met = f.scaled_dot_product_attention(rows, keys, keys, live, scale=1.0)
                joined = t.tanh(f.linear(t.cat([met, rows], 2), w["join"]))
                scores = f.linear(joined.transpose(0, 1), w["out_w"], w["out_b"])
                return scores if want is None else f.cross_entropy(scores.flatten(0, 1), want.flatten().long())

        return Module()

    def jax(self, w: Any, inputs: Any) -> Any:
        """The same with einsum."""
        import jax
        import jax.numpy as jnp

        lengths = inputs["lengths"]
        seen, last = parts.jax_lstm(w["emb/source"][inputs["source"]], w, 1, lengths, "enc")
        first = tuple(jnp.concatenate([v[0], v[1]], 1)[None] for v in last)
        y, _ = parts.jax_lstm(w["emb/target"][inputs["target"]], w, 1, None, "dec", first)
        products = jnp.einsum("tbh,sbh->bts", y, seen)
        live = jnp.arange(seen.shape[0]) < lengths[:, None, None]
        met = jnp.einsum("bts,sbh->tbh", jax.nn.softmax(jnp.where(live, products, -jnp.inf)), seen)
        scores = jnp.tanh(jnp.concatenate([met, y], 2) @ w["join"].T) @ w["out/w"].T + w["out/b"]
        if not self.training:
            return scores
        likely = jax.nn.log_softmax(scores)
        return -jnp.take_along_axis(likely, inputs["want"][..., None], 2).mean()

    def onnx(self, w: Weights) -> Any:
        """MatMul and Softmax, with a mask that is added."""
        n = parts.OnnxNodes()
        seen, h, c = n.lstm(n.add("Gather", n.constant(w["emb/source"]), "source"), w, 0, "lengths", "enc")
        wide = n.constant(np.array([1, -1, 2 * self.H]))
        start = [n.add("Reshape", n.add("Transpose", v, perm=[1, 0, 2]), wide) for v in (h, c)]
        y = n.lstm(n.add("Gather", n.constant(w["emb/target"]), "target"), w, 0, "", "dec", start)[0]
        rows, keys = n.add("Transpose", y, perm=[1, 0, 2]), n.add("Transpose", seen, perm=[1, 0, 2])
        products = n.add("MatMul", rows, n.add("Transpose", seen, perm=[1, 2, 0]))
        zero, one = n.constant(np.array(0)), n.constant(np.array(1))
        length = n.add("Gather", n.add("Shape", "source"), zero)
        places = n.add("Cast", n.add("Range", zero, length, one), to=6)
        ends = n.add("Unsqueeze", "lengths", n.constant(np.array([1, 2])))
        live = n.add("Less", places, ends)
        masked = n.add("Where", live, products, n.constant(np.array(-np.inf, np.float32)))
        met = n.add("MatMul", n.add("Softmax", masked, axis=-1), keys)
        both = n.add("Concat", met, rows, axis=2)
        joined = n.add("Tanh", n.add("MatMul", both, n.constant(w["join"].T)))
        scores = n.dense(n.add("Transpose", joined, perm=[1, 0, 2]), w["out/w"], w["out/b"])
        ins = {"source": ("i32", ("S", "B")), "target": ("i32", ("T", "B")), "lengths": ("i32", ("B",))}
        return n.model(ins, {scores: ("T", "B", self.V)})
