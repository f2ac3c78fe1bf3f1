"""What a training step adds to the memory of the process while it runs: are updates in place?

    python benchmarks/update_memory.py --size 4096

One weight [N, N]; every optimizer in a process of its own. Linux only: the peak of the resident memory is
set back before each step and read after it. An update in place would add the
gradient alone; one that is not adds a second copy of the weight and the optimizer's slots as well.
"""

import gc
import subprocess
import sys

import click
import numpy as np

import lstm_ir as li
from lstm_ir.measurement import memory

OPTIMIZERS = {"sgd": li.sgd(0.1), "momentum": li.momentum(0.1), "adam": li.adam(1e-3)}


def measure(name: str, size: int, steps: int = 5) -> str:
    """One table row: the state's size, and the largest rise of the peak in a step."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((8, size), np.float32)
    x, w = li.input("x", ("B", size)), 0.01 * rng.standard_normal((size, size), np.float32)
    loss = li.mean(li.tanh(li.dense(x, li.weight("w", w))))
    made = li.train_step(li.Graph("memory", [x], {"loss": loss}), "loss", OPTIMIZERS[name])
    state = sum(v.initial.array.nbytes for v in made.state.values()) / 2**20
    exe, rises = li.compile(made.only("train")), []
    for k in range(2 * steps):
        gc.collect()
        before = memory.set_back()
        exe.entries["train"](x=rows)
        if k >= steps:
            rises.append((memory.peak() - before) / 2**20)
    exe.close()
    return f"| {name} | {w.nbytes / 2**20:.0f} | {state:.0f} | {max(rises):.0f} |"


@click.command()
@click.option("--size", default=4096, show_default=True, help="N of the weight [N, N].")
@click.option("--only", type=click.Choice(list(OPTIMIZERS)), hidden=True)
def main(size: int, only: str | None) -> None:
    """Print a table in MiB."""
    if only is not None:
        print(measure(only, size))
        return
    print("| optimizer | weight | state (weight and slots) | a step adds, at its peak |\n|---|---|---|---|")
    for name in OPTIMIZERS:
        command = [sys.executable, __file__, "--size", str(size), "--only", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(done.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
