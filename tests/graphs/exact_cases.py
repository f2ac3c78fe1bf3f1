"""Many small graphs as the entries of one module, each held to what it must give, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

import lstm_ir as li

Array = np.ndarray[Any, Any]
Case = tuple[li.Graph, dict[str, Array], dict[str, Array], str]
"""A graph, its inputs, what its outputs must be, and how to name the case."""


def agree(cases: list[Case], target: str = "cpu", **options: Any) -> None:
    """The interpreter and the compiled module give what is expected."""
    graphs = {f"e{k}": g for k, (g, *_) in enumerate(cases)}
    exe = li.compile(li.Program("cases", graphs), target=target, options=options)
    assert not [n for n in exe.report.notes if n.startswith("compiled ")], "compiled as a last way alone"
    for k, (g, given, expected, said) in enumerate(cases):
        got, meant = exe.entries[f"e{k}"](given), li.interpret(g, given)
        for name, v in expected.items():
            np.testing.assert_array_equal(meant[name], v, err_msg=said)
            np.testing.assert_array_equal(got[name], v, err_msg=f"{name} of {said}")
