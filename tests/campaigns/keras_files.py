"""Files of Keras models that are damaged, or made to do damage, are imported: a graph that verifies, or ModelError.

A base is a random model that Keras saved as `.keras` or `.h5`. Bytes are altered; fields of its config, to values of
other types, other classes, circles, deep nests and models that double; members of its archive, to names that lead
out or stand twice, bombs, pickles and headers that claim too much; and its HDF5, to links outside, circles and
claims. A refusal names the file or a layer. Nothing may take long, much memory, or the process.
"""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import keras_mutation
import numpy as np
from mutation import altered

import lstm_ir as li
from lstm_ir.ir.verify import verify

Rng = np.random.Generator
MODELS = 12


@cache
def bases() -> tuple[tuple[str, bytes], ...]:
    """Sound files, `.keras` and `.h5` of each model."""
    from keras_random import drawn
    from keras_torch import saved

    out = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(MODELS):
            model, _, _ = drawn(np.random.default_rng(seed))
            for form in (".keras", ".h5"):
                out.append((form, Path(saved(model, Path(f"base{form}"))).read_bytes()))
    return tuple(out)


def damaged(rng: Rng) -> tuple[str, str, bytes]:
    """What was done, the form, and the bytes."""
    form, data = bases()[int(rng.integers(len(bases())))]
    way = rng.random()
    if way < 0.03:
        return "as it is", form, data
    if way < 0.25:
        return "bytes", form, altered(rng, data, tuple(b for f, b in bases() if f == form))
    if form == ".h5" and way < 0.6:
        return "config", form, _legacy(rng, data)
    if form == ".h5":
        return "crafted", form, keras_mutation.crafted_hdf5(rng, data)
    members = keras_mutation.members_of(data)
    if way < 0.4:
        return "archive", form, keras_mutation.crafted_archive(rng, members)
    if way < 0.5:
        members["model.weights.h5"] = keras_mutation.crafted_hdf5(rng, members["model.weights.h5"])
        return "weights", form, keras_mutation.archive(members.items())
    change = keras_mutation.grown if way < 0.6 else keras_mutation.changed
    members["config.json"] = json.dumps(change(rng, json.loads(members["config.json"]))).encode()
    return change.__name__, form, keras_mutation.archive(members.items(), 8 if rng.random() < 0.5 else 0)


def _legacy(rng: Rng, data: bytes) -> bytes:
    """A legacy file with another config."""
    import h5py

    path = Path("legacy.h5")
    path.write_bytes(data)
    with h5py.File(path, "r+") as f:
        config: Any = json.loads(f.attrs["model_config"])
        change = keras_mutation.grown if rng.random() < 0.2 else keras_mutation.changed
        text = json.dumps(change(rng, config))
        if len(text) < 60_000:  # what an attribute holds
            f.attrs["model_config"] = text
    return path.read_bytes()


def trial(rng: Rng, number: int) -> str:
    what, form, data = damaged(rng)
    file = Path(f"model{form}")
    file.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = li.from_keras(file)
        except li.ModelError as e:
            text = str(e)
            assert text.startswith(file.name), text
            assert len(text) < 100_000, text[:1000]
            assert all(" (" in line and "\n" not in line for line in e.refusals), text
            assert what != "as it is" or "refusal" in text, text
            return f"{what} refused"
    for graph in [found] if isinstance(found, li.Graph) else found.entries.values():
        verify(graph)
    return f"{what} imported"


if __name__ == "__main__":
    campaign.main(trial, seconds=45, memory=6 << 30, prepare=bases)
