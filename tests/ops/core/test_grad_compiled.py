"""Compiled gradients of lstm, gru and rnn: every operand, gradients arriving at every result.

Held to PyTorch's autograd and to the interpreter (which test_grad_layers.py holds to complex
steps); T and B are open, each entry is called with several.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import layer_cases as cases
import numpy as np
import pytest
import torch_layers
from device import need
from tolerances import close, wide

import lstm_ir as li

Arrays = dict[str, Any]
KERNELS = (
    "lstm activations+input_forget+straight+hold+lengths+no_bias",
    "gru activations+flip_z+hold+lengths+no_bias+projected_x",
)
LOOPS = ("lstm bidirectional+lengths+states+peephole3+projection+mask+forget_bias", "rnn activations+projected_x+mask")
REST = (  # with those above every feature, and the combinations that fail first
    "lstm reverse+count+gate_clip+cell_clip+peephole4_previous+batch+states",
    "lstm projected_x+count+bidirectional+hold+mask",
    "gru bidirectional+lengths+states+b_hn+mask",
    "gru reverse+count+gate_clip+batch+reset_before+states",
    "rnn bidirectional+lengths+states+mask",
    "rnn reverse+count+gate_clip+batch+hold+no_bias",
)
VULKAN = (
    "lstm lengths+states+peephole3+projection+cell_clip",
    "gru reverse+count+reset_before+mask",
    "rnn bidirectional+lengths+states",
)
SIZES = ((11, 3), (1, 1), (0, 2), (34, 1))  # T, B; 34: more than a chunk of the plain loop
GROWING = ("gru states+activations",)
LIMIT = 1e-5  # of the largest entry of each gradient, in f32


def built(case: str, kind: Any, T: int, B: int) -> tuple[Arrays, Arrays, Arrays]:
    """Operands, attributes, and what arrives at the results."""
    op, name = case.split()
    operands, attrs = cases.build(op, name, kind, sizes=(T, B, cases.I, cases.H, cases.P))
    rng = np.random.default_rng([T, B, *name.encode()])
    bars = {}
    graph = cases.graph(op, operands, attrs, dynamic=False)
    for k, v in zip(graph.output_names, graph.outputs, strict=True):
        bars[k] = rng.normal(size=[int(str(d)) for d in v.shape]).astype(kind)
    return cases.arrays(operands), attrs, bars


def differentiated(case: str, kind: Any = np.float32) -> li.Graph:
    op, name = case.split()
    operands, attrs = cases.build(op, name, kind)
    graph = cases.graph(op, operands, attrs)
    floats = [k for k, v in cases.arrays(operands).items() if v.dtype.kind == "f"]
    return li.vjp(graph, list(graph.output_names), floats)


def entry(case: str) -> str:
    return case.replace("+", "_").replace(" ", "_")


@cache
def compiled(target: str, kernels: bool, which: tuple[str, ...]) -> Any:
    entries = {entry(case): differentiated(case) for case in which}
    return li.compile(li.Program("grads", entries), target, options={"kernels": kernels})


def check(exe: Any, case: str, sizes: Any = SIZES) -> None:
    graph = differentiated(case, np.float64)
    for T, B in sizes:
        o, _, bars = built(case, np.float32, T, B)
        given = o | {f"ct_{k}": v for k, v in bars.items()}
        got = exe.entries[entry(case)](given)
        assert all(v.dtype == np.float32 for v in got.values())
        want = li.interpret(graph, wide(given))
        assert set(got) == set(want)
        rounded = partial(li.interpret, differentiated(case), given)
        close(got, want, LIMIT, (case, T, B), rounded)


HALVES = [
    pytest.param(True, KERNELS, id="kernels"),
    pytest.param(False, LOOPS, id="loops", marks=pytest.mark.slow),
    pytest.param(True, (*LOOPS, *REST), id="rest-kernels", marks=pytest.mark.slow),
    pytest.param(False, (*KERNELS, *REST), id="rest-loops", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kernels", "which"), HALVES)
def test_every_feature(kernels: bool, which: tuple[str, ...]) -> None:
    exe = compiled("cpu", kernels, which)
    for case in which:
        check(exe, case)
    notes = [n for n in exe.report.notes if n.startswith("scan")]
    assert any(": kernel" in n for n in notes) == kernels, notes


@pytest.mark.parametrize(("kernels", "which"), HALVES)
def test_autograd_of_pytorch(kernels: bool, which: tuple[str, ...]) -> None:
    """The same numbers by PyTorch: compiled in f32, interpreted in f64."""
    need("torch")
    exe = compiled("cpu", kernels, which)
    for case in which:
        o, attrs, bars = built(case, np.float32, 11, 3)
        want = torch_layers.gradients(case.split()[0], wide(o), attrs, wide(bars))
        given = o | {f"ct_{k}": v for k, v in bars.items()}
        close(exe.entries[entry(case)](given), want, LIMIT, (case, "f32"))
        exact = li.interpret(differentiated(case, np.float64), wide(given))
        close(exact, want, 1e-10, (case, "f64"))


@pytest.mark.long
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "loops"])
@pytest.mark.parametrize("op", list(cases.GATES))
def test_every_pair_of_features(op: str, kernels: bool) -> None:
    """Twelve to a module. Cases that amplify roundings beyond f32 within a few steps are f64."""
    every = [f"{op} {n}" for n in cases.names(op)]
    names = [n for n in every if n.split()[1] != "bidirectional+activations" and n not in GROWING]
    for i in range(0, len(names), 12):
        exe = compiled("cpu", kernels, tuple(names[i : i + 12]))
        for case in names[i : i + 12]:
            check(exe, case, ((11, 3),))
    for case in set(every) - set(names):
        graph = differentiated(case, np.float64)
        o, _, bars = built(case, np.float64, 11, 3)
        given = o | {f"ct_{k}": v for k, v in bars.items()}
        got = li.compile(graph, options={"kernels": kernels})(**given)
        close(got, li.interpret(graph, given), 1e-10, case)


def test_modules_with_less_fusion_are_the_first_choice() -> None:
    """A masked layer with a recurrent mask compiles at once, not by a way of last resort."""
    exe = li.compile(differentiated("rnn count+mask"), "cpu", options={"cache": False})
    assert [n for n in exe.report.notes if n.startswith("compiled with")] == []


@pytest.mark.vulkan
@pytest.mark.slow
@pytest.mark.parametrize("case", VULKAN)
def test_some_features_vulkan(case: str) -> None:
    need("vulkan")
    check(compiled("vulkan", False, (case,)), case, ((5, 3), (1, 1), (0, 2)))
