"""Builders at their edges: sizes of 0, NaN in orders, kinks, stacks beside layers, and what they refuse by name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need
from sample import data

import lstm_ir as li
from lstm_ir.ops.nn.threefry import folded, number_key

Array = np.ndarray[Any, Any]
any_: Any = li


def both(g: li.Graph, given: dict[str, Array]) -> list[dict[str, Array]]:
    """The NumPy meaning, and compiled for the CPU."""
    with li.compile(g) as exe:
        return [li.interpret(g, given), exe(given)]


def test_sizes_of_zero() -> None:
    """T = 0, then B = 0, of one module: what NumPy gives for no elements."""
    x, i = li.input("x", ("T", "B")), li.input("i", ("B", 2), "i32")
    down = li.swapaxes(x, 0, 1)
    want: dict[str, tuple[li.Value, Callable[[Array, Array], Array]]] = {
        "relu": (li.relu(x), lambda a, _: np.maximum(a, 0)),
        "roll": (li.roll(x, 3, 0), lambda a, _: np.roll(a, 3, 0)),
        "tile": (li.tile(x, (2, 1)), lambda a, _: np.tile(a, (2, 1))),
        "repeat": (li.repeat(x, 3, 0), lambda a, _: np.repeat(a, 3, 0)),
        "repeats": (li.repeat(x, 2), lambda a, _: np.repeat(a, 2)),
        "tril": (li.tril(x), lambda a, _: np.tril(a)),
        "sort": (li.sort(x, 0), lambda a, _: np.sort(a, 0)),
        "sort1": (li.sort(x, 1), lambda a, _: np.sort(a, 1)),
        "argsort": (li.argsort(x, 0), lambda a, _: np.argsort(a, 0, kind="stable").astype("i4")),
        "top_0": (li.top_k(x, 0, 0)[0], lambda a, _: a[:0]),
        "std": (li.std(x, 1), lambda a, _: np.std(a, 1)),
        "var": (li.var(x, 0, ddof=1), lambda a, _: np.var(a, 0, ddof=1)),
        "prod": (li.prod(x, 0), lambda a, _: np.prod(a, 0)),
        "cumprod": (li.cumprod(x, 0), lambda a, _: np.cumprod(a, 0)),
        "norm": (li.norm(x, 2, 0), lambda a, _: np.sqrt((a * a).sum(0))),
        "logsumexp": (li.logsumexp(x, 0), lambda a, _: np.log(np.exp(a).sum(0))),
        "einsum": (li.einsum("tb,tb->b", x, x), lambda a, _: np.einsum("tb,tb->b", a, a)),
        "attention": (li.attention(down, down, down, scale=1.0), _attended),
        "group": (li.group_norm(x[:, None], 1), lambda a, _: np.zeros((len(a), 1, a.shape[1]))),
    }  # fmt: skip
    g = li.Graph("zeros", [x, i], {n: v for n, (v, _) in want.items()} | {"i": i})
    with li.compile(g) as exe, np.errstate(all="ignore"):
        for t, b in ((0, 3), (4, 0), (0, 0)):
            given = {"x": np.zeros((t, b), "f4"), "i": np.zeros((b, 2), "i4")}
            for run in (lambda a: li.interpret(g, a), exe):
                out = run(given)
                for n, (_, oracle) in want.items():
                    expected = _quiet(oracle, given["x"], given["i"])
                    assert out[n].shape == expected.shape, (n, t, b)
                    np.testing.assert_allclose(out[n], expected, err_msg=f"{n} {t} {b}", atol=1e-6)


@np.errstate(all="ignore")
def _quiet(oracle: Callable[[Array, Array], Array], a: Array, i: Array) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return oracle(a, i)


def _attended(a: Array, _: Array) -> Array:
    scores = np.exp(a.T @ a)
    return np.asarray(scores / scores.sum(-1, keepdims=True) @ a.T)


def test_elements_along_axes_of_zero() -> None:
    x, i = li.input("x", ("T", "B")), li.input("i", (2, "B"), "i32")
    g = li.Graph("g", [x, i], {"y": li.take_along_axis(x, i, 0), "z": li.gather_elements(x, i, 0)})
    for out in both(g, {"x": np.ones((5, 0), "f4"), "i": np.zeros((2, 0), "i4")}):
        assert out["y"].shape == out["z"].shape == (2, 0)
    with pytest.raises(li.ValueRangeError):
        li.interpret(g, x=np.ones((0, 3), "f4"), i=np.zeros((2, 3), "i4"))


def test_nan_is_the_largest() -> None:
    a = np.array([2, np.nan, -np.inf, np.inf, -0.0, 0.0, -np.nan, -3], np.float32)
    x = li.input("x", (8,))
    outputs = {"up": li.sort(x), "at": li.argsort(x), "down": li.argsort(x, descending=True), "top": li.top_k(x, 3)[1],
               "low": li.top_k(x, 4, largest=False)[1], "min": li.argmin(x)}  # fmt: skip
    for out in both(li.Graph("nan", [x], outputs), {"x": a}):
        np.testing.assert_array_equal(out["up"], np.sort(a))
        np.testing.assert_array_equal(out["at"], [2, 7, 4, 5, 0, 3, 1, 6])
        np.testing.assert_array_equal(out["down"], [1, 6, 3, 0, 4, 5, 7, 2])
        np.testing.assert_array_equal(out["top"], [1, 6, 3])
        np.testing.assert_array_equal(out["low"], [2, 7, 4, 5])
        assert out["min"] == np.argmin(a)


@pytest.mark.parametrize("n", [1, 2, 3, 31, 33, 100, 257])
def test_a_network_of_any_size(n: int, rng: np.random.Generator) -> None:
    """Few different numbers, so that many are equal; sizes of no power of two."""
    a = rng.integers(0, 7, (n, 2)).astype(np.int32)
    for size in (n, "N"):
        x = li.input("x", (size, 2), "i32")
        out = li.interpret(li.Graph("g", [x], {"at": li.argsort(x, 0), "down": li.argsort(x, 0, True)}), x=a)
        np.testing.assert_array_equal(out["at"], np.argsort(a, 0, kind="stable"))
        np.testing.assert_array_equal(out["down"], np.argsort(-a, 0, kind="stable"))


def test_integers_at_their_ends() -> None:
    for kind in ("i8", "u8", "i32", "u32", "i64"):
        info = np.iinfo(li.DType(kind).numpy)
        a = np.array([info.max, 0, info.min, 1, info.max, info.min], info.dtype)
        x = li.input("x", (6,), kind)
        outputs = {"s": li.sort(x), "d": li.sort(x, descending=True), "k": li.top_k(x, 3)[0], "m": li.argmin(x)}
        for out in both(li.Graph("g", [x], outputs), {"x": a}):
            np.testing.assert_array_equal(out["s"], np.sort(a))
            np.testing.assert_array_equal(out["d"], np.sort(a)[::-1])
            np.testing.assert_array_equal(out["k"], np.sort(a)[::-1][:3])
            assert out["m"] == np.argmin(a)


def test_more_than_there_are() -> None:
    x = li.input("x", ("N",))
    for k in (5, 30):
        g = li.Graph("g", [x], {"y": li.top_k(x, k)[0]})
        with pytest.raises(li.CallError, match=rf"\[0, {k}\) on axis 0 is outside \[0, N\) \(N = 3\)"):
            li.interpret(g, x=np.zeros(3, "f4"))


def test_logsumexp_of_infinities() -> None:
    """All -inf is -inf, with gradient 0, where PyTorch has NaN."""
    need("torch")
    import torch

    a = np.array([[-np.inf, -np.inf], [-np.inf, 1.0], [1e4, 1e4], [-1e4, -1e4]], np.float32)
    x = li.input("x", (4, 2))
    wide = li.vjp(li.Graph("g", [x], {"y": li.logsumexp(x, 1)}), "y", "x")
    t = torch.tensor(a.astype("f8"), requires_grad=True)
    y = torch.logsumexp(t, 1)
    y.backward(torch.ones(4, dtype=torch.double))
    for out in both(wide, {"x": a, "ct_y": np.ones(4, "f4")}):
        np.testing.assert_allclose(out["y"], y.detach().numpy(), rtol=1e-6)
        np.testing.assert_array_equal(out["d_x"][0], [0, 0])
        np.testing.assert_allclose(out["d_x"][1:], t.grad.numpy()[1:], atol=1e-6)


def test_roll_by_more_than_there_are() -> None:
    x, s = li.input("x", ("N", 3)), li.input("s", (), "i32")
    g = li.Graph("g", [x, s], {"y": li.roll(x, s, 0), "z": li.roll(x, -17, 0)})
    with li.compile(g) as exe:
        for n in (1, 2, 5):
            a = data("roll", "f32", (n, 3))
            for by in (-12, -1, 0, 1, 5, 7):
                given = {"x": a, "s": np.int32(by)}
                for out in (li.interpret(g, given), exe(given)):
                    np.testing.assert_array_equal(out["y"], np.roll(a, by, 0))
                    np.testing.assert_array_equal(out["z"], np.roll(a, -17, 0))


def test_a_stack_drops_between_layers_alone() -> None:
    """Beside the same of single layers and `dropout`."""
    x = li.input("x", ("T", 3, 4))
    w = [{"w_ih": data(f"i{k}", "f32", (8, n)), "w_hh": data(f"h{k}", "f32", (8, 2))} for k, n in enumerate((4, 2, 2))]
    key = number_key(5)
    y = li.lstm_stack(x, w, dropout=0.5, key=key)
    v: li.Value = x
    states = []
    for k, layer in enumerate(w):
        v = v if k == 0 else li.dropout(v, 0.5, folded(key, k, 0))
        v, h, c = li.lstm(v, layer["w_ih"], layer["w_hh"])
        states.append((h, c))
    rest = li.lstm_stack(x, w, dropout=0.5, key=key, training=False)
    plain = li.lstm_stack(x, w)
    outputs = {"y": y.y, "h": y.h_n, "c": y.c_n, "y1": v, "rest": rest.y, "plain": plain.y,
               "h1": li.concat([h for h, _ in states]), "c1": li.concat([c for _, c in states])}  # fmt: skip
    out = li.interpret(li.Graph("g", [x], outputs), x=data("x", "f32", (5, 3, 4)))
    for a, b in (("y", "y1"), ("h", "h1"), ("c", "c1"), ("rest", "plain")):
        np.testing.assert_array_equal(out[a], out[b])
    assert (out["y"] != out["plain"]).any()


X, I, L = li.input("x", (3, 4)), li.input("i", (3, 4), "i32"), li.input("l", ("T", 2, 4))
F = np.zeros
W = {"w_ih": F((8, 4), "f4"), "w_hh": F((8, 2), "f4")}
REFUSED: dict[str, Callable[[], object]] = {
    "gelu: takes float elements, got i32": lambda: li.gelu(I),
    "gelu: approximate is 'erf'; expected none or tanh": lambda: li.gelu(X, "erf"),
    "leaky_relu: negative_slope is '0.1'": lambda: any_.leaky_relu(X, "0.1"),
    "softplus: beta is 0": lambda: li.softplus(X, 0.0),
    "celu: alpha is 0": lambda: li.celu(X, 0.0),
    "relu: takes numbers, got i1": lambda: li.relu(X > 0),
    "where: the condition is f32, not i1": lambda: li.where(X, 1.0, 0.0),
    "split: axis 1 of size 4 is not known to divide into 3 parts": lambda: li.split(X, 3, 1),
    "split: axis 0 of size T is not known to divide into 2": lambda: li.split(L, 2),
    "split: parts is 0": lambda: li.split(X, 0),
    "split: parts is None": lambda: any_.split(X, None),
    "tile: reps is 1.5": lambda: any_.tile(X, 1.5),
    "tile: a size is -1": lambda: li.tile(X, (-1, 1)),
    "repeat: repeats is [1, 2, 3]; expected one number": lambda: any_.repeat(X, [1, 2, 3], 0),
    "repeat: a size is -1": lambda: li.repeat(X, -1, 0),
    "repeat: axis 2 is outside": lambda: li.repeat(X, 2, 2),
    "floor_divide: takes numbers, got i1": lambda: (X > 0) // (X > 0),
    "floor_divide: an operand is the size T": lambda: L // L.shape[0],
    "mod: takes numbers, got i1": lambda: li.mod(X > 0, X > 0),
    "roll: shift is 1.5": lambda: li.roll(X, 1.5, 0),
    "roll: shift is (1, 2, 3); expected one for each of 2 axes": lambda: li.roll(X, (1, 2, 3), (0, 1)),
    "roll: the shift is f32[3,4], not i32[]": lambda: li.roll(X, X, 0),
    "tril: x has less than two axes": lambda: li.tril(X[0]),
    "tril: k is 0.5": lambda: any_.tril(X, 0.5),
    "eye: a size is -1": lambda: li.eye(-1),
    "flip: axis 2 is outside": lambda: li.flip(X, 2),
    "var: takes float elements, got i32": lambda: li.var(I),
    "std: ddof is 0.5": lambda: any_.std(X, ddof=0.5),
    "logsumexp: keepdims is 1": lambda: any_.logsumexp(X, keepdims=1),
    "norm: ord is 'fro'": lambda: any_.norm(X, "fro"),
    "norm: takes float elements, got i32": lambda: li.norm(I),
    "clip: takes numbers, got i1": lambda: li.clip(X > 0, 0, 1),
    "nan_to_num: posinf is inf": lambda: li.nan_to_num(X, posinf=np.inf),
    "top_k: k is 5, axis 1 has 4 elements": lambda: li.top_k(X, 5),
    "top_k: largest is 1": lambda: any_.top_k(X, 2, largest=1),
    "sort: axis 2 is outside": lambda: li.sort(X, 2),
    "argsort: descending is None": lambda: any_.argsort(X, descending=None),
    "take_along_axis: indices have 1 axes, x has 2": lambda: li.take_along_axis(X, I[0]),
    "take_along_axis: indices are f32": lambda: li.take_along_axis(X, X),
    "take_along_axis: sizes 2 and 4 do not broadcast": lambda: li.take_along_axis(X, I[:, :2], 0),
    "put_along_axis: add is 'yes'": lambda: any_.put_along_axis(X, I, 0.0, add="yes"),
    "gather_nd: the last axis of indices is": lambda: li.gather_nd(X, F((2, 3), "i4")),
    "scatter_nd: the last axis of indices is": lambda: li.scatter_nd(X, F((2, 0), "i4"), 0.0),
    "reverse_sequence: x is [T,B,...]": lambda: li.reverse_sequence(X, F(3, "i4")),
    "one_hot: indices are f32": lambda: li.one_hot(X, 3),
    "one_hot: a size is -2": lambda: li.one_hot(I, -2),
    "pad: mode is 'mirror'": lambda: li.pad(X, (1, 1), (1, 1), mode="mirror"),
    "pad: low is [1]": lambda: li.pad(X, (1,), (1, 1), mode="edge"),
    "pad: interior is (1, 0)": lambda: li.pad(X, (1, 1), (1, 1), (1, 0), mode="edge"),
    "prod: takes numbers, got i1": lambda: li.prod(X > 0),
    "cumprod: exclusive is 1": lambda: any_.cumprod(X, exclusive=1),
    "group_norm: groups is 3; expected a divisor of the number of channels, 4": lambda: li.group_norm(X, 3),
    "group_norm: scale is [C]": lambda: li.group_norm(X, 2, F(3, "f4")),
    "batch_norm: mean is [C], axis 1 of x": lambda: li.batch_norm(X, F(3, "f4"), F(4, "f4")),
    "batch_norm: mask is i1[3], the axes of x without that of": lambda: li.batch_norm(X, *F((2, 4), "f4"), mask=X > 0),
    "batch_norm: mask is i1[T,4], the axes": lambda: li.batch_norm(L, *F((2, 2), "f4"), mask=L[:, 0]),
    "batch_norm: var is f64[4], x has f32 elements: var is of f32": lambda: li.batch_norm(X, F(4, "f4"), F(4, "f8")),
    "batch_norm: scale is f16[4]": lambda: li.batch_norm(X, F(4, "f4"), F(4, "f4"), F(4, "f2")),
    "layer_norm: bias is i32[4]": lambda: li.layer_norm(X, None, F(4, "i4")),
    'rms_norm: scale is f64[4], x has f32 elements: scale is of f32; li.convert(scale, "f32") converts': (
        lambda: li.rms_norm(X, F(4, "f8"))
    ),
    "group_norm: bias is f64[4]": lambda: li.group_norm(X, 2, F(4, "f4"), F(4, "f8")),
    "layer_norm: scale is f64[4], x has f16 elements: scale is of f16 or f32": (
        lambda: li.layer_norm(li.convert(X, "f16"), F(4, "f8"))
    ),
    "layer_norm: scale is f32[1]; the normalised axes have 4 elements, and it has one number for each": (
        lambda: any_.layer_norm(X, (4,))  # PyTorch's call
    ),
    "layer_norm: bias is f32[]; the normalised axes have 4": lambda: li.layer_norm(X, None, 1.0),
    "rms_norm: scale is f32[1]; the normalised axes have 4": lambda: li.rms_norm(X, [4]),
    "rms_norm: scale is f32[4]; the normalised axes have 3, 4": lambda: li.rms_norm(X, F(4, "f4"), axis=(0, 1)),
    "rms_norm: scale is f32[4]; the normalised axes have 3": lambda: li.rms_norm(X, F(4, "f4"), axis=0),
    "batch_norm: training is 1": lambda: any_.batch_norm(X, F(4, "f4"), F(4, "f4"), training=1),
    "rms_norm: epsilon is -1": lambda: li.rms_norm(X, epsilon=-1.0),
    "instance_norm: x has 2 axes, it needs 3": lambda: li.instance_norm(X),
    "attention: q, k and v are floats": lambda: li.attention(X, X[:, :3], X),
    "attention: mask is i32": lambda: li.attention(X, X, X, F((3, 3), "i4")),
    "attention: scale is None; expected a number, since D is T": lambda: li.attention(*[li.input("z", (2, "T"))] * 3),
    "multi_head_attention: heads is 3": lambda: li.multi_head_attention(L, L, L, F((12, 4)), F((4, 4)), heads=3),
    "multi_head_attention: query, key and value are": lambda: li.multi_head_attention(L, L, X, X, X, heads=2),
    "lstm_stack: layers is []": lambda: li.lstm_stack(L, []),
    "lstm_stack: layer 0 is": lambda: any_.lstm_stack(L, [(1, 2)]),
    "lstm_stack: a name of layer 0 is 'b_hn'": lambda: li.lstm_stack(L, [{**W, "b_hn": None}]),
    "lstm_stack: layer 0 is ['w_ih']; expected w_hh too": lambda: li.lstm_stack(L, [{"w_ih": W["w_ih"]}]),
    "lstm_stack: dropout is 1": lambda: li.lstm_stack(L, [W, W], dropout=1.0),
    "lstm_stack: key is None": lambda: li.lstm_stack(L, [W, W], dropout=0.1),
    "lstm_stack: direction is 'both'": lambda: li.lstm_stack(L, [W], direction="both"),
    "lstm_stack: h0 is f32[2,2,2]; its first axis": lambda: li.lstm_stack(L, [W], F((2, 2, 2), "f4")),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refused(problem: str) -> None:
    with pytest.raises(li.IRError, match=re.escape(problem)):
        REFUSED[problem]()
