"""A process that ends while daemon threads are inside of native work: `python ending_child.py HOW SECONDS [SHAPE ...]`.

HOW: exit (code 7), error (an exception), main (the end of the program), so many seconds after all threads work.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import handmade
import numpy as np

import lstm_ir as li

A = np.ones((400, 5), np.float32)


def trainer() -> Callable[[], Any]:
    """A call of a program with state."""
    x = li.input("x", (64, 8))
    w = li.weight("w", np.full((8, 8), 0.1, np.float32))
    graph = li.Graph("g", [x], {"loss": li.mean((x @ w) * (x @ w))})
    exe = li.compile(li.train_step(graph, loss="loss", optimizer=li.sgd(0.01)))
    a = np.ones((64, 8), np.float32)
    return lambda: exe.entries["train"](x=a)


def main(how: str, seconds: str, *chosen: str) -> None:
    by_caller, by_workers = (handmade.load("cpu", driver=d) for d in ("local-sync", "local-task"))

    def stream() -> None:
        with by_caller.session() as s:
            for _ in range(5):
                s({"input.1": A})

    def load() -> None:
        handmade.load("cpu", driver="local-sync").close()

    def compile() -> None:
        li.compile(li.Graph("g", [x := li.input("x", (3,))], {"y": x + 1.0}), options={"cache": False})

    def lower() -> None:
        x, weights = li.input("x", ("T", 2, 3)), (np.ones(s, np.float32) for s in ((20, 3), (20, 5), (20,)))
        li.lower(li.Graph("g", [x], {"y": li.lstm(x, *(li.weight(f"w{i}", w) for i, w in enumerate(weights)))[0]}))

    shapes = {
        "caller": lambda: by_caller({"input.1": A}), "workers": lambda: by_workers({"input.1": A}),
        "stream": stream, "load": load, "train": trainer(), "compile": compile,
        "lower": lower,
    }  # fmt: skip
    acts = [shapes[name] for name in chosen or shapes]
    begun = threading.Barrier(1 + len(acts))

    def forever(act: Callable[[], Any]) -> None:
        act()
        begun.wait()
        while True:
            act()

    for act in acts:
        threading.Thread(target=forever, args=(act,), daemon=True).start()
    begun.wait()
    time.sleep(float(seconds))
    if how == "exit":
        sys.exit(7)
    if how == "error":
        raise RuntimeError("mine")


if __name__ == "__main__":
    main(*sys.argv[1:])
