"""Weights in fewer bits: LSTM and GRU layers in f32, bf16, int8 and int8-dynamic, beside onnxruntime and torch.

    pip install 'lstm-ir[oracles]'
    python benchmarks/precision.py --seconds 2 -o precision.json

One thread each. Ours by the option `precision`; onnxruntime's LSTM and GRU in f32 and its `DynamicQuantizeLSTM` with
int8 weights by column (it has none for a GRU); torch's `quantize_dynamic` of both. All take turns in one process; first
each result is compared with the f32 meaning. I = H. The processor's features are printed: where it has AMX,
onnxruntime uses that too, which no kernel here does.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import lstm_ir as li
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.targets import this_machine
from lstm_ir.cli.files import OutputFile
from lstm_ir.measurement.machine import machine
from lstm_ir.measurement.side_by_side import OURS, Times, interleaved

Array = np.ndarray[Any, Any]
Runner = Callable[[Any], Any]
GATES = {"lstm": 4, "gru": 3}
WORDS = ("f32", "bf16", "int8", "int8-dynamic")
ORT, ORT_WIDE, TORCH = "onnxruntime int8", "onnxruntime f32", "torch int8"
FEATURES = ("avx2", "avx512f", "avxvnni", "avx512vnni", "amx-int8", "dotprod", "i8mm")
NEAR = {"f32": 2e-4, "bf16": 0.02, ORT_WIDE: 2e-4}
"""How far results may lie from f32's; 0.1 for int8."""


def layer(kind: str, T: int, B: int, H: int, weights: Sequence[Array]) -> li.Graph:
    """y [T,B,H] of x [T,B,H]."""
    x = li.input("x", (T, B, H))
    values = [li.weight(n, w) for n, w in zip(("w", "r", "b"), weights, strict=True)]
    return li.Graph(kind, [x], {"y": (li.lstm if kind == "lstm" else li.gru)(x, *values).y})


def ours(graph: li.Graph, word: str) -> Runner:
    """Compiled for this machine, in the caller's thread."""
    options: dict[str, Any] = {"helpers": False} | ({} if word == "f32" else {"precision": word})
    exe = li.compile(graph, "cpu", device="local-sync", options=options)
    return lambda x: exe(x=x)["y"]


def _in_order(w: Array, H: int, order: str, named: str) -> Array:
    """Gates of `named` in another order, along the first axis."""
    parts = {g: w[k * H : (k + 1) * H] for k, g in enumerate(named)}
    return np.concatenate([parts[g] for g in order])


def onnxruntime_runner(kind: str, H: int, weights: Sequence[Array], narrow: bool) -> Runner:
    """A session of one node, gates in ONNX's order."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    named, order = ("ifgo", "iofg") if kind == "lstm" else ("rzn", "zrn")
    w, r, b = (_in_order(a, H, order, named) for a in weights)
    arrays = {"B": np.concatenate([b, np.zeros_like(b)])[None]}
    if narrow:
        for name, a in (("W", w), ("R", r)):
            scale = np.abs(a).max(1) / weight_limit()
            whole = np.rint(a / scale[:, None]).astype("i1")
            arrays |= {name: whole.T[None], f"{name}_scale": scale[None].astype("f4"),
                       f"{name}_zero": np.zeros((1, len(a)), "i1")}  # fmt: skip
        inputs = ["X", "W", "R", "B", "", "", "", "", "W_scale", "W_zero", "R_scale", "R_zero"]
        node = helper.make_node("DynamicQuantizeLSTM", inputs, ["Y"], domain="com.microsoft", hidden_size=H)
    else:
        arrays |= {"W": w[None], "R": r[None]}
        more = {"linear_before_reset": 1} if kind == "gru" else {}
        node = helper.make_node(kind.upper(), ["X", "W", "R", "B"], ["Y"], hidden_size=H, **more)
    graph = helper.make_graph(
        [node], "layer", [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["T", "B", H])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ascontiguousarray(a), n) for n, a in arrays.items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    made = helper.make_model(graph, opset_imports=sets, ir_version=8)
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"X": x})[0][:, 0]


def weight_limit() -> int:
    """Of onnxruntime's int8 weights: 7 bits where pairs of products are added in 16 bits, as its own quantizer does."""
    return 127 if {"avxvnni", "avx512vnni", "dotprod", "i8mm"} & set(features()) else 63


def torch_runner(kind: str, H: int, weights: Sequence[Array]) -> Runner:
    """`quantize_dynamic` of the layer: int8 weights by tensor, rows by their range."""
    import torch

    torch.set_num_threads(1)
    module = (torch.nn.LSTM if kind == "lstm" else torch.nn.GRU)(H, H)
    with torch.no_grad():
        for name, a in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"), weights, strict=True):
            getattr(module, name).copy_(torch.tensor(a))
        module.bias_hh_l0.zero_()
    made: Any = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(module), {type(module)}, dtype=torch.qint8)
    assert type(made[0]) is not type(module), "torch left the layer as it was"

    def run(x: Any) -> Any:
        with torch.inference_mode():
            return made(torch.from_numpy(x))[0].numpy()

    return run


def measured(kind: str, T: int, B: int, H: int, seconds: float, peers: bool = True) -> Times:
    """Seconds of all that run the layer, whose results were compared."""
    rng = np.random.default_rng([T, B, H])
    weights = [
        (rng.uniform(-1, 1, s) / np.sqrt(H)).astype("f4") for s in ((GATES[kind] * H, H),) * 2 + ((GATES[kind] * H,),)
    ]
    inputs = [rng.standard_normal((T, B, H)).astype("f4") for _ in range(8)]
    graph = layer(kind, T, B, H, weights)
    runs = {OURS if w == "int8-dynamic" else w: ours(graph, w) for w in WORDS}
    if peers:
        runs[ORT_WIDE] = onnxruntime_runner(kind, H, weights, narrow=False)
        runs[TORCH] = torch_runner(kind, H, weights)
    if peers and kind == "lstm":
        runs[ORT] = onnxruntime_runner(kind, H, weights, narrow=True)
    want = li.interpret(graph, x=inputs[0])["y"]
    for who, run in runs.items():
        far = float(np.abs(run(inputs[0]) - want).max())
        if not far <= NEAR.get(who, 0.1):  # NaN too
            sys.exit(f"{kind} {T},{B},{H}: {who} is wrong, by {far:.2e}")
    return interleaved(runs, inputs, seconds)


def row(kind: str, sizes: tuple[int, ...], times: Times) -> dict[str, Any]:
    """Milliseconds of each, f32's time by that of our words, and peers' by our int8-dynamic."""
    found = {w: times.median(w) for w in times.seconds}
    mine = found.pop(OURS)
    least = {w: float(times.seconds[w].min()) for w in times.seconds}
    words = {w: least["f32"] / least[OURS if w == "int8-dynamic" else w] for w in WORDS[1:]}
    peers = {w: found[w] / mine for w in (ORT, TORCH) if w in found}
    return {"kind": kind, "sizes": sizes, "ms": {w: s * 1e3 for w, s in (found | {"int8-dynamic": mine}).items()},
            "faster than f32": words, "beside ours": peers}  # fmt: skip


def features() -> list[str]:
    """Those of the processor that products of bytes use."""
    return [f for f in FEATURES if f in this_machine().info.features]


@click.command()
@click.option("--seconds", default=2.0, help="Of each runner at each point.")
@click.option("--kind", type=click.Choice(list(GATES)), multiple=True, default=list(GATES))
@click.option("--size", "sizes", type=click.INT, multiple=True, default=(128, 512, 1024), help="H; several times.")
@click.option("--batch", "batches", type=click.INT, multiple=True, default=(1, 8, 32))
@click.option("--steps", type=click.INT, multiple=True, default=(1, 20))
@click.option("--peers/--no-peers", default=True, help="Beside onnxruntime and torch, whose calls change caches.")
@click.option("-o", "--output", type=OutputFile(Path))
def main(
    seconds: float, kind: Sequence[str], sizes: Sequence[int], batches: Sequence[int], steps: Sequence[int],
    peers: bool, output: Path | None,
) -> None:  # fmt: skip
    """Measure, print the tables, and write all figures."""
    import onnxruntime
    import torch

    print(f"{machine()}; {cpus.here()}")
    print(f"onnxruntime {onnxruntime.__version__}, torch {torch.__version__}; one thread each; features: {features()}")
    rows = []
    for k in kind:
        for T, B, H in [(T, B, H) for T in steps for B in batches for H in sizes]:
            found = row(k, (T, B, H), measured(k, T, B, H, seconds, peers))
            rows.append(found)
            shown = [f"{w} {s:.3g} ms" for w, s in found["ms"].items()]
            ratios = [f"{w} {s:.2f}" for part in ("faster than f32", "beside ours") for w, s in found[part].items()]
            print(f"{k} {T},{B},{H}: {', '.join(shown)} | {', '.join(ratios)}", flush=True)
    for peer in (ORT, TORCH):
        known = [r["beside ours"][peer] for r in rows if peer in r["beside ours"]]
        if known:
            print(f"{peer} by ours: geometric mean {np.exp(np.mean(np.log(known))):.2f}, least {min(known):.2f}")
    if output is not None:
        output.write_text(json.dumps({"machine": machine(), "features": features(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
