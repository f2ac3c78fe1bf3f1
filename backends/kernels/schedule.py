"""The cost model: lanes, register tiles, and how rows and blocks are shared between workers."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.backends.kernels.access import RefusedError
from lstm_ir.backends.kernels.atoms import Atom
from lstm_ir.backends.kernels.plan import Plan, Sweep, walk
from lstm_ir.backends.kernels.planner import NARROW
from lstm_ir.backends.kernels.text import known
from lstm_ir.backends.kernels.tile import Tile
from lstm_ir.graph import Node
from lstm_ir.target import TargetInfo
from lstm_ir.types import DType

PANEL_SHARE = 8  # the part of L2 that the rows of a panel may take
STACK = 16 << 10  # bytes of sums; a dispatch has 32 KB of stack by default


@dataclass(frozen=True)
class Schedule:
    """What was chosen for one loop."""

    lanes: int
    tiles: dict[Sweep, Tile]
    share: bool  # members of a team may share the blocks of a step
    panel: int  # rows per workgroup in a loop of one step; 0: a real loop
    note: str


def narrow(target: TargetInfo) -> frozenset[DType]:
    """Element types that a few instructions widen: baseline x86-64 calls a function for each f16."""
    baseline = target.triple.startswith("x86_64") and target.vector_bits < 256
    return NARROW - {DType.f16} if baseline else NARROW


FOLD_ROWS = 3  # from so many rows on a longer loop over k beats reading projected rows


def hoists(n: Node) -> bool | None:
    """Whether products of scanned rows leave the loop: where rows are few; None: the call decides."""
    length = n.attrs["length"]
    if length == 1:
        return False  # nothing to gain; and a hoisted product is itself such a loop
    finals = n.args[1]
    shapes = [v.shape for v in (finals if isinstance(finals, tuple) else ()) if v.rank > 1]
    rows = shapes[0][-2] if shapes else 1
    if isinstance(rows, int) and (rows >= FOLD_ROWS or isinstance(length, int)):
        return rows < FOLD_ROWS
    return None


def choose(plan: Plan, target: TargetInfo) -> Schedule:
    """The schedule of `plan` on `target`; RefusedError for element types without kernels."""
    sweeps = [s for c in plan.components for s in c.sweeps]
    atoms = [a for s in sweeps for r in s.roots for a in walk(r.atom)]
    lanes = max(1, target.vector_bits // widest_bits(atoms))
    registers = (
        32
        if target.vector_bits >= 512 or "aarch64" in target.triple or "arm64" in target.triple
        else 16
    )
    tiles = {s: _tile(s, plan, lanes, registers) for s in sweeps}
    shown = " ".join(f"{t.rows[0]}x{t.q}x{len(s.dots)}x{lanes}" for s, t in tiles.items() if s.dots)
    panel = 0
    if plan.node.attrs["length"] == 1 and not plan.carries:
        panel = _panel(sweeps, tiles, target)
    share = any(s.dots for s in sweeps) and not panel
    where = "hoisted" if plan.projections else "folded"
    note = f"{where} projection, tile {shown}" if shown else "no products"
    return Schedule(lanes, tiles, share, panel, note)


def _panel(sweeps: list[Sweep], tiles: dict[Sweep, Tile], target: TargetInfo) -> int:
    """Rows that stay in half of L2 while the blocks of columns pass."""
    tallest = max((t.rows[0] for t in tiles.values()), default=1)
    longest = max((sum(k.length for k in s.loops) for s in sweeps), default=1)
    return max(4, target.l2_bytes // PANEL_SHARE // (4 * max(1, longest)) // tallest) * tallest


def widest_bits(atoms: list[Atom]) -> int:
    """Bits of the widest element; RefusedError for what kernels do not compute."""
    bits = 32
    for a in atoms:
        value = None if a.node is None else a.node.values[0]
        if not known(a.dtype):
            raise RefusedError(f"elements of {a.dtype}", value)
        if a.op == "dot" and (not a.dtype.is_float or a.dtype.bits < 32):
            raise RefusedError(f"a product in {a.dtype}; convert to f32 first", value)
        if a.op == "reduce" and (not a.dtype.is_float or a.dtype.bits < 32):
            raise RefusedError(f"a reduction of {a.dtype}", value)
        bits = max(bits, a.dtype.bits)
    return bits


def _tile(s: Sweep, plan: Plan, lanes: int, registers: int) -> Tile:
    if not s.dots:
        return Tile(1, (1,))
    if len({d.dtype for d in s.dots}) > 1:
        raise RefusedError("products of two element types in one sweep")
    gates = len(s.dots)
    room = registers - 4  # accumulators; the rest hold weights
    q = 1
    blocks = -(-s.width // lanes)
    while q * gates < 4 and 2 * q <= blocks and gates * 2 * q <= room:
        q *= 2
    most = max(1, min(_tallest(registers, gates * q), STACK // (gates * q * lanes * 8)))
    return Tile(q, _rows(plan.rows, most))


def _tallest(registers: int, vectors: int) -> int:
    """Rows whose sums stay in registers beside the weights of one k and an element of a row.

    One row more, and LLVM moves nearly every sum in every iteration. A power of two: workers take
    halves of a batch, and a rest of two rows reads its weights as often as eight.
    """
    most = min(max(1, (registers - 1 - vectors) // vectors), 8)
    return 1 << (most.bit_length() - 1)


def _rows(rows: object, most: int) -> tuple[int, ...]:
    """Heights of row tiles: even parts of a known number of rows, then 4, 2, 1 for the rest."""
    if isinstance(rows, int) and rows > 0:
        most = -(-rows // -(-rows // most))
    return (most, *(n for n in (4, 2, 1) if n < most))
