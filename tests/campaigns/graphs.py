"""Random legal graphs: what compiles, and whether it is right.

A trial is a module of many graphs over all ops (`tests/graphs/growth.py`), with numbers or names for sizes:
graphs, slopes of graphs, streams that keep state, training steps (`tests/graphs/growth_cases.py`). Results are
held to `li.interpret`, within what roundings make of each graph (`tests/graphs/roundoff.py`); slopes in f64 are
held to differences too. Trials take turns:

    with kernels, on IREE's workers; with IREE's checks after each pass; with helper threads
    the portable lowering, the same graphs by IREE's optimisations, by its checks, and by XLA's CPU
    Vulkan, where a driver is: every 16th trial; every other pair of these with two steps to a dispatch

A graph that is wrong, or that the compiler refuses, is made smaller and shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import campaign
import device
import numpy as np
import ordered_vulkan
import xla
from case_checks import by_differences, difference, on, state_before
from growth import KINDS, SIZES, WHOLE_VECTORS
from growth_cases import Arrays, Call, Case, grown, joined
from shrink import shrunk

import lstm_ir as li
from lstm_ir.ir.binding import bind_sizes

GRAPHS = 32  # of a module
FEW = 8  # where a module holds each graph eight times, for sizes of 0
SHRINK = 30.0  # seconds
EMPTY = "Vulkan refuses it; make this call on a CPU"  # of a size of 0 that the graph computes
LOST = "the device was lost"  # by Mesa's driver, now and then: docs/hardware.md


@dataclass(frozen=True)
class Way:
    """How graphs are compiled and run."""

    options: Mapping[str, Any]
    target: str = "cpu"
    device: str | None = "local-task"

    def __str__(self) -> str:
        return f"{self.target} on {self.device}, options {dict(self.options)}"


KERNELS = (
    Way({}), Way({}), Way({"verify": True}), Way({"helpers": "always"}, device=None),
)  # fmt: skip
PORTABLE = Way({"kernels": False})
CHECKED = Way({"kernels": False, "verify": True})
VULKAN = (Way({}, "vulkan", None), Way({"thresholds": {"chunk_steps": 2}}, "vulkan", None))
NOT_ON_VULKAN = ("f64",)


def prepare() -> None:
    """Before the first Vulkan device is opened."""
    ordered_vulkan.load()


def trial(rng: np.random.Generator, number: int) -> str:
    """Grow a module, and hold every way to run it to the meaning of its graphs."""
    told: list[str] = []
    vulkan = number % 16 == 15 and device.has("vulkan")
    named = number % 2 == 1 and not (vulkan and number % 32 == 15)
    portable = number % 8 in (0, 3)
    kinds = [k for k in KINDS if not vulkan or k not in NOT_ON_VULKAN]
    literals = 2 if number % 5 == 0 else 1
    many = FEW if vulkan and named else GRAPHS
    sizes = WHOLE_VECTORS if vulkan else SIZES
    cases = [grown(rng, named, k, kinds, literals, sizes) for k in range(many)]
    for c in cases:
        wrong = None if c.smooth is None else by_differences(c, rng)
        told += [] if wrong is None else [f"{wrong}\n{c.program}"]
    if vulkan:
        ways = [VULKAN[number // 32 % 2]]
    else:
        ways = [PORTABLE, CHECKED] if portable else [KERNELS[number // 2 % 4]]
    said: set[str] = set()
    for way in ways:
        told += _held(cases, way, rng, said)
    if portable:
        told += _on_xla(cases, rng)
    if told:
        raise AssertionError("\n".join(told))
    return ", ".join([f"{many} graphs", *sorted(said)])


# -- one way


def _held(cases: list[Case], way: Way, rng: np.random.Generator, said: set[str]) -> list[str]:
    """What is wrong; `said` gets what this project refuses to compile, in one module."""
    told: list[str] = []
    exe = None
    while cases and exe is None:
        try:
            exe = _compiled(cases, way)
        except li.CompileError as e:
            bad = _culprit(cases, way)
            if bad is None:
                return [*told, f"a module of {len(cases)} graphs that compile one by one: {e}"]
            told.append(_shown(f"the compiler fails, {way}: {e}", bad, way, None))
            cases = [c for c in cases if c is not bad]
        except li.LoweringError as e:
            kept = [c for c in cases if not _refused(c, way)]
            if len(kept) == len(cases):
                return [*told, f"a module of {len(cases)} graphs of which none alone is refused: {e}"]
            said.add(f"{len(cases) - len(kept)} refused: {str(e).splitlines()[0]}")
            if ";" not in str(e).splitlines()[0]:
                told.append(f"a refusal that does not say what to do instead: {e}")
            cases = kept
    if exe is None:
        return told
    said.update(n.partition(",")[0] for n in exe.report.notes if n.startswith("compiled "))
    for c in cases:
        wrong = _calls(c, exe, rng, said)
        if wrong is not None and LOST in wrong[0]:
            said.add("device lost")
            break
        if wrong is not None:
            told.append(_shown(f"wrong, {way}: {wrong[0]}", c, way, wrong[1]))
    exe.close()
    return told


def _calls(
    case: Case, exe: li.Executable, rng: np.random.Generator, said: set[str]
) -> tuple[str, tuple[Call, Arrays]] | None:
    """The first call that differs, and how; with the state before it."""
    for call in case.calls:
        if call.fresh:
            exe.state.reset()
        before = state_before(case, call, exe.state)
        wrong = difference(case, call, before, on(exe, case, call), rng)
        if wrong is not None and EMPTY in wrong:
            said.add("calls of computed sizes of 0 refused")
        elif wrong is not None:
            return wrong, (call, before)
    return None


def _compiled(cases: Sequence[Case], way: Way) -> li.Executable:
    return li.compile(joined(cases), way.target, way.device, {"cache": False, **way.options})


def _culprit(cases: list[Case], way: Way) -> Case | None:
    """A graph that alone does not compile, found by halves."""
    if len(cases) > 1:
        half = len(cases) // 2
        for part in (cases[:half], cases[half:]):
            try:
                _compiled(part, way).close()
            except li.CompileError:
                return _culprit(part, way)
        return None
    return cases[0]


def _refused(case: Case, way: Way) -> bool:
    try:
        _compiled([case], way).close()
    except li.LoweringError:
        return True
    except li.CompileError:
        pass
    return False


def _shown(what: str, case: Case, way: Way, at: tuple[Call, Arrays] | None) -> str:
    """The defect, and the smallest graph that shows it; without a call the compiler fails."""
    rng = np.random.default_rng(0)
    call, before = (case.calls[0], state_before(case, case.calls[0], None)) if at is None else at

    def alone(graph: li.Graph) -> Case:
        return Case("alone", li.Program("alone", {"main": graph}), [])

    def fails(graph: li.Graph, given: Arrays) -> bool:
        small = alone(graph)
        try:
            exe = _compiled([small], way)
        except li.CompileError:
            return at is None
        except li.LstmIrError:
            return False
        with exe:
            again = Call("main", call.env, given)
            return at is not None and difference(small, again, {}, on(exe, small, again), rng) is not None

    for graph in case.program.entries.values() if at is None else [case.program.entries[call.entry]]:
        given = call.arrays | before
        if at is None:
            given = next(({**c.arrays, **state_before(case, c, None)} for c in case.calls
                          if case.program.entries[c.entry] is graph), {})  # fmt: skip
        if set(given) >= set(graph.input_names) and fails(graph, given):
            small, arrays = shrunk(graph, given, fails, SHRINK)
            held = "\n".join(f"  {n} = {a.tolist() if a.size <= 16 else a.shape}" for n, a in arrays.items())
            return f"{what}\n{small}\n{held}"
    return f"{what}\n{case.program}"


# -- other ways


def _on_xla(cases: list[Case], rng: np.random.Generator) -> list[str]:
    """The portable module, on XLA's CPU, which takes no names of sizes."""
    told = []
    for c in cases:
        call = c.calls[0]
        graph = bind_sizes(c.program.entries[call.entry], call.env)

        finite = tuple(c.program.finite.get(call.entry, ()))  # the executable looks at these, not the module

        def run(arrays: Arrays, before: Arrays, graph: li.Graph = graph, finite: tuple[str, ...] = finite) -> Arrays:
            made = xla.run(graph, arrays | before)
            bad = [n for n in finite if n in made and not np.isfinite(np.asarray(made[n])).all()]
            if bad:
                raise li.ValueRangeError(f"{bad} are not finite")
            return made

        wrong = difference(c, call, state_before(c, call, None), run, rng)
        if wrong is not None:
            told.append(f"wrong on XLA: {wrong}\n{graph}")
    return told


if __name__ == "__main__":
    campaign.main(trial, seconds=900, prepare=prepare)
