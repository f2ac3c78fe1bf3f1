"""What a GPU kernel may use, by target, and which form a loop gets.

One workgroup runs all steps of its rows where the weights of a step are few: it reads them again
in every step, by the one path from its processor to the cache. From `WHOLE_BYTES` on one dispatch
per step spreads them over many workgroups.
"""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.body.plan import Component, Plan, Sweep, walk
from lstm_ir.backends.kernels.cpu.schedule import widest_bits
from lstm_ir.backends.kernels.gpu.local import local_memories, partials
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType

LANES = 32  # columns that are neighbours in packed weights: what one load of a warp takes
WHOLE_BYTES = 1 << 20
ROWS = 4  # of the batch that share each weight that a step's workgroup loads
STEP_THREADS = 64  # columns of a step's workgroup: few, so that a step has many workgroups


@dataclass(frozen=True)
class Limits:
    """Of one workgroup."""

    threads: int
    local_bytes: int
    words: int  # of sizes and offsets that a dispatch takes
    spirv: bool  # SPIR-V or Metal: fewer element types and functions


def limits(target: TargetInfo) -> Limits:
    """What every device of this target has."""
    if target.kind == "vulkan":
        return Limits(128 if not target.detail else 256, 16 << 10, 32, True)
    if target.kind == "metal":
        return Limits(256, 16 << 10, 32, True)
    return Limits(512, 48 << 10, 64, False)


@dataclass(frozen=True)
class GpuSchedule:
    """What was chosen for one loop."""

    whole: bool  # all steps in one dispatch
    threads: int
    rows: int  # of the batch, per workgroup
    words: int
    note: str


def choose(plan: Plan, target: TargetInfo) -> GpuSchedule:
    """The schedule of `plan`; RefusedError, with the reason, where no form fits."""
    have = limits(target)
    _check(plan, have)
    widest = max((s.width for s in sweeps_of(plan)), default=0)
    threads = min(have.threads, max(64, -(-widest // 64) * 64))
    shared = [*local_memories(plan, 1).values(), *partials(plan, threads).values()]
    need, held = weight_bytes(plan), sum(m.bytes for m in shared)
    if need <= WHOLE_BYTES and held <= have.local_bytes:
        note = f"all steps in one dispatch, {threads} threads per row"
        return GpuSchedule(True, threads, 1, have.words, note)
    if need > WHOLE_BYTES:
        why = f"{need >> 10} KiB of weights"
    else:
        why = f"{held} bytes of carries"
    rows = min(ROWS, plan.rows) if isinstance(plan.rows, int) else ROWS
    note = f"one dispatch per step and phase for {why}, tile {rows}x{STEP_THREADS}"
    return GpuSchedule(False, STEP_THREADS, max(1, rows), have.words, note)


def sweeps_of(plan: Plan) -> list[Sweep]:
    """All sweeps of a step."""
    return [s for c in plan.components for s in c.sweeps]


def weight_bytes(plan: Plan) -> int:
    """Bytes of weights that one row's step reads, in the largest component."""
    return max((_component_bytes(c) for c in plan.components), default=0)


def _component_bytes(c: Component) -> int:
    return sum(
        s.width * k.length * m.value.dtype.bits // 8
        for s in c.sweeps
        for k in s.loops
        for _, m in k.gates
    )


_NOT_IN_SPIRV = ("erf",)


def _check(plan: Plan, have: Limits) -> None:
    atoms = [a for s in sweeps_of(plan) for r in s.roots for a in walk(r.atom)]
    widest_bits(atoms)
    if not have.spirv:
        return
    for a in atoms:
        value = None if a.node is None else a.node.values[0]
        if a.dtype in (DType.bf16, DType.f64):
            raise RefusedError(f"{a.dtype} in a kernel for this target", value)
        if a.op in _NOT_IN_SPIRV:
            raise RefusedError(f"{a.op} in a kernel for this target", value)
        for t in a.terms:
            if t.matrix.value.dtype in (DType.bf16, DType.f64):
                raise RefusedError(f"weights in {t.matrix.value.dtype} for this target", value)
