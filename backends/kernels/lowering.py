"""What the lowering rules call: a scan, a product, a sum of outer products or a stencil by a kernel."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.body.planner import UNALIGNED
from lstm_ir.backends.kernels.cpu.batched_product import lower_batched_product
from lstm_ir.backends.kernels.cpu.outer_sum import lower_outer_sum
from lstm_ir.backends.kernels.cpu.products import lower_product
from lstm_ir.backends.kernels.cpu.row_sum import lower_row_sum
from lstm_ir.backends.kernels.cpu.stencil import lower_stencil, pack_before
from lstm_ir.backends.kernels.cpu.stencil_step import lower_stencil_step, of_stencil
from lstm_ir.backends.kernels.cpu.stencil_taps import lower_stencil_taps
from lstm_ir.backends.kernels.cpu.table_rows import lower_table_rows
from lstm_ir.backends.kernels.cpu.variants import on_cpu, until_on_cpu
from lstm_ir.backends.kernels.gpu.variants import on_gpu
from lstm_ir.ir.graph import Node
from lstm_ir.ir.loop import Loop

__all__ = [
    "lower_batched_product", "lower_loop", "lower_outer_sum", "lower_product", "lower_row_sum", "lower_stencil",
    "lower_stencil_taps", "lower_table_rows", "pack_before",
]  # fmt: skip


def lower_loop(
    e: Emitter, n: Node, consts: list[ir.Value], init: list[ir.Value], xs: list[ir.Value], count: ir.Value | None
) -> list[ir.Value] | None:
    """Scan `n` by a kernel, or None if it needs the loop; one line goes to the notes."""
    assert e.target is not None
    if of_stencil(Loop(n)):
        step = lower_stencil_step(e, Loop(n), consts, xs) if e.target.kind == "cpu" else None
        if step is not None:
            e.notes.append(f"scan at {n.loc}: kernel, a convolution and what follows it")
        return step
    try:
        if e.target.kind == "cpu":
            out, note = (until_on_cpu if Loop(n).until else on_cpu)(e, n, consts, init, xs, count)
        elif Loop(n).until:
            raise RefusedError("its steps compute when it ends (until)", None, instead.KNOWN_END)
        else:
            out, note = on_gpu(e, n, consts, init, xs, count)
    except RefusedError as why:
        e.notes.append(f"scan at {n.loc}: loop, because {why.of_loop(n.loc)}")
        return None
    except UNALIGNED:
        e.notes.append(f"scan at {n.loc}: loop, because the body is too deep or its columns do not align")
        return None
    if note:
        e.notes.append(f"scan at {n.loc}: kernel, {note}")
    return out
