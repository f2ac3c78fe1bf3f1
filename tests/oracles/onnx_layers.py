"""LSTM, GRU and RNN of the ONNX specification in plain NumPy, one row and one step at a time.

Written from the equations of the operators' pages; nothing is shared with the package. Names and
layouts are ONNX's. Operands are a mapping; absent ones are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Operands = Mapping[str, Array]
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
PARAMETERS: dict[str, tuple[float | None, ...]] = {  # defaults of alpha and beta, of those activations that have them
    "Affine": (None, None), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,),
    "ScaledTanh": (None, None), "ThresholdedRelu": (1.0,),
}  # fmt: skip


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Affine": lambda x, a, b: a * x + b,
    "Elu": lambda x, a: np.where(x >= 0, x, a * (np.exp(np.minimum(x, 0)) - 1)),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "LeakyRelu": lambda x, a: np.where(x >= 0, x, a * x),
    "Relu": lambda x: np.maximum(x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "Sigmoid": sigmoid,
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x, a: np.where(x >= a, x, 0),
}


def activations(op: str, D: int, attrs: Mapping[str, Any]) -> list[Callable[[Array], Array]]:
    """Those of all directions; alpha and beta go to those that have one, in their order."""
    alphas, betas = list(attrs.get("activation_alpha", [])), list(attrs.get("activation_beta", []))
    made: list[Callable[[Array], Array]] = []
    for name in attrs.get("activations", DEFAULTS[op] * D):
        p: list[Any] = list(PARAMETERS.get(name, ()))
        if p and alphas:
            p[0] = alphas.pop(0)
        if len(p) > 1 and betas:
            p[1] = betas.pop(0)
        exact = tuple(float(np.float32(v)) for v in p)  # attributes are f32, in layers of f64 too
        made.append(partial(_applied, FUNCTIONS[name], exact))
    return made


def _applied(function: Callable[..., Array], parameters: tuple[float, ...], x: Array) -> Array:
    return np.asarray(function(x, *parameters))


def run(op: str, operands: Operands, attrs: Mapping[str, Any]) -> list[Array]:
    """Y, Y_h and, of an LSTM, Y_c; computed in f64."""
    o = {k: np.asarray(v, np.float64) for k, v in operands.items()}
    x, layout = o["X"], attrs.get("layout", 0)
    x = np.swapaxes(x, 0, 1) if layout else x
    T, B, _ = x.shape
    D, _, H = o["R"].shape
    lens = o.get("sequence_lens", np.full(B, T)).astype(int)
    ways = {"forward": [1], "reverse": [-1], "bidirectional": [1, -1]}[attrs.get("direction", "forward")]
    acts = activations(op, D, attrs)
    each = len(DEFAULTS[op])
    Y, Y_h, Y_c = np.zeros((T, D, B, H)), np.zeros((D, B, H)), np.zeros((D, B, H))
    for d, way in enumerate(ways):
        for b in range(B):
            h, c = (_start(o, name, d, b, H, layout) for name in ("initial_h", "initial_c"))
            for t in range(lens[b])[::way]:
                h, c = STEPS[op](x[t, b], h, c, o, d, attrs, acts[d * each : d * each + each])
                Y[t, d, b] = h
            Y_h[d, b], Y_c[d, b] = h, c
    states = [Y_h, Y_c] if op == "LSTM" else [Y_h]
    if layout:
        return [Y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in states)]
    return [Y, *states]


def _start(o: Operands, name: str, d: int, b: int, H: int, layout: int) -> Array:
    if name not in o:
        return np.zeros(H)
    return np.asarray(o[name][b, d] if layout else o[name][d, b])


def _clip(x: Array, attrs: Mapping[str, Any]) -> Array:
    limit = float(np.float32(attrs.get("clip", np.inf)))
    return np.asarray(np.clip(x, -limit, limit))


def _parts(o: Operands, d: int, gates: int) -> tuple[list[Array], list[Array], list[Array], list[Array]]:
    W, R = np.split(o["W"][d], gates), np.split(o["R"][d], gates)
    B = np.split(o["B"][d], 2 * gates) if "B" in o else [np.zeros(len(R[0]))] * (2 * gates)
    return W, R, B[:gates], B[gates:]


def lstm_step(x: Array, h: Array, c: Array, o: Operands, d: int, attrs: Any, acts: Any) -> tuple[Array, Array]:
    W, R, Wb, Rb = _parts(o, d, 4)
    p_i, p_o, p_f = np.split(o["P"][d], 3) if "P" in o else [np.zeros(len(h))] * 3
    f, g, last = acts
    pre = [W[k] @ x + R[k] @ h + Wb[k] + Rb[k] for k in range(4)]  # i, o, f, c
    i = f(_clip(pre[0] + p_i * c, attrs))
    forget = 1 - i if attrs.get("input_forget") else f(_clip(pre[2] + p_f * c, attrs))
    new = forget * c + i * g(_clip(pre[3], attrs))
    out = f(_clip(pre[1] + p_o * new, attrs))
    return out * last(new), new


def gru_step(x: Array, h: Array, c: Array, o: Operands, d: int, attrs: Any, acts: Any) -> tuple[Array, Array]:
    W, R, Wb, Rb = _parts(o, d, 3)
    f, g = acts
    z = f(_clip(W[0] @ x + R[0] @ h + Wb[0] + Rb[0], attrs))
    r = f(_clip(W[1] @ x + R[1] @ h + Wb[1] + Rb[1], attrs))
    inner = r * (R[2] @ h + Rb[2]) if attrs.get("linear_before_reset") else R[2] @ (r * h) + Rb[2]
    new = g(_clip(W[2] @ x + Wb[2] + inner, attrs))
    return (1 - z) * new + z * h, c


def rnn_step(x: Array, h: Array, c: Array, o: Operands, d: int, attrs: Any, acts: Any) -> tuple[Array, Array]:
    (W,), (R,), (Wb,), (Rb,) = _parts(o, d, 1)
    return acts[0](_clip(W @ x + R @ h + Wb + Rb, attrs)), c


STEPS = {"LSTM": lstm_step, "GRU": gru_step, "RNN": rnn_step}
