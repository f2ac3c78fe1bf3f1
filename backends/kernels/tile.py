"""One block of columns over some rows: register-blocked sums, then the epilogue per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lstm_ir.backends.kernels.atoms import Atom
from lstm_ir.backends.kernels.evaluate import Evaluator, order, row_element
from lstm_ir.backends.kernels.memory import Memory, Place, load_vector
from lstm_ir.backends.kernels.packing import Packed
from lstm_ir.backends.kernels.plan import KLoop, Root, Sweep
from lstm_ir.backends.kernels.text import Text, scalar_type
from lstm_ir.types import DType

FETCHED = ("scan", "projection")  # new rows in every step: they are in no cache of this core


@dataclass(frozen=True)
class Tile:
    """Register blocking of a sweep: `q` vectors of columns, tiles of `rows` (descending to 1)."""

    q: int
    rows: tuple[int, ...]


@dataclass
class Block:
    """Writes sweeps: `packed` are the weights of each pass, `sums` the buffer on the stack."""

    t: Text
    e: Evaluator
    sweep: Sweep
    tile: Tile
    packed: Mapping[int, Packed]  # by number of the pass
    sums: Memory | None

    def rows(self, block: str, low: str, high: str) -> None:
        """All rows low .. high of one block."""
        t = self.t
        if not self.sweep.dots:
            with t.loop(low, high, t.index(1)) as row:
                self._epilogue(block, row, None)
            return
        most = t.index(self.tile.rows[0])
        with t.loop(low, high, most) as first:
            left = t.binary("subi", high, first)
            here = t.binary("minsi", left, most)
            self._fetch(block, first, here)
            self._tiles(block, first, here)
            with t.loop(t.index(0), here, t.index(1)) as r:
                self._epilogue(block, t.binary("addi", first, r), r)

    def _fetch(self, block: str, first: str, here: str) -> None:
        """Ask for what the epilogue will read, while sums are made."""
        t = self.t
        loads = [
            a
            for a in dict.fromkeys(a for r in self.sweep.roots for a in order(r.atom))
            if a.op == "load" and a.cols and a.source is not None and a.source.kind in FETCHED
        ]
        if not loads:
            return
        first_col = t.binary("muli", block, t.index(t.lanes * self.tile.q))
        ends = (0, t.lanes - 1) if self.sweep.width % t.lanes else (0,)  # a vector over two lines
        with t.loop(t.index(0), here, t.index(1)) as r:
            row = t.binary("addi", first, r)
            for v in range(self.tile.q):
                for lane in ends:
                    place = Place(row, t.add(first_col, v * t.lanes + lane))
                    for a in loads:
                        self.e.fetch(a, place)

    def _tiles(self, block: str, first: str, here: str) -> None:
        """Sums of `here` rows by the largest tiles that fit."""
        t = self.t
        whole, *rest = self.tile.rows
        full = t.op(f"arith.cmpi eq, {here}, {t.index(whole)} : index")
        with t.block(f"scf.if {full}", "} else {" if rest else "}"):
            self._sums(block, first, t.index(0), whole)
        if not rest:
            return
        t._depth += 1
        at = t.index(0)
        for n in rest:
            left = t.binary("subi", here, at)
            fit = t.binary("muli", t.binary("divui", left, t.index(n)), t.index(n))
            end = t.binary("addi", at, fit)
            with t.loop(at, end, t.index(n)) as r:
                self._sums(block, t.binary("addi", first, r), r, n)
            at = end
        t._depth -= 1
        t.line("}")

    def _sums(self, block: str, row: str, slot: str, n: int) -> None:
        """Accumulators of `n` rows from `row`, stored at slot, slot + 1 ... of the buffer."""
        t, q = self.t, self.tile.q
        rows = [t.add(row, r) for r in range(n)]
        acc: dict[tuple[int, int, int], str] = {}
        for number, loop in enumerate(self.sweep.loops):
            self._pass(number, loop, block, rows, acc)
        assert self.sums is not None
        width = len(self.sweep.dots)
        for (r, v, g), value in acc.items():
            at = [t.add(slot, r), t.index(v * width + g), t.index(0)]
            kind = t.vector(self.sums.element)
            t.line(
                f"vector.store {value}, {self.sums.name}[{', '.join(at)}] : "
                f"{self.sums.kind}, {kind}"
            )
        assert len(acc) == n * q * width

    def _pass(
        self,
        number: int,
        loop: KLoop,
        block: str,
        rows: list[str],
        acc: dict[tuple[int, int, int], str],
    ) -> None:
        t, q = self.t, self.tile.q
        dtype = self.sweep.dots[loop.gates[0][0]].dtype
        kind = t.vector(scalar_type(dtype))
        zero = t.number(0.0, dtype, True)
        keys = [(r, v, g) for r in range(len(rows)) for v in range(q) for g, _ in loop.gates]
        init = [acc.get(k, zero) for k in keys]
        unroll = _unroll(len(keys), loop.length)
        at, inside, out = t.carried(
            t.index(0), t.index(loop.length), t.index(unroll), init, [kind] * len(keys)
        )
        current = dict(zip(keys, inside, strict=True))
        packed = self.packed[number]
        for u in range(unroll):
            k = t.add(at, u)
            there = block, t.add(at, packed.first + u)
            weights = {
                (v, g): self._weight(
                    packed.memory, there, (v * len(loop.gates) + i) * t.lanes, dtype
                )
                for v in range(q)
                for i, (g, _) in enumerate(loop.gates)
            }
            for r, row in enumerate(rows):
                x = self._wider(row_element(self.e, loop.row, row, k), loop.row.dtype, dtype)
                xs = t.op(f"vector.broadcast {x} : {scalar_type(dtype)} to {kind}")
                for v in range(q):
                    for g, _ in loop.gates:
                        old = current[r, v, g]
                        current[r, v, g] = t.op(f"vector.fma {xs}, {weights[v, g]}, {old} : {kind}")
        t.close([current[k] for k in keys], [kind] * len(keys))
        acc.update({k: f"{out}#{i}" for i, k in enumerate(keys)})
        if loop.mask is not None:
            for r, row in enumerate(rows):
                self._clear(loop.mask, row, [k for k in keys if k[0] == r], acc, zero, kind)

    def _clear(
        self, mask: Atom, row: str, keys: list[tuple[int, int, int]],
        acc: dict[tuple[int, int, int], str], zero: str, kind: str,
    ) -> None:  # fmt: skip
        """Sums of a row that does not count become zero."""
        there = self.e.value(mask, Place(row, None), False, None, {})
        for k in keys:
            acc[k] = self.t.op(f"arith.select {there}, {acc[k]}, {zero} : {kind}")

    def _weight(self, m: Memory, there: tuple[str, str], lane: int, dtype: DType) -> str:
        t = self.t
        v = load_vector(t, m, [*there, t.index(lane)])
        if m.element == scalar_type(dtype):
            return v
        return t.op(f"arith.extf {v} : {t.vector(m.element)} to {t.vector(scalar_type(dtype))}")

    def _wider(self, x: str, old: DType, new: DType) -> str:
        return (
            x
            if old is new
            else self.t.op(f"arith.extf {x} : {scalar_type(old)} to {scalar_type(new)}")
        )

    def _epilogue(self, block: str, row: str, slot: str | None) -> None:
        """All results of one row in this block."""
        t = self.t
        if self.sweep.width == 0:
            known: dict[Atom, str] = {}
            for root in self.sweep.roots:
                v = self.e.value(root.atom, Place(row, None), False, None, known)
                self.e.store(v, root.atom.dtype, root.dest, root.access, Place(row, None), False)
            return
        if self.tile.q == 1:
            self._vector(block, t.binary("muli", block, t.index(t.lanes)), row, slot, t.index(0))
            return
        first = t.binary("muli", block, t.index(t.lanes * self.tile.q))
        with t.loop(t.index(0), t.index(self.tile.q), t.index(1)) as v:
            col = t.binary("addi", first, t.binary("muli", v, t.index(t.lanes)))
            self._vector(block, col, row, slot, t.binary("muli", v, t.index(len(self.sweep.dots))))

    def _vector(self, block: str, col: str, row: str, slot: str | None, first_sum: str) -> None:
        t, width = self.t, self.sweep.width
        mask = None
        if width % (t.lanes * self.tile.q):
            left = t.binary("maxsi", t.binary("subi", t.index(width), col), t.index(0))
            mask = t.op(f"vector.create_mask {left} : {t.vector('i1')}")
        place = Place(row, col, mask)

        def sums(a: Atom) -> str:
            assert self.sums is not None
            assert slot is not None
            at = [slot, t.add(first_sum, self.sweep.dots.index(a)), t.index(0)]
            return load_vector(t, self.sums, at)

        known: dict[Atom, str] = {}
        values = [self._result(root, place, sums, known) for root in self.sweep.roots]
        for root, v in zip(self.sweep.roots, values, strict=True):
            self.e.store(v, root.atom.dtype, root.dest, root.access, place, True)

    def _result(self, root: Root, place: Place, sums: object, known: dict[Atom, str]) -> str:
        return self.e.value(root.atom, place, True, sums, known)  # type: ignore[arg-type]


def _unroll(accumulators: int, length: int) -> int:
    """Steps of k per iteration: enough work to hide the loop where there are few accumulators."""
    wanted = max(1, 16 // accumulators)
    return next((u for u in (8, 4, 2) if u <= wanted and length % u == 0), 1)
