"""CudnnRNN: what does not fit is refused, with the op, the operand and what was expected."""

import re
from typing import Any

import cudnn_cases as cu
import numpy as np
import pytest

import lstm_ir as li

F32 = np.float32
GRU: dict[str, Any] = {"rnn_mode": "gru"}
BOTH: dict[str, Any] = {"direction": "bidirectional"}


def zeros(*shape: int, kind: Any = F32) -> Any:
    return np.zeros(shape, kind)


# name: layers, attributes, operands that replace good ones, words of the message
FORWARD: dict[str, tuple[int, dict[str, Any], dict[str, Any], str]] = {
    "params too short": (
        2, BOTH, {"params": zeros(5)},
        "params has 5 elements, lstm with 2 layers, 2 directions, input_size 5, num_units 7 "
        "has 2072",
    ),
    "params too long": (1, GRU, {"params": zeros(295)}, "num_units 7 has 294"),
    "params of the other input mode": (
        1, {"input_mode": "skip_input"}, {"params": zeros(448), "input": zeros(11, 3, 7)},
        r"no input weights (skip_input) has 252",
    ),
    "params without the projection": (
        1, {"num_proj": 4}, {"params": zeros(308)}, "num_proj 4 has 336",
    ),
    "params not a vector": (1, {}, {"params": zeros(2, 196)}, "expected a vector of 392"),
    "params of another type": (1, {}, {"params": zeros(392, kind=np.float64)}, "convert one"),
    "lengths of the wrong count": (
        1, {}, {"sequence_lengths": zeros(4, kind=np.int32)},
        "sequence_lengths is i32[4], expected [B] = [3]",
    ),
    "lengths of another type": (
        1, {}, {"sequence_lengths": zeros(3, kind=np.int64)}, "expected i32[B]",
    ),
    "lengths not a vector": (1, {}, {"sequence_lengths": zeros(3, 1, kind=np.int32)}, "[B] = [3]"),
    "input not of rank 3": (1, {}, {"input": zeros(11, 3)}, "expected [T,B,I]"),
    "input not of rank 3, batch first": (
        1, {"time_major": False}, {"input": zeros(11, 3)}, "expected [B,T,I]",
    ),
    "input of integers": (1, {}, {"input": zeros(11, 3, 5, kind=np.int32)}, "not floats"),
    "no steps": (1, {}, {"input": zeros(0, 3, 5)}, "T = 0 must be at least 1"),
    "no rows": (1, {}, {"input": zeros(11, 0, 5)}, "B = 0 must be at least 1"),
    "no columns": (1, {}, {"input": zeros(11, 3, 0)}, "input_size is 0"),
    "no units": (
        1, {}, {"input_h": zeros(1, 3, 0), "input_c": zeros(1, 3, 0)}, "num_units is 0",
    ),
    "odd states": (
        1, BOTH, {"input_h": zeros(3, 3, 7)}, "3 states are not whole layers of 2 directions",
    ),
    "no states": (1, {}, {"input_h": zeros(0, 3, 7)}, "0 states are not whole layers"),
    "empty input_h": (1, {}, {"input_h": zeros(0)}, "input_h is f32[0], expected [L*D,B,H]"),
    "empty input_c": (1, {}, {"input_c": zeros(0)}, "input_c is f32[0], expected [L*D,B,H]"),
    "scalar input_c": (1, {}, {"input_c": zeros()}, "an lstm has a cell state"),
    "states of another batch": (
        1, GRU, {"input_h": zeros(1, 4, 7)}, "input_h is f32[1,4,7], expected [L*D,B,H] = [1,3,7]",
    ),
    "states transposed": (
        1, {"time_major": False}, {"input_h": zeros(1, 3, 7), "input_c": zeros(1, 3, 7)},
        "3 states|expected [B,L*D,H]",
    ),
    "unequal states": (
        1, {}, {"input_c": zeros(1, 3, 8)}, "without a projection (num_proj) both have H columns",
    ),
    "exchanged states": (
        1, {"num_proj": 4}, {"input_h": zeros(1, 3, 7), "input_c": zeros(1, 3, 4)},
        "are the two exchanged?",
    ),
    "states of another projection": (
        1, {"num_proj": 4}, {"input_h": zeros(1, 3, 6)}, "so input_h has 4 columns",
    ),
    "cells of another count": (1, {}, {"input_c": zeros(2, 3, 7)}, "input_c is f32[2,3,7]"),
    "states of another type": (1, GRU, {"input_h": zeros(1, 3, 7, kind=np.float64)}, "convert one"),
    "skip_input with unequal sizes": (
        1, {}, {"@input_mode": "skip_input"}, "input_size 5 is not 7 units",
    ),
    "unknown rnn_mode": (1, {}, {"@rnn_mode": "mgu"}, "not one of rnn_relu, rnn_tanh, gru, lstm"),
    "unknown input_mode": (1, {}, {"@input_mode": "skip"}, "not one of linear_input"),
    "unknown direction": (1, {}, {"@direction": "both"}, "not one of unidirectional"),
    "dropout above 1": (1, {}, {"@dropout": 1.5}, "a probability in 0..1"),
    "dropout NaN": (1, {}, {"@dropout": float("nan")}, "a probability in 0..1"),
    "num_proj below 0": (1, {}, {"@num_proj": -1}, "below 0"),
    "num_proj above the units": (
        1, {}, {"@num_proj": 8, "input_h": zeros(1, 3, 8)}, "more than the 7 units",
    ),
    "num_proj of a gru": (1, GRU, {"@num_proj": 3}, "only an lstm has a projection"),
    "masks without dropout": (
        2, GRU, {"dropout_keep": zeros(1, 11, 3, 7)}, "dropout is 0: nothing would be dropped",
    ),
    "masks of another shape": (
        2, GRU, {"dropout_keep": zeros(2, 11, 3, 7), "@dropout": 0.5}, "[L-1,T,B,D*Q] = [1,11,3,7]",
    ),
    "masks of integers": (
        2, GRU, {"dropout_keep": zeros(1, 11, 3, 7, kind=np.int32), "@dropout": 0.5},
        "one of u8, i1, f32",
    ),
    "step of another type": (1, {}, {"step": zeros(kind=np.int32)}, "expected i64[]"),
    "step not a scalar": (1, {}, {"step": zeros(1, kind=np.int64)}, "expected i64[]"),
}  # fmt: skip


def moved(a: dict[str, Any], attrs: dict[str, Any], change: dict[str, Any]) -> Any:
    """Operands and attributes with some replaced; `@` marks an attribute."""
    words = {k[1:]: v for k, v in change.items() if k.startswith("@")}
    return a | {k: v for k, v in change.items() if k[0] != "@"}, attrs | words


def refused(op: str, a: dict[str, Any], attrs: dict[str, Any], words: str) -> None:
    with pytest.raises(li.IRError) as found:
        cu.graph(op, a, attrs)
    text = str(found.value)
    assert text.startswith(f"{op}: "), text
    assert any(w in text for w in words.split("|")), text
    assert re.search(r"\n  at \S*one_op\.py:\d+", text), text


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str, rng: np.random.Generator) -> None:
    L, attrs, change, words = FORWARD[name]
    sizes = (11, 3, 7 if attrs.get("input_mode") == "skip_input" else 5, 7)
    a = cu.operands(rng, L, sizes, kind=F32, **attrs)
    cu.graph(cu.FORWARD, a, attrs)
    given, more = moved(a, attrs, change)
    refused(cu.FORWARD, given, more, words)


BACKPROP: dict[str, tuple[dict[str, Any], str]] = {
    "reserve of inference": ({"reserve_space": zeros()}, "set is_training=True"),
    "reserve of another size": ({"reserve_space": zeros(9)}, "reserve_space is f32[9]"),
    "reserve of another type": ({"reserve_space": zeros(9, kind=np.float64)}, "convert one"),
    "output transposed": ({"output": zeros(3, 11, 7)}, "output is f32[3,11,7]"),
    "output_backprop too wide": ({"output_backprop": zeros(11, 3, 14)}, "the shape of output"),
    "output_h_backprop of one layer": ({"output_h_backprop": zeros(1, 3, 7)}, "shape of input_h"),
    "output_c_backprop empty": ({"output_c_backprop": zeros(0)}, "the shape of input_c"),
    "output_c a scalar": ({"output_c": zeros()}, "the shape of input_c"),
    "params too short": ({"params": zeros(5)}, "has 840"),
    "host_reserved of floats": ({"host_reserved": zeros()}, "expected i8 elements"),
    "is_training": ({"@is_training": True}, "has no attribute is_training"),
}


@pytest.mark.parametrize("name", BACKPROP)
def test_backprop(name: str, rng: np.random.Generator) -> None:
    change, words = BACKPROP[name]
    a = cu.operands(rng, 2, kind=F32)
    _, _, b = cu.both(rng, a, {})
    given, more = moved(b, {}, change)
    refused(cu.BACKPROP, given, more, words)


@pytest.mark.parametrize("bad", [[12, 3, 0], [11, -1, 0]])
def test_lengths_outside_the_sequence(bad: list[int], rng: np.random.Generator) -> None:
    a = cu.operands(rng, 1, **GRU)
    given = a | {"sequence_lengths": np.array(bad, np.int32)}
    with pytest.raises(li.ValueRangeError, match=r"outside 0\.\.11|0 <= sequence_lengths <= 11"):
        li.interpret(cu.graph(cu.FORWARD, a, GRU), given)
    turned = {k: np.swapaxes(v, 0, 1).copy() if v.ndim == 3 else v for k, v in given.items()}
    g = cu.graph(cu.FORWARD, turned, GRU | {"time_major": False})
    with pytest.raises(li.ValueRangeError, match="11"):
        li.interpret(g, turned)


def test_named_sizes_are_checked_when_called(rng: np.random.Generator) -> None:
    a = cu.operands(rng, 1, **GRU)
    named = {"input": ("T", "B", 5), "sequence_lengths": ("B",), "input_h": (1, "B", 7)}
    g = cu.graph(cu.FORWARD, a, GRU, named)
    with pytest.raises(li.CallError, match=r": T must be at least 1 \(T = 0\)$"):
        li.interpret(g, a | {"input": np.zeros((0, 3, 5))})


def test_what_other_modes_ignore(rng: np.random.Generator) -> None:
    """input_c of a gru may have any shape; its gradient has it too."""
    first = cu.operands(rng, 1, **GRU)
    want = li.interpret(cu.graph(cu.FORWARD, first, GRU), first)
    for shape in ((), (0,), (3, 4)):
        a = first | {"input_c": np.full(shape, np.nan)}
        out = li.interpret(cu.graph(cu.FORWARD, a, GRU), a)
        cu.close(out, want, 0.0, shape)
        b = cu.back_operands(None, a, out)
        got = li.interpret(cu.graph(cu.BACKPROP, b, GRU), b)
        assert got["input_c_backprop"].shape == a["input_c"].shape
        assert (got["input_c_backprop"] == 0).all()


SIZES = {"num_layers": 1, "num_units": 7, "input_size": 5}
PARAMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "size: no layers": (cu.SIZE, {"num_layers": 0}, "num_layers is 0, not 1 or more"),
    "size: a vector": (cu.SIZE, {"num_units": np.array([7], np.int32)}, "num_units is i32[1]"),
    "size: not a constant": (cu.SIZE, {"input_size": "input"}, "must be a constant"),
    "size: S of floats": (cu.SIZE, {"S": "f32"}, "S is f32, not i32 or i64"),
    "size: T of integers": (cu.SIZE, {"T": "i32"}, "T is i32, not a float"),
    "size: beyond i32": (
        cu.SIZE,
        {"num_units": 20000, "input_size": 20000},
        "params_size is 3200160000, more than i32 holds; S=int64",
    ),
    "size: beyond i64": (cu.SIZE, {"num_layers": 2**31 - 1, "num_units": 2**31 - 1, "S": "i64"}, "more than i64 holds"),
    "size: mode": (cu.SIZE, {"rnn_mode": "mgu"}, "not one of rnn_relu"),
    "to: params": (cu.TO, {"params": zeros(391)}, "params has 391 elements, these sizes have 392"),
    "to: weights": (cu.TO, {"num_params_weights": 7}, "7 num_params_weights, expected 8"),
    "to: biases": (cu.TO, {"num_params_biases": 4}, "4 num_params_biases, expected 8"),
    "from: count": (cu.FROM, {"weights": [zeros(7, 5)] * 4}, "4 weights, expected 8"),
    "from: elements": (cu.FROM, {"biases": [zeros(6)] * 8}, "biases[0] is f32[6] of 6 elements"),
    "from: types": (cu.FROM, {"biases": [zeros(7, kind=np.float64)] * 8}, "the first one f32"),
}
GOOD: dict[str, dict[str, Any]] = {
    cu.SIZE: {"T": "f32", "S": "i32"},
    cu.TO: {"params": zeros(392), "num_params_weights": 8, "num_params_biases": 8},
    cu.FROM: {"weights": [zeros(7, 5)] * 4 + [zeros(7, 7)] * 4, "biases": [zeros(7)] * 8},
}


def test_the_largest_sizes() -> None:
    """Beyond i32 in i64, of many layers, and just below 2^31."""
    for sizes, S in (((1, 20000, 20000), "i64"), ((10**6, 7, 5), "i32"), ((1, 1, 536870908), "i32")):
        layers, units, inputs = sizes
        r = li.op(cu.SIZE, num_layers=layers, num_units=units, input_size=inputs, T="f32", S=S)
        got = li.interpret(li.Graph("g", [], {"n": r.params_size}))["n"]
        assert got.tolist() == [cu.params_size(layers, 1, inputs, units)], sizes


@pytest.mark.parametrize("name", PARAMS)
def test_params_ops(name: str) -> None:
    op, change, words = PARAMS[name]
    li.op(op, **SIZES, **GOOD[op])
    replaced = dict(change)
    if replaced.get("input_size") == "input":
        replaced["input_size"] = li.input("n", (), "i32")
    with pytest.raises(li.IRError) as found:
        li.op(op, **{**SIZES, **GOOD[op], **replaced})
    assert str(found.value).startswith(f"{op}: ")
    assert words in str(found.value)
