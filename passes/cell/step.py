"""Single LSTM and GRU steps outside of loops, as the op with T = 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lstm_ir import ops
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value, substitute, topological
from lstm_ir.ir.literals import splat
from lstm_ir.ir.location import at
from lstm_ir.passes.base import Notes
from lstm_ir.passes.cell.build import CellParts, gru_plan, plain_plan
from lstm_ir.passes.cell.match import CellMatch, gru_cells, lstm_cells
from lstm_ir.passes.cell.op import recurrent
from lstm_ir.passes.cell.terms import Dot, NoCellError, Terms


class Steps:
    """All single steps of one graph."""

    T: Dim = 1

    def __init__(self, graph: Graph, name: str, notes: Notes) -> None:
        self.graph, self.name, self.notes = graph, name, notes
        self.terms = Terms(_vector, lambda v: True)
        self.taken: set[Node] = set()
        self.order = {n: i for i, n in enumerate(graph.nodes)}

    def fixed(self, v: Value) -> Value:
        """A weight: here as anywhere."""
        return v

    def rows(self, v: Value) -> Value:
        """[1,...]."""
        return ops.expand_dims(v, 0)

    def fused(self) -> Graph:
        """The graph with steps as ops."""
        new: dict[Value, Value] = {}
        for n in self.graph.nodes:
            near: list[NoCellError] = []
            for cell in self._candidates(n, near):
                try:
                    with at(n.loc.through(self.name)):
                        found = self._by_op(cell)
                except NoCellError as e:
                    near.insert(0, e)
                    continue
                self.notes.fire(f"step into {cell.op}", n.loc)
                new |= found
                near = []
                break
            if near:
                self.notes.miss(f"a step is not fused: {near[0].reason}", near[0].value)
        return substitute(self.graph, new)

    def _candidates(self, n: Node, near: list[NoCellError]) -> Iterator[CellMatch]:
        if n.op.name == "multiply":
            yield from lstm_cells(n.values[0], self.terms, near)
        elif n.op.name == "add":
            yield from gru_cells(n.values[0], self.terms)

    def _by_op(self, cell: CellMatch) -> dict[Value, Value]:
        plan, states = self._gru(cell) if cell.op == "gru" else self._lstm(cell)
        self._only_results_read(cell, plan)
        self._no_circle(cell, plan, states)
        node = recurrent(plan, self, states)
        self.taken |= plan.cell.terms.inner
        results: list[Any] = [node.result(k) for k in ("h_n", "c_n")]
        read = set(self.graph.outputs) | set(self.graph.users)
        pairs = zip(cell.new, results, strict=False)
        return {v: ops.reshape(r, v.shape) for v, r in pairs if v in read}

    def _gru(self, cell: CellMatch) -> tuple[CellParts, list[Value]]:
        old = cell.old[0]
        assert old is not None
        h = self.terms.fresh().peel(old)
        return gru_plan(cell, h), [h]

    def _lstm(self, cell: CellMatch) -> tuple[CellParts, list[Value]]:
        """The state is a row of H columns that every gate multiplies once; x may be one too."""
        sums = [cell.terms.of(v, 0, cell.width) for v in cell.gates]
        c = cell.old[1]
        assert c is not None
        rows = [[t.row for t in s if isinstance(t, Dot) and t.width == cell.width] for s in sums]
        common = [r for r in dict.fromkeys(rows[0]) if all(g.count(r) == 1 for g in rows)]
        if not common:
            raise NoCellError("no row of the hidden width goes into every gate", cell.new[0])
        h = common[-1]  # [x, h] is the usual order, and either serves
        return plain_plan(cell, h), [h, self.terms.fresh().peel(c)]

    def _only_results_read(self, cell: CellMatch, plan: CellParts) -> None:
        graph, inner = self.graph, plan.cell.terms.inner
        if inner & self.taken:
            raise NoCellError("a part of it belongs to another step", cell.new[0])
        results = {v.node for v in cell.new}
        for n in inner - results:
            for v in n.values:
                if v in graph.outputs or any(u not in inner for u in graph.users.get(v, ())):
                    raise NoCellError(f"its {n.op.name} is read by something else", v)

    def _no_circle(self, cell: CellMatch, plan: CellParts, states: list[Value]) -> None:
        leaves = list(states)
        for g in plan.gates:
            leaves += [*(d.row for d in g.inputs), *(d.matrix for d in (*g.state, *g.inputs))]
            leaves += [*(b.vector for b in g.biases), *(o.value for o in g.others)]
        first = min(self.order[v.node] for v in cell.new)
        later = [v.node for v in leaves if self.order[v.node] > first]  # others come before
        above = set(topological(later))
        if any(v.node in above for v in cell.new):
            raise NoCellError("a gate reads the new state", cell.new[0])


def _vector(v: Value) -> bool:
    """The same for all rows: a number, a vector, or one of them repeated."""
    if splat(v) is not None or v.rank <= 1:
        return True
    if v.op != "broadcast_in_dim":
        return False
    base, places = v.node.inputs[0], v.node.attrs["broadcast_dimensions"]
    if base.rank == 0:
        return True
    return base.rank == 1 and places == (v.rank - 1,)
