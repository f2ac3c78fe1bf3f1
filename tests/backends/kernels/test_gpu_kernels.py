"""GPU kernels against the interpreter on Vulkan; CUDA, HIP and Metal compile the same text."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from device import need
from kernel_bodies import BODIES, Loop
from kernel_checks import TOLERANCE, compare

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.program import Program

KERNELS = {"kernels": True}
OF_FORM: dict[str, dict[str, Any]] = {
    "whole": KERNELS,
    "chunks": {**KERNELS, "thresholds": {"chunk_steps": 5}},
    "steps": {**KERNELS, "thresholds": {"whole_loop": 0}},
}
CALLS = ((11, 3), (1, 1), (0, 2), (6, 17))
# phases, masks, numbers per row; reductions, carries that are products
FEW = ("two_phases", "masked", "row_numbers")
FEW_STEPS = ("ends_in_product", "normalised")
FEW_CHUNKS = ("counted",)
GPUS = [pytest.param(g, marks=getattr(pytest.mark, g)) for g in ("vulkan", "cuda")]
OTHERS = [("whole", n) for n in BODIES if n not in FEW]
OTHERS += [("chunks", n) for n in BODIES if n not in FEW_CHUNKS]
OTHERS += [("steps", n) for n in BODIES if n not in FEW_STEPS]
# What a kernel for SPIR-V refuses, and where the refusal stands.
REFUSED = {"every_kind": "erf in a kernel for this target (`erf` at kernel_bodies.py:"}
# Whose last loop reads no weights in a step: one dispatch runs all steps.
WITHOUT_WEIGHTS = ("masked", "row_numbers", "column_of_another", "every_kind")
WORD = {"whole": "all steps in one dispatch", "chunks": "at most 4 of them", "steps": "one dispatch per step and phase"}


def choices(report: Any) -> list[str]:
    """How each loop was lowered."""
    return [n for n in report.notes if n.startswith("scan at")]


@cache
def compiled(form: str, names: tuple[str, ...], target: str = "vulkan") -> Any:
    """Bodies with named sizes as entries of one program: (executable, loops, graphs).

    For a named device the module alone, and its report, instead of the executable.
    """
    sizes = ("T", "B", 5, 23)
    loops = {n: Loop(sizes, np.random.default_rng(i)) for i, n in enumerate(names)}
    graphs = {n: loops[n].graph(n, BODIES[n]) for n in names}
    if ":" not in target and target != "metal":
        return li.compile(Program("bodies", graphs), target, options=OF_FORM[form]), loops, graphs
    return build(Program("bodies", graphs), resolve(target), OF_FORM[form])


def hold(form: str, names: tuple[str, ...], name: str, target: str) -> list[str]:
    """Every size of CALLS, and one that takes more than an iteration of the loop of dispatches.

    How the loops were lowered.
    """
    need(target)
    exe, loops, graphs = compiled(form, names, target)
    for T, B in (*CALLS, (70, 2)) if form == "steps" else CALLS:
        compare(exe, graphs[name], loops[name].arrays(graphs[name], T, B), TOLERANCE["f32"])
    return choices(exe.report)


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", FEW)
def test_all_steps_in_one_dispatch(name: str, target: str) -> None:
    assert all(WORD["whole"] in n for n in hold("whole", FEW, name, target))


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", FEW_CHUNKS)
def test_a_dispatch_per_chunk(name: str, target: str) -> None:
    assert all(WORD["chunks"] in n for n in hold("chunks", FEW_CHUNKS, name, target))


@pytest.mark.parametrize("length", [1001, "T"], ids=["number", "named"])
@pytest.mark.vulkan
def test_more_rounds_than_a_driver_runs(length: int | str) -> None:
    """Mesa's software driver leaves out rounds after 65,535: here from step 478 of a dispatch on."""
    need("vulkan")
    r = np.random.default_rng(4)
    x = li.input("x", (length, "B", 3))
    w = [li.weight(n, r.uniform(-0.1, 0.1, (2, 130, i)).astype("f4")) for n, i in (("wi", 3), ("wh", 130))]
    y, h = li.rnn(x, *w, direction="bidirectional")
    graph = li.Graph("long", [x], {"y": y, "h": h})
    exe = li.compile(graph, "vulkan", options=KERNELS)
    assert any("at most" in n for n in choices(exe.report)), choices(exe.report)
    given = {"x": r.standard_normal((1001, 2, 3)).astype("f4")}
    for k, v in li.interpret(graph, given).items():
        np.testing.assert_allclose(exe(given)[k], v, rtol=0, atol=TOLERANCE["f32"])


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", FEW_STEPS)
def test_a_dispatch_per_phase(name: str, target: str) -> None:
    assert all(WORD["steps"] in n for n in hold("steps", FEW_STEPS, name, target))


@pytest.mark.slow_cases(form=["steps"], name=["counted"], target=["vulkan"])
@pytest.mark.slow
@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize(("form", "name"), OTHERS)
def test_every_other_body(form: str, name: str, target: str) -> None:
    (*_, note) = hold(form, (name,), name, target)
    refused = name in REFUSED and target == "vulkan"
    word = WORD["whole" if name in WITHOUT_WEIGHTS and form == "steps" else form]
    assert (REFUSED[name] if refused else word) in note


def cell(kind: str, name: str, **features: Any) -> li.Graph:
    """The gradient of a loss over one recurrent op, I, H = 5, 23, for all weights and x."""
    r = np.random.default_rng(len(name))
    gates, sizes = {"lstm": 4, "gru": 3, "rnn": 1}[kind] * 23, ("T", "B")
    x, n = li.input("x", (*sizes, 5)), li.input("n", ("B",), "i32")
    shapes = {"wi": (gates, 5), "wh": (gates, 23), "b": (gates,)}
    w = {k: li.weight(f"{name}/{k}", r.uniform(-0.2, 0.2, (1, *s)).astype("f4")) for k, s in shapes.items()}
    y, h, *_ = getattr(li, kind)(x, *w.values(), lengths=n, **features)
    loss = li.sum(y * y) + li.sum(h)
    graph = li.Graph(name, [x, n], {"loss": loss})
    return li.grad(graph, of="loss", wrt=["x", *(f"{name}/{k}" for k in shapes)])


@pytest.mark.slow
@pytest.mark.parametrize("target", GPUS)
def test_gradients(target: str) -> None:
    """Forward and backward loops of the three ops, both forms; a reversed one among them."""
    need(target)
    ops = {"lstm": {}, "gru": {"direction": "reverse"}, "rnn": {}}
    graphs = {k: cell(k, k, **f) for k, f in ops.items()}
    for form in WORD:
        exe = li.compile(Program("gradients", graphs), target, options=OF_FORM[form])
        assert all(WORD[form] in n for n in choices(exe.report)), choices(exe.report)
        for T, B in ((11, 3), (1, 1), (4, 6)):
            r = np.random.default_rng(T)
            x = r.standard_normal((T, B, 5)).astype("f4")
            given = {"x": x, "n": r.integers(0, T + 1, B).astype("i4")}
            for k, g in graphs.items():
                want, got = li.interpret(g, given), exe.entries[k](given)
                for name, v in want.items():
                    # sums over T * B rows: relative to the largest entry
                    limit = TOLERANCE["f32"] * max(1.0, float(np.abs(v).max()))
                    np.testing.assert_allclose(got[name], v, rtol=0, atol=limit, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("form", WORD)
@pytest.mark.parametrize(
    "target", ["cuda:sm_89", "hip:gfx942", "hip:gfx1100", "metal", "vulkan:rdna3", "vulkan:ampere"]
)
def test_other_gpus_compile(form: str, target: str) -> None:
    """Not executed: two bodies, one with two phases and one with reductions."""
    lowered, blob = compiled(form, ("two_phases", "normalised"), target)
    assert len(blob) > 1000
    assert all(WORD[form] in n for n in choices(lowered.report))


def test_cuda_compiles() -> None:
    """One form of the same in the default run."""
    lowered, blob = compiled("steps", ("two_phases",), "cuda:sm_89")
    assert b".visible .entry recurrence_" in blob  # PTX
    assert all(WORD["steps"] in n for n in choices(lowered.report))


def test_large_weights_get_a_dispatch_per_step() -> None:
    """H = 512: 4 MiB of weights."""
    from lstm_ir.api import prepare

    loop = Loop(("T", "B", 5, 512), np.random.default_rng(0))
    program = Program("p", {"gated": loop.graph("gated", BODIES["gated"])})
    (note,) = choices(prepare(program, resolve("cuda:sm_89"), KERNELS).report)
    assert "one dispatch per step and phase for 4096 KiB of weights" in note
    assert choices(prepare(program, resolve("cuda:sm_89"), {}).report) == [note]  # by default, where a GPU timed them
    assert choices(prepare(program, resolve("hip:gfx942"), {}).report) == []


def test_one_row_of_large_weights_stays_a_loop_on_cuda() -> None:
    """H = 256: 1 MiB of weights; an H100 took 3.6 ms for the loop and 4.3 for the kernel."""
    from lstm_ir.api import prepare

    for width, rows, kernel in ((256, 1, False), (255, 1, True), (256, 2, True)):
        loop = Loop(("T", rows, 5, width), np.random.default_rng(0))
        program = Program("p", {"gated": loop.graph("gated", BODIES["gated"])})
        for target, expected in (("cuda:sm_89", kernel), ("vulkan", True)):
            (note,) = choices(prepare(program, resolve(target), {}).report)
            assert (": kernel, " in note) is expected, note


@pytest.mark.vulkan
def test_a_loop_starts_from_tensors_of_its_own_vulkan() -> None:
    """Without kernels: this gradient's first carry was written to other elements than its own."""
    need("vulkan")
    graph = cell("lstm", "lstm")
    exe = li.compile(graph, "vulkan", options={"kernels": False})
    x = np.random.default_rng(0).standard_normal((1, 1, 5)).astype("f4")
    given = {"x": x, "n": np.array([1], "i4")}
    for k, v in li.interpret(graph, given).items():
        np.testing.assert_allclose(exe(given)[k], v, rtol=1e-5, atol=1e-5)
