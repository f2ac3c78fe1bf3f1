"""MPSGraph's ops against the recorded vectors: meaning, expansion, compiled.

The vectors come from the documented equations and the choices of docs/mpsgraph.md; they were not
made on Apple hardware.
"""

from typing import Any

import mps_cases as mps
import numpy as np
import pytest
from device import need
from one_op import check_files

import lstm_ir as li

pytestmark = pytest.mark.slow_on("vulkan")
CASES = mps.recorded()
KINDS = {"float32": np.float32, "float64": np.float64}


def test_the_files_are_those_recorded() -> None:
    check_files(mps.GOLDEN)
    assert len(CASES) == 13
    assert {c.op for c in CASES} == {*mps.NAMES} - {mps.RNN}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_meaning(case: mps.Recorded, kind: str) -> None:
    got = li.interpret(case.graph(KINDS[kind]), case.given(KINDS[kind]))
    mps.close(got, case.results, case.tolerance[kind], case)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_expansion(case: mps.Recorded, kind: str) -> None:
    g = mps.expanded(case.graph(KINDS[kind]))
    assert {n.op.name for n in g.nodes} & {"lstm", "lstm_grad", "gru", "gru_grad", "rnn_grad"}
    got = li.interpret(g, case.given(KINDS[kind]))
    mps.close(got, case.results, case.tolerance[kind], case)


@pytest.mark.parametrize("case", [c for c in CASES if "RNN" not in c.op], ids=repr)
def test_a_wrong_block_order_would_be_seen(case: mps.Recorded) -> None:
    """The recorded values tell the orders apart that the descriptor chooses from."""
    flag = "forgetGateLast" if "LSTM" in case.op else "resetGateFirst"
    given = case.given()
    g = mps.graph(case.op, given, case.attrs | {flag: not case.attrs[flag]})
    got = li.interpret(g, given)
    assert max(float(np.abs(got[k] - a).max()) for k, a in case.results.items()) > 0.02


def compiled(target: str) -> dict[str, dict[str, Any]]:
    """All cases of one target, in one program."""
    exe = li.compile(li.Program("golden", {c.id: c.graph() for c in CASES}), target)
    return {c.id: exe.entries[c.id](c.inputs) for c in CASES}


def test_cpu() -> None:
    got = compiled("cpu")
    for case in CASES:
        mps.close(got[case.id], case.results, case.tolerance["float32"], case)


@pytest.mark.vulkan
def test_vulkan() -> None:
    need("vulkan")
    got = compiled("vulkan")
    for case in CASES:
        mps.close(got[case.id], case.results, case.tolerance["float32"], case)
