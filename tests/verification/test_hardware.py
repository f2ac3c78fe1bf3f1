"""`lstm-ir targets --check`: what became of a target is judged by all results of all entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lstm_ir.ir.graph import Graph
from lstm_ir.ir.interpret import interpret
from lstm_ir.verification import hardware


class Interpreted:
    """An executable whose entries give their meaning, one output of one entry replaced by NaN."""

    report = type("Report", (), {"module_bytes": 1})

    def __init__(self, program: Any, wrong: tuple[str, int] | None) -> None:
        self.entries = {name: self._called(name, g, wrong) for name, g in program.entries.items()}

    def _called(self, name: str, graph: Graph, wrong: tuple[str, int] | None) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            out = interpret(graph, given)
            if wrong is not None and wrong[0] == name:
                spoiled = graph.output_names[wrong[1]]
                out[spoiled] = np.full_like(out[spoiled], np.nan)
            return out

        return call

    def __enter__(self) -> Interpreted:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("wrong", [None, ("forward", 0), ("backward", 0), ("backward", -1)])
def test_nan_in_any_result_is_wrong(wrong: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "compile", lambda program, word: Interpreted(program, wrong))
    trial = hardware.trial("cpu")
    assert trial.right is (wrong is None)
    assert ("WRONG" in str(trial)) is (wrong is not None)
