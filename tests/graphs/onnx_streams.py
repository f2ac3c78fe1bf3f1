"""Random ONNX models over time, block by block: causal ones, and blocks that have to know later steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_models as om

Array = np.ndarray[Any, Any]


@dataclass
class Chain:
    """A model as it grows; the last value is [B, T, C], time on axis 1."""

    rng: np.random.Generator
    first: int  # channels of x
    channels: int
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    last: str = "x"
    unit: int = 1
    ahead: list[str] = field(default_factory=list)  # names of the nodes that look ahead
    blocks: list[str] = field(default_factory=list)

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        """The first result of a new node."""
        name = f"n{len(self.nodes)}_{op}"
        results = [f"{name}_{k}" if k else name for k in range(outputs)]
        self.nodes.append(om.node(op, inputs, results, name=name, **attrs))
        return name

    def weight(self, *shape: int, scale: float = 0.5) -> str:
        """A new weight."""
        return self.literal((scale * self.rng.standard_normal(shape)).astype(np.float32))

    def literal(self, array: Any) -> str:
        """A new initializer."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def integer(self, low: int, high: int) -> int:
        """One of low .. high."""
        return int(self.rng.integers(low, high + 1))

    def turned(self, x: str) -> str:
        """[B, T, C] as [B, C, T], and back."""
        return self.node("Transpose", x, perm=[0, 2, 1])

    def made(self) -> Any:
        """The model over x [B, T, C]."""
        nodes = [*self.nodes, om.node("Identity", [self.last], ["y"])]
        return om.model(nodes, {"x": (["B", "T", self.first], np.float32)}, ["y"], self.weights)


def _conv(c: Chain, x: str, pads: tuple[int, int], k: int, stride: int, dilation: int) -> str:
    groups = 2 if c.channels % 2 == 0 and c.integer(0, 1) else 1
    w = c.weight(c.channels, c.channels // groups, k)
    b = c.weight(c.channels)
    given: dict[str, Any] = {"pads": list(pads), "strides": [stride], "dilations": [dilation], "group": groups}
    return c.node("Conv", x, w, b, **given)


def causal_conv(c: Chain) -> None:
    k, d = c.integer(1, 4), c.integer(1, 3)
    low = (k - 1) * d
    x = c.turned(c.last)
    match c.integer(0, 2):
        case 0:
            y = _conv(c, x, (low, 0), k, 1, d)
        case 1:
            p = c.node("Pad", x, c.literal(np.array([0, 0, low, 0, 0, 0])), c.literal(np.float32(0.3)))
            y = _conv(c, p, (0, 0), k, 1, d)
        case _:  # padding on both sides, and what stands too far cut off
            y = _conv(c, x, (low, low), k, 1, d)
            if low:
                y = c.node("Slice", y, c.literal([0]), c.literal([-low]), c.literal([2]))
    c.last = c.turned(y)


def strided_conv(c: Chain) -> None:
    k, d, stride = c.integer(2, 5), c.integer(1, 2), c.integer(2, 3)
    reach = (k - 1) * d
    low = c.integer(max(0, reach + 1 - stride), reach)
    c.last = c.turned(_conv(c, c.turned(c.last), (low, 0), k, stride, d))
    c.unit *= stride


def transposed_conv(c: Chain) -> None:
    """More steps, each spread over the rows after it; what is spread behind the last row is cut off."""
    k, d, stride = c.integer(1, 4), c.integer(1, 2), c.integer(1, 3)
    width = (k - 1) * d + 1
    tail = max(0, width - stride)
    given: dict[str, Any] = {"strides": [stride], "dilations": [d]}
    if width < stride:
        given["output_padding"] = [stride - width]
    elif c.integer(0, 1):
        given["pads"], tail = [0, tail], 0
    y = c.node("ConvTranspose", c.turned(c.last), c.weight(c.channels, c.channels, k), c.weight(c.channels), **given)
    if tail:
        y = c.node("Slice", y, c.literal([0]), c.literal([-tail]), c.literal([2]))
    c.last = c.turned(y)


def joined_conv(c: Chain) -> None:
    """Rows of the file before the first step, in place of padding."""
    k, low = c.integer(2, 3), 0
    x = c.turned(c.last)
    low = k - 1
    if c.integer(0, 1):
        before = c.weight(1, c.channels, low)
        shape = c.node("Concat", c.node("Shape", x, start=0, end=1), c.literal([c.channels, low]), axis=0)
        rows = c.node("Expand", before, shape)
    else:
        shape = c.node("Concat", c.node("Shape", x, start=0, end=1), c.literal([c.channels, low]), axis=0)
        rows = c.node("ConstantOfShape", shape, value=om.tensor(np.array([0.3], np.float32)))
    c.last = c.turned(_conv(c, c.node("Concat", rows, x, axis=2), (0, 0), k, 1, 1))


def running_mean(c: Chain) -> None:
    """Sums over time, of all rows so far or of those before."""
    sums = c.node("CumSum", c.last, c.literal(np.int64(1)), exclusive=c.integer(0, 1))
    c.last = c.node("Mul", sums, c.literal(np.float32(0.25)))


def shift(c: Chain) -> None:
    pads = c.literal(np.array([0, 1, 0, 0, -1, 0]))
    c.last = c.node("Sub", c.last, c.node("Pad", c.last, pads))


def pool(c: Chain) -> None:
    x, k = c.turned(c.last), c.integer(2, 3)
    if c.integer(0, 1):
        c.last = c.turned(c.node("MaxPool", x, kernel_shape=[k], strides=[1], pads=[k - 1, 0]))
    else:
        c.last = c.turned(c.node("AveragePool", x, kernel_shape=[k], strides=[k]))
        c.unit *= k


def layer(c: Chain, direction: str = "forward") -> str:
    op, gates = [("LSTM", 4), ("GRU", 3), ("RNN", 1)][c.integer(0, 2)]
    D, H = 2 if direction == "bidirectional" else 1, c.integer(2, 5)
    w, r, b = c.weight(D, gates * H, c.channels), c.weight(D, gates * H, H), c.weight(D, 2 * gates * H)
    x = c.node("Transpose", c.last, perm=[1, 0, 2])
    y = c.node(op, x, w, r, b, hidden_size=H, direction=direction)
    rows = c.node("Transpose", y, perm=[2, 0, 1, 3])  # [B, T, D, H]
    c.last = c.node("Reshape", rows, c.literal(np.array([0, 0, D * H])))
    c.channels = D * H
    return y


def linear(c: Chain) -> None:
    wide = c.integer(2, 6)
    w = c.weight(c.channels, wide)
    if c.integer(0, 1):  # all steps of all sequences as one axis
        flat = c.node("Reshape", c.last, c.literal(np.array([-1, c.channels])))
        shape = c.node("Concat", c.node("Shape", c.last, start=0, end=2), c.literal(np.array([wide])), axis=0)
        c.last = c.node("Reshape", c.node("Gemm", flat, w, c.weight(wide)), shape)
    else:
        c.last = c.node("Add", c.node("MatMul", c.last, w), c.weight(wide))
    c.channels = wide


def pointwise(c: Chain) -> None:
    match c.integer(0, 3):
        case 0:
            c.last = c.node("Softmax", c.last, axis=-1)
        case 1:
            c.last = c.node("LayerNormalization", c.last, c.weight(c.channels), c.weight(c.channels))
        case 2:
            c.last = c.node("Tanh", c.node("Mul", c.last, c.weight(1, 1, c.channels)))
        case _:
            c.last = c.node("Add", c.last, c.node("ReduceMax", c.last, c.literal(np.array([2])), keepdims=1))


def residual(c: Chain) -> None:
    before = c.last
    causal_conv(c)
    c.last = c.node("Add", c.node("Relu", c.last), before)


def recurrence(c: Chain) -> None:
    """A leaky sum by Scan."""
    body = om.graph(
        [
            om.node("Mul", ["h", "half"], ["less"]), om.node("Add", ["less", "row"], ["new"]),
            om.node("Tanh", ["new"], ["out"]),
        ],
        {"h": (["B", c.channels], np.float32), "row": (["B", c.channels], np.float32)},
        ["new", "out"],
        {"half": np.float32(0.5)},
    )  # fmt: skip
    batch = c.node("Shape", c.last, start=0, end=1)
    shape = c.node("Concat", batch, c.literal(np.array([c.channels])), axis=0)
    zero = c.node("Expand", c.literal(np.float32(0.25)), shape)
    name = c.node(
        "Scan", zero, c.last, outputs=2, body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1]
    )  # fmt: skip
    c.last = f"{name}_1"


CAUSAL: tuple[Callable[[Chain], Any], ...] = (
    causal_conv, strided_conv, shift, pool, layer, linear, pointwise, residual, recurrence, transposed_conv,
    joined_conv, running_mean,
)  # fmt: skip


# Blocks that look ahead; each notes the name of its node.


def symmetric(c: Chain) -> None:
    c.last = c.turned(blamed(c, _conv(c, c.turned(c.last), (2, 2), 5, 1, 1)))


def backward(c: Chain) -> None:
    blamed(c, layer(c, ["reverse", "bidirectional"][c.integer(0, 1)]))


def from_the_end(c: Chain) -> None:
    c.last = blamed(c, c.node("CumSum", c.last, c.literal(np.int64(1)), reverse=1))


def cut_before(c: Chain) -> None:
    """A transposed convolution that cuts off as much before as after, as PyTorch's padding does."""
    w = c.weight(c.channels, c.channels, 4)
    c.last = c.turned(blamed(c, c.node("ConvTranspose", c.turned(c.last), w, strides=[2], pads=[1, 1])))


def shifted_and_symmetric(c: Chain) -> None:
    """The rows that the window needs were cut off by the shift."""
    x = c.node("Pad", c.turned(c.last), c.literal(np.array([0, 0, 3, 0, 0, -3])))
    c.last = c.turned(blamed(c, _conv(c, x, (1, 1), 3, 1, 1)))


def centred(c: Chain) -> None:
    over = blamed(c, c.node("ReduceMean", c.last, c.literal(np.array([1])), keepdims=1))
    c.last = c.node("Sub", c.last, over)


def attention(c: Chain) -> None:
    c.last = blamed(c, c.node("Softmax", c.last, axis=1))


def overall(c: Chain) -> None:
    over = blamed(c, c.node("GlobalAveragePool", c.turned(c.last)))
    c.last = c.turned(c.node("Add", c.turned(c.last), over))


def turned_round(c: Chain) -> None:
    limits = [c.literal(np.array([n])) for n in (-1, -(2**62), 1, -1)]
    c.last = blamed(c, c.node("Slice", c.last, *limits))


def blamed(c: Chain, name: str) -> str:
    c.ahead.append(name)
    return name


AHEAD: tuple[Callable[[Chain], Any], ...] = (
    symmetric, backward, centred, attention, overall, turned_round, from_the_end, cut_before, shifted_and_symmetric,
)  # fmt: skip


def chain(rng: np.random.Generator, blocks: int, ahead: int = 0) -> Chain:
    """So many causal blocks in a random order, with so many others between them."""
    channels = int(rng.integers(2, 6))
    c = Chain(rng, channels, channels)
    chosen = [CAUSAL[k] for k in rng.integers(len(CAUSAL), size=blocks)]
    if ahead:
        chosen.append(layer)  # without a layer or a window nothing says which size is time
    for _ in range(ahead):
        chosen.insert(int(rng.integers(len(chosen) + 1)), AHEAD[rng.integers(len(AHEAD))])
    for block in chosen:
        if block in (strided_conv, pool) and c.unit > 3:
            continue
        c.blocks.append(block.__name__)
        block(c)
    return c
