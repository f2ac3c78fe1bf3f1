"""Inputs' buffers are written again by the next call: state that is an input, or shares memory with an output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from device import compiled

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

pytestmark = [pytest.mark.slow_on("vulkan"), pytest.mark.together]
W, STEPS = 5, 4
ON = ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)]
Array = np.ndarray[Any, Any]


def delay() -> li.Program:
    """State that is the input before, and the one before that; outputs that are both, and the input."""
    x, a, b = (li.input(n, ("B", W)) for n in "xab")
    graph = li.Graph("delay", [x, a, b], {"x0": li.reshape(x, (W, "B")), "x1": a, "x2": b, "a1": x, "b1": a})
    return li.stateful(graph, {"a": "a1", "b": "b1"})


def doubled() -> li.Program:
    """State that is the input doubled `n` times: whether it is the input itself, the call's data say."""
    x, last, n = li.input("x", ("B", W)), li.input("last", ("B", W)), li.input("n", (), "i32")
    carry, _ = li.scan(lambda c, _: (c + c, None), x, length=STEPS, count=n)
    graph = li.Graph("doubled", [x, last, n], {"y": last + x, "next": carry})
    return li.stateful(graph, {"last": "next"})


@pytest.fixture(scope="module", params=ON)
def delays(request: pytest.FixtureRequest) -> Iterator[Executable]:
    yield from compiled(delay(), request.param)


@pytest.fixture(scope="module", params=ON)
def doubles(request: pytest.FixtureRequest) -> Iterator[Executable]:
    yield from compiled(doubled(), request.param)


@pytest.mark.parametrize("rows", [1, 3, 700], ids=str)  # 700 rows are lent where a module has no state
def test_state_that_is_an_input(delays: Executable, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    xs = [rng.standard_normal((rows, W)).astype(np.float32) for _ in range(7)]
    zero = np.zeros((rows, W), np.float32)
    with delays.session() as s, delays.session() as other:
        found = []
        for x in xs:
            found.append(s.entries["step"](x=x))
            other.entries["step"](x=-x)
        for i, got in enumerate(found):  # after all calls: what was given stays as it was
            x0, x1, x2 = (xs[k] if k >= 0 else zero for k in (i, i - 1, i - 2))
            np.testing.assert_array_equal(got["x0"], x0.reshape(W, rows), err_msg=f"seed {seed}")
            np.testing.assert_array_equal(got["x1"], x1, err_msg=f"seed {seed}")
            np.testing.assert_array_equal(got["x2"], x2, err_msg=f"seed {seed}")
        np.testing.assert_array_equal(other.state["a"], -xs[-1], err_msg=f"seed {seed}")


def test_what_a_caller_writes_into_its_input_is_not_the_state(delays: Executable, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((2, W)).astype(np.float32)
    kept = x.copy()
    with delays.session() as s:
        s.entries["step"](x=x)
        x[...] = 9
        np.testing.assert_array_equal(s.entries["step"](x=x)["x1"], kept, err_msg=f"seed {seed}")


def test_state_that_is_an_input_in_some_calls(doubles: Executable, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = [2, 0, 0, 3, 0, 1, 4, 0]
    with doubles.session() as s:
        last = np.zeros((3, W), np.float32)
        for n in counts:
            x = rng.standard_normal((3, W)).astype(np.float32)
            y = s.entries["step"](x=x, n=np.int32(n))["y"]
            np.testing.assert_array_equal(y, last + x, err_msg=f"seed {seed}")
            last = x * np.float32(2**n)


def test_sizes_are_looked_at_again_where_they_change(delays: Executable, seed: int) -> None:
    """State fits the sizes of the call that wrote it: another call's are refused, and then it goes on."""
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal((r, W)).astype(np.float32) for r in (2, 3))
    with delays.session() as s:
        step = s.entries["step"]
        for _ in range(2):
            step(x=x)
            with pytest.raises(li.CallError, match=r"state 'a' has 2 on axis 0, this call has B = 3"):
                step(x=y)
        np.testing.assert_array_equal(step(x=x)["x1"], x, err_msg=f"seed {seed}")
        s.reset()
        np.testing.assert_array_equal(step(x=y)["x1"], np.zeros_like(y), err_msg=f"seed {seed}")
        with pytest.raises(li.CallError, match=r"state 'a' has 3 on axis 0, this call has B = 2"):
            step(x=x)
        s.state["a"] = s.state["b"] = x
        with pytest.raises(li.CallError, match=r"this call has B = 3"):
            step(x=y)
        np.testing.assert_array_equal(step(x=-x)["x1"], x, err_msg=f"seed {seed}")


def test_a_closed_session_holds_no_buffers(delays: Executable) -> None:
    with delays.session() as s:
        step = s.entries["step"]
        step(x=np.zeros((3, W), np.float32))
        assert step.plans
    assert not step.plans


def test_an_unknown_name_is_absent(delays: Executable) -> None:
    """As of any mapping; to read one is an error that lists the names."""
    session = delays.session()
    (name, *_) = session.state
    assert name in session.state
    assert "nothing" not in session.state
    assert session.state.get("nothing") is None
    assert session.state.get("nothing", 3) == 3
    session.state[name] = x = np.ones((3, W), np.float32)
    assert (session.state.get(name) == x).all()
    with pytest.raises(li.CallError, match="nothing"):
        session.state["nothing"]
