"""LSTM layers that run step by step, T = 1, and keep their state between calls.

Ours is a program of `li.stateful`; to torch, onnxruntime and JAX each call hands the state on that the last one gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from lstm_ir.bench.subject import Array, BenchCall, Maker, TimedRun
from lstm_ir.bench.whole import parts


@dataclass(frozen=True)
class Stream:
    """Frames x [1,B,I] through layers of width H; framed: a dense layer [H,I] with relu before and one [I,H] behind."""

    B: int
    I: int
    H: int
    layers: int = 1
    framed: bool = False

    training: ClassVar[bool] = False
    turn_calls: ClassVar[int] = 200

    @property
    def name(self) -> str:
        """For example `stream-b1-i80-h256-l2`, or `frames-…` with the dense layers."""
        text = f"{'frames' if self.framed else 'stream'}-b{self.B}"
        text += f"-i{self.I}" if self.I != self.H else ""
        return f"{text}-h{self.H}" + (f"-l{self.layers}" if self.layers > 1 else "")

    @property
    def group(self) -> str:
        """Streams; with dense layers a whole model."""
        return "models, streaming" if self.framed else "streams"

    @property
    def flops(self) -> float:
        """Of one step."""
        width = self.H if self.framed else self.I
        total = 8 * self.H * (width + self.H + (self.layers - 1) * 2 * self.H)
        return float(self.B * (total + (4 * self.I * self.H if self.framed else 0)))

    def weights(self) -> dict[str, Array]:
        """Uniform in +-1/sqrt(columns)."""
        shapes = parts.lstm_shapes(self.H if self.framed else self.I, self.H, self.layers)
        if self.framed:
            shapes |= {"in/w": (self.H, self.I), "in/b": (self.H,), "out/w": (self.I, self.H), "out/b": (self.I,)}
        rng = np.random.default_rng(self.H)
        return {n: (rng.uniform(-1, 1, s) / np.sqrt(s[-1])).astype(np.float32) for n, s in shapes.items()}

    def calls(self, count: int = 4) -> list[BenchCall]:
        """One frame each."""
        rng = np.random.default_rng(sum(map(ord, self.name)))
        return [BenchCall({"x": rng.standard_normal((1, self.B, self.I), np.float32)}, 0) for _ in range(count)]

    def program(self, names: bool = False) -> Any:
        """The entry `step` of the stateful program: steps and rows T and B, or 1 and a number."""
        import lstm_ir as li

        T, B = ("T", "B") if names else (1, self.B)
        x, w = li.input("x", (T, B, self.I)), {n: li.weight(n, a) for n, a in self.weights().items()}
        y = li.relu(li.dense(x, w["in/w"], w["in/b"])) if self.framed else x
        inputs, outputs = [x], {}
        for k in range(self.layers):
            start: dict[str, Any] = {n: li.input(f"{n}{k}", (1, B, self.H)) for n in ("h0", "c0")}
            given = [w[f"lstm{k}/{n}"] for n in ("w_ih", "w_hh", "b")]
            y, outputs[f"h{k}"], outputs[f"c{k}"] = li.lstm(y, *given, **start)
            inputs += start.values()
        outputs["y"] = li.dense(y, w["out/w"], w["out/b"]) if self.framed else y
        kept = {f"{n}0{k}": f"{n}{k}" for k in range(self.layers) for n in "hc"}
        return li.stateful(li.Graph("stream", inputs, outputs), kept).only("step")

    def runner(self, exe: Any) -> TimedRun:
        """A compiled or loaded module."""
        step = exe.entries["step"]
        return TimedRun(lambda call: step(call.arrays), lambda out: {"y": out["y"]})

    def peers(self) -> Mapping[str, Maker]:
        """torch, onnxruntime and JAX."""
        return {name: partial(make, self) for name, make in PEERS.items()}

    def peers_elsewhere(self) -> Mapping[str, Maker]:
        """None."""
        return {}


def torch(point: Stream, threads: int) -> TimedRun:
    """torch.nn.LSTM, eager."""
    import torch as t

    t.set_num_threads(threads)
    w = point.weights()
    held = {n: t.from_numpy(a) for n, a in w.items()}
    lstm, state, f = parts.torch_lstm(w, point.layers), [None], t.nn.functional

    def run(call: BenchCall) -> Any:
        with t.inference_mode():
            y = t.from_numpy(call.arrays["x"])
            y = f.relu(f.linear(y, held["in/w"], held["in/b"])) if point.framed else y
            y, state[0] = lstm(y, state[0])
            return f.linear(y, held["out/w"], held["out/b"]) if point.framed else y

    return TimedRun(run, lambda y: {"y": y.numpy()})


def onnxruntime(point: Stream, threads: int) -> TimedRun:
    """LSTM with open axes; the state is handed from call to call as arrays."""
    import onnxruntime as ort

    w, n = point.weights(), parts.OnnxNodes()
    y, state = "x", dict[str, str]()
    y = n.add("Relu", n.dense(y, w["in/w"], w["in/b"])) if point.framed else y
    for k in range(point.layers):
        y, h, c = n.lstm(y, w, k, start=(f"h0{k}", f"c0{k}"))
        state |= {f"h0{k}": h, f"c0{k}": c}
    y = n.dense(y, w["out/w"], w["out/b"]) if point.framed else y
    shape = (1, "B", point.H)
    ins = {"x": ("f32", ("T", "B", point.I)), **{name: ("f32", shape) for name in state}}
    outs = {y: ("T", "B", point.I if point.framed else point.H), **{v: shape for v in state.values()}}
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    made = n.model(ins, outs).SerializeToString()
    session = ort.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    held = {name: np.zeros((1, point.B, point.H), np.float32) for name in state}

    def run(call: BenchCall) -> Any:
        y, *rest = session.run(None, {**call.arrays, **held})
        held.update(zip(held, rest, strict=True))
        return y

    return TimedRun(run, lambda y: {"y": y})


def jax(point: Stream, threads: int) -> TimedRun:
    """jax.jit of one step; the old state is given away."""
    import jax as j
    import jax.numpy as jnp

    w = j.device_put(point.weights())

    def step(w: Any, state: Any, x: Any) -> Any:
        y, new = x, []
        y = j.nn.relu(y @ w["in/w"].T + w["in/b"]) if point.framed else y
        for k in range(point.layers):
            one = {n.replace(f"lstm{k}", "one0"): a for n, a in w.items() if n.startswith(f"lstm{k}/")}
            y, last = parts.jax_lstm(y, one, 1, None, "one", state[k])
            new.append(last)
        return new, y @ w["out/w"].T + w["out/b"] if point.framed else y

    jitted = j.jit(step, donate_argnums=(1,))
    held = [[tuple(jnp.zeros((1, point.B, point.H)) for _ in range(2)) for _ in range(point.layers)]]

    def run(call: BenchCall) -> Any:
        held[0], y = jitted(w, held[0], call.arrays["x"])
        return j.block_until_ready(y)

    return TimedRun(run, lambda y: {"y": np.asarray(y)})


PEERS: dict[str, Callable[[Stream, int], TimedRun | None]] = {"torch": torch, "onnxruntime": onnxruntime, "jax": jax}
