"""tf.BlockLSTM, tf.BlockLSTMV2 and their Grad ops beside TensorFlow's own kernels, on the CPU.

    pip install 'lstm-ir[oracles]'
    python benchmarks/tf_block_ops.py --seconds 2 -o block_ops.json

Each op runs by `tf.raw_ops` on tensors made beforehand, and here compiled for this processor with
default options, weights in the module and NumPy arrays in and out. Interleaved, same inputs, every
result compared first. ratio = TensorFlow's median / ours.
"""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

import lstm_ir as li
from lstm_ir.cli.files import OutputFile
from lstm_ir.measurement.differences import largest, relative
from lstm_ir.measurement.side_by_side import OURS, interleaved

SIZES = ((100, 1, 128, 128), (100, 16, 256, 256), (100, 64, 512, 512), (1000, 4, 200, 200))
WEIGHTS = ("w", "wci", "wcf", "wco", "b")
SAVED = ("i", "cs", "f", "o", "ci", "co", "h")
Arrays = dict[str, np.ndarray[Any, Any]]


def operands(rng: np.random.Generator, T: int, B: int, I: int, C: int) -> Arrays:
    """Weights as a trained model has them: a few tenths."""

    def some(*shape: int) -> np.ndarray[Any, Any]:
        return (0.5 * rng.uniform(-1, 1, shape) / np.sqrt(C)).astype(np.float32)

    peepholes = {n: some(C) for n in ("wci", "wcf", "wco")}
    first = {"cs_prev": some(B, C), "h_prev": some(B, C)}
    return {
        "seq_len_max": np.array(T, np.int64),
        "x": rng.standard_normal((T, B, I)).astype(np.float32),
        **first,
        "w": some(I + C, 4 * C),
        **peepholes,
        "b": some(4 * C),
    }


def compiled(op: str, a: Arrays, attrs: dict[str, Any]) -> Any:
    """The op alone, its weights constant."""
    held = {n: v for n, v in a.items() if n not in WEIGHTS}
    kinds = {n: "i64" if n == "seq_len_max" else "f32" for n in held}
    inputs = {n: li.input(n, v.shape, kinds[n]) for n, v in held.items()}
    values = {n: inputs[n] if n in inputs else li.weight(n, v) for n, v in a.items()}
    out = li.op(f"tf.{op}", **values, **attrs)._asdict()
    return li.compile(li.Graph("op", list(inputs.values()), out))


def measure(op: str, sizes: tuple[int, int, int, int], seconds: float) -> dict[str, Any]:
    """Medians of one op at one size."""
    import tensorflow as tf

    rng = np.random.default_rng(sum(sizes))
    forward = op.replace("Grad", "")
    cases = [operands(rng, *sizes) for _ in range(3)]
    for n in WEIGHTS:
        for a in cases:
            a[n] = cases[0][n]
    attrs: dict[str, Any] = {"use_peephole": True}
    if forward == "BlockLSTM":
        attrs["forget_bias"] = 1.0
    if forward != op:
        T, B, _, C = sizes
        for a in cases:
            out = getattr(tf.raw_ops, forward)(**a, cell_clip=-1.0, **attrs)._asdict()
            a |= {n: out[n].numpy() for n in SAVED}
            a |= {n: rng.standard_normal((T, B, C), np.float32) for n in ("cs_grad", "h_grad")}
        attrs.pop("forget_bias", None)
    else:
        attrs["cell_clip"] = -1.0
    theirs = getattr(tf.raw_ops, op)
    exe = compiled(op, cases[0], attrs)
    pairs = [
        ({n: v for n, v in a.items() if n not in WEIGHTS}, {n: tf.constant(v) for n, v in a.items()}) for a in cases
    ]
    got, want = exe(pairs[0][0]), theirs(**pairs[0][1], **attrs)._asdict()
    worst = largest(relative(got[n], want[n].numpy()) for n in want)
    assert worst < 1e-4, f"{op} {sizes}: largest difference {worst:.1e}"
    runs = {OURS: lambda p: exe(p[0]), "tensorflow": lambda p: theirs(**p[1], **attrs)[-1].numpy()}
    times = interleaved(runs, pairs, seconds)
    low, high = times.interval()
    return {
        "op": op, "sizes": list(sizes), "ms": {w: 1e3 * times.median(w) for w in times.seconds},
        "ratio": times.ratio, "interval": [low, high], "error": worst,
    }  # fmt: skip


@click.command()
@click.option("--seconds", default=2.0, show_default=True, help="spent on each runner of a case")
@click.option("-o", "--output", type=OutputFile(), help="figures as JSON")
@click.option("--only", type=int, help="one of the four sizes, 0 to 3")
def main(seconds: float, output: str | None, only: int | None) -> None:
    """Measure the four ops at the four sizes."""
    results = []
    print("| op | T,B,I,C | lstm-ir ms | TensorFlow ms | ratio (90 % interval) | difference |")
    print("|---|---|---|---|---|---|")
    for sizes in SIZES if only is None else SIZES[only : only + 1]:
        for op in ("BlockLSTM", "BlockLSTMV2", "BlockLSTMGrad", "BlockLSTMGradV2"):
            r = measure(op, sizes, seconds)
            results.append(r)
            low, high = r["interval"]
            print(
                f"| {op} | {','.join(map(str, sizes))} | {r['ms'][OURS]:.3g} | {r['ms']['tensorflow']:.3g} "
                f"| {r['ratio']:.2f} ({low:.2f}-{high:.2f}) | {r['error']:.0e} |", flush=True,
            )  # fmt: skip
    if output is not None:
        Path(output).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
