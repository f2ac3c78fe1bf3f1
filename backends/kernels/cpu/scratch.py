"""Memory that a loop's kernel uses beside its operands and results: flags of teams, rows of steps.

Memory of a call's own is two submissions more, and flags that have to be zero are a third: 4 us of a call. So all of
it is one global of the module, which stays between calls; the member that leaves last makes the flags zero again. A
context of the module, which has the global, serves one call at a time. Where rows are named the global has room for
some, and calls of more bring a tensor of zeros in its place. In loops, and for many bytes, scratch is results that
nothing reads, and the flags a tensor of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.call.call import (
    KernelCall,
    Make,
    Values,
    Written,
    at_entry,
    insert_first,
    module_of_insertion,
)
from lstm_ir.backends.kernels.cpu.machine import KEPT_BYTES, KEPT_OPEN_BYTES, KEPT_ROWS
from lstm_ir.backends.kernels.cpu.team import FLAG
from lstm_ir.backends.kernels.cpu.workers import QUERY
from lstm_ir.backends.kernels.text.kernel import BINDING
from lstm_ir.backends.kernels.text.memory import ELEMENT_BYTES, Memory
from lstm_ir.backends.kernels.text.statements import Name, argument
from lstm_ir.backends.kernels.text.text import stored_type
from lstm_ir.backends.memory import LINE
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DType, TensorType

SPARE = 8  # tensors and numbers that a dispatch takes besides
_NAME = "lstm_ir.scratch"
# Zeros that no pass knows to be zeros: a device without workers. Else IREE would keep them among its literals, which
# nobody may write.
_GLOBAL = """module {{
  util.global private @{symbol} : {kind}
  util.initializer {{
    %c0 = arith.constant 0 : index
    %none = arith.constant 0 : i64
    {query}
    %flag = arith.cmpi eq, %n, %none : i64
    %zero = arith.extui %flag : i1 to i8
    %zeros = flow.tensor.splat %zero : {kind}
    util.global.store %zeros, @{symbol} : {kind}
    util.return
  }}
}}"""
GROUPS = argument("groups")  # teams, a number of the kernel


class Flags(NamedTuple):
    """Of all teams of a kernel."""

    per_team: int  # of one team
    teams: Make
    most: Callable[[int], int | None]  # teams of so many rows, whatever workers there are; None without a bound


class ScratchRows(NamedTuple):
    """One piece of scratch, and a second form in which the kernel reads it."""

    type: TensorType
    read: Memory | None = None


class KeptScratch(NamedTuple):
    """A global that holds scratch between calls."""

    declared: Callable[[], tuple[str, ir.RankedTensorType]]
    fits: list[tuple[Dim, int]]  # a call for which one of these sizes is larger than the number has memory of its own
    own: Callable[[], Written]
    teams: Make | None  # whose flags stand before all else, where calls decide it


@dataclass
class Scratch:
    """What a kernel was given."""

    memories: list[Memory]  # in the order they were asked for
    counters: Memory | None = None
    views: list[tuple[Name, Memory]] = field(default_factory=list)  # further forms of bindings
    pieces: tuple[Name, list[list[Memory]]] | None = None  # a binding of bytes, what is in it
    flags: Callable[[], Written] | None = None  # zeros of one call
    kept: KeptScratch | None = None

    def run(self, call: KernelCall, dispatch: Callable[[Written | None], Values]) -> Values:
        """The kernel's results; `dispatch` takes what it writes in place."""

        def results(written: Written | None) -> Values:
            return dispatch(written)[: len(call.results)]

        if self.kept is None:
            return results(None if self.flags is None else self.flags())
        e, (symbol, kind) = call.e, self.kept.declared()
        attrs = {"global": ir.FlatSymbolRefAttr.get(symbol)}
        held = Written(e.make("util.global.load", [], [kind], attrs).result, [], tied=False)
        if not self.kept.fits:
            return results(held)
        tests = [e.compare("ule", call.const(size), call.const(most)) for size, most in self.kept.fits]
        small = reduce(lambda a, b: e.make("arith.andi", [a, b], [a.type]).result, tests)
        choice = e.choice(small, call.results)
        with ir.InsertionPoint(choice.regions[0].blocks.append()):
            e.make("scf.yield", results(held), [])
        with ir.InsertionPoint(choice.regions[1].blocks.append()):
            e.make("scf.yield", results(self.kept.own()), [])
        return [e.tie(v, t) for v, t in zip(choice.results, call.results, strict=True)]


def scratch(
    call: KernelCall, rows: list[ScratchRows], flags: Flags | None, count: Dim, most: int | None = None
) -> Scratch:
    """Scratch for a kernel of `count` rows, whose operands and results are known; `most`: rows of a call, at most."""
    kept = _kept(call, rows, flags, count, most)
    if kept is not None:
        return kept
    chosen = call.e.options.thresholds.scratch_tensors
    room = call.e.options.dispatch.tensors - SPARE if chosen is None else chosen
    many = len(call.inputs) + len(call.outputs) + len(rows) > room
    out = _together(call, rows) if many else _apart(call, rows)
    if flags is not None:
        out.counters, out.flags = _flags_of_call(call, flags), call.deferred(lambda: _splat(call, flags))
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
    call.output(TensorType((dims.total([_bytes(r.type.shape, r.type.dtype) for r in rows]),), DType.i8))
    memories = _pieces(call, rows)
    pieces = [[m, *([] if r.read is None else [r.read])] for m, r in zip(memories, rows, strict=True)]
    return Scratch(memories, pieces=(call.outputs[-1][0], pieces))


def _pieces(call: KernelCall, rows: list[ScratchRows]) -> list[Memory]:
    out = []
    for k, r in enumerate(rows):
        sizes = tuple(d if isinstance(d, int) else call.size(d) for d in r.type.shape)
        out.append(Memory(f"%m_piece{k}", stored_type(r.type.dtype), sizes))
    return out


def _flags_of_call(call: KernelCall, flags: Flags) -> Memory:
    """Written in place."""
    m = Memory("%m_flags", "i32", (GROUPS, flags.per_team, FLAG))
    call.inputs.append((Name("%b_flags", BINDING), m))
    return m


def _splat(call: KernelCall, flags: Flags) -> Written:
    """A fill of its own (see Emitter.filled): not merged with another loop's, nor cloned."""
    kind = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size(), flags.per_team, FLAG], _integer(32))
    with at_entry(call.e):
        zero = _hidden_zero(call.e, 32)
    return _filled(call.e, zero, kind, flags.teams())


def _integer(bits: int) -> ir.IntegerType:
    return ir.IntegerType.get_signless(bits)


def _hidden_zero(e: Emitter, bits: int) -> ir.Value:
    attrs = {"value": ir.IntegerAttr.get(_integer(bits), 0)}
    return e.hidden(e.make("arith.constant", [], [_integer(bits)], attrs).result)


def _filled(e: Emitter, zero: ir.Value, kind: ir.RankedTensorType, size: ir.Value) -> Written:
    return Written(e.make("flow.tensor.splat", [zero, size], [kind]).result, [size])


def _kept(
    call: KernelCall, rows: list[ScratchRows], flags: Flags | None, count: Dim, known: int | None
) -> Scratch | None:
    """A global; None in a loop or a branch, and for many bytes."""
    known = count if isinstance(count, int) else known
    most = KEPT_ROWS if known is None else known
    teams = 0 if flags is None else flags.most(most)
    if not call.e.once or teams is None:
        return None
    each = 0 if flags is None else flags.per_team * FLAG * ELEMENT_BYTES["i32"]
    zeros = teams * each
    whole = dims.total([zeros, *(_bytes(r.type.shape, r.type.dtype) for r in rows)])
    fits: list[tuple[Dim, int]] = []
    if isinstance(whole, int):
        size, room = whole, KEPT_BYTES
    else:
        at_most = _at_most(count, most)
        bounded = [_bytes([*map(at_most, r.type.shape)], r.type.dtype) for r in rows]
        enough = dims.total([zeros, *bounded])
        size = room = KEPT_OPEN_BYTES
        if isinstance(enough, int) and enough <= room:
            size = enough
        else:
            fits.append((whole, size))
    if known is None:
        fits.append((count, most))
    if not zeros < size <= room:
        return None
    memories, counters, there = _pieces(call, rows), None, None
    pieces = [[m, *([] if r.read is None else [r.read])] for m, r in zip(memories, rows, strict=True)]
    if flags is not None:
        if fits:  # calls that bring a tensor may have more teams, as workers are more
            there = call.deferred(lambda: _larger(call, flags.teams(), teams))
        counters = Memory("%m_flags", "i32", (GROUPS if fits else teams, flags.per_team, FLAG))
        pieces.insert(0, [counters])
    # Without its size, so that kernels of one form stay one.
    kept = Name("%b_kept", BINDING)
    call.inputs.append((kept, Memory("%m_kept", "i8", ())))
    rest = dims.add(whole, -zeros)
    held = KeptScratch(call.deferred(lambda: _declare(size)), fits, lambda: _own(call, rest, there, each), there)
    return Scratch(memories, counters, pieces=(kept, pieces), kept=held)


def _at_most(count: Dim, most: int) -> Callable[[Dim], Dim]:
    """A size where there are so many rows."""
    names = dims.names(count)
    rows = {name: most for name in names if count == dims.name(name)}
    return lambda d: most if d == count else dims.substitute(d, rows)


def _bytes(shape: Sequence[Dim], dtype: DType) -> Dim:
    """Of a piece, up to the next line."""
    size = dims.mul(dims.product(tuple(shape)), max(8, dtype.bits) // 8)
    return -(-size // LINE) * LINE if isinstance(size, int) else dims.add(size, LINE - 1)


def _larger(call: KernelCall, value: ir.Value, least: int) -> ir.Value:
    return call.e.make("arith.maxui", [value, call.const(least)], [value.type]).result


def _own(call: KernelCall, rows: Dim, teams: Make | None, each: int) -> Written:
    """Zeros in the place of the global: flags of the teams, and rows."""
    e, size = call.e, call.const(rows)
    if teams is not None:
        flags = call.muli(teams(), call.const(each))
        size = e.make("arith.addi", [flags, size], [size.type]).result
    kind = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size()], _integer(8))
    return _filled(e, _hidden_zero(e, 8), kind, size)


def _declare(size: int) -> tuple[str, ir.RankedTensorType]:
    """A global of zeros, of at least so many bytes."""
    module = module_of_insertion().regions[0].blocks[0]
    named = [op for op in module if "sym_name" in op.attributes]
    held = [op for op in named if op.attributes["sym_name"].value.startswith(_NAME)]
    taken, symbol = {op.attributes["type"].value for op in held}, f"{_NAME}{len(held)}"
    # IREE 3.13 may take two globals of one type for one (docs/kernels.md): no two have one size.
    while _tensor(size) in taken:
        size += LINE
    insert_first(_GLOBAL.format(symbol=symbol, kind=_tensor(size), query=QUERY))
    return symbol, _tensor(size)


def _tensor(size: int) -> ir.RankedTensorType:
    """A tensor of so many bytes."""
    return ir.RankedTensorType.get([size], ir.IntegerType.get_signless(8))
