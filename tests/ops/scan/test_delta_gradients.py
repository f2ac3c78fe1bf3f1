"""Gradients of delta rules by chunks: those of torch through loops that are written with matrices (delta_loops.py)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import delta_loops as oracle
import numpy as np
import pytest
from delta_cells import CELLS, Sizes, arrays, drawn, graph, loops_over_steps
from device import need

import lstm_ir as li
from lstm_ir.ops.scan import tuned
from lstm_ir.ops.scan.tuned import DELTA_ROWS
from lstm_ir.passes.base import Notes
from lstm_ir.passes.chunk_states import ChunkStates

chunkwise = import_module("lstm_ir.ops.scan.chunkwise")  # `li.scan` takes the name of its folder
BY_STEPS = ("erases_another", "two_erasures")  # in gradients: two keys are written in a step


@pytest.fixture(autouse=True)
def short_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks for keys of any length: those from which on they are taken would make all sizes large."""
    monkeypatch.setattr(chunkwise, "LONG_KEYS", 1)


def near(got: Any, want: Any, bound: float, what: object) -> None:
    for i, (n, w) in enumerate(zip(got, want, strict=True)):
        assert n.shape == w.shape
        scale = 1 + np.abs(w).max(initial=0)
        np.testing.assert_allclose(n, w, rtol=0, atol=bound * scale, err_msg=f"{i} {what}")


def differentiated(g: li.Graph, T: int, seed: int) -> tuple[li.Graph, dict[str, Any]]:
    """The sum of all results squared and weighed, and its gradients; the weights."""
    rng = np.random.default_rng(seed + 1)
    shapes = [tuple(d if isinstance(d, int) else T for d in v.shape) for v in g.outputs]
    scales = {f"weight{j}": rng.standard_normal(s) for j, s in enumerate(shapes)}
    given = [li.input(f"weight{j}", v.shape, str(v.dtype)) for j, v in enumerate(g.outputs)]
    total = li.constant(0, str(g.outputs[0].dtype))
    for v, w in zip(g.outputs, given, strict=True):
        total = total + li.sum(w * v * v)
    names = [n for n in g.input_names if n != "lengths"]
    return li.grad(li.Graph("g", [*g.params, *given], {"loss": total}), "loss", names, missing="zeros"), scales


def torch_gradients(name: str, given: Any, scales: Any, reverse: bool) -> dict[str, Any]:
    need("torch")
    import torch

    leaves = {n: torch.tensor(a, requires_grad=n != "lengths") for n, a in given.items()}
    outs = oracle.run(name, leaves, reverse, torch)
    total = sum((torch.from_numpy(w) * o * o).sum() for w, o in zip(scales.values(), outs, strict=True))
    total.backward()
    slopes = {f"d_{n}": x for n, x in leaves.items() if n != "lengths"}
    return {"loss": total.detach().numpy()} | {
        n: np.zeros(x.shape) if x.grad is None else x.grad.numpy() for n, x in slopes.items()
    }


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("lengths", "reverse"), [(False, False), (False, True), (True, False), (True, True)])
def test_gradients_are_those_of_torch(name: str, lengths: bool, reverse: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, T = drawn(rng, 1 + seed % 2), int(rng.integers(DELTA_ROWS + 1, 100))
    g = graph(name, T, sizes, reverse=reverse, lengths=lengths)
    given = arrays(g, T, seed)
    want = None
    for forward in (
        g,
        ChunkStates(on="all").run(g, Notes()),
    ):  # through its chunks by its own gradient, and by that of the products
        made, scales = differentiated(forward, T, seed)
        want = want or torch_gradients(name, given, scales, reverse)
        assert bool(loops_over_steps(made)) is (forward is g and name in BY_STEPS)
        got = li.interpret(made, given | scales)
        near([got[n] for n in want], want.values(), 1e-11, (seed, sizes, T))


@pytest.mark.parametrize("steps", [1, 32, 71])
def test_gradients_of_a_named_number_of_steps(steps: int, seed: int) -> None:
    sizes = drawn(np.random.default_rng(seed), 2)
    g = graph("gated", "T", sizes)
    given = arrays(g, steps, seed)
    made, scales = differentiated(g, steps, seed)
    got, want = li.interpret(made, given | scales), torch_gradients("gated", given, scales, False)
    near([got[n] for n in want], want.values(), 1e-11, (seed, sizes))


def test_second_derivatives(seed: int) -> None:
    """Of the gradient of the triangular system too: those of the loop over steps, which `remat` differentiates."""
    sizes, T = Sizes((2,), 8, 9), DELTA_ROWS + 5
    g = graph("gated", T, sizes)
    total = sum((li.sum(v * v) for v in g.outputs), li.constant(0.0, "f64"))
    first = li.Graph("g", g.params, {"loss": total})
    given = arrays(g, T, seed)
    found = []
    for segment in (None, T):
        made = li.grad(first, "loss", ["k"], remat=segment)
        slope = dict(zip(made.output_names, made.outputs, strict=True))["d_k"]
        again = li.Graph("h", made.params, {"size": li.sum(slope * slope)})
        found.append(li.grad(again, "size", ["k", "v", "b", "first"], remat=segment))
    one, other = (li.interpret(x, given) for x in found)
    assert not loops_over_steps(found[0])
    near(one.values(), other.values(), 1e-10, seed)


def test_remat_is_asked_for(seed: int) -> None:
    """Segments of steps, as for every loop; whoever asks for them gets them."""
    sizes, T = Sizes((2,), 8, 9), 70
    g = graph("gated", T, sizes)
    loss = li.Graph("g", g.params, {"loss": sum((li.sum(v * v) for v in g.outputs), li.constant(0.0, "f64"))})
    made, plain = li.grad(loss, "loss", ["k", "b"], remat=20), li.grad(loss, "loss", ["k", "b"])
    given = arrays(g, T, seed)
    near(li.interpret(made, given).values(), li.interpret(plain, given).values(), 1e-11, seed)


def saved(g: li.Graph) -> int:
    """The largest tensor of a graph, in numbers."""
    return max(int(np.prod(v.shape)) for n in g.nodes for v in n.values)


def test_a_training_step_keeps_no_state_of_a_step() -> None:
    T, sizes = 128, Sizes((2, 3), 16, 32)
    g = graph("gated", T, sizes, "f32")
    made = li.grad(li.Graph("g", g.params, {"loss": li.sum(g.outputs[1])}), "loss", list("qkvab"))
    assert saved(made) < T * 6 * 16 * 32 // 4


@pytest.mark.parametrize(("keys", "chunked"), [(tuned.LONG_KEYS, True), (tuned.LONG_KEYS - 1, False)])
def test_short_keys_go_by_steps(monkeypatch: pytest.MonkeyPatch, keys: int, chunked: bool) -> None:
    monkeypatch.undo()
    T, sizes = 128, Sizes((2,), keys, 32)
    g = graph("gated", T, sizes, "f32")
    made = li.grad(li.Graph("g", g.params, {"loss": li.sum(g.outputs[1])}), "loss", list("qkvab"))
    assert (saved(made) < T * 2 * keys * 32 // 4) is chunked


@pytest.mark.parametrize("dtype", ["f32", pytest.param("f64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("T", [70, pytest.param("T", marks=pytest.mark.slow)])
def test_compiled_gradients(T: Any, dtype: str, seed: int) -> None:
    g = graph("delta_net", T, Sizes((2, 3), 8, 11), dtype)
    made, scales = differentiated(g, 70, seed)
    given = arrays(g, 70, seed)
    want = torch_gradients("delta_net", {k: a.astype("f8") for k, a in given.items()}, scales, False)
    with li.compile(made) as exe:
        got = exe(given | {n: w.astype(given["k"].dtype) for n, w in scales.items()})
    near([got[n] for n in want], want.values(), 4e-5 if dtype == "f32" else 1e-12, seed)
