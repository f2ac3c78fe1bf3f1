"""Graphs and programs go to other processes as bytes; what has memory of a device is refused by name."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lstm_ir as li


def graph(rng: np.random.Generator) -> li.Graph:
    """Weights by hash and in the text, a loop, a size by name, NaN and infinities."""
    x, big = li.input("x", ("T", 3, 8)), li.weight("big", rng.standard_normal((8, 40)).astype("f4"))
    small = li.weight("small", np.array([0.1, np.nan, -np.inf, -0.0], "f4"))
    h, rows = li.scan(lambda h, r: (li.tanh(h + r), h), li.zeros((3, 8)), x)
    return li.Graph("g", [x], {"rows": rows @ big, "last": h, "small": small})


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_graphs_and_programs(protocol: int, rng: np.random.Generator) -> None:
    g = graph(rng)
    program = li.stateful(li.Graph("s", [*(h := li.input("h", (3,)), li.input("x", (3,)))], {"n": h * 2.0}), {"h": "n"})
    x = rng.standard_normal((5, 3, 8)).astype("f4")
    for made in (g, program):
        back: Any = pickle.loads(pickle.dumps(made, protocol))
        assert type(back) is type(made)
        assert str(back) == str(made)
        assert copy.copy(made) is made
        assert copy.deepcopy(made) is made
    got, want = li.interpret(pickle.loads(pickle.dumps(g)), x=x), li.interpret(g, x=x)
    for n, w in want.items():
        np.testing.assert_array_equal(got[n], w, err_msg=n)
        assert got[n].tobytes() == w.tobytes()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_cannot_be_copied_says_so(copied: Any) -> None:
    x = li.input("x", (3,))
    with pytest.raises(li.IRError, match="is part of a graph, which can be pickled"):
        copied(x)
    with li.compile(li.Graph("g", [x], {"y": x * 2.0})) as exe, exe.session() as session:
        for made in (exe, session, exe.entries["main"]):
            if copied is copy.copy and made is exe.entries["main"]:
                continue  # another name for one entry of one session
            with pytest.raises(li.DeviceError, match="cannot be copied or pickled: its memory is the device's"):
                copied(made)
