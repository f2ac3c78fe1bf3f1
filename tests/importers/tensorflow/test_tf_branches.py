"""Conditions whose branches write variables: results and state beside TensorFlow's, call after call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow_models as tm
from device import need
from tensorflow_branch_cases import CASES, FIRST, REFUSED, XS
from tensorflow_compare import close

import lstm_ir as li

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("models")]
TAKEN = [n for n in CASES if n not in REFUSED]
Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tm.Recorded]:
    need("tensorflow")
    return tm.made(tmp_path_factory.mktemp("branches"), 6, "tensorflow_branch_cases", list(CASES))


def wanted(want: tm.Recorded, k: int) -> tuple[Arrays, Arrays]:
    """Results of call k, and what the variables hold after it."""
    of = [
        {n.partition("/")[2]: a for n, a in kind.items() if n.startswith(f"{k}/")} for kind in (want.outputs, want.more)
    ]
    return of[0], of[1]


@pytest.mark.parametrize("name", TAKEN)
def test_beside_tensorflow(name: str, models: dict[str, tm.Recorded]) -> None:
    want = models[name]
    program = li.from_tf(want.path)
    assert isinstance(program, li.Program)
    reads, writes = program.binding["step"]
    held: Arrays = {s: state.initial.array for s, state in program.state.items()}
    for k in range(len(XS)):
        outputs, variables = wanted(want, k)
        found = li.interpret(program.entries["step"], x=want.inputs[f"x{k}"], **{i: held[s] for i, s in reads.items()})
        held |= {s: found[o] for o, s in writes.items()}
        close(found, outputs, 1e-6)
        close({n: np.array(FIRST[n], np.float32) for n in FIRST} | held, variables, 1e-6)


def test_compiled(models: dict[str, tm.Recorded]) -> None:
    """A session keeps the state that the branch which runs has left."""
    want = models["nested"]
    program = li.from_tf(want.path)
    assert isinstance(program, li.Program)
    with li.compile(program) as exe:
        for k in range(len(XS)):
            close(exe.entries["step"](x=want.inputs[f"x{k}"]), wanted(want, k)[0], 1e-6)
        close(exe.entries["get_state"](), wanted(want, len(XS) - 1)[1], 1e-6)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name: str, models: dict[str, tm.Recorded]) -> None:
    with pytest.raises(li.ModelError, match=r"AssignAddVariableOp.*a loop writes the variable"):
        li.from_tf(models[name].path)
