"""The two loops of a differentiated `scan`: the forward loop's twin, and the one that goes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Node, Value, topological
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.pullback import Cts, session
from lstm_ir.ir.reach import reached
from lstm_ir.ops.primitive.fill import zeros, zeros_like
from lstm_ir.ops.primitive.size import steps_that_run
from lstm_ir.ops.scan.node import STEP, scan_node
from lstm_ir.ops.scan.parts import names_beside, to_save
from lstm_ir.ops.scan.sums import SumTerm, of_slices, summed

Stacked = tuple[Value, bool]
"""Rows of all steps, and whether they lie in the opposite order of the steps."""


@dataclass(frozen=True)
class PairParts:
    """Values over the body's parameters and the cotangents' (`d_out` by carry, `d_rows` by row).

    `backward` holds the gradients of carries, then (from split[0]) of constants that are summed in
    the loop, then (from split[1]) of slices.
    """

    forward: Sequence[Value]
    backward: Sequence[Value]
    split: tuple[int, int]
    terms: Sequence[SumTerm]
    d_out: dict[Value, Value]
    d_rows: dict[int, Value]


@dataclass(frozen=True)
class Pair:
    """Builds both loops; `sources` are the parameters whose gradients `parts.backward` holds."""

    node: Node
    loop: Loop
    cts: Cts
    parts: PairParts
    sources: tuple[list[Value], list[Value], list[Value]]
    everything_again: bool

    def build(self) -> dict[Value, Value]:
        """Gradients by parameter of the forward body."""
        loop, parts = self.loop, self.parts
        _, sums, rows = self.sources
        used, saved = self._needs()
        kept, count = self._twin([p for p in used if p in loop.carry_params] + saved)
        outer = dict(loop.operands())
        flag = dict(zip(loop.x_params, loop.x_reverse, strict=True))
        asked = self._asked(kept, flag)
        name = names_beside([*loop.body.params, *parts.d_out.values(), *parts.d_rows.values()])
        kept_params = {v: parameter(name(f"saved{i}"), v.type) for i, v in enumerate(kept)}
        step, last = parameter(name("back"), STEP), parameter(name("last"), STEP)
        values = [*parts.backward, *(v for v, _ in asked)]
        values = clone(values, {**kept_params, loop.step: last - step})
        first, second = parts.split
        totals = [parameter(name(f"sum{i}"), p.type) for i, p in enumerate(sums)]
        values[first:second] = [t + v for t, v in zip(totals, values[first:second], strict=True)]
        consts = [p for p in used if p in loop.const_params]
        xs = [p for p in used if p in loop.x_params]
        turned = [last] if loop.step in used else []
        params = [
            step, *turned, *consts, *parts.d_out.values(), *totals,
            *kept_params.values(), *xs, *parts.d_rows.values(),
        ]  # fmt: skip
        arrived = self.cts[loop.first_row :]
        back = scan_node(
            Graph(f"{loop.body.name}_back", params, values),
            (*(self._last(count) for _ in turned), *(outer[p] for p in consts)),
            (*self._first(), *(zeros_like(p) for p in sums)),
            (*(v for v, _ in kept.values()), *(outer[p] for p in xs), *(_there(arrived[j]) for j in parts.d_rows)),
            length=loop.length,
            reverse=(
                *(not r for _, r in kept.values()),
                *(not flag[p] for p in xs),
                *(not loop.y_reverse[j] for j in parts.d_rows),
                *(not flag[p] for p in rows),
                *(not r for _, r in asked),
            ),
            count=count,
        )
        found = dict(zip([p for group in self.sources for p in group], back.values, strict=False))
        stacks = dict(zip(asked, back.values[len(found) :], strict=True))
        session().saved.values += stacks.values()
        return self._with_sums(found, stacks, kept, outer)

    def _with_sums(
        self,
        sums: dict[Value, Value],
        stacks: dict[Stacked, Value],
        saved: dict[Value, Stacked],
        outer: dict[Value, Value],
    ) -> dict[Value, Value]:
        flag = dict(zip(self.loop.x_params, self.loop.x_reverse, strict=True))
        for t in self.parts.terms:
            order = self._order(t, saved, flag)
            ct = stacks[t.ct, order]
            if t.source in flag:
                part = of_slices(t, outer[t.source], outer[_there(t.other)], ct)
            elif t.other is None or t.other in saved or self._whole(t.other):
                rows = None if t.other is None else saved.get(t.other, (outer.get(t.other),))[0]
                part = summed(t, outer[t.source], ct, rows)
            else:
                part = summed(t, outer[t.source], ct, stacks[t.other, order])
            sums[t.source] = sums[t.source] + part if t.source in sums else part
        return sums

    def _whole(self, v: Value) -> bool:
        """Whether v is a slice of an operand all of whose rows the loop visits."""
        return self.loop.count is None and not self.loop.until and v in self.loop.x_params

    def _order(self, t: SumTerm, saved: dict[Value, Stacked], flag: dict[Value, bool]) -> bool:
        """The order in which the rows lie that go together with the term's cotangent."""
        if t.source in flag:
            return flag[t.source]
        if t.other is None:
            return False
        if t.other in saved:
            return saved[t.other][1]
        return flag[t.other] if self._whole(t.other) else False

    def _asked(self, saved: dict[Value, Stacked], flag: dict[Value, bool]) -> list[Stacked]:
        """What the loop that goes back must stack for the sums after it."""
        out: dict[Stacked, None] = {}
        for t in self.parts.terms:
            order = self._order(t, saved, flag)
            out[t.ct, order] = None
            if self._inside(t) and t.other not in saved:
                out[_there(t.other), order] = None
        return list(out)

    def _inside(self, t: SumTerm) -> bool:
        """Whether the loop that goes back has to know the other operand."""
        if t.other is None or t.source in self.loop.x_params:
            return False
        return not self._whole(t.other)

    def _needs(self) -> tuple[list[Value], list[Value]]:
        """Parameters and forward values that the loop that goes back reads."""
        parts = self.parts
        others = [_there(t.other) for t in parts.terms if self._inside(t)]
        values = [*parts.backward, *(t.ct for t in parts.terms), *others]
        nodes = list(topological([v.node for v in values]))
        late = reached(nodes, [*parts.d_out.values(), *parts.d_rows.values()])
        needed = [v for v in values if v not in late]
        for n in nodes:
            if any(v in late for v in n.inputs):
                needed += [v for v in n.inputs if v not in late]
        return to_save(needed, self.loop.body.params, self.everything_again)

    def _twin(self, saved: list[Value]) -> tuple[dict[Value, Stacked], Value | None]:
        """Stacks `saved`: rows that the loop gives anyway, or those of a twin of it. And how many steps ran."""
        loop, forward = self.loop, list(self.parts.forward)
        rows = forward[loop.first_row :]
        new = [v for v in saved if v not in rows]
        body = Graph(loop.body.name, loop.body.params, [*forward, *new])
        twin = scan_node(
            body, loop.consts, loop.init, loop.xs, length=loop.length,
            reverse=(*loop.reverse, *(False for _ in new)), count=loop.count, until=loop.until,
        )  # fmt: skip
        session().twin(self.node, twin)
        out: dict[Value, Stacked] = {}
        for v in saved:
            if v in rows:
                j = rows.index(v)
                out[v] = (twin.values[loop.first_row + j], loop.y_reverse[j])
            else:
                out[v] = (twin.values[len(forward) + new.index(v)], False)
        return out, Loop(twin).steps if loop.until else loop.count

    def _first(self) -> list[Value]:
        """The gradients that arrive at the final carries."""
        at = {p: i for i, p in enumerate(self.loop.carry_params)}
        arrived = [(p, self.cts[at[p]]) for p in self.sources[0]]
        return [zeros(p.shape, p.dtype) if ct is None else ct for p, ct in arrived]

    def _last(self, count: Value | None) -> Value:
        """The number of the last step."""
        return steps_that_run(count, self.loop.length) - 1


def _there(v: Value | None) -> Value:
    assert v is not None
    return v
