"""`stateful=True`: models in parts beside onnxruntime's run of the whole; what looks ahead is refused by name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx_models as om
import onnx_streams
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]
LIMIT = 2e-5


@pytest.fixture(autouse=True)
def _libraries() -> None:
    for name in ("onnx", "onnx_ir", "onnxruntime"):
        need(name)


def first_state(program: li.Program, sizes: dict[str, int]) -> dict[str, Array]:
    """The start of every state at these sizes."""
    return {
        n: np.broadcast_to(s.initial.array, [d if isinstance(d, int) else sizes[str(d)] for d in s.type.shape])
        for n, s in program.state.items()
    }


def parts(rng: np.random.Generator, total: int) -> list[int]:
    """Numbers from 1 on whose sum is the total."""
    found: list[int] = []
    while total:
        found.append(int(rng.integers(1, min(total, 7) + 1)))
        total -= found[-1]
    return found


def by_meaning(program: li.Program, x: Array, cuts: list[int], time: int = 1) -> list[dict[str, Array]]:
    """The outputs of every call, the state fed back by hand."""
    state = first_state(program, {"B": x.shape[0]})
    found = []
    for part in np.split(x, np.cumsum(cuts)[:-1], time):
        out = li.interpret(program.entries["main"], {"x": part, **state})
        state = {n: out.pop(n) for n in state}
        found.append(out)
    return found


def near(got: Array, want: Array, what: Any) -> None:
    assert got.shape == want.shape, what
    worst = float(np.abs(got.astype("f8") - want).max(initial=0))
    assert worst <= LIMIT * max(1.0, float(np.abs(want).max(initial=0))), (what, worst)


@pytest.mark.parametrize("case", range(60))
def test_random_causal_models_in_parts(case: int, rng: np.random.Generator) -> None:
    c = onnx_streams.chain(rng, int(rng.integers(2, 7)))
    made = c.made()
    B, frames = int(rng.integers(1, 4)), c.unit * int(rng.integers(1, 16))
    x = rng.standard_normal((B, frames, c.first)).astype(np.float32)
    (want,) = om.run(made, {"x": x})
    try:
        program = li.from_onnx(made, stateful=True)
    except li.ModelError as e:
        assert re.search("nothing is kept|no layer, loop or window", str(e)), c.blocks
        assert not set(c.blocks) & {"layer", "shift", "recurrence"}, c.blocks
        return
    cuts = [c.unit * n for n in parts(rng, frames // c.unit)]
    got = np.concatenate([out["y"] for out in by_meaning(program, x, cuts)], 1)
    near(got, want, (c.blocks, cuts))


@pytest.mark.parametrize("case", range(60))
def test_what_looks_ahead_is_named_and_nothing_else(case: int, rng: np.random.Generator) -> None:
    c = onnx_streams.chain(rng, int(rng.integers(1, 5)), ahead=int(rng.integers(1, 4)))
    with pytest.raises(li.ModelError) as e:
        li.from_onnx(c.made(), stateful=True)
    named = re.findall(r"^  (\S+) \(", str(e.value), re.MULTILINE)
    assert sorted(named) == sorted(c.ahead), (c.blocks, str(e.value))


@pytest.mark.parametrize("case", range(3))
def test_compiled_in_parts(case: int, rng: np.random.Generator) -> None:
    while True:
        c = onnx_streams.chain(rng, 5)
        if "layer" in c.blocks and {"residual", "causal_conv"} & set(c.blocks):
            break
    made = c.made()
    x = rng.standard_normal((2, 12 * c.unit, c.first)).astype(np.float32)
    (want,) = om.run(made, {"x": x})
    with li.compile(li.from_onnx(made, stateful=True)) as exe:
        for _ in range(2):
            cuts = np.cumsum([c.unit * n for n in parts(rng, 12)])[:-1]
            got = [exe.entries["step"](x=part)["y"] for part in np.split(x, cuts, 1)]
            near(np.concatenate(got, 1), want, c.blocks)
            exe.entries["reset"]()
