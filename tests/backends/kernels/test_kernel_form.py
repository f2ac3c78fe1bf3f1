"""Kernels of one form are one executable: layers of unequal width are compiled once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.emit.options import DispatchLimits, Options, Thresholds
from lstm_ir.backends.kernels.text.form import form, merged
from lstm_ir.backends.kernels.text.kernel import BINDING, Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, on_stack
from lstm_ir.backends.kernels.text.statements import CallStatement, Name, argument
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.backends.module import iree_module
from lstm_ir.backends.run.devices import resolve

SAME = {"w": 8, "at": 3, "divisor": 4, "step": 2, "buffer": 16}


def _kernel(**numbers: int) -> Kernel:
    """Two functions; the entry reads a memory and gives another one to the first."""
    n = {**SAME, **numbers}
    t = Text(0)
    m = Memory("%a1", "f32", (n["w"],))
    m.store(t, t.constant("0.0", "f32"), [t.index(n["at"])])
    part = t.function("_component_0", KernelSignature((), (argument("a0"), m.ref), ()))
    t = Text(0)
    d0, read, written = argument("d0"), Name("%b_in0", BINDING), Name("%b_out0", BINDING)
    source, out = Memory("%m_in0", "f32", (d0, n["w"])), Memory("%m_out0", "f32", (n["w"],))
    zero = t.index(0)
    on_stack(t, "f32", (n["buffer"],))
    t.put(source.subspan(read, zero))
    t.put(out.subspan(written, zero))
    end = t.binary("divui", d0, t.index(n["divisor"]))
    with t.loop(zero, end, t.index(n["step"])) as i:
        source.load(t, [i, zero])
    t.call(CallStatement(part.name, (d0, out.ref), ("index", out.kind)))
    taken = KernelSignature((read,), (d0,), (written,))
    return Kernel((part, t.function("", taken, called_by_iree())))


def _plain(kernel: Kernel) -> list[str]:
    """Lines, with constants where they are used."""
    lines, constants = [], dict[str, str]()
    for line in kernel.text("f").split("\n"):
        if line.startswith("func.func"):
            constants.clear()
        m = re.fullmatch(r"(%[ck]\d+) = arith\.constant (.*)", line)
        if m is not None:
            constants[m[1]] = m[2]
            continue
        for used in re.findall(r"%[ck]\d+", line):
            line = re.sub(rf"{used}\b", f"<{constants[used]}>", line)
        lines.append(line)
    return lines


def test_a_kernel_without_numbers_to_pass_stays_as_it_is() -> None:
    kernel = _kernel()
    again, columns = merged([form(kernel)])
    assert columns == []
    assert _plain(again) == _plain(kernel)


def test_numbers_that_differ_are_arguments() -> None:
    # One kernel has a constant where the other one has two: what counts is where they are used.
    a, b = _kernel(w=9, at=0), _kernel(w=33, at=7)
    assert form(a).kernel == form(b).kernel
    assert a.length == b.length
    kernel, columns = merged([form(a), form(b)])
    assert columns == [(9, 33), (0, 7)]
    text = kernel.text("f")
    lines = text.split("\n")
    assert lines[0].startswith(
        "func.func private @f_component_0(%a0: index, %a1: memref<?xf32>, %n0: index, %n1: index)"
    )
    # Between what is read and what is written, as `KernelCall.signature` has it.
    between = "!stream.binding, %d0: index, %n0: index, %n1: index, %b_out0: !stream.binding"
    assert f"(%b_in0: {between})" in text
    assert "memref.store %k0, %a1[%n1] : memref<?xf32>" in lines
    assert text.count("-> memref<?x?xf32>{%d0, %n0}") == 1
    assert text.count("-> memref<?xf32>{%n0}") == 1
    called = "func.call @f_component_0(%d0, %m_out0, %n0, %n1)"
    assert f"{called} : (index, memref<?xf32>, index, index) -> ()" in lines


@pytest.mark.parametrize("what", ["divisor", "step", "buffer"])
def test_numbers_that_a_compiler_should_know_are_no_arguments(what: str) -> None:
    assert form(_kernel()).kernel != form(_kernel(**{what: 12})).kernel


def _stack(T: Any, B: Any, cell: str = "lstm", direction: str = "forward") -> li.Graph:
    """Two layers: the second one reads more than the first."""
    rng = np.random.default_rng(3)
    layer, gates = {"lstm": (li.lstm, 4), "gru": (li.gru, 3)}[cell]
    I, H, ways = 8, 40, 1 + (direction == "bidirectional")
    x = y = li.input("x", (T, B, I))
    for k, width in enumerate((I, ways * H)):
        shapes = {"w": (gates * H, width), "r": (gates * H, H), "b": (gates * H,)}
        arrays = {
            n: rng.uniform(-0.3, 0.3, (ways, *s) if ways > 1 else s).astype(np.float32) for n, s in shapes.items()
        }
        weights = [li.weight(f"{n}{k}", a) for n, a in arrays.items()]
        y = layer(y, *weights, direction=direction)[0]  # type: ignore[operator]
    return li.Graph("stack", [x], {"y": y, "loss": li.sum(y * y)})


KERNELS = Options(kernels=True)


def _executables(g: li.Graph, options: Options = KERNELS) -> int:
    text = iree_module(prepare(g, resolve("cpu")).optimized, resolve("cpu").info, options).text
    return text.count("stream.executable private @recurrence_")


def test_words_of_a_dispatch_are_a_limit() -> None:
    assert _executables(_stack(20, 16)) == 1
    assert _executables(_stack(20, 16), Options(kernels=True, dispatch=DispatchLimits(words=24))) == 2


@pytest.mark.parametrize(
    ("cell", "direction", "sizes"),
    [
        ("lstm", "forward", (20, 16)),
        ("lstm", "bidirectional", (20, 16)),
        ("gru", "forward", (20, 16)),
        pytest.param("lstm", "forward", ("T", "B"), marks=pytest.mark.slow),
        pytest.param("gru", "bidirectional", ("T", "B"), marks=pytest.mark.slow),
        pytest.param("lstm", "reverse", ("T", 16), marks=pytest.mark.slow),
    ],
)
def test_layers_share_their_kernels(cell: str, direction: str, sizes: tuple[Any, Any]) -> None:
    """With gradients; against executables apart, which differ in nothing else: bit by bit."""
    rng = np.random.default_rng(11)
    g = _stack(*sizes, cell, direction)
    both = li.grad(g, "loss", ["x", *g.weights])
    shared, apart = li.compile(both), li.compile(both, options={"thresholds": {"merged_kernels": 1000}})
    alone = Options(kernels=True, thresholds=Thresholds(merged_kernels=1000))
    assert _executables(both, alone) > _executables(both)
    for T, B in ((20, 16), (1, 16), (3, 1)):
        if sizes not in ((T, B), ("T", "B"), ("T", B)):
            continue
        x = rng.standard_normal((T, B, 8)).astype(np.float32)
        got, want = shared(x=x), apart(x=x)
        for name, v in want.items():
            np.testing.assert_array_equal(got[name], v, err_msg=f"{name}, {T}, {B}")
