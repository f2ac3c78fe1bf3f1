"""What follows a convolution is computed by its kernel: biases, scales, activations, residuals, masks, forward and on
the way back, against their definition in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from convolution_cases import LIMIT, Case, near
from kernel_checks import AVX2, BASELINE

import lstm_ir as li
from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]
NOTE = "kernel, a convolution and what follows it"


class Behind(NamedTuple):
    """What follows, as ops and in NumPy; `more` has b and s of each output, one number k, r and i1 f of y's shape; m
    for each row and place, g for each row and output, n for each row, p for each place."""

    build: Callable[[Any, Any], Any]
    numpy: Callable[[Array, dict[str, Array]], Array]


def spread(a: Any, y: Any) -> Any:
    """Numbers of outputs beside y."""
    return (
        a.reshape(-1, *(1,) * (y.ndim - 2)) if isinstance(a, np.ndarray) else li.reshape(a, (-1, *(1,) * (y.rank - 2)))
    )


def logistic(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


BEHIND = {
    "bias, relu": Behind(
        lambda y, m: li.relu(y + spread(m["b"], y)), lambda y, m: np.maximum(y + spread(m["b"], y), 0)
    ),
    "scale, shift": Behind(
        lambda y, m: li.tanh(y * spread(m["s"], y) + spread(m["b"], y)),
        lambda y, m: np.tanh(y * spread(m["s"], y) + spread(m["b"], y)),
    ),
    "one number": Behind(lambda y, m: li.maximum(y, m["k"] * y), lambda y, m: np.maximum(y, m["k"] * y)),
    "residual": Behind(lambda y, m: li.relu(y) + m["r"], lambda y, m: np.maximum(y, 0) + m["r"]),
    "flags": Behind(lambda y, m: li.where(m["f"], y, -1.0), lambda y, m: np.where(m["f"], y, -1)),
    "mask": Behind(
        lambda y, m: li.where(m["m"] > 0.0, y + spread(m["b"], y), 0.0),
        lambda y, m: np.where(m["m"] > 0, y + spread(m["b"], y), 0),
    ),
    "gates": Behind(lambda y, m: y * m["g"] + m["n"] - m["p"], lambda y, m: y * m["g"] + m["n"] - m["p"]),
    "swish": Behind(
        lambda y, m: li.silu(y + spread(m["b"], y)),
        lambda y, m: (y + spread(m["b"], y)) * logistic(y + spread(m["b"], y)),
    ),
}  # fmt: skip
CASES = {
    "stride": Case("conv", 2, 20, (51,), (5,), 33, (2,), ((2, 2),)),
    "named": Case("conv", "N", 33, ("L",), (3,), 100, padding=((1, 1),)),
    "groups": Case("conv", "N", 48, ("L",), (5,), 96, padding=((2, 2),), groups=2),
    "planes": Case("conv", "N", 24, ("H", "W"), (3, 3), 40, (2, 1), ((1, 1), (1, 1))),
    "one tap": Case("conv", 3, 65, (45,), (1,), 112),
    "first layer": Case("conv", "N", 1, ("H", 31), (3, 3), 64, padding=((1, 1), (1, 1))),
    "two phases": Case("transposed", 2, 18, (31,), (5,), 36, (2,), more=(1,)),
    "four phases": Case("transposed", "N", 20, ("H", "W"), (3, 4), 24, (2, 2), ((1, 0), (0, 1))),
    "by channel": Case("conv", "N", 21, ("L",), (7,), 21, padding=((3, 3),), groups=21),
    "few": Case("conv", "N", 4, ("H", 40), (3, 2), 9, padding=((1, 1), (1, 0))),
    "f64": Case("conv", "N", 10, ("L",), (3,), 20, (2,), ((1, 1),), dtype="f64"),
}


def shapes(y: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    rows, outputs, *places = y
    one = (1,) * len(places)
    flat = {"b": (outputs,), "s": (outputs,), "k": (), "r": y, "m": (rows, 1, *places)}
    return flat | {"g": (rows, outputs, *one), "n": (rows, 1, *one), "p": (1, 1, *places)}


def graph(c: Case, behind: Behind) -> li.Graph:
    forward = c.forward()
    x, w, _ = forward.params
    y = c.build(x, w, None)
    more = {n: li.input(n, s, c.dtype) for n, s in shapes(y.shape).items()} | {"f": li.input("f", y.shape, "i1")}
    return li.Graph("behind", [x, w, *more.values()], {"y": behind.build(y, more)})


def arrays(c: Case, r: np.random.Generator, batch: int, sizes: tuple[int, ...]) -> dict[str, Array]:
    given = c.arrays(r, batch, sizes)
    y = given.pop("ct_y").shape
    more = {n: np.asarray(r.standard_normal(s), given["x"].dtype) for n, s in shapes(y).items()}
    return given | more | {"f": np.asarray(r.random(y) < 0.5)}


def compare(cases: list[Case], names: list[str], seed: int, **how: Any) -> None:
    pairs = [(c, BEHIND[n]) for c in cases for n in names]
    exe = li.compile(Program("steps", {f"c{i}": graph(*pair) for i, pair in enumerate(pairs)}), **how)
    assert sum(NOTE in n for n in exe.report.notes) == len(pairs)
    for i, (c, behind) in enumerate(pairs):
        for batch, sizes in c.calls():
            given = arrays(c, np.random.default_rng([seed, i, batch]), batch, sizes)
            zero = np.zeros((batch, c.outputs, *c.steps(sizes)))
            y = c.expected(x=given["x"], w=given["w"], b=np.zeros(c.outputs), ct_y=zero)["y"]
            got = exe.entries[f"c{i}"]({p.name: given[p.name] for p in exe.entries[f"c{i}"].entry.inputs})["y"]
            near(
                got,
                behind.numpy(y, given),
                LIMIT[c.dtype],
                f"seed {seed}: {c} {(batch, sizes)} {names[i % len(names)]}",
            )


@pytest.mark.parametrize("name", BEHIND)
def test_the_same_numbers(name: str, seed: int) -> None:
    compare(list(CASES.values()), [name], seed, device="local-sync")


@pytest.mark.parametrize("word", [AVX2, BASELINE])
def test_the_same_numbers_with_other_vectors(word: str, seed: int) -> None:
    compare(
        [CASES[n] for n in ("named", "groups", "four phases", "few", "f64")], ["bias, relu", "flags"], seed, target=word
    )


@pytest.mark.parametrize("name", ["stride", "named", "planes", "two phases", "four phases"])
def test_gradients_of_whole_numbers(name: str, seed: int) -> None:
    """Sums are exact, so that no mask differs: what was 0 or less passes nothing on, and is done by the kernel too."""
    c = CASES[name]
    forward = c.forward()
    x, w, b = forward.params
    hidden = li.relu(c.build(x, w, b))
    second = li.input("v", (16, c.outputs, *(1,) * c.rank))
    y = (li.conv1d, li.conv2d)[c.rank - 1](hidden, second)
    net = li.Graph("net", [x, w, b, second], {"y": y})
    exe = li.compile(li.vjp(net, ["y"], ["x", "w", "b"]))
    for batch, sizes in c.calls():
        r = np.random.default_rng([seed, batch])
        given = {k: np.round(2 * a) for k, a in c.arrays(r, batch, sizes).items()}
        v = np.round(2 * r.standard_normal(second.shape)).astype("f4")
        z = c.expected(**given)["y"]
        ct = np.round(2 * r.standard_normal((batch, 16, *z.shape[2:]))).astype("f4")
        back = np.einsum("no...,oh->nh...", ct, v.reshape(16, c.outputs)) * (z > 0)
        want = c.expected(**{**given, "ct_y": back})
        got = exe(x=given["x"], w=given["w"], b=given["b"], v=v, ct_y=ct)
        for key in ("d_x", "d_w", "d_b"):
            near(got[key], want[key], 1e-6, f"seed {seed}: {c} {(batch, sizes)} {key}")


def test_what_stays_apart(seed: int) -> None:
    """Few outputs whose places are no neighbours, and what is read before it is followed."""
    few = Case("conv", "N", 4, ("L",), (3,), 4, (2,))
    exe = li.compile(graph(few, BEHIND["bias, relu"]))
    assert not any(NOTE in n for n in exe.report.notes)
    c = CASES["named"]
    x, w, b = c.forward().params
    y = c.build(x, w, b)
    both = li.compile(li.Graph("both", [x, w, b], {"y": y, "z": li.tanh(y)}))
    given = c.arrays(np.random.default_rng(seed), 2, (17,))
    want = c.expected(**given)["y"]
    got = both(x=given["x"], w=given["w"], b=given["b"])
    near(got["y"], want, LIMIT["f32"], f"seed {seed}")
    near(got["z"], np.tanh(want), LIMIT["f32"], f"seed {seed}")
