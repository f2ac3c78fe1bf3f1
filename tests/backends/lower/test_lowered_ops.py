"""Samples of every primitive, compiled, against their NumPy meaning: many graphs in one module."""

from __future__ import annotations

import pytest
import sample
import tolerances
from device import need

import lstm_ir as li
from lstm_ir.backends.compile.compiler import compile_mlir
from lstm_ir.backends.module import iree_module
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.executable import Executable
from lstm_ir.ir.opdef import OPS, Level

pytestmark = pytest.mark.slow_on("vulkan")
PER_OP = {"cpu": 8, "vulkan": 3}
PRIMITIVES = [n for n, op in OPS.items() if op.level is Level.primitive]
GROUPS = 8


def spread(op: str, device: str) -> list[sample.Sample]:
    """At most so many samples of one op, evenly over its list."""
    fits = [s for s in sample.samples(op) if device == "cpu" or _narrow(s)]
    step = -(-len(fits) // PER_OP[device]) if fits else 1
    return fits[::step]


def _narrow(s: sample.Sample) -> bool:
    """No f64 anywhere: Vulkan has none."""
    return all(t.dtype is not li.DType.f64 for n in s.graph.nodes for t in n.types)


def batch(group: int, device: str) -> list[sample.Sample]:
    chosen = [s for op in PRIMITIVES[group::GROUPS] for s in spread(op, device)]
    return list({s.name: s for s in chosen}.values())


def run(cases: list[sample.Sample], device: str) -> None:
    """The lowering alone, no passes: each primitive meets its own rule."""
    target = resolve(device)
    program = li.Program("samples", {f"e{i}": s.graph for i, s in enumerate(cases)})
    blob = compile_mlir(iree_module(program, target.info).text, target, name="samples")
    weights = {n: d.array for n, d in program.weights.items()}
    exe = Executable(program.signature(), blob, weights, target)
    for i, s in enumerate(cases):
        want = li.interpret(s.graph, s.inputs)
        got = exe.entries[f"e{i}"](s.inputs)
        for name, w in want.items():
            try:
                tolerances.agree(got[name], w, tolerances.ONE_OP, device)
            except AssertionError as e:
                raise AssertionError(f"{s.name}, output {name}: {e}") from e


@pytest.mark.slow_cases(group=range(1, GROUPS))
@pytest.mark.parametrize("group", range(GROUPS))
def test_cpu(group: int) -> None:
    cases = [s for s in batch(group, "cpu") if not s.graph.weights]
    assert len(cases) > 10
    run(cases, "cpu")


@pytest.mark.vulkan
@pytest.mark.parametrize("group", range(GROUPS))
def test_vulkan(group: int) -> None:
    need("vulkan")
    cases = [s for s in batch(group, "vulkan") if not s.graph.weights]
    assert cases
    run(cases, "vulkan")


@pytest.mark.parametrize("kind", ["u8", "u32", "i1", "bf16", "i64"])
def test_weights_of_every_width(kind: str) -> None:
    (case,) = [s for s in sample.samples("weight") if s.name == f"leaves {kind}"]
    run([case], "cpu")


@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 15, 64])
def test_boolean_literals(size: int) -> None:
    """MLIR reads one byte of bits as a splat."""
    import numpy as np

    w = np.arange(size) % 3 == 1
    x = li.input("x", (size,), "i1")
    graph = li.Graph("bits", [x], {"y": li.logical_xor(x, w)})
    exe = li.compile(graph)
    np.testing.assert_array_equal(exe(x=np.zeros(size, bool))["y"], w)
