"""Train a forecaster in TensorFlow 1's way, and record it as people have it: docs/tutorial/data/tf1.

The model is what LSTMBlockFusedCell with peepholes made of a graph: BlockLSTM over [T,B,3], a dense layer, a loss, and
Adam's ops and slots beside it. It learned the temperature of the sea (data/sea.csv) of the years before 1980.

Files:
  `graph.pb`                             the GraphDef, with the ops of its training
  `model.ckpt-400.index`, `.data-...`    the checkpoint
  `tensorflow.npz`                       what TensorFlow gave: `following` [T,B] and `loss` of one batch, and the losses
                                         and the kernel of 20 further steps of plain gradient descent over it

Run: python examples/record_tf1_forecast.py     (needs TensorFlow; some seconds)
"""

import csv
from pathlib import Path

import numpy as np
import tensorflow as tf

UNITS, T, B, STEPS, RATE = 16, 48, 24, 400, 0.01
DATA = Path(__file__).parent.parent / "docs" / "tutorial" / "data"
TARGET = DATA / "tf1"
v1 = tf.compat.v1


def sea() -> tuple[np.ndarray, int]:
    """The temperatures, and how many of them lie before 1980."""
    with (DATA / "sea.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return np.array([float(r["celsius"]) for r in rows], np.float32), [r["month"] for r in rows].index("1980-01")


def windows(celsius: np.ndarray, begins: np.ndarray) -> dict[str, np.ndarray]:
    """Windows [T,B] that begin at these months, their months of the year, and what follows each month."""
    places = np.arange(T)[:, None] + begins
    return {"celsius": celsius[places], "month": (places % 12).astype("i4"), "target": celsius[places + 1]}


def peephole_lstm(x: tf.Tensor, width: int) -> tf.Tensor:
    """h [T,B,UNITS] of LSTMBlockFusedCell(UNITS, forget_bias=1, cell_clip=None, use_peephole=True)."""
    with v1.variable_scope("lstm_cell"):
        kernel = v1.get_variable("kernel", [width + UNITS, 4 * UNITS])
        bias = v1.get_variable("bias", [4 * UNITS], initializer=v1.zeros_initializer())
        diagonal = {n: v1.get_variable(f"w_{n}_diag", [UNITS]) for n in "ifo"}
        zero = tf.zeros([tf.shape(x)[1], UNITS])
        return tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(tf.shape(x)[0], tf.int64), x=x, cs_prev=zero, h_prev=zero, w=kernel, b=bias,
            wci=diagonal["i"], wcf=diagonal["f"], wco=diagonal["o"], forget_bias=1.0, cell_clip=-1.0, use_peephole=True,
        ).h  # fmt: skip


def main() -> None:
    """Build the graph, train, write the files."""
    celsius, known = sea()
    mean, std = float(celsius[:known].mean()), float(celsius[:known].std())
    r = np.random.default_rng(17)
    v1.disable_control_flow_v2()
    v1.disable_resource_variables()
    TARGET.mkdir(exist_ok=True)
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.set_random_seed(17)
        given = {n: v1.placeholder(tf.float32, [None, None], n) for n in ("celsius", "target")}
        given["month"] = v1.placeholder(tf.int32, [None, None], "month")
        now, angle = given["celsius"], tf.cast(given["month"], tf.float32) * (2 * np.pi / 12)
        h = peephole_lstm(tf.stack([(now - mean) / std, tf.sin(angle), tf.cos(angle)], 2), 3)
        with v1.variable_scope("dense"):
            w, b = v1.get_variable("kernel", [UNITS, 1]), v1.get_variable("bias", [1])
        change = tf.reshape(tf.matmul(tf.reshape(h, [-1, UNITS]), w) + b, tf.shape(now))
        following = tf.add(now, change, "following")
        loss = tf.reduce_mean(v1.squared_difference(following, given["target"]), name="loss")
        step = v1.train.AdamOptimizer(RATE).minimize(loss)
        definition = graph.as_graph_def()
        plain = v1.train.GradientDescentOptimizer(RATE).minimize(loss)
        session.run(v1.global_variables_initializer())

        def feed(arrays: dict[str, np.ndarray]) -> dict[object, np.ndarray]:
            return {given[n]: a for n, a in arrays.items()}

        for _ in range(STEPS):
            session.run(step, feed(windows(celsius, r.integers(0, known - T - 1, B))))
        v1.train.Saver().save(session, str(TARGET / "model.ckpt"), STEPS, write_meta_graph=False, write_state=False)
        (TARGET / "graph.pb").write_bytes(definition.SerializeToString())
        batch = windows(celsius, np.arange(known, known + 100, 9))
        first = session.run({"following": following, "loss": loss}, feed(batch))
        losses = [session.run((loss, plain), feed(batch))[0] for _ in range(20)]
        kernel = session.run(graph.get_tensor_by_name("lstm_cell/kernel:0"))
    print(f"TensorFlow {tf.__version__}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    np.savez_compressed(TARGET / "tensorflow.npz", **batch, **first, losses=np.float32(losses), kernel=kernel)


if __name__ == "__main__":
    main()
