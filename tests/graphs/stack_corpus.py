"""Graphs of many kinds with arrays, for what dispatches take of the stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import zoo
from convolution_cases import Case

import lstm_ir as li

Array = np.ndarray[Any, Any]


def strided_product(channels: int, length: int) -> li.Graph:
    """A product of [C,T] with every second column of [C,L], summed over T: a dispatch that takes as
    much stack as the compiler allows."""
    x = li.input("x", (1, channels, length))
    y = li.input("y", (1, 1, channels, length // 2))
    met = li.reshape(x[:, :, ::2], (1, 1, channels, length // 2))
    out = li.dot_general(y, met, ((0, 3), (0, 3)), ((1,), (1,)))
    return li.Graph("product", [x, y], {"out": out})


def trained(t: int, b: int, i: int, h: int) -> li.Graph:
    """The gradients of an LSTM behind a dense layer."""
    r = np.random.default_rng(h)
    x = li.input("x", (t, b, i))
    ws = [li.input(f"w{k}", s) for k, s in enumerate(((4 * h, h), (4 * h, h), (h, i)))]
    y, _, _ = li.lstm(li.tanh(x @ li.transpose(ws[2], (1, 0))), ws[0], ws[1])
    scores = li.softmax(li.log_softmax(y) * li.constant(r.standard_normal(h), "f32"))
    return li.grad(li.Graph("lstm", [x, *ws], {"loss": li.sum(scores * y)}), "loss", ["w0", "w1", "w2"])


AT_THE_LIMIT = ((256, 200), (136, 90))


def largest() -> Iterator[tuple[str, li.Graph, dict[str, Array]]]:
    """Dispatches that take much: name, graph, arrays."""
    graphs = [strided_product(*sizes) for sizes in AT_THE_LIMIT] + [trained(5, 3, 7, 40)]
    for k, graph in enumerate(graphs):
        r = np.random.default_rng(1)
        given = zip(graph.input_names, graph.params, strict=True)
        yield f"{graph.name} {k}", graph, {name: r.standard_normal(p.shape, np.float32) for name, p in given}


def broad() -> Iterator[tuple[str, li.Graph, dict[str, Array]]]:
    """These, every animal of the zoo, and convolutions with their gradients."""
    yield from largest()
    for name in zoo.ZOO:
        a = zoo.get(name)
        yield name, a.graph, a.inputs
    wide = Case("conv", 2, 40, (70,), (5,), 64, (2,), ((4, 4),), (2,))
    grouped = Case("conv", 1, 12, (60,), (4,), 10, (3,), ((1, 5),), (2,), 2, dtype="f64")
    for c in (wide, grouped):
        yield f"convolution {c.channels}", c.graph(), c.arrays(np.random.default_rng(2), *c.calls()[0])
