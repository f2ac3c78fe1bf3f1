"""A server of models, y = 2x: the device of `lost` is gone while a file is there; `well` is never touched by it.

`renewed` has lost its device for good once it was called while the file was there; it can be loaded again without it.

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
from lstm_ir.ir.errors import DeviceError, LostDeviceError
from lstm_ir.ir.signature import Entry, Port
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.serving.batcher import Batcher
from lstm_ir.serving.run import serve
from lstm_ir.serving.served_model import ServedModel

PAIRS = TensorType((dims.name("B"), 2), DType.f32)


class Doubled:
    def __init__(self, gone: Path | None, *, heals: bool = True) -> None:
        if not heals and gone is not None and gone.exists():
            raise DeviceError("there is no device")
        self._gone, self._heals, self._dead = gone, heals, False

    entry = Entry("main", (Port("x", PAIRS),), (Port("y", PAIRS),), dims=("B",))

    def __call__(self, arrays: Mapping[str, Any], /) -> dict[str, np.ndarray[Any, Any]]:
        if self._dead or (self._gone is not None and self._gone.exists()):
            self._dead = not self._heals
            raise LostDeviceError("main: the device was lost: VK_ERROR_DEVICE_LOST")
        return {"y": arrays["x"] * 2}


def main() -> None:
    gone = Path(sys.argv[1])
    models = {"lost": Doubled(gone), "well": Doubled(None), "renewed": Doubled(gone, heals=False)}
    again = {"renewed": lambda: Doubled(gone, heals=False)}
    with ExitStack() as stack:
        made = {n: stack.enter_context(Batcher(m, check=False, max_delay=0.0)) for n, m in models.items()}
        serve(
            {n: ServedModel(n, b, again=again.get(n)) for n, b in made.items()}, port=0,
            listening=lambda url: print(f"serving on {url}", flush=True),
        )  # fmt: skip


if __name__ == "__main__":
    main()
