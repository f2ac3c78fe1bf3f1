"""Stacked rows written over scanned rows: where it is safe, and that numbers stay what they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.kernels.body.in_place import overwritten
from lstm_ir.backends.kernels.body.planner import make_plan
from lstm_ir.backends.kernels.cpu import dispatch
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.backends.run.devices import resolve

Step = Callable[[li.Value, li.Value], tuple[li.Value, li.Value]]
H = 20


def _blocks(row: li.Value) -> tuple[li.Value, li.Value]:
    return row[:, :H], row[:, H:]


def _columns(carry: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
    """Both blocks of a column are read, then both are written."""
    a, b = _blocks(row)
    new = carry * 0.5 + a * b
    return new, li.concat([new - b, a + new], 1)


def _crossed(carry: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
    """A column writes where another column, later, still reads."""
    a, b = _blocks(row)
    new = carry * 0.5 + a
    turned = li.concat([row[:, H // 2 : H], row[:, : H // 2]], 1)
    return new, li.concat([new, b + turned], 1)


def _product(carry: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
    """Every column needs the whole row."""
    w = np.random.default_rng(5).standard_normal((2 * H, H)).astype(np.float32) * 0.1
    new = carry * 0.5 + li.matmul(row, li.constant(w))
    return new, li.concat([new, new], 1)


def _residual(carry: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
    """A product reads the whole row, and every column itself too."""
    w = np.random.default_rng(5).standard_normal((2 * H, H)).astype(np.float32) * 0.1
    new = carry * 0.5 + li.matmul(row, li.constant(w)) + row[:, :H]
    return new, li.concat([new, new - row[:, H:]], 1)


def _apart(carry: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
    """The product is for another result, which no carry joins to the rest."""
    w = np.random.default_rng(5).standard_normal((2 * H, H)).astype(np.float32) * 0.1
    new = carry * 0.5 + row[:, :H]
    return new, li.concat([new, li.matmul(row, li.constant(w)) * 0.5], 1)


def _sums(carry: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
    new = carry * 0.5 + li.sum(row, 1, keepdims=True)
    return new, li.concat([new, new], 1)


def _graph(step: Step, *, again: bool = False, reverse: bool = False) -> li.Graph:
    """A loop makes rows [T,B,2H], a second one reads them and stacks as many."""
    x = li.input("x", ("T", "B", 2 * H))
    zero, wide = li.zeros(("B", H), "f32"), li.zeros(("B", 2 * H), "f32")
    _, rows = li.scan(lambda c, r: (c * 0.25 + r, c - r), wide, x)
    last, out = li.scan(step, zero, rows, reverse=[True, not reverse])
    outputs = {"last": last, "out": out}
    return li.Graph("two", [x], outputs | ({"rows": rows} if again else {}))


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[li.TensorType]:
    """Results that took the memory of an operand."""
    types: list[li.TensorType] = []
    original = dispatch.Dispatch.replaced

    def seen(self: dispatch.Dispatch, m: Memory, t: li.TensorType) -> Memory:
        types.append(t)
        return original(self, m, t)

    monkeypatch.setattr(dispatch.Dispatch, "replaced", seen)
    return types


def _plan_of_the_second(g: li.Graph) -> dict[int, int]:
    _, second = [n for n in g.nodes if n.op.name == "scan"]
    return overwritten(make_plan(second, False))


@pytest.mark.parametrize(
    ("step", "fits"),
    [(_columns, True), (_crossed, False), (_product, False), (_residual, False), (_apart, False), (_sums, False)],
)
def test_what_may_be_written_over(step: Step, fits: bool) -> None:
    assert _plan_of_the_second(_graph(step)) == ({0: 0} if fits else {})
    assert _plan_of_the_second(_graph(step, reverse=True)) == {}  # another order of rows


@pytest.mark.parametrize("again", [False, True], ids=["alone", "also an output"])
@pytest.mark.parametrize("step", [_columns, _crossed, _product, _residual, _apart])
def test_numbers_are_those_of_the_interpreter(
    rng: np.random.Generator, step: Step, again: bool, replaced: list[li.TensorType]
) -> None:
    g = _graph(step, again=again)
    exe = li.compile(g)
    assert all(": kernel" in n for n in exe.report.notes if n.startswith("scan"))
    assert len(replaced) == (1 if step is _columns and not again else 0)
    for T, B in [(5, 3), (1, 1), (0, 2), (2, 0), (9, 18)]:
        x = rng.standard_normal((T, B, 2 * H)).astype(np.float32)
        got, want = exe(x=x), li.interpret(g, {"x": x})
        for name, v in want.items():
            np.testing.assert_allclose(got[name], v, rtol=2e-5, atol=2e-5, err_msg=name)


def test_a_row_that_other_rows_read_is_not_written_over(
    rng: np.random.Generator, replaced: list[li.TensorType]
) -> None:
    x = li.input("x", (5, 4, H))
    zero = li.zeros((4, H))
    _, rows = li.scan(lambda c, r: (c * 0.25 + r, c - r), zero, x)

    def step(c: li.Value, r: li.Value) -> tuple[li.Value, li.Value]:
        c = li.sin(c * 0.5 + r)
        return c, c + li.broadcast_to(r[0:1], r.shape)

    _, out = li.scan(step, zero, rows)
    g = li.Graph("first", [x], {"out": out})
    exe = li.compile(g)
    assert all(": kernel" in n for n in exe.report.notes if n.startswith("scan"))
    a = rng.standard_normal((5, 4, H)).astype(np.float32)
    np.testing.assert_allclose(exe(x=a)["out"], li.interpret(g, x=a)["out"], rtol=2e-5, atol=2e-5)
    assert replaced == []


def test_a_product_before_the_loop_reads_rows_that_stay(
    rng: np.random.Generator, replaced: list[li.TensorType]
) -> None:
    """One row: the kernel makes the product of all steps, while another component stacks rows."""
    x, zero = li.input("x", (5, 1, H)), li.zeros((1, H))
    u = li.weight("u", rng.uniform(-0.3, 0.3, (H, H)).astype(np.float32))
    _, rows = li.scan(lambda c, r: (li.tanh(c * 0.5 + r), c * 0.5 + r), zero, x)

    def step(c: li.Value, r: li.Value, u: li.Value) -> tuple[li.Value, tuple[li.Value, li.Value]]:
        c = li.tanh(c * 0.5 + r)
        return c, (c, r @ u * 0.5)

    _, (y, z) = li.scan(step, zero, rows, (u,))
    g = li.Graph("before", [x], {"y": y, "z": z})
    exe = li.compile(g)
    assert all(": kernel" in n for n in exe.report.notes if n.startswith("scan"))
    a = rng.standard_normal((5, 1, H)).astype(np.float32)
    got, want = exe(x=a), li.interpret(g, x=a)
    for name, v in want.items():
        np.testing.assert_allclose(got[name], v, rtol=2e-5, atol=2e-5, err_msg=name)
    assert replaced == []


def test_the_backward_of_an_lstm_writes_over_its_gates(replaced: list[li.TensorType]) -> None:
    x = li.input("x", (6, 3, 5))
    shapes = ((80, 5), (80, 20))
    w = [np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in shapes]
    y = li.lstm(x, *(li.weight(f"w{i}", a) for i, a in enumerate(w)))[0]
    g = li.grad(li.Graph("l", [x], {"loss": li.sum(y * y)}), "loss", ["x", "w0", "w1"])
    prepare(g, resolve("cpu"))
    assert [str(t) for t in replaced] == ["f32[6,3,80]"]
