"""Gradients of loops whose states outgrow the caches: segments are chosen without being asked for, and are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ops.scan import large_states

T, B, H, N = 23, 2, 6, 8
NAMES = ["u", "dt", "c", "a"]


def scanned(steps: Any = T, product: bool = False, memory: int | None = None, **options: Any) -> li.Graph:
    """The gradient of a selective scan with N states for each of H channels."""
    u, dt = li.input("u", (steps, B, H)), li.input("dt", (steps, B, H))
    c, a = li.input("c", (steps, B, N)), li.input("a", (H, N))

    def cell(s: li.Value, row: Any) -> tuple[li.Value, li.Value]:
        u, dt, c = row
        s = li.exp(-dt[..., None] * li.exp(a)) * s + (dt * u)[..., None]
        y = li.einsum("bhn,bn->bh", s, c) if product else li.sum(s * c[:, None], 2)
        return s, li.tanh(y)

    last, y = li.scan(cell, li.zeros((B, H, N)), (u, dt, c), **options)
    loss = li.sum(y * y) + li.sum(li.sin(last))
    return li.grad(li.Graph("g", [u, dt, c, a], {"loss": loss}), "loss", NAMES, memory=memory)


def given(rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    shapes = {"u": (T, B, H), "dt": (T, B, H), "c": (T, B, N), "a": (H, N)}
    return {k: np.abs(rng.normal(size=s)).astype("f4") for k, s in shapes.items()}


def keeps_all_states(g: li.Graph) -> bool:
    return any(v.rank == 4 and str(v.shape[0]) in (str(T), "T") for n in g.nodes for v in n.values)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of 20 steps outgrow the caches, four of them fit."""
    step = 4 * B * H * N
    monkeypatch.setattr(large_states, "SPILLED_BYTES", 20 * step)
    monkeypatch.setattr(large_states, "SEGMENT_BYTES", 4 * step)
    monkeypatch.setattr(large_states, "STATES_BY_ROWS", 1)


@pytest.mark.parametrize("reverse", [False, True])
def test_segments_are_right(reverse: bool, small: None, rng: np.random.Generator) -> None:
    arrays = given(rng)
    cut = scanned(reverse=reverse)
    assert not keeps_all_states(cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_states, "SPILLED_BYTES", 1 << 60)
        whole = scanned(reverse=reverse)
    assert keeps_all_states(whole)
    want = li.interpret(whole, arrays)
    for got in (li.interpret(cut, arrays), li.compile(cut)(arrays)):
        for name, a in want.items():
            np.testing.assert_allclose(got[name], a, rtol=2e-5, atol=2e-5, err_msg=name)


def test_who_keeps_all(small: None) -> None:
    """Few steps, steps of a named number, a count, and a product, which costs more to make again."""
    assert not keeps_all_states(scanned())
    assert keeps_all_states(scanned("T"))
    assert keeps_all_states(scanned(product=True))
    assert keeps_all_states(scanned(count=T - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_states, "STATES_BY_ROWS", 100)
        assert keeps_all_states(scanned())


def test_with_a_limit_of_memory(small: None, rng: np.random.Generator) -> None:
    """What segments save is what is counted: a limit that all states do not fit takes them as they are."""
    arrays, all_states = given(rng), 4 * T * B * H * N
    want = li.interpret(scanned(), arrays)
    for limit in (1 << 30, all_states, all_states * 2 // 3):
        g = scanned(memory=limit)
        assert not keeps_all_states(g)
        for name, a in li.interpret(g, arrays).items():
            np.testing.assert_allclose(a, want[name], rtol=2e-5, atol=2e-5, err_msg=f"{name} {limit}")
    with pytest.raises(li.GradientError, match="the loops save"):
        scanned(memory=all_states // 100)
