"""An entry as a function of its state: what the program says, and the session's own state left alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.errors import CallError, DeviceError

I, H = 3, 5
Array = np.ndarray[Any, Any]


def graph() -> li.Graph:
    x, h = li.input("x", ("B", I)), li.input("h", ("B", H))
    w = li.weight("w", np.random.default_rng(2).standard_normal((I, H)).astype(np.float32))
    new = li.tanh(x @ w + h)
    return li.Graph("cell", [x, h], {"y": li.sum(new, 1), "h_n": new})


@pytest.fixture(scope="module")
def exe() -> Iterator[Any]:
    with li.compile(li.stateful(graph(), {"h": "h_n"}, {"h": np.full((1, H), 0.25, np.float32)})) as made:
        yield made


def test_it_is_what_the_program_says(exe: Any, rng: np.random.Generator) -> None:
    x, h = rng.standard_normal((4, I), np.float32), rng.standard_normal((4, H), np.float32)
    before = exe.entries["step"](x=x[:2])["y"]
    kept = exe.state["h"]
    pure = exe.entries["step"].pure()
    assert [p.name for p in pure.entry.inputs] == ["x", "state h"]
    assert [p.name for p in pure.entry.outputs] == ["y", "state h"]
    want = li.interpret(graph(), x=x, h=h)
    for _ in range(2):
        found = pure({"x": x, "state h": h})
        np.testing.assert_allclose(found["y"], want["y"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(found["state h"], want["h_n"], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(exe.state["h"], kept)
    exe.reset()
    np.testing.assert_array_equal(exe.entries["step"](x=x[:2])["y"], before)
    np.testing.assert_array_equal(pure.start("h", {"B": 3}), np.full((3, H), 0.25, np.float32))


def test_results_stay_when_inputs_change(exe: Any) -> None:
    """New state is memory of its own, also where a program hands its state on as it is."""
    same = li.input("h", ("B", H))
    program = li.stateful(li.Graph("same", [same], {"h_n": same}), {"h": "h_n"}).only("step")
    with li.compile(program) as made:
        pure, h = made.entries["step"].pure(), np.ones((2, H), np.float32)
        found = pure({"state h": h})["state h"]
        h[:] = 7
        np.testing.assert_array_equal(found, np.ones((2, H), np.float32))


def test_it_takes_keywords_as_calls_do(exe: Any, rng: np.random.Generator) -> None:
    pure = exe.entries["step"].pure()
    x, h = rng.standard_normal((4, I), np.float32), rng.standard_normal((4, H), np.float32)
    np.testing.assert_array_equal(pure({"state h": h}, x=x)["y"], pure({"x": x, "state h": h})["y"])


def test_what_does_not_fit_is_refused(exe: Any) -> None:
    pure = exe.entries["step"].pure()
    x, h = np.ones((2, I), np.float32), np.ones((3, H), np.float32)
    with pytest.raises(CallError, match="two sizes for B: 2 from x"):
        pure({"x": x, "state h": h})
    with pytest.raises(CallError, match="missing input state h"):
        pure({"x": x})
    with pytest.raises(CallError, match="state h: expected f32"):
        pure({"x": x, "state h": h[:2].astype(np.float64)})
    with pytest.raises(CallError, match="step: takes arrays by name, got ndarray; write"):
        pure(x)
    with pytest.raises(CallError, match="step: input x is given twice"):
        pure({"x": x, "state h": h[:2]}, x=x)
    with pytest.raises(CallError, match="reset: it starts state again"):
        exe.entries["reset"].pure()


def test_entries_that_look_at_their_numbers_are_refused() -> None:
    x = li.input("x", ("B", I))
    y = li.dense(x, li.weight("w", np.ones((1, I), np.float32)))
    learner = li.train_step(li.Graph("g", [x], {"loss": li.mean(y * y)}), loss="loss", optimizer=li.sgd(0.1))
    with li.compile(learner.only("train")) as made, pytest.raises(CallError, match="train: it refuses numbers"):
        made.entries["train"].pure()


def test_a_closed_executable_is_refused() -> None:
    made = li.compile(li.stateful(graph(), {"h": "h_n"}).only("step"))
    pure, step = made.entries["step"].pure(), made.entries["step"]
    made.close()
    with pytest.raises(DeviceError, match="the executable is closed"):
        pure({"x": np.ones((1, I), np.float32), "state h": np.ones((1, H), np.float32)})
    with pytest.raises(DeviceError, match="the executable is closed"):
        step.pure()


def test_the_buffers_of_its_calls_go_with_the_executable() -> None:
    """Though the function is still held, as `li.Sessions` hold it."""
    made = li.compile(li.stateful(graph(), {"h": "h_n"}).only("step"))
    step = made.entries["step"]
    pure = step.pure()
    pure({"x": np.ones((1, I), np.float32), "state h": np.ones((1, H), np.float32)})
    slots = [plan.slots for plan in step.pure_plans.values()]
    assert slots[0] is not None
    seen = weakref.ref(slots[0].block)
    del slots
    assert seen() is not None
    made.close()
    gc.collect()
    assert seen() is None
    del pure
