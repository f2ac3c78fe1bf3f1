"""The block ops against TensorFlow itself: random sizes, attributes, values and element types."""

from typing import Any

import numpy as np
import pytest
import tf_cases as tf
from device import need
from tensorflow_child import Job, run

import lstm_ir as li

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("results")]  # one process imports it, once
SEQUENCES = (tf.SEQ, tf.SEQ_V2, tf.SEQ_GRAD, tf.SEQ_GRAD_V2)
CASES = 48  # per op
CLIPS = (-1.0, 0.0, 0.3, 0.8, 3.0, float("inf"), float("nan"), 1e-9)


def attributes(r: np.random.Generator, op: str) -> dict[str, Any]:
    """Random attributes, some left at their defaults."""
    out: dict[str, Any] = {}
    if "GRU" in op:
        return out
    if "Grad" in op or r.random() < 0.8:
        out["use_peephole"] = bool(r.integers(2))
    if "Grad" not in op and r.random() < 0.8:
        out["cell_clip"] = float(r.choice(CLIPS))
    if op in (tf.CELL, tf.SEQ) and r.random() < 0.6:
        out["forget_bias"] = float(r.normal())
    return out


def case(r: np.random.Generator, op: str) -> Job:
    """A random call."""
    T, B, C = int(r.integers(0, 7)), int(r.integers(1, 6)), int(r.integers(1, 10))
    length = int(r.integers(0, T + 1))
    half = "GRU" not in op and r.random() < 0.3
    scale = float(r.choice([0.3, 0.5])) if half else float(r.choice([0.5, 1.0, 8.0]))
    sizes = (T, B, int(r.integers(0, 6)), C)
    kind = np.float16 if half else np.float32
    a = tf.operands(r, op, sizes, kind, length, scale)
    return op.removeprefix("tf."), attributes(r, op), a


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> tuple[int, dict[str, list[tuple[Job, Any]]]]:
    """The seed, and per op its jobs with what TensorFlow gives."""
    need("tensorflow")
    seed = int(request.config.getoption("--seed"))
    r = np.random.default_rng(seed)
    jobs = [case(r, op) for op in tf.OPS for _ in range(CASES)]
    found = list(zip(jobs, run(jobs), strict=True))
    return seed, {op: found[i * CASES : (i + 1) * CASES] for i, op in enumerate(tf.OPS)}


@pytest.mark.parametrize("op", tf.OPS)
def test_against_tensorflow(op: str, results: Any) -> None:
    need("tensorflow")
    seed, found = results
    clipped = saturated = short = 0
    for n, ((_, attrs, a), want) in enumerate(found[op]):
        length = int(a.get("seq_len_max", 0))
        if op in (tf.SEQ, tf.SEQ_V2):
            for v in want.values():
                v[length:] = 0  # uninitialised memory in TensorFlow, but for cs and h
        _compare(op, a, attrs, want, (op, f"seed {seed}, case {n}", attrs, _shapes(a)))
        limit = attrs.get("cell_clip", 3.0 if op in (tf.CELL, tf.SEQ) else 0.0)
        if "cs" in want and 0 < limit < np.inf:
            clipped += bool((np.abs(want["cs"]) >= np.float32(limit) * 0.999).any())
        saturated += any(bool((want[k] == 1).any()) for k in ("i", "u") if k in want)
        short += "seq_len_max" in a and length < a["x"].shape[0]
    if "Grad" not in op:
        assert saturated > 3
        assert "GRU" in op or clipped > 5
    assert short > 10 or op not in SEQUENCES


def _shapes(a: dict[str, Any]) -> dict[str, Any]:
    return {k: v.shape for k, v in a.items()}


def _compare(op: str, a: Any, attrs: Any, want: dict[str, Any], what: object) -> None:
    """Meaning and expansion, each result relative to its largest element if that is above 1."""
    g = tf.graph(op, a, attrs)
    tolerance = tf.TOLERANCE[a["x"].dtype.name]
    for got in (li.interpret(g, a), li.interpret(tf.expanded(g), a)):
        for k, v in want.items():
            scale = max(1.0, float(np.abs(v).max(initial=0)))
            tf.close({k: got[k] / scale}, {k: v / scale}, tolerance, what)


@pytest.mark.slow
def test_the_tape_of_block_lstm(rng: np.random.Generator) -> None:
    """TensorFlow's own gradient of BlockLSTM is ours, with a clip that acts."""
    need("tensorflow")
    a = tf.operands(rng, tf.SEQ, (6, 3, 4, 5), count=5)
    to = {k: rng.standard_normal((6, 3, 5)).astype(np.float32) for k in ("ct_cs", "ct_h")}
    attrs = {"use_peephole": True, "cell_clip": 0.5}
    (want,) = run([("BlockLSTM", attrs, a | {f"ct/{k[3:]}": v for k, v in to.items()})])
    assert (np.abs(want["cs"]) == 0.5).any()
    wrt = [n for n in a if n != "seq_len_max"]
    got = li.interpret(li.vjp(tf.graph(tf.SEQ, a, attrs), ["cs", "h"], wrt), a | to)
    names = [f"d_{n}" for n in wrt]
    tf.close({n: got[n] for n in names}, {n: want[n] for n in names}, 2e-5, "tape")


@pytest.mark.slow
def test_the_tape_of_block_lstm_v2_is_wrong(rng: np.random.Generator) -> None:
    """TensorFlow's tape calls the Grad op of the other block order; ours is BlockLSTMGradV2."""
    need("tensorflow")
    a = tf.operands(rng, tf.SEQ_V2, (6, 3, 4, 5))
    ct = rng.standard_normal((6, 3, 5)).astype(np.float32)
    (tape,) = run([("BlockLSTMV2", {}, a | {"ct/h": ct})])
    saved = {k: v for k, v in tape.items() if not k.startswith("d_")}
    operands = a | saved | {"cs_grad": np.zeros_like(ct), "h_grad": ct}
    (by_hand,) = run([("BlockLSTMGradV2", {"use_peephole": False}, operands)])
    got = li.interpret(li.vjp(tf.graph(tf.SEQ_V2, a, {}), "h", "w"), a | {"ct_h": ct})["d_w"]
    np.testing.assert_allclose(got, by_hand["w_grad"], rtol=2e-5, atol=2e-5)
    assert np.abs(got - tape["d_w"]).max() > 0.05
