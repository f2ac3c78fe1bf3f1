"""Memory that a loop's kernel uses beside its operands and results: flags of teams, rows of steps.

Memory of a call's own is two submissions more, and flags that have to be zero are a third. So where
sizes are numbers, all of it is one global of the module, which stays between calls; the member that
leaves last makes the flags zero again. A context of the module, which has the global, serves one call
at a time. Elsewhere scratch is results that nothing reads, and the flags a tensor of zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.call.call import KernelCall, Make, at_entry, module_of_insertion
from lstm_ir.backends.kernels.cpu.machine import KEPT_BYTES
from lstm_ir.backends.kernels.cpu.team import FLAG
from lstm_ir.backends.kernels.text.kernel import BINDING
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.backends.kernels.text.statements import Name, argument
from lstm_ir.backends.kernels.text.text import stored_type
from lstm_ir.backends.memory import LINE
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DType, TensorType

SPARE = 8  # tensors and numbers that a dispatch takes besides
_NAME = "lstm_ir.scratch"
GROUPS = argument("groups")  # teams, a number of the kernel


class Flags(NamedTuple):
    """Of all teams of a kernel."""

    per_team: int  # of one team
    teams: Make
    max_teams: int | None  # teams, whatever workers there are; None if sizes are open


class ScratchRows(NamedTuple):
    """One piece of scratch, and a second form in which the kernel reads it."""

    type: TensorType
    read: Memory | None = None


@dataclass
class Scratch:
    """What a kernel was given."""

    memories: list[Memory]  # in the order they were asked for
    counters: Memory | None = None
    views: list[tuple[Name, Memory]] = field(default_factory=list)  # further forms of bindings
    pieces: tuple[Name, list[list[Memory]]] | None = None  # a binding of bytes, what is in it
    symbol: Callable[[], str] | None = None  # the global that holds it

    @property
    def stays(self) -> bool:
        """Whether it is there in the next call."""
        return self.symbol is not None

    def store(self, e: Emitter, v: ir.Value) -> None:
        """The global as the kernel left it; the same memory, so nothing is copied."""
        assert self.symbol is not None
        e.make("util.global.store", [v], [], {"global": ir.FlatSymbolRefAttr.get(self.symbol())})


def scratch(call: KernelCall, rows: list[ScratchRows], flags: Flags | None) -> Scratch:
    """Scratch for a kernel whose operands and results are known."""
    kept = _kept(call, rows, flags)
    if kept is not None:
        return kept
    chosen = call.e.options.thresholds.scratch_tensors
    room = call.e.options.dispatch.tensors - SPARE if chosen is None else chosen
    many = len(call.inputs) + len(call.outputs) + len(rows) > room
    out = _together(call, rows) if many else _apart(call, rows)
    if flags is not None:
        out.counters = _zeros(call, flags)
    return out


def _apart(call: KernelCall, rows: list[ScratchRows]) -> Scratch:
    out = Scratch([])
    for r in rows:
        out.memories.append(call.output(r.type))
        if r.read is not None:
            out.views.append((call.outputs[-1][0], r.read))
    return out


def _together(call: KernelCall, rows: list[ScratchRows]) -> Scratch:
    """One tensor: a dispatch takes few."""
    size: Dim = 0
    for r in rows:
        piece = dims.mul(dims.product(r.type.shape), max(8, r.type.dtype.bits) // 8)
        size = dims.add(size, dims.add(piece, LINE - 1))
    call.output(TensorType((size,), DType.i8))
    memories = _pieces(call, rows)
    pieces = [[m, *([] if r.read is None else [r.read])] for m, r in zip(memories, rows, strict=True)]
    return Scratch(memories, pieces=(call.outputs[-1][0], pieces))


def _pieces(call: KernelCall, rows: list[ScratchRows]) -> list[Memory]:
    out = []
    for k, r in enumerate(rows):
        sizes = tuple(d if isinstance(d, int) else call.size(d) for d in r.type.shape)
        out.append(Memory(f"%m_piece{k}", stored_type(r.type.dtype), sizes))
    return out


def _zeros(call: KernelCall, flags: Flags) -> Memory:
    """Flags of one call; written in place."""
    tensor = call.deferred(lambda: _splat(call, flags))
    call.tied = lambda: (tensor(), [flags.teams()])
    m = Memory("%m_flags", "i32", (GROUPS, flags.per_team, FLAG))
    call.inputs.append((Name("%b_flags", BINDING), m))
    return m


def _splat(call: KernelCall, flags: Flags) -> ir.Value:
    """A fill of its own (see Emitter.filled): not merged with another loop's, nor cloned."""
    i32 = ir.IntegerType.get_signless(32)
    kind = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size(), flags.per_team, FLAG], i32)
    with at_entry(call.e):
        attrs = {"value": ir.IntegerAttr.get(i32, 0)}
        zero = call.e.hidden(call.e.make("arith.constant", [], [i32], attrs).result)
    return call.e.make("flow.tensor.splat", [zero, flags.teams()], [kind]).result


def _kept(call: KernelCall, rows: list[ScratchRows], flags: Flags | None) -> Scratch | None:
    """A global; None in a loop or a branch, for open sizes, and for many bytes."""
    e = call.e
    known = all(r.type.is_static for r in rows) and (flags is None or flags.max_teams is not None)
    if not e.at_top or not known:
        return None
    counters, memories = None, _pieces(call, rows)
    pieces = [[m, *([] if r.read is None else [r.read])] for m, r in zip(memories, rows, strict=True)]
    if flags is not None:
        counters = Memory("%m_flags", "i32", (int(flags.max_teams or 0), flags.per_team, FLAG))
        pieces.insert(0, [counters])
    size = sum(-(-p[0].bytes // LINE) * LINE for p in pieces)
    if not 0 < size <= KEPT_BYTES:
        return None
    held = call.deferred(lambda: _load(e, *_declare(size)))
    call.tied = lambda: (held()[1], [])
    # Without its size, so that kernels of one form stay one.
    kept = Name("%b_kept", BINDING)
    call.inputs.append((kept, Memory("%m_kept", "i8", ())))
    return Scratch(memories, counters, [], (kept, pieces), lambda: held()[0])


def _load(e: Emitter, symbol: str, kind: ir.Type) -> tuple[str, ir.Value]:
    """The global, and what it holds."""
    attrs = {"global": ir.FlatSymbolRefAttr.get(symbol)}
    return symbol, e.make("util.global.load", [], [kind], attrs).result


def _declare(size: int) -> tuple[str, ir.RankedTensorType]:
    """A global of zeros, of at least so many bytes."""
    module = module_of_insertion().regions[0].blocks[0]
    named = [op for op in module if "sym_name" in op.attributes]
    held = [op for op in named if op.attributes["sym_name"].value.startswith(_NAME)]
    taken, number = {op.attributes["type"].value for op in held}, len(held)
    # IREE 3.13 may take two globals of one type for one (docs/kernels.md): no two have one size.
    kind = _tensor(size)
    while kind in taken:
        size += LINE
        kind = _tensor(size)
    attrs = {
        "sym_name": ir.StringAttr.get(f"{_NAME}{number}"),
        "sym_visibility": ir.StringAttr.get("private"),
        "type": ir.TypeAttr.get(kind),
        "is_mutable": ir.UnitAttr.get(),
        "initial_value": ir.Attribute.parse(f"dense<0> : {kind}"),
    }
    with ir.InsertionPoint.at_block_begin(module):
        ir.Operation.create("util.global", attributes=attrs)
    return f"{_NAME}{number}", kind


def _tensor(size: int) -> ir.RankedTensorType:
    """A tensor of so many bytes."""
    return ir.RankedTensorType.get([size], ir.IntegerType.get_signless(8))
