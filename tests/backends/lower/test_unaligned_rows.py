"""Parts of rows on Vulkan that begin within a vector of memory: cut, written, shifted, in loops and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Made = Callable[[Any], Any]
B, C = 8, 68  # rows of 17 vectors of four elements, shared out evenly over threads


# By what each form is in this project and in NumPy; the sums make one dispatch of parts that lie in two ways.
FORMS: dict[str, tuple[Made, Made]] = {
    "one part": (lambda x: x[:, 1:65] + x[:, 1:65], lambda a: a[:, 1:65] + a[:, 1:65]),
    "pairs": (lambda x: x[:, 2:66] + x[:, 2:66], lambda a: a[:, 2:66] + a[:, 2:66]),
    "two parts": (lambda x: x[:, 1:65] + x[:, 4:68], lambda a: a[:, 1:65] + a[:, 4:68]),
    "parts of parts": (
        lambda x: x[:, 0:67][:, 1:65] + x[:, 1:66][:, 0:64], lambda a: a[:, 1:65] + a[:, 1:65],
    ),
    "every second row": (lambda x: x[1::2, 1:65] + x[0:-1:2, 2:66], lambda a: a[1::2, 1:65] + a[0:-1:2, 2:66]),
    "every fourth column": (lambda x: x[:, 1:65:4] + x[:, 2:66:4], lambda a: a[:, 1:65:4] + a[:, 2:66:4]),
    "pairs on an axis": (
        lambda x: li.reshape(li.reshape(x, (B, 34, 2))[:, 1:33], (B, 64)) + x[:, :64], lambda a: a[:, 2:66] + a[:, :64],
    ),
    "turned": (
        lambda x: li.transpose(x[:, 1:65] + x[:, 2:66], (1, 0)), lambda a: (a[:, 1:65] + a[:, 2:66]).T,
    ),
    "joined": (
        lambda x: li.concat([x[:, :1], x[:, 1:65] + x[:, 2:66], x[:, 65:]], axis=1),
        lambda a: np.concatenate([a[:, :1], a[:, 1:65] + a[:, 2:66], a[:, 65:]], axis=1),
    ),
    "padded": (
        lambda x: li.pad(x + x, (0, 1), (0, 3)) + li.pad(x, (0, 2), (0, 2)),
        lambda a: np.pad(a + a, ((0, 0), (1, 3))) + np.pad(a, ((0, 0), (2, 2))),
    ),
    "cut by a pad": (
        lambda x: li.pad(x + x, (0, -1), (0, 1)) + x, lambda a: np.pad((a + a)[:, 1:], ((0, 0), (0, 1))) + a,
    ),
}  # fmt: skip
_SUMS: dict[str, tuple[Made, Made]] = {
    "running sums": (lambda x: li.cumsum(x + x, axis=1) + x, lambda a: np.cumsum(a + a, axis=1) + a),
    "from the end": (
        lambda x: li.cumsum(x + x, axis=1, reverse=True) + x,
        lambda a: np.cumsum((a + a)[:, ::-1], axis=1)[:, ::-1] + a,
    ),
    "means of a part": (lambda x: li.mean(x[:, 1:65], axis=1), lambda a: a[:, 1:65].mean(axis=1)),
    "a product": (lambda x: x[:, 1:65] @ li.transpose(x[:, 2:66], (1, 0)), lambda a: a[:, 1:65] @ a[:, 2:66].T),
}  # fmt: skip


@pytest.mark.vulkan
@pytest.mark.slow_cases(dtype=["f16", "i8", "u8"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "f16", "i8", "u8"])
def test_parts_of_rows(dtype: str, rng: np.random.Generator) -> None:
    need("vulkan")
    forms = FORMS | (_SUMS if dtype == "f32" else {})
    x = li.input("x", (B, C), dtype)
    a = rng.integers(0, 9, (B, C)).astype(x.dtype.numpy)
    with li.compile(li.Graph("parts", [x], {n: f(x) for n, (f, _) in forms.items()}), "vulkan") as exe:
        got = exe(x=a)
    for name, (_, f) in forms.items():
        want = f(a.astype("f8") if a.dtype.kind == "f" else a)
        np.testing.assert_allclose(got[name], want, rtol=1e-6, err_msg=name)


@pytest.mark.vulkan
def test_masks(rng: np.random.Generator) -> None:
    need("vulkan")
    x = li.input("x", (B, C), "i1")
    a = rng.integers(0, 2, (B, C)).astype(bool)
    found = {"and": x[:, 1:65] & x[:, 2:66], "joined": li.concat([x[:, :1], x[:, 1:65] & x[:, 2:66]], axis=1)}
    with li.compile(li.Graph("masks", [x], found), "vulkan") as exe:
        got = exe(x=a)
    both = a[:, 1:65] & a[:, 2:66]
    np.testing.assert_array_equal(got["and"], both)
    np.testing.assert_array_equal(got["joined"], np.concatenate([a[:, :1], both], axis=1))


@pytest.mark.vulkan
@pytest.mark.parametrize("rows", [B, "B"])
def test_places_that_a_call_gives(rows: int | str, rng: np.random.Generator) -> None:
    """A part that begins where an input says, cut and written."""
    need("vulkan")
    x, at = li.input("x", (rows, C)), li.input("at", (), "i32")
    part = li.dynamic_slice(x, [0, at], (rows, 64)) * 2.0
    graph = li.Graph("places", [x, at], {"part": part, "whole": li.dynamic_update_slice(x, part, [0, at]) + x})
    a = rng.standard_normal((B, C)).astype("f4")
    with li.compile(graph, "vulkan") as exe:
        for k in range(5):
            got = exe(x=a, at=np.int32(k))
            want = a.copy()
            want[:, k : k + 64] *= 2
            np.testing.assert_array_equal(got["part"], want[:, k : k + 64])
            np.testing.assert_allclose(got["whole"], want + a, rtol=1e-6)


@pytest.mark.vulkan
def test_in_a_loop(rng: np.random.Generator) -> None:
    need("vulkan")
    x, h0 = li.input("x", (5, B, C)), li.input("h0", (B, C))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        y = row[:, 1:65] + h[:, 2:66]
        return li.pad(y, (0, 1), (0, 3)), y

    h_n, y = li.scan(cell, h0, x)
    a, h = rng.standard_normal((5, B, C)).astype("f4"), rng.standard_normal((B, C)).astype("f4")
    with li.compile(li.Graph("loop", [x, h0], {"h_n": h_n, "y": y}), "vulkan") as exe:
        got = exe(x=a, h0=h)
    want = []
    for row in a:
        want.append(row[:, 1:65] + h[:, 2:66])
        h = np.pad(want[-1], ((0, 0), (1, 3)))
    np.testing.assert_allclose(got["y"], np.stack(want), rtol=1e-6)
    np.testing.assert_allclose(got["h_n"], h, rtol=1e-6)


@pytest.mark.vulkan
def test_depthwise_convolutions(rng: np.random.Generator) -> None:
    """Rows of 64 places with edges of 2 on both sides: windows of 68, at five places."""
    need("vulkan")
    x, w = li.input("x", (2, 4, 64)), li.input("w", (4, 1, 5))
    y = li.conv1d(x, w, padding=2, groups=4)
    forward = li.Graph("forward", [x, w], {"y": y, "loss": li.sum(y * y)})
    graph = li.grad(forward, of="loss", wrt=["x", "w"])
    a, k = rng.integers(-3, 4, (2, 4, 64)).astype("f4"), rng.integers(-3, 4, (4, 1, 5)).astype("f4")
    wide = np.pad(a, ((0, 0), (0, 0), (2, 2)))
    want = sum(wide[:, :, i : i + 64] * k[:, 0, i, None] for i in range(5))
    back = np.pad(2 * want, ((0, 0), (0, 0), (2, 2)))
    with li.compile(li.Program("both", {"run": forward, "slopes": graph}), "vulkan") as exe:
        np.testing.assert_array_equal(exe.entries["run"](x=a, w=k)["y"], want)
        got = exe.entries["slopes"](x=a, w=k)
    np.testing.assert_array_equal(got["d_x"], sum(back[:, :, 4 - i : 68 - i] * k[:, 0, i, None] for i in range(5)))
    np.testing.assert_array_equal(
        got["d_w"], np.stack([(2 * want * wide[:, :, i : i + 64]).sum((0, 2)) for i in range(5)], -1)[:, None]
    )


def _moved(v: li.Value, rng: np.random.Generator) -> li.Value:
    """One random move of the elements of [rows, columns], or arithmetic between two."""
    rows, columns = (int(d) for d in v.shape)
    kind = rng.choice(["cut", "cut", "pad", "join", "turn", "back", "pairs", "sum", "sum"])
    if kind == "cut" and columns >= 8:
        low = int(rng.integers(0, 4))
        return v[:, low : low + (columns - low) // 4 * 4]
    if kind == "pad":
        return li.pad(v, (0, int(rng.integers(0, 4))), (0, int(rng.integers(0, 4))))
    if kind == "join":
        return li.concat([v[:, :1], v * 2.0, v[:, :3]], axis=1)
    if kind == "turn":
        return li.transpose(v, (1, 0))
    if kind == "back":
        return li.reverse(v, (1,))
    if kind == "pairs" and rows % 2 == 0:
        return li.reshape(v, (rows // 2, 2 * columns))
    low = int(rng.integers(0, min(4, columns)))
    return v * 3.0 + li.pad(v[:, low:], (0, 0), (0, low))


@pytest.mark.slow
@pytest.mark.vulkan
@pytest.mark.parametrize("part", range(8))
def test_random_moves(part: int, rng: np.random.Generator) -> None:
    """Chains of one to five, of rows that are whole vectors at first."""
    need("vulkan")
    found, given = {}, {}
    for k in range(16):
        shape = tuple(int(d) for d in rng.choice([4, 8, 16, 32, 36, 68], 2))
        given[f"x{k}"] = rng.integers(-9, 10, shape).astype("f4")
        x = v = li.input(f"x{k}", shape)
        for _ in range(rng.integers(1, 6)):
            v = _moved(v, rng)
        found[f"y{k}"] = (x, v * 2.0)
    graph = li.Graph("moves", [x for x, _ in found.values()], {n: y for n, (_, y) in found.items()})
    want = li.interpret(graph, **given)
    with li.compile(graph, "vulkan") as exe:
        got = exe(**given)
    for name, (_, y) in found.items():
        np.testing.assert_array_equal(got[name], want[name], err_msg=f"{name} {y.type}")
