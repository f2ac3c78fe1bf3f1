"""What decides by a computed value decides by the value that the module returns, however that is rounded.

Every op with jumps, or with a slope that jumps, on values that lie at the jumps but for their rounding: products
k/x times x, sums of such, functions of them. Each case returns the values beside what was decided, forward and
backward, inside loops and outside; NumPy decides again by what was returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tolerances
from sweep import Array

import lstm_ir as li
from lstm_ir.ir.opdef import OPS, Level

T, N, M = 4, 5, 8
Value = li.Value
FLOATS = ("f32", "f64", "f16", "bf16")


def _mean(v: Value) -> Value:
    return li.mean(v, -1, keepdims=True)


# [N, M] from x, c = k/x and d, e, which are whole numbers
VALUES: dict[str, Callable[[Value, Value, Value], Value]] = {
    "product": lambda x, c, d: x * c + d,
    "difference": lambda x, c, d: x * c - d * x,
    "two products": lambda x, c, d: x * c + d * c,
    "quotient": lambda x, c, d: (x * c) / (d * d + 1.0) + d,
    "exponential": lambda x, c, d: li.log(li.exp(x * c)) + d * x,
    "tanh": lambda x, c, d: li.tanh(x * c) * d + x * c,
    "row": lambda x, c, d: li.sum(x * c, -1, keepdims=True) + x * c,
    "matrix": lambda x, c, d: (x * c) @ li.transpose(c, (1, 0)) @ d * 0.125 + x * c,
    "running": lambda x, c, d: li.cumsum(x * c, -1) + d * x,
    "norm": lambda x, c, d: (x * c - _mean(x * c)) * li.rsqrt(_mean(x * x)) + d,
}  # fmt: skip


@dataclass(frozen=True)
class Decision:
    """`build` decides by two values; `again` does the same in NumPy, by those that were returned."""

    op: str
    build: Callable[[Value, Value], Value]
    again: Callable[[Array, Array], Array]


def _top(v: Value) -> Value:
    return li.broadcast_to(li.max(v, -1, keepdims=True), v.shape)


def _ranks(v: Value) -> Value:
    """How many of its row are below each."""
    rows, columns = (li.broadcast_to(li.expand_dims(v, a), (v.shape[0], M, M)) for a in (2, 1))
    return li.sum(li.convert(rows > columns, "i32"), 2)


def _compared(word: str) -> Decision:
    numpy = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
             "GE": np.greater_equal}[word]  # fmt: skip
    return Decision("compare", lambda v, w: li.compare(v, w, word), numpy)


def _whole(a: Array) -> Array:
    """Truncated, as a convert to i32 does."""
    return np.asarray(np.trunc(a.astype("f8")).astype("i4"))


BITS = {16: "bf16", 32: "u32", 64: "i64"}


def _halved(a: Array) -> Array:
    return np.asarray(a * a.dtype.type(0.5))


def _half_turns(v: Array, w: Array) -> Array:
    return np.asarray(np.rint(np.arctan2((v - w).astype("f8"), -1.0)), v.dtype)


def _clamped(a: Array, high: Array) -> Array:
    return np.asarray(np.minimum(np.maximum(a, a.dtype.type(-1)), high))


DECISIONS: dict[str, Decision] = {
    **{word: _compared(word) for word in ("EQ", "NE", "LT", "LE", "GT", "GE")},
    "ranks": Decision("compare", lambda v, w: _ranks(v), lambda v, w: (v[..., :, None] > v[..., None, :]).sum(-1)),
    "of the top": Decision("compare", lambda v, w: v >= _top(v), lambda v, w: v >= v.max(-1, keepdims=True)),
    "sign": Decision("sign", lambda v, w: li.sign(v - w), lambda v, w: np.sign(v - w)),
    "floor": Decision("floor", lambda v, w: li.floor(v), lambda v, w: np.floor(v)),
    "ceil": Decision("ceil", lambda v, w: li.ceil(v), lambda v, w: np.ceil(v)),
    "round": Decision("round_nearest_even", lambda v, w: li.round(v * 0.5), lambda v, w: np.rint(_halved(v))),
    "convert": Decision("convert", lambda v, w: li.convert(v, "i32"), lambda v, w: _whole(v)),
    "remainder": Decision("remainder", lambda v, w: li.remainder(v, 1.0), lambda v, w: np.fmod(v, v.dtype.type(1))),
    "angle": Decision("atan2", lambda v, w: li.round(li.atan2(v - w, -1.0)), lambda v, w: _half_turns(v, w)),
    "finite": Decision("is_finite", lambda v, w: li.is_finite(1.0 / (v - w)), lambda v, w: v != w),
    "argmax": Decision("argmax", lambda v, w: li.argmax(v, -1), lambda v, w: v.argmax(-1)),
    "max": Decision("reduce_max", lambda v, w: li.max(v, -1), lambda v, w: v.max(-1)),
    "min": Decision("reduce_min", lambda v, w: li.min(v, -1), lambda v, w: v.min(-1)),
    "maximum": Decision("maximum", li.maximum, np.maximum),
    "minimum": Decision("minimum", li.minimum, np.minimum),
    "clamp": Decision("clamp", lambda v, w: li.clamp(-1.0, v, w), lambda v, w: _clamped(v, w)),
    "select": Decision("select", lambda v, w: li.select(v < w, w, v), lambda v, w: np.where(v < w, w, v)),
    "abs": Decision("abs", lambda v, w: li.abs(v - w), lambda v, w: np.abs(v - w)),
    "bits": Decision("bitcast_convert", lambda v, w: li.bitcast_convert(v, BITS[v.dtype.bits]),
                     lambda v, w: v.view(li.DType(BITS[v.dtype.itemsize * 8]).numpy)),
}  # fmt: skip
# Of v = x * c + e: the slope in e, by what was returned
SLOPES: dict[str, tuple[Callable[[Value, Value], Value], Callable[[Array, Array], Array]]] = {
    "max": (lambda v, w: li.max(v, -1), lambda v, w: _share(v, v.max(-1, keepdims=True))),
    "min": (lambda v, w: li.min(v, -1), lambda v, w: _share(v, v.min(-1, keepdims=True))),
    "select": (lambda v, w: li.select(v > w, v, 0.0), lambda v, w: (v > w).astype(v.dtype)),
    "abs": (lambda v, w: li.abs(v), lambda v, w: np.sign(v)),
    "maximum": (li.maximum, lambda v, w: _larger(v, w)),
    "minimum": (li.minimum, lambda v, w: _larger(w, v)),
    "clamp": (lambda v, w: li.clamp(-1.0, v, w), lambda v, w: _inside(v, w)),
    "max of a part": (
        lambda v, w: li.max(li.select(v < w, v, w), -1),
        lambda v, w: _share(np.where(v < w, v, w), None, v < w),
    ),
}


def _share(v: Array, top: Array | None, kept: Any = True) -> Array:
    """1 for the largest, shared by those that are equal; of those that are not kept, none."""
    hit = v == (v.max(-1, keepdims=True) if top is None else top)
    return np.asarray(hit / hit.sum(-1, keepdims=True).astype(v.dtype) * kept).astype(v.dtype)


def _larger(v: Array, w: Array) -> Array:
    """1 where v is larger, half of it at a tie."""
    return np.asarray((v > w) + 0.5 * (v == w), v.dtype)


def _inside(v: Array, high: Array) -> Array:
    low = v.dtype.type(-1)
    return np.asarray((v >= low) & (np.maximum(v, low) <= high), v.dtype)


JUMPS = {d.op for d in DECISIONS.values()}
# Of these the slope jumps, not the value: it may be of a copy of the operand that was rounded otherwise.
CONTINUOUS = {"maximum", "minimum", "clamp", "abs", "reduce_max", "reduce_min"}
NO_JUMPS = {  # for floats
    "in_range", "broadcast_in_dim", "add", "subtract", "multiply", "divide", "power", "negate", "exponential",
    "exponential_minus_one", "log", "log_plus_one", "erf", "logistic", "tanh", "sine", "cosine", "sqrt", "rsqrt",
    "reshape", "transpose", "reverse", "concatenate", "reduce_sum", "cumsum", "slice", "pad", "dynamic_slice",
    "dynamic_update_slice", "dot_general", "gather", "scatter_add", "scan", "stencil",
    "stencil_grad",
}  # fmt: skip
NO_FLOATS = {"and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic"}


def arrays(seed: int, dtype: str, loop: bool) -> dict[str, Array]:
    """x; c, the nearest to k/x; d and e, whole numbers: x * c + d is whole but for its rounding."""
    r, kind = np.random.default_rng(seed), li.DType(dtype).numpy
    shape = (T, N, M) if loop else (N, M)
    x = r.uniform(1, 2, shape).astype(kind)
    k = r.integers(-3, 4, shape)
    c = (k / x.astype("f8")).astype(kind)
    d, e = (r.integers(-3, 4, shape).astype(kind) for _ in "de")
    return {"x": x, "c": c, "d": d, "e": e}


@dataclass(frozen=True)
class Case:
    """One decision or slope on one value."""

    name: str
    graph: li.Graph
    again: Callable[[Array, Array], Array]
    jumps: bool = True


def _inputs(dtype: str, loop: bool, fixed: bool) -> list[Value]:
    rows: tuple[Any, ...] = (T, N) if fixed else ("T", "N")
    return [li.input(n, (*rows[0 if loop else 1 :], M), dtype) for n in "xcde"]


def forward(value: str, decision: str, dtype: str, loop: bool, fixed: bool) -> Case:
    """The value, another one that is like it, and what is decided by both."""
    x, c, d, e = _inputs(dtype, loop, fixed)
    found = DECISIONS[decision]

    def results(x: Value, c: Value, d: Value, e: Value) -> tuple[Value, Value, Value]:
        v = VALUES[value](x, c, d)
        w = li.reverse(v, 1) if decision in ("LT", "GE", "maximum", "clamp") else x * c + e
        return v, w, found.build(v, w)

    if loop:

        def step(h: Value, rows: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...]]:
            x, c, d, e = rows
            v, w, o = results(x + 0.0 * h, c, d, e)
            return li.tanh(v), (v, w, o)

        _, out = li.scan(step, li.zeros(x.shape[1:], dtype), (x, c, d, e))
        v, w, o = out
    else:
        v, w, o = results(x, c, d, e)
    name = f"{value}, {decision}, {dtype}, loop={loop}, fixed={fixed}"
    return Case(
        name, li.Graph("decides", [x, c, d, e], {"v": v, "w": w, "o": o}), found.again, found.op not in CONTINUOUS
    )


def backward(slope: str, dtype: str, loop: bool, fixed: bool) -> Case:
    """The value, another one, and the slope of what is made of both."""
    x, c, d, e = _inputs(dtype, loop, fixed)
    build, again = SLOPES[slope]
    if loop:

        def step(h: Value, rows: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...]]:
            x, c, d, e = rows
            v, w = x * c + e, x * c + d
            return h, (v, w, build(v, w))

        _, out = li.scan(step, li.zeros((), dtype), (x, c, d, e))
        v, w, y = out
    else:
        v, w = x * c + e, x * c + d
        y = build(v, w)
    graph = li.Graph("slope", [x, c, d, e], {"loss": li.sum(y), "v": v, "w": w})
    graph = li.grad(graph, "loss", ["e"])
    outs = dict(zip(graph.output_names, graph.outputs, strict=True))
    kept = {"v": outs["v"] if "v" in outs else v, "w": outs["w"] if "w" in outs else w, "o": outs["d_e"]}
    return Case(f"slope of {slope}, {dtype}, loop={loop}, fixed={fixed}", li.Graph("slope", graph.params, kept), again)


def held(cases: list[Case], dtype: str, loop: bool, seed: int, kernels: bool) -> None:
    exe = li.compile(
        li.Program("decisions", {f"e{k}": c.graph for k, c in enumerate(cases)}), options={"kernels": kernels}
    )
    wrong = [line for k, c in enumerate(cases) for line in _wrong(c, exe.entries[f"e{k}"], arrays(seed, dtype, loop))]
    assert not wrong, f"seed {seed}: {len(wrong)} of {len(cases)}\n" + "\n".join(wrong)


def _wrong(c: Case, entry: Any, given: dict[str, Array]) -> Iterator[str]:
    with np.errstate(all="ignore"):
        got = entry(given)
        want = c.again(got["v"], got["w"])
        off = (got["o"] != want) & ~((got["o"] != got["o"]) & (want != want))
        if not c.jumps:
            room = tolerances.ONE_OP[tolerances.name_of(want), "cpu"] * (1 + np.abs(want.astype("f8")))
            off &= ~(np.abs(got["o"].astype("f8") - want.astype("f8")) <= room)
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        v, w = (got[n][at[: got[n].ndim]] for n in "vw")
        count = f"{int(off.sum())} of {off.size}"
        yield f"{c.name}: {count}; at {at} {got['o'][at]!r}, not {want[at]!r}, of {v!r} and {w!r}"


def test_every_op_jumps_or_not() -> None:
    floats = {n for n, op in OPS.items() if op.level is Level.primitive and op.operands}
    assert floats == JUMPS | NO_JUMPS | NO_FLOATS
    assert not JUMPS & (NO_JUMPS | NO_FLOATS)
    assert {name for name, d in DECISIONS.items() if d.op in CONTINUOUS} <= set(SLOPES)
    assert set(FLOATS) == {d.value for d in li.DType if d.is_float}


@pytest.mark.parametrize("loop", [False, True], ids=["plain", "loop"])
def test_some_decisions(loop: bool, seed: int) -> None:
    """Every fourth decision, each on another value: others for other seeds."""
    values, first = list(VALUES), seed % 4
    chosen = list(enumerate(DECISIONS))[first::4]
    cases = [forward(values[(seed + k) % len(values)], name, "f32", loop, k % 2 == 0) for k, name in chosen]
    held([*cases, backward("max", "f32", loop, True)], "f32", loop, seed, kernels=loop)


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("form", ["plain", "loop", "kernel"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_decision(dtype: str, form: str, value: str, seed: int) -> None:
    loop = form != "plain"
    cases = [forward(value, d, dtype, loop, (seed + k) % 2 == 0) for k, d in enumerate(DECISIONS)]
    held(cases, dtype, loop, seed, kernels=form == "kernel")


@pytest.mark.slow
@pytest.mark.parametrize("loop", [False, True], ids=["plain", "loop"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_slope(dtype: str, loop: bool, seed: int) -> None:
    cases = [backward(s, dtype, loop, fixed) for fixed in (True, False) for s in SLOPES]
    held(cases, dtype, loop, seed, kernels=loop)
