"""Random legal graphs before and after the passes of a target, both by their NumPy meaning; no compiler runs.

The graphs are those of `graphs.py`. Slopes in f64 are held to differences.
"""

from __future__ import annotations

from dataclasses import replace

import campaign
import numpy as np
from case_checks import REFUSALS, by_differences, difference, state_before
from growth import KINDS
from growth_cases import Arrays, Case, grown

import lstm_ir as li
from lstm_ir import api
from lstm_ir.backends.run.devices import resolve

GRAPHS = 32
TARGETS = ("cpu:x86-64-v3", "vulkan:rdna3", None, "cuda:sm_80")  # None: the portable module


def trial(rng: np.random.Generator, number: int) -> str:
    """Graphs, through the passes of one target."""
    told = []
    word = TARGETS[number // 2 % len(TARGETS)]
    for k in range(GRAPHS):
        case = grown(rng, number % 2 == 1, k, KINDS, literals=2)
        wrong = None if case.smooth is None else by_differences(case, rng)
        wrong = _differs(case, word, rng) if wrong is None else wrong
        if wrong is not None:
            told.append(f"{word}: {wrong}\n{case.program}")
    if told:
        raise AssertionError("\n".join(told))
    return f"{GRAPHS} graphs"


def _differs(case: Case, word: str | None, rng: np.random.Generator) -> str | None:
    target = None if word is None else resolve(word)
    made = api.optimize(case.program, target, api.Report("passes"), kernels=None if word is None else _kernels(rng))
    for call in case.calls:
        graph = made.entries[call.entry]

        def run(arrays: Arrays, before: Arrays, graph: li.Graph = graph) -> Arrays:
            return li.interpret(graph, arrays | before)

        before = state_before(case, call, None)
        try:
            li.interpret(case.program.entries[call.entry], call.arrays | before)
        except REFUSALS:  # by what the source's signature asks for: compiled or not
            continue
        plain = Case(case.name, replace(case.program, finite={}), case.calls)
        wrong = difference(plain, call, before, run, rng)
        if wrong is not None:
            return wrong
    return None


def _kernels(rng: np.random.Generator) -> bool:
    """Whether loops may become kernels: by chance."""
    return bool(rng.random() < 0.5)


if __name__ == "__main__":
    campaign.main(trial, seconds=300)
