"""Weights that a call is given are packed by a kernel; those of the module by IREE, when it loads.

Both feed the same loop: results must be equal in every bit.
"""

from __future__ import annotations

import itertools
import platform
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.kernels.body.atoms import Matrix
from lstm_ir.backends.kernels.cpu import dispatch, packing_kernel
from lstm_ir.ir.interpret import interpret

# T, B, I, H: fewer columns than a vector, and k; whole vectors; ragged ones, of which some are empty
SIZES = ((3, 5, 1, 2), (4, 2, 3, 20), (5, 9, 64, 32), (6, 4, 37, 50), (2, 7, 130, 72))
KINDS: dict[str, Any] = {"f32": np.float32, "f64": np.float64}


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each packing was done by a kernel."""
    done: list[bool] = []
    original = packing_kernel.pack_given

    def counted(*a: Any) -> Any:
        out = original(*a)
        done.append(out is not None)
        return out

    monkeypatch.setattr(dispatch, "pack_given", counted)
    return done


def _arrays(rng: np.random.Generator, cell: str, sizes: tuple[int, ...], directions: int, dtype: str) -> dict[str, Any]:
    T, B, I, H = sizes
    rows = (4 if cell == "lstm" else 3) * H
    shapes = {"x": (T, B, I), "w": (directions, rows, I), "r": (directions, rows, H)}
    return {n: (0.4 * rng.standard_normal(s)).astype(KINDS[dtype]) for n, s in shapes.items()}


def _model(cell: str, i: int, arrays: dict[str, Any], dtype: str, given: bool) -> li.Graph:
    direction = "bidirectional" if len(arrays["w"]) == 2 else "forward"
    x = li.input("x", arrays["x"].shape, dtype)
    weights = [li.input(n, arrays[n].shape, dtype) if given else li.weight(f"{n}{i}", arrays[n]) for n in "wr"]
    out = getattr(li, cell)(x, *weights, direction=direction)
    loss = li.sum(out[0] * out[0])
    g = li.Graph("m", [x, *(weights if given else [])], {"loss": loss, "y": out[0]})
    return li.grad(g, "loss", ["x"])


QUICK = {("cpu", "f32", "lstm"), ("cpu:x86-64-v3", "f64", "lstm")}
CASES = [
    pytest.param(*case, marks=() if case[:3] in QUICK else pytest.mark.slow, id="-".join(case[:3]))
    for case in itertools.product(("cpu", "cpu:x86-64-v3", "cpu:x86-64"), ("f32", "f64"), ("lstm", "gru"))
]


@pytest.mark.parametrize(("target", "dtype", "cell"), CASES)
def test_packed_as_by_iree(target: str, dtype: str, cell: str, packed: list[bool], rng: np.random.Generator) -> None:
    directions = 1 if cell == "lstm" else 2
    if target != "cpu" and platform.machine() != "x86_64":
        pytest.skip(f"{target}: this processor is {platform.machine()}")
    arrays = [_arrays(rng, cell, s, directions, dtype) for s in SIZES]
    programs = [
        li.Program("m", {f"e{i}": _model(cell, i, a, dtype, given) for i, a in enumerate(arrays)})
        for given in (True, False)
    ]
    taken: list[list[bool]] = []
    exes = []
    for p in programs:
        packed.clear()
        exes.append(li.compile(p, target))
        taken.append(list(packed))
    assert all(taken[0])
    assert not any(taken[1])
    assert len(taken[0]) == len(taken[1]) >= 2 * len(SIZES)
    for i, a in enumerate(arrays):
        got = exes[0].entries[f"e{i}"](a)
        want = exes[1].entries[f"e{i}"](x=a["x"])
        exact = interpret(programs[1].entries[f"e{i}"], {"x": a["x"]})
        eps = float(np.finfo(KINDS[dtype]).eps)
        for name, v in want.items():
            assert got[name].tobytes() == v.tobytes(), (name, SIZES[i])
            limit = 200 * eps * max(1.0, float(np.abs(exact[name]).max()))
            np.testing.assert_allclose(got[name], exact[name], rtol=0, atol=limit, err_msg=name)


def test_gates_that_lie_elsewhere_are_left_to_iree() -> None:
    """In another tensor, or along the other axis; gates of one tensor in any order are not."""
    a, b = li.input("a", (2, 60, 7)), li.input("b", (2, 60, 7))
    first = Matrix(a, (1, None, None), 2, 1, 3, 20)
    others = {
        "order": replace(first, col_start=0),
        "tensor": replace(first, value=b),
        "axes": replace(first, k_axis=1, col_axis=2),
    }
    found = {n: packing_kernel._piece([first, m], 4) for n, m in others.items()}
    assert found["order"] == packing_kernel.MatrixColumns(a, (420 + 140 + 3, 420 + 3), 7, False, 4)
    assert found["tensor"] is found["axes"] is None


def test_many_workers_share_few_vectors(rng: np.random.Generator) -> None:
    """More workers than there are vectors of columns, in a process of its own."""
    import subprocess
    import sys

    code = """
import numpy as np, lstm_ir as li
li.set_threads(7)
rng = np.random.default_rng(5)
w = [rng.standard_normal(s).astype(np.float32) for s in ((80, 33), (80, 20))]
x = li.input("x", (6, 4, 33))
given = [li.input(f"w{i}", a.shape) for i, a in enumerate(w)]
held = [li.weight(f"w{i}", a) for i, a in enumerate(w)]
a = rng.standard_normal((6, 4, 33)).astype(np.float32)
one = li.compile(li.Graph("g", [x, *given], {"y": li.lstm(x, *given)[0]}), "cpu", device="local-task")
two = li.compile(li.Graph("g", [x], {"y": li.lstm(x, *held)[0]}), "cpu", device="local-task")
for _ in range(50):
    assert (one(x=a, w0=w[0], w1=w[1])["y"] == two(x=a)["y"]).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("brought", ["", "w", "r", "wrb"])
def test_variants_of_weights_that_a_call_brings_and_others(
    brought: str, narrow: bool, rng: np.random.Generator
) -> None:
    """What is made of the first kind is made by the variant that the call takes, of the second kind at load."""
    shapes, values = {"w": (80, 7), "r": (80, 20), "b": (80,)}, {}
    dtype = "f16" if narrow else "f32"
    for n, s in shapes.items():
        a = (0.3 * rng.standard_normal(s)).astype(li.DType(dtype).numpy)
        values[n] = li.input(n, s, dtype) if n in brought else li.weight(n, a)
    x, lengths = li.input("x", ("T", "B", 7)), li.input("lengths", ("B",), "i32")
    y = li.lstm(x, *(li.convert(v, "f32") for v in values.values()), lengths=lengths).y
    params = [x, lengths, *(v for n, v in values.items() if n in brought)]
    graph = li.Graph("both", params, {"y": y})
    exe = li.compile(graph)
    for rows in (1, 2, 3, 9):  # below three rows another variant
        call = {"x": rng.standard_normal((6, rows, 7)).astype(np.float32)}
        call["lengths"] = rng.integers(0, 7, rows).astype(np.int32)
        call |= {n: (0.3 * rng.standard_normal(shapes[n])).astype(li.DType(dtype).numpy) for n in brought}
        np.testing.assert_allclose(exe(call)["y"], li.interpret(graph, call)["y"], rtol=2e-5, atol=2e-5)
