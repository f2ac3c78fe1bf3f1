"""Single ops and builders at their edges: NumPy's indexing and `@`, ties, values out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reverse_walk import pull_back
from sample import Array, data

import lstm_ir as li
from lstm_ir.ir.graph import topological
from lstm_ir.ir.opdef import OPS

X = data("x", "f32", (5, 7, 3))
KEYS: list[Any] = [
    np.s_[1:4],
    np.s_[:, -1],
    np.s_[..., 0],
    np.s_[::-1],
    np.s_[4:1:-1],
    np.s_[-1, :, None],
    np.s_[None, ..., 1:],
    np.s_[1:100],
    np.s_[-100:2],
    np.s_[3:1],
    np.s_[::2, ::-3, 1],
    np.s_[2, 3, 1],
    np.s_[...],
    np.s_[0:0],
    np.s_[-2:],
    np.s_[:-2:2],
    np.s_[100::-4],
    np.s_[:, 5:-6:-2],
    np.s_[np.int64(2)],
    np.s_[()],
]


def _run(value: li.Value, **inputs: Any) -> Array:
    params = [n.values[0] for n in topological([value.node]) if n.op.name == "parameter"]
    return li.interpret(li.Graph("g", params, {"y": value}), inputs)["y"]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_index_is_numpys(key: Any) -> None:
    x = li.input("x", X.shape)
    np.testing.assert_array_equal(_run(x[key], x=X), X[key])
    assert x[key].shape == X[key].shape


@pytest.mark.parametrize("key", [k for k in KEYS if "100" not in str(k) and k != np.s_[3:1]], ids=str)
def test_index_of_a_named_size_is_numpys(key: Any) -> None:
    x = li.input("x", ("T", "B", 3))
    np.testing.assert_array_equal(_run(x[key], x=X), X[key])


def test_symbolic_bounds_give_expressions() -> None:
    x = li.input("x", ("T", "B", 64))
    got = [x[:-1], x[1:], x[::2], x[-1:], x[:"T-2"], x[2:"T"], x[..., :32], x[-1], x[:, ::-1], x[1::3]]
    want = [
        "f32[T-1,B,64]",
        "f32[T-1,B,64]",
        "f32[(T+1)//2,B,64]",
        "f32[1,B,64]",
        "f32[T-2,B,64]",
        "f32[T-2,B,64]",
        "f32[T,B,32]",
        "f32[B,64]",
        "f32[T,B,64]",
        "f32[(T+1)//3,B,64]",
    ]
    assert [str(v.type) for v in got] == want


def test_a_call_that_is_too_short_for_a_slice_is_refused() -> None:
    x = li.input("x", ("T", 3))
    with pytest.raises(li.CallError, match=r"starts before 0|outside"):
        _run(x[-1], x=np.zeros((0, 3), np.float32))
    with pytest.raises(li.CallError, match=r"\[0, 4\) on axis 0 is outside \[0, T\)"):
        _run(x[:4], x=np.zeros((3, 3), np.float32))
    with pytest.raises(li.CallError, match="has no rows to pick"):
        _run(li.take(x, 0), x=np.zeros((0, 3), np.float32))
    with pytest.raises(li.CallError, match="has no elements"):
        _run(li.argmax(x, 0), x=np.zeros((0, 3), np.float32))


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 5), (5, 7)),
        ((5,), (5,)),
        ((5,), (5, 7)),
        ((3, 5), (5,)),
        ((2, 3, 5), (5, 7)),
        ((2, 3, 5), (5,)),
        ((3, 5), (2, 5, 7)),
        ((5,), (2, 5, 7)),
        ((2, 3, 5), (2, 5, 7)),
        ((4, 1, 3, 5), (2, 5, 7)),
        ((2, 4, 3, 5), (5, 7)),
        ((0, 5), (5, 7)),
        ((3, 0), (0, 7)),
        ((1, 3, 5), (0, 5, 7)),
        ((3, 5), (4, 2, 5, 7)),
    ],
)
def test_matmul_is_numpys(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = data("a", "f64", shapes[0]), data("b", "f64", shapes[1])
    got = _run(li.input("a", a.shape, "f64") @ li.input("b", b.shape, "f64"), a=a, b=b)
    np.testing.assert_allclose(got, a @ b, rtol=1e-13, atol=1e-13)


def test_half_products_are_summed_in_float32() -> None:
    """4096 products of 1: a sum kept in two bytes stops at 2048 (f16) or 256 (bf16)."""
    for k in ("f16", "bf16"):
        a = data("ones", k, (1, 4096), 1, 1)
        x = li.input("x", (1, 4096), k)
        assert float(_run(x @ x.T, x=a)[0, 0]) == 4096


def _grad(build: Callable[..., li.Value], *values: Any) -> list[Any]:
    """Gradients of the sum of `build` in f64."""
    arrays = [np.array(v, np.float64) for v in values]
    ins = [li.input(f"x{i}", a.shape, "f64") for i, a in enumerate(arrays)]
    out = build(*ins)
    grads = pull_back({out: li.ones(out.shape, "f64")}, ins)
    named = {f"d{i}": li.zeros_like(v) if g is None else g for i, (v, g) in enumerate(zip(ins, grads, strict=True))}
    got = li.interpret(li.Graph("g", ins, named), {f"x{i}": a for i, a in enumerate(arrays)})
    return [got[f"d{i}"].tolist() for i in range(len(arrays))]


def test_gradients_at_kinks_are_as_documented() -> None:
    assert _grad(li.maximum, [1, 2, 3], [3, 2, 1]) == [[0, 0.5, 1], [1, 0.5, 0]]
    assert _grad(li.minimum, [1, 2, 3], [3, 2, 1]) == [[1, 0.5, 0], [0, 0.5, 1]]
    assert _grad(li.abs, [-2, 0, 2]) == [[-1, 0, 1]]
    assert _grad(lambda x: li.clamp(-1.0, x, 1.0), [-2, -1, 0, 1, 2]) == [[0, 1, 1, 1, 0]]
    assert _grad(li.sqrt, [0.0, 4.0]) == [[np.inf, 0.25]]
    assert _grad(lambda x: li.max(x), [3, 1, 3, 3]) == [[1 / 3, 0, 1 / 3, 1 / 3]]
    assert _grad(lambda x: li.min(x, 0), [[1, 2], [1, 3]]) == [[[0.5, 1], [0.5, 0]]]


def test_power_has_finite_gradients_at_base_zero() -> None:
    base, exponent = _grad(li.power, [0, 0, 0, -2, 2], [2, 1, 0, 3, 0])
    assert base == [0, 1, 0, 12, 0]
    assert isinstance(exponent, list)
    assert exponent[:3] == [0, 0, 0]
    assert np.isnan(exponent[3])  # (-2)^b is no real function of b
    assert exponent[4] == pytest.approx(np.log(2))


def test_conversion_between_floats_passes_the_gradient() -> None:
    def through(x: li.Value) -> li.Value:
        return li.convert(li.convert(x, "f32") * 3.0, "f64") * x

    assert _grad(through, [1.0, -2.0]) == [[6.0, -12.0]]
    assert _grad(lambda x: x * li.convert(li.convert(x, "i32"), "f64"), [1.5, -2.5]) == [[1.0, -2.0]]


def test_clamp_bounds_get_the_gradient_where_they_hold() -> None:
    assert _grad(li.clamp, [0, 0, 0], [-1, 1, 5], [2, 2, 2]) == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert _grad(li.clamp, [3], [2], [1]) == [[0], [0], [1]]  # bounds crossed: the upper one holds


def test_repeated_operands_add_their_gradients() -> None:
    assert _grad(lambda x: x * x + x, [3.0]) == [[7.0]]
    assert _grad(lambda x: li.concat([x, x, 2.0 * x]), [1.0, 2.0]) == [[4.0, 4.0]]
    assert _grad(lambda x: li.take(x, [0, 2, 0]), [1.0, 2.0, 3.0]) == [[2.0, 0.0, 1.0]]


def test_an_index_outside_is_refused_and_otherwise_clamped() -> None:
    x, i = li.input("x", (5, 3)), li.input("i", (2,), "i32")
    for wrong in ([0, 5], [-1, 0], [2**31 - 1, 0]):
        at = np.array(wrong, np.int32)
        zeros = np.zeros((5, 3), np.float32)
        with pytest.raises(li.ValueRangeError, match="expected 0 <= i <= 4"):
            _run(li.take(x, i), x=zeros, i=at)
        with pytest.raises(li.ValueRangeError, match=r"outside 0\.\.4"):
            _run(li.take(x, li.bitcast_convert(i, "i32")), x=zeros, i=at)
        with pytest.raises(li.ValueRangeError, match="expected 0 <= i <= 4"):
            _run(li.scatter_add(x, i, x[:2]), x=zeros, i=at)
    rows = np.arange(5.0)
    assert OPS["gather"].numpy(rows, np.array([-7, 9, 2]), axis=0).tolist() == [0, 4, 2]
    ones = np.ones(3)
    assert OPS["scatter_add"].numpy(rows, np.array([-7, 9, 9]), ones, axis=0).tolist() == [1, 1, 2, 3, 6]


def test_mean_expands_to_the_same_values() -> None:
    for k in ("f16", "bf16", "f32", "f64"):
        for op, attrs in (
            ("reduce_mean", {"dimensions": (0,)}),
            ("softmax", {"axis": 1}),
            ("log_softmax", {"axis": 0}),
        ):
            x = li.input("x", ("T", 64), k)
            a = data("expand", k, (11, 64))
            expand = OPS[op].expand
            assert expand is not None
            want = np.asarray(OPS[op].numpy(a, **attrs), np.float64)
            got = _run(expand(x, **attrs), x=a).astype(np.float64)
            tol = {"f16": 1e-3, "bf16": 8e-3, "f32": 1e-6, "f64": 1e-14}[k]  # one rounding apart
            np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


def test_reshape_finds_the_missing_size() -> None:
    x = li.input("x", ("T", "B", 64))
    shapes: list[tuple[int | str, ...]] = [("T", -1), (-1, 64), (-1, "B", 8), (-1,), ("T", 4, -1, "B")]
    got = [str(li.reshape(x, s).type) for s in shapes]
    assert got == ["f32[T,64*B]", "f32[B*T,64]", "f32[8*T,B,8]", "f32[64*B*T]", "f32[T,4,16,B]"]
    y = li.input("y", ("2*T", "T-1", 3))
    assert str(li.reshape(y, (-1, "T-1")).type) == "f32[6*T,T-1]"


def test_builders_that_change_nothing_make_no_node() -> None:
    x = li.input("x", ("T", 5))
    same = [
        li.reshape(x, ("T", 5)),
        li.transpose(x, (0, 1)),
        x[:],
        li.pad(x, (0, 0), (0, 0)),
        li.convert(x, "f32"),
        li.concat([x]),
        li.reverse(x, ()),
        li.sum(x, ()),
        li.broadcast_to(x, ("T", 5)),
        li.squeeze(x),
    ]
    assert all(v is x for v in same)


def test_bits_read_as_what_they_were_have_a_gradient() -> None:
    """Found by random graphs: differences saw the identity, the gradient did not."""
    x = li.input("x", (3,), "f64")
    graph = li.Graph("bits", [x], {"loss": li.sum(li.bitcast_convert(x, "f64") * x)})
    given = np.array([1.5, -2.0, 0.25])
    np.testing.assert_array_equal(li.interpret(li.grad(graph, "loss", ["x"]), x=given)["d_x"], 2 * given)


def test_arc_functions_and_their_slopes_at_the_ends() -> None:
    points = np.array([-1.0, -0.999, -0.3, 0.0, 1e-9, 0.5, 1.0])
    for build, numpy, slope in ((li.asin, np.arcsin, 1.0), (li.acos, np.arccos, -1.0)):
        got = li.interpret(li.Graph("arc", [], {"y": build(points)}))["y"]
        np.testing.assert_allclose(got, numpy(points), rtol=1e-15, atol=1e-16)
        x = li.input("x", points.shape, "f64")
        made = li.grad(li.Graph("arc", [x], {"loss": li.sum(build(x))}), "loss", ["x"])
        with np.errstate(divide="ignore", invalid="ignore"):
            want = slope / np.sqrt((1 - points) * (1 + points))
            np.testing.assert_allclose(li.interpret(made, x=points)["d_x"], want, rtol=1e-12)
    outside = li.interpret(li.Graph("arc", [], {"y": li.asin([1.5, -2.0]), "z": li.acos([1.5, -2.0])}))
    assert np.isnan(outside["y"]).all()
    assert np.isnan(outside["z"]).all()


def test_the_angle_has_no_slope_at_the_origin() -> None:
    y, x = li.input("y", (3,)), li.input("x", (3,))
    made = li.grad(li.Graph("angle", [y, x], {"loss": li.sum(li.atan2(y, x))}), "loss", ["y", "x"])
    got = li.interpret(made, y=np.array([0, 3e30, 3e-30], "f4"), x=np.array([0, 4e30, -4e-30], "f4"))
    np.testing.assert_allclose(got["d_y"], [0, 4 / 25e30, -4 / 25e-30], rtol=1e-6)
    np.testing.assert_allclose(got["d_x"], [0, -3 / 25e30, -3 / 25e-30], rtol=1e-6)
