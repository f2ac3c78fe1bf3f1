"""What long sequences take: `python tests/machine/long_memory.py infer|train T [MEMORY]`, for one sequence.

Prints the most bytes that IREE's allocator held at a time, by how much resident memory grew, and the bytes of
inputs and results. The model is that of remat_memory.py with H = 64.
"""

from __future__ import annotations

import sys

import numpy as np
import remat_memory

import lstm_ir as li
from lstm_ir.measurement.memory import peak as most

H = 64


def forward() -> li.Graph:
    """The states of all steps."""
    rng = np.random.default_rng(0)
    x = li.input("x", ("T", 1, H))
    w, u = (li.weight(n, rng.normal(size=(H, 4 * H)).astype("f4") / H**0.5) for n in "wu")
    _, ys = li.scan(remat_memory.cell, (li.zeros((1, H)), li.zeros((1, H))), x, (w, u))
    return li.Graph("forward", [x], {"y": ys})


def main(what: str, T: int, memory: str | None = None) -> None:
    from lstm_ir.backends.run import runtime

    graph = forward()
    if what == "train":
        y = graph.output("y")
        loss = li.Graph("loss", graph.params, {"loss": li.mean(y * y)})
        sizes = None if memory is None else {"T": T}
        graph = li.grad(loss, "loss", ["w", "u"], memory=memory, sizes=sizes)
    x = np.random.default_rng(1).normal(size=(T, 1, H)).astype("f4")
    exe = li.compile(graph, "cpu", device="local-sync")
    exe(x=x[:3])
    before = most()
    found = exe(x=x)
    grown = most() - before
    exe.close()
    peak = runtime.device("local-sync").allocator.statistics["device_bytes_peak"]
    print(peak, grown, x.nbytes + sum(v.nbytes for v in found.values()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
