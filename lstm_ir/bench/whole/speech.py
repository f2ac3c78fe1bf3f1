"""A CTC speech model: two convolutions over time with stride 2, a bidirectional stack with lengths, dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lstm_ir.bench.subject import Array
from lstm_ir.bench.whole import parts
from lstm_ir.bench.whole.whole import Weights, Whole

WINDOW, STRIDE, EDGE = 5, 2, 2


@dataclass(frozen=True)
class Speech(Whole):
    """x [B,F,T], and steps i32[B] behind the convolutions: scores [T',B,C], or the CTC loss of labels i32[B,S]."""

    F: int = 80
    D: int = 128
    H: int = 160
    C: int = 32
    S: int = 12

    kind: ClassVar[str] = "ctc"

    @property
    def steps(self) -> int:
        """T'."""
        return _behind(_behind(self.T))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Convolutions, layers, dense."""
        front = {"conv0/w": (self.D, self.F, WINDOW), "conv0/b": (self.D,), "conv1/w": (self.D, self.D, WINDOW),
                 "conv1/b": (self.D,)}  # fmt: skip
        stack = parts.lstm_shapes(self.D, self.H, 2, 2)
        return {**front, **stack, "out/w": (self.C, 2 * self.H), "out/b": (self.C,)}

    def inputs(self, rng: np.random.Generator) -> dict[str, Array]:
        """Labels that fit into the steps."""
        steps = rng.integers(max(self.steps * 2 // 3, 1), self.steps + 1, self.B).astype(np.int32)
        steps[0] = self.steps
        found: dict[str, Array] = {"x": rng.standard_normal((self.B, self.F, self.T), np.float32), "steps": steps}
        if self.training:
            found["labels"] = rng.integers(1, self.C, (self.B, self.S)).astype(np.int32)
            most = min(self.S, self.steps // 4)
            found["label_lengths"] = rng.integers(1, most + 1, self.B).astype(np.int32)
        return found

    def graph(self, names: bool) -> Any:
        """Channels first in front, steps first behind."""
        import lstm_ir as li

        T, B, S = ("T", "B", "S") if names else (self.T, self.B, self.S)
        x, steps = li.input("x", (B, self.F, T)), li.input("steps", (B,), "i32")
        w = {n: li.weight(n, a) for n, a in self.weights().items()}
        v = x
        for k in range(2):
            v = li.relu(li.conv1d(v, w[f"conv{k}/w"], STRIDE, EDGE, bias=w[f"conv{k}/b"]))
        y, _, _ = parts.ours(li.transpose(v, (2, 0, 1)), w, 2, 2, steps)
        scores = li.dense(y, w["out/w"], w["out/b"])
        if not self.training:
            return li.Graph("speech", [x, steps], {"y": scores})
        labels, count = li.input("labels", (B, S), "i32"), li.input("label_lengths", (B,), "i32")
        loss = li.ctc_loss(scores, labels, steps, count)
        return li.Graph("speech", [x, steps, labels, count], {"loss": loss})

    def torch(self, w: Weights) -> Any:
        """Packed rows; torch's own CTC loss."""
        import torch as t

        class Module(t.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.lstm = parts.torch_lstm(w, 2)
                self.w = t.nn.ParameterDict(
                    {n.replace("/", "_"): parts.torch_weight(a) for n, a in w.items() if not n.startswith("lstm")}
                )

            def forward(self, x: Any, steps: Any, labels: Any = None, label_lengths: Any = None) -> Any:
                f, w = t.nn.functional, self.w
                for k in range(2):
                    x = f.relu(f.conv1d(x, w[f"conv{k}_w"], w[f"conv{k}_b"], STRIDE, EDGE))
                y, _ = parts.torch_packed(self.lstm, x.permute(2, 0, 1), steps)
                scores = f.linear(y, w["out_w"], w["out_b"])
                if labels is None:
                    return scores
                return f.ctc_loss(scores.log_softmax(-1), labels.long(), steps.long(), label_lengths.long())

        return Module()

    def jax(self, w: Any, inputs: Any) -> Any:
        """The forward sums of CTC in a scan."""
        import jax
        import jax.numpy as jnp

        v = inputs["x"]
        for k in range(2):
            made = jax.lax.conv_general_dilated(v, w[f"conv{k}/w"], (STRIDE,), [(EDGE, EDGE)])
            v = jax.nn.relu(made + w[f"conv{k}/b"][:, None])
        y, _ = parts.jax_lstm(jnp.transpose(v, (2, 0, 1)), w, 2, inputs["steps"])
        scores = y @ w["out/w"].T + w["out/b"]
        if not self.training:
            return scores
        given = inputs["labels"], inputs["steps"], inputs["label_lengths"]
        return (_ctc(jax.nn.log_softmax(scores), *given) / inputs["label_lengths"]).mean()

    def onnx(self, w: Weights) -> Any:
        """Conv, LSTM with sequence_lens, MatMul."""
        n, v = parts.OnnxNodes(), "x"
        for k in range(2):
            given = [n.constant(w[f"conv{k}/{part}"]) for part in "wb"]
            v = n.add("Relu", n.add("Conv", v, *given, strides=[STRIDE], pads=[EDGE, EDGE]))
        v = n.add("Transpose", v, perm=[2, 0, 1])
        for k in range(2):
            v = n.lstm(v, w, k, "steps")[0]
        y = n.dense(v, w["out/w"], w["out/b"])
        return n.model({"x": ("f32", ("B", self.F, "T")), "steps": ("i32", ("B",))}, {y: ("T2", "B", self.C)})


def _behind(n: int) -> int:
    return (n + 2 * EDGE - WINDOW) // STRIDE + 1


def _ctc(likely: Any, labels: Any, steps: Any, counts: Any) -> Any:
    """[B] of log probabilities [T,B,C]: alpha over blank, l1, blank, l2, … (Graves et al., 2006)."""
    import jax
    import jax.numpy as jnp

    low = -1e30
    rows = labels.shape[0]
    spelled = jnp.zeros((rows, 2 * labels.shape[1] + 1), labels.dtype).at[:, 1::2].set(labels)
    again = jnp.pad(spelled[:, :-2], ((0, 0), (2, 0)))
    jumps = (spelled != 0) & (spelled != again) & (jnp.arange(spelled.shape[1]) > 1)
    chosen = jnp.take_along_axis(likely, jnp.broadcast_to(spelled, (likely.shape[0], *spelled.shape)), 2)
    first = jnp.full(spelled.shape, low).at[:, :2].set(chosen[0][:, :2])

    def step(alpha: Any, row: Any) -> Any:
        p, t = row
        one = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=low)
        two = jnp.where(jumps, jnp.pad(alpha[:, :-2], ((0, 0), (2, 0)), constant_values=low), low)
        new = p + jax.nn.logsumexp(jnp.stack([alpha, one, two]), 0)
        return jnp.where((t < steps)[:, None], new, alpha), None

    alpha, _ = jax.lax.scan(step, first, (chosen[1:], jnp.arange(1, likely.shape[0])))
    ends = [jnp.take_along_axis(alpha, (2 * counts - k)[:, None], 1)[:, 0] for k in (0, 1)]
    return -jnp.logaddexp(*ends)
