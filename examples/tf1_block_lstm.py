"""A TensorFlow 1 graph file with a checkpoint beside it: imported, compared, trained on, exported and served.

The graph holds BlockLSTM, with peepholes, as LSTMBlockFusedCell wrote it, and forecasts next month's temperature of the
sea. `docs/tutorial/data/tf1` has the files, and what TensorFlow gave (`record_tf1_forecast.py` made them).

Run: python examples/tf1_block_lstm.py     (needs lstm-ir[tf,serve], and no TensorFlow)
"""

import tempfile
from pathlib import Path

import numpy as np

import lstm_ir as li

DATA = Path(__file__).parent.parent / "docs" / "tutorial" / "data" / "tf1"
# Time is axis 0 here: an open size is called B on axis 0, and T on axis 1, unless somebody says otherwise.
FILES = {"checkpoint": DATA / "model.ckpt-400", "sizes": {"B": "T", "T": "B"}}


def main() -> None:
    """Results and 20 training steps beside TensorFlow's; a package, and rows of several callers in one call."""
    graph = li.from_tf(DATA / "graph.pb", **FILES, outputs=["following", "loss"])
    print({n: str(v.type) for n, v in graph.weights.items()})
    with np.load(DATA / "tensorflow.npz") as file:
        recorded = dict(file)
    batch = {n: recorded[n] for n in graph.input_names}

    worst = np.abs(li.compile(graph)(batch)["following"] - recorded["following"]).max()
    print(f"following: largest difference to TensorFlow {worst:.1e} degrees")
    assert worst < 1e-4

    learner = li.compile(li.train_step(graph, "loss", li.sgd(0.01)))  # by tf.BlockLSTMGrad
    losses = [learner.entries["train"](batch)["loss"].item() for _ in recorded["losses"]]
    worst = np.abs(np.array(losses) - recorded["losses"]).max()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, largest difference to TensorFlow {worst:.1e}")
    assert worst < 1e-5
    assert np.abs(learner.state["lstm_cell/kernel"] - recorded["kernel"]).max() < 1e-5

    inference = li.from_tf(DATA / "graph.pb", **FILES, outputs=["following"])
    trained = li.with_weights(inference, learner)
    with tempfile.TemporaryDirectory() as folder:
        package = li.export(trained, Path(folder) / "sea.lirpkg", ["cpu:host"])
        with li.load(package) as exe, li.Batcher(exe, max_delay=0.05) as batcher:
            columns = [{n: batch[n][:, b : b + 1] for n in ("celsius", "month")} for b in range(3)]
            calls = [batcher.submit(c) for c in columns]
            forecasts = [float(call.result()["following"][-1, 0]) for call in calls]
    print("served:", *(f"{f:.2f}" for f in forecasts))


if __name__ == "__main__":
    main()
