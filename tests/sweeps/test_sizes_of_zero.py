"""A size of 0 on every axis of every op: fixed, at a call, in loops, in gradients, in layers of any origin.

Of no elements a sum is 0, and a result without elements is a result. What an op's definition refuses, such as
a row of a table without rows, is refused for numbers and names alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import cudnn_cases as cudnn
import layer_cases
import mps_cases as mps
import numpy as np
import pytest
import tf_cases as tf
import tolerances
from sweep import Case, Inputs, case, given, held
from uses import UNUSED, Use, uses

import lstm_ir as li
from lstm_ir.ir.graph import make
from lstm_ir.ir.opdef import OPS

EMPTY = ((0, 6), (5, 0), (0, 0))  # N, M
DTYPES = tuple(d.value for d in li.DType)
COMPOSITES: dict[str, Callable[[Inputs, li.Value], li.Value]] = {
    "softmax": lambda i, v: li.softmax(v, 1),
    "log_softmax": lambda i, v: li.log_softmax(v, 0),
    "reduce_mean": lambda i, v: li.mean(v, 1),
    "batch_norm_results": lambda i, v: (
        li.batch_norm(v, i.new(v.dtype, (v.shape[1],)), i.new(v.dtype, (v.shape[1],)), training=True).y
    ),
    "custom_vjp": lambda i, v: li.custom_vjp(lambda x: (li.abs(x), x), lambda x, ct: ct * x)(v),
    "dropout": lambda i, v: li.dropout(v, 0.5, i.new(li.DType.u32, (2,))),
    "dynamic_quantize_matmul": lambda i, v: li.dynamic_quantize_matmul(
        v, i.new(li.DType.i8, (v.shape[1], 3)), i.new(li.DType.f32, (3,))
    ),
    "threefry": lambda i, v: make(OPS["threefry"], i.new(li.DType.u32, (2,)), shape=v.shape).values[0],
}
USES = (*uses(), *(Use(op, op, build) for op, build in COMPOSITES.items()))


def _made(use: Use, dtype: str, i: Inputs, wrap: Callable[[Use, Inputs, li.Value], li.Value]) -> li.Value | None:
    try:
        return wrap(use, i, use.value(i, li.DType(dtype)))
    except (li.IRError, li.GradientError):
        return None


def _plain(use: Use, i: Inputs, v: li.Value) -> li.Value:
    return use.build(i, v)


def _looped(length: int | str) -> Callable[[Use, Inputs, li.Value], li.Value]:
    """The use in the body of a loop over so many steps, of which each has its rows."""

    def wrap(use: Use, i: Inputs, v: li.Value) -> li.Value:
        xs = i.new(v.dtype, (length, *v.shape), i.fills[v.node.attrs["name"]])

        def step(h: li.Value, x: li.Value) -> tuple[li.Value, li.Value]:
            return h, use.build(i, li.select(li.equal(h, h), x, x))

        _, ys = li.scan(step, i.new(li.DType.f32, ()), xs)
        assert isinstance(ys, li.Value)
        return ys

    return wrap


def _sloped(use: Use, i: Inputs, v: li.Value) -> li.Value:
    """The gradient of the sum of the squares of the use's result."""
    y = use.build(i, v)
    if not y.dtype.is_float or not v.dtype.is_float:
        raise li.IRError("no gradient")
    inputs = list(i.values.values())
    graph = li.Graph("loss", inputs, {"loss": li.sum(y * y)})
    name = v.node.attrs["name"]
    slope: li.Value = li.grad(graph, "loss", [name]).outputs[1]
    return slope


def _open(use: Use, dtype: str, wrap: Any, sizes: tuple[tuple[int, int], ...], what: str) -> Iterator[Case]:
    """Named sizes, called with those that numbers may be."""
    enough = [(n, m) for n, m in sizes if n >= use.rows and m >= use.columns]
    fits = [s for s in enough if _made(use, dtype, Inputs("fixed", *s), wrap) is not None]
    i = Inputs("both")
    y = _made(use, dtype, i, wrap)
    if y is not None and fits:
        calls = tuple({"N": n, "M": m} for n, m in fits)
        yield case(f"{what}{use} of {dtype} (open)", i, y, calls=calls)


def _fixed(use: Use, dtype: str, wrap: Any, what: str) -> Iterator[Case]:
    for n, m in EMPTY:
        i = Inputs("fixed", n, m)
        y = _made(use, dtype, i, wrap)
        if y is not None:
            yield case(f"{what}{use} of {dtype} [{n},{m}]", i, y)


def _half_open(use: Use, dtype: str, wrap: Any, what: str) -> Iterator[Case]:
    """One named size, called with 0 and more, beside a number that is 0."""
    for form, name, sizes in (("rows", "N", ((5, 0), (0, 0))), ("columns", "M", ((0, 6), (0, 0)))):
        least = use.rows if name == "N" else use.columns
        enough = [(n, m) for n, m in sizes if (n if name == "N" else m) >= least]
        fits = [s for s in enough if _made(use, dtype, Inputs("fixed", *s), wrap) is not None]
        i = Inputs(form, *sizes[0])
        y = _made(use, dtype, i, wrap) if fits else None
        if y is not None:
            calls = tuple({name: n if name == "N" else m} for n, m in fits)
            yield case(f"{what}{use} of {dtype} ({form} open, beside 0)", i, y, calls=calls)


def half_open(dtype: str) -> list[Case]:
    """Every use of every op with one open size and one 0."""
    return [c for use in USES for c in _half_open(use, dtype, _plain, "")]


def plain(dtype: str, named: bool) -> list[Case]:
    """Every use of every op, and of the composites."""
    return [
        c for use in USES for c in (_open(use, dtype, _plain, EMPTY, "") if named else _fixed(use, dtype, _plain, ""))
    ]


def slopes(named: bool) -> list[Case]:
    """The gradients of all uses that have one."""
    what = "gradient of "
    found = (_open(u, "f32", _sloped, EMPTY, what) if named else _fixed(u, "f32", _sloped, what) for u in USES)
    return [c for cases in found for c in cases if _reads(c)]


def _reads(c: Case) -> bool:
    """Whether the outputs are more than zeros."""
    return bool(c.ops - {"constant", "broadcast_in_dim", "dim"})


def loops(named: bool) -> list[Case]:
    """Every use in a loop of no steps, and of steps without elements."""
    found: list[Case] = []
    for use in USES:
        if use.op in ("scan", "lstm", "convolution", "convolution_transpose", "max_pool", "avg_pool", "stencil"):
            continue
        for steps in (0, 2):
            sizes = ((5, 6), *EMPTY) if steps == 0 else EMPTY
            what = f"{steps} steps of "
            if named:
                found += _open(use, "f32", _looped(steps), sizes, what)
            else:
                found += _fixed(use, "f32", _looped(steps), what)
    return found


def _zeros(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The sizes with each of them as 0, and with all."""
    for k in range(len(sizes)):
        yield (*sizes[:k], 0, *sizes[k + 1 :])
    yield (0,) * len(sizes)


def _tried(name: str, build: Callable[[], tuple[li.Graph, Any]], **more: Any) -> Iterator[Case]:
    """The case, or none where the definition refuses the sizes."""
    try:
        graph, arrays = build()
    except li.IRError:
        return
    yield given(name, graph, arrays, tolerance=tolerances.RECURRENCE, **more)


def layers(op: str) -> list[Case]:
    """The project's own layers, forward and backward, with numbers and with named T and B."""
    found: list[Case] = []
    base = (3, 2, 4, 5, 2)
    for feature, sizes in product(("states", "bidirectional", "lengths"), _zeros(base[:4])):

        def build(named: bool, feature: str = feature, s: tuple[int, ...] = sizes) -> tuple[li.Graph, Any]:
            operands, attrs = layer_cases.build(op, feature, np.float32, sizes=(*s, 2))
            graph = layer_cases.graph(op, operands, attrs, named)
            floats = [p.node.attrs["name"] for p in graph.params if p.dtype.is_float]
            loss = li.Graph("loss", graph.params, {"loss": li.sum(graph.outputs[0] * 1.5), "y": graph.outputs[0]})
            return li.grad(loss, "loss", floats), layer_cases.arrays(operands)

        for named in (False, True) if sizes[2] and sizes[3] else (False,):
            found += _tried(f"{op} {feature} {sizes} named={named}", lambda n=named, b=build: b(n))  # type: ignore[misc]
    return found


def variants() -> list[Case]:
    """The LSTM variants, with no steps, rows, columns and units."""
    key = np.array([3, 5], "u4")
    found: list[Case] = []
    for sizes in _zeros((3, 2, 4, 5)):
        t, b, i, h = sizes

        def build(op: str, **more: Any) -> tuple[li.Graph, Any]:
            shapes = {"x": (t, b, i), "w_ih": (1, 4 * h, i), "w_hh": (1, 4 * h, h)}  # noqa: B023
            r = np.random.default_rng(7)
            arrays = {n: r.standard_normal(s).astype("f4") for n, s in shapes.items()}
            given = {n: li.input(n, a.shape) for n, a in arrays.items()}
            if op != "layer_norm_lstm":
                arrays["key"] = key
                given["key"] = li.input("key", (2,), "u32")
            inputs = list(given.values())
            y = getattr(li, op)(**given, **more)[0]
            return li.Graph(op, inputs, {"y": y}), arrays

        for op, more in {
            "zoneout_lstm": {"zoneout_c": 0.3, "zoneout_h": 0.2}, "recurrent_dropout_lstm": {"rate": 0.4},
            "layer_norm_lstm": {},
        }.items():  # fmt: skip
            found += _tried(f"{op} {sizes}", lambda op=op, more=more: build(op, **more))  # type: ignore[misc]
    return found


def block_ops(named: bool) -> list[Case]:
    """TensorFlow's block ops; with named sizes, called with what numbers may be."""
    found: list[Case] = []
    for op, peephole in tf.PEEPHOLES:
        for sizes in _zeros((3, 2, 4, 5)):

            def build(names: bool, op: str = op, s: Any = sizes, p: bool = peephole) -> tuple[li.Graph, Any]:
                arrays = tf.operands(np.random.default_rng(5), op, s)
                shapes = tf.shapes(op, "T", "B", "I", s[3]) if names else None
                return tf.graph(op, arrays, tf.required(op, p), shapes), arrays

            name = f"{op} peephole={peephole} {sizes}"
            fixed = list(_tried(name, lambda b=build: b(False)))  # type: ignore[misc]
            found += _tried(f"{name} named", lambda b=build: b(True)) if named and fixed else fixed  # type: ignore[misc]
    return found


ALL: dict[str, Callable[[], list[Case]]] = {
    **{f"ops {d}": lambda d=d: plain(d, False) for d in DTYPES},  # type: ignore[misc]
    **{f"open ops {d}": lambda d=d: plain(d, True) for d in DTYPES},  # type: ignore[misc]
    **{f"half open ops {d}": lambda d=d: half_open(d) for d in DTYPES},  # type: ignore[misc]
    "gradients": lambda: slopes(False),
    "open gradients": lambda: slopes(True),
    "loops": lambda: loops(False),
    "open loops": lambda: loops(True),
    "lstm": lambda: layers("lstm"),
    "gru": lambda: layers("gru"),
    "rnn": lambda: layers("rnn"),
    "variants": variants,
    "block ops": lambda: block_ops(False),
    "open block ops": lambda: block_ops(True),
}


# Their definitions ask for a row of everything (docs/mpsgraph.md, docs/cudnn-rnn.md).
NEVER_EMPTY = {*mps.NAMES, cudnn.FORWARD, cudnn.BACKPROP, cudnn.TO, cudnn.FROM, cudnn.SIZE}


def test_every_dtype_has_parts_of_its_own() -> None:
    parts = {part.rpartition(" ")[2] for part in ALL if part.startswith(("ops ", "open ops ", "half open ops "))}
    assert parts == set(DTYPES) == {d.value for d in li.DType}


def test_every_op_is_tried_with_a_size_of_zero() -> None:
    others = tuple(f"ops {d}" for d in DTYPES if d not in ("f32", "i32", "i1"))  # which these three stand for here
    parts = [part for part in ALL if not part.startswith(("open", "gradients", "loops", *others))]
    tried = {op for part in parts for c in ALL[part]() for op in c.ops}
    assert set(OPS) - tried == UNUSED - tried | NEVER_EMPTY


@pytest.mark.parametrize("sizes", list(_zeros((3, 2, 4, 5))))
@pytest.mark.parametrize("op", mps.FORWARD)
def test_apple_s_ops_refuse_it(op: str, sizes: tuple[int, ...]) -> None:
    arrays = mps.operands(np.random.default_rng(5), op, ("inputWeight",), {}, sizes, np.float32)  # type: ignore[arg-type]
    with pytest.raises(li.IRError, match=f"{op}: .*(at least 1|is empty)"):
        mps.graph(op, arrays, {})
    full = arrays | {"sourceGradient": arrays["source"], **{n: arrays["source"] for n in mps.SAVED[op]}}
    with pytest.raises(li.IRError, match=f"{op}Gradients: .*(at least 1|is empty)"):
        mps.graph(mps.BACK[op], full, {})


@pytest.mark.parametrize("sizes", list(_zeros((3, 2, 4, 5))))
def test_cudnn_s_ops_refuse_it(sizes: tuple[int, ...]) -> None:
    arrays = cudnn.operands(np.random.default_rng(5), 1, sizes, np.float32)  # type: ignore[arg-type]
    with pytest.raises(li.IRError, match=r"tf.CudnnRNNV3: .*(at least 1|not 1 or more)"):
        cudnn.graph(cudnn.FORWARD, arrays, {"rnn_mode": "lstm", "is_training": True})
    n = {"num_layers": 1, "num_units": sizes[3], "input_size": sizes[2]}
    if 0 in n.values():
        with pytest.raises(li.IRError, match="is 0, not 1 or more"):
            li.op(cudnn.TO, **n, params=li.input("p", (8,)), num_params_weights=8, num_params_biases=8)
        with pytest.raises(li.IRError, match="is 0, not 1 or more"):
            li.op(cudnn.SIZE, **n, T=li.DType.f32, S=li.DType.i32)


def test_some_ops(seed: int) -> None:
    """A few of one part: others for other seeds."""
    cases = ALL[list(ALL)[seed % len(ALL)]]()
    held(cases[seed % 7 :: max(7, len(cases) // 6)], seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", ALL)
def test_all(part: str, seed: int) -> None:
    held(ALL[part](), seed)
