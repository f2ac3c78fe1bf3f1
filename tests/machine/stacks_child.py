"""Run by test_stacks: calls on IREE's workers; prints the stack of each worker, and what of it was touched."""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from pathlib import Path

import numpy as np

import lstm_ir as li
from lstm_ir.backends.run import runtime

TASKS = Path("/proc/self/task")


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


def workers() -> list[tuple[int, int]]:
    """(bytes of the stack, bytes touched) of each worker that waits."""
    page = mmap.PAGESIZE
    areas = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends = line.split()[0].split("-")
        areas.append((int(ends[0], 16), int(ends[1], 16)))
    found = []
    for task in TASKS.iterdir():
        if not (task / "comm").read_text().startswith("iree-worker"):
            continue
        words = (task / "syscall").read_text().split()
        if len(words) < 2:
            continue  # it runs
        at = int(words[-2], 16)
        low, high = next((a, b) for a, b in areas if a <= at < b)
        with open("/proc/self/pagemap", "rb") as f:
            f.seek(low // page * 8)
            pages = struct.unpack(f"{(high - low) // page}Q", f.read((high - low) // page * 8))
        first = next(i for i, p in enumerate(pages) if p >> 62)  # present or swapped out
        found.append((high - low, high - low - first * page))
    return found


def main() -> None:
    graphs = [strided_product(c, n) for c, n in ((256, 200), (136, 90))] + [trained(5, 3, 7, 40)]
    for graph in graphs if sys.argv[1:] == ["calls"] else ():
        r = np.random.default_rng(1)
        given = zip(graph.input_names, graph.params, strict=True)
        arrays = {name: r.standard_normal(p.shape, np.float32) for name, p in given}
        got = li.compile(graph, device="local-task")(arrays)
        for name, want in li.interpret(graph, arrays).items():
            np.testing.assert_allclose(got[name], want, rtol=1e-3, atol=1e-3)
    runtime.device("local-task")
    while len(waiting := workers()) < runtime.threads():
        os.sched_yield()
    print(json.dumps(waiting))


if __name__ == "__main__":
    main()
