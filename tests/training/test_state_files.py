"""State in files: of entries with sizes of their own, and of a program that keeps less than the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run.held_state import HeldState


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


def test_state_that_is_given_is_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread trains between two reads: a step of one moment would come with the weight of another."""
    x = li.input("x", ("B", 2))
    y = x * li.weight("w", np.array([1.0, 2.0], "f4"))
    graph = li.Graph("g", [x], {"loss": li.mean(y * y)})
    with li.compile(li.train_step(graph, "loss", li.adam(0.1))) as exe, exe.session() as client:

        def read_and_train(held: HeldState, name: str) -> Any:
            found = read(held, name)
            exe.entries["train"](x=np.ones((1, 2), "f4"))
            return found

        read = HeldState.__getitem__
        with monkeypatch.context() as patched:
            patched.setattr(HeldState, "__getitem__", read_and_train)
            client.state.update(exe.state)
        want = exe.state.snapshot()
        for name, value in client.state.snapshot().items():
            np.testing.assert_array_equal(value, want[name], err_msg=name)


def test_all_values_are_written_or_none(exe: Any) -> None:
    a, b = np.ones((2, 2), "f4"), np.full((3, 2), 7, "f4")
    with exe.session() as s:
        s.state["a"] = a
        bad: dict[str, Any] = {"b": np.ones((2, 3), "f4"), "c": a}
        for name, message in (("b", r"state 'b': expected f32\[B,2\], got shape"), ("c", "there is no state 'c'")):
            with pytest.raises(li.CallError, match=message):
                s.state.update({"a": b, name: bad[name]})
            np.testing.assert_array_equal(s.state["a"], a)
        s.state.update([("a", b)], b=a)
        np.testing.assert_array_equal(s.state["a"], b)
        np.testing.assert_array_equal(s.state["b"], a)
        s.state.update()


def tagger(head: str = "head/w") -> li.Graph:
    """An encoder and a head, both one product."""
    x = li.input("x", ("B", 2))
    middle = li.dense(x, li.weight("encoder/w", np.array([[1.0, 2.0], [3.0, -1.0]], "f4")))
    y = li.dense(middle, li.weight(head, np.array([[0.5, -0.5]], "f4")))
    return li.Graph("tagger", [x], {"loss": li.mean(y * y), "y": y})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A file of three steps that trained both, and what it holds."""
    path = tmp_path_factory.mktemp("state") / "a.safetensors"
    with li.compile(li.train_step(tagger(), "loss", li.adam(0.1)).only("train")) as exe:
        for _ in range(3):
            exe.entries["train"](x=np.array([[1.0, -2.0]], "f4"))
        exe.save_state(path)
        return path, dict(exe.state)


@pytest.mark.parametrize("strict", [True, False])
def test_a_file_with_other_values_of_frozen_weights_is_refused(
    checkpoint: tuple[Path, dict[str, Any]], strict: bool
) -> None:
    """The encoder would stay untrained in silence."""
    path, held = checkpoint
    with li.compile(li.train_step(tagger(), "loss", li.adam(0.1), "head/*").only("train")) as exe:
        with pytest.raises(li.PackageError, match=r"encoder/w: weights here, not state; .*li\.with_weights\(graph, "):
            exe.load_state(path, strict=strict)
        np.testing.assert_array_equal(exe.state["head/w"], [[0.5, -0.5]])
    frozen = li.with_weights(tagger(), path)
    with li.compile(li.train_step(frozen, "loss", li.adam(0.1), "head/*").only("train")) as exe:
        exe.load_state(path, strict=False)
        np.testing.assert_array_equal(exe.weights["encoder/w"], held["encoder/w"])
        np.testing.assert_array_equal(exe.state["adam/m/head/w"], held["adam/m/head/w"])
        assert int(exe.state["step"]) == 3  # of all that is trained here


def test_the_count_of_updates_comes_with_all_moments(checkpoint: tuple[Path, dict[str, Any]]) -> None:
    """Adam's first update of a new head is lr times the sign of its gradient, which it is where step is 0 before."""
    path, held = checkpoint
    with li.compile(li.train_step(tagger("new/w"), "loss", li.adam(0.1), evaluate=True)) as exe:
        exe.load_state(path, strict=False)
        np.testing.assert_array_equal(exe.state["encoder/w"], held["encoder/w"])
        assert int(exe.state["step"]) == 0
        before = exe.state["new/w"]
        x = np.array([[1.0, -2.0]], "f4")
        middle = x @ held["encoder/w"].T
        gradient = 2 * (middle @ before.T) * middle
        exe.entries["train"](x=x)
        np.testing.assert_allclose(exe.state["new/w"], before - 0.1 * np.sign(gradient), rtol=1e-4)


@pytest.mark.parametrize("more", [{"accumulate": 2}, {"optimizer": li.adam(li.schedules.plateau(0.1))}])
def test_sums_and_a_plateau_that_begin_leave_the_count(
    checkpoint: tuple[Path, dict[str, Any]], more: dict[str, Any]
) -> None:
    asked = {"optimizer": li.adam(0.1), **more}
    with li.compile(li.train_step(tagger(), "loss", **asked).only("train")) as exe:
        exe.load_state(checkpoint[0], strict=False)
        assert int(exe.state["step"]) == 3


def test_calls_of_an_accumulation_are_counted_with_all_their_sums(tmp_path: Path) -> None:
    path, x = tmp_path / "s.safetensors", np.array([[1.0, -2.0]], "f4")
    first, other = (li.train_step(tagger(n), "loss", li.sgd(0.1), accumulate=2).only("train") for n in ("a/w", "b/w"))
    with li.compile(first) as exe:
        for _ in range(3):
            exe.entries["train"](x=x)
        exe.save_state(path)
        sums = exe.state["accumulated/encoder/w"]
    with li.compile(other) as exe:
        exe.load_state(path, strict=False)
        np.testing.assert_array_equal(exe.state["accumulated/encoder/w"], sums)
        assert (int(exe.state["step"]), int(exe.state["micro_step"])) == (0, 0)
    with li.compile(first) as exe:
        exe.load_state(path, strict=False)
        assert (int(exe.state["step"]), int(exe.state["micro_step"])) == (1, 1)
