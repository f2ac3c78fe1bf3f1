"""Results that stay on the device: `keep=True`, `DeviceArray`, DLPack. On GPUs nothing is copied between two calls."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.run import transfer

ROWS = np.random.default_rng(4).standard_normal((5, 3)).astype(np.float32)
WEIGHT = np.random.default_rng(5).standard_normal((3, 4)).astype(np.float32)
TARGETS = ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan), pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    if request.param != "cpu":
        need(request.param)
    word: str = request.param
    return word


def _encoder() -> li.Graph:
    x = li.input("x", ("T", 3))
    y = li.tanh(x @ li.weight("w", WEIGHT))
    return li.Graph("encoder", [x], {"y": y, "best": li.argmax(y, 1), "any": li.greater(y, 0.5)})


def _decoder() -> li.Graph:
    y, best = li.input("y", ("T", 4)), li.input("best", ("T",), "i32")
    picked = li.sum(li.one_hot(best, 4) * y, 1)
    return li.Graph("decoder", [y, best], {"z": y * 2.0, "picked": picked})


def test_what_is_kept_is_what_is_given(target: str) -> None:
    with li.compile(_encoder(), target) as exe:
        plain, kept = exe(x=ROWS), exe(x=ROWS, keep=True)
        assert set(kept) == set(plain)
        for name, want in plain.items():
            a = kept[name]
            assert isinstance(a, li.DeviceArray)
            assert (a.shape, a.dtype, a.ndim, a.size, a.nbytes) == (
                want.shape, want.dtype, want.ndim, want.size, want.nbytes
            )  # fmt: skip
            assert len(a) == len(want)
            assert a.on_host == (target == "cpu")
            assert np.array_equal(np.asarray(a), want)
            assert np.array_equal(a[1], want[1])
            assert np.asarray(a, np.float64).dtype == np.float64
        assert repr(kept["y"]) == f"DeviceArray(float32[5,4] on {target})"


def test_operators_are_numpys(target: str) -> None:
    """A comparison was one of identity: False, in silence."""
    with li.compile(_encoder(), target) as exe:
        want, a = exe(x=ROWS)["y"], exe(x=ROWS, keep=True)["y"]
        b = exe(x=ROWS, keep=True)["y"]
        for got, expected in (
            (a == b, np.ones((5, 4), bool)), (a != want, np.zeros((5, 4), bool)), (a < 0, want < 0),
            (0 <= a, want >= 0), (a + 1, want + 1), (2.0 - a, 2.0 - want), (-a, -want), (abs(a), np.abs(want)),
            (a @ WEIGHT.T, want @ WEIGHT.T), (want * a, want * want), (np.exp(a), np.exp(want)),
            (np.mean(a, 0), np.mean(want, 0)),
        ):  # fmt: skip
            assert isinstance(got, np.ndarray)
            np.testing.assert_array_equal(got, expected)
        with pytest.raises(ValueError, match="truth value of an array"):
            assert a
        with pytest.raises(TypeError, match="unhashable"):
            hash(a)
        with pytest.raises(TypeError, match="a DeviceArray is not written to"):
            a += 1
        with pytest.raises(AttributeError, match=r"a DeviceArray has no reshape: np\.asarray\(a\)\.reshape is NumPy's"):
            a.reshape(-1)
        with pytest.raises(AttributeError, match=r"a DeviceArray has no colour$"):
            assert a.colour


def _note(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, calls: list[Any]) -> None:
    """Calls of a method are noted."""
    original = getattr(kind, name)

    def noted(self: Any, *given: Any) -> Any:
        calls.append(given)
        return original(self, *given)

    monkeypatch.setattr(kind, name, noted)


def test_a_chain_of_calls_copies_nothing_on_a_gpu(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with li.compile(_encoder(), target) as encoder, li.compile(_decoder(), target) as decoder:
        plain = encoder(x=ROWS)
        want = decoder(y=plain["y"], best=plain["best"])
        fetched: list[Any] = []
        put: list[Any] = []
        _note(monkeypatch, transfer.DeviceMover, "_fetched", fetched)
        _note(monkeypatch, transfer.Mover, "put", put)
        kept = encoder(x=ROWS, keep=True)
        assert not fetched
        put.clear()
        again = decoder(y=kept["y"], best=kept["best"], keep=True)
        assert not fetched
        assert not put or target == "cpu"
        for name, w in want.items():
            assert np.array_equal(np.asarray(again[name]), w)
        mixed = decoder(y=plain["y"], best=kept["best"])
        assert all(np.array_equal(mixed[name], w) for name, w in want.items())
    assert np.array_equal(np.asarray(kept["y"]), plain["y"])  # it outlives the executables


def test_between_devices_the_host_carries(target: str) -> None:
    with li.compile(_encoder(), target) as encoder, li.compile(_decoder()) as decoder:
        kept = encoder(x=ROWS, keep=True)
        got = decoder(y=kept["y"], best=kept["best"])
        assert np.array_equal(got["z"], np.asarray(kept["y"]) * 2)
    if target != "cpu":
        with li.compile(_encoder()) as encoder, li.compile(_decoder(), target) as decoder:
            kept = encoder(x=ROWS, keep=True)
            assert np.array_equal(decoder(y=kept["y"], best=kept["best"])["z"], np.asarray(kept["y"]) * 2)


def test_state_stays_what_it_is(target: str) -> None:
    """A session's next call does not change what was kept, and what is kept feeds a session."""
    x, h = li.input("x", ("B", 3)), li.input("h", ("B", 3))
    program = li.stateful(li.Graph("sum", [x, h], {"y": x + h, "h_n": x + h}), {"h": "h_n"})
    rows = [ROWS * k for k in (1, 2, 4)]
    with li.compile(program, target) as exe:
        step = exe.entries["step"]
        first = step(x=rows[0], keep=True)["y"]
        second = step(x=first, keep=True)["y"]
        third = step(x=rows[2])["y"]
        assert np.array_equal(np.asarray(first), rows[0])
        assert np.array_equal(np.asarray(second), rows[1])
        assert np.allclose(third, rows[1] + rows[2])
        assert np.allclose(exe.state["h"], third)


def test_dtypes_and_ranges_are_checked_on_the_device(target: str) -> None:
    x = li.input("x", ("T",), "i32")
    table = li.weight("table", np.eye(4, dtype=np.float32))
    with (
        li.compile(li.Graph("next", [x], {"x": x + 1}), target) as count,
        li.compile(li.Graph("look", [x], {"y": li.embedding(table, x)}), target) as look,
        li.compile(_encoder(), target) as encoder,
    ):
        kept = count(x=np.array([0, 2], np.int32), keep=True)["x"]
        assert np.array_equal(look(x=kept)["y"], np.eye(4, dtype=np.float32)[[1, 3]])
        with pytest.raises(li.ValueRangeError, match="got 4"):
            look(x=count(x=kept, keep=True)["x"])
        with pytest.raises(li.CallError, match="expected f32"):
            encoder(x=kept)
        with pytest.raises(li.CallError, match="rank"):
            encoder(x=encoder(x=ROWS, keep=True)["y"][0])


def test_empty_results(target: str) -> None:
    with li.compile(_encoder(), target) as encoder:
        kept = encoder(x=ROWS[:0], keep=True)["y"]
        assert (kept.shape, np.asarray(kept).shape) == ((0, 4), (0, 4))


def test_dlpack_on_the_host() -> None:
    with li.compile(_encoder()) as encoder:
        kept = encoder(x=ROWS, keep=True)["y"]
        assert kept.__dlpack_device__() == (1, 0)
        taken = np.from_dlpack(kept)
        assert np.array_equal(taken, np.asarray(kept))
        assert np.shares_memory(taken, np.asarray(kept))
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(kept)[0] = 1
        with pytest.raises(ValueError, match="float32 elements as float64 cannot be had without a copy"):
            kept.__array__("f8", copy=False)
        assert np.shares_memory(kept.__array__("f4", copy=False), taken)
        assert kept.__array__("f8").dtype == np.float64
        with pytest.raises(BufferError, match="not copied"):
            kept.__dlpack__(copy=True)
        with pytest.raises(BufferError, match=r"DLPack's \(2, 0\)"):
            kept.__dlpack__(dl_device=(2, 0))


@pytest.mark.vulkan
def test_vulkan_memory_is_not_exchanged() -> None:
    need("vulkan")
    with li.compile(_encoder(), "vulkan") as encoder:
        kept = encoder(x=ROWS, keep=True)["y"]
        with pytest.raises(BufferError, match=r"vulkan cannot be exchanged by DLPack: np\.asarray"):
            np.from_dlpack(kept)
        with pytest.raises(ValueError, match="without a copy"):
            kept.__array__(copy=False)


@pytest.mark.cuda
def test_torch_gets_a_copy_of_what_is_kept_on_cuda() -> None:
    need("cuda")
    need("torch")
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    with li.compile(_encoder(), "cuda") as encoder:
        kept = encoder(x=ROWS, keep=True)["y"]
        there = torch.from_dlpack(kept)
        assert there.device.type == "cuda"
        assert np.array_equal(there.cpu().numpy(), np.asarray(kept))
        before = np.array(kept)
        there.zero_()
        assert np.array_equal(np.asarray(kept), before)
        with pytest.raises(BufferError, match="as a copy: copy=False"):
            kept.__dlpack__(copy=False)


def test_an_input_called_keep() -> None:
    keep = li.input("keep", (2,))
    with li.compile(li.Graph("g", [keep], {"y": -keep})) as exe:
        a = np.array([1, 2], np.float32)
        assert np.array_equal(exe(keep=a)["y"], -a)
        assert isinstance(exe({"keep": a})["y"], np.ndarray)


@pytest.mark.parametrize("keep", [np.ones(3), np.ones(1), 1, "no", None])
def test_keep_is_true_or_false(keep: object) -> None:
    with li.compile(_encoder()) as encoder:
        for call in (encoder, encoder.entries["main"], encoder.session().entries["main"]):
            with pytest.raises(li.CallError, match=r"^main: keep is .*; expected True or False"):
                call(x=ROWS, keep=keep)
        assert isinstance(encoder(x=ROWS, keep=np.bool_(True))["y"], li.DeviceArray)
        assert isinstance(encoder(x=ROWS, keep=False)["y"], np.ndarray)


def test_a_number_is_read_as_one() -> None:
    x = li.input("x", ())
    with li.compile(li.Graph("g", [x], {"y": x * 2.0})) as exe:
        y = exe(x=np.float32(3), keep=True)["y"]
        assert float(y) == 6
        with pytest.raises(TypeError, match="no length"):
            len(y)


def test_a_number_is_written_as_one_and_indexes() -> None:
    x, i = li.input("x", ()), li.input("i", (), "i32")
    with li.compile(li.Graph("g", [x, i], {"y": x * 2.0, "i": i + 1})) as exe:
        out = exe(x=np.float32(3.25), i=np.int32(1), keep=True)
        assert f"{out['y']:.2f}" == "6.50"
        assert f"{out['y']}" == "DeviceArray(float32[] on cpu)"
        assert ["a", "b", "c"][out["i"]] == "c"
        assert np.arange(5)[out["i"]] == 2
        with pytest.raises(TypeError, match="integer"):
            ["a"][out["y"]]


def test_a_pickle_is_numpys_array() -> None:
    with li.compile(_encoder()) as exe:
        want, kept = exe(x=ROWS)["y"], exe(x=ROWS, keep=True)["y"]
        for a in (pickle.loads(pickle.dumps(kept)), copy.deepcopy(kept)):
            assert type(a) is np.ndarray
            np.testing.assert_array_equal(a, want)
