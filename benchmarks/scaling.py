"""What a step of data-parallel training takes on this machine, and the model of docs/scaling.md fed with it.

    python benchmarks/scaling.py --hidden 256 --rows 256 --steps 50 --network 1.25e9 --latency 1e-4

Measured: `grads` for several numbers of rows, `apply`, the bytes of the gradients, and what a step of two processes
takes beside those two. Everything runs on this machine, and its processors are shared by all of it: a step of N workers
is not N times as fast here. The table after it is computed: each worker has a machine like this one.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.parallel import Trainer
from lstm_ir.parallel.messages import packed
from lstm_ir.parallel.replica import gradients


@dataclass(frozen=True)
class Costs:
    """Of one step, in seconds and bytes."""

    fixed: float  # of `grads`, whatever the rows
    per_row: float  # of `grads`
    apply: float
    size: int  # bytes of all gradients
    exchange: float  # of one worker: its gradients to the trainer, added, and the average back

    def alone(self, rows: int) -> float:
        """One process, the whole batch."""
        return self.fixed + self.per_row * rows + self.apply

    def star(self, rows: int, workers: int, network: float | None, latency: float) -> float:
        """Through the trainer; `network`: bytes per second of its link, None on one machine."""
        wire = 0.0 if network is None else 2 * (self.size / network + latency)
        return self.fixed + self.per_row * math.ceil(rows / workers) + workers * (self.exchange + wire) + self.apply

    def ring(self, rows: int, workers: int, network: float, latency: float) -> float:
        """Of a ring all-reduce over links of that speed: a bound that a trainer in the middle does not reach."""
        wire = 2 * (workers - 1) * (self.size / (workers * network) + latency)
        return self.fixed + self.per_row * math.ceil(rows / workers) + wire + self.apply

    def most(self, rows: int, network: float | None, latency: float) -> float:
        """Workers beyond which another one costs more than it saves, through the trainer: the root of a quotient."""
        wire = 0.0 if network is None else 2 * (self.size / network + latency)
        return math.sqrt(self.per_row * rows / (self.exchange + wire))


def package(folder: Path, inputs: int, hidden: int, classes: int) -> Path:
    """An LSTM with a classifier behind it, trained by Adam."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> li.Value:
        return li.weight(name, (rng.standard_normal(shape) / math.sqrt(shape[-1])).astype(np.float32))

    x, label = li.input("x", ("T", "B", inputs)), li.input("label", ("B",), "i32")
    _, h, _ = li.lstm(x, weight("w_ih", 4 * hidden, inputs), weight("w_hh", 4 * hidden, hidden))
    loss = li.cross_entropy(li.dense(h[0], weight("out", classes, hidden)), label)
    graph = li.Graph("scaling", [x, label], {"loss": loss})
    program = li.train_step(graph, loss="loss", optimizer=li.adam(1e-3), grads=True)
    return li.export(program, folder / "scaling.lirpkg", ["cpu:host"])


def seconds(call: Callable[[], Any], count: int) -> float:
    """The median of so many calls, after two that are not counted."""
    found = []
    for _ in range(count + 2):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return median(found[2:])


def measured(path: Path, make: Callable[[int], dict[str, Any]], rows: int, steps: int, threads: int) -> Costs:
    """All costs, with workers of so many threads; `make` gives a batch of so many rows."""
    li.set_threads(threads)
    exe = li.load(path)
    sizes = sorted({max(1, rows // n) for n in (1, 2, 4, 8)})
    batches = [make(n) for n in sizes]
    times = [seconds(lambda b=b: exe.entries["grads"](b), steps) for b in batches]  # type: ignore[misc]
    per_row, fixed = np.polyfit(sizes, times, 1) if len(sizes) > 1 else (times[0], 0.0)
    names = gradients(exe.entries["grads"].entry)
    found = exe.entries["grads"](make(rows))
    given = {n: found[n] for n in names}
    apply = seconds(lambda: exe.entries["apply"](given), steps)
    for n, t in zip(sizes, times, strict=True):
        print(f"grads, {n} rows    {1e3 * t:.3f} ms")
    print(f"apply             {1e3 * apply:.3f} ms")
    size = sum(a.nbytes for a in given.values())
    print(f"gradients         {size} bytes, {len(packed(given))} as a message")
    with Trainer(path, 2, threads=threads) as trainer:
        batch = make(2)  # a row each: what is left is the exchange
        step = seconds(lambda: trainer.step(batch), steps)
    row = make(1)
    one = seconds(lambda: exe.entries["grads"](row), steps)
    left = max(step - one - apply, 0.0)
    print(f"two processes     {1e3 * step:.3f} ms a step of 2 rows, {1e3 * left:.3f} ms of it beside grads and apply")
    return Costs(max(float(fixed), 0.0), max(float(per_row), 1e-12), apply, size, left / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("inputs", 64), ("hidden", 256), ("classes", 10), ("times", 32), ("rows", 256), ("steps", 50)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--network", type=float, default=1.25e9, help="bytes per second of a link (10 Gbit/s)")
    parser.add_argument("--latency", type=float, default=1e-4, help="seconds of a message")
    a = parser.parse_args()
    rng = np.random.default_rng(1)

    def make(rows: int) -> dict[str, Any]:
        x = rng.standard_normal((a.times, rows, a.inputs)).astype(np.float32)
        return {"x": x, "label": rng.integers(0, a.classes, rows).astype(np.int32)}

    with tempfile.TemporaryDirectory() as folder:
        path = package(Path(folder), a.inputs, a.hidden, a.classes)
        costs = measured(path, make, a.rows, a.steps, a.threads)
    print(table(costs, a.rows, a.network, a.latency))


def table(costs: Costs, rows: int, network: float, latency: float) -> str:
    """Steps of 1 to 64 workers beside one process, in words for a page."""
    out = ["", "| workers | one machine, a core each | through the trainer's link | by a ring |", "|---|---|---|---|"]
    alone = costs.alone(rows)
    for n in (1, 2, 4, 8, 16, 32, 64):
        steps = (
            costs.star(rows, n, None, 0), costs.star(rows, n, network, latency), costs.ring(rows, n, network, latency)
        )  # fmt: skip
        out.append(f"| {n} | " + " | ".join(f"{1e3 * s:.2f} ms ({alone / s:.2f})" for s in steps) + " |")
    here, far = costs.most(rows, None, 0), costs.most(rows, network, latency)
    out.append(f"\none process: {1e3 * alone:.2f} ms; it stops to gain at {here:.1f} workers of one machine,")
    out.append(f"at {far:.1f} over links of {network:.3g} bytes/s")
    return "\n".join(out)


if __name__ == "__main__":
    main()
