"""Convolutions over one axis as points of the benchmark: forward, and the gradient of either operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from lstm_ir.bench.subject import Array, BenchCall, Maker, TimedRun

FORWARD, BY_X, BY_W = WAYS = ("", "dx", "dw")


@dataclass(frozen=True)
class Convolution:
    """x [N,C,L] with w [O,C/groups,K] -> [N,O,L'], padded so that a stride of 1 keeps L where K is odd.

    way: what is computed: the result, or for its cotangent d_y the gradient by x or by w.
    """

    N: int
    C: int
    L: int
    O: int
    K: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    way: str = FORWARD

    turn_calls: ClassVar[int] = 10

    @property
    def name(self) -> str:
        """For example `conv-n16-c80-l400-o128-k5-s2-dw`; stride, dilation and groups where they are not 1."""
        text = f"conv-n{self.N}-c{self.C}-l{self.L}-o{self.O}-k{self.K}"
        for letter, n in (("s", self.stride), ("d", self.dilation), ("g", self.groups)):
            text += f"-{letter}{n}" if n > 1 else ""
        return text + (f"-{self.way}" if self.way else "")

    @property
    def group(self) -> str:
        """Forward, or gradients."""
        return "convolutions, gradients" if self.training else "convolutions, forward"

    @property
    def training(self) -> bool:
        """Whether it is a gradient."""
        return self.way != FORWARD

    @property
    def edge(self) -> int:
        """Zeros at either end."""
        return self.dilation * (self.K - 1) // 2

    @property
    def steps(self) -> int:
        """L'."""
        return (self.L + 2 * self.edge - self.dilation * (self.K - 1) - 1) // self.stride + 1

    @property
    def flops(self) -> float:
        """Of one pass: that of each gradient is the same."""
        return 2.0 * self.N * self.O * self.steps * (self.C // self.groups) * self.K

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of w."""
        return self.O, self.C // self.groups, self.K

    def weights(self) -> Array:
        """w."""
        rng = np.random.default_rng(self.O)
        w: Array = (rng.standard_normal(self.shape) / np.sqrt(self.shape[1] * self.K)).astype(np.float32)
        return w

    def calls(self, count: int = 4) -> list[BenchCall]:
        """x, and the cotangent ct_y where a gradient is asked for."""
        rng = np.random.default_rng(sum(map(ord, self.name)))
        shapes = {"x": (self.N, self.C, self.L)}
        shapes |= {"ct_y": (self.N, self.O, self.steps)} if self.training else {}
        return [BenchCall({n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}, 0) for _ in range(count)]

    def program(self, names: bool = False) -> Any:
        """The convolution, or its gradient; rows and places N and L have names, or are numbers.

        With names the gradient by x takes x too, of which only the size is read: that of d_y does not tell it.
        """
        import lstm_ir as li

        x = li.input("x", ("N", self.C, "L") if names else (self.N, self.C, self.L))
        w = li.weight("w", self.weights())
        graph = li.Graph("conv", [x], {"y": li.conv1d(x, w, self.stride, self.edge, self.dilation, self.groups)})
        if self.way == FORWARD:
            return graph
        name = "d_x" if self.way == BY_X else "d_w"
        both = li.vjp(graph, ["y"], [name[2:]])
        d_y = dict(zip(both.input_names, both.params, strict=True))["ct_y"]
        read = [d_y] if self.way == BY_X and not names else [x, d_y]
        return li.Graph("conv", read, {name: both.output(name)})

    def runner(self, exe: Any) -> TimedRun:
        """A compiled or loaded module."""
        main = exe.entries["main"]
        taken = [p.name for p in main.entry.inputs]
        (result,) = (p.name for p in main.entry.outputs)

        def run(call: BenchCall) -> Any:
            return main({n: call.arrays[n] for n in taken})

        return TimedRun(run, lambda out: {"y": out[result]})

    def peers(self) -> Mapping[str, Maker]:
        """torch, onnxruntime (forward) and JAX."""
        return {name: partial(make, self) for name, make in PEERS.items()}

    def peers_elsewhere(self) -> Mapping[str, Maker]:
        """None."""
        return {}


def torch(point: Convolution, threads: int) -> TimedRun:
    """torch.nn.functional.conv1d and what its backward pass calls."""
    import torch as t

    t.set_num_threads(threads)
    w = t.from_numpy(point.weights())
    asked = [point.way == BY_X, point.way == BY_W, False]

    def forward(call: BenchCall) -> Any:
        x = t.from_numpy(call.arrays["x"])
        return t.nn.functional.conv1d(x, w, None, point.stride, point.edge, point.dilation, point.groups)

    def backward(call: BenchCall) -> Any:
        x = t.from_numpy(call.arrays["x"])
        d_y = t.from_numpy(call.arrays["ct_y"])
        words = [point.stride], [point.edge], [point.dilation], False, [0], point.groups
        return t.ops.aten.convolution_backward(d_y, x, w, None, *words, asked)[0 if point.way == BY_X else 1]

    def run(call: BenchCall) -> Any:
        with t.inference_mode():
            return forward(call) if point.way == FORWARD else backward(call)

    return TimedRun(run, lambda y: {"y": y.numpy()})


def onnxruntime(point: Convolution, threads: int) -> TimedRun | None:
    """Conv, with open axes."""
    if point.way != FORWARD:
        return None
    import onnxruntime as ort

    from lstm_ir.bench.whole.parts import OnnxNodes

    n = OnnxNodes()
    words: dict[str, Any] = {"strides": [point.stride], "pads": [point.edge] * 2, "dilations": [point.dilation]}
    y = n.add("Conv", "x", n.constant(point.weights()), group=point.groups, **words)
    made = n.model({"x": ("f32", ("N", point.C, "L"))}, {y: ("N", point.O, "L2")})
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return TimedRun(lambda call: session.run(None, call.arrays)[0], lambda y: {"y": y})


def jax(point: Convolution, threads: int) -> TimedRun:
    """lax.conv_general_dilated and its gradients, each alone."""
    import jax as j
    import jax.numpy as jnp

    def forward(x: Any, w: Any) -> Any:
        words = {"rhs_dilation": (point.dilation,), "feature_group_count": point.groups}
        return j.lax.conv_general_dilated(x, w, (point.stride,), [(point.edge, point.edge)], **words)

    w = jnp.asarray(point.weights())
    nothing = jnp.zeros((point.N, point.C, point.L), jnp.float32)

    def compute(w: Any, arrays: Any) -> Any:
        if point.way == FORWARD:
            return forward(arrays["x"], w)
        if point.way == BY_X:
            return j.vjp(lambda x: forward(x, w), nothing)[1](arrays["ct_y"])[0]
        return j.vjp(lambda v: forward(arrays["x"], v), w)[1](arrays["ct_y"])[0]

    jitted = j.jit(compute)
    return TimedRun(lambda call: j.block_until_ready(jitted(w, call.arrays)), lambda y: {"y": np.asarray(y)})


PEERS: dict[str, Callable[[Convolution, int], TimedRun | None]] = {
    "torch": torch,
    "onnxruntime": onnxruntime,
    "jax": jax,
}


def named_sizes() -> tuple[Convolution, ...]:
    """Those of the list: in front of speech models, of raw sound, dilated, grouped, by channel, and of one place."""
    sizes = (
        Convolution(8, 80, 400, 128, 5, stride=2), Convolution(8, 128, 200, 128, 5, stride=2),
        Convolution(1, 64, 1000, 64, 3, dilation=8), Convolution(1, 1, 16000, 64, 400, stride=160),
        Convolution(16, 256, 200, 256, 31, groups=256), Convolution(8, 128, 300, 128, 5, groups=4),
        Convolution(32, 128, 50, 100, 3), Convolution(16, 256, 200, 256, 1),
    )  # fmt: skip
    return tuple(replace(c, way=way) for c in sizes for way in WAYS)
