"""Streaming: state that stays in the session, in chunks and interleaved, in files and in packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import compiled, need

import lstm_ir as li
from lstm_ir.backends.files import state_file
from lstm_ir.backends.run.executable import Executable, Session
from lstm_ir.ir.errors import CallError, DeviceError, PackageError, ValueRangeError, VerifyError

pytestmark = [pytest.mark.slow_on("vulkan"), pytest.mark.together]
I, H, B = 5, 7, 3
KEPT = {"h0": "h_n", "c0": "c_n"}
Array = np.ndarray[Any, Any]


def cell(batch: int | str = "B") -> li.Graph:
    """An LSTM over x [T, B, I] with its states as inputs and outputs."""
    rng = np.random.default_rng(20261)
    w = [
        li.weight(n, rng.uniform(-0.5, 0.5, s).astype(np.float32))
        for n, s in (("w_ih", (4 * H, I)), ("w_hh", (4 * H, H)), ("b", (4 * H,)))
    ]
    x = li.input("x", ("T", batch, I))
    h0, c0 = (li.input(n, (1, batch, H)) for n in KEPT)
    w_ih, w_hh, b = w
    y, h_n, c_n = li.lstm(x, w_ih, w_hh, b, h0=h0, c0=c0)
    return li.Graph("stream", [x, h0, c0], {"y": y, "h_n": h_n, "c_n": c_n})


def program() -> li.Program:
    """With state of named size."""
    return li.stateful(cell(), KEPT)


@pytest.fixture(scope="module", params=["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def exe(request: pytest.FixtureRequest) -> Iterator[Executable]:
    yield from compiled(program(), request.param)


def whole(x: Array) -> dict[str, Array]:
    """What the graph means from zeros."""
    zero = np.zeros((1, x.shape[1], H), np.float32)
    return li.interpret(cell(), {"x": x, "h0": zero, "c0": zero})


def feed(session: Session, x: Array, cuts: tuple[int, ...]) -> Array:
    """The outputs of `step` over the chunks of x, joined."""
    parts = np.split(x, cuts)
    return np.concatenate([session.entries["step"](x=p)["y"] for p in parts])


def draw(rng: np.random.Generator, t: int = 11, b: int = B) -> Array:
    return rng.standard_normal((t, b, I)).astype(np.float32)


def test_chunks_equal_the_whole(exe: Executable, rng: np.random.Generator) -> None:
    x = draw(rng)
    want = whole(x)
    zero = np.zeros((1, B, H), np.float32)
    np.testing.assert_allclose(exe(x=x, h0=zero, c0=zero)["y"], want["y"], atol=1e-6)
    for cuts in ((), (1,), (4, 5), tuple(range(1, 11))):
        with exe.session() as s:
            np.testing.assert_allclose(feed(s, x, cuts), want["y"], atol=1e-6)
            np.testing.assert_allclose(s.state["h0"], want["h_n"], atol=1e-6)
            kept = s.entries["get_state"]()
            assert list(kept) == ["h0", "c0"]
            np.testing.assert_array_equal(kept["c0"], s.state["c0"])


def test_what_a_call_gives_is_no_window_on_the_state(exe: Executable, rng: np.random.Generator) -> None:
    with exe.session() as s:
        s.entries["step"](x=draw(rng))
        before = s.state["h0"]
        for _ in range(2):
            kept = s.entries["get_state"]()
            kept["h0"][...] = 99.0
            np.testing.assert_array_equal(s.state["h0"], before)
        s.state["h0"][...] = 99.0
        np.testing.assert_array_equal(s.state["h0"], before)


def test_sessions_interleave(exe: Executable, rng: np.random.Generator) -> None:
    xs = [draw(rng, b=b) for b in (1, 3, 4)]
    sessions = [exe.session() for _ in xs]
    got: list[list[Array]] = [[] for _ in xs]
    for t in range(11):
        for k in rng.permutation(len(xs)):
            got[k].append(sessions[k].entries["step"](x=xs[k][t : t + 1])["y"])
    for x, rows, s in zip(xs, got, sessions, strict=True):
        np.testing.assert_allclose(np.concatenate(rows), whole(x)["y"], atol=1e-6)
        s.close()


def test_reset_frees_the_size(exe: Executable, rng: np.random.Generator) -> None:
    with exe.session() as s:
        s.entries["reset"]()  # before anything was kept: nothing to do
        first = s.entries["step"](x=draw(rng))
        with pytest.raises(CallError, match="state 'h0' has 3 on axis 1, this call has B = 4"):
            s.entries["step"](x=draw(rng, b=4))
        assert s.state["h0"].shape == (1, B, H)
        assert s.entries["reset"]() == {}
        x = draw(rng, b=4)
        np.testing.assert_allclose(s.entries["step"](x=x)["y"], whole(x)["y"], atol=1e-6)
        s.reset()
        with pytest.raises(CallError, match="known after its first call"):
            s.entries["get_state"]()
        assert first["y"].shape == (11, B, H)


def test_set_state_takes_up_where_another_stopped(exe: Executable, rng: np.random.Generator) -> None:
    x = draw(rng)
    with exe.session() as a, exe.session() as b:
        a.entries["step"](x=x[:4])
        b.entries["set_state"](a.entries["get_state"]())
        np.testing.assert_allclose(b.entries["step"](x=x[4:])["y"], whole(x)["y"][4:], atol=1e-6)
        b.state["h0"] = np.ones((1, B, H), np.float32)
        np.testing.assert_array_equal(b.state["h0"], 1)
        with pytest.raises(CallError, match="expected f32"):
            b.state["h0"] = np.ones((1, B, H + 1), np.float32)


def test_a_failing_call_keeps_the_state(exe: Executable, rng: np.random.Generator) -> None:
    with exe.session() as s:
        s.entries["step"](x=draw(rng))
        before = s.entries["get_state"]()
        with pytest.raises(CallError):
            s.entries["step"](x=draw(rng).astype(np.float64))
        np.testing.assert_array_equal(s.state["c0"], before["c0"])


def test_files(exe: Executable, rng: np.random.Generator, tmp_path: Path) -> None:
    x, file = draw(rng), tmp_path / "s.safetensors"
    with exe.session() as a, exe.session() as b:
        with pytest.raises(CallError, match="known after its first call"):
            a.save_state(file)
        assert not file.exists()
        a.entries["step"](x=x[:5])
        a.save_state(file)
        b.load_state(file)
        np.testing.assert_allclose(b.entries["step"](x=x[5:])["y"], whole(x)["y"][5:], atol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


def test_the_safetensors_package_reads_and_writes_them(
    exe: Executable, rng: np.random.Generator, tmp_path: Path
) -> None:
    need("safetensors")
    from safetensors.numpy import load_file, save_file

    with exe.session() as s:
        s.entries["step"](x=draw(rng))
        s.save_state(tmp_path / "ours.safetensors")
        theirs = load_file(tmp_path / "ours.safetensors")
        assert set(theirs) == set(KEPT)
        for name, a in theirs.items():
            np.testing.assert_array_equal(a, s.state[name])
        save_file({n: a + 1 for n, a in theirs.items()}, tmp_path / "theirs.safetensors")
        s.load_state(tmp_path / "theirs.safetensors")
        np.testing.assert_array_equal(s.state["h0"], theirs["h0"] + 1)


class _Between:
    """A lock after whose first release `act` runs: what another thread may do at that moment."""

    def __init__(self, lock: Any, act: Any) -> None:
        self.lock, self.acts = lock, [act]

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
        while self.acts:
            self.acts.pop()()


def test_a_file_holds_one_moment(
    exe: Executable, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = draw(rng)
    with exe.session() as s:
        s.entries["step"](x=x[:5])
        before = {n: s.state[n] for n in KEPT}
        between = _Between(s._calls.lock, lambda: s.entries["step"](x=x[5:]))
        monkeypatch.setattr(s.state, "_lock", between)
        s.save_state(tmp_path / "s")
        assert not between.acts
        for n, a in state_file.read(tmp_path / "s").items():
            np.testing.assert_array_equal(a, before[n], err_msg=n)
            assert not np.array_equal(s.state[n], before[n])


def test_state_of_two_sizes_is_not_saved(exe: Executable, tmp_path: Path) -> None:
    with exe.session() as s:
        s.state["h0"] = np.ones((1, B, H), np.float32)
        s.state["c0"] = np.ones((1, B + 1, H), np.float32)
        with pytest.raises(CallError, match="two sizes for B"):
            s.save_state(tmp_path / "s")
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["keywords", "a mapping"])
def test_an_entry_that_takes_what_main_does_not_is_named(exe: Executable, rng: np.random.Generator, form: str) -> None:
    """`main` takes the states as inputs, `step` keeps them. A name that no entry has is answered as before."""
    x = draw(rng)
    with pytest.raises(CallError, match=r"missing input h0; .*; what was given fits \.entries\['step'\]\(\.\.\.\)$"):
        exe(x=x) if form == "keywords" else exe({"x": x})
    with pytest.raises(CallError, match=r"c0: f32\[1,B,\d+\]\)$"):
        exe(z=x)


def test_a_first_call_that_fails_starts_nothing() -> None:
    """Its sizes are not those of the session: the next call has others."""
    ids, h = li.input("ids", ("B",), "i32"), li.input("h", ("B", 2))
    new = h + li.embedding(np.arange(6, dtype=np.float32).reshape(3, 2), ids + 1)
    made = li.stateful(li.Graph("sums", [ids, h], {"new": new}), {"h": "new"})
    with li.compile(made.only("step")) as exe:
        with pytest.raises(ValueRangeError):
            exe(ids=np.full(5, 9, np.int32))
        with pytest.raises(CallError, match="known after its first call"):
            exe.state["h"]
        exe(ids=np.zeros(2, np.int32))
        np.testing.assert_array_equal(exe.state["h"], [[2, 3], [2, 3]])


@pytest.mark.parametrize("path", [None, 3, b"s"])
def test_what_is_no_path(exe: Executable, path: Any) -> None:
    with exe.session() as s:
        for n in KEPT:
            s.state[n] = np.ones((1, B, H), np.float32)
        for use in (s.load_state, s.save_state):
            with pytest.raises(PackageError, match="no path"):
                use(path)


def _good() -> dict[str, Array]:
    return {n: np.ones((1, B, H), np.float32) for n in KEPT}


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"h0": _good()["h0"]}, "no state 'c0'"),
        (_good() | {"z": np.ones(2, np.float32)}, "an unknown state 'z'"),
        (_good() | {"c0": np.ones((1, B, H + 1), np.float32)}, "state 'c0': expected f32"),
        (_good() | {"c0": np.ones((1, B + 1, H), np.float32)}, "two sizes for B"),
        (_good() | {"c0": np.ones((1, B, H), np.float16)}, "c0: expected f32"),
    ],
    ids=["missing", "unknown", "shape", "sizes", "dtype"],
)
def test_a_file_that_does_not_fit_changes_nothing(
    exe: Executable, tmp_path: Path, arrays: dict[str, Array], problem: str
) -> None:
    state_file.write(tmp_path / "bad.safetensors", arrays)
    with exe.session() as s:
        for name in KEPT:
            s.state[name] = np.full((1, B, H), 5, np.float32)
        with pytest.raises(PackageError, match=problem):
            s.load_state(tmp_path / "bad.safetensors")
        for name in KEPT:
            np.testing.assert_array_equal(s.state[name], 5)


def test_every_cut_of_a_file_is_refused(exe: Executable, tmp_path: Path) -> None:
    state_file.write(tmp_path / "good.safetensors", _good())
    data = (tmp_path / "good.safetensors").read_bytes()
    with exe.session() as s:
        for name in KEPT:
            s.state[name] = np.full((1, B, H), 5, np.float32)
        for n in range(0, len(data), 7):
            (tmp_path / "cut").write_bytes(data[:n])
            with pytest.raises(PackageError):
                s.load_state(tmp_path / "cut")
        with pytest.raises(PackageError):
            s.load_state(tmp_path / "absent")
        np.testing.assert_array_equal(s.state["h0"], 5)


def test_a_closed_executable_is_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    made = li.compile(program())
    made.entries["step"](x=draw(rng))
    made.save_state(tmp_path / "s")
    other = made.session()
    result = other.entries["step"](x=draw(rng))
    held = result["y"].copy()
    made.close()
    for use in (
        lambda: other.entries["step"](x=draw(rng)),
        lambda: other.state["h0"],
        lambda: other.load_state(tmp_path / "s"),
        lambda: made.entries["step"](x=draw(rng)),
        lambda: made.entries["reset"](),
        lambda: made.state["h0"],
        lambda: made.state.__setitem__("h0", np.ones((1, B, H), np.float32)),
        lambda: made.save_state(tmp_path / "t"),
        lambda: made.load_state(tmp_path / "s"),
        lambda: made.state.reset(),
        lambda: other.reset("h0"),
        lambda: made.session(),
    ):
        with pytest.raises(DeviceError, match="closed"):
            use()
    np.testing.assert_array_equal(result["y"], held)  # what was given stays
    made.close()  # again: nothing to do
    other.close()


def test_a_closed_session_leaves_the_others(exe: Executable, rng: np.random.Generator) -> None:
    x = draw(rng)
    a, b = exe.session(), exe.session()
    for s in (a, b):
        s.entries["step"](x=x[:5])
    a.close()
    for use in (lambda: a.entries["step"](x=x[5:]), lambda: a.state["h0"]):
        with pytest.raises(DeviceError, match="the session is closed"):
            use()
    np.testing.assert_allclose(b.entries["step"](x=x[5:])["y"], whole(x)["y"][5:], atol=1e-6)
    b.close()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"F32"', b'"F99"', "h0: element type 'F99'"),
        (b'"h0"', b'"g0"', "no state 'h0'"),
        (b"[1,3,7]", b"[1,3,9]", "takes 108 bytes"),
        (b"[1,3,7]", b"[1,-3,7", "a damaged header"),
        (b'{"', b"\xff\xff", "a damaged header"),
    ],
    ids=["dtype", "name", "shape", "size", "header"],
)
def test_a_damaged_member_is_refused(exe: Executable, tmp_path: Path, old: bytes, new: bytes, problem: str) -> None:
    state_file.write(tmp_path / "s.safetensors", _good())
    data = (tmp_path / "s.safetensors").read_bytes()
    assert old in data, data[:200]
    (tmp_path / "s.safetensors").write_bytes(data.replace(old, new, 1))
    with exe.session() as s:
        for name in KEPT:
            s.state[name] = np.full((1, B, H), 5, np.float32)
        with pytest.raises(PackageError, match=problem):
            s.load_state(tmp_path / "s.safetensors")
        for name in KEPT:
            np.testing.assert_array_equal(s.state[name], 5)


def test_a_package_carries_what_the_state_starts_as(exe: Executable, rng: np.random.Generator, tmp_path: Path) -> None:
    start = rng.standard_normal((1, 1, H)).astype(np.float32)  # the same for every row
    made = li.stateful(cell(), KEPT, {"c0": start})
    kind = exe.target.info.kind
    loaded = li.load(li.export(made, tmp_path / "s.lirpkg", [kind]), kind)
    x = draw(rng)
    given = {"h0": np.zeros((1, B, H), np.float32), "c0": np.broadcast_to(start, (1, B, H))}
    want = li.interpret(cell(), {"x": x, **given})
    np.testing.assert_allclose(feed(loaded, x, (4,)), want["y"], atol=1e-6)
    loaded.entries["reset"]()
    np.testing.assert_allclose(feed(loaded, x, (9,)), want["y"], atol=1e-6)
    loaded.close()


def test_text_of_a_program_with_state() -> None:
    made = program()
    data = {d.sha256: d.array for d in made.weights.values()}
    assert str(li.parse(str(made), data)) == str(made)


@pytest.mark.parametrize(
    ("kept", "initial", "problem"),
    [
        ({}, None, "nothing to keep"),
        ({"h": "h_n"}, None, "no input 'h'"),
        ({"h0": "h"}, None, "no output 'h'"),
        ({"h0": "h_n", "c0": "h_n"}, None, "fed to two"),
        ({"h0": "y"}, None, "output 'y' is"),
        (KEPT, {"x": 0.0}, "no state 'x'"),
        (KEPT, {"h0": np.zeros((2, 1, H), np.float32)}, "does not start"),
    ],
)
def test_refused(kept: dict[str, str], initial: Any, problem: str) -> None:
    with pytest.raises(VerifyError, match=problem):
        li.stateful(cell(), kept, initial)
