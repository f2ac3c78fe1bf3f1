"""Matrix states by chunks: the same numbers and gradients as the loop over steps, as torch's and JAX's loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need
from matrix_cells import CELLS, LEFT, SHAPES, B, H, K, V, arrays, graph

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.carry_kinds import CarryKind, circles, loops_of
from lstm_ir.ops.primitive.tree import flatten
from lstm_ir.ops.scan.chunks import chunk_of
from lstm_ir.ops.scan.tuned import CHUNK_STEPS
from lstm_ir.passes.base import Notes
from lstm_ir.passes.chunk_states import ChunkStates
from lstm_ir.passes.pipeline import Pipeline
from lstm_ir.passes.pipelines import NAMED

EVERYWHERE = ChunkStates(on="all")
# Decays along an axis.
PAIRED = (
    "gated_linear_attention", "a_decay_for_each_column", "any_decay_of_keys", "a_scaled_read_of_decayed_columns"
)  # fmt: skip
NAMES = [n for n in CELLS if n != "shared_by_rows"]


def test_reads_of_a_matrix_stay_in_its_loop(seed: int) -> None:
    """A product of rows with a state is not taken out of the loop, for which all states would be kept."""
    for cell in (CELLS["gated_linear_attention"][0], LEFT["delta_rule"][0]):
        rows = [li.input(n, (20, *s)) for n, s in SHAPES.items()]
        g = li.Graph("g", rows, flatten(li.scan(cell, li.zeros((B, H, K, V)), tuple(rows))))
        made = Pipeline.parse("default").run(g, resolve("cpu").info).graph
        assert max(v.rank for x in loops_of(made) for v in x.ys) == 4
        with li.compile(g) as exe:
            given = arrays(g, 20, seed)
            near(exe(given), li.interpret(g, given), "f32", seed)


def chunks(g: li.Graph) -> li.Graph:
    notes = Notes()
    made = EVERYWHERE.run(g, notes)
    assert notes.fired
    assert not [
        c for x in loops_of(made) for c in circles(x) if c.kind is CarryKind.matrix and isinstance(x.length, int)
    ]
    assert EVERYWHERE.run(made, Notes()) is made
    return made


def near(got: Any, want: Any, dtype: str, what: object) -> None:
    """Within the rounding of sums: a matrix state's terms are added in another order."""
    assert set(got) == set(want)
    for n, w in want.items():
        assert got[n].shape == w.shape
        scale = 1 + (np.max(np.abs(w)) if w.size else 0)
        bound = (1e-13 if dtype == "f64" else 4e-5) * scale
        np.testing.assert_allclose(got[n], w, rtol=0, atol=bound, err_msg=f"{n} {what}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("T", "reverse"), [(70, False), (129, True)])
def test_the_same_numbers(name: str, T: int, reverse: bool, seed: int) -> None:
    g = graph(name, T, reverse=reverse)
    given = arrays(g, T, seed)
    near(li.interpret(chunks(g), given), li.interpret(g, given), "f64", seed)


@pytest.mark.parametrize("T", [0, 1, 5, 64, 150])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_named_number_of_steps(T: int, reverse: bool, seed: int) -> None:
    """No steps, fewer than a chunk has, whole chunks alone, and steps left over."""
    g = graph("mamba2", "T", reverse=reverse)
    given = arrays(g, T, seed)
    near(li.interpret(chunks(g), given), li.interpret(g, given), "f64", seed)


@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_and_a_first_state(reverse: bool, seed: int) -> None:
    g = graph("retnet", 70, reverse=reverse, lengths=True, first=True)
    given = arrays(g, 70, seed)
    for b, n in enumerate(given["lengths"]):  # padding may be anything
        for row in "qkv":
            given[row][n:, b] = np.nan
    want = li.interpret(g, given)
    assert all(np.isfinite(a).all() for a in want.values())
    near(li.interpret(chunks(g), given), want, "f64", seed)


def test_one_state_without_leading_axes(seed: int) -> None:
    g = graph("shared_by_rows", 70)
    given = arrays(g, 70, seed)
    near(li.interpret(chunks(g), given), li.interpret(g, given), "f64", seed)


@pytest.mark.parametrize(("name", "gate"), [("bonus", "f"), ("any_decay_of_keys", "q")])
@pytest.mark.parametrize("decay", [0.0, 1.0, -1.0, 1e-30, -0.5, "mixed"])
def test_extreme_decays_in_f32(decay: Any, name: str, gate: str, seed: int) -> None:
    """Nothing is divided and no logarithm is taken: zeros, signs and tiny numbers come out as in the loop."""
    T = 200
    g = graph(name, T, "f32")
    given = arrays(g, T, seed)
    rng = np.random.default_rng(seed)
    shape = given[gate].shape
    some = rng.choice([0.0, 1.0, -1.0, 1e-30, 1e-20, 0.9], shape) if decay == "mixed" else np.full(shape, decay)
    given[gate] = some.astype(np.float32)
    exact = li.interpret(graph(name, T, "f64"), {n: a.astype("f8") for n, a in given.items()})
    near(li.interpret(chunks(g), given), exact, "f32", (decay, seed))


@pytest.mark.slow
def test_many_steps(seed: int) -> None:
    T = 4000
    g = graph("mlstm", T, "f32")
    given = arrays(g, T, seed, 2.0)
    exact = li.interpret(graph("mlstm", T), {n: a.astype("f8") for n, a in given.items()})
    near(li.interpret(chunks(g), given), exact, "f32", seed)


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_a_loop(name: str) -> None:
    f, why = LEFT[name]
    rows = [li.input(n, (70, *s)) for n, s in SHAPES.items()]
    found = flatten(li.scan(f, li.zeros((B, H, K, V)), tuple(rows)))
    g = li.Graph(name, rows, found)
    notes = Notes()
    assert EVERYWHERE.run(g, notes) is g
    assert [m.reason for m in notes.misses] == [f"{why} stays a loop over steps"]


def test_one_of_two_states_by_chunks(seed: int) -> None:
    """A delta rule with decays of keys and a matrix that is too small stay loops, and the report says why."""

    def cell(c: Any, x: Any) -> Any:
        (small, s, r), (q, k, v, _, f) = c, x
        small = li.sigmoid(f)[..., None, None] * small + k[..., :3, None] * v[..., None, :4]
        s = li.sigmoid(f)[..., None, None] * s + k[..., :, None] * v[..., None, :]
        r = li.tanh(q)[..., :, None] * r
        r = r + k[..., :, None] * (v - li.einsum("bhk,bhkv->bhv", k, r))[..., None, :]
        rows = li.einsum("bhk,bhkv->bhv", q, s), li.einsum("bhk,bhkv->bhv", q, r)
        return (small, s, r), (*rows, li.einsum("bhk,bhkv->bhv", q[..., :3], small))

    rows = [li.input(n, (70, *s), "f64") for n, s in SHAPES.items()]
    first = tuple(li.zeros((B, H, *s), "f64") for s in ((3, 4), (K, V), (K, V)))
    g = li.Graph("g", rows, flatten(li.scan(cell, first, tuple(rows))))
    notes = Notes()
    made = EVERYWHERE.run(g, notes)
    assert len(notes.fired) == 1
    assert {m.reason.removesuffix(" stays a loop over steps") for m in notes.misses} == {
        "a delta rule with a decay for each row or column",
        "a matrix state of 3 x 4",
    }
    assert len(notes.misses) == 2
    given = arrays(g, 70, seed, 0.3)
    near(li.interpret(made, given), li.interpret(g, given), "f64", seed)


def test_few_steps_counts_and_other_targets_stay_loops() -> None:
    for g in (graph("retnet", 7), graph("retnet", 1)):
        assert EVERYWHERE.run(g, Notes()) is g
    g = graph("retnet", 70)
    assert ChunkStates().run(g, Notes(), resolve("vulkan:rdna3").info) is g
    assert ChunkStates().run(g, Notes(), resolve("cpu").info) is g  # by a kernel
    assert ChunkStates(kernels="no").run(g, Notes(), resolve("cpu").info) is not g
    rows = [li.input(n, (70, *s)) for n, s in SHAPES.items()]
    n = li.input("n", (), "i32")
    found = flatten(li.scan(CELLS["retnet"][0], li.zeros((B, H, K, V)), tuple(rows), count=n))
    notes = Notes()
    g = li.Graph("g", [*rows, n], found)
    assert EVERYWHERE.run(g, notes) is g
    assert "with `count`" in notes.misses[0].reason


@pytest.mark.parametrize("T", [1, 8, 63, 64, 65, 128, 129, 200, 1000])
def test_chunks_leave_few_steps_over(T: int) -> None:
    chunk = chunk_of(T)
    count = -(-T // chunk)
    assert chunk <= CHUNK_STEPS
    assert 0 <= count * chunk - T < count


def gradients(name: str, T: Any, dtype: str, of_steps: bool, monkeypatch: pytest.MonkeyPatch) -> li.Graph:
    """Of the sum of the squares of all results; of_steps: by the loop over steps."""
    from lstm_ir.ops.scan import grad

    g = graph(name, T, dtype)
    total = li.constant(0, dtype)
    for v in g.outputs:
        total = total + li.sum(v * v)
    with monkeypatch.context() as patch:
        if of_steps:
            patch.setattr(grad, "chunkwise_vjp", lambda *_: None)
        return li.grad(li.Graph("g", g.params, {"loss": total}), "loss", list(SHAPES), missing="zeros")


@pytest.mark.parametrize("name", [n for n in NAMES if n not in PAIRED])
def test_gradients(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    T = 40
    by_chunks = gradients(name, T, "f64", False, monkeypatch)
    by_steps = gradients(name, T, "f64", True, monkeypatch)
    given = arrays(by_steps, T, seed)
    near(li.interpret(by_chunks, given), li.interpret(by_steps, given), "f64", seed)
    assert not any(c.kind is CarryKind.matrix for x in loops_of(by_chunks) for c in circles(x))


@pytest.mark.parametrize("T", [0, 3, 70])
def test_gradients_of_a_named_number_of_steps(T: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_chunks = gradients("mamba2", "T", "f64", False, monkeypatch)
    by_steps = gradients("mamba2", "T", "f64", True, monkeypatch)
    given = arrays(by_steps, T, seed)
    near(li.interpret(by_chunks, given), li.interpret(by_steps, given), "f64", seed)


def test_gradients_at_decays_of_zero(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    T = 40
    by_chunks = gradients("bonus", T, "f64", False, monkeypatch)
    by_steps = gradients("bonus", T, "f64", True, monkeypatch)
    given = arrays(by_steps, T, seed)
    given["f"] = np.random.default_rng(seed).choice([0.0, 1.0, -1.0, 1e-30], given["f"].shape)
    near(li.interpret(by_chunks, given), li.interpret(by_steps, given), "f64", seed)


@pytest.mark.parametrize("name", PAIRED)
def test_decays_along_an_axis_are_differentiated_by_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = gradients(name, 40, "f64", False, monkeypatch)
    assert any(c.kind is CarryKind.matrix for x in loops_of(made) for c in circles(x))


def test_torch_gives_the_same(seed: int) -> None:
    """mLSTM's equations in torch, values and gradients."""
    need("torch")
    import torch

    T = 30
    g = graph("mlstm", T)
    given = arrays(g, T, seed)
    loss = li.sum(g.outputs[3] * g.outputs[3])
    made = li.grad(li.Graph("g", g.params, {"y": g.outputs[3], "loss": loss}), "loss", list(SHAPES))
    got = li.interpret(made, given)
    q, k, v, i, f = t = [torch.tensor(given[n], requires_grad=True) for n in SHAPES]
    s, n, m = torch.zeros(B, H, K, V).double(), torch.zeros(B, H, K).double(), torch.zeros(B, H).double()
    ys = []
    for at in range(T):
        forget = torch.nn.functional.logsigmoid(f[at])
        new = torch.maximum(forget + m, i[at])
        keep, take = torch.exp(forget + m - new), torch.exp(i[at] - new)
        s = keep[..., None, None] * s + take[..., None, None] * torch.einsum("bhk,bhv->bhkv", k[at], v[at])
        n, m = keep[..., None] * n + take[..., None] * k[at], new
        norm = torch.maximum((n * q[at]).sum(-1).abs(), torch.exp(-m))
        ys.append(torch.einsum("bhk,bhkv->bhv", q[at], s) / norm[..., None])
    total = (torch.stack(ys) ** 2).sum()
    total.backward()
    np.testing.assert_allclose(got["loss"], total.detach().numpy(), rtol=1e-10)
    for name, x in zip(SHAPES, t, strict=True):
        np.testing.assert_allclose(got[f"d_{name}"], x.grad.numpy(), rtol=1e-8, atol=1e-10, err_msg=f"{name} {seed}")


@pytest.mark.parametrize("name", ["mamba2", "mlstm"])
@pytest.mark.parametrize("T", [70, "T"])
def test_compiled(name: str, T: Any, seed: int) -> None:
    g = graph(name, T, "f32")
    chosen = NAMED["default"].replace("chunk-states", "chunk-states{on=all}")
    with li.compile(g, options={"pipeline": chosen}) as exe:
        steps = next(iter(exe.report.steps.values()))
        assert any(s.name == "chunk-states" and s.changed for s in steps)
        for n in (70,) if T == 70 else (0, 1, 64, 70, 150):
            given = arrays(g, n, seed)
            near(exe(given), li.interpret(g, given), "f32", (n, seed))


@pytest.mark.slow
@pytest.mark.parametrize("T", [70, "T"])
def test_compiled_gradients(T: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = gradients("mlstm", T, "f32", False, monkeypatch)
    exact = gradients("mlstm", T, "f64", True, monkeypatch)
    with li.compile(made) as exe:
        for n in (70,) if T == 70 else (3, 130):
            given = arrays(made, n, seed)
            want = li.interpret(exact, {k: a.astype("f8") for k, a in given.items()})
            near(exe(given), want, "f32", (n, seed))
