"""The sweeps of one step on a GPU: a thread computes columns tid, tid + threads, ... of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.body.plan import KLoop, Sweep, walk
from lstm_ir.backends.kernels.call.packing import Packed
from lstm_ir.backends.kernels.gpu.machine import LANES, PRODUCTS
from lstm_ir.backends.kernels.gpu.memory import LocalMemory
from lstm_ir.backends.kernels.text.evaluate import Evaluator, Sums, reduction
from lstm_ir.backends.kernels.text.memory import ElementPlace, load_scalar, store_scalar
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text, scalar_type
from lstm_ir.ir.types import DType


@dataclass(frozen=True)
class TileRows:
    """The rows of a tile: those that exist are `slots` 0 .. `count` from row `first` on."""

    first: TextOperand
    count: TextOperand
    slots: int
    safe: Sequence[TextOperand]  # global row of each slot; one that exists


@dataclass
class GpuBlock:
    """Writes one sweep."""

    t: Text
    e: Evaluator
    sweep: Sweep
    packed: Mapping[int, Packed]  # by number of the pass
    tid: TextOperand
    threads: int
    partial: Mapping[DType, LocalMemory]  # a number per thread, for reductions
    alone: TextOperand | None = None  # the one column of this thread, where a workgroup has some of them

    def write(self, rows: TileRows) -> None:
        """All columns of all rows of the tile."""
        t = self.t
        if self.sweep.width == 0:
            self._numbers(rows)
            return
        width = t.index(self.sweep.width)
        by = width if self.alone else t.index(self.threads)
        with t.loop(self.alone or self.tid, width, by) as col:
            sums = self._sums(rows, col) if self.sweep.dots else {}
            for slot in range(rows.slots):
                with self._exists(rows, slot):
                    place = ElementPlace(rows.safe[slot], col, None, t.index(slot))
                    here = {a: v for (r, a), v in sums.items() if r == slot}
                    self._store(place, here.__getitem__, {})

    def _exists(self, rows: TileRows, slot: int) -> AbstractContextManager[None]:
        return self.t.when(self.t.compare("ult", self.t.index(slot), rows.count))

    def _store(self, place: ElementPlace, sums: Sums | None, known: dict[Atom, TextOperand]) -> None:
        roots = self.sweep.roots
        values = [self.e.value(r.atom, place, False, sums, known) for r in roots]
        for r, v in zip(roots, values, strict=True):
            self.e.store(v, r.atom.dtype, r.dest, r.access, place, False)

    # -- products

    def _sums(self, rows: TileRows, col: TextOperand) -> dict[tuple[int, Atom], TextOperand]:
        """Every product of the sweep at one column, by slot."""
        t = self.t
        acc: dict[tuple[int, int], TextOperand] = {}
        block = t.binary("divui", col, t.index(LANES))
        lane = t.binary("remui", col, t.index(LANES))
        for number, loop in enumerate(self.sweep.loops):
            self._pass(self.packed[number], loop, rows, block, lane, acc)
        return {(r, d): acc[r, g] for g, d in enumerate(self.sweep.dots) for r in range(rows.slots)}

    def _pass(
        self, packed: Packed, loop: KLoop, rows: TileRows, block: TextOperand, lane: TextOperand,
        acc: dict[tuple[int, int], TextOperand],
    ) -> None:  # fmt: skip
        t = self.t
        dtype = self.sweep.dots[loop.gates[0][0]].dtype
        kind = scalar_type(dtype)
        zero = t.number(0.0, dtype, False)
        keys = [(r, g) for r in range(rows.slots) for g, _ in loop.gates]
        unroll = next(
            u for u in (16, 8, 4, 2, 1) if u * len(keys) <= max(PRODUCTS, len(keys))
            and loop.length % u == 0
        )  # fmt: skip
        init = [acc.get(k, zero) for k in keys]
        at, inside, out = t.carried(t.index(0), t.index(loop.length), t.index(unroll), init, [kind] * len(keys))
        current = dict(zip(keys, inside, strict=True))
        for u in range(unroll):
            k = t.add(at, u)
            row_of_k = t.add(at, packed.first + u)
            weights = []
            for i, (_, matrix) in enumerate(loop.gates):
                kept = load_scalar(t, packed.memory, [block, row_of_k, t.add(lane, i * LANES)])
                weights.append(self.e.ops.convert(kept, matrix.value.dtype, dtype, False))
            for r in range(rows.slots):
                x = self.e.load(loop.row, ElementPlace(rows.safe[r], k, None, t.index(r)), False)
                x = self.e.ops.convert(x, loop.row.dtype, dtype, False)
                for (g, _), w in zip(loop.gates, weights, strict=True):
                    current[r, g] = t.op("math.fma {}, {}, {} : {}", x, w, current[r, g], kind)
        t.close([current[k] for k in keys], [kind] * len(keys))
        acc.update(zip(keys, out, strict=True))
        if loop.mask is None:
            return
        for r in range(rows.slots):
            place = ElementPlace(rows.safe[r], None, None, t.index(r))
            there = self.e.value(loop.mask, place, False, None, {})
            for key in (k for k in keys if k[0] == r):
                acc[key] = t.op("arith.select {}, {}, {} : i1, {}", there, acc[key], zero, kind)

    # -- reductions

    def _numbers(self, rows: TileRows) -> None:
        """One number per row: threads reduce parts of its columns, then each other's results."""
        t = self.t
        reductions = list(dict.fromkeys(a for r in self.sweep.roots for a in walk(r.atom) if a.op == "reduce"))
        first = t.compare("eq", self.tid, t.index(0))
        for slot in range(rows.slots):
            row = ElementPlace(rows.safe[slot], None, None, t.index(slot))
            known = {a: self._reduced(a, row) for a in reductions}
            with t.when(first), self._exists(rows, slot):
                self._store(row, None, known)

    def _reduced(self, a: Atom, row: ElementPlace) -> TextOperand:
        t, (inner,) = self.t, a.args
        op, start, _ = reduction(a.kind, a.dtype)
        kind, shared = scalar_type(a.dtype), self.partial[a.dtype]
        initial = t.number(start, a.dtype, False)
        width = t.index(a.width)
        at, (acc,), (mine,) = t.carried(self.tid, width, t.index(self.threads), [initial], [kind])
        v = self.e.value(inner, ElementPlace(row.row, at, None, row.slot), False, None, {})
        t.close([t.binary(op, acc, v, kind)], [kind])
        store_scalar(t, mine, shared, [self.tid])
        t.line("gpu.barrier")
        half = 1 << (self.threads - 1).bit_length() >> 1
        while half:
            other = t.add(self.tid, half)
            low = t.compare("ult", self.tid, t.index(half))
            inside = t.compare("ult", other, t.index(self.threads))
            with t.when(t.binary("andi", low, inside, "i1")):
                mine, theirs = (load_scalar(t, shared, [i]) for i in (self.tid, other))
                store_scalar(t, t.binary(op, mine, theirs, kind), shared, [self.tid])
            t.line("gpu.barrier")
            half //= 2
        total = load_scalar(t, shared, [t.index(0)])
        t.line("gpu.barrier")
        return total
