"""What `remat` saves when it runs: `python tests/machine/remat_memory.py T B H remat...`, 0 for none.

One line per value of remat: it, the most bytes that IREE's allocator held at a time, seconds of the
second call. The peak only grows, so the values go from the least memory to the most. The model is an
LSTM cell in a `li.scan`; its gradient is taken for the weights.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import lstm_ir as li


def cell(state: Any, x: Any, w: Any, u: Any) -> Any:
    h, c = state
    z = x @ w + h @ u
    H = int(str(h.shape[1]))
    i, f, g, o = (z[:, k * H : (k + 1) * H] for k in range(4))
    c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
    h = li.logistic(o) * li.tanh(c)
    return (h, c), h


def gradient(B: int, H: int, remat: int | None) -> li.Graph:
    """Of the mean square of an LSTM's results, T open."""
    rng = np.random.default_rng(0)
    x = li.input("x", ("T", B, H))
    w, u = (li.weight(n, rng.normal(size=(H, 4 * H)).astype("f4") / H**0.5) for n in "wu")
    first = (li.zeros((B, H), "f32"), li.zeros((B, H), "f32"))
    _, ys = li.scan(cell, first, x, (w, u))
    return li.grad(li.Graph("g", [x], {"loss": li.mean(ys * ys)}), "loss", ["w", "u"], remat=remat)


def main(T: int, B: int, H: int, values: list[int]) -> None:
    from lstm_ir.backends.run import runtime

    x = np.random.default_rng(1).normal(size=(T, B, H)).astype("f4")
    for remat in values:
        graph = gradient(B, H, remat if remat else None)
        exe = li.compile(graph, "cpu", device="local-sync")
        exe(x=x)
        start = time.perf_counter()
        exe(x=x)
        spent = time.perf_counter() - start
        exe.close()
        peak = runtime.device("local-sync").allocator.statistics["device_bytes_peak"]
        print(remat, peak, f"{spent:.3f}", flush=True)


if __name__ == "__main__":
    T, B, H, *values = map(int, sys.argv[1:])
    main(T, B, H, values)
