"""The block ops: names, dead operands, rules of the attributes, rows past seq_len_max, edges."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tf_cases as tf

import lstm_ir as li

SIZES = (11, 3, 5, 7)
Meaning = Callable[[li.Graph, dict[str, Any]], dict[str, Any]]
MEANINGS: dict[str, Meaning] = {"op": li.interpret, "expansion": lambda g, a: li.interpret(tf.expanded(g), a)}
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
SEQUENCES = (tf.SEQ, tf.SEQ_V2)


@pytest.fixture(params=MEANINGS)
def meaning(request: pytest.FixtureRequest) -> Meaning:
    return MEANINGS[request.param]


NAMES = {
    tf.CELL: (
        "x cs_prev h_prev w wci wcf wco b",
        {"forget_bias": 1.0, "cell_clip": 3.0, "use_peephole": False},
        "i cs f o ci co h",
    ),
    tf.CELL_GRAD: (
        "x cs_prev h_prev w wci wcf wco b i cs f o ci co cs_grad h_grad",
        {"use_peephole": ...},
        "cs_prev_grad dicfo wci_grad wcf_grad wco_grad",
    ),
    tf.SEQ: (
        "seq_len_max x cs_prev h_prev w wci wcf wco b",
        {"forget_bias": 1.0, "cell_clip": 3.0, "use_peephole": False},
        "i cs f o ci co h",
    ),
    tf.SEQ_V2: (
        "seq_len_max x cs_prev h_prev w wci wcf wco b",
        {"cell_clip": 0.0, "use_peephole": False},
        "i cs f o ci co h",
    ),
    tf.SEQ_GRAD: (
        "seq_len_max x cs_prev h_prev w wci wcf wco b i cs f o ci co h cs_grad h_grad",
        {"use_peephole": ...},
        "x_grad cs_prev_grad h_prev_grad w_grad wci_grad wcf_grad wco_grad b_grad",
    ),
    tf.GRU: ("x h_prev w_ru w_c b_ru b_c", {}, "r u c h"),
    tf.GRU_GRAD: ("x h_prev w_ru w_c b_ru b_c r u c d_h", {}, "d_x d_h_prev d_c_bar d_r_bar_u_bar"),
}
NAMES[tf.SEQ_GRAD_V2] = NAMES[tf.SEQ_GRAD]


@pytest.mark.parametrize("op", tf.OPS)
def test_names_and_defaults(op: str) -> None:
    from lstm_ir.ir.opdef import OPS, REQUIRED

    operands, attrs, results = NAMES[op]
    found = OPS[op]
    assert " ".join(o.name for o in found.operands) == operands
    assert {n: ... if a.default is REQUIRED else a.default for n, a in found.attrs.items()} == attrs
    assert " ".join(found.results) == results


@pytest.mark.parametrize(("op", "use_peephole"), tf.PEEPHOLES)
def test_dead_operands(op: str, use_peephole: bool, meaning: Meaning, rng: np.random.Generator) -> None:
    """NaN in what is never read changes nothing, and NaN in what is read does."""
    length = 6
    a = tf.operands(rng, op, SIZES, np.float32, count=length)
    bad = dict(a)
    dead = list(tf.DEAD.get(op, ()))
    if not use_peephole:
        dead += [n for n in (*tf.VECTORS, *(("cs",) if op == tf.CELL_GRAD else ())) if n in a]
    for name in dead:
        bad[name] = np.full_like(a[name], np.nan)
    if "seq_len_max" in a:
        for name, value in a.items():
            if value.ndim == 3:
                bad[name] = value.copy()
                bad[name][length:] = np.nan
    if op in tf.GRADS:
        bad["h"][length - 1] = np.nan
        if not use_peephole:
            bad["cs"][length - 1] = np.nan
    g = tf.graph(op, a, tf.required(op, use_peephole))
    want, got = meaning(g, a), meaning(g, bad)
    for k in want:
        assert np.isfinite(want[k]).all(), k
        np.testing.assert_array_equal(got[k], want[k], err_msg=k)
    for name in sorted(set(a) - set(dead) - {"seq_len_max"}):
        poisoned = dict(a)
        poisoned[name] = np.full_like(a[name], np.nan)
        assert any(np.isnan(v).any() for v in meaning(g, poisoned).values()), name


LIMITS = [
    (0.0, None),
    (-0.5, None),
    (float("nan"), None),
    (1e-40, None),  # a subnormal float32 is flushed to 0
    (float("inf"), None),
    (1e300, None),
    (0.75, 0.75),
    (0.1, float(np.float32(0.1))),  # the attribute is a float32, in float64 graphs too
]


@pytest.mark.parametrize(("cell_clip", "limit"), LIMITS)
@pytest.mark.parametrize("op", [tf.CELL, *SEQUENCES])
def test_cell_clip(op: str, cell_clip: float, limit: float | None, meaning: Meaning, rng: np.random.Generator) -> None:
    a = tf.operands(rng, op, SIZES, np.float64, scale=2.0)
    got = meaning(tf.graph(op, a, {"cell_clip": cell_clip}), a)
    free = meaning(tf.graph(op, a, {"cell_clip": 0.0}), a)
    assert np.abs(free["cs"]).max() > 1.5
    if limit is None:
        tf.close(got, free, 0.0, cell_clip)
    else:
        assert np.abs(got["cs"]).max() == limit
        first = (slice(None),) if op == tf.CELL else (0,)  # one step of the unclipped op, clipped
        clipped = np.clip(free["cs"][first], -limit, limit)
        np.testing.assert_allclose(got["cs"][first], clipped, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(got["co"], np.tanh(got["cs"]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", [tf.CELL, *SEQUENCES])
def test_a_limit_that_rounds_to_zero(op: str, meaning: Meaning, rng: np.random.Generator) -> None:
    """In half 1e-9 is 0, and the clip stays on: the cell is 0 everywhere."""
    a = tf.operands(rng, op, SIZES, np.float16)
    got = meaning(tf.graph(op, a, {"cell_clip": 1e-9}), a)
    assert not got["cs"].any()
    assert not got["h"].any()
    assert not got["co"].any()
    wide = {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in a.items()}
    assert meaning(tf.graph(op, wide, {"cell_clip": 1e-9}), wide)["cs"].any()


@pytest.mark.parametrize("op", [tf.CELL, tf.SEQ])
def test_forget_bias(op: str, meaning: Meaning, rng: np.random.Generator) -> None:
    """A constant in block 2 of b; a value that half cannot hold is infinite."""
    a = tf.operands(rng, op, SIZES, np.float64)
    got = meaning(tf.graph(op, a, {"forget_bias": 0.625}), a)
    shifted = dict(a)
    shifted["b"] = a["b"] + np.repeat([0, 0, 0.625, 0], SIZES[3])
    tf.close(got, meaning(tf.graph(op, shifted, {"forget_bias": 0.0}), shifted), 1e-12, op)
    half = tf.operands(rng, op, SIZES, np.float16)
    assert (meaning(tf.graph(op, half, {"forget_bias": 1e5}), half)["f"] == 1).all()
    assert (meaning(tf.graph(op, half, {"forget_bias": float("-inf")}), half)["f"] == 0).all()


def test_nan_survives_the_clip_and_infinity_does_not(meaning: Meaning) -> None:
    r = np.random.default_rng(5)
    a = tf.operands(r, tf.CELL, (0, 3, 5, 7), np.float32)
    a["cs_prev"][:, 0], a["cs_prev"][:, 1], a["cs_prev"][:, 2] = np.nan, np.inf, -np.inf
    cs = meaning(tf.graph(tf.CELL, a, {}), a)["cs"]
    assert np.isnan(cs[:, 0]).all()
    assert (cs[:, 1] == 3).all()
    assert (cs[:, 2] == -3).all()
    assert np.isfinite(cs[:, 3:]).all()


@pytest.mark.parametrize("use_peephole", [False, True])
@pytest.mark.parametrize("op", [*SEQUENCES, *tf.GRADS])
def test_rows_past_seq_len_max(op: str, use_peephole: bool, meaning: Meaning, rng: np.random.Generator) -> None:
    """The first L rows are those of a sequence of L steps; later ones are zero."""
    a = tf.operands(rng, op, SIZES, np.float64)
    attrs = tf.required(op, use_peephole)
    for length in (0, 1, 6, SIZES[0]):
        a["seq_len_max"] = np.asarray(length, np.int64)
        short = {k: v[:length] if v.ndim == 3 else v for k, v in a.items()}
        got = meaning(tf.graph(op, a, attrs), a)
        want = meaning(tf.graph(op, short, attrs), short)
        for k, v in got.items():
            rows = v[:length] if v.ndim == 3 else v
            np.testing.assert_allclose(rows, want[k], rtol=1e-12, atol=1e-12, err_msg=k)
            assert v.ndim < 3 or not v[length:].any(), k
            assert length or not v.any(), k


@pytest.mark.parametrize("op", [*SEQUENCES, *tf.GRADS])
def test_seq_len_max_out_of_range(op: str, rng: np.random.Generator) -> None:
    a = tf.operands(rng, op, SIZES)
    for length in (-1, SIZES[0] + 1, 2**40):
        a["seq_len_max"] = np.asarray(length, np.int64)
        with pytest.raises(li.ValueRangeError, match=str(length)):
            li.interpret(tf.graph(op, a, tf.required(op, False)), a)


EDGES = [(0, 3, 5, 7), (4, 0, 5, 7), (4, 3, 0, 7), (4, 3, 5, 0), (1, 1, 1, 1), (2, 3, 4, 64)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", EDGES, ids=str)
@pytest.mark.parametrize("op", tf.OPS)
def test_edges(op: str, sizes: tuple[int, int, int, int], kind: str, rng: np.random.Generator) -> None:
    """Empty and single sizes: the expansion agrees, whatever the element type."""
    a = tf.operands(rng, op, sizes, KINDS[kind])
    if op == tf.CELL and 0 in (sizes[1], sizes[3]):
        with pytest.raises(li.IRError, match="cs_prev is empty"):
            tf.graph(op, a, {})
        return
    for use_peephole in (False, True):
        g = tf.graph(op, a, tf.required(op, use_peephole))
        got = li.interpret(g, a)
        assert {v.dtype for v in got.values()} == {np.dtype(KINDS[kind])}
        tolerance = tf.TOLERANCE[kind]
        tf.close(li.interpret(tf.expanded(g), a), got, tolerance, (op, sizes, kind))


@pytest.mark.parametrize("op", tf.OPS)
def test_named_sizes(op: str, rng: np.random.Generator) -> None:
    """T, B and I may be names; one graph serves every size."""
    sizes = ("T", "B", "I", 7)
    for T, B, I in ((11, 3, 5), (0, 2, 4), (1, 1, 1)):
        a = tf.operands(rng, op, (T, B, I, 7), np.float64)
        g = tf.graph(op, a, tf.required(op, True), tf.shapes(op, *sizes))
        want = li.interpret(tf.graph(op, a, tf.required(op, True)), a)
        tf.close(li.interpret(g, a), want, 0.0, op)
        tf.close(li.interpret(tf.expanded(g), a), want, 1e-12, op)


def test_an_empty_batch_of_a_cell_with_a_named_size(rng: np.random.Generator) -> None:
    a = tf.operands(rng, tf.CELL, (0, 0, 5, 7))
    g = tf.graph(tf.CELL, a, {}, tf.shapes(tf.CELL, "T", "B", 5, 7))
    words = r"cs_prev is empty: B must be at least 1 \(B = 0\)$"
    with pytest.raises(li.CallError, match=words):
        li.interpret(g, a)


@pytest.mark.parametrize("op", tf.OPS)
def test_text_round_trip(op: str, rng: np.random.Generator) -> None:
    a = tf.operands(rng, op, SIZES)
    g = tf.graph(op, a, tf.required(op, True))
    again = li.parse(str(g))
    assert isinstance(again, li.Graph)
    assert str(again) == str(g)
    tf.close(li.interpret(again, a), li.interpret(g, a), 0.0, op)


def test_a_python_int_is_int64() -> None:
    r = np.random.default_rng(3)
    a = tf.operands(r, tf.SEQ_V2, SIZES, count=4)
    given = {k: v for k, v in a.items() if k != "seq_len_max"}
    g = li.Graph("g", [], li.op(tf.SEQ_V2, seq_len_max=4, **given)._asdict())
    tf.close(li.interpret(g), li.interpret(tf.graph(tf.SEQ_V2, a, {}), a), 0.0, "int")
