"""A loop without kernels starts from memory of its own.

IREE 3.13 takes the offset of what a loop carries first for 0, where it is not (`first_carried`).
"""

from __future__ import annotations

from collections.abc import Callable

import layer_cases
import numpy as np
import pytest
import tolerances
from device import need

import lstm_ir as li

LOOPS = {"kernels": False}
B, H = 2, 3


def _read_again() -> li.Graph:
    """Rows that the loop and what follows it read: made in the submission that makes its start."""
    x, s = li.input("x", ("T", "B", H)), li.input("s", ("B", H))
    z = li.tanh(x)
    c, ys = li.scan(lambda c, row: (c * 0.5 + row, c * 2.0), li.exp(s), z)
    return li.Graph("g", [x, s], {"y": li.sum(ys * z, (0,)), "c": c * 2.0})


def _count_and_hold() -> li.Graph:
    """The start is a sum over rows; steps read a choice of rows, made before the loop."""
    operands, attrs = layer_cases.build("lstm", "count+hold", np.float32, sizes=(1, 1, H, H, H))
    g = layer_cases.graph("lstm", operands, attrs)
    return li.vjp(g, ["y", "h_n"], ["x", "w_hh"])


def _running_sums() -> li.Graph:
    """A running sum's start is what the submission makes that also makes other tensors."""
    x = li.input("x", ("T", "B", H))
    u, v = li.exp(x), li.tanh(x)
    first = li.cumsum(v, 0, exclusive=True)
    return li.Graph("g", [x], {"y": li.sum(first * u, (2,)), "p": li.sum(v * u, (0,))})


@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("make", [_count_and_hold, _read_again, _running_sums])
def test_a_loop_starts_from_memory_of_its_own(make: Callable[[], li.Graph], device: str) -> None:
    if device != "cpu":
        need(device)
    g = make()
    exe = li.compile(g, device, options=LOOPS)
    for T in (1, 11, 40):
        rng, given = np.random.default_rng(T), {}
        for p in g.params:
            shape = [{"T": T, "B": B}.get(str(d)) or int(str(d)) for d in p.shape]
            given[p.node.attrs["name"]] = np.asarray(T, "i4") if not shape else rng.uniform(-1, 1, shape).astype("f4")
        got = exe(given)
        for k, v in li.interpret(g, given).items():
            tolerances.agree(got[k], v, tolerances.RECURRENCE, device)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "i32", "bf16"])
def test_running_sums_beside_what_they_sum(dtype: str, reverse: bool) -> None:
    """The compiler refused some of these ("circular dependency"), and others were wrong."""
    x = li.input("x", ("T", "B", H), "i32")
    u, v = li.convert(x * 2, dtype), li.convert(x + 1, dtype)
    outs = {"u": u, "v": v, "product": li.sum(u * v, (0,))}
    for name, exclusive in (("incl", False), ("excl", True)):
        outs[name] = li.cumsum(v, 0, reverse, exclusive)
        outs[name + "_read"] = outs[name] * u
    g = li.Graph("g", [x], {k: li.convert(w, "f32") for k, w in outs.items()})
    exe = li.compile(g, options=LOOPS)
    for T in (0, 1, 2, 11, 32):
        given = {"x": np.random.default_rng(T).integers(-1, 2, (T, B, H)).astype("i4")}
        got = exe(given)
        for k, want in li.interpret(g, given).items():  # small whole numbers: exact in any type
            np.testing.assert_array_equal(got[k], want, k)


LSTM = """graph @g(%x: f32[T,N,2], %w: f32[1,8,2], %p: f32[1,N,2], %ct: f32[1,N,2]) {
  %0 = weight() {name="r", value=[[[0.15, -0.01], [0.42, 0.19], [-0.35, 0.72], [0.94, -0.64], [-0.23, -0.4], [0.18, -0.17], [-0.23, -0.06], [-0.28, 0.2]]]} : f32[1,8,2]
  %1, %2, %3, %4, %5, %6 = lstm(%x, %0, %w, _, _, _, _, _, _, _, %p) {direction="reverse", save=true} : f32[T,N,2], f32[1,N,2], f32[1,N,2], f32[T,N,8], f32[T,N,2], f32[T,N,2]
  %7 = cumsum(%2) {axis=0, reverse=true, exclusive=true} : f32[1,N,2]
  %8 = cumsum(%ct) {axis=0, exclusive=true} : f32[1,N,2]
  %9, %10, %11, %12 = lstm_grad(%x, %0, %w, _, _, _, _, _, _, _, %p, %1, %4, %5, %6, _, %8, _, _, _, _) {direction="reverse"} : f32[T,N,2], f32[1,8,2], f32[1,8,2], f32[1,N,2]
  return y=%7, d_x=%9, d_w=%11, d_p=%12
}"""  # noqa: E501  a line of the text form


def test_two_running_sums_of_one_element() -> None:
    """Both began with one buffer of zeros, which was freed for each: "transient buffer has not been committed"."""
    g = li.parse(LSTM)
    assert isinstance(g, li.Graph)
    rng = np.random.default_rng(3)
    with li.compile(g, device="local-task") as exe:
        for T, N in ((9, 4), (1, 1), (5, 3)):
            shapes = [[{"T": T, "N": N}.get(str(d)) or int(str(d)) for d in p.shape] for p in g.params]
            given = {n: rng.standard_normal(s).astype("f4") for n, s in zip(g.input_names, shapes, strict=True)}
            got = exe(given)
            for k, want in li.interpret(g, given).items():
                tolerances.agree(got[k], want, tolerances.RECURRENCE, "cpu")
