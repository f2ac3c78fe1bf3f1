"""Models whose pictures are looked at: what stands in them is known."""

from __future__ import annotations

from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipeline import for_target


def scheduled(graph: li.Graph) -> li.Graph:
    """The graph after the passes of a processor."""
    info = resolve("cpu:x86-64-v3").info
    made: li.Graph = for_target(info).run(graph, info).graph
    return made


def weight(name: str, *shape: int) -> li.Value:
    return li.weight(name, np.full(shape, 0.1, "f4"))


def three_layers() -> li.Graph:
    """A bidirectional LSTM of three layers, T and B open."""
    x, layers = li.input("x", ("T", "B", 64)), []
    for i in range(3):
        width = 64 if i == 0 else 128
        layers.append({
            "w_ih": weight(f"l{i}.w_ih", 2, 256, width), "w_hh": weight(f"l{i}.w_hh", 2, 256, 64),
            "b": weight(f"l{i}.b", 2, 256),
        })  # fmt: skip
    y, h, c = li.lstm_stack(x, layers, direction="bidirectional")
    return li.Graph("deep", [x], {"y": y, "h": h, "c": c})


def written_gru() -> li.Graph:
    """A GRU written as a loop."""
    x = li.input("x", ("T", "B", 16))
    w, r, n = weight("w", 96, 16), weight("r", 64, 32), weight("n", 32, 32)

    def cell(h: Any, row: Any) -> Any:
        p = li.dense(row, w)
        g = li.logistic(p[:, :64] + li.dense(h, r))
        h = (1.0 - g[:, 32:]) * li.tanh(p[:, 64:] + g[:, :32] * li.dense(h, n)) + g[:, 32:] * h
        return h, h

    h, y = li.scan(cell, li.zeros(("B", 32)), x)
    return li.Graph("gru", [x], {"y": y, "h": h})


def trained() -> li.Program:
    """A classifier and its training step."""
    x, label = li.input("x", ("T", "B", 8)), li.input("label", ("B",), "i32")
    h = li.lstm(x, weight("w_ih", 64, 8), weight("w_hh", 64, 16))[1]
    scores = li.dense(h[0], weight("w_out", 3, 16))
    graph = li.Graph("sign", [x, label], {"loss": li.cross_entropy(scores, label), "scores": scores})
    return li.train_step(graph, loss="loss", optimizer=li.adam(0.01))


def speech() -> li.Graph:
    """A bidirectional GRU under a CTC loss."""
    x, labels = li.input("x", ("T", "B", 20)), li.input("labels", ("B", 6), "i32")
    frames, count = li.input("frames", ("B",), "i32"), li.input("count", ("B",), "i32")
    y = li.gru(x, weight("w", 2, 96, 20), weight("r", 2, 96, 32), direction="bidirectional", lengths=frames).y
    loss = li.ctc_loss(li.dense(y, weight("o", 11, 64)), labels, frames, count)
    return li.Graph("speech", [x, labels, frames, count], {"loss": loss})


def decoder() -> li.Graph:
    """An LSTM that attends to what was encoded, one row per token."""
    encoded, tokens = li.input("encoded", ("B", "S", 32)), li.input("tokens", ("T", "B"), "i32")
    w, r, q = weight("w", 128, 56), weight("r", 128, 32), weight("q", 32, 32)

    def cell(state: Any, row: Any) -> Any:
        h, c = state
        scores = li.softmax(li.einsum("bsd,bd->bs", encoded, li.dense(h, q)), 1)
        context = li.einsum("bs,bsd->bd", scores, encoded)
        p = li.dense(li.concat([row, context], 1), w) + li.dense(h, r)
        i, f, g, o = (p[:, k * 32 : (k + 1) * 32] for k in range(4))
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(c)
        return (h, c), h

    zero = li.zeros(("B", 32))
    _, y = li.scan(cell, (zero, zero), li.embedding(weight("emb", 50, 24), tokens))
    return li.Graph("decoder", [encoded, tokens], {"scores": li.dense(y, weight("out", 50, 32))})


def models() -> dict[str, li.Graph]:
    """All of them by name."""
    graphs = {"three layers": three_layers(), "gru": written_gru(), "speech": speech(), "decoder": decoder()}
    graphs |= {f"{n}, scheduled": scheduled(g) for n, g in graphs.items()}
    return graphs | {f"trained, {n}": g for n, g in trained().entries.items()}
