"""How workgroups share one sequence: claimed shares of blocks, a count of blocks, waits between sweeps.

Each member has a share of a sweep's blocks, the same in every step. Where few blocks would leave
one member with more than another, pieces are shared out: a part of the rows of a block each. A
member claims a share of the current step by raising the share's flag from below step+1 to step+1
(`atomicrmw max`): one member wins. It begins with its own share, adds the number of pieces that it
finished to `done` and looks POLLS times whether `done` has reached what all sweeps up to here
amount to. If not, it claims the shares that others left, and only then waits. It never waits for a
member that has not started: whoever runs can claim every share, so one worker finishes alone, and a
member that starts late finds everything claimed and catches up; while one has not come, the others
do not look for what it might do. Members that keep step touch no
flags but their own, so these stay in their own cache. A flag for each block instead would let a
member take the rest of a share whose owner was stopped amid it; but the sweep waits for the owner's
block anyway, and a locked instruction for every block holds up the loads of the next one.

Memory order: a member stores its results, then adds to `done` (`memref.atomic_rmw` is acq_rel); the
others load `done` with acquire before they load results. The adds to `done` form one release
sequence, so whoever reads the final count sees every store that came before any of the adds. Flags
that stay between calls are made zero by the member that is the last to count itself out: all others
looked at them for the last time before their own count, which is acq_rel too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from lstm_ir.backends.kernels.cpu.machine import POLLS
from lstm_ir.backends.kernels.text.memory import Memory, acquired, address
from lstm_ir.backends.kernels.text.spin import spin_pause
from lstm_ir.backends.kernels.text.statements import Name, TextOperand
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.backends.memory import LINE
from lstm_ir.ir.target import TargetInfo

FLAG = LINE // 4  # i32 of a flag: every one has its own cache line
UNBOUNDED = 1 << 62


def relax_instruction(target: TargetInfo | None) -> str:
    """The processor's hint for a thread that waits."""
    triple = "" if target is None else target.triple
    if triple.startswith("x86_64"):
        return "pause"
    return "yield" if triple.startswith(("aarch64", "arm64")) else ""


class Work(NamedTuple):
    """Blocks of columns; the rows of each are shared out in so many parts."""

    blocks: int
    parts: int

    @property
    def pieces(self) -> int:
        """What a share has a number of."""
        return self.blocks * self.parts


class RowRange(NamedTuple):
    """Rows low .. high."""

    low: TextOperand
    high: TextOperand


class StepBlock(NamedTuple):
    """Steps first .. end of a loop."""

    first: TextOperand
    end: TextOperand


class Turn(NamedTuple):
    """Rows of a block that a member computes now; the block `following` need not exist."""

    block: TextOperand
    following: TextOperand
    rows: RowRange


Share: TypeAlias = tuple[TextOperand, TextOperand]  # pieces from one on, up to another


class Team:
    """The members of one chunk of one component."""

    def __init__(
        self,
        t: Text,
        counters: Memory | None,
        group: TextOperand,
        member: TextOperand,
        members: TextOperand,
        relax: str = "",
    ) -> None:
        self.t, self.counters, self.group, self.member, self.members = (t, counters, group, member, members)
        self.relax = relax  # the processor's hint for a thread that waits

    def begin(self, sweeps: list[Work], before: list[Work], block: int = 1) -> None:
        """Start a component with such sweeps in a step, and what comes before so many steps, a `block`."""
        self.sweeps, self.before, self.block = sweeps, before, block
        pieces = [w.pieces for w in sweeps]
        self.first = [sum(pieces[:i]) for i in range(len(pieces))]  # flag of a sweep's first piece
        self.total = sum(pieces)
        if self.counters is not None:
            self.many = self.t.compare("ugt", self.members, self.t.index(1))
            self.done = self._place(self.counters, 0)
            come = self._flags - 2
            self.come = self._place(self.counters, come)
            with self.t.when(self.many):
                self._add(come, self.t.constant("1", "i32"))

    def steps(self, steps: TextOperand) -> TextOperand:
        """The number of steps; 0 for a member that comes when all are done."""
        if self.counters is None:
            return steps
        t = self.t
        whole = t.add(self._done(steps, steps), 1)
        late = t.binary("xori", self._less(whole), t.constant("true", "i1"), "i1")
        late = t.binary("andi", late, self.many, "i1")
        return t.select(late, t.index(0), steps)

    @property
    def _flags(self) -> int:
        """Flags of a team."""
        assert self.counters is not None
        return self.counters.size(1)

    def _done(self, steps: TextOperand, made: TextOperand) -> TextOperand:
        """Pieces of so many steps, and of what comes before the blocks of the first `made` ones."""
        t, each = self.t, sum(w.pieces for w in self.before)
        done = t.binary("muli", steps, t.index(self.total))
        if not each:
            return done
        blocks = t.binary("ceildivui", made, t.index(self.block))
        return t.binary("addi", done, t.binary("muli", blocks, t.index(each)))

    @contextmanager
    def once(self) -> Iterator[None]:
        """What one member does before the first step, and all wait for."""
        if self.counters is None:
            yield
            return
        t = self.t
        flag = t.index(1 + self.total)
        with t.when(self._claim(flag, t.index(0))):
            yield
            self._finish(t.index(1))
        self._wait(t.index(1))

    @contextmanager
    def last(self, steps: TextOperand) -> Iterator[None]:
        """What one member does after the last step."""
        if self.counters is None:
            yield
            return
        t = self.t
        with t.when(self._claim(t.index(2 + self.total), t.index(0))):
            yield

    def leave(self) -> None:
        """The last member to go leaves every flag as it was found, for the next call."""
        if self.counters is None:
            return
        t, c = self.t, self.counters
        flags, zero = self._flags, t.index(0)
        with t.when(self.many):
            left = self._add(flags - 1, t.constant("1", "i32"))
            left = t.binary("addi", t.op("arith.index_cast {} : i32 to index", left), t.index(1))
            with t.when(t.compare("eq", left, self.members)):
                with t.loop(zero, t.index(flags), t.index(1)) as flag:
                    c.store(t, t.constant("0", "i32"), [self.group, flag, zero])

    @contextmanager
    def blocks(self, sweep: int, step: TextOperand, odd: TextOperand, rows: RowRange) -> Iterator[Turn]:
        """The blocks of a sweep, forward on even steps and backward on odd ones."""
        t, work = self.t, self.sweeps[sweep]
        is_odd = t.compare("ne", odd, t.index(0))
        target = t.add(self._done(step, t.add(step, 1)), 1 + self.first[sweep] + work.pieces)
        with self._shared(work, 1 + self.first[sweep], step, target, is_odd, rows) as turn:
            yield turn

    @contextmanager
    def blocks_before(self, number: int, block: StepBlock, rows: RowRange) -> Iterator[Turn]:
        """The blocks of what comes before a block of steps."""
        t, work = self.t, self.before[number]
        earlier = sum(w.pieces for w in self.before[:number])
        done = self._done(block.first, block.first)
        flag, target = 3 + self.total + earlier, t.add(done, 1 + earlier + work.pieces)
        forward = t.constant("false", "i1")
        which = t.binary("divui", block.first, t.index(self.block))
        with self._shared(work, flag, which, target, forward, rows) as turn:
            yield turn

    @contextmanager
    def _shared(
        self, work: Work, flag: int, step: TextOperand, target: TextOperand, is_odd: TextOperand, rows: RowRange
    ) -> Iterator[Turn]:
        """All pieces, shared out by the flags from `flag` on, until `target` are done."""
        t = self.t
        if self.counters is None:
            with t.loop(t.index(0), t.index(work.blocks), t.index(1)) as i:
                yield Turn(*self._two(i, is_odd, t.index(work.blocks - 1)), rows)
            return
        turn, (done,), _ = t.carried(t.index(0), t.index(2), t.index(1), [t.constant("false", "i1")], ["i1"])
        others = t.compare("ne", turn, t.index(0))
        last = t.select(others, self.members, t.index(1))
        end = t.select(done, turn, last)
        at, (mine,), (finished,) = t.carried(turn, end, t.index(1), [t.index(0)], ["index"])
        owner = t.binary("remui", t.binary("addi", self.member, at), self.members)
        low, high = (
            t.binary("divui", t.binary("muli", o, t.index(work.pieces)), self.members) for o in (owner, t.add(owner, 1))
        )
        ok = self._claim_share(low, high, flag, step)
        stop = t.select(ok, high, low)
        share: Share = low, high
        first, past = self._blocks_of(share, work.parts)
        top = t.add(t.binary("addi", first, past), -1)
        with t.loop(first, t.select(ok, past, first), t.index(1)) as i:
            block, following = self._two(i, is_odd, top)
            yield Turn(block, following, self._rows_of(block, share, work.parts, rows))
        t.close([t.binary("addi", mine, t.binary("subi", stop, low))], ["index"])
        self._finish(finished)
        come = t.op("arith.index_cast {} : i32 to index", acquired(t, self.come))
        here = t.compare("uge", come, self.members)
        polls = t.select(here, t.index(POLLS), t.index(0))
        polls = t.select(others, t.index(UNBOUNDED), polls)
        t.close([self._wait(target, polls)], ["i1"])

    def _blocks_of(self, share: Share, parts: int) -> Share:
        """The blocks first .. end of which a share has pieces."""
        if parts == 1:
            return share
        t, n = self.t, self.t.index(parts)
        return t.binary("divui", share[0], n), t.binary("ceildivui", share[1], n)

    def _rows_of(self, block: TextOperand, share: Share, parts: int, rows: RowRange) -> RowRange:
        """Those rows of a block that a share has."""
        if parts == 1:
            return rows
        t, n = self.t, self.t.index(parts)
        before = t.binary("muli", block, n)
        whole = t.binary("subi", rows.high, rows.low)

        def row(piece: TextOperand) -> TextOperand:
            """The first one of a piece, clamped into the block."""
            inside = t.binary("minsi", t.binary("maxsi", piece, t.index(0)), n)
            return t.binary("addi", rows.low, t.binary("divui", t.binary("muli", whole, inside), n))

        return RowRange(*(row(t.binary("subi", piece, before)) for piece in share))

    def _two(self, i: TextOperand, is_odd: TextOperand, last: TextOperand) -> tuple[TextOperand, TextOperand]:
        """A block, and the one after it."""
        return self._turned(i, is_odd, last), self._turned(self.t.add(i, 1), is_odd, last)

    def _turned(self, i: TextOperand, is_odd: TextOperand, last: TextOperand) -> TextOperand:
        back = self.t.binary("subi", last, i)
        return self.t.select(is_odd, back, i)

    def _claim(self, flag: TextOperand, step: TextOperand) -> TextOperand:
        """Whether this member is the first at `flag` in this step; always, if it is alone."""
        t, c = self.t, self.counters
        assert c is not None
        with self._flag(self.many, "true") as out:
            stamp = t.op("arith.index_cast {} : index to i32", t.add(step, 1))
            at = [self.group, flag, t.index(0)]
            change = "memref.atomic_rmw maxs {}, {}[{}] : (i32, {}) -> i32"
            old = t.op(change, stamp, c.ref, at, c.kind)
            t.line("scf.yield {} : i1", t.compare("slt", old, stamp, "i32"))
        return out

    def _claim_share(self, low: TextOperand, high: TextOperand, first: int, step: TextOperand) -> TextOperand:
        """Whether this member is the first at blocks low .. high of a step; not, if there are none."""
        t = self.t
        with self._flag(t.compare("ult", low, high), "false") as out:
            t.line("scf.yield {} : i1", self._claim(t.add(low, first), step))
        return out

    @contextmanager
    def _flag(self, where: TextOperand, otherwise: str) -> Iterator[Name]:
        """A flag, which the statements inside yield `where` another one is set."""
        t = self.t
        out = t.fresh()
        with t.block("scf.if {} -> (i1)", where, to=out):
            yield out
        with t.region("else"):
            t.line("scf.yield {} : i1", t.constant(otherwise, "i1"))

    def _place(self, c: Memory, flag: int) -> TextOperand:
        """The address of a flag, for loads that memref has no operation for."""
        t = self.t
        base = address(t, c.ref, c.kind)
        bytes_ = t.index(self._flags * LINE)
        at = t.binary("addi", base, t.binary("muli", self.group, bytes_))
        word = t.op("arith.index_cast {} : index to i64", t.add(at, flag * LINE))
        return t.op("llvm.inttoptr {} : i64 to !llvm.ptr", word)

    def _add(self, flag: int, n: TextOperand) -> TextOperand:
        """Adds to a flag, and gives what it was."""
        t, c = self.t, self.counters
        assert c is not None
        at = [self.group, t.index(flag), t.index(0)]
        return t.op("memref.atomic_rmw addi {}, {}[{}] : (i32, {}) -> i32", n, c.ref, at, c.kind)

    def _less(self, count: TextOperand) -> TextOperand:
        """Whether fewer blocks are finished; the difference keeps its order past 2^31."""
        t = self.t
        seen = acquired(t, self.done)
        left = t.binary("subi", seen, t.op("arith.index_cast {} : index to i32", count), "i32")
        return t.compare("slt", left, t.constant("0", "i32"), "i32")

    def _finish(self, n: TextOperand) -> None:
        t = self.t
        some = t.compare("ne", n, t.index(0))
        with t.when(t.binary("andi", self.many, some, "i1")):
            self._add(0, t.op("arith.index_cast {} : index to i32", n))

    def _wait(self, count: TextOperand, polls: TextOperand | None = None) -> TextOperand:
        """Spin until so many blocks are finished, with pauses that grow; or for so many looks.

        Gives whether they are; a member that is alone does not look.
        """
        t = self.t
        polls = t.index(UNBOUNDED) if polls is None else polls
        with self._flag(self.many, "true") as out:
            at, spins = t.fresh("index"), t.fresh()
            start = "scf.while ({} = {}) : (index) -> (index, i1)"
            with t.block(start, at, t.index(0), to=spins, results=2):
                less = self._less(count)
                again = t.compare("ult", at, polls)
                more = t.binary("andi", less, again, "i1")
                t.line("scf.condition({}) {}, {} : index, i1", more, at, less)
            turn, last = t.fresh("index"), t.fresh("i1")
            with t.region("do", turn, last):
                spin_pause(t, self.relax, turn)
                t.line("scf.yield {} : index", t.add(turn, 1))
            _, left = t.results(spins, ["index", "i1"])
            reached = t.binary("xori", left, t.constant("true", "i1"), "i1")
            t.line("scf.yield {} : i1", reached)
        return out
