"""What the CudnnRNN ops take: attributes, operand shapes, and the sizes that follow from them.

TensorFlow leaves most of these checks to cuDNN or makes none (docs/cudnn-rnn.md). Here every one
is made when a node is made, those on values when it is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Attr, Range, need, need_equal, need_rows
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.cudnn.layout import GATES, Network

DIRECTIONS = {"unidirectional": 1, "bidirectional": 2}
INPUT_MODES = ("linear_input", "skip_input", "auto_select")

SHARED: Mapping[str, Attr] = {
    "rnn_mode": Attr("str", "lstm"),
    "input_mode": Attr("str", "linear_input"),
    "direction": Attr("str", "unidirectional"),
    "dropout": Attr("float", 0.0),
    "seed": Attr("int", 0),
    "seed2": Attr("int", 0),
    "num_proj": Attr("int", 0),
}


@dataclass(frozen=True)
class CudnnCall:
    """The network and the sizes of one call: T steps, B rows, elements of `dtype`."""

    net: Network
    T: Dim
    B: Dim
    dtype: DType
    time_major: bool
    dropout: float

    def of(self, *shape: Dim) -> TensorType:
        """A type of the call's float dtype."""
        return TensorType(shape, self.dtype)

    def rows(self, width: int) -> TensorType:
        """[T,B,width], or [B,T,width] where rows come first."""
        lead = (self.T, self.B) if self.time_major else (self.B, self.T)
        return self.of(*lead, width)

    def state(self, width: int) -> TensorType:
        """[L*D,B,width], or [B,L*D,width] where rows come first."""
        count = self.net.L * self.net.D
        return self.of(*((count, self.B) if self.time_major else (self.B, count)), width)

    @property
    def masked(self) -> bool:
        """Whether dropout acts in training."""
        return self.dropout > 0 and self.net.L > 1

    @property
    def scale(self) -> float:
        """What kept values are multiplied by; 0 where nothing is kept."""
        return 0.0 if self.dropout == 1 else 1 / (1 - self.dropout)

    @property
    def exact(self) -> bool:
        """Whether the reserve holds saved values: not of 2-byte types, which would round them."""
        return self.dtype.bytes > 2

    def saved(self) -> list[tuple[str, int, int]]:
        """Parts of the reserve in order: name, layer, and width w of its [T,B,w]."""
        n, out = self.net, []
        for layer in range(n.L):
            last = layer == n.L - 1
            if self.exact:
                if n.G > 1:
                    out.append(("gates", layer, n.D * n.G * n.H))
                    out.append(("cells" if n.lstm else "inner", layer, n.D * n.H))
                if not last:
                    out.append(("y", layer, n.width))
            if self.masked and not last:
                out.append(("keep", layer, n.width))
        return out

    def reserve(self) -> TensorType:
        """The reserve of a training call, a vector."""
        return self.of(dims.product((self.T, self.B, sum(w for _, _, w in self.saved()))))


def one_of(name: str, value: str, choices: Any) -> None:
    """Refuse a word that is not one of the choices."""
    need(value in choices, f"{name} is {value!r}, not one of {', '.join(choices)}")


def check_attrs(rnn_mode: str, input_mode: str, direction: str, dropout: float, num_proj: int, **_: Any) -> None:
    """Refuse unknown words and numbers out of range."""
    one_of("rnn_mode", rnn_mode, GATES)
    one_of("input_mode", input_mode, INPUT_MODES)
    one_of("direction", direction, DIRECTIONS)
    need(0 <= dropout <= 1, f"dropout is {dropout}, a probability in 0..1")
    need(num_proj >= 0, f"num_proj is {num_proj}, below 0")
    problem = f"num_proj is {num_proj}; only an lstm has a projection, rnn_mode is {rnn_mode}"
    need(num_proj == 0 or rnn_mode == "lstm", problem)


def network(
    layers: int, inputs: int, units: int, *, rnn_mode: str, input_mode: str, direction: str, num_proj: int, **_: Any
) -> Network:
    """The network of checked attributes; sizes, num_proj and skip_input are checked against it."""
    for name, value in {"num_layers": layers, "num_units": units, "input_size": inputs}.items():
        need(value >= 1, f"{name} is {value}, not 1 or more")
    need(num_proj <= units, f"num_proj is {num_proj}, more than the {units} units")
    equal = f"skip_input feeds x to the gates as it is: input_size {inputs} is not {units} units"
    need(input_mode != "skip_input" or inputs == units, equal)
    skip = input_mode != "linear_input" and inputs == units
    projected = num_proj not in (0, units)
    width = num_proj if projected else units
    return Network(rnn_mode, layers, DIRECTIONS[direction], inputs, units, width, skip, projected)


def call(
    x: TensorType,
    h: TensorType,
    c: TensorType,
    params: TensorType,
    lengths: TensorType,
    *,
    time_major: bool,
    dropout: float,
    **attrs: Any,
) -> CudnnCall:
    """The sizes of a call from the operands that forward and backward share, all checked."""
    check_attrs(dropout=dropout, **attrs)
    need(x.dtype.is_float, f"input has {x.dtype} elements, not floats")
    need(x.rank == 3, f"input is {x}, expected {'[T,B,I]' if time_major else '[B,T,I]'}")
    T, B = x.shape[:2] if time_major else x.shape[1::-1]
    for name, d in (("T", T), ("B", B)):
        need_rows(d, name, f"input is {x}")
    net = _network(x, h, c, time_major, attrs)
    found = CudnnCall(net, T, B, x.dtype, time_major, dropout)
    states = "[L*D,B,%s]" if time_major else "[B,L*D,%s]"
    exactly("input_h", h, found.state(net.Q), states % ("Q" if net.projected else "H"))
    if net.lstm:
        exactly("input_c", c, found.state(net.H), states % "H")
    else:
        same_dtype("input_c", c, x.dtype)
    _check_params(params, found)
    need(lengths.dtype is DType.i32, f"sequence_lengths is {lengths}, expected i32[B]")
    exactly("sequence_lengths", lengths, TensorType((B,), DType.i32), "[B]")
    return found


def _network(x: TensorType, h: TensorType, c: TensorType, time_major: bool, attrs: dict[str, Any]) -> Network:
    """Sizes are those of the states: L*D and Q of input_h, H of input_c (lstm)."""
    lstm, num_proj = attrs["rnn_mode"] == "lstm", attrs["num_proj"]
    shown = "[L*D,B,H]" if time_major else "[B,L*D,H]"
    need(h.rank == 3, f"input_h is {h}, expected {shown}")
    need(c.rank == 3 or not lstm, f"input_c is {c}, expected {shown}; an lstm has a cell state")
    axis = 0 if time_major else 1
    fixed = {"input's last size": x.shape[2], "input_h's last size": h.shape[2]}
    fixed |= {"input_h's count of states": h.shape[axis]}
    fixed |= {"input_c's last size": c.shape[2]} if lstm else {}
    for name, d in fixed.items():
        need(isinstance(d, int), f"{name} is {d}; it is a number, not a name")
    I, Q, count = (int(str(d)) for d in list(fixed.values())[:3])
    H = int(str(c.shape[2])) if lstm else Q
    D = DIRECTIONS[attrs["direction"]]
    odd = f"input_h is {h}: {count} states are not whole layers of {D} directions"
    need(count % D == 0 and count > 0, odd)
    both = f"input_h is {h}, input_c {c}"
    if num_proj == 0:
        need(Q == H, f"{both}: without a projection (num_proj) both have H columns")
    else:
        problem = f"{both}: num_proj is {num_proj}, so input_h has {num_proj} columns"
        need(Q == num_proj, f"{problem}{'; are the two exchanged?' if H == num_proj else ''}")
    need(I >= 1, f"input is {x}: input_size is {I}, not 1 or more")
    return network(count // D, I, H, **attrs)


def _check_params(params: TensorType, call: CudnnCall) -> None:
    n = call.net
    need(params.rank == 1, f"params is {params}, expected a vector of {n.size}")
    same_dtype("params", params, call.dtype)
    sizes = f"{n.L} layers, {n.D} direction{'s' * (n.D > 1)}, input_size {n.I}, num_units {n.H}"
    more = f", num_proj {n.Q}" * n.projected + ", no input weights (skip_input)" * n.skip
    got = params.shape[0]
    need_equal(got, n.size, f"params has {got} elements, {n.mode} with {sizes}{more} has {n.size}")


def same_dtype(name: str, got: TensorType, dtype: DType) -> None:
    """Refuse an operand of another dtype."""
    need(got.dtype is dtype, f"{name} is {got}, input has {dtype} elements; convert one of them")


def exactly(name: str, got: TensorType, want: TensorType, symbols: str) -> None:
    """Refuse an operand of another dtype or shape."""
    shown = f"{symbols} = [{','.join(map(str, want.shape))}]"
    if got.dtype.is_float or want.dtype.is_float:
        same_dtype(name, got, want.dtype)
    need(got.rank == want.rank, f"{name} is {got}, expected {shown}")
    for a, b in zip(got.shape, want.shape, strict=True):
        need_equal(a, b, f"{name} is {got}, expected {shown}")


def lengths_range(node: Node) -> tuple[Range, ...]:
    """0 <= sequence_lengths <= T."""
    x = node.arg("input")
    assert isinstance(x, Value)
    return (Range("sequence_lengths", 0, x.shape[0 if node.attrs["time_major"] else 1]),)
