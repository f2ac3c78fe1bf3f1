"""A trainer's process: package, checkpoint, first word of each line a step and its loss, until a number of steps.

Begins with the checkpoint where it is there; prints the processes of its workers first, and before them, where the
last word is `fork`, that of a copy of itself, which sleeps.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from trained_models import batch

from lstm_ir.parallel import Trainer


def main(package: str, checkpoint: str, count: int, *, fork: bool) -> None:
    with Trainer(package, 2, checkpoint=Path(checkpoint), resume=True, threads=1) as trainer:
        if fork:
            copy = os.fork()
            if not copy:
                time.sleep(100)
                os._exit(0)
            print(copy, flush=True)
        print("workers", *[link.pid for link in trainer._links], flush=True)  # type: ignore[union-attr]
        while trainer.step_number < count:
            step = trainer.step_number
            print(step, trainer.step(batch(step))["loss"].tobytes().hex(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), fork=sys.argv[-1] == "fork")
