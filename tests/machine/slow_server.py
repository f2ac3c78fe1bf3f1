"""A server whose calls wait for a file: y = 2x, at once where x is not below 0, else once the file is there.

`python slow_server.py FILE NAME=VALUE...` with fields of Limits, and of Batcher by the prefix `batcher.`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.signature import Entry, Port
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.serving.batcher import Batcher
from lstm_ir.serving.limits import ServerLimits
from lstm_ir.serving.run import serve
from lstm_ir.serving.served_model import ServedModel

PAIRS = TensorType((dims.name("B"), 2), DType.f32)


class Slow:
    def __init__(self, gate: Path) -> None:
        self._gate = gate

    entry = Entry("main", (Port("x", PAIRS),), (Port("y", PAIRS),), dims=("B",))

    def __call__(self, arrays: Mapping[str, Any], /) -> dict[str, np.ndarray[Any, Any]]:
        while arrays["x"].min() < 0 and not self._gate.exists():
            time.sleep(0.01)
        return {"y": arrays["x"] * 2}


def main() -> None:
    limits: dict[str, Any] = {}
    batcher: dict[str, Any] = {}
    for word in sys.argv[2:]:
        name, _, value = word.partition("=")
        number = float(value) if "." in value else int(value)
        (batcher if name.startswith("batcher.") else limits)[name.removeprefix("batcher.")] = number
    with Batcher(Slow(Path(sys.argv[1])), check=False, max_delay=0.0, **batcher) as made:
        serve(
            {"slow": ServedModel("slow", made)}, port=0, limits=ServerLimits(**limits),
            listening=lambda url: print(f"serving on {url}", flush=True),
        )  # fmt: skip


if __name__ == "__main__":
    main()
