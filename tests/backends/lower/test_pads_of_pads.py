"""Pads with elements between, among other pads and slices.

IREE 3.13 makes one pad of two that have one value, and drops what is between the elements.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from device import need
from exact_cases import Case, agree

import lstm_ir as li
from lstm_ir.ir.graph import topological

Array = np.ndarray[Any, Any]
Ints = list[int]


def _placed(x: Array, low: Ints, high: Ints, between: Ints, value: float) -> Array:
    """Every element put where it belongs, one by one; where that is outside, nowhere."""
    steps = [k + 1 for k in between]
    spans = [(n - 1) * s + 1 for n, s in zip(x.shape, steps, strict=True)]
    sizes = [max(0, n + a + b) for n, a, b in zip(spans, low, high, strict=True)]
    out = np.full(sizes, value, x.dtype)
    for at in np.ndindex(*x.shape):
        there = [a + i * s for a, i, s in zip(low, at, steps, strict=True)]
        if all(0 <= i < n for i, n in zip(there, sizes, strict=True)):
            out[tuple(there)] = x[at]
    return out


def _pair(edges: tuple[int, ...], size: int, named: bool) -> Case:
    a, b, k, c, d, m = edges
    x = li.input("x", ("N" if named else size,))
    given = np.arange(1, size + 1, dtype=np.float32)
    y = li.pad(li.pad(x, [a], [b], [k]), [c], [d], [m])
    want = _placed(_placed(given, [a], [b], [k], 0), [c], [d], [m], 0)
    return li.Graph("pair", [x], {"y": y}), {"x": given}, {"y": want}, f"{edges} of {size}"


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_pairs_of_one_value(named: bool) -> None:
    edges = list(product((-1, 0, 2), (0, 1), (0, 1), (-1, 0, 3), (0, 2), (0, 2)))
    chosen = edges[1::27] if named else edges[::9]
    agree([_pair(e, 6 + k % 3, named) for k, e in enumerate(chosen)])


def _chain(rng: np.random.Generator, named: bool, steps: int) -> Case | None:
    """Pads and slices one after another; None where a size falls to 0."""
    shape = [int(n) for n in rng.integers(2, 7, rng.integers(1, 4))]
    sizes = tuple(f"N{a}" if named and rng.random() < 0.5 else n for a, n in enumerate(shape))
    x, f = li.input("x", sizes), li.input("f", ())
    want: Array = rng.standard_normal(shape).astype(np.float32)
    given: dict[str, Array] = {"x": want, "f": np.asarray(1.5, np.float32)}
    v, said = x, [str(x.type)]
    outputs, expected = dict[str, li.Value](), dict[str, Array]()
    for k in range(steps):
        low, high = (list(map(int, rng.integers(-int(rng.random() < 0.3), 3, v.rank))) for _ in "lh")
        gaps = [int(n) for n in rng.integers(0, 3, v.rank) * (rng.random() < 0.6)]
        value = 0 if rng.random() < 0.8 else (2.5, None)[int(rng.integers(2))]
        if rng.random() < 0.75:
            new = _placed(want, low, high, gaps, 1.5 if value is None else value)
            said.append(f"pad {low} {high} {gaps} {value}")
        else:
            low = [min(1, max(0, a)) for a in low]
            by = [min(2, n + 1) for n in gaps]
            new = want[tuple(np.s_[a::b] for a, b in zip(low, by, strict=True))]
            said.append(f"slice {low} {by}")
        if 0 in new.shape:
            return None
        if said[-1].startswith("pad"):
            v = li.pad(v, low, high, gaps, f if value is None else value)
        else:
            v = li.slice(v, low, v.shape, by)
        want = new
        if k == steps - 1 or rng.random() < 0.3:
            outputs[f"y{k}"], expected[f"y{k}"] = v, want
    read = set(topological(v.node for v in outputs.values()))
    g = li.Graph("chain", [p for p in (x, f) if p.node in read], outputs)
    names = [p.node.attrs["name"] for p in g.params]
    return g, {n: given[n] for n in names}, expected, "; ".join(said)


def _chains(rng: np.random.Generator, count: int, named: bool) -> list[Case]:
    found: list[Case] = []
    while len(found) < count:
        case = _chain(rng, named, int(rng.integers(2, 4)))
        if case is not None and all(_fits(r, case) for r in _requires(case[0])):
            found.append(case)
    return found


def _requires(g: li.Graph) -> list[Any]:
    return list(li.Program("one", {"main": g}).signature().entries["main"].requires)


def _fits(requirement: Any, case: Case) -> bool:
    """Whether the sizes are ones that the graph can be called with."""
    from lstm_ir.ir import dims

    known = {
        d: n for p in case[0].params
        for d, n in zip(map(str, p.type.shape), case[1][p.node.attrs["name"]].shape, strict=True)
    }  # fmt: skip
    return dims.evaluate(requirement.dim, known) >= 0


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_random_chains(rng: np.random.Generator, named: bool) -> None:
    agree(_chains(rng, 6 if named else 12, named))


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("part", range(4))
def test_more_random_chains(rng: np.random.Generator, named: bool, part: int) -> None:
    agree(_chains(rng, 60, named))


@pytest.mark.slow
@pytest.mark.vulkan
def test_random_chains_on_vulkan(rng: np.random.Generator) -> None:
    need("vulkan")
    agree(_chains(rng, 24, False), "vulkan")


def test_every_dtype() -> None:
    cases: list[Case] = []
    shapes: list[tuple[int | str, int]] = [(5, 3), ("N", 3)]
    for kind, sizes in product(li.DType, shapes):
        dtype = kind.value
        x = li.input("x", sizes, dtype)
        given = (np.arange(15).reshape(5, 3) % 2).astype(kind.numpy)
        y = li.pad(li.pad(x, [0, 1], [1, 0], [2, 0]), [1, 0], [2, 3], [0, 0])
        want = _placed(given, [0, 1], [1, 0], [2, 0], 0)
        want = _placed(want, [1, 0], [2, 3], [0, 0], 0)
        g = li.Graph("kinds", [x], {"y": y})
        cases.append((g, {"x": given}, {"y": want}, f"{dtype} {sizes}"))
    agree(cases)


@pytest.mark.parametrize("size", [11, 24])
def test_gradients(rng: np.random.Generator, size: int) -> None:
    """Of strided slices and dilated pads: their cotangents are pads and slices of that kind."""
    x = li.input("x", (size, 3), "f64")
    w = li.weight("w", rng.standard_normal((4, 3, 3)))
    thin = x[1::2, ::2][1::3]
    wide = li.pad(li.pad(x, [0, 0], [0, 0], [1, 2]), [1, 0], [0, 2])
    line = li.expand_dims(li.swapaxes(x, 0, 1), 0)
    seen = li.conv1d(line, w, stride=2, padding=(1, 2), dilation=2)
    loss = li.sum(thin * thin * thin) + li.sum(li.tanh(wide) * wide) + li.sum(li.tanh(seen))
    g = li.grad(li.Graph("strides", [x], {"loss": loss}), "loss", ["x", "w"])
    given = {"x": rng.standard_normal((size, 3))}
    got, want = li.compile(g)(**given), li.interpret(g, given)
    for name, v in want.items():
        np.testing.assert_allclose(got[name], v, rtol=1e-11, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i1"])
def test_cut_at_one_end_and_filled_at_the_other(dtype: str) -> None:
    """Also where nothing is left of the operand."""
    kind = li.DType.of(dtype)
    edges = [(-5, 8), (8, -5), (-3, 3), (2, -2), (-1, 4), (-2, -1)]
    cases: list[Case] = []
    for (low, high), size, named in product(edges, (1, 3, 4, 7), (False, True)):
        if size + low + high < 0:
            continue
        x = li.input("x", ("N" if named else size, 3), dtype)
        given = (np.arange(1, 3 * size + 1).reshape(size, 3) % 4).astype(kind.numpy)
        one = li.constant(kind.numpy.type(1))
        y = li.pad(x, [low, 0], [high, 1], value=one)
        want = _placed(given, [low, 0], [high, 1], [0, 0], 1)
        g = li.Graph("cut", [x], {"y": y})
        cases.append((g, {"x": given}, {"y": want}, f"{low} {high} of {size}, named {named}"))
    agree(cases)
