"""A loop in a loop whose number of steps is what is left: segments of a loop with `until`, on the way back."""

from __future__ import annotations

from typing import Any

import numpy as np

import lstm_ir as li

H, WORDS, PLACES, STEPS, B = 16, 5, 2, 6, 3


def _decoder() -> li.Graph:
    """A state, the word that it drew last, and a memory of its last states that it attends to."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> li.Value:
        return li.weight(name, (rng.standard_normal(shape) * 0.3).astype("f4"))

    x, h0 = li.input("x", (STEPS, "B", 1)), li.input("h0", ("B", H))
    of_x, of_h, words, out = weight("wx", 1, H), weight("wh", H, H), weight("e", WORDS, H), weight("o", H, WORDS)
    asked = weight("m", H, H)

    def cell(c: Any, x: Any) -> Any:
        h, memory = c["h"], c["memory"]
        z = x @ of_x + h @ of_h + li.embedding(words, c["word"])
        shares = li.softmax(li.einsum("bh,bmh->bm", h @ asked, memory))
        z = z + li.einsum("bm,bmh->bh", shares, memory)
        z = li.where(z > h, z, 0.7 * h)
        z = li.concat([z[:, 8:], li.softmax(z[:, :8])], 1)
        z = z - li.mean(z, 1, keepdims=True)
        gate = li.sigmoid(z)
        h = gate * h + (1.0 - gate) * li.tanh(z)
        scores = h @ out
        word = li.argmax(scores, 1)
        memory = li.concat([memory[:, 1:], li.expand_dims(h, 1)], 1)
        return {"h": h, "word": word, "memory": memory}, (h, li.log_softmax(scores), word)

    init = {"h": h0, "word": li.zeros(("B",), "i32"), "memory": li.zeros(("B", PLACES, H))}
    c, (y, s, _), _ = li.scan(cell, init, x, until=lambda c, y: li.sum(c["h"], 1) > 0.5)
    squares = li.sum(c["h"] * c["h"]) + li.sum(c["memory"] * c["memory"])
    return li.Graph("decoder", [x, h0], {"loss": li.sum(li.sin(y) * 1.3) + squares + li.sum(s)})


def test_segments_of_a_decoder_with_until() -> None:
    """IREE 3.13 left a number of steps that it had made a tensor again in no submission, and refused the module."""
    made = li.grad(_decoder(), "loss", ["h0", "x", "wx", "wh", "e", "o", "m"], remat=2)
    rng = np.random.default_rng(1)
    given = {"x": rng.standard_normal((STEPS, B, 1), np.float32), "h0": rng.standard_normal((B, H), np.float32)}
    want = li.interpret(made, given)
    with li.compile(made) as exe:
        assert not [n for n in exe.report.notes if n.startswith("compiled ")]
        got = exe(given)
    for n, w in want.items():
        np.testing.assert_allclose(got[n], w, rtol=0, atol=1e-4 * (1 + np.abs(w).max()), err_msg=n)
