"""Units of work that wait for nothing: how many workgroups take them, and which of them a workgroup has."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.kernels.call.call import KernelCall
from lstm_ir.backends.kernels.cpu.machine import SHARES
from lstm_ir.backends.kernels.cpu.workers import workers
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text


def groups(call: KernelCall, units: ir.Value) -> ir.Value:
    """Workgroups for so many units: a few for each worker, one at least."""
    most = call.muli(workers(call.e), call.const(SHARES))
    return call.e.arith("maxui", call.e.arith("minui", units, most), call.const(1))


def share(t: Text, units: TextOperand, count: TextOperand) -> tuple[TextOperand, TextOperand]:
    """The first unit of this workgroup, of `count`, and the one behind its last."""
    each = t.binary("ceildivui", units, count)
    low = t.binary("minui", t.binary("muli", t.workgroup(), each), units)
    return low, t.binary("minui", t.binary("addi", low, each), units)
