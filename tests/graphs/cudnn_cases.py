"""Operands for the CudnnRNN ops: random calls, graphs of one op, and the recorded cases."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import paths
from one_op import expanded as expanded
from one_op import graph as graph
from one_op import manifest

import lstm_ir as li

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
GOLDEN = paths.GOLDEN / "cudnn"
FORWARD, BACKPROP = "tf.CudnnRNNV3", "tf.CudnnRNNBackpropV3"
SIZE = "tf.CudnnRNNParamsSize"
TO, FROM = "tf.CudnnRNNParamsToCanonicalV2", "tf.CudnnRNNCanonicalToParamsV2"
OPERANDS = ("input", "input_h", "input_c", "params", "sequence_lengths")
GRADS = ("input_backprop", "input_h_backprop", "input_c_backprop", "params_backprop")
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}
SIZES = (11, 3, 5, 7)  # T, B, I, H


def params_size(L: int, D: int, I: int, H: int, **attrs: Any) -> int:
    """The formula of docs/cudnn-rnn.md."""
    G, proj = GATES[attrs.get("rnn_mode", "lstm")], attrs.get("num_proj", 0)
    Q = proj if proj not in (0, H) else H
    mode = attrs.get("input_mode", "linear_input")
    skip = mode == "skip_input" or (mode == "auto_select" and I == H)
    first = G * H * ((0 if skip else I) + Q)
    further = (L - 1) * G * H * (D * Q + Q)
    return D * (first + further + L * (Q * H if Q != H else 0) + L * 2 * G * H)


def operands(
    r: np.random.Generator,
    L: int = 1,
    sizes: tuple[int, int, int, int] = SIZES,
    kind: Any = np.float64,
    lengths: Any = None,
    scale: float = 0.5,
    **attrs: Any,
) -> Arrays:
    """Random operands of the forward op, in the layout that time_major says."""
    T, B, I, H = sizes
    D = 2 if attrs.get("direction") == "bidirectional" else 1
    proj = attrs.get("num_proj", 0)
    n = params_size(L, D, I, H, **{k: v for k, v in attrs.items() if k != "direction"})
    lstm = attrs.get("rnn_mode", "lstm") == "lstm"
    out: Arrays = {
        "input": r.standard_normal((T, B, I)),
        "input_h": r.standard_normal((L * D, B, proj if proj > 0 else H)),
        "input_c": r.standard_normal((L * D, B, H)) if lstm else np.zeros(()),
        "params": r.standard_normal(n) * scale,
    }
    if not attrs.get("time_major", True):
        out = {k: np.swapaxes(v, 0, 1).copy() if v.ndim == 3 else v for k, v in out.items()}
    typed = {k: v.astype(kind) for k, v in out.items()}
    found = np.full(B, T) if lengths is None else np.asarray(lengths)
    return typed | {"sequence_lengths": found.astype(np.int32)}


def back_operands(r: np.random.Generator | None, a: Mapping[str, Array], out: Mapping[str, Array]) -> Arrays:
    """Operands of the backprop op from those of the forward op and its results."""
    kept = {k: a[k] for k in OPERANDS} | dict(out)
    for name in ("output", "output_h", "output_c"):
        like = out[name]
        drawn = np.asarray(1.0 if r is None else r.standard_normal(like.shape))
        kept[f"{name}_backprop"] = np.broadcast_to(drawn, like.shape).astype(like.dtype)
    return kept


def back_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that the backprop op has."""
    return {k: v for k, v in attrs.items() if k != "is_training"}


def both(
    r: np.random.Generator, a: Arrays, attrs: Mapping[str, Any], run: Any = li.interpret
) -> tuple[Arrays, Arrays, Arrays]:
    """Results of the forward op and of the backprop op, and the latter's operands."""
    out = run(graph(FORWARD, a, attrs), a)
    b = back_operands(r, a, out)
    return out, run(graph(BACKPROP, b, back_attrs(attrs)), b), b


def close(got: Mapping[str, Any], want: Mapping[str, Any], tolerance: float, what: object) -> None:
    """Every wanted result within `tolerance`, absolute and relative; NaN is never within."""
    for k, b in want.items():
        a, b = np.asarray(got[k]).astype(np.float64), np.asarray(b).astype(np.float64)
        assert a.shape == b.shape, f"{what}: {k} is {a.shape}, expected {b.shape}"
        worst = float((np.abs(a - b) / (1 + np.abs(b))).max(initial=0))
        assert worst <= tolerance, f"{what}: {k} is off by {worst:.2e}"


class Recorded:
    """One case that PyTorch computed in float64; results by name, forward and backward."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.entry, self.name = entry, str(entry["name"])
        self.attrs: dict[str, Any] = dict(entry["attrs"])
        with np.load(GOLDEN / entry["file"]) as z:
            self.arrays = {k: z[k] for k in z.files}
        back = ("input_backprop", "input_h_backprop", "input_c_backprop", "params_backprop")
        self.results = {k: v for k, v in self.arrays.items() if k in RESULTS}
        self.grads = {k: v for k, v in self.arrays.items() if k in back}

    def operands(self, kind: Any = np.float32) -> Arrays:
        """Operands of the forward op."""
        found = {k: self.arrays.get(k, np.zeros((), np.float32)) for k in OPERANDS}
        if "dropout_keep" in self.arrays:
            found["dropout_keep"] = self.arrays["dropout_keep"]
        return {k: v.astype(kind) if v.dtype == np.float32 else v for k, v in found.items()}

    def back(self, a: Arrays, out: Mapping[str, Array]) -> Arrays:
        """Operands of the backprop op after a forward run."""
        b = back_operands(None, a, out)
        for k in b:
            if k.endswith("_backprop") and k in self.arrays:
                b[k] = self.arrays[k].astype(b[k].dtype)
        return b

    def forward(self, kind: Any = np.float32) -> li.Graph:
        """The forward op."""
        return graph(FORWARD, self.operands(kind), self.attrs, name=self.name)

    def backward(self, b: Arrays) -> li.Graph:
        """The backprop op."""
        return graph(BACKPROP, b, back_attrs(self.attrs), name=f"{self.name}_back")

    def __repr__(self) -> str:
        return self.name


RESULTS = ("output", "output_h", "output_c")


@cache
def recorded() -> tuple[Recorded, ...]:
    """All recorded cases."""
    return tuple(map(Recorded, manifest(GOLDEN)["cases"]))
