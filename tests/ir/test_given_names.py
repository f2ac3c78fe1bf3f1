"""Names that no file can hold, and names that are none, are refused where they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

HALF = "a\ud800"  # of a surrogate pair


def graph(**outputs: Any) -> li.Graph:
    x = li.input("x", (2, 3))
    return li.Graph("g", [x], outputs or {"y": x + 1.0})


NAMES: dict[str, tuple[Callable[[Any], Any], type[li.LstmIrError]]] = {
    "input": (lambda n: li.input(n, (2, 3)), li.IRError),
    "weight": (lambda n: li.weight(n, np.ones(3, "f4")), li.IRError),
    "output": (lambda n: graph(**{n: li.constant(1.0)}), li.VerifyError),
    "entry": (lambda n: li.Program("p", {n: graph()}), li.VerifyError),
    "state": (lambda n: li.State(n, np.ones(3, "f4")), li.VerifyError),
    "graph": (lambda n: li.Graph(n, [], {"y": li.constant(1.0)}), li.VerifyError),
    "program": (lambda n: li.Program(n, {"main": graph()}), li.VerifyError),
}


@pytest.mark.parametrize("what", NAMES)
def test_half_of_a_surrogate_pair(what: str) -> None:
    make, error = NAMES[what]
    with pytest.raises(error, match=r"ud800"):
        make(HALF)
    make("a\U0001f600")  # a whole one


@pytest.mark.parametrize("name", ["", 5, None])
def test_entries_without_a_name(name: Any) -> None:
    with pytest.raises(li.VerifyError, match="an entry: the name is"):
        li.Program("p", {name: graph()})
