"""What a workgroup keeps in its own memory."""

from __future__ import annotations

from lstm_ir.backends.kernels.body.access import ROW
from lstm_ir.backends.kernels.body.atoms import Source
from lstm_ir.backends.kernels.body.plan import Plan, walk
from lstm_ir.backends.kernels.gpu.memory import LocalMemory
from lstm_ir.backends.kernels.text.text import scalar_type, stored_type
from lstm_ir.ir.types import DType


def local_memories(plan: Plan, rows: int) -> dict[Source, LocalMemory]:
    """Two copies of every carry and every computed row, for the rows of one tile."""
    out: dict[Source, LocalMemory] = {}
    for c in plan.components:
        for i, static in c.carries:
            v = plan.carries[i]
            access = plan.access(v, static)
            sizes = [rows if a == ROW else d for a, d in zip(access, v.shape, strict=True)]
            name, kind = f"%m_carry{i}", stored_type(v.dtype)
            out[Source("carry", i)] = LocalMemory(name, kind, (2, *map(int, sizes)))
    for temp in plan.temps:
        sizes = [rows, temp.width] if temp.width else [rows]
        kind = stored_type(temp.atom.dtype)
        out[Source("temp", temp.index)] = LocalMemory(f"%m_temp{temp.index}", kind, tuple(sizes))
    return out


def partials(plan: Plan, threads: int) -> dict[DType, LocalMemory]:
    """A number per thread, for reductions."""
    roots = [r.atom for c in plan.components for s in c.sweeps for r in s.roots]
    kinds = {a.dtype for r in roots for a in walk(r) if a.op == "reduce"}
    ordered = sorted(kinds, key=lambda d: d.bits)
    return {d: LocalMemory(f"%m_partial_{d.value}", scalar_type(d), (threads,)) for d in ordered}
