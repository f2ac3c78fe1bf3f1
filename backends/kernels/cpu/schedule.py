"""The cost model: lanes, register tiles, and how rows and blocks are shared between workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import ROW, RefusedError
from lstm_ir.backends.kernels.body.active_rows import ActiveRows, active_rows
from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.body.forms import ProductForms
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan, Sweep
from lstm_ir.backends.kernels.call.packing import PackedForm
from lstm_ir.backends.kernels.cpu.chains import alike
from lstm_ir.backends.kernels.cpu.columns import apart, vectors
from lstm_ir.backends.kernels.cpu.lane_choice import atoms_of, paying_rows, possible
from lstm_ir.backends.kernels.cpu.machine import (
    COLUMNS,
    COST,
    FOLD_ROWS,
    MANY_ROWS,
    MIN_PANEL,
    ORDERED_FROM,
    PANEL_SHARE,
    PREFETCH_L2,
    PREFETCH_TILES,
    RESIDENT_SHARE,
    STACK,
    UNEVEN,
    Machine,
    machine,
)
from lstm_ir.backends.kernels.cpu.step_size import bytes_of_step, row_unit
from lstm_ir.backends.kernels.cpu.sums import Shape, Tile
from lstm_ir.backends.kernels.cpu.words import row_offset
from lstm_ir.backends.kernels.text.text import known
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import reached
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType


@dataclass(frozen=True)
class LoopSchedule:
    """What was chosen for one loop."""

    lanes: int
    tiles: dict[Sweep, Tile]
    share: bool  # members of a team may share the blocks of a step
    panel: int  # rows per workgroup in a loop of one step; 0: a real loop
    note: str
    columns: bool = False  # members share the columns of all rows
    apart: bool = False  # columns outermost: members wait for nothing (`columns.py`)
    row_lanes: bool = False  # lanes are rows (`row_lanes.py`)
    resident: int = 0  # rows of a chunk, at most, that goes through all steps before the next one; 0: any
    few: bool = False  # a call has fewer rows than FOLD_ROWS, which are one chunk
    row_unit: int = 1  # chunks have a multiple of so many rows
    active: Mapping[Component, ActiveRows] = field(default_factory=dict)  # whose steps put rows in order

    @property
    def forms(self) -> dict[Sweep, PackedForm]:
        """How weights are packed."""
        columns = 1 if self.row_lanes else self.lanes  # of a vector of weights
        return {s: PackedForm(s.width, columns, t.q, t.beside) for s, t in self.tiles.items()}


def product_forms(target: TargetInfo) -> ProductForms:
    """Element types that a few instructions widen, f16 but for baseline x86-64, which calls a function for each;
    and products of int8."""
    baseline = target.triple.startswith("x86_64") and target.vector_bits < 256
    narrow = {DType.bf16, DType.i8} if baseline else {DType.bf16, DType.f16, DType.i8}
    return ProductForms(frozenset(narrow), words=True, loops=True, teams=True, offset=row_offset(target))


def hoists(n: Node) -> bool | None:
    """Whether products of scanned rows leave the loop: where rows are few; None: the call decides.

    A loop whose products read no carry has none left then, so that its members wait for nothing in a step.
    """
    loop = Loop(n)
    length = loop.length
    if length == 1:
        return False  # nothing to gain; and a hoisted product is itself such a loop
    carried = reached(loop.body.nodes, loop.carry_params)
    products = [m for m in loop.body.nodes if m.op.name == "dot_general"]
    if not any(v in carried for m in products for v in m.inputs):
        return True
    shapes = [t.shape for t in loop.carry_types if t.rank > 1]
    rows = shapes[0][-2] if shapes else 1
    if isinstance(rows, int) and (rows >= FOLD_ROWS or isinstance(length, int)):
        return rows < FOLD_ROWS
    return None


def choose(
    plan: LoopPlan, target: TargetInfo, helpers: bool = False, most_rows: int | None = None, uneven: bool = False
) -> LoopSchedule:
    """The schedule of `plan` on `target`; RefusedError for element types without kernels.

    helpers: threads that stay awake between calls may take part. most_rows: of a call, where its rows are named.
    uneven: not all rows are computed at a time, but any number of them.
    """
    if isinstance(plan.rows, int) and (least := lane_rows(plan, target)) is not None:
        by_rows = rows_as_lanes(plan, target)
        if plan.rows >= least * -(-plan.rows // by_rows.lanes):
            return by_rows
    sweeps = [s for c in plan.components for s in c.sweeps]
    lanes = _lanes(plan, target)
    unit = row_unit(plan, machine(target))
    active = _active(plan, most_rows)
    several = {s for a in active.values() for s in a.sweeps}  # a step needs any number of their rows
    tiles = {s: _tile(s, plan, lanes, target, most_rows, uneven or unit > 1 or s in several) for s in sweeps}
    tiles = alike(plan, tiles)
    shown = " ".join(f"{t.tallest}x{t.q}x{len(s.dots)}x{lanes}" for s, t in tiles.items() if s.dots)
    panel = 0
    if plan.loop.length == 1 and not plan.carries and not plan.meet:
        panel = _panel(sweeps, tiles, target)
    # A matrix of which each member reads a part may stay in their caches, and few rows always do.
    columns = panel > 0 and helpers and isinstance(plan.rows, int) and plan.rows <= COLUMNS
    if columns:
        panel = 0
    share = (any(s.dots for s in sweeps) or plan.meet) and not panel
    where = "hoisted" if plan.projections else "folded"
    products = f", tile {shown}" if shown else ""
    note = f"{where} projection{products}" if shown or plan.projections else "no products"
    if plan.meet:
        note = f"{note}, all rows together"
    if apart(plan):
        tiles = {s: Tile(vectors(s, lanes)) for s in sweeps}
        return LoopSchedule(lanes, tiles, False, 0, f"{note}, by columns", apart=True)
    resident = 0 if share or panel or plan.one_chunk else _resident(plan, target)
    few = most_rows is not None and most_rows < FOLD_ROWS
    unit = 1 if panel or resident else unit
    return LoopSchedule(
        lanes, tiles, share, panel, note, columns, resident=resident, few=few, row_unit=unit, active=active
    )


def _active(plan: LoopPlan, most_rows: int | None) -> dict[Component, ActiveRows]:
    """Components whose steps put rows in order: where these may be several tiles."""
    most = most_rows if most_rows is not None else plan.rows
    if plan.loop.length == 1 or (isinstance(most, int) and most < ORDERED_FROM):
        return {}
    return {c: a for c in plan.components if (a := active_rows(c)) is not None}


def lane_rows(plan: LoopPlan, target: TargetInfo) -> int | None:
    """Rows of a vector from which lanes are better rows than columns; None: from no number on."""
    if not possible(plan):
        return None
    gathers = target.triple.startswith("x86_64") and target.vector_bits >= 256
    return paying_rows(plan, _lanes(plan, target), _lanes(plan, target, True), gathers)


def rows_as_lanes(plan: LoopPlan, target: TargetInfo) -> LoopSchedule:
    """The schedule with rows for lanes."""
    lanes, tiles = _lanes(plan, target, True), {s: Tile(1) for c in plan.components for s in c.sweeps}
    note = "hoisted projection, rows in lanes" if plan.projections else "rows in lanes"
    return LoopSchedule(lanes, tiles, False, 0, note, row_lanes=True, row_unit=lanes)


def _lanes(plan: LoopPlan, target: TargetInfo, rows: bool = False) -> int:
    """Lanes of a vector of columns, or of rows."""
    atoms = atoms_of([s for c in plan.components for s in c.sweeps])
    return max(1, target.vector_bits // widest_bits(atoms, rows))


def _resident(plan: LoopPlan, target: TargetInfo) -> int:
    """Rows whose carries, each twice, stay in a part of L2 from step to step; 0: not known, or none do."""
    if plan.loop.length == 1:
        return 0
    roots = [r for c in plan.components for s in c.sweeps for r in s.roots if r.dest.kind == "carry"]
    row_axes = {r.dest.index: r.access.index(ROW) for r in roots if ROW in r.access}
    row = 0
    for i, axis in row_axes.items():
        t = plan.carries[i].type
        size = dims.product(tuple(d for k, d in enumerate(t.shape) if k != axis))
        if not isinstance(size, int):
            return 0
        row += 2 * size * max(8, t.dtype.bits) // 8
    return target.l2_bytes // RESIDENT_SHARE // row if row else 0


def _panel(sweeps: list[Sweep], tiles: dict[Sweep, Tile], target: TargetInfo) -> int:
    """Rows that stay in half of L2 while the blocks of columns pass."""
    tallest = max((t.tallest for t in tiles.values()), default=1)
    longest = max((sum(k.length for k in s.loops) for s in sweeps), default=1)
    return max(MIN_PANEL, target.l2_bytes // PANEL_SHARE // (4 * max(1, longest)) // tallest) * tallest


def widest_bits(atoms: list[Atom], rows: bool = False) -> int:
    """Bits of the widest element of a vector, of columns or of rows; RefusedError for what kernels do not compute."""
    bits = 32
    for a in atoms:
        value = None if a.node is None else a.node.values[0]
        if not known(a.dtype):
            raise RefusedError(f"elements of {a.dtype}", value, instead.CONVERT_BEFORE)
        if a.op == "dot" and a.dtype not in (DType.f32, DType.f64, DType.i32):
            raise RefusedError(f"a product in {a.dtype}", value, instead.THROUGH_F32)
        if a.op == "reduce" and (a.dtype.bits < 32 and not a.dtype.is_int):
            raise RefusedError(f"a reduction of {a.dtype}", value, instead.THROUGH_F32)
        if a.rows if rows else a.cols:  # others are numbers beside the vectors
            bits = max(bits, a.dtype.bits)
    return bits


def _tile(s: Sweep, plan: LoopPlan, lanes: int, target: TargetInfo, most_rows: int | None, uneven: bool) -> Tile:
    rows = 1 if s.common else plan.rows
    if not s.dots:
        return Tile(1, parts=_parts(rows, Tile(1).blocks(s.width, lanes)))
    if len({d.dtype for d in s.dots}) > 1:
        raise RefusedError("products of two element types in one sweep", write=instead.ONE_DTYPE)
    m, gates = machine(target), len(s.dots)
    q = _vectors(gates // max(len(k.rows) for k in s.loops), Tile(1).blocks(s.width, lanes))
    held = gates * q * lanes * s.dots[0].dtype.bits // 8  # bytes of a row's sums
    parts = _parts(rows, Tile(q).blocks(s.width, lanes))
    room = max(1, STACK // held)
    most = room if most_rows is None else min(room, most_rows)
    shapes = _shapes(m, rows, _Products(s, q), most, parts, uneven)
    tallest = shapes[0].rows
    ahead = m.ahead and rows != tallest and bytes_of_step(plan) > PREFETCH_L2 * target.l2_bytes
    group = tallest * max(1, min(PREFETCH_TILES, STACK // held // tallest)) if ahead else tallest
    return Tile(q, shapes, group, m.tiles_of_chunk * tallest, ahead, parts, _beside(m, s, q, shapes))


def _beside(m: Machine, s: Sweep, q: int, shapes: tuple[Shape, ...]) -> int:
    """Vectors that lie side by side in packed weights: those of a tile of many rows. Variants of a loop share weights,
    so the rows of one decide nothing. 0: all of a block."""
    p, gates = _Products(s, q), len(s.dots)
    registers = m.registers - (m.spare if p.in_words else 0)
    n = p.together(max(m.heights, key=lambda rows: p.per_load(rows, registers)), registers)
    fits = (n % gates == 0 and q % (n // gates) == 0) or gates % n == 0
    return n if n < len(p.sums) and fits and all(shape.vectors % n == 0 for shape in shapes) else 0


def _vectors(gates: int, width: int) -> int:
    """Vectors of columns in a block: about four sums, few of them past the last column."""
    fit = [q for q in (1, 2, 4) if q == 1 or (q * gates < 8 and q <= width)]
    return min(fit, key=lambda q: -(-width // q) * q * COST[min(4, q * gates)])


def _parts(rows: Dim, blocks: int) -> int:
    """Of the rows of a block: two, where two members would have an odd one."""
    return 2 if isinstance(rows, int) and rows > 1 and blocks % 2 and blocks < UNEVEN else 1


class _Products:
    """The sums of a block, and which of them each pass adds to."""

    def __init__(self, s: Sweep, q: int) -> None:
        self.sums = [(v, g) for v in range(q) for g in range(len(s.dots))]
        self.passes = [{g: i for sums in loop.sums for i, g in enumerate(sums)} for loop in s.loops]
        self.alike = max((len(loop.rows) for loop in s.loops), default=1)
        self.in_words = any(loop.in_words for loop in s.loops)

    def weights(self, vectors: int) -> list[list[int]]:
        """Weights of one k by part and pass, where so many vectors are summed at a time."""
        parts = [self.sums[i : i + vectors] for i in range(0, len(self.sums), vectors)]
        return [[len({(v, taken[g]) for v, g in part if g in taken}) for taken in self.passes] for part in parts]

    def together(self, rows: int, registers: int) -> int:
        """Vectors whose sums over some rows stay in registers, beside a pass's weights of one k
        and an element of a row: one more, and LLVM moves nearly every sum in every iteration."""
        for parts in range(1, len(self.sums) + 1):
            n = -(-len(self.sums) // parts)
            if n % self.alike:
                continue
            if rows * n + max(w for part in self.weights(n) for w in part) < registers:
                return n
        return self.alike

    def per_load(self, rows: int, registers: int) -> float:
        """Products for each load."""
        parts = self.weights(self.together(rows, registers))
        loads = [w + rows * self.alike for part in parts for w in part if w]
        return sum(rows * self.alike * w for part in parts for w in part) / sum(loads)


def _shapes(m: Machine, rows: Dim, p: _Products, max_rows: int, parts: int, uneven: bool) -> tuple[Shape, ...]:
    """Tiles by height: the tallest has the most products per load, the others take the rest. uneven: chunks may have
    notably different numbers of rows."""
    heights = [n for n in m.heights if n <= max_rows]
    registers = m.registers - (m.spare if p.in_words else 0)
    best = max(heights, key=lambda n: p.per_load(n, registers))
    if isinstance(rows, int) and rows > 0:
        best = -(-rows // -(-rows // best))  # even parts
    rest = _rest(None if uneven else rows, best, m.tiles_of_chunk * best, parts)
    return (Shape(best, p.together(best, registers), m.products), *(Shape(n, p.together(n, registers)) for n in rest))


def _rest(rows: Dim | None, best: int, chunk: int, parts: int) -> list[int]:
    """Heights below the best that chunks of rows need, however many workers share them."""
    if not isinstance(rows, int):
        return [n for n in (4, 3, 2, 1) if n < best]  # three rows are a tile, not two that read all weights twice
    rest = [n for n in (4, 2, 1) if n < best]
    if rows > MANY_ROWS:
        return rest[-1:]  # a few rows of a panel or of a long batch
    used = set()
    for chunks in range(1, max(1, rows // chunk) + 1):
        each = -(-rows // chunks)
        for here in _cut((each, rows % each), parts):
            left = here % best
            for n in rest:
                used.add(n if left >= n else 0)
                left %= n
    return [n for n in rest if n in used]


def _cut(rows: tuple[int, ...], parts: int) -> list[int]:
    """Rows as they are, and in parts."""
    return [*rows, *(n * (i + 1) // parts - n * i // parts for n in rows for i in range(parts))]
