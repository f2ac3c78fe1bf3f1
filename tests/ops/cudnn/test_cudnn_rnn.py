"""CudnnRNN: names, gradients, padding, named sizes, element types, reserve, expansion."""

from typing import Any

import cudnn_cases as cu
import ml_dtypes
import numpy as np
import pytest
from conftest import Golden
from device import need
from tensorflow_child import definitions

import lstm_ir as li
from lstm_ir.ir.opdef import OPS, REQUIRED
from lstm_ir.passes.pipeline import Pipeline, for_target

MODES: dict[str, dict[str, Any]] = {
    "rnn_relu": {"rnn_mode": "rnn_relu"},
    "rnn_tanh": {"rnn_mode": "rnn_tanh"},
    "gru": {"rnn_mode": "gru"},
    "lstm": {"rnn_mode": "lstm"},
    "projection": {"num_proj": 4},
}
BOTH: dict[str, Any] = {"direction": "bidirectional"}


@pytest.mark.slow
def test_names_and_defaults_are_tensorflows() -> None:
    need("tensorflow")
    inferred = {"T", "num_params", "num_params_weights", "num_params_biases"}
    names = (cu.FORWARD, cu.BACKPROP, cu.SIZE, cu.TO, cu.FROM)
    registry = definitions([name.removeprefix("tf.") for name in names])
    for name in names:
        theirs, ours = registry[name.removeprefix("tf.")], OPS[name]
        operands = [o.name for o in ours.operands]
        added = [o for o in operands if o not in theirs["inputs"]]
        assert added == (["dropout_keep", "step"] if name == cu.FORWARD else [])
        assert operands[: len(theirs["inputs"])] == theirs["inputs"]
        assert list(ours.results) == theirs["outputs"]
        for attr, default in theirs["attrs"].items():
            if attr not in ours.attrs:
                assert attr in inferred, (name, attr)
                continue
            expected = default[0] if default else REQUIRED
            assert ours.attrs[attr].default == expected, (name, attr)
        assert set(ours.attrs) <= set(theirs["attrs"])


@pytest.mark.parametrize("mode", MODES)
def test_li_grad_is_backprop(mode: str, rng: np.random.Generator) -> None:
    """One tf.CudnnRNNBackpropV3, and the numbers of finite differences."""
    attrs = MODES[mode] | BOTH | {"dropout": 0.4, "seed": 3, "input_mode": "auto_select"}
    a = cu.operands(rng, 2, (4, 3, 5, 7), lengths=[4, 0, 2], **attrs)
    g = cu.graph(cu.FORWARD, a, attrs)
    of = [n for n in ("output", "output_h", "output_c") if g.output(n).rank]
    wrt = [n for n in cu.OPERANDS[:4] if a[n].ndim]
    v = li.vjp(g, of, wrt)
    assert [n.op.name for n in v.nodes].count(cu.BACKPROP) == 1
    cts = {f"ct_{n}": rng.standard_normal(g.output(n).shape) for n in of}
    got = li.interpret(v, a | cts)
    out = li.interpret(g, a)
    b = cu.back_operands(rng, a, out) | {f"{n}_backprop": cts[f"ct_{n}"] for n in of}
    want = li.interpret(cu.graph(cu.BACKPROP, b, attrs), b)
    for name in wrt:
        np.testing.assert_array_equal(got[f"d_{name}"], want[f"{name}_backprop"])

    def loss(**moved: Any) -> float:
        r = li.interpret(g, a | moved)
        return sum(float((r[n] * cts[f"ct_{n}"]).sum()) for n in of)

    for name in wrt:
        way = rng.standard_normal(a[name].shape)
        h = 1e-6
        slope = (loss(**{name: a[name] + h * way}) - loss(**{name: a[name] - h * way})) / (2 * h)
        found = float((got[f"d_{name}"] * way).sum())
        assert abs(slope - found) <= 1e-6 * max(1.0, abs(slope)), (mode, name)


def test_no_gradient_without_training(rng: np.random.Generator) -> None:
    a = cu.operands(rng)
    g = cu.graph(cu.FORWARD, a, {"is_training": False})
    with pytest.raises(li.GradientError, match="is_training=False"):
        li.vjp(g, "output", "params")


def test_second_gradients_are_those_of_the_expansion(rng: np.random.Generator) -> None:
    a = cu.operands(rng, 2, (3, 2, 3, 4), lengths=[3, 1], rnn_mode="gru")
    g = cu.graph(cu.FORWARD, a, {"rnn_mode": "gru"})
    first = li.vjp(g, "output", "input")
    cts = {"ct_output": rng.standard_normal((3, 2, 4)), "ct_d_input": rng.standard_normal((3, 2, 3))}
    second = li.vjp(first, "d_input", "params")
    got = float((li.interpret(second, a | cts)["d_params"] * (way := rng.standard_normal(a["params"].shape))).sum())

    def loss(params: Any) -> float:
        r = li.interpret(first, a | {"params": params, "ct_output": cts["ct_output"]})
        return float((r["d_input"] * cts["ct_d_input"]).sum())

    h = 1e-6
    slope = (loss(a["params"] + h * way) - loss(a["params"] - h * way)) / (2 * h)
    assert abs(slope - got) <= 1e-6 * max(1.0, abs(slope))


@pytest.mark.parametrize("expand", [False, True], ids=["op", "expansion"])
@pytest.mark.parametrize("mode", MODES)
def test_nan_in_padded_steps_never_leaks(mode: str, expand: bool, rng: np.random.Generator) -> None:
    attrs = MODES[mode] | BOTH | {"dropout": 0.3}
    lengths = [11, 0, 4]
    a = cu.operands(rng, 2, lengths=lengths, **attrs)

    def run(g: li.Graph, given: Any) -> Any:
        return li.interpret(cu.expanded(g) if expand else g, given)

    out, grads, b = cu.both(rng, a, attrs, run)
    x, dy = a["input"].copy(), b["output_backprop"].copy()
    for row, n in enumerate(lengths):
        x[n:, row], dy[n:, row] = np.nan, np.nan
    cu.close(run(cu.graph(cu.FORWARD, a, attrs), a | {"input": x}), out, 0.0, mode)
    bad = b | {"input": x, "output_backprop": dy}
    cu.close(run(cu.graph(cu.BACKPROP, b, attrs), bad), grads, 0.0, mode)
    padded = np.arange(11)[:, None] >= np.array(lengths)
    assert (out["output"][padded] == 0).all()
    assert (grads["input_backprop"][padded] == 0).all()
    np.testing.assert_array_equal(out["output_h"][:, 1], a["input_h"][:, 1])
    np.testing.assert_array_equal(grads["input_h_backprop"][:, 1], b["output_h_backprop"][:, 1])


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("mode", MODES)
def test_two_byte_floats_are_rounded_once(mode: str, kind: Any, rng: np.random.Generator) -> None:
    """At the results, of what float32 computes from the same operands."""
    attrs = MODES[mode] | BOTH | {"dropout": 0.3}
    a = cu.operands(rng, 3, kind=kind, lengths=[11, 4, 1], **attrs)
    out, grads, b = cu.both(rng, a, attrs)
    wide = {k: v.astype(np.float64) if v.dtype == kind else v for k, v in a.items()}
    want = li.interpret(cu.graph(cu.FORWARD, wide, attrs), wide)
    more = {k: v.astype(np.float64) for k, v in b.items() if k.endswith("_backprop")}
    given = {k: wide[k] for k in cu.OPERANDS} | want | more
    d_want = li.interpret(cu.graph(cu.BACKPROP, given, attrs), given)
    step = float(ml_dtypes.finfo(kind).eps) / 2
    for got, exact in ((out, want), (grads, d_want)):
        for name in set(exact) - {"reserve_space", "host_reserved"}:
            assert got[name].dtype == kind
            error = np.abs(got[name].astype(np.float64) - exact[name])
            assert (error <= step * np.abs(exact[name]) + 2e-5).all(), (mode, name, error.max())
    cu.close(li.interpret(cu.expanded(cu.graph(cu.BACKPROP, b, attrs)), b), grads, 2 * step, mode)


@pytest.mark.parametrize("mode", ["gru", "projection"])
def test_named_sizes_and_text(mode: str, rng: np.random.Generator) -> None:
    attrs = MODES[mode] | BOTH | {"dropout": 0.3}
    for T, B in ((11, 3), (1, 1), (2, 5)):
        a = cu.operands(rng, 2, (T, B, 5, 7), lengths=rng.integers(0, T + 1, B), **attrs)
        named = {"input": ("T", "B", 5), "sequence_lengths": ("B",)}
        named |= {"input_h": (4, "B", a["input_h"].shape[2])}
        named |= {"input_c": (4, "B", 7)} if mode == "projection" else {}
        g = cu.graph(cu.FORWARD, a, attrs, named)
        want = li.interpret(cu.graph(cu.FORWARD, a, attrs), a)
        cu.close(li.interpret(g, a), want, 0.0, (T, B))
        cu.close(li.interpret(cu.expanded(g), a), want, 1e-12, (T, B))
        again = li.parse(str(g))
        assert isinstance(again, li.Graph)
        assert str(again) == str(g)
        cu.close(li.interpret(again, a), want, 0.0, "parsed")


def test_backprop_trusts_the_reserve_and_can_be_repeated(rng: np.random.Generator) -> None:
    """The masks of the reserve count, not those that the seeds would give."""
    attrs = MODES["gru"] | BOTH | {"dropout": 0.5, "seed": 1}
    a = cu.operands(rng, 2, **attrs)
    _, grads, b = cu.both(rng, a, attrs)
    kept = b["reserve_space"].copy()
    g = cu.graph(cu.BACKPROP, b, attrs | {"seed": 99})
    cu.close(li.interpret(g, b), grads, 0.0, "seeds")
    cu.close(li.interpret(g, b), grads, 0.0, "again")
    np.testing.assert_array_equal(b["reserve_space"], kept)


@pytest.mark.parametrize(("kind", "each"), [("f32", "96*T*B"), ("bf16", "8*T*B")])
def test_a_reserve_with_open_sizes(kind: str, each: str) -> None:
    """The lengths that docs/cudnn-rnn.md gives for two layers of 8 units with dropout."""
    state, rows = (2, "B", 8), ("T", "B", 8)
    shapes: dict[str, tuple[Any, ...]] = {"input": ("T", "B", 5), "input_h": state, "input_c": state}
    shapes |= {"params": (cu.params_size(2, 1, 5, 8),), "sequence_lengths": ("B",), "output": rows}
    shapes |= {"output_h": state, "output_c": state, "output_backprop": rows}
    shapes |= {"output_h_backprop": state, "output_c_backprop": state, "reserve_space": (each,)}
    ins = {n: li.input(n, s, "i32" if n == "sequence_lengths" else kind) for n, s in shapes.items()}
    r = li.op(cu.BACKPROP, **ins, host_reserved=np.int8(0), dropout=0.5)
    assert r.input_backprop.type == ins["input"].type
    forward = li.op(cu.FORWARD, **{n: ins[n] for n in cu.OPERANDS}, dropout=0.5)
    assert forward.reserve_space.type == ins["reserve_space"].type


def test_num_proj_equal_to_the_units_is_no_projection(rng: np.random.Generator) -> None:
    a = cu.operands(rng, 2, num_proj=7)
    want = li.interpret(cu.graph(cu.FORWARD, a, {}), a)
    cu.close(li.interpret(cu.graph(cu.FORWARD, a, {"num_proj": 7}), a), want, 0.0, "num_proj")


@pytest.mark.parametrize("mode", MODES)
def test_canonical_forms_are_inverse(mode: str, rng: np.random.Generator) -> None:
    """The op's way out and back, with its gradient, by meaning and expansion."""
    attrs = MODES[mode] | BOTH | {"input_mode": "skip_input"}
    sizes = {"num_layers": 2, "num_units": 7, "input_size": 7}
    n = cu.params_size(2, 2, 7, 7, **{k: v for k, v in attrs.items() if k != "direction"})
    p = li.input("p", (n,), "f64")
    G, proj = cu.GATES[attrs.get("rnn_mode", "lstm")], mode == "projection"
    counts = {"num_params_weights": 4 * (2 * G + proj), "num_params_biases": 4 * 2 * G}
    r = li.op(cu.TO, **sizes, params=p, **counts, **attrs)
    back = li.op(cu.FROM, **sizes, weights=r.weights, biases=r.biases, **attrs).params
    g = li.Graph("g", [p], {"back": back})
    a = {"p": rng.standard_normal(n)}
    np.testing.assert_array_equal(li.interpret(g, a)["back"], a["p"])
    low = Pipeline.parse("expand").run(g, None).graph
    assert not {m.op.name for m in low.nodes} & {cu.TO, cu.FROM}
    np.testing.assert_array_equal(li.interpret(low, a)["back"], a["p"])
    ct = {"ct_back": rng.standard_normal(n)}
    np.testing.assert_array_equal(li.interpret(li.vjp(g, "back", "p"), a | ct)["d_p"], ct["ct_back"])
    assert r.weights[0].shape == (7, 0)  # absent under skip_input, listed all the same


def test_two_directions_are_one_stacked_recurrence(golden: Golden, rng: np.random.Generator) -> None:
    """Each layer of two directions is one loop with a direction axis."""
    attrs = MODES["gru"] | BOTH | {"is_training": False}
    a = cu.operands(rng, 2, kind=np.float32, **attrs)
    named = {"input": ("T", "B", 5), "sequence_lengths": ("B",), "input_h": (4, "B", 7)}
    g = cu.graph(cu.FORWARD, a, attrs, named, "two_layers")
    g = li.Graph("two_layers", g.params, {k: g.output(k) for k in ("output", "output_h")})
    done = for_target(None).run(g, None).graph
    assert [n.op.name for n in done.nodes].count("scan") == 2
    cu.close(li.interpret(done, a), li.interpret(g, a), 2e-6, "scheduled")
    golden("passes/cudnn_two_directions.lir", str(done))
