"""Which form a loop gets on a GPU: all steps in one dispatch, or a dispatch per step and phase."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import NamedIndex, RefusedError
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan, Sweep, walk
from lstm_ir.backends.kernels.body.tuned import MAX_LEADING
from lstm_ir.backends.kernels.cpu.schedule import widest_bits
from lstm_ir.backends.kernels.gpu.machine import ROWS, STEP_THREADS, WHOLE_BYTES, WorkgroupLimits, limits
from lstm_ir.backends.kernels.gpu.memory import local_memories, partials
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType


@dataclass(frozen=True)
class GpuSchedule:
    """What was chosen for one loop."""

    whole: bool  # all steps in one dispatch
    threads: int
    rows: int  # of the batch, per workgroup
    have: WorkgroupLimits
    note: str


def choose(plan: LoopPlan, target: TargetInfo, whole_loop: int | None = None) -> GpuSchedule:
    """The schedule of `plan`; RefusedError, with the reason, where no form fits.

    whole_loop: bytes of weights up to which all steps are one dispatch; None: WHOLE_BYTES.
    """
    limit = WHOLE_BYTES if whole_loop is None else whole_loop
    have = limits(target)
    _check(plan, have)
    widest = max((s.width for s in sweeps_of(plan)), default=0)
    threads = min(have.threads, max(64, -(-widest // 64) * 64))
    shared = [*local_memories(plan, 1).values(), *partials(plan, threads).values()]
    need, held = weight_bytes(plan), sum(m.bytes for m in shared)
    if plan.rows == 1 and need >= limit and whole_loop is None and target.kind == "cuda":
        raise RefusedError(f"of one row with {need >> 10} KiB of weights, which the loop's products read faster")
    if need <= limit and held <= have.local_bytes:
        note = f"all steps in one dispatch, {threads} threads per row"
        return GpuSchedule(True, threads, 1, have, note)
    if need > limit:
        why = f"{need >> 10} KiB of weights"
    else:
        why = f"{held} bytes of carries"
    rows = min(ROWS, plan.rows) if isinstance(plan.rows, int) else ROWS
    note = f"one dispatch per step and phase for {why}, tile {rows}x{STEP_THREADS}"
    return GpuSchedule(False, STEP_THREADS, max(1, rows), have, note)


def sweeps_of(plan: LoopPlan) -> list[Sweep]:
    """All sweeps of a step."""
    return [s for c in plan.components for s in c.sweeps]


def weight_bytes(plan: LoopPlan) -> int:
    """Bytes of weights that one row's step reads, in the largest component."""
    return max((_component_bytes(c) for c in plan.components), default=0)


def _component_bytes(c: Component) -> int:
    return sum(s.width * k.length * m.value.dtype.bits // 8 for s in c.sweeps for k in s.loops for _, m in k.gates)


_NOT_IN_SPIRV = ("erf",)
# Of what the CPU's kernels have, these ran on no GPU.
_OF_INTEGERS = (
    "divide", "remainder", "abs", "sign", "shift_left", "shift_right_logical", "shift_right_arithmetic",
)  # fmt: skip
_MOVED = ("convert", "select", "bitcast_convert")  # of two-byte floats


_COUNTED = f"more than {MAX_LEADING} leading indices, or a named size of them"


def _check(plan: LoopPlan, have: WorkgroupLimits) -> None:
    if any(r.loops for s in sweeps_of(plan) for r in s.roots):
        raise RefusedError(f"{_COUNTED} in a kernel for a GPU", write=instead.FOLD_AXES)
    atoms = [a for s in sweeps_of(plan) for r in s.roots for a in walk(r.atom)]
    widest_bits(atoms)
    for a in atoms:
        value = None if a.node is None else a.node.values[0]
        if a.dtype in (DType.u8, DType.u32):
            raise RefusedError(f"elements of {a.dtype} in a kernel for a GPU", value, instead.CONVERT_BEFORE)
        if any(isinstance(i, NamedIndex) for i in a.access):
            raise RefusedError("an element whose index is a named size in a kernel for a GPU", value, instead.NUMBERS)
        if a.op in ("fold", "pick") or a.loops:
            what = "a table" if a.op == "pick" else f"{_COUNTED}, or a matrix for each row,"
            raise RefusedError(f"{what} in a kernel for a GPU", value, instead.OUTSIDE)
        half = a.op not in _MOVED and any(x.dtype.is_float and x.dtype.bits < 32 for x in a.args)
        integer = a.op in _OF_INTEGERS and not a.dtype.is_float
        if half or integer or a.op == "bitcast_convert" or (a.op == "reduce" and not a.dtype.is_float):
            kind = a.args[0].dtype
            raise RefusedError(f"{a.op} of {kind} in a kernel for a GPU", value, instead.THROUGH_F32)
    if not have.spirv:
        return
    for a in atoms:
        value = None if a.node is None else a.node.values[0]
        if a.dtype in (DType.bf16, DType.f64):
            raise RefusedError(f"{a.dtype} in a kernel for this target", value, instead.CONVERT_BEFORE)
        if a.op in _NOT_IN_SPIRV:
            raise RefusedError(f"{a.op} in a kernel for this target", value, instead.OUTSIDE)
        for t in a.terms:
            if t.matrix.value.dtype in (DType.bf16, DType.f64):
                raise RefusedError(f"weights in {t.matrix.value.dtype} for this target", value, instead.CONVERT_BEFORE)
