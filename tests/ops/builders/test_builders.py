"""Every builder that is a composition: its NumPy meaning and its gradient against PyTorch in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from builder_case import SPECIAL, Case
from builder_elementwise import ACTIVATIONS, CHOICES, MOVES
from builder_layers import LAYERS
from builder_reductions import ORDERS, PRODUCTS, REDUCTIONS, SPOTS
from device import need
from sample import Array, assert_close, dtype

import lstm_ir as li

CASES = [*ACTIVATIONS, *CHOICES, *MOVES, *REDUCTIONS, *ORDERS, *SPOTS, *PRODUCTS, *LAYERS]
PAIRS = [(c, k) for c in CASES for k in c.kinds]
SMOOTH = [(c, k) for c, k in PAIRS if c.smooth and li.DType(k).is_float]
# Of gradients, relative to 1 or the largest: every product of a 16-bit gradient is rounded to 16 bits.
GRADIENT = {"f16": 6e-3, "bf16": 5e-2, "f32": 1e-5, "f64": 1e-11}


def ids(pairs: list[tuple[Case, str]]) -> list[str]:
    return [f"{c.name} {k}" for c, k in pairs]


def close_gradients(got: Array, want: Array, kind: str, what: str) -> None:
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(got.astype("f8") / scale, want / scale, rtol=0, atol=GRADIENT[kind], err_msg=what)


@pytest.mark.parametrize(("case", "kind"), PAIRS, ids=ids(PAIRS))
def test_values(case: Case, kind: str, seed: int) -> None:
    need("torch")
    arrays = case.arrays(kind, seed)
    want, _ = case.expected(arrays)
    for named in (False, True):
        out = li.interpret(case.graph(kind, named), {f"x{i}": a for i, a in enumerate(arrays)})
        assert len(out) == len(want)
        for i, w in enumerate(want):
            assert_close(out[f"y{i}"], w, kind, case.kind, f"{case.name} {kind} named {named} y{i}, seed {seed}")


@pytest.mark.parametrize(("case", "kind"), SMOOTH, ids=ids(SMOOTH))
def test_gradients(case: Case, kind: str, seed: int) -> None:
    need("torch")
    arrays = case.arrays(kind, seed)
    given = {f"x{i}": a for i, a in enumerate(arrays)}
    values, _ = case.expected(arrays)
    for named in (False, True):
        g = case.differentiated(kind, named)
        cts = case.cotangents(g, {f"y{i}": v for i, v in enumerate(values)}, kind)
        _, want = case.expected(arrays, list(cts.values()))
        out = li.interpret(g, given | cts)
        for i, w in enumerate(want):
            close_gradients(out[f"d_x{i}"], w, kind, f"{case.name} {kind} named {named} d_x{i}, seed {seed}")


EDGES = [c for c in CASES if c.special]


@pytest.mark.parametrize("case", EDGES, ids=str)
def test_special_numbers(case: Case) -> None:
    """NaN, infinities and large numbers, forward as PyTorch has them; gradients of the finite ones are its own."""
    need("torch")
    for kind in (k for k in case.kinds if li.DType(k).is_float):
        x = np.array(SPECIAL).astype(dtype(kind))
        g = li.Graph("g", [v := li.input("x0", (len(SPECIAL),), kind)], {"y0": case.build(v)})
        with np.errstate(all="ignore"):
            (want,), _ = case.expected([x])
            got = li.interpret(g, x0=x)["y0"]
            assert_close(got, np.asarray(want), kind, case.kind, f"{case.name} {kind}")
            if not case.smooth:
                continue
            (_, (slope,)) = case.expected([x], [np.ones(len(SPECIAL))])
            wide = li.vjp(g, "y0", "x0")
            found = li.interpret(wide, x0=x, ct_y0=np.ones_like(x))["d_x0"]
        finite = np.isfinite(x.astype("f8"))
        close_gradients(found[finite], slope[finite], kind, f"{case.name} {kind}")
