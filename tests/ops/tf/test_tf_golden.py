"""The block ops against vectors that TensorFlow made: meaning, expansion, and compiled."""

from typing import Any

import numpy as np
import pytest
import tf_cases as tf
from device import need
from one_op import check_files

import lstm_ir as li

pytestmark = pytest.mark.slow_on("vulkan")
CASES = tf.recorded()


def test_the_files_are_those_recorded() -> None:
    check_files(tf.GOLDEN)
    assert {c.op for c in CASES} == set(tf.OPS)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_meaning(case: tf.Recorded) -> None:
    tf.close(li.interpret(case.graph(), case.inputs), case.results, case.tolerance, case)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_expansion(case: tf.Recorded) -> None:
    g = tf.expanded(case.graph())
    assert {n.op.name for n in g.nodes} & {"lstm", "lstm_grad", "gru", "gru_grad"}
    tf.close(li.interpret(g, case.inputs), case.results, case.tolerance, case)


@pytest.mark.parametrize("case", [c for c in CASES if c.op != tf.CELL_GRAD], ids=repr)
def test_a_wrong_block_order_would_be_seen(case: tf.Recorded) -> None:
    """The recorded values tell blocks 1 and 2 apart (LSTMBlockCellGrad does not read w)."""
    name = "w" if "w" in case.inputs else "w_ru"
    parts = np.split(case.inputs[name], 4 if name == "w" else 2, axis=1)
    parts = [parts[0], parts[2], parts[1], parts[3]] if name == "w" else parts[::-1]
    inputs = case.inputs | {name: np.concatenate(parts, axis=1)}
    got = li.interpret(case.graph(), inputs)
    assert max(float(np.abs(got[k] - a).max()) for k, a in case.results.items()) > 0.05


def compiled(target: str) -> dict[str, dict[str, Any]]:
    """All cases of one target, in one program."""
    exe = li.compile(li.Program("golden", {c.id: c.graph() for c in CASES}), target)
    return {c.id: exe.entries[c.id](c.inputs) for c in CASES}


def test_cpu() -> None:
    got = compiled("cpu")
    for case in CASES:
        tf.close(got[case.id], case.results, case.tolerance, case)


@pytest.mark.vulkan
def test_vulkan() -> None:
    need("vulkan")
    got = compiled("vulkan")
    for case in CASES:
        tf.close(got[case.id], case.results, case.tolerance, case)


@pytest.mark.parametrize("case", [c for c in CASES if c.derived], ids=repr)
def test_gradients_that_the_caller_forms(case: tf.Recorded) -> None:
    """li.op's results give x, h, w and b their gradients as the documentation says."""
    a = {k: v.astype(np.float64) for k, v in case.inputs.items()}
    r = {k: v.astype(np.float64) for k, v in li.interpret(case.graph(), case.inputs).items()}
    if case.op == tf.GRU_GRAD:
        xh = np.concatenate([a["x"], a["h_prev"]], axis=1)
        xrh = np.concatenate([a["x"], a["h_prev"] * a["r"]], axis=1)
        want = {
            "d_w_ru": xh.T @ r["d_r_bar_u_bar"],
            "d_b_ru": r["d_r_bar_u_bar"].sum(0),
            "d_w_c": xrh.T @ r["d_c_bar"],
            "d_b_c": r["d_c_bar"].sum(0),
        }
    else:
        back = r["dicfo"] @ a["w"].T
        width = a["x"].shape[1]
        want = {
            "x_grad": back[:, :width],
            "h_prev_grad": back[:, width:],
            "b_grad": r["dicfo"].sum(0),
            "w_grad": np.concatenate([a["x"], a["h_prev"]], axis=1).T @ r["dicfo"],
        }
    assert set(case.derived) == set(want)
    tf.close({k: want[k] for k in case.derived}, case.derived, case.tolerance, case)
