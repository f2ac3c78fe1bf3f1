"""Packed sequences: pack, layers, work on the data, unpack; results and gradients beside PyTorch's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need, need_target

import lstm_ir as li

T, B, I, H = 7, 4, 5, 3


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def tagger(kind: str, batch_first: bool, enforce_sorted: bool, total: str, work: Callable[[Any], Any] | None = None,
           **more: Any) -> Any:  # fmt: skip
    """A module that packs x by lengths, runs a layer and unpacks."""
    import torch
    from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(torch.nn, kind)(I, H, **more)
            self.before = torch.nn.Linear(I, I)

        def forward(self, x: Any, lengths: Any) -> Any:
            packed = pack_padded_sequence(x, lengths, batch_first=batch_first, enforce_sorted=enforce_sorted)
            if work is not None:
                data = work(self.before(packed.data))
                packed = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
            y, state = self.layer(packed)
            steps = {"none": None, "T": x.shape[1 if batch_first else 0], "more": T + 2}[total]
            return *pad_packed_sequence(y, batch_first, padding_value=0.5, total_length=steps), state

    return Tagger()


def call(batch_first: bool, t: int, lengths: list[int]) -> tuple[Any, Any]:
    import torch

    b = len(lengths)
    return torch.randn((b, t, I) if batch_first else (t, b, I)), torch.tensor(lengths)


def sizes(batch_first: bool, t: str | None = "T") -> dict[str, Any]:
    return {"x": ("B", t, None) if batch_first else (t, "B", None), "lengths": ("B",)}


CASES: list[tuple[str, bool, bool, str]] = list(
    itertools.product(["LSTM", "GRU", "RNN"], [False, True], [False, True], ["none", "T", "more"])
)


def test_forms(seed: int, rng: np.random.Generator) -> None:
    """A few of all cases, others with another seed."""
    for k in rng.permutation(len(CASES))[:6]:
        kind, batch_first, enforce_sorted, total = CASES[k]
        print(CASES[k])
        checked(kind, batch_first, enforce_sorted, total, seed, rng)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "batch_first", "enforce_sorted", "total"), CASES)
def test_every_form(kind: str, batch_first: bool, enforce_sorted: bool, total: str, seed: int, rng: Any) -> None:
    checked(kind, batch_first, enforce_sorted, total, seed, rng)


def checked(
    kind: str, batch_first: bool, enforce_sorted: bool, total: str, seed: int, rng: np.random.Generator
) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    module = tagger(kind, batch_first, enforce_sorted, total, bidirectional=True, num_layers=2)
    rows = [[7, 5, 5, 1], [7, 2], [7]] if enforce_sorted else [[5, 7, 1, 5], [2, 7], [7, 3, 1, 2, 7]]
    # With `more` the number of steps is fixed: whether it is above T has to be known.
    example, *calls = [call(batch_first, T, r) for r in rows]
    if total != "more":
        calls.append(call(batch_first, 3, [3, 2] if enforce_sorted else [1, 3]))
    g = tc.held(module, example, sizes(batch_first, None if total == "more" else "T"), calls, rng)
    layers = [n for n in g.nodes if n.op.name == kind.lower()]
    assert len(layers) == 2
    assert all(n.arg("lengths") is not None for n in layers)
    assert not any(n.op.name in ("sort", "gather") for n in g.nodes)


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_compiled(target: str, seed: int, rng: np.random.Generator) -> None:
    import torch

    need_target(target)
    torch.manual_seed(seed % 2**31)
    module = tagger("LSTM", True, False, "T", bidirectional=True)
    calls = [call(True, 7, [2, 7, 1]), call(True, 2, [2])]
    tc.held(module, call(True, T, [5, 7, 1, 5]), sizes(True), calls, rng, targets=[target], grad=False)


def test_work_on_the_data_of_a_packed_sequence(seed: int, rng: np.random.Generator) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    module = tagger("GRU", False, False, "none", lambda d: torch.tanh(d) * 2 + d)
    tc.held(module, call(False, T, [5, 7, 1, 5]), sizes(False), [call(False, 3, [3])], rng)
    module = tagger("GRU", False, False, "none", lambda d: d - d.mean(0))
    with pytest.raises(li.ModelError, match=r"mean.*reads the rows of a packed sequence together"):
        li.from_torch(module, call(False, T, [5, 7, 1, 5]), sizes=sizes(False))


def test_batch_norm_on_the_data_of_a_packed_sequence(seed: int, rng: np.random.Generator) -> None:
    """By running statistics each row is normalised by itself; by those of the rows, padding would count."""
    import torch

    torch.manual_seed(seed % 2**31)
    norm = torch.nn.BatchNorm1d(I).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    module = tagger("LSTM", True, False, "T", norm).eval()
    module.norm = norm
    tc.held(module, call(True, T, [5, 7, 1, 5]), sizes(True), [call(True, 3, [2])], rng)
    by_rows = lambda d: torch.batch_norm(d, None, None, None, None, True, 0.1, 1e-5, False)  # noqa: E731
    for work, said in (
        (by_rows, r"batch_norm.*reads the rows of a packed sequence together.*pad_packed_sequence"),
        (torch.nn.BatchNorm1d(I), r"the rows of a packed sequence.*unpack first with pad_packed_sequence"),
    ):
        with pytest.raises(li.ModelError, match=said):
            li.from_torch(tagger("LSTM", True, False, "T", work), call(True, T, [5, 7, 1, 5]), sizes=sizes(True))


def test_sizes_of_lengths_and_rows_that_are_named_apart() -> None:
    """The advice is the entry of `sizes` that is missing."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    class Fixed(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return pack_padded_sequence(x, [T, 3], batch_first=True).data

    class Masked(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, lengths: Any) -> Any:
            return x * (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]

    x, lengths = call(True, T, [T, 3])
    packed, rows = tagger("GRU", True, True, "T"), ("B", "T", None)
    cases: list[tuple[Any, Any, Any, str]] = [
        (packed, (x, lengths), {"x": rows}, "2 lengths for B rows: name the axis of the lengths B in sizes, too"),
        (packed, (x, lengths), {"x": {1: "T"}, "lengths": ("B",)}, "B lengths for 2 rows: name the axis of the rows B"),
        (packed, (x, lengths), {"x": rows, "lengths": ("N",)}, "N lengths for B rows: give both axes one name"),
        (
            Fixed(),
            (x,),
            {"x": rows},
            "2 lengths for B rows: the module fixes the lengths; make them an input, or leave B",
        ),
        (Masked(), (x, lengths), {"x": rows}, r"x axis 0 \(B\) is 2 .*: if lengths axis 0 is the same size, name it B"),
    ]
    for module, given, named, said in cases:
        with pytest.raises(li.ModelError, match=said):
            li.from_torch(module, given, sizes=named)


def test_states_and_lengths_as_a_list(seed: int, rng: np.random.Generator) -> None:
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    class Reader(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(I, H)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            return self.layer(pack_padded_sequence(x, [7, 4, 4, 2]), (h, c))[1]

    torch.manual_seed(seed % 2**31)
    given = torch.randn(T, B, I), torch.randn(1, B, H), torch.randn(1, B, H)
    tc.held(Reader(), given, None, [], rng)


def test_a_call_whose_longest_row_is_shorter_than_the_input(seed: int) -> None:
    """PyTorch's result has fewer steps then: a graph's sizes are known before values are."""
    g = li.from_torch(tagger("LSTM", True, False, "none"), call(True, T, [7, 2]), sizes=sizes(True))
    x, lengths = call(True, T, [5, 3])
    with li.compile(g) as exe, pytest.raises(li.ValueRangeError, match=r"pad_packed_sequence .* say total_length=x"):
        exe(x=x.numpy(), lengths=lengths.numpy())
    said = r"pad .* gives 5 steps in the example.* rows have 7: .*total_length=x.*, at test_torch_packed\.py:"
    with pytest.raises(li.ModelError, match=said):
        li.from_torch(tagger("LSTM", True, False, "none"), (x, lengths), sizes=sizes(True))
    with li.compile(g) as exe, pytest.raises(li.ValueRangeError, match="lengths"):
        exe(x=x.numpy(), lengths=np.array([7, 8]))


def test_pytorch_is_as_before(seed: int) -> None:
    """What was exchanged for the time of an export stands again, also after a failure."""
    import torch
    from torch.nn.utils import rnn

    module, given = tagger("LSTM", True, False, "none"), call(True, T, [7, 2])
    before = [f.__code__ for f in (rnn.pack_padded_sequence, rnn.pad_packed_sequence)], torch.nn.LSTM.forward
    wanted = module(*given)[0]
    li.from_torch(module, given, sizes=sizes(True))
    with pytest.raises(li.ModelError):
        li.from_torch(module, (given[0], "no lengths"), sizes=None)
    after = [f.__code__ for f in (rnn.pack_padded_sequence, rnn.pad_packed_sequence)], torch.nn.LSTM.forward
    assert before == after
    assert torch.equal(module(*given)[0], wanted)
    assert module.layer._flat_weights[0] is module.layer.weight_ih_l0
