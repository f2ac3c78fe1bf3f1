"""Which input of an entry holds the steps of each row, and how many are all of them where a request leaves it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need
from torch_batches import torch_lstm

import lstm_ir as li
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.types import DimLike

I, H = 5, 7
Array = np.ndarray[Any, Any]
WEIGHTS = {
    n: np.random.default_rng(3).uniform(-0.6, 0.6, s).astype(np.float32)
    for n, s in (("w_ih", (4 * H, I)), ("w_hh", (4 * H, H)), ("w_out", (3, H)))
}
GIVEN: dict[str, Callable[[li.Value], li.Value]] = {
    "as they are": lambda n: n,
    "in a range": lambda n: li.in_range(n, 1, "T"),
    "another width": lambda n: li.convert(li.in_range(n, 1, "T"), li.DType.i32),
}


def encoder(
    of_lengths: Callable[[li.Value], li.Value], steps: DimLike = "T", stride: int = 1, dtype: str = "i32"
) -> li.Graph:
    """An LSTM over every `stride`-th step."""
    x, n = li.input("x", (steps, "B", I)), li.input("n", ("B",), dtype)
    rows = x if stride == 1 else li.reshape(x, ("F", stride, "B", I))[:, 0]
    y = li.lstm(rows, li.weight("w_ih", WEIGHTS["w_ih"]), li.weight("w_hh", WEIGHTS["w_hh"]), lengths=of_lengths(n))[0]
    return li.Graph("encoder", [x, n], {"y": y})


def expected(x: Array, lengths: Array | None = None) -> Array:
    """By torch, one row after another."""
    return torch_lstm(x, WEIGHTS, lengths)["y"]


def close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", GIVEN)
def test_lengths_behind_a_range_of_their_own(name: str, rng: np.random.Generator) -> None:
    """An importer confines lengths before a layer reads them; requests of unequal steps share a call all the same."""
    exe = li.compile(encoder(GIVEN[name], dtype="i64" if name == "another width" else "i32"))
    xs = [rng.standard_normal((t, b, I), np.float32) for t, b in ((9, 1), (10, 2), (9, 3))]
    with exe, li.Batcher(exe, max_delay=60.0, max_batch=6) as batcher:
        assert (batcher.rows.lengths, batcher.rows.pads) == ("n", True)
        futures = [batcher.submit({"x": x}) for x in xs]
        for future, x in zip(futures, xs, strict=True):
            close(future.result(60)["y"], expected(x))
        assert batcher.counters.groups == 1


@pytest.mark.parametrize("named", [None, "n"])
@pytest.mark.parametrize(("stride", "steps"), [(1, 6), (2, 3)])
def test_time_that_is_an_expression(stride: int, steps: int, named: str | None, rng: np.random.Generator) -> None:
    """All steps are as many as the layer has, not as many as the input."""
    exe = li.compile(encoder(GIVEN["as they are"], "2*F", stride))
    x = rng.standard_normal((6, 2, I), np.float32)
    with exe, li.Batcher(exe, time="F", lengths=named, max_delay=0.0) as batcher:
        assert not batcher.rows.pads
        got = batcher(x=x)["y"]
        assert got.shape == (steps, 2, H)
        close(got, expected(x[::stride]))
        lengths = np.array([2, steps], np.int32)
        close(batcher(x=x, n=lengths)["y"], expected(x[::stride], lengths))


@pytest.mark.parametrize("steps", ["T", "2*T"])
def test_lengths_that_no_layer_reads(steps: str, rng: np.random.Generator) -> None:
    """The caller names them; where time is an expression, nothing says how many steps are all."""
    x, n = li.input("x", (steps, "B", I)), li.input("n", ("B",), "i32")
    exists = li.less(li.iota((steps, "B", I), 0), li.broadcast_in_dim(n, (steps, "B", I), (1,)))
    exe = li.compile(li.Graph("masked", [x, n], {"y": li.select(exists, x, li.zeros_like(x))}))
    a = rng.standard_normal((4, 2, I), np.float32)
    with li.Batcher(exe, max_delay=0.0) as batcher, pytest.raises(CallError, match="missing input n"):
        batcher(x=a)
    with exe, li.Batcher(exe, lengths="n", max_delay=0.0) as batcher:
        if steps == "T":
            np.testing.assert_array_equal(batcher(x=a)["y"], a)
            return
        with pytest.raises(CallError, match="missing input n"):
            batcher(x=a)
        kept = batcher(x=a, n=np.array([4, 1], np.int32))["y"]
        np.testing.assert_array_equal(kept, np.where(np.arange(4)[:, None, None] < [[4], [1]], a, 0))


def window_sums(features: int, width: int, stride: int) -> li.Graph:
    """The sum of all windows of a row that begin within its steps."""
    x, n = li.input("x", ("T", "B", features)), li.input("n", ("B",), "i32")
    ones = np.ones((1, features, width), np.float32)
    found = li.conv1d(li.transpose(x, (1, 2, 0)), ones, stride=stride, padding="same")[:, 0]
    exists = li.arange(found.shape[1])[None, :] < ((n + stride - 1) // stride)[:, None]
    return li.Graph("windows", [x, n], {"y": li.sum(found * li.convert(exists, "f32"), 1)})


@pytest.mark.parametrize(
    ("width", "stride", "features"),
    [(3, 2, 1), (3, 2, 3), (3, 2, 8), (3, 2, 16), (3, 2, 17), (3, 3, 3), (5, 4, 3), (9, 8, 3)],
)
def test_windows_that_lie_by_the_padded_steps(width: int, stride: int, features: int) -> None:
    """The windows of "same" begin by the remainder of all steps by the stride: padding moves them."""
    with li.compile(window_sums(features, width, stride)) as exe:
        with pytest.raises(CallError, match="output y of a row changes with the steps behind its length"):
            li.Batcher(exe, lengths="n")


@pytest.mark.parametrize(("width", "stride", "features"), [(3, 1, 1), (3, 1, 3), (3, 1, 16), (2, 2, 8)])
def test_windows_that_padding_does_not_move(width: int, stride: int, features: int, rng: np.random.Generator) -> None:
    exe = li.compile(window_sums(features, width, stride))
    xs = [rng.standard_normal((t, 1, features), np.float32) for t in (9, 10)]
    with exe, li.Batcher(exe, lengths="n", max_delay=60.0, max_batch=2) as batcher:
        for future, x in [(batcher.submit({"x": x}), x) for x in xs]:
            filled = np.pad(x.sum((1, 2)), ((width - 1) // 2, width // 2))
            want = sum(filled[t : t + width].sum() for t in range(0, len(x), stride))
            np.testing.assert_allclose(future.result(60)["y"], [want], rtol=0, atol=1e-4)
        assert batcher.counters.groups == 1


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # of torch.export, of any LSTM
def test_a_packed_module_of_pytorch(rng: np.random.Generator) -> None:
    need("torch")
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, whole: bool) -> None:
            super().__init__()
            self.layer, self.whole = torch.nn.GRU(I, H, batch_first=True, bidirectional=True), whole

        def forward(self, x: Any, lengths: Any) -> Any:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            total = x.shape[1] if self.whole else None
            return pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=total)[0]

    torch.manual_seed(5)
    example, sizes = (torch.zeros(2, 4, I), torch.tensor([4, 2])), {"x": ("B", "T", None), "lengths": ("B",)}
    module = Tagger(True)
    exe = li.compile(li.from_torch(module, example, sizes=sizes))
    xs = [rng.standard_normal((b, t, I), np.float32) for b, t in ((1, 9), (2, 10))]
    with exe, li.Batcher(exe, max_delay=60.0, max_batch=3) as batcher:
        futures = [batcher.submit({"x": x}) for x in xs]
        for future, x in zip(futures, xs, strict=True):
            with torch.no_grad():
                want = module(torch.tensor(x), torch.full(x.shape[:1], x.shape[1])).numpy()
            close(future.result(60)["y"], want)
        assert batcher.counters.groups == 1
    # Whether a call is taken depends on its longest row, which another request may have.
    with li.compile(li.from_torch(Tagger(False), example, sizes=sizes)) as exe:
        with pytest.raises(CallError, match=r"depends on other rows of it.*pad_packed_sequence.*total_length"):
            li.Batcher(exe)


def test_lengths_of_a_graph_without_time_pad_nothing() -> None:
    """The number is that of the row, which the caller says."""
    n = li.input("n", ("B",), "i32")
    with li.compile(li.Graph("alone", [n], {"y": n * 2})) as exe, li.Batcher(exe, lengths="n") as batcher:
        assert not batcher.rows.pads
        np.testing.assert_array_equal(batcher(n=np.array([3, 5], np.int32))["y"], [6, 10])
