"""Forms that IREE takes seconds to compile, or compiles in its second try, are kept from it."""

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.bench.whole.attention import Attention

BARRIER = "compute_barrier.start"


def text(graph: li.Graph) -> str:
    return prepare(graph, resolve("cpu")).text


def test_a_transposition_before_a_reduction_stands_alone() -> None:
    x = li.input("x", ("B", 5, "T"))
    moved = li.transpose(x, (2, 0, 1))
    summed = li.Graph("summed", [x], {"y": li.sum(li.tanh(moved) * 2.0, 2)})
    assert BARRIER in text(summed)
    assert BARRIER not in text(li.Graph("plain", [x], {"y": li.tanh(moved) * 2.0}))
    rows = li.Graph("rows", [x], {"y": li.sum(li.tanh(li.transpose(x, (1, 0, 2))), 2)})
    assert BARRIER not in text(rows)
    a = np.random.default_rng(0).standard_normal((3, 5, 7), np.float32)
    np.testing.assert_allclose(li.compile(summed)(x=a)["y"], (2 * np.tanh(a)).sum(1).T, rtol=1e-5, atol=1e-5)


def test_rows_that_are_scattered_along_another_axis_come_back_alone() -> None:
    x, at = li.input("x", ("T", "N")), li.input("at", ("K",), "i32")
    loss = li.Graph("picked", [x, at], {"loss": li.sum(li.take(li.log_softmax(x), at, axis=1))})
    found = text(li.grad(loss, "loss", ["x"])).splitlines()
    scatter = next(k for k, line in enumerate(found) if "stablehlo.scatter" in line)
    back = next(k for k, line in enumerate(found) if k > scatter and "stablehlo.transpose" in line)
    assert BARRIER in found[back + 1]


def test_a_small_product_whose_readers_give_several_tensors_compiles_the_first_time() -> None:
    """An activation and its slope of a product of low rank: the training steps of rwkv7 and a selective scan."""
    x, w, v, b = (li.input(n, s) for n, s in (("x", (200, 8, 128)), ("w", (128, 8)), ("v", (8, 128)), ("b", (128,))))
    y = li.softplus(x @ w @ v + b)
    forward = li.Graph("rank", [x, w, v, b], {"y": y * y})
    exe = li.compile(li.vjp(forward, ["y"], ["x", "w", "v", "b"]), "cpu:x86-64-v3")
    assert not [n for n in exe.report.notes if n.startswith("compiled ")], exe.report.notes
    assert BARRIER not in text(forward)


@pytest.mark.parametrize("rows", [(1000,), ("T",), ("T", 1), (40, 2)], ids=str)
def test_columns_are_cut_before_their_product(rows: tuple[int | str, ...]) -> None:
    """Of a selective scan of one row: its module took 14 s of iree-compile's processor time, of which this is most."""
    x, w, v = (li.input(n, s) for n, s in (("x", (*rows, 24)), ("w", (24, 56)), ("v", (16, 40))))
    wide = x @ w
    cut = li.Graph("cut", [x, w, v], {"wide": wide, "y": wide[..., 40:] @ v})
    assert BARRIER in text(cut)
    assert BARRIER not in text(li.Graph("few", [w, v], {"y": w[:, 40:] @ v}))  # 24 rows
    assert BARRIER not in text(li.Graph("later", [x, w], {"y": (x[2:] if rows == (1000,) else x) @ w}))
    sizes = tuple(d if isinstance(d, int) else 57 for d in rows)
    a, b, c = (np.random.default_rng(0).standard_normal(s, np.float32) for s in ((*sizes, 24), (24, 56), (16, 40)))
    got = li.compile(cut)(x=a, w=b, v=c)
    np.testing.assert_allclose(got["y"], (a @ b)[..., 40:] @ c, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(got["wide"], a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_gradient_of_attention_compiles_the_first_time() -> None:
    model = Attention(30, 16, training=True)
    exe = li.compile(model.program(names=True), options={"cache": False})
    assert not [n for n in exe.report.notes if n.startswith("compiled ")]
