"""Outputs of a stencil that nothing reads are not computed; those that stay keep every bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.loop import Loop
from lstm_ir.ops.primitive.stencil import Taps, stencil
from lstm_ir.passes.pipeline import Pipeline

G, M, E = 2, 6, 3
Read = Callable[[li.Value], dict[str, li.Value]]


def _stencil(groups: int) -> tuple[list[li.Value], li.Value]:
    x, w = li.input("x", (2, groups, E, 5, 4)), li.input("w", (groups, M, E, 3))
    return [x, w], stencil(x, w, Taps((0, 1, 1), (0, 0, 1), low=(1, 0), high=(0, 1)), 5, 4)


def _joined(y: li.Value) -> li.Value:
    """Groups and outputs on one axis, as a convolution gives them."""
    return li.reshape(y, (y.shape[0], y.shape[1] * y.shape[2], *y.shape[3:]))


def _twice(y: li.Value) -> dict[str, li.Value]:
    return {"a": y[:, 3:], "b": y[1:, 4:, 2:]}


NARROWED: dict[str, tuple[int, Read, int]] = {
    "the last": (G, lambda y: {"a": y[:, :, 4:]}, 2),
    "the middle, in two slices": (G, lambda y: {"a": y[:, :, 1:3], "b": y[:, :, 2:4]}, 3),
    "with strides": (G, lambda y: {"a": y[:, :, 1::2]}, 5),
    "and other axes": (G, lambda y: {"a": y[:1, :, :2, 1:, 2:]}, 2),
    "joined": (1, lambda y: _twice(_joined(y)), 3),
    "one is empty": (1, lambda y: {"a": y[:, :, 0:0], "b": y[:, :, 2:]}, 6),
}
WHOLE: dict[str, tuple[int, Read]] = {
    "all parts": (G, lambda y: {"a": y[:, :, :3], "b": y[:, :, 3:]}),
    "an output itself": (G, lambda y: {"a": y[:, :, 4:], "y": y}),
    "another op": (G, lambda y: {"a": y[:, :, 4:], "b": li.tanh(y)}),
    "groups side by side": (G, lambda y: {"a": _joined(y)[:, 3:]}),
    "joined and not": (1, lambda y: {"a": _joined(y)[:, 3:], "b": y[:, :, 3:]}),
    "nothing": (G, lambda y: {"a": y[:, :, 3:3]}),
}


def _after(groups: int, read: Read, rng: np.random.Generator) -> list[int]:
    """How many outputs each stencil has, once values were compared."""
    inputs, y = _stencil(groups)
    graph = li.Graph("g", inputs, read(y))
    after = Pipeline.parse("canonicalize").run(graph).graph
    arrays = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in zip("xw", inputs, strict=True)}
    want, got = li.interpret(graph, arrays), li.interpret(after, arrays)
    for name, v in want.items():
        np.testing.assert_array_equal(got[name], v, err_msg=name)
    return [n.types[0].shape[2] for n in after.nodes if n.op.name == "stencil"]  # type: ignore[misc]


@pytest.mark.parametrize("case", NARROWED)
def test_slices_alone_are_computed(case: str, rng: np.random.Generator) -> None:
    groups, read, outputs = NARROWED[case]
    assert _after(groups, read, rng) == [outputs]


@pytest.mark.parametrize("case", WHOLE)
def test_what_is_read_stays(case: str, rng: np.random.Generator) -> None:
    groups, read = WHOLE[case]
    assert set(_after(groups, read, rng)) <= {M}


def test_the_gradient_of_a_convolution_of_joined_channels(rng: np.random.Generator) -> None:
    """A loop back reads the cotangents of its carry's channels, not of the scanned ones."""
    x, h0, w = li.input("x", (4, 2, 5, 6, 6)), li.input("h", (2, 3, 6, 6)), li.input("w", (3, 8, 3, 3))
    h, _ = li.scan(lambda h, x, w: (li.tanh(li.conv2d(li.concat([x, h], 1), w, padding=1)), None), h0, x, (w,))
    graph = li.grad(li.Graph("g", [x, h0, w], {"loss": li.sum(h * h)}), "loss", ["w", "h"])
    lowered = prepare(graph, resolve("cpu")).optimized.entries["main"]
    bodies = [Loop(n).body for n in lowered.nodes if n.op.name == "scan"]
    outputs = [n.types[0].shape[2] for b in bodies for n in b.nodes if n.op.name == "stencil"]
    assert outputs == [3, 3]  # forward, and back without the 5 scanned channels
    arrays = {"x": (4, 2, 5, 6, 6), "h": (2, 3, 6, 6), "w": (3, 8, 3, 3)}
    given = {n: rng.standard_normal(s).astype(np.float32) * 0.3 for n, s in arrays.items()}
    with li.compile(graph) as exe:
        for name, v in li.interpret(graph, given).items():
            np.testing.assert_allclose(exe(given)[name], v, rtol=1e-4, atol=1e-5, err_msg=name)
