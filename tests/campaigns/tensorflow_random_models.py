"""Random modules of TensorFlow 2, saved and imported: results at three sizes and gradients as TensorFlow's own.

tf.while_loop over TensorArrays, tf.scan, map_fn, loops in loops, recurrent layers and cells of Keras, convolutions,
conditions and moves of data; the numbers of rows and steps stay open. A share is compiled. What is refused by name is
counted, not compared.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import campaign
import numpy as np
from tensorflow_environment import SETTINGS

import lstm_ir as li

Rng = np.random.Generator


def prepare() -> None:
    """TensorFlow is imported before the first trial's time begins, in a process that uses no driver of Vulkan."""
    os.environ |= SETTINGS
    import tensorflow_random  # noqa: F401


def trial(rng: Rng, number: int) -> str:
    from tensorflow_compare import sizes_agree
    from tensorflow_models import Record, read
    from tensorflow_random import random_model

    compiled = rng.random() < 0.1
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record = Record(Path(folder), "model", int(rng.integers(2**31)))
        random_model(record)
        record.done()
        words, want = "; ".join(record.words), read(record.folder, "model")
        try:
            graph = li.from_tf(want.path)
        except li.ModelError as e:
            assert e.refusals, f"{words}: {e}"
            return "refused"
        try:
            sizes_agree(want, graph, "cpu" if compiled else None)
        except Exception as e:
            raise AssertionError(words) from e
    return "compiled" if compiled else "results and gradients"


if __name__ == "__main__":
    campaign.main(trial, seconds=120, prepare=prepare)
