"""A server of two models, y = 2x: the device of `lost` is gone while a file is there; `well` is never touched by it.

`python lost_server.py FILE`
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.errors import DeviceError
from lstm_ir.ir.signature import Entry, Port
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.serving.batcher import Batcher
from lstm_ir.serving.run import serve
from lstm_ir.serving.served_model import ServedModel

PAIRS = TensorType((dims.name("B"), 2), DType.f32)


class Doubled:
    def __init__(self, gone: Path | None) -> None:
        self._gone = gone

    entry = Entry("main", (Port("x", PAIRS),), (Port("y", PAIRS),), dims=("B",))

    def __call__(self, arrays: Mapping[str, Any], /) -> dict[str, np.ndarray[Any, Any]]:
        if self._gone is not None and self._gone.exists():
            raise DeviceError("main: the device was lost: VK_ERROR_DEVICE_LOST")
        return {"y": arrays["x"] * 2}


def main() -> None:
    models = {"lost": Doubled(Path(sys.argv[1])), "well": Doubled(None)}
    with ExitStack() as stack:
        made = {n: stack.enter_context(Batcher(m, check=False, max_delay=0.0)) for n, m in models.items()}
        serve(
            {n: ServedModel(n, b) for n, b in made.items()}, port=0,
            listening=lambda url: print(f"serving on {url}", flush=True),
        )  # fmt: skip


if __name__ == "__main__":
    main()
