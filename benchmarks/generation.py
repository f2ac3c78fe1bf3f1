"""A decoder that feeds its own output back, beside a Python loop around onnxruntime.

    pip install 'lstm-ir[onnx,oracles]'
    python benchmarks/generation.py --hidden 256 --steps 200

Both run one LSTM layer over embedded characters, and take the next one from its scores: the largest, or a draw with
temperature 0.8, top_k 40 and top_p 0.95. onnxruntime runs one step a call, on one thread and on all; NumPy draws
between the calls. Ours is one `scan` in one call, which ends by a row's end if `--until` is given (the scores are such
that none comes, so that all runners make all steps). The likeliest characters are compared first; draws differ by
their random numbers. Runners take turns in one process; medians.
"""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

import lstm_ir as li
from lstm_ir.cli.files import OutputFile
from lstm_ir.measurement.side_by_side import OURS, interleaved

Array = np.ndarray[Any, Any]
HOW: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95}
KINDS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}, "drawn": HOW}


def weights(V: int, H: int) -> dict[str, Array]:
    """An embedding [V, H], a layer with gates in the order i, f, g, o, and scores [H, V]; the end, 0, never wins."""
    rng = np.random.default_rng(0)
    shapes = {"letters": (V, H), "w_ih": (4 * H, H), "w_hh": (4 * H, H), "b": (4 * H,), "out": (H, V), "bias": (V,)}
    made = {n: (rng.normal(size=s) / np.sqrt(H)).astype(np.float32) for n, s in shapes.items()}
    made["out"] *= 8
    made["bias"][0] = -1e4
    return made


def ours(arrays: dict[str, Array], rows: int, steps: int, until: bool, how: dict[str, Any]) -> li.Graph:
    """A key and first letters [B] -> letters [T, B]."""
    w = {n: li.weight(n, a) for n, a in arrays.items()}
    H = len(arrays["out"])
    key, first = li.input("key", (2,), "u32"), li.input("first", (rows,), "i32")
    w_ih, w_hh, out = (li.transpose(w["w_ih"]), li.transpose(w["w_hh"]), w["out"])

    def step(state: Any, _: Any, number: Any) -> Any:
        h, c, letter = state
        z = li.embedding(w["letters"], letter) @ w_ih + h @ w_hh + w["b"]
        i, f, g, o = (z[:, k * H : (k + 1) * H] for k in range(4))
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(c)
        letter = li.sample(h @ out + w["bias"], li.random_key(key, number), **how)
        return (h, c, letter), letter

    zero = li.zeros((rows, H))
    ends = {"until": lambda state, letter: li.equal(letter, 0)} if until else {}
    letters = li.scan(step, (zero, zero, first), length=steps, with_step=True, **ends)[1]
    return li.Graph("generation", [key, first], {"letters": letters})


def peer(arrays: dict[str, Array], rows: int) -> bytes:
    """One step as an ONNX file: letter, h, c -> scores, h, c."""
    from onnx import TensorProto, helper, numpy_helper

    H, V = arrays["out"].shape

    def iofg(a: Array) -> Array:
        i, f, g, o = np.split(a, 4)
        return np.concatenate([i, o, f, g])

    bias = np.concatenate([iofg(arrays["b"]), np.zeros(4 * H, np.float32)])
    held = {
        "letters": arrays["letters"], "W": iofg(arrays["w_ih"])[None], "R": iofg(arrays["w_hh"])[None], "B": bias[None],
        "out": arrays["out"], "bias": arrays["bias"], "first": np.array([0]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gather", ["letters", "letter"], ["x0"]),
        helper.make_node("Unsqueeze", ["x0", "first"], ["x"]),
        helper.make_node("LSTM", ["x", "W", "R", "B", "", "h", "c"], ["", "h_n", "c_n"], hidden_size=H),
        helper.make_node("Squeeze", ["h_n", "first"], ["y"]),
        helper.make_node("MatMul", ["y", "out"], ["s"]),
        helper.make_node("Add", ["s", "bias"], ["scores"]),
    ]
    state = [1, rows, H]
    given = [helper.make_tensor_value_info("letter", TensorProto.INT64, [rows])]
    given += [helper.make_tensor_value_info(n, TensorProto.FLOAT, state) for n in "hc"]
    found = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [rows, V])]
    found += [helper.make_tensor_value_info(n, TensorProto.FLOAT, state) for n in ("h_n", "c_n")]
    stored = [numpy_helper.from_array(a, n) for n, a in held.items()]
    graph = helper.make_graph(nodes, "step", given, found, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def drawn(scores: Array, rng: np.random.Generator, temperature: float, top_k: int, top_p: float) -> Array:
    """A letter of each row, as `li.sample` defines it."""
    k = min(top_k, scores.shape[1])
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    values = np.take_along_axis(scores, best, 1)
    order = np.argsort(-values, axis=1)
    best, values = np.take_along_axis(best, order, 1), np.take_along_axis(values, order, 1) / temperature
    p = np.exp(values - values[:, :1])
    p /= p.sum(1, keepdims=True)
    before = np.cumsum(p, 1) - p
    values = np.where(before < top_p, values, -np.inf)
    pick = (values + rng.gumbel(size=values.shape)).argmax(1)
    return np.asarray(np.take_along_axis(best, pick[:, None], 1)[:, 0])


class Loop:
    """onnxruntime, called step by step."""

    def __init__(self, model: bytes, H: int, rows: int, steps: int, threads: int, how: dict[str, Any]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.shape, self.steps, self.how = (1, rows, H), steps, how

    def __call__(self, first: Array) -> Array:
        """Letters [T, B]."""
        h = c = np.zeros(self.shape, np.float32)
        letter, out, rng = first.astype(np.int64), [], np.random.default_rng(0)
        for _ in range(self.steps):
            scores, h, c = self.session.run(None, {"letter": letter, "h": h, "c": c})
            letter = drawn(scores, rng, **self.how) if self.how["temperature"] else scores.argmax(1)
            out.append(letter)
        return np.array(out)


@click.command()
@click.option("--hidden", default=256, show_default=True)
@click.option("--letters", default=96, show_default=True, help="how many there are to choose from")
@click.option("--rows", default=1, show_default=True, help="rows of the batch")
@click.option("--steps", default=200, show_default=True)
@click.option("--until", is_flag=True, help="ours ends by a row's end, which never comes")
@click.option("--seconds", default=5.0, show_default=True, help="spent on each runner of a row")
@click.option("-o", "--output", type=OutputFile(), help="figures as JSON")
def main(hidden: int, letters: int, rows: int, steps: int, until: bool, seconds: float, output: str | None) -> None:
    """Measure both kinds of choice."""
    arrays = weights(letters, hidden)
    model = peer(arrays, rows)
    key, firsts = np.array([0, 1], np.uint32), [np.full(rows, k, np.int32) for k in range(1, 5)]
    results = []
    print("| choice | lstm-ir us a step | onnxruntime us a step | ratio (90 % interval) |")
    print("|---|---|---|---|")
    for kind, how in KINDS.items():
        exe = li.compile(ours(arrays, rows, steps, until, how))
        loops = {f"onnxruntime, {n or 'all'} threads": Loop(model, hidden, rows, steps, n, how) for n in (1, 0)}
        if kind == "greedy":
            want = next(iter(loops.values()))(firsts[0])[:20]
            got = exe(key=key, first=firsts[0])["letters"][:20]
            if not np.array_equal(got, want):
                raise click.ClickException("the likeliest letters differ from onnxruntime's")
        runners = {OURS: lambda first, exe=exe: exe(key=key, first=first), **loops}
        times = interleaved(runners, firsts, seconds)
        us = {w: 1e6 * times.median(w) / steps for w in runners}
        low, high = times.interval()
        results.append({"choice": kind, "us": us, "ratio": times.ratio, "interval": [low, high]})
        print(
            f"| {kind} | {us[OURS]:.4g} | {us[times.best]:.4g} | {times.ratio:.2f} ({low:.2f}-{high:.2f}) |", flush=True
        )
    if output is not None:
        Path(output).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
