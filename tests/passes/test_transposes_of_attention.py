"""`time-major`: an attention between layers leaves one transposition, of the product that it gives."""

from __future__ import annotations

import re

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve

S, T, B, H = 7, 5, 3, 64


def _graph(join: str) -> li.Graph:
    """Rows [T,B,H] ask keys [S,B,H]; a dense layer reads what they find beside them."""
    y, seen = li.input("y", ("T", "B", H)), li.input("seen", ("S", "B", H))
    w = li.weight("w", np.random.default_rng(3).uniform(-0.3, 0.3, (H, 2 * H)).astype(np.float32))
    rows, keys = li.swapaxes(y, 0, 1), li.swapaxes(seen, 0, 1)
    met = li.attention(rows, keys, keys, scale=1.0)
    parts = {"found first": [met, rows], "rows first": [rows, met], "found alone": [met, met]}[join]
    joined = li.tanh(li.dense(li.concat(parts, 2), w))
    return li.Graph("attention", [y, seen], {"z": li.swapaxes(joined, 0, 1)})


@pytest.mark.parametrize("join", ["found first", "rows first", "found alone"])
def test_what_is_transposed(join: str, rng: np.random.Generator) -> None:
    graph = _graph(join)
    made = prepare(graph, resolve("cpu")).optimized.entries["main"]
    read = [n.inputs[0] for n in made.nodes if n.op.name == "transpose"]
    assert len(read) == 1
    if join != "found alone":  # where no part says in which order rows are wanted
        assert read[0].op == "dot_general"
    a = {n: rng.standard_normal((k, B, H)).astype(np.float32) for n, k in (("y", T), ("seen", S))}
    q, k = (a[n].swapaxes(0, 1).astype(np.float64) for n in ("y", "seen"))
    e = np.exp(q @ k.swapaxes(1, 2))
    met = e / e.sum(2, keepdims=True) @ k
    parts = {"found first": [met, q], "rows first": [q, met], "found alone": [met, met]}[join]
    w = np.random.default_rng(3).uniform(-0.3, 0.3, (H, 2 * H)).astype(np.float32)
    want = np.tanh(np.concatenate(parts, 2) @ w.T).swapaxes(0, 1)
    np.testing.assert_allclose(li.interpret(graph, a)["z"], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(li.compile(graph)(a)["z"], want, rtol=1e-4, atol=1e-4)


def test_nothing_is_copied_between_the_products() -> None:
    """Kernels of both products read and write rows where they lie."""
    text = prepare(_graph("found first"), resolve("cpu")).text
    of_rows = r"(%\w+) = (?:stablehlo.transpose|linalg.transpose|tensor.insert_slice)[^\n]*\?x"  # not of weights
    made = re.findall(of_rows, text)
    assert made  # those that nothing reads, which the compiler drops
    assert all(len(re.findall(rf"{name}\b", text)) == 1 for name in made)
