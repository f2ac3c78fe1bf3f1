"""`remat` of ops with a gradient op of their own: the same gradient, and steps are not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cudnn_cases as cu
import mps_cases as mps
import numpy as np
import pytest
import tf_cases as tf

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

SIZES = (11, 3, 5, 7)  # T, B, I, H
CUDNN: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru, both directions": {"rnn_mode": "gru", "direction": "bidirectional"},
    "projection": {"num_proj": 4},
    "rnn_tanh, dropout": {"rnn_mode": "rnn_tanh", "dropout": 0.4, "seed": 3, "time_major": False},
}
PIPELINE = Pipeline.parse("expand,canonicalize,decompose,canonicalize,cse,canonicalize")


def tf_case(op: str, count: int, r: np.random.Generator) -> tuple[li.Graph, dict[str, Any]]:
    a = tf.operands(r, op, SIZES, np.float64, count, scale=0.4)
    attrs = {"cell_clip": 0.0, "use_peephole": True}
    return tf.graph(op, a, attrs), a


def cudnn_case(name: str, r: np.random.Generator) -> tuple[li.Graph, dict[str, Any]]:
    attrs = CUDNN[name]
    a = cu.operands(r, 2, SIZES, lengths=[11, 4, 1], **attrs)
    return cu.graph(cu.FORWARD, a, attrs), a


def mps_case(op: str, r: np.random.Generator) -> tuple[li.Graph, dict[str, Any]]:
    present = tuple(n for n in mps.OPTIONAL[op] if n != "mask")
    a = mps.operands(r, op, present, sizes=SIZES)
    return mps.graph(op, a, {}), a


def same(g: li.Graph, a: dict[str, Any], of: Sequence[str], r: np.random.Generator) -> None:
    """The gradient of all floats is that without remat, and no gradient op is left in it."""
    wrt = [n for n, v in a.items() if v.dtype.kind == "f" and v.size > 1]
    back = li.vjp(g, of, wrt, remat=4)
    cts = {f"ct_{n}": r.standard_normal(li.interpret(g, a)[n].shape) for n in of}
    got, want = li.interpret(back, a | cts), li.interpret(li.vjp(g, of, wrt), a | cts)
    assert list(got) == list(want)
    for n, value in want.items():
        np.testing.assert_allclose(got[n], value, rtol=1e-9, atol=1e-10, err_msg=n)
    foreign = [n.op.name for n in back.nodes if n.op.name.startswith(("tf.", "mps."))]
    assert not foreign


@pytest.mark.parametrize("of", [("h", "cs"), ("i", "co")], ids=str)
@pytest.mark.parametrize("count", [0, 6, 11])
@pytest.mark.parametrize("op", [tf.SEQ, tf.SEQ_V2])
def test_block_lstm(op: str, count: int, of: tuple[str, ...], rng: np.random.Generator) -> None:
    same(*tf_case(op, count, rng), of, rng)


@pytest.mark.parametrize("name", CUDNN)
def test_cudnn(name: str, rng: np.random.Generator) -> None:
    of = ("output", "output_h") if "rnn_mode" in CUDNN[name] else ("output", "output_c")
    same(*cudnn_case(name, rng), of, rng)


@pytest.mark.parametrize("op", mps.FORWARD)
def test_mps(op: str, rng: np.random.Generator) -> None:
    same(*mps_case(op, rng), ("r_h",), rng)


@pytest.mark.parametrize("name", [tf.SEQ_V2, cu.FORWARD, mps.LSTM])
def test_what_is_kept_shrinks(name: str, rng: np.random.Generator) -> None:
    """Rows of every step that the scheduled gradient holds: of h alone, not of gates and cells."""
    if name == tf.SEQ_V2:
        (g, _), wrt, of = tf_case(name, 11, rng), "w", "h"
    elif name == cu.FORWARD:
        (g, _), wrt, of = cudnn_case("lstm", rng), "params", "output"
    else:
        (g, _), wrt, of = mps_case(name, rng), "recurrentWeight", "r_h"
    loss = li.Graph("g", g.params, {"loss": li.sum(g.output(of))})
    kept = []
    for remat in (None, 4):
        done = PIPELINE.run(li.grad(loss, "loss", wrt, remat=remat)).graph
        loops = [n for n in done.nodes if n.op.name == "scan"]
        forward = [n for n in loops if not n.attrs["body"].name.endswith("_back")]
        kept.append(sum(int(np.prod(list(map(int, map(str, t.shape))))) for n in forward for t in n.types))
    assert 2 * kept[1] < kept[0], kept


@pytest.mark.parametrize("op", [tf.SEQ, tf.SEQ_V2])
def test_a_clip_is_refused_by_name(op: str, rng: np.random.Generator) -> None:
    a = tf.operands(rng, op, SIZES)
    g = tf.graph(op, a, {"cell_clip": 3.0})
    wide = li.Graph("g", g.params, {"h": g.output("h")})
    with pytest.raises(li.GradientError, match=r"BlockLSTM.*remat does not go with cell_clip = 3\.0"):
        li.vjp(wide, "h", "w", remat=4)
    off = tf.graph(op, a, {"cell_clip": -1.0})  # not above 0: no clip
    li.vjp(off, "h", "w", remat=4)


def test_a_count_is_still_checked(rng: np.random.Generator) -> None:
    g, a = tf_case(tf.SEQ_V2, 11, rng)
    back = li.vjp(g, "h", "w", remat=4)
    given = a | {"ct_h": np.ones((11, 3, 7)), "seq_len_max": np.int64(12)}
    with pytest.raises(li.ValueRangeError, match=r"expected 0 <= seq_len_max <= 11, got 12"):
        li.interpret(back, given)
