"""Half on Vulkan: products of widened halves, whose fusion IREE gets wrong at some widths."""

import numpy as np
import pytest
from device import need

import lstm_ir as li


def product(kind: str, width: int) -> li.Graph:
    """a^T x over all rows of a reshaped x, as a weight's gradient is."""
    a, x = li.input("a", (6, 32)), li.input("x", (3, 2, width), kind)
    rows = li.reshape(li.convert(x, "f32"), (6, width))
    w = li.dot_general(a, rows, ((0,), (0,)))
    return li.Graph("product", [a, x], {"w": w, "narrow": li.convert(w, kind)})


@pytest.mark.vulkan
def test_products_of_widened_halves(rng: np.random.Generator) -> None:
    need("vulkan")
    entries = {f"w{width}": product("f16", width) for width in (1, 3, 4, 5, 8, 16, 64)}
    exe = li.compile(li.Program("half", entries), "vulkan")
    for name, g in entries.items():
        for _ in range(2):  # other inputs: what a call left in memory is wrong for the next
            given = {
                n: rng.standard_normal(v.shape).astype(v.dtype.numpy)
                for n, v in zip(g.input_names, g.params, strict=True)
            }
            got, want = exe.entries[name](given), li.interpret(g, given)
            np.testing.assert_allclose(got["w"], want["w"], rtol=1e-5, atol=1e-5, err_msg=name)
            np.testing.assert_allclose(got["narrow"], want["narrow"], rtol=2e-3, atol=2e-3)
