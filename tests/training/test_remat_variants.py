"""Gradients with remat over named sizes, for GPUs: their modules have variants for sizes of 0."""

from __future__ import annotations

import numpy as np
import pytest
from device import need
from iree.compiler import ir

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.module import iree_module
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.errors import CompileError
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType, TensorType


def graph() -> li.Graph:
    """A loop whose weight is used in the body and wanted back."""
    x = li.input("x", ("T", "B", 3))
    r = np.random.default_rng(5)
    w = li.weight("w", r.normal(0, 0.4, (3, 3)).astype(np.float32))

    def cell(h: li.Value, xt: li.Value) -> tuple[li.Value, li.Value]:
        h = li.tanh(h @ w + xt)
        return h, h

    _, y = li.scan(cell, li.zeros(("B", 3)), x)
    return li.grad(li.Graph("g", [x], {"loss": li.sum(y * y)}), "loss", ["w", "x"], remat=3)


@pytest.mark.parametrize("target", ["vulkan", "cuda:sm_89", "hip:gfx942", "metal"])
def test_a_gradient_with_remat_is_lowered(target: str) -> None:
    text = prepare(graph(), resolve(target)).text
    assert ".empty.T" in text


@pytest.mark.slow
def test_a_gradient_with_remat_on_vulkan() -> None:
    need("vulkan")
    g = graph()
    exe = li.compile(g, "vulkan")
    r = np.random.default_rng(6)
    for length, rows in ((5, 2), (6, 2), (3, 2), (1, 2), (0, 2), (5, 0)):  # also whole segments alone, and none
        values = {"x": r.normal(0, 1, (length, rows, 3)).astype(np.float32)}
        got, want = exe(values), li.interpret(g, values)
        assert got.keys() == want.keys()
        for name, a in want.items():
            np.testing.assert_allclose(got[name], a, rtol=2e-5, atol=2e-6, err_msg=name)


def test_what_mlir_refuses_is_a_compile_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the op and the line in the model."""
    plain = Emitter.hlo

    def wrong(e: Emitter, name: str, operands: list[ir.Value], result: TensorType, **attrs: ir.Attribute) -> ir.Value:
        if name == "tanh":  # of 4 numbers, 9
            e.op("stablehlo.tanh", operands, TensorType((9,), DType.f32))
        return plain(e, name, operands, result, **attrs)

    monkeypatch.setattr(Emitter, "hlo", wrong)
    x = li.input("x", (4,))
    info: TargetInfo = resolve("vulkan").info
    said = r"(?s)tanh: MLIR refused it: .*at test_remat_variants.py:\d+"
    with pytest.raises(CompileError, match=said):
        iree_module(li.Program.of(li.Graph("g", [x], {"y": li.tanh(x)})), info)
