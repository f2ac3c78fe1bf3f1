"""Weights and rows in fewer bits: every body that has a kernel; int8 by each way in which processors multiply four.

Expected: the NumPy meaning of the graph that the passes made, in which all roundings stand.
"""

from __future__ import annotations

import re
import zlib
from functools import cache
from typing import Any

import numpy as np
import pytest
from kernel_bodies import BODIES, Loop
from kernel_checks import AVX2, BASELINE, TOLERANCE, processor
from roundoff import limits

import lstm_ir as li
from lstm_ir.api import Report, build, optimize, prepare
from lstm_ir.backends.kernels.cpu.words import row_offset, word_product
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.targets import cpus
from lstm_ir.ir.program import Program

WORDS = ("int8", "int8-dynamic")
ALL = (*WORDS, "bf16", "f16")
FORMS = [("cpu", (11, 3, 5, 7)), ("cpu", ("T", "B", 5, 23)), (AVX2, (4, 9, 6, 33)), (BASELINE, (5, 1, 7, 18))]
CALLS = ((11, 3), (1, 1), (0, 2), (6, 17), (4, 5), (2, 0))  # of named sizes


@cache
def compiled(precision: str, target: str, sizes: tuple[Any, ...]) -> Any:
    """All bodies as entries of one program: (executable, loops, graphs as passes made them)."""
    seeds = {n: zlib.crc32(repr((n, sizes)).encode()) for n in BODIES}
    loops = {n: Loop(sizes, np.random.default_rng(seeds[n])) for n in BODIES}
    program = Program("bodies", {n: loops[n].graph(n, BODIES[n]) for n in BODIES})
    made = optimize(program, resolve(target), Report("int8"), precision=precision)
    exe = li.compile(program, target, options={"precision": precision})
    return exe, loops, made.entries


@pytest.mark.slow
@pytest.mark.slow_cases(target=[AVX2, BASELINE])
@pytest.mark.parametrize(("target", "sizes"), FORMS)
@pytest.mark.parametrize("precision", ALL)
@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str, precision: str, target: str, sizes: tuple[Any, ...], kernels: bool) -> None:
    exe, loops, made = compiled(precision, target, sizes)
    assert not kernels or others(exe.report.notes) == []
    for steps, rows in CALLS if "B" in sizes else (sizes[:2],):
        arrays = loops[name].arrays(made[name], steps, rows)
        want, got = li.interpret(made[name], arrays), exe.entries[name](arrays)
        for k, w in want.items():
            assert got[k].dtype == w.dtype
        if not all(np.allclose(got[k], w, rtol=TOLERANCE["f32"], atol=TOLERANCE["f32"]) for k, w in want.items()):
            # An element in the middle of two int8: either is right, and what follows moves with it.
            far = limits(made[name], arrays, {"T": steps, "B": rows}, want, np.random.default_rng(1))
            assert [far[k].worst(got[k], w) for k, w in want.items()] == [None] * len(want)


def others(notes: list[str]) -> list[str]:
    """Of a report: what it says of loops that are no kernels."""
    loops = [n for n in notes if n.startswith("scan at")]
    assert len(loops) >= len(BODIES)
    return [n for n in loops if ": kernel, " not in n]


@pytest.mark.parametrize("precision", ALL)
def test_every_body_becomes_a_kernel_that_reads_fewer_bits(precision: str, kernels: bool) -> None:
    if not kernels:
        pytest.skip("kernels are off")
    sizes = (4, 9, 16, 64)
    loops = {n: Loop(sizes, np.random.default_rng(zlib.crc32(n.encode()))) for n in BODIES}
    program = Program("bodies", {n: loops[n].graph(n, BODIES[n]) for n in BODIES})
    found = prepare(program, resolve("cpu:x86-64-v3"), {"precision": precision})
    assert others(found.report.notes) == []
    pairs = r"dense<-65536> : vector<8xi32>"  # the mask of the second of two in bf16
    narrow = {"bf16": pairs, "f16": r"memref<[^>]*xf16\b"}.get(precision, r"memref<[^>]*xi8\b")
    assert re.search(narrow, found.text)


def _lstm(rows: int, columns: int, hidden: int, w: np.ndarray[Any, Any] | None = None) -> li.Graph:
    rng = np.random.default_rng(rows + columns + hidden)
    x = li.input("x", (3, rows, columns))
    w = rng.uniform(-1, 1, (4 * hidden, columns)).astype(np.float32) if w is None else w
    r = rng.uniform(-1, 1, (4 * hidden, hidden)).astype(np.float32)
    return li.Graph("g", [x], {"y": li.lstm(x, li.weight("w", w), li.weight("r", r))[0]})


@pytest.mark.parametrize("precision", WORDS)
@pytest.mark.parametrize(("rows", "columns", "hidden"), [(1, 1, 1), (1, 5, 64), (3, 4, 17), (9, 130, 33), (40, 3, 50)])
def test_lstm(precision: str, rows: int, columns: int, hidden: int) -> None:
    graph = _lstm(rows, columns, hidden)
    exe = li.compile(graph, options={"precision": precision})
    assert re.search(r"scan at .*: kernel, ", str(exe.report))
    made = optimize(Program.of(graph), resolve("cpu"), Report("int8"), precision=precision).entries["main"]
    x = np.random.default_rng(7).standard_normal((3, rows, columns)).astype(np.float32)
    np.testing.assert_allclose(exe(x=x)["y"], li.interpret(made, {"x": x})["y"], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("precision", WORDS)
def test_rows_and_weights_at_the_ends(precision: str) -> None:
    """Rows of zeros, of huge and of tiny numbers, with NaN and infinities; weights of a column that are all zero."""
    w = np.random.default_rng(3).uniform(-1, 1, (4 * 6, 5)).astype(np.float32)
    w[3], w[8] = 0, 1e30
    graph = _lstm(8, 5, 6, w)
    x = np.random.default_rng(4).standard_normal((3, 8, 5)).astype(np.float32)
    x[:, 0], x[:, 1], x[:, 2] = 0, x[:, 1] * 1e30, x[:, 2] * 1e-30
    x[1, 3, 2], x[1, 4, 1], x[0, 5] = np.nan, np.inf, -np.inf
    made = optimize(Program.of(graph), resolve("cpu"), Report("int8"), precision=precision).entries["main"]
    with np.errstate(all="ignore"):
        want = li.interpret(made, {"x": x})["y"]
    assert np.isnan(want[1:, 3]).any()
    assert np.isfinite(want[:, :3]).all()
    np.testing.assert_allclose(
        li.compile(graph, options={"precision": precision})(x=x)["y"], want, rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("word", ["cpu:x86-64", "cpu:x86-64-v2", "cpu:x86-64-v3", "cpu"])
def test_sums_of_the_largest_products(word: str) -> None:
    """Rows and weights of -127 and 127 alone: a pair's sum is as large as may be, of either sign."""
    rng, hidden, columns = np.random.default_rng(9), 6, 52
    w = rng.choice([-0.5, 0.5], (hidden, columns)).astype(np.float32)
    w[1], w[2] = 0.5, -0.5
    x = rng.choice([-2.0, 2.0], (3, 7, columns)).astype(np.float32)
    x[:, 0], x[:, 1] = 2, -2
    given = li.input("x", x.shape)
    y, _ = li.rnn(
        given, li.weight("w", w), li.weight("r", np.zeros((hidden, hidden), np.float32)), activations=("relu",)
    )
    exe = li.compile(li.Graph("g", [given], {"y": y}), processor(word), options={"precision": "int8-dynamic"})
    np.testing.assert_allclose(exe(x=x)["y"], np.maximum(x @ w.T, 0), rtol=1e-6)


def _sums_of_bytes(w: li.Value, rows: int, columns: int) -> li.Graph:
    """h + row @ w in i32; no pass made it."""
    x = li.input("x", (2, rows, columns), "i8")

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        h = h + li.convert(row, "i32") @ li.convert(w, "i32")
        return h, h

    return li.Graph("g", [x], {"y": li.scan(cell, li.zeros((rows, w.shape[1]), "i32"), x)[1]})


@pytest.mark.parametrize("form", ["weight", "moved", "joined", "computed", "wrapped"])
@pytest.mark.parametrize("word", ["cpu:x86-64", "cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu"])
def test_every_byte(word: str, form: str) -> None:
    """Rows and weights that hold -128, which has no negative: alone, and among all others."""
    rng, columns, width = np.random.default_rng(2), 9, 21
    a = rng.integers(-128, 128, (columns, width), np.int8)
    a[:, 0], a[:, 1], a[::2, 2] = -128, 127, -128
    rows = rng.integers(-128, 128, (2, 5, columns), np.int8)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3, ::2] = -128, -1, 127, -128
    made = {
        "weight": lambda: li.weight("w", a),
        "moved": lambda: li.transpose(li.weight("w", a.T)),
        "joined": lambda: li.concat([li.weight("w", np.abs(a[:4] // 2)), li.weight("v", a[4:])], 0),
        "computed": lambda: li.convert(li.clamp(-128.0, li.weight("w", a.astype(np.float32)), 127.0), "i8"),
        "wrapped": lambda: li.convert(li.clamp(-100, li.weight("w", a.astype(np.int32) & 255), 200), "i8"),
    }
    w = a.astype(np.int64)
    w[:4] = np.abs(a[:4] // 2) if form == "joined" else w[:4]
    w = np.minimum(w & 255, 200).astype(np.int8).astype(np.int64) if form == "wrapped" else w
    exe = li.compile(_sums_of_bytes(made[form](), 5, columns), processor(word))
    np.testing.assert_array_equal(exe(x=rows)["y"], np.cumsum(rows.astype(np.int64) @ w, 0))


WIDE = ["cpu:x86-64", "cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:znver4", "cpu:aarch64-dotprod", "cpu"]


@pytest.mark.parametrize("dtype", ["i64", "f64"])
@pytest.mark.parametrize("word", WIDE)
def test_bytes_beside_columns_of_64_bits(word: str, dtype: str, kernels: bool) -> None:
    """Vectors have half as many lanes then, of which a processor's product of words knows nothing."""
    rng, columns, width = np.random.default_rng(4), 9, 21
    w, rows = (rng.integers(-128, 128, shape, np.int8) for shape in ((columns, width), (3, 5, columns)))
    w[:, 0], rows[:, 0], rows[:, 1] = -128, -128, 127
    x, given = li.input("x", rows.shape, "i8"), li.weight("w", w)

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        h = h + li.convert(li.convert(row, "i32") @ li.convert(given, "i32"), dtype)
        return h, h

    graph = li.Graph("g", [x], {"y": li.scan(cell, li.zeros((5, width), dtype), x)[1]})
    target = resolve(word)
    made, _ = build(Program.of(graph), target)
    assert not kernels or re.search(r"scan at .*: kernel, ", str(made.report))
    if cpus.refusal(target.info.triple, target.info.features) is None:
        np.testing.assert_array_equal(li.compile(graph, word)(x=rows)["y"], np.cumsum(rows.astype(np.int64) @ w, 0))


def test_weights_without_their_lowest_keep_the_shorter_form() -> None:
    w = np.arange(-127, 128, dtype=np.int8)[: 8 * 16].reshape(8, 16)
    low = np.where(w == 0, np.int8(-128), w)
    for array, known in ((w, "psign.b"), (low, "pmadd.wd")):
        text = prepare(_sums_of_bytes(li.weight("w", array), 2, 8), resolve("cpu:x86-64-v3")).text
        assert (known in text, "psign.b" in text) == (True, known == "psign.b")


def test_tiny_weights_are_held_within_int8() -> None:
    """The scale of the smallest floats is 0 or rounded: a quotient is larger than 127, and was made -128."""
    x = li.input("x", (3, 8))
    graph = li.Graph("g", [x], {"y": x @ li.weight("w", np.full((8, 4), -1e-45, np.float32))})
    made = optimize(Program.of(graph), resolve("cpu"), Report("int8"), precision="int8").entries["main"]
    (narrow,) = (v for n in made.nodes for v in n.values if v.dtype is li.DType.i8)
    held = li.interpret(li.Graph("narrow", [], {"q": narrow}), {})["q"]
    assert held.min() >= -127


def test_a_row_does_not_depend_on_the_others() -> None:
    """Each row has its own scale, so a batch gives what its rows give alone, to the bit."""
    x = np.random.default_rng(5).standard_normal((3, 6, 12)).astype(np.float32) * np.array([[[1]]] * 3, np.float32)
    x[:, 2] *= 1000
    many = li.compile(_lstm(6, 12, 20), options={"precision": "int8-dynamic"})(x=x)["y"]
    rng = np.random.default_rng(6 + 12 + 20)
    w, r = (rng.uniform(-1, 1, (80, k)).astype(np.float32) for k in (12, 20))
    one = li.input("x", (3, 1, 12))
    graph = li.Graph("g", [one], {"y": li.lstm(one, li.weight("w", w), li.weight("r", r))[0]})
    exe = li.compile(graph, options={"precision": "int8-dynamic"})
    for b in range(6):
        np.testing.assert_array_equal(exe(x=x[:, b : b + 1])["y"], many[:, b : b + 1])


def test_members_of_a_team() -> None:
    """Each member makes the rows for itself; five members share one sequence."""
    graph = _lstm(2, 60, 96)
    options: dict[str, Any] = {"precision": "int8-dynamic", "thresholds": {"shared_step": 1}}
    made = optimize(Program.of(graph), resolve("cpu"), Report("int8"), precision="int8-dynamic").entries["main"]
    exe = li.compile(graph, device="local-task", options=options)
    rng = np.random.default_rng(8)
    for _ in range(30):
        x = rng.standard_normal((3, 2, 60)).astype(np.float32)
        np.testing.assert_allclose(exe(x=x)["y"], li.interpret(made, {"x": x})["y"], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["i8", "i32"])
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_floats_become_integers(source: str, dtype: str) -> None:
    """Cut off towards 0, saturated, NaN is 0; in a kernel as elsewhere."""
    x, h0 = li.input("x", (2, 3, 21), source), li.input("h0", (3, 21), source)

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        return h + row, li.convert(h + row, dtype)

    _, y = li.scan(cell, h0, x)
    graph = li.Graph("g", [x, h0], {"y": y})
    exe = li.compile(graph)
    assert ": kernel" in str(exe.report)
    ends = [
        0.0, -0.0, 0.5, -0.5, 1.999, -1.999, 126.9, 127.0, 127.5, 128.0, -128.0, -128.9, -129.0,
        2.0**31 - 128, 2.0**31, -(2.0**31), -(2.0**31) - 256, 1e30, -1e30, np.inf, np.nan,
    ]  # fmt: skip
    a = np.broadcast_to(np.array(ends, li.DType.of(source).numpy), (2, 3, 21)).copy()
    start = np.zeros((3, 21), a.dtype)
    start[1], a[1] = np.nan_to_num(a[0, 1], posinf=0) * 0.25, 0
    np.testing.assert_array_equal(exe(x=a, h0=start)["y"], li.interpret(graph, {"x": a, "h0": start})["y"])


@pytest.mark.parametrize(
    ("word", "product", "offset"),
    [
        ("cpu:x86-64", "pairs", 0), ("cpu:x86-64-v2", "signs", 0), ("cpu:sandybridge", "", 0),
        ("cpu:x86-64-v3", "signs", 0), ("cpu:x86-64-v4", "pairs", 0),
        ("cpu:znver4", "x86.avx512.vpdpbusd.512", 128), ("cpu:alderlake", "x86.avx512.vpdpbusd.256", 128),
        ("cpu:neoverse-n1", "aarch64.neon.sdot.v4i32.v16i8", 0), ("cpu:cortex-a53", "", 0), ("cpu:riscv64", "", 0),
    ],
)  # fmt: skip
def test_instructions(word: str, product: str, offset: int) -> None:
    target = resolve(word)
    assert (word_product(target.info), row_offset(target.info)) == (product, offset)
    graph = _lstm(2, 8, 16)
    lowered, _ = build(Program.of(graph), target, {"precision": "int8-dynamic"})  # the processor has the instructions
    known = {"pairs": "pmadd", "signs": "psign.b"}.get(product, product or "arith.muli")
    assert known in lowered.text


def test_weights_alone_are_read_as_int8() -> None:
    """A kernel's packed weights are int8 tensors, of a quarter of the bytes."""
    text = prepare(_lstm(2, 8, 16), resolve(processor("cpu:x86-64-v3")), {"precision": "int8"}).text
    assert re.search(r"tensor<\d+x\d+x\d+xi8>", text)
