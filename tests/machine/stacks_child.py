"""`stacks_child.py CORPUS`: calls on IREE's workers; prints the stack of each worker, and what of it was touched."""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import stack_corpus

import lstm_ir as li
from lstm_ir.backends.lower import linear
from lstm_ir.backends.run import runtime

Array = np.ndarray[Any, Any]
TASKS = Path("/proc/self/task")
vars(linear)["CUT_ROWS"] = 1 << 30  # columns that are cut before their product leave its dispatch no array


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


def corpus(word: str) -> Iterator[tuple[str, li.Graph, dict[str, Array]]]:
    """`largest`: dispatches that take much; `broad`: graphs of all kinds and the sweeps' samples too; or `nothing`."""
    if word == "largest":
        yield from stack_corpus.largest()
    if word == "broad":
        import conversions
        import moves
        from sweep import entries

        yield from stack_corpus.broad()
        for cases in (conversions.sample(1), moves.sample(1)):
            for k, entry in enumerate(entries(cases)):
                arrays = {n: a for c in entry.cases for n, a in c.inputs.arrays(np.random.default_rng(k)).items()}
                yield f"sweep {k}", entry.graph, arrays


def main() -> None:
    for name, graph, arrays in corpus(sys.argv[1]):
        print(f"# {name}", file=sys.stderr, flush=True)
        with np.errstate(all="ignore"):
            options = {"kernels": not name.startswith("product")}  # kernels of it take little of the stack
            got, want = li.compile(graph, device="local-task", options=options)(arrays), li.interpret(graph, arrays)
        for key, w in want.items():
            if w.dtype.kind == "f" and name.startswith(("product", "lstm")):
                np.testing.assert_allclose(got[key], w, rtol=1e-3, atol=1e-3)
    runtime.device("local-task")
    while len(waiting := workers()) < runtime.threads():
        os.sched_yield()
    print(json.dumps(waiting))


if __name__ == "__main__":
    main()
