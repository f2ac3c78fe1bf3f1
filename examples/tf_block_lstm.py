"""A TensorFlow-1 model with BlockLSTM, moved: the same results, and the same 100 training steps.

XLA and TFLite have no kernel for BlockLSTM and its gradient; here the op is rebuilt by its name,
with TensorFlow's operands and defaults (forget_bias 1, cell_clip 3), and compiled.
`examples/data/tf_block_lstm.npz` holds weights, data, results and the loss curve that TensorFlow
recorded (`record_tf_block_lstm.py` made it).

Run: python examples/tf_block_lstm.py        (needs no TensorFlow)
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import lstm_ir as li

DATA = Path(__file__).parent / "data" / "tf_block_lstm.npz"
WEIGHTS = ("w", "wci", "wcf", "wco", "b", "dense", "bias")
Arrays = dict[str, np.ndarray]


def model(v: Mapping[str, li.Value], name: str) -> li.Graph:
    """x [T,B,3], lengths i32[B], labels i32[B] -> h [T,B,C], logits [B,2], loss."""
    x = li.input("x", ("T", "B", 3))
    lengths, labels = li.input("lengths", ("B",), "i32"), li.input("labels", ("B",), "i32")
    units = v["wci"].shape[0]
    zero = li.zeros(("B", units))
    h = li.op(
        "tf.BlockLSTM", seq_len_max=li.convert(li.max(lengths), "i64"), x=x, cs_prev=zero,
        h_prev=zero, w=v["w"], wci=v["wci"], wcf=v["wcf"], wco=v["wco"], b=v["b"],
        use_peephole=True,
    ).h  # fmt: skip
    ends = li.equal(li.iota(("T", "B"), 0), lengths - 1)  # the last step of each row
    last = li.sum(li.select(li.expand_dims(ends, 2), h, 0.0), 0)
    logits = last @ v["dense"] + v["bias"]
    right = li.equal(li.iota(("B", 2), 1), li.expand_dims(labels, 1))
    loss = -li.mean(li.sum(li.select(right, li.log_softmax(logits), 0.0), 1))
    inputs = [a for a in v.values() if a.op == "parameter"]
    outputs = {"h": h, "logits": logits, "loss": loss}
    return li.Graph(name, [x, lengths, labels, *inputs], outputs)


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """The largest absolute difference."""
    return float(np.abs(np.asarray(got, np.float64) - want).max())


def main() -> None:
    """Compare results, train, compare the curve and the trained weights."""
    with np.load(DATA, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files}
    about = json.loads(data["meta"].item())
    batches = [{k: data[k][n] for k in ("x", "lengths", "labels")} for n in range(about["batches"])]

    exe = li.compile(model({n: li.weight(n, data[n]) for n in WEIGHTS}, "inference"))
    out = exe(**batches[0])
    for name in ("h", "logits"):
        worst = difference(out[name], data[name])
        print(f"{name}: largest difference to TensorFlow {worst:.1e}")
        assert worst < 2e-5, name

    graph = model({n: li.input(n, data[n].shape) for n in WEIGHTS}, "training")
    step = li.compile(li.grad(graph, "loss", WEIGHTS))  # by tf.BlockLSTMGrad
    now: Arrays = {n: data[n] for n in WEIGHTS}
    losses = []
    for n in range(about["steps"]):
        out = step(**batches[n % len(batches)], **now)
        losses.append(float(out["loss"]))
        now = {k: a - np.float32(about["rate"]) * out[f"d_{k}"] for k, a in now.items()}
    worst = difference(np.asarray(losses), data["losses"])
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, largest difference to TensorFlow {worst:.1e}")
    assert worst < 1e-4
    for name in WEIGHTS:  # a hundred steps let rounding grow
        assert difference(now[name], data[f"trained/{name}"]) < 1e-3, name


if __name__ == "__main__":
    main()
