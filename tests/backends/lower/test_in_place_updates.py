"""What an op writes over is no other value's memory.

IREE 3.13 updates in place what nothing later reads, and then puts ops that can run together before
the ones that read it earlier (backends/lower/own_memory.py). So every operand here is also a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need
from exact_cases import Case, agree

import lstm_ir as li
from lstm_ir.ir.graph import topological

Array = np.ndarray[Any, Any]
Pair = tuple[li.Value, Array]


class Maker:
    """Values of one shape with their numbers, each made of earlier ones."""

    def __init__(self, rng: np.random.Generator, named: bool, dtype: str) -> None:
        self.rng, self.kind = rng, li.DType(dtype)
        rows, columns, count = (int(rng.integers(a, b)) for a, b in ((3, 8), (2, 7), (1, 4)))
        while len({rows, columns, count}) < 3:
            columns, count = columns + 3, count + 1
        self.rows, self.count = rows, count
        shape: tuple[Any, ...] = (rows, columns)
        if named:
            shape = ("R", columns) if rng.random() < 0.5 else ("R", "C")
        some = "K" if named and rng.random() < 0.5 else count
        self.given: dict[str, Array] = {}
        self.x = self.input("x", shape, (rows, columns))
        self.u = self.input("u", (some, shape[1]), (count, columns))
        self.d = self.input("d", (2, shape[1]), (2, columns))
        self.i = self.input("i", (shape[0],), (rows,), rows)
        self.j = self.input("j", (some,), (count,), rows)
        self.s = self.input("s", (), (), rows - 1)
        self.pool = [self.x]
        self.said: list[str] = [str(self.x[0].type)]

    def input(self, name: str, sizes: Any, shape: tuple[int, ...], below: int = 0) -> Pair:
        """Small numbers, whose sums are exact in every dtype; with `below`, indices."""
        kind = li.DType.i32 if below else self.kind
        array = self.rng.integers(0, below if below else 5, shape).astype(kind.numpy)
        self.given[name] = np.asarray(array)
        return li.input(name, sizes, kind), self.given[name]

    def pick(self) -> Pair:
        return self.pool[-1 if self.rng.random() < 0.4 else int(self.rng.integers(len(self.pool)))]

    def add(self, op: Callable[[Maker], Pair]) -> None:
        self.pool.append(op(self))
        self.said.append(op.__name__)

    def case(self) -> Case:
        made = {v: a for v, a in self.pool[1:]}
        pairs = list(made.items())
        order = [pairs[int(k)] for k in self.rng.permutation(len(pairs))]
        outputs = {f"y{k}": v for k, (v, _) in enumerate(order)}
        expected = {f"y{k}": a for k, (_, a) in enumerate(order)}
        inputs = [self.x, self.u, self.d, self.i, self.j, self.s]
        read = set(topological(v.node for v in outputs.values()))
        g = li.Graph("updates", [v for v, _ in inputs if v.node in read], outputs)
        names = [p.node.attrs["name"] for p in g.params]
        return g, {n: self.given[n] for n in names}, expected, "; ".join(self.said)


def _take(m: Maker) -> Pair:
    v, a = m.pick()
    return li.take(v, m.i[0], 0), a[m.i[1]]


def _scatter(m: Maker) -> Pair:
    v, a = m.pick()
    out = a.copy()
    np.add.at(out, m.j[1], m.u[1])
    return li.scatter_add(v, m.j[0], m.u[0]), out


def _scatter_columns(m: Maker) -> Pair:
    v, a = m.pick()
    out = a.copy()
    np.add.at(out, m.j[1], m.u[1])
    turned = li.scatter_add(li.swapaxes(v, 0, 1), m.j[0], li.swapaxes(m.u[0], 0, 1), axis=1)
    return li.swapaxes(turned, 0, 1), out


def _update(m: Maker) -> Pair:
    v, a = m.pick()
    out, at = a.copy(), min(int(m.s[1]), m.rows - 2)
    out[at : at + 2] = m.d[1]
    return li.dynamic_update_slice(v, m.d[0], [m.s[0], 0]), out


def _flat(m: Maker) -> Pair:
    v, a = m.pick()
    out = a.reshape(-1).copy()
    out[int(m.s[1])] = m.d[1][0, 0]
    line = li.reshape(v, (v.shape[0] * v.shape[1],))
    line = li.dynamic_update_slice(line, m.d[0][0, :1], [m.s[0]])
    return li.reshape(line, v.shape), out.reshape(a.shape)


def _padded(m: Maker) -> Pair:
    v, a = m.pick()
    return li.pad(v[1:], [1, 0], [0, 0], value=3), np.concatenate([0 * a[:1] + 3, a[1:]])


def _joined(m: Maker) -> Pair:
    (v, a), (w, b) = m.pick(), m.pick()
    return li.concat([v[:1], w[1:]], 0), np.concatenate([a[:1], b[1:]])


def _turned(m: Maker) -> Pair:
    v, a = m.pick()
    return li.reverse(v, 0), a[::-1]


def _largest(m: Maker) -> Pair:
    (v, a), (w, b) = m.pick(), m.pick()
    return li.maximum(v, w), np.maximum(a, b)


def _again(m: Maker) -> Pair:
    """The same numbers through another shape."""
    v, a = m.pick()
    return li.reshape(li.reshape(v, (1, *v.shape)), v.shape) + 0, a


WRITE = [_scatter, _update, _scatter_columns, _flat]
REST = [_take, _padded, _joined, _turned, _largest, _again]


def _random(rng: np.random.Generator, count: int, named: bool, dtype: str = "i32") -> list[Case]:
    cases = []
    for _ in range(count):
        m = Maker(rng, named, dtype)
        for _ in range(7):
            ops = WRITE if rng.random() < 0.5 else REST
            m.add(ops[int(rng.integers(len(ops)))])
        cases.append(m.case())
    return cases


def _beside_a_twin(rng: np.random.Generator, named: bool, dtype: str) -> list[Case]:
    """Each op that writes, on what each other op made, with a twin, beside another one."""
    cases = []
    for make in (_take, _largest, _scatter, _padded, _again):
        for write in WRITE:
            m = Maker(rng, named, dtype)
            m.add(make)
            m.add(write)
            for op in (write, make, _take):
                held = m.pool
                m.pool = held[1:2] if op is write else held[:1]
                new = op(m)
                m.pool = [*held, new]
            cases.append(m.case())
    return cases


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_random_graphs(rng: np.random.Generator, named: bool) -> None:
    agree(_random(rng, 8 if named else 24, named))


@pytest.mark.parametrize("size", [(5, 4, 6, 7), (9, 3, 2, 8), (64, 33, 40, 50)])
def test_two_gathers_and_an_update(size: tuple[int, int, int, int]) -> None:
    rows, columns, many, more = size
    x, i = li.input("x", (rows, columns)), li.input("i", (many,), "i32")
    j = li.input("j", (more,), "i32")
    a = li.take(x, i, 0)
    b = li.scatter_add(a, li.constant(np.array([1], np.int32)), np.ones((1, columns), np.float32))
    g = li.Graph("three", [x, i, j], {"a": a, "b": b, "c": li.take(x, j, 0)})
    given: dict[str, Array] = {
        "x": np.arange(rows * columns, dtype=np.float32).reshape(rows, columns),
        "i": (np.arange(many) % rows).astype(np.int32),
        "j": (np.arange(more) * 3 % rows).astype(np.int32),
    }
    picked, added = given["x"][given["i"]], given["x"][given["i"]]
    added[1] += 1
    want = {"a": picked, "b": added, "c": given["x"][given["j"]]}
    agree([(g, given, want, str(size))])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "u8", "i32"])
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_more_random_graphs(rng: np.random.Generator, named: bool, dtype: str) -> None:
    agree(_random(rng, 20 if named else 40, named, dtype))
    agree(_beside_a_twin(rng, named, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"pipeline": "o0"}, {"opt_level": "O1"}, {"data_tiling": False}])
def test_with_other_options(rng: np.random.Generator, options: dict[str, Any]) -> None:
    agree(_random(rng, 24, False), **options)
    agree(_beside_a_twin(rng, False, "i32"), **options)


@pytest.mark.vulkan
def test_random_graphs_on_vulkan(rng: np.random.Generator) -> None:
    need("vulkan")
    agree(_random(rng, 5, False), "vulkan")


@pytest.mark.slow
@pytest.mark.vulkan
def test_more_random_graphs_on_vulkan(rng: np.random.Generator) -> None:
    need("vulkan")
    agree(_random(rng, 15, True), "vulkan")
    agree(_beside_a_twin(rng, False, "f32"), "vulkan")


@pytest.mark.parametrize("dtype", ["f64", "i64", "f32"])
def test_two_pads_of_one_value(dtype: str) -> None:
    """Eight bytes that are not 0 are filled in by another way than fewer."""
    cases: list[Case] = []
    kind = li.DType(dtype)
    for value in (3, 0, -0.0, None):
        for sizes in ((4, 5), ("R", 5)):
            x, y = li.input("x", sizes, dtype), li.input("y", sizes, dtype)
            f = li.input("f", (), dtype)
            filled = f if value is None else value
            p, q = (li.pad(v, [1, 0], [0, 2], value=filled) for v in (x, y))
            number = np.asarray(7 if value is None else value, kind.numpy)
            given = {"x": np.ones((4, 5), kind.numpy), "y": np.full((4, 5), 2, kind.numpy)}
            want = {n: np.pad(given[v], ((1, 0), (0, 2)), constant_values=number) for n, v in (("p", "x"), ("q", "y"))}
            inputs = [x, y] if value is not None else [x, y, f]
            given |= {"f": number} if value is None else {}
            g = li.Graph("pads", inputs, {"p": p, "q": q})
            cases.append((g, given, want, f"{dtype} {value} {sizes}"))
    for case in cases:
        agree([case])
