"""A loop with a matrix state as three: what its factors are made of, products of chunks, what its reads make.

early: decays, keys, values, queries of all steps, and carries that the state does not change
chunks: what the reads give (chunks.py), and what a delta rule writes (delta.py)
late: the rest of the body, over rows of what was read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lstm_ir.ir import dims
from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.reach import parameters_of
from lstm_ir.ir.types import Shape, TensorType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.shape import reshape, reverse, transpose
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.scan.chunks import DecayAlong, StateRows, chunk_of, chunked, longest_chunk
from lstm_ir.ops.scan.delta import DeltaRows, beside, delta_chunked, longest_delta
from lstm_ir.ops.scan.matrix_state import MatrixLoop
from lstm_ir.ops.scan.node import scan_node
from lstm_ir.ops.scan.partial import Outer, Partial, applied
from lstm_ir.ops.scan.parts import names_beside
from lstm_ir.ops.scan.writes import Affine, Read, over_keys


def decay_along(m: MatrixLoop) -> DecayAlong:
    """What the decay of a state differs along."""
    axes = () if m.after.decay is None else m.after.decay.axes
    return DecayAlong.keys if m.k in axes else DecayAlong.values if m.v in axes else DecayAlong.nothing


def longest_of(m: MatrixLoop) -> int:
    """Steps of a chunk, at most."""
    return longest_delta(len(m.writes), m.param.shape[m.k]) if m.is_delta else longest_chunk(decay_along(m))


class ThreeLoops:
    """The three loops of one."""

    def __init__(self, m: MatrixLoop, differentiated: bool) -> None:
        self.m, self.loop, self.differentiated = m, m.loop, differentiated
        self.back = any(m.loop.reverse)
        made = parameters_of(m.loop.body)
        self.early = [i for i, p in enumerate(self.loop.next) if i != m.carry and m.param not in self._closure(i, made)]
        self.late = [i for i in range(len(self.loop.init)) if i != m.carry and i not in self.early]
        self.carried = {self.loop.carry_params[i] for i in self.early}
        self.pending: list[Value] = []  # values of the body whose rows are asked for
        self.name = names_beside(self.loop.body.params)

    def _closure(self, i: int, dependencies: Mapping[Value, frozenset[Value]]) -> set[Value]:
        """Every carry that one is made of, sooner or later."""
        index = {p: k for k, p in enumerate(self.loop.carry_params)}
        closure, todo = set[Value](), [i]
        while todo:
            for p in dependencies[self.loop.next[todo.pop()]]:
                if p in index and p not in closure:
                    closure.add(p)
                    todo.append(index[p])
        return closure

    def results(self) -> list[Value]:
        """Final carries and stacked rows, as the loop gives them."""
        m, loop = self.m, self.loop
        late, outputs, between = self._late_body()
        lead = tuple(m.param.shape[a] for a in m.lead)
        wanted = self._factors()
        early_rows = [j for j in range(len(loop.rows)) if j not in late]
        stacked = self._stacked([*wanted, *between, *(loop.rows[j] for j in early_rows)])
        n, given = dims.product(lead), [self._in_order(x) for x in stacked[: len(wanted)]]
        flat = [reshape(x, (x.shape[0], n, *x.shape[1 + len(lead) :])) for x in given]
        first = reshape(transpose(loop.init[m.carry], (*m.lead, m.k, m.v)), (n, m.param.shape[m.k], m.param.shape[m.v]))
        last, found = self._by_chunks(flat, first)
        read = [self._in_order(reshape(y, (y.shape[0], *lead, y.shape[2]))) for y in found]
        finals = dict(zip(self.early, self.finals, strict=True))
        finals[m.carry] = self._turned_back(last, lead)
        rows = dict(zip(early_rows, stacked[len(wanted) + len(between) :], strict=True))
        if outputs:
            more = zip(between, stacked[len(wanted) : len(wanted) + len(between)], strict=True)
            done = self._late(outputs, dict(more), read)
            finals |= dict(zip(self.late, done, strict=False))
            rows |= dict(zip(late, done[len(self.late) :], strict=True))
        return [*(finals[i] for i in range(len(loop.init))), *(rows[j] for j in range(len(loop.rows)))]

    def _factors(self) -> list[Value]:
        """Of a step: the decay, keys, values, what a delta rule erases, and what is asked of the state."""
        m = self.m
        decay = m.after.decay if m.after.decay is not None else Partial.number(0, m.param.dtype)
        side = {DecayAlong.nothing: (), DecayAlong.keys: (m.k,), DecayAlong.values: (m.v,)}[decay_along(m)]
        zero = Partial.number(0, m.param.dtype)
        sides = [(w.outer.key, w.value or zero, w.erased or zero) for w in m.writes]
        return [
            self._wide(decay, (*m.lead, *side)),
            *(self._wide(key, (*m.lead, m.k)) for key, _, _ in sides),
            *(self._wide(value, (*m.lead, m.v)) for _, value, _ in sides),
            *(self._wide(erased, (*m.lead, m.k)) for _, _, erased in sides if m.is_delta),
            *(self._wide(self._asked(r), (*m.lead, m.k)) for r in self.reads),
        ]

    def _by_chunks(self, factors: Sequence[Value], first: Value) -> tuple[Value, list[Value]]:
        """The last state, and all rows of what is read and written that the late loop asks for."""
        m, (decay, *rest) = self.m, factors
        chunk = chunk_of(self.loop.length, longest_of(m))
        if not m.is_delta:
            return chunked(StateRows(decay, rest[0], rest[1], rest[2:], first, decay_along(m)), chunk)
        j = len(m.writes)
        sides = [beside(rest[i : i + j]) for i in (0, j, 2 * j)]
        delta = DeltaRows(decay, sides[0], sides[1], sides[2], rest[3 * j :], first)
        last, written, reads = delta_chunked(delta, chunk, self.differentiated)
        T, n, _, v = written.shape
        return last, [*reads, *(reshape(slice_axis(written, 2, i, i + 1), (T, n, v)) for i in self.written)]

    def _asked(self, r: Read) -> Partial:
        """What a read asks of the state before the step: a decay along k goes into the sum."""
        by = r.of.decay
        return r.query if by is None or self.m.k not in by.axes else applied(e.multiply, r.query, by)

    def _wide(self, p: Partial, axes: Sequence[int]) -> Value:
        shape = self.m.param.shape
        wide = tuple(shape[a] for a in axes)
        if p.value.shape == wide and p.axes == tuple(axes):
            return p.value
        order = sorted(axes)  # of the state, as those of a Partial are
        made = broadcast_in_dim(p.value, tuple(shape[a] for a in order), tuple(order.index(a) for a in p.axes))
        return transpose(made, tuple(order.index(a) for a in axes))

    def _in_order(self, rows: Value) -> Value:
        """Rows in the order of the steps, or from that order back."""
        return reverse(rows, 0) if self.back else rows

    def _turned_back(self, last: Value, lead: Shape) -> Value:
        m = self.m
        wide = reshape(last, (*lead, m.param.shape[m.k], m.param.shape[m.v]))
        order = (*m.lead, m.k, m.v)
        return transpose(wide, tuple(order.index(a) for a in range(m.param.rank)))

    # -- before

    def _stacked(self, values: Sequence[Value]) -> list[Value]:
        """Rows of values that the state does not change: those of early carries by one loop, the others by one without
        carries, which later passes do away with."""
        loop = self.loop
        made = parameters_of(Graph("made", loop.body.params, list(values)))
        own = [v for v in dict.fromkeys(values) if made[v] & self.carried]
        free = [v for v in dict.fromkeys(values) if not made[v] & self.carried]
        found: dict[Value, Value] = {}
        k = len(self.early)
        if k:
            node = self._loop("early", self.early, [*(loop.next[i] for i in self.early), *own])
            self.finals = list(node.values[:k])
            found |= zip(own, node.values[k:], strict=True)
        else:
            self.finals = []
        if free:
            found |= zip(free, self._loop("factors", [], free).values, strict=True)
        return [found[v] for v in values]

    def _loop(self, word: str, carries: Sequence[int], outputs: Sequence[Value]) -> Node:
        loop = self.loop
        params = [loop.step, *loop.const_params, *(loop.carry_params[i] for i in carries), *loop.x_params]
        body = Graph(f"{loop.body.name}_{word}", params, list(outputs))
        flags = (self.back,) * (len(loop.xs) + len(outputs) - len(carries))
        init = tuple(loop.init[i] for i in carries)
        return scan_node(body, loop.consts, init, loop.xs, length=loop.length, reverse=flags)

    # -- after

    def _late_body(self) -> tuple[list[int], list[Value], list[Value]]:
        """The stacked rows that reads are part of, what the loop after them gives, and early values that it reads."""
        m, loop = self.m, self.loop
        reads = [parameter(self.name(f"read{i}"), self._read_type()) for i in range(len(m.reads))]
        writes = [parameter(self.name(f"written{i}"), self._read_type()) for i in range(len(m.writes))]
        self.known = [(w.outer, p) for w, p in zip(m.writes, writes, strict=True)]
        env: dict[Value, Value] = {}
        for r, p in zip(m.reads, reads, strict=True):  # one may be made of those before it
            (env[r.value],) = clone([self._given(r, p)], env)
        made = parameters_of(loop.body)
        changed = {m.param, *(loop.carry_params[i] for i in self.late)}
        late = [j for j, v in enumerate(loop.rows) if made[v] & changed]
        outputs = clone([*(loop.next[i] for i in self.late), *(loop.rows[j] for j in late)], env)
        whole = Graph("late", [*loop.body.params, *reads, *writes], outputs)
        depends = parameters_of(whole)
        used = frozenset[Value]().union(*(depends[v] for v in outputs))
        self.reads = [r for r, p in zip(m.reads, reads, strict=True) if p in used]
        self.written = [i for i, p in enumerate(writes) if p in used]
        self.given = [p for p in (*reads, *writes) if p in used]
        if not outputs:
            return late, [], []
        after = {*self.given, *(loop.carry_params[i] for i in self.late)}

        def early(v: Value) -> bool:
            return bool(depends[v] & self.carried) and not depends[v] & after

        between = dict.fromkeys(v for n in whole.nodes if not all(map(early, n.values)) for v in n.inputs if early(v))
        between |= dict.fromkeys(v for v in outputs if early(v))
        return late, outputs, list(between)

    def _read_type(self) -> TensorType:
        m = self.m
        return m.param.type.with_shape((*(m.param.shape[a] for a in m.lead), m.param.shape[m.v]))

    def _given(self, r: Read, before: Value) -> Value:
        """What a read gives: of the state before the step, decayed, and of what the step added."""
        m = self.m
        axes = tuple(sorted((*m.lead, m.v)))
        order = (*m.lead, m.v)
        turned = transpose(before, tuple(order.index(a) for a in axes))
        out = self._of_affine(r.of, r.query, Partial(turned, axes))
        sizes = dict(enumerate(m.param.shape))
        wide = broadcast_in_dim(out.value, tuple(sizes[a] for a in axes), tuple(axes.index(a) for a in out.axes))
        kept = [a for a in r.axes if a >= 0]
        wide = transpose(wide, tuple(axes.index(a) for a in kept))
        return reshape(wide, r.value.shape)

    def _of_affine(self, of: Affine, query: Partial, before: Partial) -> Partial:
        total = None
        if of.decay is not None:
            total = before if self.m.k in of.decay.axes else applied(e.multiply, before, of.decay)
        for o in of.added:
            pair = over_keys(query, o.key, self.m.k, self.m.param)
            more = applied(e.multiply, pair, self._value(o))
            total = more if total is None else applied(e.add, total, more)
        return Partial.number(0, self.m.param.dtype) if total is None else total

    def _value(self, o: Outer) -> Partial:
        """What an outer product of the body has beside its key: chunks give what a delta rule writes at last."""
        m = self.m
        for outer, p in self.known if m.is_delta else ():
            if outer is o:
                axes = tuple(sorted((*m.lead, m.v)))
                return Partial(transpose(p, tuple((*m.lead, m.v).index(a) for a in axes)), axes)
        return o.value

    def _late(self, outputs: Sequence[Value], between: Mapping[Value, Value], read: Sequence[Value]) -> list[Value]:
        loop = self.loop
        stand = {v: parameter(self.name("between"), v.type) for v in between}
        results = clone(outputs, dict(stand))
        carries = [loop.carry_params[i] for i in self.late]
        params = [loop.step, *loop.const_params, *carries, *loop.x_params, *stand.values(), *self.given]
        xs = (*loop.xs, *between.values(), *read)
        flags = (self.back,) * (len(xs) + len(results) - len(carries))
        node = scan_node(
            Graph(f"{loop.body.name}_late", params, results), loop.consts, tuple(loop.init[i] for i in self.late), xs,
            length=loop.length, reverse=flags,
        )  # fmt: skip
        return list(node.values)
