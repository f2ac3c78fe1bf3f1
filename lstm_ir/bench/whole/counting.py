"""Multiplications and additions of a graph's products."""

from __future__ import annotations

from typing import Any


def products(graph: Any) -> float:
    """Of a graph whose sizes are numbers, what its loops repeat included."""
    from lstm_ir.ir.loop import Loop
    from lstm_ir.passes.pipeline import for_target

    def count(g: Any) -> float:
        total = 0.0
        for n in g.nodes:
            loop = Loop.of(n)
            if loop is not None:
                assert isinstance(loop.length, int)
                total += loop.length * count(loop.body)
            elif n.op.name == "dot_general":
                over = [n.inputs[0].shape[a] for a in n.attrs["lhs_contracting_dimensions"]]
                total += _product((2, *n.types[0].shape, *over))
            elif n.op.name == "stencil":
                total += _product((2, *n.types[0].shape, *n.inputs[1].shape[2:])) / _product(n.attrs["spacing"])
            elif n.op.name == "stencil_grad":
                batch, *_, height, width = n.inputs[1].shape
                total += _product((2, *n.types[0].shape, batch, height, width)) / _product(n.attrs["spacing"])
        return total

    return count(for_target(None).run(graph, None).graph)


def _product(sizes: Any) -> float:
    out = 1.0
    for s in sizes:
        out *= s
    return out
