"""MPSGraph's ops: names, defaults, results, layouts, and what a descriptor's flag changes."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import mps_cases as mps
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.opdef import OPS

Meaning = Callable[[li.Graph, dict[str, Any]], dict[str, Any]]
MEANINGS: dict[str, Meaning] = {"op": li.interpret, "expansion": lambda g, a: li.interpret(mps.expanded(g), a)}
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
H = mps.SIZES[3]


@pytest.fixture(params=MEANINGS)
def meaning(request: pytest.FixtureRequest) -> Meaning:
    return MEANINGS[request.param]


def call(op: str, a: mps.Arrays, attrs: mps.Arrays, meaning: Meaning = li.interpret) -> mps.Arrays:
    return {k[2:]: v for k, v in meaning(mps.graph(op, a, attrs), a).items()}


LSTM_ATTRS = {
    "reverse": False,
    "bidirectional": False,
    "produceCell": False,
    "training": False,
    "forgetGateLast": False,
    "inputGateActivation": "sigmoid",
    "forgetGateActivation": "sigmoid",
    "cellGateActivation": "tanh",
    "outputGateActivation": "sigmoid",
    "activation": "tanh",
}
GRU_ATTRS = {
    "reverse": False,
    "bidirectional": False,
    "training": False,
    "resetGateFirst": False,
    "resetAfter": False,
    "flipZ": False,
    "updateGateActivation": "sigmoid",
    "resetGateActivation": "sigmoid",
    "outputGateActivation": "tanh",
}
RNN_ATTRS = {"reverse": False, "bidirectional": False, "training": False, "activation": "relu"}
CALLS = {
    "mps.LSTM": ("source recurrentWeight inputWeight bias initState initCell mask peephole", LSTM_ATTRS, "h c z"),
    "mps.LSTMGradients": (
        "source recurrentWeight sourceGradient zState cellOutputFwd stateGradient cellGradient "
        "inputWeight bias initState initCell mask peephole",
        LSTM_ATTRS,
        "source recurrentWeight inputWeight bias peephole initState initCell",
    ),
    "mps.GRU": ("source recurrentWeight inputWeight bias initState mask secondaryBias", GRU_ATTRS, "h z"),
    "mps.GRUGradients": (
        "source recurrentWeight sourceGradient zState outputFwd stateGradient inputWeight bias "
        "initState mask secondaryBias",
        GRU_ATTRS,
        "source recurrentWeight inputWeight bias initState secondaryBias",
    ),
    "mps.singleGateRNN": ("source recurrentWeight inputWeight bias initState mask", RNN_ATTRS, "h z"),
    "mps.singleGateRNNGradients": (
        "source recurrentWeight sourceGradient zState stateGradient inputWeight bias initState mask",
        RNN_ATTRS,
        "source recurrentWeight inputWeight bias initState",
    ),
}


@pytest.mark.parametrize("op", mps.NAMES)
def test_names_and_defaults(op: str) -> None:
    operands, attrs, results = CALLS[op]
    found = OPS[op]
    assert " ".join(o.name for o in found.operands) == operands
    assert {n: a.default for n, a in found.attrs.items()} == attrs
    assert " ".join(found.results) == results
    assert set(CALLS) == set(mps.NAMES)


RESULTS = [
    ({}, ("h",)),
    ({"produceCell": True}, ("h", "c")),
    ({"training": True}, ("h", "c", "z")),
    ({"produceCell": True, "training": True}, ("h", "c", "z")),
]


@pytest.mark.parametrize(("attrs", "names"), RESULTS)
def test_results_of_the_lstm(attrs: mps.Arrays, names: tuple[str, ...]) -> None:
    x, R = li.input("x", (11, 3, 28), "f32"), li.input("R", (28, 7), "f32")
    r = li.op("mps.LSTM", source=x, recurrentWeight=R, **attrs)
    assert r._fields == names
    assert type(r).__name__ == "LSTM"
    assert isinstance(r, tuple)
    assert [v.shape for v in r] == [(11, 3, {"z": 28}.get(n, 7)) for n in names]
    for absent in {"h", "c", "z"} - set(names):
        problem = f"mps.LSTM: this call has no result {absent}, since its attributes"
        with pytest.raises(li.IRError, match=problem) as e:
            getattr(r, absent)
        assert "test_mps_ops.py:" in str(e.value)
        assert not hasattr(r, absent)
    with pytest.raises(AttributeError, match="'y'"):
        getattr(r, "y")  # noqa: B009 - the checker knows that it is not there


@pytest.mark.parametrize("op", [mps.GRU, mps.RNN])
def test_results_of_the_others(op: str) -> None:
    wide = mps.GATES[op] * 7
    x, R = li.input("x", (11, 3, 2 * wide), "f32"), li.input("R", (2, wide, 7), "f32")
    r = li.op(op, source=x, recurrentWeight=R, bidirectional=True)
    assert r._fields == ("h",)
    with pytest.raises(li.IRError, match="has no result z"):
        _ = r.z
    r = li.op(op, source=x, recurrentWeight=R, bidirectional=True, training=True)
    assert r._fields == ("h", "z")
    assert [v.shape for v in r] == [(11, 3, 14), (11, 3, 2 * wide)]


@pytest.mark.parametrize("op", mps.FORWARD)
def test_a_nil_operand_has_no_gradient(op: str, rng: np.random.Generator) -> None:
    """Two results for the shortest call, one for each operand for the longest, in Apple's order."""
    for present in ((), ("initState",), ("inputWeight", "initState"), mps.OPTIONAL[op]):
        a = mps.backward(rng, op, mps.operands(rng, op, present), {}, ())
        ins = {k: li.input(k, v.shape, "f64") for k, v in a.items()}
        r = li.op(mps.BACK[op], **ins)
        known = {"source", "recurrentWeight", *present} - {"mask"}
        assert list(r._fields) == [n for n in mps.ORDER[op].split() if n in known]
        assert [v.shape for v in r] == [a[n].shape for n in r._fields]
        if not present:
            with pytest.raises(li.IRError, match="no result bias, since its operand is None"):
                _ = r.bias


@pytest.mark.parametrize("op", mps.NAMES)
@pytest.mark.parametrize("direction", mps.DIRECTIONS, ids=str)
def test_the_expansion_agrees(op: str, direction: mps.Arrays, rng: np.random.Generator) -> None:
    """On every element type, at small sizes and one that fills vectors."""
    word = op.removesuffix("Gradients")
    for sizes in (mps.SIZES, (1, 1, 1, 1), (2, 3, 4, 64)):
        for kind, dtype in KINDS.items():
            attrs = direction | {"training": True}
            a = mps.operands(rng, word, mps.OPTIONAL[word], attrs, sizes, dtype, 0.6)
            if op != word:
                a = mps.backward(rng, word, a, attrs, mps.LATER[word])
                a = {k: v.astype(dtype) for k, v in a.items()}
            got = call(op, a, attrs)
            assert list(got) == mps.result_names(op, a, attrs)
            assert {v.dtype for v in got.values()} == {np.dtype(dtype)}
            again = call(op, a, attrs, MEANINGS["expansion"])
            scale = max(float(np.abs(v.astype(np.float64)).max()) for v in got.values())
            tolerance = mps.TOLERANCE[kind] * max(1.0, scale)
            mps.close(again, got, tolerance, (op, sizes, kind))


@pytest.mark.parametrize("op", mps.FORWARD)
def test_reverse_is_the_backward_half(op: str, meaning: Meaning, rng: np.random.Generator) -> None:
    """Of a bidirectional call; and the forward half is a call that is not; reverse is ignored."""
    both = {"bidirectional": True, "training": True}
    a = mps.operands(rng, op, mps.OPTIONAL[op], both)
    whole = call(op, a, both, meaning)
    mps.close(call(op, a, both | {"reverse": True}, meaning), whole, 0.0, op)
    for d, attrs in enumerate(({"training": True}, {"training": True, "reverse": True})):
        half = {n: part(n, v, d) for n, v in a.items()}
        got = call(op, half, attrs, meaning)
        want = {n: np.split(v, 2, axis=2)[d] for n, v in whole.items()}
        mps.close(got, want, 1e-12, (op, d))
    rows = whole["h"]
    flipped = call(op, {**half, "source": half["source"][::-1]}, {}, meaning)["h"]
    np.testing.assert_allclose(flipped[::-1], rows[:, :, H:], atol=1e-12)


def part(name: str, v: Any, d: int) -> Any:
    """Direction d of an operand."""
    if name == "source":
        return v
    if name in ("recurrentWeight", "peephole"):
        return v[d]
    return np.split(v, 2, axis=0 if v.ndim == 1 or name == "inputWeight" else 1)[d]


SWAPS = {mps.LSTM: ("forgetGateLast", (0, 2, 1, 3)), mps.GRU: ("resetGateFirst", (1, 0, 2))}


@pytest.mark.parametrize("op", SWAPS)
def test_gate_order(op: str, meaning: Meaning, rng: np.random.Generator) -> None:
    """Permuting the blocks of every operand and flipping the flag permutes z and nothing else."""
    flag, order = SWAPS[op]
    for attrs in mps.DIRECTIONS:
        attrs = attrs | {"training": True}
        present = [n for n in mps.OPTIONAL[op] if n != "inputWeight"]
        for chosen in (mps.OPTIONAL[op], present):
            a = mps.operands(rng, op, chosen, attrs)
            D = 2 if attrs.get("bidirectional") else 1
            fixed = {"source"} if "inputWeight" in a else set()
            moved = {n: v if n in fixed else permuted(n, v, D, order) for n, v in a.items()}
            want = call(op, a, attrs, meaning)
            got = call(op, moved, attrs | {flag: True}, meaning)
            want["z"] = permuted("z", want["z"], D, order)
            mps.close(got, want, 1e-12, (op, attrs))
            assert np.abs(got["z"] - call(op, a, attrs)["z"]).max() > 0.05


def permuted(name: str, v: Any, D: int, order: tuple[int, ...]) -> Any:
    """The gate blocks of an operand in another order, in each direction."""
    if name in ("initState", "initCell", "mask", "secondaryBias"):
        return v
    axis = {"recurrentWeight": v.ndim - 2, "inputWeight": 0}.get(name, v.ndim - 1)
    k = 1 if name in ("recurrentWeight", "peephole") else D
    parts = np.split(v, k * len(order), axis)
    return np.concatenate([parts[d * len(order) + g] for d in range(k) for g in order], axis)


@pytest.mark.parametrize("op", mps.FORWARD)
def test_no_input_weight_is_the_identity(op: str, meaning: Meaning, rng: np.random.Generator) -> None:
    """The source holds the products already, and the bias is still added."""
    for attrs in ({}, {"bidirectional": True}):
        a = mps.operands(rng, op, mps.OPTIONAL[op], attrs)
        short = {n: v for n, v in a.items() if n != "inputWeight"}
        short["source"] = a["source"] @ a["inputWeight"].T
        mps.close(call(op, short, attrs, meaning), call(op, a, attrs), 1e-12, op)
        off = call(op, {n: v for n, v in short.items() if n != "bias"}, attrs)["h"]
        assert np.abs(off - call(op, short, attrs)["h"]).max() > 0.05


@pytest.mark.parametrize("op", mps.NAMES)
def test_states_as_torch_spells_them(op: str, meaning: Meaning, rng: np.random.Generator) -> None:
    """[1,N,H] with one direction, and gradients of that shape."""
    word = op.removesuffix("Gradients")
    a = mps.operands(rng, word, mps.OPTIONAL[word])
    if op != word:
        a = mps.backward(rng, word, a, {}, mps.LATER[word])
    states = [n for n in a if n in ("initState", "initCell", "stateGradient", "cellGradient")]
    spelled = a | {n: a[n][None] for n in states}
    want = {n: v[None] if n in states else v for n, v in call(op, a, {}).items()}
    mps.close(call(op, spelled, {}, meaning), want, 1e-12, op)


@pytest.mark.parametrize("op", mps.FORWARD)
def test_mask_shapes(op: str, meaning: Meaning, rng: np.random.Generator) -> None:
    """Whatever broadcasts to [N,D*H] is that; it multiplies initState and no result."""
    for both in (False, True):
        attrs = {"bidirectional": both}
        a = mps.operands(rng, op, mps.OPTIONAL[op], attrs)
        N, W = 3, 14 if both else 7
        plain = call(op, {n: v for n, v in a.items() if n != "mask"}, attrs)["h"]
        for shape in ((N, W), (1, N, W), (1, W), (N, 1), (W,), (), (1,), (1, 1, 1)):
            mask = rng.random(shape)
            want = call(op, a | {"mask": np.broadcast_to(mask, (1, N, W))[0].copy()}, attrs)
            got = call(op, a | {"mask": mask}, attrs, meaning)
            mps.close(got, want, 1e-12, (op, shape))
            assert np.abs(got["h"] - plain).max() > 0.01
        one = call(op, a | {"source": a["source"][:1]}, attrs)["h"]
        zeroed = a | {"source": a["source"][:1], "mask": np.zeros((N, W))}
        assert np.abs(call(op, zeroed, attrs)["h"] - one).max() > 0.01


def test_the_mask_leaves_what_is_carried(rng: np.random.Generator) -> None:
    """A mask of zeros cuts R off, and c and the GRU's z * h[t-1] pass all the same."""
    a = mps.operands(rng, mps.LSTM, ("inputWeight", "initState", "initCell"))
    off = a | {"mask": np.zeros(())}
    no_R = a | {"recurrentWeight": np.zeros_like(a["recurrentWeight"])}
    mps.close(call(mps.LSTM, off, {}), call(mps.LSTM, no_R, {}), 1e-14, "LSTM")
    a = mps.operands(rng, mps.GRU, ("inputWeight", "initState"))
    off = a | {"mask": np.zeros(())}
    no_R = a | {"recurrentWeight": np.zeros_like(a["recurrentWeight"])}
    mps.close(call(mps.GRU, off, {}), call(mps.GRU, no_R, {}), 1e-14, "GRU")


def test_peephole_of_8h(meaning: Meaning, rng: np.random.Generator) -> None:
    """[8H] is [2,4H], and its gradient is [8H]."""
    attrs = {"bidirectional": True, "training": True, "forgetGateLast": True}
    a = mps.operands(rng, mps.LSTM, mps.OPTIONAL[mps.LSTM], attrs)
    flat = a | {"peephole": a["peephole"].ravel()}
    mps.close(call(mps.LSTM, flat, attrs, meaning), call(mps.LSTM, a, attrs), 1e-13, "peephole")
    given = mps.backward(rng, mps.LSTM, a, attrs, ())
    want = call(mps.BACK[mps.LSTM], given, attrs)
    want["peephole"] = want["peephole"].ravel()
    got = call(mps.BACK[mps.LSTM], given | {"peephole": flat["peephole"]}, attrs, meaning)
    mps.close(got, want, 1e-12, "peephole")


def test_the_peephole_of_o_sees_the_previous_cell(meaning: Meaning) -> None:
    """One step, one unit: o = s(p_o c[-1]), and the cell gate has a peephole too."""
    s, c0, p = ACTS["sigmoid"], 0.5, np.array([0.1, 0.2, 0.3, 0.4])
    a = {
        "source": np.zeros((1, 1, 4)),
        "recurrentWeight": np.zeros((4, 1)),
        "initCell": np.full((1, 1), c0),
        "peephole": p,
    }
    i, f, z, o = s(p[0] * c0), s(p[1] * c0), np.tanh(p[2] * c0), s(p[3] * c0)
    c = f * c0 + i * z
    got = call(mps.LSTM, a, {"training": True}, meaning)
    np.testing.assert_allclose(got["z"].ravel(), [i, f, z, o], atol=1e-15)
    np.testing.assert_allclose([got["c"].item(), got["h"].item()], [c, o * np.tanh(c)], atol=1e-15)


def test_secondary_bias_without_reset_after(meaning: Meaning, rng: np.random.Generator) -> None:
    """It changes nothing, and its gradient is zero by every way."""
    a = mps.operands(rng, mps.GRU, mps.OPTIONAL[mps.GRU])
    bad = a | {"secondaryBias": np.full(H, np.nan)}
    mps.close(call(mps.GRU, bad, {}, meaning), call(mps.GRU, a, {}), 1e-12, "h")
    given = mps.backward(rng, mps.GRU, a, {}, ())
    assert not call(mps.BACK[mps.GRU], given, {}, meaning)["secondaryBias"].any()
    for training in (False, True):
        g = mps.graph(mps.GRU, a, {"training": training})
        of = list(g.output_names)
        cts = {f"ct_{n}": np.ones(g.output(n).shape) for n in of}
        assert not li.interpret(li.vjp(g, of, "secondaryBias"), a | cts)["d_secondaryBias"].any()


ACTS: dict[str, Callable[[Any], Any]] = {
    "none": lambda v: v,
    "relu": lambda v: np.where(v > 0, v, 0.0),
    "tanh": lambda v: np.sinh(v) / np.cosh(v),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "hardSigmoid": lambda v: np.where(v < -2.5, 0.0, np.where(v > 2.5, 1.0, 0.2 * v + 0.5)),
}


@pytest.mark.parametrize("name", ACTS)
def test_activations(name: str, meaning: Meaning) -> None:
    x = np.array([-9.0, -3.5, -2.5, -2.4, -1.0, 0.0, 0.3, 2.4, 2.5, 2.6, 9.0])
    a = {"source": x.reshape(1, -1, 1), "recurrentWeight": np.zeros((1, 1))}
    got = call(mps.RNN, a, {"activation": name}, meaning)["h"].ravel()
    np.testing.assert_allclose(got, ACTS[name](x), atol=1e-15)


@pytest.mark.parametrize("op", mps.NAMES)
def test_named_sizes(op: str, rng: np.random.Generator) -> None:
    """T, N and I may be names; one graph serves every size; empty ones are refused at the call."""
    word = op.removesuffix("Gradients")
    attrs = {"bidirectional": True}
    present = (*mps.OPTIONAL[word], *mps.LATER[word], *mps.SAVED[word], "sourceGradient")
    present = mps.OPTIONAL[word] if op == word else present
    named = mps.shapes(word, ("T", "N", "I", 7), True, present)
    for sizes in ((11, 3, 5, 7), (1, 1, 1, 7)):
        a = mps.operands(rng, word, mps.OPTIONAL[word], attrs, sizes)
        if op != word:
            a = mps.backward(rng, word, a, attrs, mps.LATER[word])
        g = mps.graph(op, {n: a[n] for n in named}, attrs, named)
        want = li.interpret(mps.graph(op, a, attrs), a)
        mps.close(li.interpret(g, a), want, 0.0, op)
        mps.close(li.interpret(mps.expanded(g), a), want, 1e-12, op)
    for axis, size in enumerate("TNI"):
        t, n, i = (0 if k == axis else 3 for k in range(3))
        b = {k: np.zeros(s) for k, s in mps.shapes(word, (t, n, i, 7), True, present).items()}
        words = rf"source is .*: {size} must be at least 1 \({size} = 0\)$"
        with pytest.raises(li.CallError, match=words):
            li.interpret(g, b)


@pytest.mark.parametrize("op", mps.NAMES)
def test_text_round_trip(op: str, rng: np.random.Generator) -> None:
    word = op.removesuffix("Gradients")
    a = mps.operands(rng, word, mps.OPTIONAL[word][1:])
    if op != word:
        a = mps.backward(rng, word, a, {}, ())
    g = mps.graph(op, a, {"reverse": True})
    again = li.parse(str(g))
    assert isinstance(again, li.Graph)
    assert str(again) == str(g)
    mps.close(li.interpret(again, a), li.interpret(g, a), 0.0, op)
