"""State in files: of entries with sizes of their own, and of a program that keeps less than the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li


def sums(*kept: str) -> li.Program:
    """For each name an entry that adds x [B, 2] to a state of that name, [B, 2]."""
    x = li.input("x", ("B", 2))
    entries, states, binding = {}, {}, {}
    for n in kept:
        held = li.input("held", ("B", 2))
        entries[f"add_{n}"] = li.Graph(n, [x, held], {"sum": x + held})
        states[n] = li.State(n, np.zeros((1, 2), "f4"), held.type)
        binding[f"add_{n}"] = ({"held": n}, {"sum": n})
    return li.Program("sums", entries, states, binding)


@pytest.fixture(scope="module")
def exe() -> Any:
    with li.compile(sums("a", "b")) as made:
        yield made


def test_entries_keep_sizes_of_their_own(exe: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    with exe.session() as one, exe.session() as two:
        one.entries["add_a"](x=np.ones((2, 2), "f4"))
        one.entries["add_b"](x=np.full((3, 2), 7, "f4"))
        one.save_state(path)
        two.load_state(path)
        np.testing.assert_array_equal(two.state["a"], np.ones((2, 2)))
        np.testing.assert_array_equal(two.state["b"], np.full((3, 2), 7))


def test_a_program_with_less_state_takes_its_part(exe: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    with exe.session() as one, li.compile(sums("b", "c")) as less:
        one.state["a"], one.state["b"] = np.ones((2, 2), "f4"), np.full((3, 2), 7, "f4")
        one.save_state(path)
        less.state["c"] = np.full((4, 2), 5, "f4")
        with pytest.raises(
            li.PackageError, match=r"no state 'c'; load_state\(path, strict=False\) takes what both have"
        ):
            less.load_state(path)
        less.load_state(path, strict=False)
        np.testing.assert_array_equal(less.state["b"], np.full((3, 2), 7))
        np.testing.assert_array_equal(less.state["c"], np.full((4, 2), 5))
        word: Any = "no"
        with pytest.raises(li.CallError, match="strict is 'no'; expected True or False"):
            less.load_state(path, strict=word)


def test_a_file_without_any_of_the_state_is_refused(exe: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    with exe.session() as one, li.compile(sums("c")) as other:
        one.state["a"] = one.state["b"] = np.ones((2, 2), "f4")
        one.save_state(path)
        with pytest.raises(li.PackageError, match="it holds a, b, none of the state here: c"):
            other.load_state(path, strict=False)


def test_messages_say_how_state_starts(exe: Any, tmp_path: Path) -> None:
    with exe.session() as one:
        with pytest.raises(
            li.CallError, match=r"state 'a' is f32\[B,2\]: B is known .* it is set: state\['a'\] = array"
        ):
            one.save_state(tmp_path / "s.safetensors")
        one.entries["add_a"](x=np.ones((2, 2), "f4"))
        with pytest.raises(
            li.CallError, match=r"state 'a' has 2 on axis 0, this call has B = 3; reset\('a'\) starts it"
        ):
            one.entries["add_a"](x=np.ones((3, 2), "f4"))


def test_another_session_is_given_what_was_trained() -> None:
    w = np.array([1.0, 2.0], "f4")
    x = li.input("x", ("B", 2))
    y = x * li.weight("w", w)
    graph = li.Graph("g", [x], {"loss": li.mean(y * y), "y": y})
    with li.compile(li.train_step(graph, "loss", li.sgd(0.1))) as exe:
        a = np.ones((1, 2), "f4")
        exe.entries["train"](x=a)
        with exe.session() as client:
            np.testing.assert_array_equal(client.entries["infer"](x=a)["y"][0], w)
            client.state.update(exe.state)
            np.testing.assert_allclose(client.entries["infer"](x=a)["y"][0], w - 0.1 * w, rtol=1e-6)
