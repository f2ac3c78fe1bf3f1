"""Keras' recurrent layers in a process of their own: stacks of two, run on given arrays.

    python keras_child.py jobs.npz results.npz

Keras imports TensorFlow whatever its backend, and no test's process may (tensorflow_child.py).
A job: {"mode", "direction", "units", "seed", "bias"} with the arrays `input` [B, T, I] and `mask` [B, T].
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Job = tuple[dict[str, Any], Array, Array]  # attributes, input, mask


@dataclass
class Ran:
    """Weights of each layer, the second one's output, the last states of each."""

    weights: list[list[Array]]
    y: Array
    states: list[list[Array]]


def run(jobs: Sequence[Job]) -> list[Ran]:
    """Every job's layers, made and run."""
    arrays: dict[str, Any] = {f"{n}/{k}": v for n, (_, x, m) in enumerate(jobs) for k, v in (("x", x), ("m", m))}
    listed = json.dumps([attrs for attrs, _, _ in jobs])
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "jobs.npz", Path(folder) / "results.npz"
        np.savez(given, jobs=np.frombuffer(listed.encode(), np.uint8), **arrays)
        env = {**os.environ, "KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, __file__, str(given), str(found)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]
        with np.load(found) as z:
            return [_ran(z, n) for n in range(len(jobs))]


def _ran(z: Any, n: int) -> Ran:
    def layers(kind: str) -> list[list[Array]]:
        out: list[list[Array]] = [[], []]
        while (key := f"{n}/{kind}/0/{len(out[0])}") in z:
            for layer in (0, 1):
                out[layer].append(z[key.replace(f"{kind}/0", f"{kind}/{layer}")])
        return out

    return Ran(layers("weights"), z[f"{n}/y"], layers("states"))


def _layers(keras: Any, attrs: dict[str, Any]) -> list[Any]:
    kinds = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}
    mode = attrs["mode"]
    kind, more = kinds.get(mode, keras.layers.SimpleRNN), {"use_bias": attrs["bias"]}
    if mode.startswith("rnn"):
        more["activation"] = mode.removeprefix("rnn_")
    out = []
    for k in range(2):
        noise = keras.initializers.RandomNormal(seed=attrs["seed"] + k)
        more |= {"return_sequences": True, "return_state": True, "bias_initializer": noise}
        layer = kind(attrs["units"], **more)
        both = attrs["direction"] == "bidirectional"
        out.append(keras.layers.Bidirectional(layer) if both else layer)
    return out


def main(given: str, found: str) -> None:
    """Run the jobs of one file."""
    import keras

    numpy = keras.ops.convert_to_numpy
    out: dict[str, Any] = {}
    with np.load(given) as z:
        for n, attrs in enumerate(json.loads(z["jobs"].tobytes())):
            y: Any = z[f"{n}/x"]
            for k, layer in enumerate(_layers(keras, attrs)):
                y, *states = layer(y, mask=z[f"{n}/m"])
                out |= {f"{n}/weights/{k}/{i}": w for i, w in enumerate(layer.get_weights())}
                out |= {f"{n}/states/{k}/{i}": numpy(s) for i, s in enumerate(states)}
            out[f"{n}/y"] = numpy(y)
    np.savez(found, **out)


if __name__ == "__main__":
    main(*sys.argv[1:])
