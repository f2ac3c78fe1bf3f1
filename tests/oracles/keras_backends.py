"""Models of Keras live over each of its backends, in a process of their own: imported there, run, written back to.

    python tests/machine/child.py tests/oracles/keras_backends.py FOLDER BACKEND NAME...

For each name FOLDER has BACKEND-NAME.lir, what `li.from_keras` makes of the live model, and BACKEND-NAME.npz: the input
x, results of Keras (keras:) and of the graph (graph:), over TensorFlow gradients of Keras (d:) and of the graph
(slope:), and, after `li.to_keras` wrote other weights, results of Keras (after:) and of the model imported again
(again:).
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import child
import numpy as np
from tensorflow_environment import SETTINGS

Array = np.ndarray[Any, Any]
T, C = 5, 3


def run(folder: Path, backend: str, names: Sequence[str]) -> dict[str, tuple[str, dict[str, Array]]]:
    """By name the text of the graph, and the arrays; of a model that failed its error, and none."""
    env = child.environment() | SETTINGS | {"KERAS_BACKEND": backend}
    command = [sys.executable, __file__, str(folder), backend, *names]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, tuple[str, dict[str, Array]]] = {}
    for name in names:
        path = folder / f"{backend}-{name}"
        if path.with_suffix(".err").exists():
            found[name] = path.with_suffix(".err").read_text(encoding="utf-8"), {}
            continue
        with np.load(path.with_suffix(".npz")) as z:
            found[name] = path.with_suffix(".lir").read_text(encoding="utf-8"), {k: z[k] for k in z.files}
    return found


def part(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """The arrays of one kind by name."""
    return {k.partition(":")[2]: a for k, a in arrays.items() if k.startswith(f"{kind}:")}


def _by_name(keras: Any, model: Any, x: Any) -> dict[str, Any]:
    """Results by the names that the importer gives them, as tensors of the backend."""
    from lstm_ir.importers.keras.config import model_spec
    from lstm_ir.importers.keras.model import named
    from lstm_ir.importers.keras.source import live

    return dict(named(model_spec(live(model).spec).outputs, model(x, training=False)))


def record(keras: Any, folder: Path, backend: str, name: str) -> None:
    """One model."""
    from keras_models import CASES, made

    import lstm_ir as li

    model, rng = made(keras, name)
    shape = CASES[name][1]
    x = rng.standard_normal((3, *(T if d is None else d for d in shape))).astype(np.float32)
    if "masked" in name:
        x[0, 3:] = x[1, 1] = 0
    numpy = keras.ops.convert_to_numpy
    found: dict[str, Array] = {"x": x}
    found |= {f"keras:{n}": numpy(v) for n, v in _by_name(keras, model, x).items()}
    cts = {n: np.asarray(rng.standard_normal(a.shape), np.float32) for n, a in part(found, "keras").items()}
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    found |= {f"graph:{n}": a for n, a in li.interpret(graph, x=x).items()}
    if backend == "tensorflow":
        want = _gradients(keras, model, x, cts)
        # A layer of a nested model has the model's name in front.
        names = {k: next(n for n in ("x", *graph.weights) if n == k or n.endswith(f"/{k}")) for k in want}
        back = li.vjp(graph, list(cts), list(names.values()), missing="zeros")
        slopes = li.interpret(back, {"x": x, **{f"ct_{n}": a for n, a in cts.items()}})
        found |= {f"d:{k}": a for k, a in want.items()} | {f"slope:{k}": slopes[f"d_{n}"] for k, n in names.items()}
    path = folder / f"{backend}-{name}"
    path.with_suffix(".lir").write_text(str(graph), encoding="utf-8")
    other = {n: (v.node.attrs["value"].array * -0.5 + 0.25).astype(np.float32) for n, v in graph.weights.items()}
    assert li.to_keras(other, model) is model
    found |= {f"after:{n}": numpy(v) for n, v in _by_name(keras, model, x).items()}
    assert not other or any((found[f"after:{n}"] != a).any() for n, a in part(found, "keras").items())
    again = li.from_keras(model)
    assert isinstance(again, li.Graph)
    for n, v in again.weights.items():
        np.testing.assert_array_equal(v.node.attrs["value"].array, other[n], err_msg=n)
    found |= {f"again:{n}": a for n, a in li.interpret(again, x=x).items()}
    np.savez(path.with_suffix(".npz"), **found)  # type: ignore[arg-type]


def _gradients(keras: Any, model: Any, x: Array, cts: Mapping[str, Array]) -> dict[str, Array]:
    """Gradients of x and of what is trained, by a tape of TensorFlow."""
    import tensorflow as tf

    given = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(given)
        results = _by_name(keras, model, given)
        loss = sum(tf.reduce_sum(results[n] * c) for n, c in cts.items())
    names = ["x", *(v.path for v in model.trainable_variables)]
    wrt = [given, *(v.value for v in model.trainable_variables)]
    grads = tape.gradient(loss, wrt, unconnected_gradients="zero")
    return {n: tf.convert_to_tensor(g).numpy() for n, g in zip(names, grads, strict=True)}


def main(folder: str, backend: str, *names: str) -> None:
    """All models of these names."""
    assert os.environ["KERAS_BACKEND"] == backend
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import keras

        assert keras.config.backend() == backend
        for name in names:
            try:
                record(keras, Path(folder), backend, name)
            except Exception as e:  # the test of this model says so
                (Path(folder) / f"{backend}-{name}.err").write_text(f"{type(e).__name__}: {e}", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
