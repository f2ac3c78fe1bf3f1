"""Options of every builder, optimizer and loader that are no good: the project's error says which, or it works.

Negative, huge, not a number, of other classes: True, NumPy's numbers, texts, lists. What works is a sound graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import campaign
import numpy as np

import lstm_ir as li
from lstm_ir.backends.compile.compiler import option_flags
from lstm_ir.backends.files.archive import read_package
from lstm_ir.ir.graph import topological
from lstm_ir.options import checked

Rng = np.random.Generator
ODD: tuple[Any, ...] = (
    0, 1, -1, 2, -5, 7, 2**31, 2**62, 2**63, -(2**63) - 1, 10**40, 0.0, -0.0, 0.5, 1.5, -1.5, 1e39, 1e400, -1e400,
    float("nan"), True, False, None, "", "x", "sum", "T", "f32", "é\ud800", b"x", [], (), {}, [1], (0, 0), [0, -1],
    [0.5], [None], ["T"], (1, 2, 3, 4, 5, 6, 7), np.int32(1), np.int64(-1), np.uint8(255), np.float32(0.5),
    np.float64("nan"), np.bool_(True), np.array(1), np.array([1, 2]), np.array("x"), 1j, object(), li.DType.f32,
    range(2), {1: 2}, ...,
)  # fmt: skip

X = li.input("x", (4, 3, 6))
N = li.input("n", ("T", 3, 6))
I = li.input("i", (3,), "i32")
S = li.input("s", (), "i32")
LABEL = li.input("label", (4, 3), "i32")
KEY = li.random_key(0)
W = {"x": X, "w_ih": li.zeros((8, 6)), "w_hh": li.zeros((8, 2))}
G3 = {"x": X, "w_ih": li.zeros((6, 6)), "w_hh": li.zeros((6, 2))}
R = {"x": X, "w_ih": li.zeros((2, 6)), "w_hh": li.zeros((2, 2))}
LOSS = li.Graph("g", [X], {"loss": li.sum(li.tanh(X @ li.weight("w", np.ones((6, 2), "f4"))))})


def cell(c: Any, x: Any, *step: Any) -> Any:
    return c + x, c


# Calls that are sound, by name; every argument that is no value of a graph is an option.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    f.__name__: (f, a)
    for f, a in (
        (li.arange, {"size": 3, "dtype": "i32"}),
        (li.argmax, {"x": X, "axis": 1}),
        (li.bitcast_convert, {"x": X, "dtype": "i32"}),
        (li.broadcast_in_dim, {"x": I, "shape": (4, 3), "broadcast_dimensions": (1,)}),
        (li.broadcast_to, {"x": I, "shape": (4, 3)}),
        (li.compare, {"a": X, "b": X, "direction": "lt"}),
        (li.concat, {"xs": [X, X], "axis": 0}),
        (li.constant, {"array": [1, 2], "dtype": "i32"}),
        (li.conv1d, {"x": li.input("c", (2, 8, 6)), "w": li.zeros((3, 6, 2)), "stride": 1, "padding": 0, "dilation": 1,
                     "groups": 1}),
        (li.conv2d, {"x": li.input("c", (2, 8, 6, 5)), "w": li.zeros((3, 4, 2, 3)), "stride": (1, 2),
                     "padding": ((0, 1), 2), "dilation": 1, "groups": 2}),
        (li.conv_transpose1d, {"x": li.input("c", (2, 8, 6)), "w": li.zeros((8, 3, 2)), "stride": 2, "padding": 1,
                               "output_padding": 1, "groups": 2, "dilation": 1}),
        (li.max_pool2d, {"x": li.input("c", (2, 8, 6, 5)), "kernel_size": 2, "stride": (1, 2), "padding": 1,
                         "dilation": 1, "ceil_mode": False}),
        (li.avg_pool1d, {"x": li.input("c", (2, 8, 6)), "kernel_size": 2, "stride": 1, "padding": 1, "ceil_mode": False,
                         "count_include_pad": True}),
        (li.convert, {"x": X, "dtype": "f64"}),
        (li.cross_entropy, {"logits": X, "labels": LABEL, "label_smoothing": 0.1, "reduction": "mean"}),
        (li.ctc_loss, {"logits": X, "labels": li.input("l", (3, 2), "i32"), "input_lengths": I, "label_lengths": I,
                       "blank": 0, "reduction": "mean"}),
        (li.cumsum, {"x": X, "axis": 0, "reverse": False, "exclusive": False}),
        (li.dim, {"x": N, "axis": 0}),
        (li.dot_general, {"lhs": X, "rhs": X, "contracting": ((2,), (2,)), "batching": ((0,), (0,))}),
        (li.dropout, {"x": X, "rate": 0.5, "key": KEY, "training": True}),
        (li.dynamic_slice, {"x": X, "start": [S, S, S], "sizes": (1, 2, 3)}),
        (li.expand_dims, {"x": X, "axis": 0}),
        (li.full, {"shape": (2, 3), "value": 1.5, "dtype": "f32"}),
        (li.gru, {**G3, "direction": "forward", "layout": "time", "activations": (), "gate_clip": 0.0,
                  "padding": "zero", "save": False, "reset_after": True, "flip_z": False}),
        (li.in_range, {"x": S, "low": 0, "high": 4}),
        (li.index, {"x": X, "key": 0}),
        (li.input, {"name": "a", "shape": (2, "T"), "dtype": "f32"}),
        (li.iota, {"shape": (2, 3), "dimension": 0, "dtype": "i32"}),
        (li.layer_norm, {"x": X, "epsilon": 1e-5}),
        (li.layer_norm_lstm, {**W, "direction": "forward", "epsilon": 1e-5}),
        (li.log_softmax, {"x": X, "axis": -1}),
        (li.lstm, {**W, "direction": "forward", "layout": "time", "activations": (), "forget_bias": 0.0,
                   "cell_clip": 0.0, "clip_gradient": "exact", "gate_clip": 0.0, "input_forget": False,
                   "output_peephole": "new", "padding": "zero", "save": False}),
        (li.max, {"x": X, "axis": 0, "keepdims": False}),
        (li.mean, {"x": X, "axis": (0, 1), "keepdims": False}),
        (li.mse, {"x": X, "target": X, "reduction": "mean"}),
        (li.ones, {"shape": (2, 3), "dtype": "f32"}),
        (li.pad, {"x": X, "low": (0, 1, 2), "high": (0, 0, 0), "interior": (0, 0, 0), "value": 0.0}),
        (li.random_key, {"seed": 3, "stream": 0}),
        (li.recurrent_dropout_lstm, {**W, "key": KEY, "rate": 0.5, "direction": "forward", "training": True}),
        (li.reshape, {"x": X, "shape": (12, 6)}),
        (li.reverse, {"x": X, "axis": 0}),
        (li.rnn, {**R, "direction": "forward", "layout": "time", "activations": (), "gate_clip": 0.0, "padding": "zero",
                  "save": False}),
        (li.scan, {"cell": cell, "init": li.zeros((3, 6)), "xs": X, "length": 4, "reverse": False, "with_step": False,
                   "name": "s"}),
        (li.scatter_add, {"x": X, "indices": I, "updates": li.zeros((3, 3, 6)), "axis": 0}),
        (li.size, {"d": "T"}),
        (li.slice, {"x": X, "start": (0, 0, 0), "limit": (1, 2, 3), "strides": (1, 1, 1)}),
        (li.softmax, {"x": X, "axis": -1}),
        (li.squeeze, {"x": li.zeros((1, 3)), "axis": 0}),
        (li.stack, {"xs": [X, X], "axis": 0}),
        (li.sum, {"x": X, "axis": 0, "keepdims": False}),
        (li.swapaxes, {"x": X, "a": 0, "b": 1}),
        (li.take, {"x": X, "indices": I, "axis": 0}),
        (li.transpose, {"x": X, "axes": (2, 0, 1)}),
        (li.weight, {"name": "w", "array": [1.0, 2.0], "dtype": "f32"}),
        (li.zeros, {"shape": (2, 3), "dtype": "f32"}),
        (li.zoneout_lstm, {**W, "key": KEY, "zoneout_c": 0.1, "zoneout_h": 0.1, "direction": "forward",
                           "training": True}),
        (li.adam, {"lr": 0.1, "betas": (0.9, 0.99), "epsilon": 1e-8, "weight_decay": 0.0}),
        (li.adamw, {"lr": 0.1, "betas": (0.9, 0.99), "epsilon": 1e-8, "weight_decay": 0.0}),
        (li.momentum, {"lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 0.0}),
        (li.sgd, {"lr": 0.1, "weight_decay": 0.0}),
        (li.train_step, {"graph": LOSS, "loss": "loss", "optimizer": li.sgd(0.1), "trainable": "*", "clip_norm": 1.0,
                         "remat": None, "stop_on_nan": True}),
        (li.grad, {"graph": LOSS, "of": "loss", "wrt": "x", "remat": None}),
        (li.vjp, {"graph": LOSS, "of": "loss", "wrt": "x", "remat": None}),
        (li.set_threads, {"n": 2}),
        (li.load, {"path": "none.lirpkg", "device": "cpu", "options": {}}),
        (read_package, {"path": "none.lirpkg", "require_key": b"key"}),
        (li.lower, {"program": LOSS, "pipeline": None, "locs": False}),
    )
}  # fmt: skip
OPTIONS: dict[str, Any] = {
    "timeout": 3.0, "kernels": True, "cache": True, "verify": True, "schedule_caller": True, "helpers": True,
    "pipeline": "default", "thresholds": {}, "opt_level": "O3", "data_tiling": True, "flags": [],
}  # fmt: skip


def compile_options(**options: Any) -> None:
    """What `compile` checks before it compiles."""
    given = checked(options)
    option_flags({k: given[k] for k in ("opt_level", "data_tiling", "flags") if k in given}, "cpu")


CALLS["compile_options"] = (compile_options, OPTIONS)


def options_of(arguments: Mapping[str, Any]) -> list[str]:
    def graphs(a: Any) -> bool:
        return isinstance(a, (li.Value, li.Graph)) or callable(a) or (isinstance(a, list) and any(map(graphs, a)))

    return [n for n, a in arguments.items() if not graphs(a)]


def trial(rng: Rng, number: int) -> str:
    name = list(CALLS)[number % len(CALLS)]
    call, sound = CALLS[name]
    options = options_of(sound)
    which = options[int(rng.integers(len(options)))]
    odd = ODD[int(rng.integers(len(ODD)))]
    usual = sound[which]
    if isinstance(usual, (tuple, list)) and usual and rng.random() < 0.6:
        place = int(rng.integers(len(usual)))
        odd = type(usual)((*usual[:place], odd, *usual[place + 1 :]))
    said = f"{name}({which}={odd!r})"
    try:
        made = call(**{**sound, which: odd})
    except li.LstmIrError as e:
        assert str(e).strip(), said
        return "refused"
    except Exception as e:
        raise AssertionError(f"{said}: {type(e).__name__}: {e}") from e
    _sound(made, said)
    return "worked"


def _sound(made: Any, said: str) -> None:
    """A value belongs to a graph that prints and reads again as the same text."""
    values = [v for v in (made if isinstance(made, tuple) else (made,)) if isinstance(v, li.Value)]
    if not values or any(v.op == "parameter" for v in values):
        return
    leaves = [n.values[0] for n in topological(v.node for v in values) if n.op.name == "parameter"]
    try:
        graph = li.Graph("g", leaves, {f"o{i}": v for i, v in enumerate(values)})
        li.verify(graph)
    except li.VerifyError as e:
        assert "is in no input's shape" in str(e), said
        return
    text = str(graph)
    assert str(li.parse(text)) == text, said


if __name__ == "__main__":
    for _name, (_call, _arguments) in CALLS.items():
        assert _name == "compile_options" or set(_arguments) <= set(inspect.signature(_call).parameters), _name
    campaign.main(trial, seconds=10, memory=6 << 30)
