"""How workgroups share one sequence: claimed blocks, a count of them, waits between sweeps.

A member claims a block of the current step by raising the block's flag from below step+1 to step+1
(`atomicrmw max`): one member wins. It begins with the blocks that it prefers, adds the number that
it finished to `done` and looks POLLS times whether `done` has reached what all sweeps up to here
amount to. If not, it claims what others left, and only then waits. It never waits for a member that
has not started: whoever runs can claim every block, so one worker finishes alone, and a member that
starts late finds everything claimed and catches up. Members that keep step touch no flags but their
own, so these stay in their own cache.

Memory order: a member stores its results, then adds to `done` (`memref.atomic_rmw` is acq_rel); the
others read `done` by an atomic read-modify-write (acq_rel too) before they load results. The adds
to `done` form one release sequence, so whoever reads the final count sees every store that came
before any of the adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lstm_ir.backends.kernels.memory import Memory
from lstm_ir.backends.kernels.text import Text

LINE = 16  # i32 per cache line: every flag has its own
POLLS = 64  # looks at the count before a member tries to take blocks that others prefer
FOREVER = 1 << 62


class Team:
    """The members of one chunk of one component."""

    def __init__(
        self,
        t: Text,
        counters: Memory | None,
        group: str,
        member: str,
        members: str,
        relax: str = "",
    ) -> None:
        self.t, self.counters, self.group, self.member, self.members = (
            t,
            counters,
            group,
            member,
            members,
        )
        self.relax = relax  # the processor's hint for a thread that waits

    def begin(self, blocks: list[int]) -> None:
        """Start a component whose sweeps have so many blocks."""
        self.counts = blocks
        self.first = [sum(blocks[:i]) for i in range(len(blocks))]  # flag of a sweep's first block
        self.total = sum(blocks)
        if self.counters is not None:
            self.many = self.t.op(f"arith.cmpi ugt, {self.members}, {self.t.index(1)} : index")

    @contextmanager
    def once(self) -> Iterator[None]:
        """What one member does before the first step, and all wait for."""
        if self.counters is None:
            yield
            return
        t = self.t
        flag = t.index(1 + self.total)
        with t.block(f"scf.if {self._claim(flag, t.index(0))}"):
            yield
            self._finish(t.index(1))
        self._wait(t.index(1))

    @contextmanager
    def last(self, steps: str) -> Iterator[None]:
        """What one member does after the last step."""
        if self.counters is None:
            yield
            return
        t = self.t
        with t.block(f"scf.if {self._claim(t.index(2 + self.total), t.index(0))}"):
            yield

    @contextmanager
    def blocks(self, sweep: int, step: str, odd: str) -> Iterator[str]:
        """The blocks of a sweep, forward on even steps and backward on odd ones."""
        t, n = self.t, self.counts[sweep]
        is_odd = t.op(f"arith.cmpi ne, {odd}, {t.index(0)} : index")
        if self.counters is None:
            with t.loop(t.index(0), t.index(n), t.index(1)) as i:
                yield self._turned(i, is_odd, t.index(n - 1))
            return
        before = t.binary("muli", step, t.index(self.total))
        target = t.add(before, 1 + self.first[sweep] + n)
        low = t.binary("divui", t.binary("muli", self.member, t.index(n)), self.members)
        next_ = t.add(self.member, 1)
        high = t.binary("divui", t.binary("muli", next_, t.index(n)), self.members)
        start = t.op(
            f"arith.select {is_odd}, {t.add(t.binary('addi', high, t.index(n)), -1)}, {low} : index"
        )
        own = t.binary("subi", high, low)
        # A member that starts late finds sweeps finished: it has nothing to claim there.
        over = self._reached(target)
        turn, (done,), _ = t.carried(t.index(0), t.index(2), t.index(1), [over], ["i1"])
        others = t.op(f"arith.cmpi ne, {turn}, {t.index(0)} : index")
        first = t.op(f"arith.select {others}, {own}, {t.index(0)} : index")
        last = t.op(f"arith.select {others}, {t.index(n)}, {own} : index")
        end = t.op(f"arith.select {done}, {first}, {last} : index")
        at, (mine,), out = t.carried(first, end, t.index(1), [t.index(0)], ["index"])
        up, down = t.binary("addi", start, at), t.binary("subi", start, at)
        there = t.op(f"arith.select {is_odd}, {down}, {up} : index")
        block = t.binary("remui", there, t.index(n))
        ok = self._claim(t.add(block, 1 + self.first[sweep]), step)
        with t.block(f"scf.if {ok}"):
            yield block
        one = t.op(f"arith.select {ok}, {t.index(1)}, {t.index(0)} : index")
        t.close([t.binary("addi", mine, one)], ["index"])
        self._finish(f"{out}#0")
        self._wait(
            target, t.op(f"arith.select {others}, {t.index(FOREVER)}, {t.index(POLLS)} : index")
        )
        t.close([self._reached(target)], ["i1"])

    def _turned(self, i: str, is_odd: str, last: str) -> str:
        back = self.t.binary("subi", last, i)
        return self.t.op(f"arith.select {is_odd}, {back}, {i} : index")

    def _claim(self, flag: str, step: str) -> str:
        """Whether this member is the first at `flag` in this step; always, if it is alone."""
        t, c = self.t, self.counters
        assert c is not None
        out = t.fresh()
        with t.block(f"{out} = scf.if {self.many} -> (i1)", "} else {"):
            stamp = t.op(f"arith.index_cast {t.add(step, 1)} : index to i32")
            at = f"{c.name}[{self.group}, {flag}, {t.index(0)}]"
            old = t.op(f"memref.atomic_rmw maxs {stamp}, {at} : (i32, {c.kind}) -> i32")
            t.line(f"scf.yield {t.op(f'arith.cmpi slt, {old}, {stamp} : i32')} : i1")
        t.line(f"  scf.yield {t.constant('true', 'i1')} : i1")
        t.line("}")
        return out

    def _reached(self, count: str) -> str:
        """Whether so many blocks are finished; never, for a member that is alone."""
        t, c = self.t, self.counters
        assert c is not None
        out = t.fresh()
        with t.block(f"{out} = scf.if {self.many} -> (i1)", "} else {"):
            left, zero = self._left(count), t.constant("0", "i32")
            t.line(f"scf.yield {t.op(f'arith.cmpi sge, {left}, {zero} : i32')} : i1")
        t.line(f"  scf.yield {t.constant('false', 'i1')} : i1")
        t.line("}")
        return out

    def _left(self, count: str) -> str:
        """Finished blocks less `count`; the difference keeps its order past 2^31."""
        t, c = self.t, self.counters
        assert c is not None
        at = f"{c.name}[{self.group}, {t.index(0)}, {t.index(0)}]"
        seen = t.op(
            f"memref.atomic_rmw addi {t.constant('0', 'i32')}, {at} : (i32, {c.kind}) -> i32"
        )
        return t.binary("subi", seen, t.op(f"arith.index_cast {count} : index to i32"), "i32")

    def _finish(self, n: str) -> None:
        t, c = self.t, self.counters
        assert c is not None
        some = t.op(f"arith.cmpi ne, {n}, {t.index(0)} : index")
        with t.block(f"scf.if {t.op(f'arith.andi {self.many}, {some} : i1')}"):
            as_i32 = t.op(f"arith.index_cast {n} : index to i32")
            at = f"{c.name}[{self.group}, {t.index(0)}, {t.index(0)}]"
            t.op(f"memref.atomic_rmw addi {as_i32}, {at} : (i32, {c.kind}) -> i32")

    def _wait(self, count: str, polls: str | None = None) -> None:
        """Spin until so many blocks are finished, with pauses that grow; or for so many looks."""
        t = self.t
        polls = t.index(FOREVER) if polls is None else polls
        with t.block(f"scf.if {self.many}"):
            spins, at = t.fresh(), t.fresh()
            with t.block(f"{spins} = scf.while ({at} = {t.index(0)}) : (index) -> index", "} do {"):
                zero = t.constant("0", "i32")
                more = t.op(f"arith.cmpi slt, {self._left(count)}, {zero} : i32")
                again = t.op(f"arith.cmpi ult, {at}, {polls} : index")
                t.line(f"scf.condition({t.op(f'arith.andi {more}, {again} : i1')}) {at} : index")
            turn = t.fresh()
            t.line(f"^bb0({turn}: index):")
            if self.relax:
                n = t.binary("minui", t.add(t.binary("divui", turn, t.index(64)), 1), t.index(64))
                with t.loop(t.index(0), n, t.index(1)):
                    t.line(f'llvm.inline_asm has_side_effects "{self.relax}", "" : () -> ()')
            t.line(f"  scf.yield {t.add(turn, 1)} : index")
            t.line("}")
