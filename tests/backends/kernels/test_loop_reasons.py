"""Why a loop is no kernel, and what to write instead: what each sentence says is a kernel, of the same numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Golden
from loop_rewrites import REWRITES, rows_in_both_orders

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.kernels.body import instead, tuned
from lstm_ir.backends.run.devices import resolve

PLACE = re.compile(r"[\w.]+\.py:\d+( <- [\w-]+)*")
# Of GPUs: the CPU has kernels for these.
NOT_WRITTEN = {"ONE_DTYPE", "CONVERT_BEFORE", "FOLD_AXES", "KNOWN_END", "COLUMNS_LAST"}


def notes(graph: li.Graph, target: str = "cpu:x86-64-v3") -> list[str]:
    found: list[str] = prepare(graph, resolve(target), {"kernels": True}).report.notes
    return [n for n in found if n.startswith("scan at")]


def arrays(graph: li.Graph, rng: np.random.Generator) -> dict[str, Any]:
    out = {}
    for name, v in zip(graph.input_names, graph.params, strict=True):
        shape = [d if isinstance(d, int) else 3 for d in v.shape]
        a = rng.standard_normal(shape) if v.dtype.is_float else rng.integers(0, 8, shape)
        out[name] = a.astype(v.dtype.numpy)
    return out


@pytest.mark.parametrize("name", REWRITES)
def test_what_the_reason_says_becomes_a_kernel_of_the_same_numbers(name: str, golden: Golden, seed: int) -> None:
    write, make = REWRITES[name]
    before, after = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuned, "ONE_ROW", 0)  # small bodies whose rows meet are kernels all the same
        why = [n for n in notes(before) if ": loop, because " in n]
    assert len(why) == 1
    assert why[0].endswith(f"; instead: {write}")
    golden(f"loop_reasons/{name}.txt", PLACE.sub("PLACE", why[0]))
    assert all(": kernel, " in n for n in notes(after))
    given = arrays(after, np.random.default_rng(seed))
    want = li.interpret(before, given)
    half = any(v.dtype.bits == 16 for v in (*before.params, *before.outputs))
    with li.compile(after) as exe:
        got = exe(given)
    for n, a in want.items():
        assert got[n].shape == a.shape
        bound = 2e-3 if half else 3e-5
        np.testing.assert_allclose(got[n].astype("f8"), a.astype("f8"), rtol=bound, atol=bound, err_msg=n)


def test_every_sentence_is_followed_by_a_case() -> None:
    sentences = {k: v for k, v in vars(instead).items() if k.isupper() and isinstance(v, str)}
    sentences |= {f"op {k}": v for k, v in instead._OF_OP.items()}
    followed = {write for write, _ in REWRITES.values()}
    assert {k for k, v in sentences.items() if v not in followed} == NOT_WRITTEN


def test_a_loop_of_a_gradient_names_the_lines_that_the_user_wrote(golden: Golden) -> None:
    """Both loops of `li.grad`: the forward loop once more, and the one backwards."""
    x = li.input("x", ("T", 2, 4))
    _, y = li.scan(lambda h, row: 2 * (li.tanh(li.cumsum(h, 1) + row),), li.zeros((2, 4)), x)
    said = notes(li.grad(li.Graph("g", [x], {"loss": li.sum(y * y)}), "loss", ["x"]))
    here = Path(__file__).name
    assert [re.findall(rf"{here}:(\d+)", n)[0] for n in said] == [re.findall(rf"{here}:(\d+)", said[0])[0]] * 2
    golden("loop_reasons/of_a_gradient.txt", "\n".join(PLACE.sub("PLACE", n) for n in said))


def test_reasons_of_gpus_say_what_to_write_too() -> None:
    v = li.input("x", (4, 3, 8), "bf16")
    last, _ = li.scan(lambda h, r: (li.tanh(h + li.convert(r, "f32")), None), li.zeros((3, 8)), v)
    (why,) = notes(li.Graph("g", [v], {"y": last}), "vulkan:rdna3")
    assert why.endswith(f"bf16 in a kernel for this target; instead: {instead.CONVERT_BEFORE}")
    last, _ = li.scan(lambda h, r: (li.tanh(h + r), None), li.zeros((3, 8)), li.convert(v, "f32"))
    (note,) = notes(li.Graph("g", [v], {"y": last}), "vulkan:rdna3")
    assert ": kernel, " in note


def test_rows_in_both_orders_are_a_kernel_of_cpus_alone() -> None:
    before, after = rows_in_both_orders()
    (why,) = notes(before, "vulkan:rdna3")
    assert why.endswith(f"columns that are not the last axis in memory; instead: {instead.COLUMNS_LAST}")
    for graph, target in ((after, "vulkan:rdna3"), (before, "cpu:x86-64-v3")):
        assert [": kernel, " in n for n in notes(graph, target)] == [True]


def test_sizes_stand_in_their_order() -> None:
    """Every process says the same: strings of a set have another order in each."""
    first = [li.input(f"h{name}", (name, 4)) for name in "ECADB"]
    x = li.input("x", ("T", 4))
    last, _ = li.scan(lambda carry, row: ([h + row for h in carry], None), first, x)
    graph = li.Graph("g", [*first, x], {f"y{i}": h * 2.0 for i, h in enumerate(last)})
    plain = prepare(graph, resolve("vulkan:rdna3"), {"kernels": True, "pipeline": "o0"}).report.notes
    assert ["different numbers of rows: A, B, C, D, E" in n for n in plain if n.startswith("scan at")] == [True]
