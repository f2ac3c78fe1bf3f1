"""Numbers of GPU kernels: what devices have, and sizes that are reasoned; of these one was timed on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.backends.emit.options import DispatchLimits
from lstm_ir.ir.target import TargetInfo

LANES = 32  # columns that are neighbours in packed weights. Reasoned: what one load of a warp takes
# Bytes of weights of a step, up to which one workgroup runs all steps of its rows: it reads them again in
# every step, by the one path from its processor to the cache. Above, reading costs more than a dispatch
# per step, some microseconds, which spreads them over many workgroups. Measured on an H100: about right; with 4 MiB the
# first form takes 34.0 ms and the second 38.0 at (T,B,H) = (100,64,512), 11.5 and 11.0 at (100,1,512).
WHOLE_BYTES = 1 << 20
ROWS = 4  # of the batch that share each weight that a step's workgroup loads; reasoned
STEP_THREADS = 64  # columns of a step's workgroup. Reasoned: few, so that a step has many workgroups
PRODUCTS = 16  # of an iteration of the loop over k; reasoned
DISPATCHES = 32  # of an iteration of the loop of dispatches. Reasoned: an iteration is a submission
GROUPS = 65535  # workgroups that every device takes along one axis
ROUNDS = 65535  # of all loops of a thread. Measured: Mesa's software driver (22.3) silently leaves out further ones
ENDING = 2  # rounds of a loop beyond those of its body. Measured with Mesa 22.3: 1, and sometimes 2


@dataclass(frozen=True)
class WorkgroupLimits:
    """Of one workgroup."""

    threads: int
    local_bytes: int
    tensors: int  # that a dispatch takes
    words: int  # of sizes and offsets that it takes
    spirv: bool  # SPIR-V or Metal: fewer element types and functions


def limits(target: TargetInfo) -> WorkgroupLimits:
    """What every device of this target has."""
    most = DispatchLimits().tensors
    if target.kind == "vulkan":
        return WorkgroupLimits(128 if not target.detail else 256, 16 << 10, most, 32, True)
    if target.kind == "metal":
        return WorkgroupLimits(256, 16 << 10, most, 32, True)
    return WorkgroupLimits(512, 48 << 10, target.bindings or most, 64, False)
