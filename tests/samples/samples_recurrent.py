"""Samples of lstm, gru and rnn: every feature alone; expected values by plain NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import layer_cases
import numpy as np
import plain_layers
from sample import Sample, bad_of, of

import lstm_ir as li

SIZES = {"": None, " T=0": (0, 3, 5, 7, 4), " H=64": (2, 1, 3, 64, 16)}


def _layers(op: str) -> Iterator[Sample]:
    for kind in (np.float32, np.float64):
        for name in layer_cases.FEATURES[op]:
            yield _layer(op, name, kind, "")
        for size in (" T=0", " H=64"):
            yield _layer(op, "bidirectional", kind, size)


def _layer(op: str, name: str, kind: type, size: str) -> Sample:
    operands, attrs = layer_cases.build(op, name, kind, sizes=SIZES[size])
    given = layer_cases.arrays(operands)
    exact = {k: v.astype(np.float64) if v.dtype == kind else v for k, v in given.items()}
    graph = layer_cases.graph(op, operands, attrs)
    want = plain_layers.run(op, exact, attrs)
    # test_grad_layers.py checks these by a complex step, which no kink disturbs
    kinked = bool({"cell_clip", "gate_clip", "activations"} & set(attrs))
    label = f"{op} {name} {np.dtype(kind).name}{size}"
    return Sample(label, graph, given, dict(want), "layer", smooth=not kinked)


for _op in layer_cases.FEATURES:
    of(_op)(partial(_layers, _op))


def _gradients(op: str) -> Iterator[Sample]:
    """The gradient ops from the operands and d_y alone; expected by complex steps."""
    for kind in (np.float32, np.float64):
        for name in ("states", "lengths", "bidirectional"):
            operands, attrs = layer_cases.build(op, name, kind, sizes=(3, 2, 2, 3, 2))
            given = layer_cases.arrays(operands)
            exact = {k: v.astype(np.float64) if v.dtype == kind else v for k, v in given.items()}
            y = plain_layers.run(op, exact, attrs)["y"]
            bar = np.linspace(-1, 1, y.size).reshape(y.shape).astype(kind)
            inputs = {k: li.input(k, v.shape, v.dtype.name) for k, v in given.items()}
            d_y = li.input("d_y", bar.shape, bar.dtype.name)
            call = {k: inputs.get(k) for k in operands}
            found = getattr(li, f"{op}_grad")(**call, **attrs, d_y=d_y)._asdict()
            outputs = {k: v for k, v in found.items() if v is not None}
            graph = li.Graph(f"{op}_grad", [*inputs.values(), d_y], outputs)
            want = {k: _slopes(op, exact, attrs, bar, k.removeprefix("d_")) for k in outputs}
            label = f"{op}_grad {name} {np.dtype(kind).name}"
            yield Sample(label, graph, {**given, "d_y": bar}, want, "layer", smooth=False)


def _slopes(op: str, operands: Any, attrs: Any, bar: Any, name: str) -> Any:
    shape = operands[name].shape
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    bars = {"y": bar.astype(np.float64)}
    slopes = [plain_layers.slope(op, operands, attrs, bars, name, u) for u in units]
    return np.array(slopes).reshape(shape)


for _op in layer_cases.FEATURES:
    of(f"{_op}_grad")(partial(_gradients, _op))


def _in(*shape: int | str) -> li.Value:
    return li.input("x", shape)


bad_of("lstm", (lambda: li.lstm(_in("T", "B", 5), None, _in(1, 27, 7)), "27 rows are not 4 gates"))
bad_of("gru", (lambda: li.gru(_in("T", 5), None, _in(1, 21, 7)), "x is f32"))
bad_of("rnn", (lambda: li.rnn(_in("T", "B", 7), None, _in(1, "H", "H")), "hidden sizes are numbers"))


def _unprojected(op: str, gates: int) -> Any:
    w_hh = (1, 7 * gates, 7)
    return lambda: getattr(li, op)(_in(4, 2, 5), None, _in(*w_hh), d_y=_in(4, 2, 6))


for _op, _gates in layer_cases.GATES.items():
    bad_of(
        f"{_op}_grad", (_unprojected(f"{_op}_grad", _gates), "without w_ih, x has" if _gates > 1 else "without w_ih")
    )
