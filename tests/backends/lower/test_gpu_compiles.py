"""Forms that IREE's compiler refused for GPUs: each is compiled for one that is not here."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from iree_stream import vectors

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.compile.compiler import compile_mlir
from lstm_ir.backends.compile.compiler_errors import CompilerRefusedError
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ops.primitive.linear import dot_general

GPUS = ("cuda:sm_89", "hip:gfx942")


def compiles(graph: li.Graph, target: str) -> None:
    _, blob = build(li.Program("p", {"main": graph}), resolve(target), {})
    assert len(blob) > 1000


@pytest.mark.parametrize("target", GPUS)
def test_sums_of_negated_elements(target: str) -> None:
    x = li.input("x", ("N",))
    compiles(li.Graph("sums", [x], {"y": li.sum(-x), "z": li.sum(-li.exp(x))}), target)


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_scatters_of_halves(dtype: str, target: str) -> None:
    x, u, v = (li.input(n, s, dtype) for n, s in (("x", (5, 7)), ("u", (6, 7)), ("v", (5, 6))))
    i = li.input("i", (6,), "i32")
    outs = {"rows": li.scatter_add(x, i, u), "columns": li.scatter_add(x, i, v, 1)}
    compiles(li.Graph("scatters", [x, u, v, i], outs), target)


@pytest.mark.parametrize("target", GPUS)
def test_scatters_of_named_rows_compile_the_first_time(target: str) -> None:
    """Clamped indices were an array of 2^55 bytes in shared memory: the gradient of every embedding."""
    t, i, u = li.input("t", ("A", "B")), li.input("i", ("N",), "i32"), li.input("u", ("N", "B"))
    graph = li.Graph("scatter", [t, i, u], {"y": li.scatter_add(t, i, u)})
    lowered, _ = build(li.Program("p", {"main": graph}), resolve(target), {})
    assert not [n for n in lowered.report.notes if n.startswith("compiled ")], lowered.report.notes


@pytest.mark.parametrize("steps", [5, "T"])
def test_a_loop_that_starts_from_bfloat16(steps: int | str) -> None:
    x = li.input("x", (steps, 3, 9))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        new = li.convert((row + li.convert(h, "f32") * 0.5) * 1.5, "bf16")
        return new, li.convert(new, "f32")

    _, y = li.scan(cell, li.zeros((3, 9), "bf16"), x)
    compiles(li.Graph("loop", [x], {"y": y}), GPUS[0])


@pytest.mark.parametrize("target", GPUS)
def test_more_tensors_than_a_driver_lets_a_dispatch_have(target: str) -> None:
    """Such a module did not load on CUDA: "binding_flags count 26 exceeds maximum of 16". Graphs are cut before it is
    made (test_many_reads.py); what is not cut is refused when it is compiled."""
    xs = [li.input(f"x{i}", (7, 5)) for i in range(25)]
    y = xs[0]
    for x in xs[1:]:
        y = li.tanh(y) * x
    text = li.lower(li.Graph("many", xs, {"y": y}))
    with pytest.raises(CompilerRefusedError, match="26 tensors, and the driver takes 16"):
        compile_mlir(text, resolve(target), name="many")
    lowered, _ = build(li.Program("p", {"main": li.Graph("many", xs, {"y": y})}), resolve(target), {})
    assert not [n for n in lowered.report.notes if n.startswith("compiled ")]


def test_a_kernel_of_many_tensors_keeps_to_what_a_driver_takes() -> None:
    """Carries share one tensor, and results another."""
    rows = [li.input(f"x{i}", ("T", "B", 8)) for i in range(6)]
    starts = [li.input(f"h{i}", ("B", 8)) for i in range(6)]

    def cell(h: tuple[li.Value, ...], x: tuple[li.Value, ...]) -> tuple[tuple[li.Value, ...], tuple[li.Value, ...]]:
        new = tuple(li.tanh(a + b) for a, b in zip(h, x, strict=True))
        return new, new

    finals, stacked = li.scan(cell, tuple(starts), tuple(rows))
    graph = li.Graph("many", [*rows, *starts], {f"y{i}": y for i, y in enumerate((*finals, *stacked))})
    lowered, _ = build(li.Program("p", {"main": graph}), resolve(GPUS[0]), {})
    (note,) = (n for n in lowered.report.notes if n.startswith("scan at"))
    assert "kernel, all steps in one dispatch" in note
    assert not [n for n in lowered.report.notes if n.startswith("compiled ")]


_PICKED: dict[str, Callable[[li.Value, li.Value], li.Value]] = {
    "one place": lambda x, _: li.take(x[:, :, 1:], 0, 2),
    "columns": lambda x, k: li.take(x[:, :, 1:], k, 2),
    "rows": lambda x, k: li.take(x[:, 1:, 1:], k, 0),
    "of joined axes": lambda x, k: li.take(li.reshape(x[:, 1:], ("A*(B-1)", "C")), k, 0),
    "backwards": lambda x, _: li.reverse(x[:, :, 2:], 1),
    "rows backwards": lambda x, _: li.reverse(x[:, :, 2:], 0),
}


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", _PICKED)
def test_no_vector_is_picked_from_a_slice(name: str, target: str) -> None:
    """Places are counted by the sizes of the slice, and were read in what it was cut from (on an H200)."""
    x, k = li.input("x", ("A", "B", "C")), li.input("k", (4,), "i32")
    texts = vectors(li.Graph("picked", [x, k], {"y": _PICKED[name](x, k)}), target)
    assert any("vector.gather" in t for t in texts), "another form: does the test still see what it is for?"
    for text in texts:
        for picked in re.findall(r"vector\.gather (%\w+)", text):
            (source,) = re.findall(rf"{re.escape(picked)} = iree_codegen\.load_from_buffer (%\w+) ", text)
            assert not re.search(rf"{re.escape(source)} = memref\.subview", text), text


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_batched_products_of_halves_are_those_of_f32(dtype: str) -> None:
    """By tensor cores some were wrong on an H200 (test_batched_products.py); a product without batches keeps them."""
    x, y = li.input("x", (4, 3, 2, 1), dtype), li.input("y", (5, 2, 2, 3), dtype)
    batched = dot_general(x, y, ((1,), (3,)), ((2,), (1,)))
    assert not any("mma" in t for t in vectors(li.Graph("batched", [x, y], {"z": batched}), GPUS[0]))
    a, b = li.input("a", (64, 64), dtype), li.input("b", (64, 64), dtype)
    assert any("mma" in t for t in vectors(li.Graph("alone", [a, b], {"z": a @ b}), GPUS[0]))


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("dtype", ["i8", "u8", "i32"])
def test_extremes_of_integers_are_those_of_unsigned_words(dtype: str, target: str) -> None:
    """Signed ones began with 0 and -1 in each thread: argmin and hardmax were wrong on an H200. HIP takes no bytes."""
    x = li.input("x", ("A", "B"), dtype)
    outs = {"max": li.max(x * x, 1), "min": li.min(x * x, 1), "place": li.argmax(x, 1), "all": li.all(x, 1)}
    texts = "".join(vectors(li.Graph("extremes", [x], outs), target))
    assert "multi_reduction <maxui>" in texts
    assert "multi_reduction <minui>" in texts
    assert not re.search("multi_reduction <m..si>", texts)


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", ["lp_normalization", "layer_norm"])
def test_all_that_a_reduction_is_fused_with_becomes_vectors(name: str, target: str) -> None:
    """Threads run what does not, all of them, and one knows the sum: on an H200 results beside gradients were wrong."""
    x = li.input("x", ("A", "B", "C"))
    y = li.lp_normalization(x) if name == "lp_normalization" else li.layer_norm(x)
    texts = vectors(li.vjp(li.Graph(name, [x], {"y": y}), ["y"], ["x"]), target)
    summed = [t for t in texts if "vector.multi_reduction" in t]
    assert summed
    assert not [t for t in summed if "linalg.generic" in t]
