"""Every builder that is a composition, with its gradient: compiled, many to a module, against its NumPy meaning."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sweep
import tolerances
from builder_case import Case
from builder_elementwise import ACTIVATIONS, CHOICES, MOVES
from builder_layers import LAYERS
from builder_reductions import ORDERS, PRODUCTS, REDUCTIONS, SPOTS
from device import need

import lstm_ir as li

FAMILIES = {
    "activations": ACTIVATIONS, "choices": CHOICES, "moves": MOVES, "reductions": REDUCTIONS, "orders": ORDERS,
    "places": SPOTS, "products": PRODUCTS, "layers": LAYERS,
}  # fmt: skip
# A gradient is a chain of ops, each with its rounding; of 16-bit floats every one of them is to 16 bits.
CHAIN = {("f16", "cpu"): 8e-3, ("bf16", "cpu"): 6e-2, ("f32", "cpu"): 2e-5, ("f64", "cpu"): 1e-11}
VULKAN = {("f16", "cpu"): 1.6e-2, ("bf16", "cpu"): 1e-1, ("f32", "cpu"): 5e-5}


def cases(family: str, kinds: tuple[str, ...], named: bool, seed: int) -> Iterator[sweep.Case]:
    """With gradients where there are some."""
    for c in FAMILIES[family]:
        for kind in (k for k in c.kinds if k in kinds):
            arrays = c.arrays(kind, seed)
            given = {f"x{i}": a for i, a in enumerate(arrays)}
            if c.smooth and li.DType(kind).is_float:
                g = c.differentiated(kind, named)
                values = li.interpret(c.graph(kind, named), given)
                given |= c.cotangents(g, values, kind)
            else:
                g = c.graph(kind, named)
            yield sweep.given(f"{c.name} {kind} {'named' if named else 'numbers'}", g, given, tolerance=CHAIN)


@pytest.mark.parametrize("family", FAMILIES)
def test_on_the_processor(family: str, seed: int) -> None:
    """f32 with named sizes; other types and numbers for sizes by the slow test."""
    sweep.held([*cases(family, ("f32", "i32", "i1"), True, seed)], seed)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["numbers", "names"])
@pytest.mark.parametrize("kinds", ["f32 i32", "f16 bf16 i8 u8", "f64 u32 i64"])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_types_on_the_processor(family: str, kinds: str, sizes: str, seed: int) -> None:
    sweep.held([*cases(family, tuple(kinds.split()), sizes == "names", seed)], seed)


@pytest.mark.vulkan
@pytest.mark.slow_cases(family=[f for f in FAMILIES if f != "choices"])
@pytest.mark.parametrize("family", FAMILIES)
def test_on_vulkan(family: str, seed: int) -> None:
    need("vulkan")
    found = [*cases(family, ("f32", "i32", "i1"), True, seed), *cases(family, ("f32", "f16"), False, seed)]
    sweep.held([of_vulkan(c) for c in found], seed, target="vulkan")


def of_vulkan(c: sweep.Case) -> sweep.Case:
    return sweep.Case(c.name, c.inputs, c.outputs, VULKAN, c.calls, c.alone)


def test_every_family_has_cases() -> None:
    assert {Case} == {type(c) for family in FAMILIES.values() for c in family}
    assert tolerances.ONE_OP["f32", "cpu"] < CHAIN["f32", "cpu"]
