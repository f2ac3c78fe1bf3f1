"""Functions at zeros of both signs, tiny and huge values, infinities and NaN: relative errors, signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]
FUNCTIONS: dict[str, tuple[Callable[[li.Value], li.Value], Callable[[Array], Array]]] = {
    "tanh": (li.tanh, np.tanh), "expm1": (li.expm1, np.expm1), "log1p": (li.log1p, np.log1p),
    "sin": (li.sin, np.sin), "cos": (li.cos, np.cos), "exp": (li.exp, np.exp),
    "sqrt": (li.sqrt, np.sqrt), "ceil": (li.ceil, np.ceil), "floor": (li.floor, np.floor),
    "erf": (li.erf, lambda x: x * (2 / np.sqrt(np.pi))),
}  # fmt: skip
SMALL = (0.0, 1e-300, 1e-160, 1e-30, 1e-20, 1e-17, 1e-12, 1e-9, 1e-7)
PLAIN = (1e-5, 1e-3, 0.1, 0.3, 0.349, 0.351, 0.5, 1.0, 1.5, 2.5, 3.0, 20.0)
HUGE = (355.0, 400.0, 709.0, 710.0, 1e15, np.inf, np.nan)


def points(rng: np.random.Generator, kind: str, low: bool) -> Array:
    """Both signs; nothing below the smallest normal number, which IREE's threads take for 0."""
    x = np.array(SMALL if low else (*SMALL, *PLAIN, *HUGE, *rng.uniform(0, 3, 20)))
    a = np.concatenate([x, -x]).astype(li.DType(kind).numpy)
    kept: Array = a[(np.abs(a) >= np.finfo(a.dtype).tiny) | (a == 0) | np.isnan(a)]
    return kept


def graph(name: str, kind: str, size: int, kernel: bool) -> li.Graph:
    f = FUNCTIONS[name][0]
    x = li.input("x", (2, 1, size), kind)
    if not kernel:
        return li.Graph(name, [x], {"y": f(x)})
    # The carry keeps the function in the loop: it is never above 1.
    first = li.zeros((1, size), kind)
    _, y = li.scan(lambda h, row: (h, f(li.select(h > 1, h, row))), first, x)
    return li.Graph(name, [x], {"y": y})


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("kind", [pytest.param("f32", marks=pytest.mark.slow), "f64"])
def test_relative_errors_and_signs(rng: np.random.Generator, kind: str, kernel: bool) -> None:
    held(rng, {"f32": 3e-6, "f64": 1e-13}[kind], list(FUNCTIONS), kind, kernel, "cpu")


@pytest.mark.vulkan
@pytest.mark.parametrize("kernel", [False, True])
def test_near_zero_on_vulkan(rng: np.random.Generator, kernel: bool) -> None:
    """SPIR-V has neither function: of exp(x) - 1 and log(1 + x) no digit is left near 0."""
    need("vulkan")
    held(rng, 3e-6, ["expm1", "log1p"], "f32", kernel, "vulkan")


def held(rng: np.random.Generator, limit: float, names: list[str], kind: str, kernel: bool, target: str) -> None:
    """Compiled functions against the interpreter and against NumPy, by relative errors and signs."""
    given = {n: points(rng, kind, low=n == "erf") for n in names}
    graphs = {n: graph(n, kind, a.size, kernel) for n, a in given.items()}
    exe = li.compile(li.Program("formulas", graphs), target)
    for name, g in graphs.items():
        x = np.stack([given[name]] * 2)[:, None]
        got = exe.entries[name](x=x)["y"]
        with np.errstate(all="ignore"):
            wants = li.interpret(g, x=x)["y"], FUNCTIONS[name][1](x)
        for want in wants:
            normal = (np.abs(want) >= np.finfo(want.dtype).tiny) | (want == 0) | np.isnan(want)
            a, b = got[normal], want[normal]
            near_zero = (name in ("sin", "cos")) & (np.abs(b) < 1e-3) & (np.abs(x[normal]) > 1)
            with np.errstate(invalid="ignore"):
                close = np.abs(a - b) <= limit * np.where(near_zero, 1, np.abs(b))
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | close
            same &= np.isnan(b) | (np.signbit(a) == np.signbit(b))
            at = x[normal][~same]
            assert same.all(), f"{name}({at[:5]}) is {a[~same][:5]}, not {b[~same][:5]}"
