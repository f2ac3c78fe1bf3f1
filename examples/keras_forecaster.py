"""A forecaster of Keras: imported, trained on, written back, exported to a package, and served.

Keras makes the model and trains it a little. `li.from_keras` makes a graph of it, which trains on here with another
optimizer; `li.to_keras` gives Keras the weights back, and both say the same. The package then answers the requests
of several threads, where neither Keras nor the compiler is needed.

Run: python examples/keras_forecaster.py        (needs Keras, on any backend: pip install keras torch)
"""

import os
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import lstm_ir as li

os.environ.setdefault("KERAS_BACKEND", "torch")
STEPS, TOLERANCE = 24, 1e-4


def windows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x [N,24,1], 24 hours of a load with a day's and a week's rhythm and noise; y [N,1], the hour after them."""
    rng = np.random.default_rng(seed)
    hours = rng.integers(0, 10_000, (count, 1)) + np.arange(STEPS + 1)
    rhythm = np.sin(2 * np.pi * hours / 24) + 0.5 * np.sin(2 * np.pi * hours / 168)
    load = (rhythm + 0.05 * rng.standard_normal(hours.shape)).astype(np.float32)
    return load[:, :-1, None], load[:, -1:]


def forecaster(keras: Any) -> Any:
    """A model of Keras, trained for two epochs."""
    keras.utils.set_random_seed(1)
    x = keras.Input((None, 1), name="load")
    h = keras.layers.GRU(24)(x)
    model = keras.Model(x, keras.layers.Dense(1, name="next")(h), name="forecaster")
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(*windows(1024, 1), batch_size=64, epochs=2, verbose=0)
    return model


def error(want: np.ndarray, got: np.ndarray) -> float:
    """The mean absolute difference."""
    return float(np.abs(np.asarray(got) - want).mean())


def trained_on(graph: li.Graph, model: Any) -> None:
    """Train the graph for 150 steps, and give its weights to Keras."""
    want = li.input("want", ("B", 1))
    off = graph.outputs[0] - want
    loss = li.Graph("loss", [*graph.params, want], {"loss": li.mean(off * off)})
    with li.compile(li.train_step(loss, "loss", li.adamw(0.005))) as learner:
        for step in range(150):
            x, y = windows(64, 100 + step)
            learner.entries["train"](load=x, want=y)
        li.to_keras(learner, model)


def served(package: Path, x: np.ndarray) -> np.ndarray:
    """Forecasts of a package, whose clients ask for one row each; the batcher puts them into few calls."""
    found: dict[int, np.ndarray] = {}
    with li.load(package) as exe, li.Batcher(exe, max_batch=32, max_delay=0.01) as batcher:
        clients = [
            threading.Thread(target=lambda k=k: found.update({k: batcher(load=x[k : k + 1])["next"]}))
            for k in range(len(x))
        ]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
    return np.concatenate([found[k] for k in range(len(x))])


def main() -> None:
    """Import, train on, write back, export, serve; each result beside Keras'."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import keras
    except ImportError as e:
        raise SystemExit(f"this example needs Keras and a backend: pip install keras torch ({e})") from None
    warnings.filterwarnings("ignore", module="keras")  # of NumPy 2
    x, y = windows(256, 7)

    def by_keras() -> np.ndarray:
        return keras.ops.convert_to_numpy(model(x, training=False))

    model = forecaster(keras)
    graph = li.from_keras(model)
    first = li.interpret(graph, load=x)["next"]
    assert np.allclose(first, by_keras(), atol=TOLERANCE)
    print(f"imported from Keras: a mean error of {error(y, first):.3f}")

    trained_on(graph, model)
    after = by_keras()
    assert error(y, after) < error(y, first)
    print(f"trained on, in Keras again: a mean error of {error(y, after):.3f}")

    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "forecaster.lirpkg"
        li.export(li.from_keras(model), package, targets=["cpu:host"])
        answers = served(package, x[:40])
        off = np.abs(answers - after[:40]).max()
        assert off < TOLERANCE
        print(f"served from {package.name}: 40 clients, largest difference to Keras {off:.1e}")


if __name__ == "__main__":
    main()
