"""Train a TensorFlow-1 model with BlockLSTM and record it: examples/data/tf_block_lstm.npz.

The task: every sequence has one marked step; say whether the value there was positive. The model
is what TensorFlow 1 users wrote: BlockLSTM with peepholes, one seq_len_max per batch, the state at
each row's own end, a dense layer. tf.gradients runs BlockLSTMGrad; plain gradient descent.

Entries of the file:
  `w`, `wci`, `wcf`, `wco`, `b`, `dense`, `bias`   the weights before training, TensorFlow's layouts
  `trained/...`                                    the same after STEPS steps
  `x` [N,T,B,I], `lengths` [N,B], `labels` [N,B]   N batches, taken in turn
  `h` [T,B,C], `logits` [B,2]                      results for batch 0 before training
  `losses` [STEPS]                                 the loss of each step, before its update
  `meta`                                           JSON text

Run: python examples/record_tf_block_lstm.py     (needs TensorFlow; some seconds)
"""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCHES, T, B, I, C, STEPS, RATE = 6, 12, 16, 3, 20, 100, 0.5
TARGET = Path(__file__).parent / "data" / "tf_block_lstm.npz"
Arrays = dict[str, np.ndarray]


def task(r: np.random.Generator) -> Arrays:
    """Batches of sequences (value, mark, 1), lengths 4..T, and whether the marked value is > 0."""
    lengths = r.integers(4, T - 1, (BATCHES, B)).astype(np.int32)
    x = np.zeros((BATCHES, T, B, I), np.float32)
    x[..., 0], x[..., 2] = r.uniform(-1, 1, x.shape[:3]), 1
    marked = (r.random((BATCHES, B)) * lengths).astype(int)
    n, b = np.indices(marked.shape)
    x[n, marked, b, 1] = 1
    return {"x": x, "lengths": lengths, "labels": (x[n, marked, b, 0] > 0).astype(np.int32)}


def weights(r: np.random.Generator) -> Arrays:
    """Random weights; the columns of `w` are i, ci, f, o."""

    def some(*shape: int) -> np.ndarray:
        return (r.standard_normal(shape) * 0.3).astype(np.float32)

    out = {"w": some(I + C, 4 * C), "b": some(4 * C)}
    out |= {n: some(C) for n in ("wci", "wcf", "wco")}
    return out | {"dense": some(C, 2), "bias": some(2)}


def main() -> None:
    """Build the graph, train, write the file."""
    r = np.random.default_rng(8)
    data, start = task(r), weights(r)
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [T, B, I])
        lengths, labels = v1.placeholder(tf.int32, [B]), v1.placeholder(tf.int32, [B])
        v = {n: v1.Variable(a) for n, a in start.items()}
        zero = tf.zeros([B, C])
        steps = tf.cast(tf.reduce_max(lengths), tf.int64)
        h = tf.raw_ops.BlockLSTM(
            seq_len_max=steps, x=x, cs_prev=zero, h_prev=zero, w=v["w"], wci=v["wci"],
            wcf=v["wcf"], wco=v["wco"], b=v["b"], use_peephole=True,
        ).h  # fmt: skip
        last = tf.gather_nd(h, tf.stack([lengths - 1, tf.range(B)], axis=1))
        logits = last @ v["dense"] + v["bias"]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        step = v1.train.GradientDescentOptimizer(RATE).minimize(loss)
        session.run(v1.global_variables_initializer())

        def feed(n: int) -> dict[object, np.ndarray]:
            return {x: data["x"][n], lengths: data["lengths"][n], labels: data["labels"][n]}

        first = session.run({"h": h, "logits": logits}, feed(0))
        losses = [session.run((loss, step), feed(n % BATCHES))[0] for n in range(STEPS)]
        trained = {f"trained/{n}": a for n, a in session.run(v).items()}
    about = {"tensorflow": tf.__version__, "rate": RATE, "steps": STEPS, "batches": BATCHES}
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    TARGET.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        TARGET, **start, **trained, **data, **first, losses=np.asarray(losses, np.float32),
        meta=np.asarray(json.dumps(about)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
