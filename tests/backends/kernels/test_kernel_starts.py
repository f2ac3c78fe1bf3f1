"""What a loop starts from: numbers are written by the kernel, not by a submission before it."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li


def _graph(T: int | str, B: int | str) -> li.Graph:
    """A sum that starts at 1.5, a count at 3, a flag at true; each is read before it changes."""
    x = li.input("x", (T, B, 5))
    starts = [li.full((B, 5), v, d) for v, d in ((1.5, "f32"), (3, "i32"), (True, "i1"))]

    def step(carry: tuple[li.Value, ...], row: li.Value) -> tuple[object, object]:
        total, n, was = carry
        seen = li.select(was, total, -total)
        return (total * 0.5 + row, n + 1, row > 0.0), (seen, n)

    (total, n, was), (seen, counts) = li.scan(step, tuple(starts), x)
    out = {"total": total, "n": n, "was": was, "seen": seen, "counts": counts}
    return li.Graph("starts", [x], out)


@pytest.mark.parametrize("options", [{}, {"kernels": False}], ids=["kernel", "loop"])
@pytest.mark.parametrize("sizes", [(4, 3), ("T", "B")], ids=["numbers", "names"])
def test_numbers_start_a_loop(
    rng: np.random.Generator, sizes: tuple[int | str, int | str], options: dict[str, object]
) -> None:
    g = _graph(*sizes)
    exe = li.compile(g, options=options)
    kind = "loop" if options else "kernel"
    assert any(f": {kind}" in n for n in exe.report.notes) or options
    for T, B in [(4, 3)] if sizes == (4, 3) else [(4, 3), (0, 2), (1, 1), (7, 18)]:
        x = rng.standard_normal((T, B, 5)).astype(np.float32)
        got, want = exe(x=x), li.interpret(g, {"x": x})
        for name, v in want.items():
            assert got[name].dtype == v.dtype
            np.testing.assert_allclose(got[name], v, rtol=1e-6, err_msg=name)
