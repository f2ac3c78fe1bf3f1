"""Models that TensorFlow writes, with what it computes of them, in a process of its own.

    python tensorflow_models.py FOLDER SEED MODULE NAME...

No test's process may import TensorFlow (tensorflow_child.py). A case is a function of one of the modules
`tensorflow_*_cases.py`: it writes a model to `record.path` and gives `record` inputs, outputs and gradients.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import child
import numpy as np
from tensorflow_environment import SETTINGS

Array = np.ndarray[Any, Any]


def f32(elements: Any) -> Any:
    """An array of f32."""
    return np.array(elements, np.float32)


def i32(elements: Any) -> Any:
    """An array of i32."""
    return np.array(elements, np.int32)


def i64(elements: Any) -> Any:
    """An array of i64."""
    return np.array(elements, np.int64)


@dataclass
class Recorded:
    """A model's path, inputs, outputs, cotangents of the outputs, and gradients by input or weight."""

    path: Path
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    cotangents: dict[str, Array]
    gradients: dict[str, Array]
    more: dict[str, Array]


class Record:
    """What a case fills: in the process of TensorFlow."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self.folder, self.path = folder, folder / name
        self.rng = np.random.default_rng([seed, *name.encode()])
        self.arrays: dict[str, Array] = {}
        self.words: list[str] = []  # what was drawn, where a case is random

    def normal(self, *shape: int) -> Array:
        """Normal numbers, f32."""
        return self.rng.normal(size=shape).astype(np.float32)

    def inputs(self, **arrays: Array) -> None:
        """What the model is called with."""
        self.keep("in", arrays)

    def outputs(self, arrays: Mapping[str, Any]) -> None:
        """What it gives."""
        self.keep("out", arrays)

    def keep(self, kind: str, arrays: Mapping[str, Any]) -> None:
        """Arrays of one kind."""
        self.arrays |= {f"{kind}/{n}": np.asarray(a) for n, a in arrays.items()}

    def cotangents(self, outputs: Mapping[str, Any]) -> dict[str, Array]:
        """Normal numbers of the outputs' shapes, kept."""
        made = {n: self.normal(*np.asarray(v).shape) for n, v in outputs.items() if np.asarray(v).dtype.kind == "f"}
        self.keep("ct", made)
        return made

    def done(self) -> None:
        """Write the arrays."""
        np.savez(self.folder / f"{self.path.name}.npz", **self.arrays)  # type: ignore[arg-type]


def made(folder: Path, seed: int, module: str, names: Sequence[str]) -> dict[str, Recorded]:
    """Run cases of a module, all in one process of TensorFlow."""
    env = child.environment() | SETTINGS
    command = [sys.executable, __file__, str(folder), str(seed), module, *names]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: read(folder, name) for name in names}


def read(folder: Path, name: str) -> Recorded:
    """What a case left."""
    kinds: dict[str, dict[str, Array]] = {k: {} for k in ("in", "out", "ct", "grad", "more")}
    with np.load(folder / f"{name}.npz") as z:
        for key in z.files:
            kind, _, word = key.partition("/")
            kinds[kind][word] = z[key]
    file = folder / f"{name}.pb"
    return Recorded(file if file.exists() else folder / name, *kinds.values())


def main(folder: str, seed: str, module: str, *names: str) -> None:
    """Make the models of these cases."""
    import tensorflow

    cases = importlib.import_module(module).CASES
    for name in names:
        record = Record(Path(folder), name, int(seed))
        tensorflow.random.set_seed(int(seed))
        cases[name](record)
        record.done()


if __name__ == "__main__":
    main(*sys.argv[1:])
