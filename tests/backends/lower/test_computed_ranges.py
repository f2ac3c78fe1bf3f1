"""A count or lengths that the graph computes: what the module says when they are out of range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cudnn_cases as cu
import numpy as np
import pytest
import tf_cases as tf

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable
from lstm_ir.ir.graph import Value

T, B, I, H = 4, 2, 3, 2
F32 = np.float32


def graphs() -> dict[str, li.Graph]:
    """n + 1 steps of a block op and of its gradient with remat, n + 1 rows of the others."""
    rng = np.random.default_rng(4)
    n, lengths = li.input("n", (), "i64"), li.input("lengths", (B,), "i32")
    x = li.weight("x", rng.standard_normal((T, B, I)).astype(F32))
    a: dict[str, Any] = tf.operands(rng, tf.SEQ_V2, (T, B, I, H))
    a |= {"seq_len_max": n + 1, "x": x, "w": li.weight("w", a["w"])}
    h = li.op(tf.SEQ_V2, **a).h
    steps = li.Graph("steps", [n], {"y": h})
    loss = li.Graph("loss", [n], {"y": li.sum(h)})
    b = cu.operands(rng, 1, (T, B, I, H), F32)
    del b["input"], b["sequence_lengths"]
    rows = li.op(cu.FORWARD, input=x, sequence_lengths=lengths + 1, **b).output
    w_ih, w_hh = (rng.standard_normal((4 * H, k)).astype(F32) for k in (I, H))
    own = li.lstm(x, w_ih, w_hh, lengths=lengths + 1).y
    return {
        "steps": steps,
        "segments": li.grad(loss, "y", "w", remat=2),
        "rows": li.Graph("rows", [lengths], {"y": rows}),
        "own": li.Graph("own", [lengths], {"y": own}),
    }


@pytest.fixture(scope="module")
def exe() -> Iterator[Executable]:
    made = li.compile(li.Program("all", graphs()))
    yield made
    made.close()


NAMED = {
    "steps": "seq_len_max of tf.BlockLSTMV2",
    "segments": "seq_len_max of tf.BlockLSTMV2",
    "rows": "sequence_lengths of tf.CudnnRNNV3",
    "own": "lengths of lstm",
}


@pytest.mark.parametrize("entry", NAMED)
def test_the_operand_of_the_op_and_the_line(exe: Executable, entry: str) -> None:
    name, shape, kind = ("n", (), np.int64) if "max" in NAMED[entry] else ("lengths", (B,), np.int32)
    good = {name: np.full(shape, T - 1, kind)}
    want = li.interpret(graphs()[entry], good)
    np.testing.assert_allclose(exe.entries[entry](good)["y"], want["y"], atol=1e-5)
    for wrong in (T, -2):
        words = rf"value outside 0\.\.{T}\n  at test_computed_ranges.py:\d+ .*<- {NAMED[entry]}"
        with pytest.raises(li.ValueRangeError, match=words):
            exe.entries[entry]({name: np.full(shape, wrong, kind)})


def test_one_check_of_a_value_that_is_checked() -> None:
    from lstm_ir.ops.primitive.size import in_range

    v = in_range(li.input("n", (), "i64"), 0, "T")
    assert in_range(v, 0, "T") is v
    other: Value = in_range(v, 0, "S")
    assert other is not v
