"""tf.CudnnRNNV3, two layers, two directions, rows of unequal length, beside torch.nn.LSTM and GRU.

    pip install 'lstm-ir[oracles]'
    python benchmarks/cudnn_rnn.py --seconds 2 -o cudnn.json

On the CPU: PyTorch runs packed sequences, packing included; here the op is compiled with default
options. Inference also runs with two core layers per layer, one for each direction, and without the
pass `stack-directions` that would join them: what one recurrence for both directions gains. With
`--no-kernels` in StableHLO loops, as GPUs run them, with `--target vulkan` there. A training step is
forward and backward of the input and all weights for the loss mean(output^2), with other weights in
every call. Interleaved; results compared first.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

import lstm_ir as li
from lstm_ir.cli.files import OutputFile
from lstm_ir.measurement.side_by_side import OURS, Times, interleaved
from lstm_ir.ops.cudnn.weights import from_torch
from lstm_ir.passes.pipelines import NAMED

SIZES = ((100, 1, 128, 128), (100, 16, 128, 256), (50, 32, 64, 128))
LAYERS = 2
APART = "directions apart"
Array = np.ndarray[Any, Any]


def model(mode: str, sizes: tuple[int, ...], params: Array, training: bool) -> li.Graph:
    """The op; `params` is an input where it trains, and the outputs then are gradients."""
    T, B, I, H = sizes
    x, lengths = li.input("input", (T, B, I)), li.input("sequence_lengths", (B,), "i32")
    given = li.input("params", params.shape) if training else li.weight("params", params)
    zero = li.zeros((2 * LAYERS, B, H))
    out = li.op(
        "tf.CudnnRNNV3", input=x, input_h=zero, input_c=zero if mode == "lstm" else li.zeros(()),
        params=given, sequence_lengths=lengths, rnn_mode=mode, direction="bidirectional",
        is_training=training,
    )  # fmt: skip
    if not training:
        return li.Graph("infer", [x, lengths], {"output": out.output})
    loss = li.mean(out.output * out.output)
    return li.grad(li.Graph("train", [x, lengths, given], {"loss": loss}), "loss", ["input", "params"])


def by_direction(mode: str, sizes: tuple[int, ...], state: dict[str, Any]) -> li.Graph:
    """The same inference, each direction of a layer an op of its own."""
    T, B, I, H = sizes
    x, lengths = li.input("input", (T, B, I)), li.input("sequence_lengths", (B,), "i32")
    y = x
    for layer in range(LAYERS):
        parts = []
        for direction, end in (("forward", ""), ("reverse", "_reverse")):
            ih, hh, b_ih, b_hh = (
                state[f"{what}_l{layer}{end}"].numpy() for what in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            more: dict[str, Any] = {"lengths": lengths, "direction": direction}
            where = f"{layer}/{direction}"
            if mode == "lstm":
                w, b, cell = (ih, hh), b_ih + b_hh, li.lstm
            else:
                w, cell = (ih, hh), li.gru
                b = b_ih + np.concatenate([b_hh[: 2 * H], np.zeros(H, np.float32)])
                more |= {"b_hn": li.weight(f"{where}/b_hn", b_hh[2 * H :].copy())}
            values = [li.weight(f"{where}/{n}", a) for n, a in zip(("ih", "hh", "b"), (*w, b), strict=True)]
            parts.append(cell(y, *values, **more)[0])
        y = li.concat(parts, 2)
    return li.Graph("apart", [x, lengths], {"output": y})


def torch_runner(mode: str, modules: list[Any], training: bool) -> Callable[[Any], Any]:
    """Packed sequences, as PyTorch's users write them."""
    import torch

    rnn = torch.nn.utils.rnn

    def infer(call: tuple[int, Array, Array]) -> Any:
        turn, a, lengths = call
        with torch.inference_mode():
            packed = rnn.pack_padded_sequence(torch.from_numpy(a), torch.from_numpy(lengths), enforce_sorted=False)
            y, _ = modules[turn](packed)
            return rnn.pad_packed_sequence(y, total_length=len(a))[0]

    def train(call: tuple[int, Array, Array]) -> Any:
        turn, a, lengths = call
        m = modules[turn]
        m.zero_grad(set_to_none=True)
        x = torch.from_numpy(a).requires_grad_()
        packed = rnn.pack_padded_sequence(x, torch.from_numpy(lengths), enforce_sorted=False)
        y = rnn.pad_packed_sequence(m(packed)[0], total_length=len(a))[0]
        (y * y).mean().backward()
        return x.grad, {n: p.grad for n, p in m.named_parameters()}

    return train if training else infer


def measure(
    mode: str, sizes: tuple[int, int, int, int], training: bool, seconds: float, target: str,
    kernels: bool,
) -> Times:  # fmt: skip
    """Medians of this project, of it with the directions apart, and of PyTorch."""
    import torch

    T, B, I, H = sizes
    torch.manual_seed(sum(sizes))
    rng = np.random.default_rng(sum(sizes))
    kind = torch.nn.LSTM if mode == "lstm" else torch.nn.GRU
    modules = [kind(I, H, LAYERS, bidirectional=True) for _ in range(2 if training else 1)]
    params = [from_torch(m.state_dict(), rnn_mode=mode) for m in modules]
    lengths = np.sort(rng.integers(T // 4, T + 1, B))[::-1].astype(np.int64).copy()
    lengths[0] = T
    calls = [(k % len(modules), rng.standard_normal((T, B, I), np.float32), lengths) for k in range(4)]
    graph = model(mode, sizes, params[0], training)
    options: dict[str, Any] = {} if kernels else {"kernels": False}
    exes = {OURS: li.compile(graph, target, options=options)}
    if not training:
        apart = NAMED["default"].replace("stack-directions,", "")
        assert apart != NAMED["default"]
        split = by_direction(mode, sizes, modules[0].state_dict())
        exes[APART] = li.compile(split, target, options=options | {"pipeline": apart})

    def run(exe: Any) -> Callable[[Any], Any]:
        def of(call: tuple[int, Array, Array]) -> Any:
            more = {"params": params[call[0]]} if training else {}
            return exe(input=call[1], sequence_lengths=call[2].astype(np.int32), **more)

        return of

    runs = {w: run(exe) for w, exe in exes.items()}
    runs["torch"] = torch_runner(mode, modules, training)
    compare(mode, training, runs, calls[0])
    return interleaved(runs, calls, seconds)


def compare(mode: str, training: bool, runs: dict[str, Callable[[Any], Any]], call: Any) -> None:
    """AssertionError where results differ."""
    want = runs["torch"](call)
    for who in runs.keys() - {"torch"}:
        got = runs[who](call)
        if not training:
            assert np.abs(got["output"] - want.numpy()).max() < 1e-5, who
            continue
        dx, grads = want
        pairs = ((got["d_input"], dx.numpy()), (got["d_params"], from_torch(grads, rnn_mode=mode)))
        for a, b in pairs:
            assert np.abs(a - b).max() < 2e-5 * np.abs(b).max(), who


@click.command()
@click.option("--seconds", default=2.0, show_default=True, help="spent on each runner of a case")
@click.option("--kernels/--no-kernels", default=True, help="no: StableHLO loops, as GPUs run them")
@click.option("--target", default="cpu", show_default=True)
@click.option("--only", default="", help="cases whose name or sizes contain this")
@click.option("-o", "--output", type=OutputFile(), help="figures as JSON")
def main(seconds: float, kernels: bool, target: str, only: str, output: str | None) -> None:
    """Measure LSTM and GRU, inference and training."""
    results = []
    print("| model | T,B,I,H | lstm-ir ms | directions apart ms | torch ms | torch / lstm-ir | apart / lstm-ir |")
    print("|---|---|---|---|---|---|---|")
    for sizes in SIZES:
        for training in (False, True):
            for mode in ("lstm", "gru"):
                name = f"{mode} {'training step' if training else 'inference'}"
                shape = ",".join(map(str, sizes))
                if only not in f"{name} {shape}":
                    continue
                t = measure(mode, sizes, training, seconds, target, kernels)
                ms = {w: 1e3 * t.median(w) for w in t.seconds}
                pairs = {w: Times({OURS: t.seconds[OURS], w: t.seconds[w]}) for w in ms if w != OURS}
                ratios = {w: (p.ratio, *p.interval()) for w, p in pairs.items()}
                texts = ["{:.2f} ({:.2f}-{:.2f})".format(*ratios[w]) if w in ratios else "" for w in ("torch", APART)]
                shown = " | ".join(f"{ms[w]:.3g}" if w in ms else "" for w in (OURS, APART, "torch"))
                print(f"| {name} | {shape} | {shown} | {' | '.join(texts)} |", flush=True)
                results.append({"model": name, "sizes": list(sizes), "ms": ms, "ratios": ratios})
    if output is not None:
        Path(output).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
