"""Samples of the LSTM layers with zoneout, recurrent dropout and layer norm; expected by plain loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sample import Array, Sample, bad_of, data, of

import lstm_ir as li
from lstm_ir.ops.nn import threefry

T, B, I, H = 4, 3, 5, 2
KEY = np.array([7, 2**31 + 3], np.uint32)
Given = dict[str, Array]
LENGTHS = np.array([4, 0, 2], np.int32)


def bits(shape: tuple[int, ...]) -> Array:
    """Random bits under KEY; test_cudnn_dropout.py holds them to the cipher's published blocks."""
    key = li.input("key", (2,), "u32")
    g = li.Graph("bits", [key], {"bits": threefry.random_bits(key, shape)})
    return li.interpret(g, key=KEY)["bits"]


def shapes(op: str, d: int) -> dict[str, tuple[int, ...]]:
    """Of every operand but lengths and key."""
    out: dict[str, tuple[int, ...]] = {
        "x": (T, B, I), "w_ih": (d, 4 * H, I), "w_hh": (d, 4 * H, H), "b": (d, 4 * H),
        "h0": (d, B, H), "c0": (d, B, H),
    }  # fmt: skip
    if op == "layer_norm_lstm":
        out |= {"scale_x": (d, 4 * H), "scale_h": (d, 4 * H), "scale_c": (d, H), "bias_c": (d, H)}
    return out


def plain(op: str, a: Given, attrs: dict[str, Any]) -> Given:
    """The layer, one number at a time over rows, in the arrays' precision."""
    d_count = a["w_hh"].shape[0]
    y = np.zeros((T, B, d_count * H), a["x"].dtype)
    finals = {n: a[s].copy() for n, s in (("h_n", "h0"), ("c_n", "c0"))}
    ends = a.get("lengths", np.full(B, T))
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    for d, reverse in enumerate(backward[attrs.get("direction", "forward")]):
        for b in range(B):
            h, c = a["h0"][d, b], a["c0"][d, b]
            times = range(int(ends[b]))
            for t in reversed(times) if reverse else times:
                h, c = cell(op, a, attrs, (d, t, b), h, c)
                y[t, b, d * H : (d + 1) * H] = h
            finals["h_n"][d, b], finals["c_n"][d, b] = h, c
    return {"y": y, **finals}


def cell(op: str, a: Given, attrs: dict[str, Any], at: tuple[int, int, int], h: Array, c: Array) -> tuple[Array, Array]:
    d, t, b = at
    wx, rh = a["w_ih"][d] @ a["x"][t, b], a["w_hh"][d] @ h
    if op == "layer_norm_lstm":
        eps = attrs.get("epsilon", 1e-5)
        wx, rh = norm(wx, eps) * a["scale_x"][d], norm(rh, eps) * a["scale_h"][d]
    gi, gf, gg, go = np.split(wx + rh + a["b"][d], 4)
    i, f, g, o = 1 / (1 + np.exp(-gi)), 1 / (1 + np.exp(-gf)), np.tanh(gg), 1 / (1 + np.exp(-go))
    training = attrs.get("training", True)
    share = a["w_hh"].shape[0]
    if op == "recurrent_dropout_lstm" and training:
        below = bits((share, T, B, H))[at] < attrs["rate"] * 2.0**32
        g = np.where(below, 0, g / (1 - attrs["rate"]))
    new = f * c + i * g
    if op == "layer_norm_lstm":
        return o * np.tanh(norm(new, eps) * a["scale_c"][d] + a["bias_c"][d]), new
    out = o * np.tanh(new)
    if op == "zoneout_lstm":
        p, q = attrs["zoneout_c"], attrs["zoneout_h"]
        if training:
            drawn = bits((2, share, T, B, H))
            below_c, below_h = drawn[(0, *at)] < p * 2.0**32, drawn[(1, *at)] < q * 2.0**32
            return np.where(below_h, h, out), np.where(below_c, c, new)
        return q * h + (1 - q) * out, p * c + (1 - p) * new
    return out, new


def norm(v: Array, epsilon: float) -> Array:
    return np.asarray((v - v.mean()) / np.sqrt(v.var() + epsilon))


RATES = {
    "zoneout_lstm": {"zoneout_c": 0.5, "zoneout_h": 0.25},
    "recurrent_dropout_lstm": {"rate": 0.4},
    "layer_norm_lstm": {"epsilon": 1e-3},
}
CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "plain": ({}, False),
    "lengths": ({"direction": "reverse"}, True),
    "both ways": ({"direction": "bidirectional"}, True),
    "inference": ({"training": False}, False),
}


def arrays(op: str, case: str, kind: type) -> tuple[Given, dict[str, Any]]:
    """Operands without the key, and attributes."""
    more, lengths = CASES[case]
    attrs = {**RATES[op], **more}
    d = 2 if attrs.get("direction") == "bidirectional" else 1
    given: Given = {n: data(f"{op} {n}", "f64", s, -1, 1).astype(kind) for n, s in shapes(op, d).items()}
    return given | ({"lengths": LENGTHS} if lengths else {}), attrs


def build(op: str, given: Given, attrs: dict[str, Any]) -> li.Graph:
    """A graph with every operand as an input; T and B are named in some."""
    ins = {n: li.input(n, a.shape, li.DType.of(a.dtype)) for n, a in given.items()}
    if op != "layer_norm_lstm":
        ins["key"] = li.input("key", (2,), "u32")
    out = getattr(li, op)(**ins, **attrs)
    return li.Graph(op, list(ins.values()), out._asdict())


def _samples(op: str) -> Iterator[Sample]:
    for case in CASES:
        if op == "layer_norm_lstm" and case == "inference":
            continue
        for kind in (np.float32, np.float64):
            given, attrs = arrays(op, case, kind)
            exact = {n: a.astype("f8") if a.dtype == kind else a for n, a in given.items()}
            graph = build(op, given, attrs)
            inputs = given if op == "layer_norm_lstm" else {**given, "key": KEY}
            name = f"{op} {case} {np.dtype(kind).name}"
            yield Sample(name, graph, inputs, plain(op, exact, attrs), "layer")


for _op in RATES:
    of(_op)(partial(_samples, _op))


def _in(*shape: int | str) -> li.Value:
    return li.input("x", shape)


def _key() -> li.Value:
    return li.random_key(1)


W = (_in(4, 3, 5), _in(8, 5), _in(8, 2))
Z: dict[str, Any] = {"zoneout_c": 0.5, "zoneout_h": 1.5}
bad_of(
    "zoneout_lstm",
    (lambda: li.zoneout_lstm(*W, key=_key(), **Z), "zoneout_h is 1.5"),
    (lambda: li.zoneout_lstm(*W, key=_in(2), zoneout_c=0, zoneout_h=0), "key is f32"),
)
bad_of(
    "recurrent_dropout_lstm",
    (lambda: li.recurrent_dropout_lstm(*W, key=_key(), rate=-0.1), "rate is -0.1"),
    (lambda: li.recurrent_dropout_lstm(*W[:2], W[1], key=_key(), rate=0.1), "w_hh is f32"),
)
bad_of("layer_norm_lstm", (lambda: li.layer_norm_lstm(*W, scale_c=_in(3)), "scale_c is f32"))
