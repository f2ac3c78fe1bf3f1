"""GPU modules hold each entry again for names of sizes that are 0."""

from __future__ import annotations

import itertools

import device
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.module import empty_variants


def _graph(*names: str) -> li.Graph:
    rows = [li.input(n.lower(), (n, 3)) for n in names]
    return li.Graph("rows", rows, {v.node.attrs["name"] + "2": v * 2.0 for v in rows})


@pytest.mark.parametrize(
    ("names", "known"), [("A", "A"), ("AB", "A B A.B"), ("ABC", "A B C A.B A.C B.C A.B.C"), ("ABCD", "A B C D A.B.C.D")]
)
def test_names_that_are_0(names: str, known: str) -> None:
    """Of up to three names all sets, of more one or all."""
    assert [suffix for suffix, _ in empty_variants(_graph(*names))] == known.split()


def test_any_of_three_sizes_on_vulkan(rng: np.random.Generator) -> None:
    device.need("vulkan")
    with li.compile(_graph("A", "B", "C"), "vulkan") as exe:
        for sizes in itertools.product((0, 2), (5, 0), (0, 7)):
            given = {n: rng.standard_normal((k, 3), np.float32) for n, k in zip("abc", sizes, strict=True)}
            got = exe(given)
            for n, a in given.items():
                np.testing.assert_array_equal(got[f"{n}2"], a * 2)


def test_literals_that_an_empty_size_does_not_allow(rng: np.random.Generator) -> None:
    """Rows reversed over literal lengths: of no steps there is no variant, and such a call is refused."""
    device.need("vulkan")
    lengths = np.array([3, 2])
    x = li.input("x", ("T", 2))
    graph = li.Graph("reversed", [x], {"y": li.reverse_sequence(x, li.constant(lengths))})
    assert list(empty_variants(graph)) == []
    a = rng.standard_normal((5, 2), np.float32)
    want = a.copy()
    for column, n in enumerate(lengths):
        want[:n, column] = a[:n, column][::-1]
    with li.compile(graph, "vulkan") as exe:
        np.testing.assert_array_equal(exe(x=a)["y"], want)
        with pytest.raises(li.CallError):
            exe(x=a[:0])
