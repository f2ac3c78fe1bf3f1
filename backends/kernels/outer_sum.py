"""A sum of outer products by a CPU kernel: [K, M] and [K, N] give [M, N], as weight gradients are.

IREE's own product transposes and packs both sides, which for so long a sum costs as much as the
sum. Here tiles of the result stay in registers over a block of the sum: the rows of the second
operand are read where they are, a few columns of the first are packed, a block at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from lstm_ir import dims
from lstm_ir.backends.emitter import Emitter
from lstm_ir.backends.kernels.call import NAME, KernelCall, module_of_insertion
from lstm_ir.backends.kernels.memory import Memory, load_vector, store_vector
from lstm_ir.backends.kernels.shifted import without_edge
from lstm_ir.backends.kernels.text import Text, stored_type
from lstm_ir.backends.kernels.workers import workers
from lstm_ir.dims import Dim
from lstm_ir.graph import Node
from lstm_ir.target import TargetInfo
from lstm_ir.types import DType, TensorType

SUM = 256  # terms of one block: its rows of the second operand stay in L2
WORTH = 1 << 21  # multiplications from which a kernel is worth its compile time
SHARES = 4  # workgroups per worker


def lower_outer_sum(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value | None:
    """dot_general over all axes but the last of both operands; None where it is another product."""
    a, b, at = n.inputs[0].type, n.inputs[1].type, n.attrs
    leading = tuple(range(a.rank - 1))
    sums = at["lhs_contracting_dimensions"], at["rhs_contracting_dimensions"]
    if e.target is None or not e.target.kernels or e.target.kind != "cpu":
        return None
    if at["lhs_batching_dimensions"] or not leading or sums != (leading, leading):
        return None
    if b.rank != a.rank or a.dtype not in (DType.f32, DType.f64):
        return None
    rows, columns = a.shape[-1], b.shape[-1]
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    terms = dims.product(a.shape[:-1])
    if rows * columns < 1 << 12 or (isinstance(terms, int) and terms * rows * columns < WORTH):
        return None
    if ir.InsertionPoint.current.block.owner.operation.name != "func.func":
        return None
    from lstm_ir.backends.lower_shape import reshape

    found = without_edge(n.inputs[1])
    if found is not None and found[0].rows in e.known:
        shift, skip = found
        call = OuterSum(e, terms, rows, columns, a.dtype, skip, shift.later)
        pairs = ((lhs, a), (e.known[shift.rows], shift.rows.type))
    else:
        call = OuterSum(e, terms, rows, columns, a.dtype)
        pairs = ((lhs, a), (rhs, b))
    return call.run(*(reshape(e, v, t, (terms, t.shape[-1])) for v, t in pairs))


@dataclass
class OuterSum(KernelCall):
    """One such call."""

    terms: Dim
    rows: int
    columns: int
    dtype: DType
    skip: Dim = 0  # terms that one operand is off: those at the edge are zero
    later: bool = False  # term k takes row k - skip of the second operand; else the first is off

    def run(self, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        """The dispatch."""
        assert self.e.target is not None
        a = self.input(lhs, TensorType((self.terms, self.rows), self.dtype))
        b = self.input(rhs, TensorType((self.terms, self.columns), self.dtype))
        out = self.output(TensorType((self.rows, self.columns), self.dtype))
        skip = "" if self.skip == 0 else self.size(self.skip)
        terms = self.size(self.terms)
        text = _Text(self.e.target, self.dtype, a, b, out, terms, skip, self.later)
        tiles = self.const(-(-self.rows // text.height))
        groups = self._least(tiles, self.muli(workers(module_of_insertion()), self.const(SHARES)))
        bindings = [*self.inputs, *self.outputs]
        symbol = self.executable(text.function(bindings, self.arguments(["%groups"])))
        return self.call(symbol, groups, [groups])[0]

    def _least(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.e.make("arith.minui", [a, b], [ir.IndexType.get()]).result


class _Text:
    """The kernel's function: tiles of `height` rows and up to `width` vectors of columns."""

    def __init__(
        self, target: TargetInfo, dtype: DType, a: Memory, b: Memory, out: Memory, terms: str,
        skip: str, later: bool,
    ) -> None:  # fmt: skip
        lanes = max(1, target.vector_bits // dtype.bits)
        many = target.vector_bits >= 512 or target.triple.startswith(("aarch64", "arm64"))
        self.height, self.width = (8, 3) if many else (4, 3)
        self.t = Text(lanes)
        self.a, self.b, self.out, self.terms = a, b, out, terms
        self.rows, self.columns = int(out.sizes[0]), int(out.sizes[1])
        self.element = stored_type(dtype)
        self.skip, self.later = skip, later

    def function(self, bindings: list[tuple[str, Memory]], arguments: list[str]) -> str:
        """func.func, its constants and memories first."""
        t = self.t
        zero = t.index(0)
        self._all()
        info = "#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>"
        return "\n".join([
            f"    func.func @{NAME}({', '.join(arguments)})",
            f"        attributes {{translation_info = {info}}} {{",
            *t.head, *(f"      {m.subspan(b, zero)}" for b, m in bindings), *t.lines,
            "      return", "    }",
        ])  # fmt: skip

    def _all(self) -> None:
        t, height = self.t, self.height
        tiles = t.index(-(-self.rows // height))
        group = t.op("stream.dispatch.workgroup.id[0] : index")
        each = t.binary("muli", t.op(f"arith.ceildivui {tiles}, %groups : index"), t.index(height))
        low = t.binary("minui", t.binary("muli", group, each), t.index(self.rows))
        high = t.binary("minui", t.binary("addi", low, each), t.index(self.rows))
        self._clear(low, high)
        packed = Memory(
            t.stack(f"memref<{SUM}x{height}x{self.element}>"), self.element, (SUM, height)
        )
        terms = t.binary("subi", self.terms, self.skip) if self.skip else self.terms
        with t.loop(t.index(0), terms, t.index(SUM)) as start:
            left = t.binary("subi", terms, start)
            count = t.binary("minui", left, t.index(SUM))
            with t.loop(low, high, t.index(height)) as row:
                self._pack(packed, start, count, row)
                self._tiles(packed, start, count, row)

    def _off(self, start: str, second: bool) -> str:
        """The row of an operand where a block of terms starts."""
        off = self.skip and second != self.later
        return self.t.binary("addi", start, self.skip) if off else start

    def _clear(self, low: str, high: str) -> None:
        t = self.t
        zero = t.constant("0.0", t.vector(self.element))
        with t.loop(low, high, t.index(1)) as row:
            with t.loop(t.index(0), t.index(self.columns), t.index(t.lanes)) as column:
                mask = self._mask(column) if self.columns % t.lanes else None
                store_vector(t, zero, self.out, [row, column], mask)

    def _mask(self, column: str) -> str:
        t = self.t
        left = t.binary("subi", t.index(self.columns), column)
        return t.op(f"vector.create_mask {left} : {t.vector('i1')}")

    def _pack(self, packed: Memory, start: str, count: str, row: str) -> None:
        """A block of the first operand's columns row .. row+height, side by side; none is zero."""
        t = self.t
        kind, bits = f"vector<{self.height}x{self.element}>", f"vector<{self.height}xi1>"
        ragged = self.rows % self.height != 0
        if ragged:
            left = t.binary("subi", t.index(self.rows), row)
            mask = t.op(f"vector.create_mask {left} : {bits}")
            zero = t.constant("0.0", kind)
        start = self._off(start, False)
        with t.loop(t.index(0), count, t.index(1)) as k:
            where = f"{self.a.name}[{t.binary('addi', start, k)}, {row}]"
            if ragged:
                v = t.op(
                    f"vector.maskedload {where}, {mask}, {zero} : "
                    f"{self.a.kind}, {bits}, {kind} into {kind}"
                )
            else:
                v = t.op(f"vector.load {where} : {self.a.kind}, {kind}")
            t.line(f"vector.store {v}, {packed.name}[{k}, {t.index(0)}] : {packed.kind}, {kind}")

    def _tiles(self, packed: Memory, start: str, count: str, row: str) -> None:
        t = self.t
        wide = self.width * t.lanes
        whole = self.columns // wide * wide
        if whole:
            with t.loop(t.index(0), t.index(whole), t.index(wide)) as column:
                self._tile(packed, start, count, row, column, self.width, False)
        if whole < self.columns:
            vectors = -(-(self.columns - whole) // t.lanes)
            ragged = self.columns % t.lanes != 0
            self._tile(packed, start, count, row, t.index(whole), vectors, ragged)

    def _tile(
        self, packed: Memory, start: str, count: str, row: str, column: str, vectors: int,
        ragged: bool,
    ) -> None:  # fmt: skip
        """One tile of the result, over one block of the sum; ragged: its last vector is cut."""
        t, kind = self.t, self.t.vector(self.element)
        places = [t.add(column, j * t.lanes) for j in range(vectors)]
        masks: list[str | None] = [None] * vectors
        if ragged:
            masks[-1] = self._mask(places[-1])
        rows = [t.add(row, i) for i in range(self.height)]
        cells = [(i, j) for i in range(self.height) for j in range(vectors)]
        guards = self._guards(rows, masks)
        first = [load_vector(t, self.out, [rows[i], places[j]], guards[i, j]) for i, j in cells]
        kinds = [kind] * len(cells)
        start = self._off(start, True)
        k, sums, out = t.carried(t.index(0), count, t.index(1), first, kinds)
        at = t.binary("addi", start, k)
        right = [load_vector(t, self.b, [at, p], m) for p, m in zip(places, masks, strict=True)]
        added = []
        for i in range(self.height):
            one = packed.load(t, [k, t.index(i)])
            left = t.op(f"vector.broadcast {one} : {self.element} to {kind}")
            for j in range(vectors):
                total = sums[i * vectors + j]
                added.append(t.op(f"vector.fma {left}, {right[j]}, {total} : {kind}"))
        t.close(added, kinds)
        for (i, j), n in zip(cells, range(len(cells)), strict=True):
            store_vector(t, f"{out}#{n}", self.out, [rows[i], places[j]], guards[i, j])

    def _guards(
        self, rows: list[str], masks: list[str | None]
    ) -> dict[tuple[int, int], str | None]:
        """Which lanes of which row exist."""
        t = self.t
        if self.rows % self.height == 0:
            return {(i, j): m for i in range(len(rows)) for j, m in enumerate(masks)}
        out: dict[tuple[int, int], str | None] = {}
        bits = t.vector("i1")
        none, every = t.constant("false", bits), t.constant("true", bits)
        for i, row in enumerate(rows):
            here = t.op(f"arith.cmpi ult, {row}, {t.index(self.rows)} : index")
            for j, m in enumerate(masks):
                out[i, j] = t.op(
                    f"arith.select {here}, {every if m is None else m}, {none} : {bits}"
                )
        return out
