"""Products with weights in fewer bits outside of loops: kernels that read the matrix as it is stored, for any rows.

Expected: the NumPy meaning of the graph that the passes made, in which all roundings stand.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import Report, optimize, prepare
from lstm_ir.backends.targets.targets import resolve, this_machine
from lstm_ir.ir.program import Program

# Elements that a kernel reads: two of bf16 are a word, and four of int8 beside rows in int8.
STORED = {"bf16": "i32", "f16": "f16", "int8": "i8", "int8-dynamic": "i32"}
N, K = 260, 130


def _graph(rows: int | str, bias: bool) -> li.Graph:
    rng = np.random.default_rng(8)
    x = li.input("x", (rows, K))
    y = x @ li.weight("w", rng.standard_normal((K, N)).astype(np.float32))
    return li.Graph("product", [x], {"y": y + li.weight("b", rng.standard_normal(N).astype(np.float32)) if bias else y})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 33, "B"])
@pytest.mark.parametrize("precision", STORED)
def test_rows_by_a_narrow_matrix(precision: str, rows: int | str, bias: bool) -> None:
    g = _graph(rows, bias)
    target = resolve("cpu")
    made = optimize(Program.of(g), target, Report("product"), precision=precision).entries["main"]
    exe = li.compile(g, options={"precision": precision})
    for n in (1, 2, 40) if rows == "B" else (rows,):
        a = np.random.default_rng(9).standard_normal((int(n), K)).astype(np.float32)
        assert np.allclose(exe(x=a)["y"], li.interpret(made, x=a)["y"], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("precision", STORED)
def test_one_row_reads_the_matrix_as_it_is_stored(precision: str) -> None:
    text = prepare(_graph(1, bias=True), resolve("cpu:x86-64-v3"), {"precision": precision}).text
    kernels = re.findall(r"func\.func @recurrence_(?:.(?!func\.func))*", text, re.S)
    assert kernels
    held = re.findall(rf"util\.global private @\S+derived\S* : tensor<{K}x{N}xf32>", text)
    assert not held, held
    assert any(f"x{STORED[precision]}>" in line for line in kernels[0].splitlines() if "stream.binding.subspan" in line)


@pytest.mark.parametrize("precision", ["int8", "int8-dynamic"])
def test_a_bias_is_added_in_the_loop_of_its_product(precision: str) -> None:
    made = optimize(Program.of(_graph(3, bias=True)), resolve("cpu"), Report("product"), precision=precision)
    (loop,) = (n for n in made.entries["main"].nodes if n.op.name == "scan")
    assert "add" in {n.op.name for n in loop.attrs["body"].nodes}
    assert not any(n.op.name == "add" for n in made.entries["main"].nodes)


def test_a_product_that_two_nodes_read_is_made_once() -> None:
    x = li.input("x", (3, K))
    rng = np.random.default_rng(10)
    y = x @ li.weight("w", rng.standard_normal((K, N)).astype(np.float32))
    b = li.weight("b", rng.standard_normal(N).astype(np.float32))
    g = li.Graph("twice", [x], {"sum": y + b, "y": y})
    made = optimize(Program.of(g), resolve("cpu"), Report("twice"), precision="int8").entries["main"]
    assert sum(n.op.name == "scan" for n in made.nodes) == 1


@pytest.mark.parametrize("precision", ["int8", "int8-dynamic"])
def test_a_large_matrix_needs_no_second_way_to_compile(precision: str) -> None:
    rng = np.random.default_rng(11)
    x = li.input("x", (2, 64))
    weights = {
        n: li.weight(n, rng.standard_normal(s).astype(np.float32)) for n, s in (("a", (512, 64)), ("r", (512, 128)))
    }
    y = li.lstm(li.expand_dims(x, 0), weights["a"], weights["r"])[0]
    exe = li.compile(li.Graph("large", [x], {"y": y}), options={"precision": precision, "cache": False})
    assert "because IREE refuses" not in str(exe.report)


@pytest.mark.slow
def test_a_package_takes_the_module_that_the_processor_has(tmp_path: Path) -> None:
    g = _graph("B", bias=True)
    package = li.export(g, tmp_path / "p.lirpkg", options={"precision": "int8-dynamic"})
    a = np.random.default_rng(12).standard_normal((5, K)).astype(np.float32)
    exe, own = li.load(package), li.compile(g, options={"precision": "int8-dynamic"})
    features = this_machine().info.features
    if {"avx512vnni", "avx512bw"} <= set(features):
        assert str(exe.target) == "cpu:x86-64-v4-vnni"
    assert np.allclose(exe(x=a)["y"], own(x=a)["y"], rtol=1e-5, atol=1e-4)
