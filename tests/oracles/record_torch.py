"""Record whole layers of PyTorch in float64, values and gradients: tests/golden/torch/*.npz.

Entries of a file (T, B, I, H = 11, 3, 5, 7; P = 3 where projected, else H; D directions, L layers):
  `x` [T, B, I], `h_0` [L D, B, P], `c_0` [L D, B, H] (LSTM), `lengths` [B]
  `weight_ih_l0`, ...                     PyTorch's weights under their names, gates as PyTorch has
  `output` [T, B, D P], `h_n`, `c_n`      the results; output is zero behind a sequence's end
  `bar/output`, `bar/h_n`, `bar/c_n`      a random cotangent of each result
  `grad/NAME`                             of sum(bar * result), for x, h_0, c_0 and every weight

The script loads every file back and checks it with plain NumPy: the results directly, the
gradients along random directions by a complex step.

Run: python tests/machine/child.py tests/oracles/record_torch.py        (needs PyTorch)
"""

import itertools
import json
from typing import Any

import numpy as np
import torch
from paths import GOLDEN
from plain_rnn import Array, Layer, run
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

TARGET = GOLDEN / "torch"
T, B, I, H, P = 11, 3, 5, 7, 3
LENGTHS = {"full": (T, T, T), "packed": (4, T, 1)}
SEED = 1997
STEP = 1e-30  # of the complex step; nothing is subtracted, so it can be this small


def cases() -> list[dict[str, Any]]:
    """List what is recorded: every setting of LSTM and GRU; of the others a selection of four.

    Any two settings meet in the selection.
    """
    grid = list(itertools.product((1, 2), (False, True), LENGTHS))
    half = [(1, False, "full"), (1, True, "packed"), (2, False, "packed"), (2, True, "full")]
    listed = [(cell, *point, 0) for cell in ("lstm", "gru") for point in grid]
    listed += [("lstm", *point, P) for point in half]
    listed += [(cell, *point, 0) for cell in ("rnn_tanh", "rnn_relu") for point in half]
    return [
        {
            "name": "_".join([cell, *["proj"] * (proj > 0), "bi" if both else "uni", f"l{layers}", lengths]),
            "cell": cell,
            "layers": layers,
            "bidirectional": both,
            "lengths": list(LENGTHS[lengths]),
            "proj_size": proj,
            "seed": SEED + k,
        }
        for k, (cell, layers, both, lengths, proj) in enumerate(listed)
    ]


def make(case: dict[str, Any]) -> nn.RNNBase:
    given: dict[str, Any] = {"num_layers": case["layers"], "bidirectional": case["bidirectional"]}
    if case["cell"] == "lstm":
        return nn.LSTM(I, H, proj_size=case["proj_size"], dtype=torch.float64, **given)
    if case["cell"] == "gru":
        return nn.GRU(I, H, dtype=torch.float64, **given)
    activation = case["cell"].removeprefix("rnn_")
    return nn.RNN(I, H, nonlinearity=activation, dtype=torch.float64, **given)


def forward(module: nn.RNNBase, inputs: dict[str, torch.Tensor], lengths: list[int]) -> dict[str, torch.Tensor]:
    """Call the layer, packed where the lengths are unequal."""
    x: Any = inputs["x"]
    if min(lengths) < T:
        x = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    start = (inputs["h_0"], inputs["c_0"]) if "c_0" in inputs else inputs["h_0"]
    y, end = module(x, start)
    output = pad_packed_sequence(y, total_length=T)[0] if min(lengths) < T else y
    names = ("h_n", "c_n")
    return {"output": output, **dict(zip(names, end if "c_0" in inputs else (end,), strict=False))}


def short(tensor: torch.Tensor) -> torch.Tensor:
    """Round to multiples of 1/1024: float64 numbers with few digits compress well."""
    return torch.round(tensor * 1024) / 1024


def draw(*shape: int) -> torch.Tensor:
    return short(torch.randn(shape, dtype=torch.float64))


def record(case: dict[str, Any]) -> dict[str, Array]:
    """Run one case forward and backward."""
    torch.manual_seed(case["seed"])
    module = make(case)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(short(weight))
    rows = case["layers"] * (2 if case["bidirectional"] else 1)
    shapes = {"x": (T, B, I), "h_0": (rows, B, case["proj_size"] or H)}
    if case["cell"] == "lstm":
        shapes["c_0"] = (rows, B, H)
    inputs = {n: draw(*s).requires_grad_() for n, s in shapes.items()}
    results = forward(module, inputs, case["lengths"])
    bars = {n: draw(*r.shape) for n, r in results.items()}
    sources = {**inputs, **dict(module.named_parameters())}
    loss = torch.stack([(bars[n] * results[n]).sum() for n in results]).sum()
    grads = dict(zip(sources, torch.autograd.grad(loss, list(sources.values())), strict=True))
    tensors = {
        **sources,
        **results,
        **{f"bar/{n}": t for n, t in bars.items()},
        **{f"grad/{n}": t for n, t in grads.items()},
    }
    arrays = {n: t.detach().numpy() for n, t in tensors.items()}
    return {"lengths": np.array(case["lengths"], np.int32), **arrays}


def results_of(case: dict[str, Any], data: dict[str, Array]) -> dict[str, Array]:
    """Recompute the results in NumPy."""
    layer = Layer(case["cell"], case["layers"], case["bidirectional"])
    weights = {n: a for n, a in data.items() if n.startswith(("weight", "bias"))}
    c_0 = data.get("c_0", np.zeros((len(data["h_0"]), B, H)))
    results = run(layer, weights, data["x"], data["h_0"], c_0, data["lengths"])
    return {n: a for n, a in results.items() if n in data}


def check(case: dict[str, Any]) -> tuple[float, float]:
    """Load a file back; return the worst error of its results and of its gradients."""
    with np.load(TARGET / f"{case['name']}.npz", allow_pickle=False) as archive:
        data = {n: archive[n] for n in archive.files}
    expected = results_of(case, data)
    assert set(expected) == {n[4:] for n in data if n.startswith("bar/")}
    values = max(float(np.abs(data[n] - a).max()) for n, a in expected.items())
    rng, worst = np.random.default_rng(case["seed"]), 0.0
    for name in [n[5:] for n in data if n.startswith("grad/")]:
        way = rng.normal(size=data[name].shape)
        moved = results_of(case, {**data, name: data[name] + 1j * STEP * way})
        slope = sum(float((data[f"bar/{n}"] * a.imag).sum()) for n, a in moved.items()) / STEP
        worst = max(worst, abs(float((data[f"grad/{name}"] * way).sum()) - slope))
    assert values < 1e-13, (case["name"], values)
    assert worst < 1e-11, (case["name"], worst)  # sums of some hundred terms of size one
    return values, worst


def main() -> None:
    torch.set_num_threads(1)
    TARGET.mkdir(parents=True, exist_ok=True)
    listed = cases()
    for case in listed:
        arrays = record(case)
        np.savez_compressed(TARGET / f"{case['name']}.npz", **arrays)  # type: ignore[arg-type]
    manifest = {
        "torch": torch.__version__,
        "dtype": "float64",
        "sizes": {"T": T, "B": B, "I": I, "H": H, "P": P},
        "gates": {"lstm": "i, f, g, o", "gru": "r, z, n"},
        "cases": listed,
    }
    (TARGET / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    errors = [check(case) for case in listed]
    size = sum(file.stat().st_size for file in TARGET.iterdir())
    print(f"{len(listed)} cases, {size} bytes, seeds from {SEED}; float64 NumPy differs by at most")
    print(f"{max(e for e, _ in errors):.1e} in results, {max(e for _, e in errors):.1e} in gradients")


if __name__ == "__main__":
    main()
