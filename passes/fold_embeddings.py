"""`fold-embeddings`: rows of a table times a matrix become rows of the table's product, which is made once, at load.

    E [V, K], ids, W [K, N]      ->      (E W) [V, N]
    y = E[ids] W                         y = (E W)[ids]

E and W are weights, or what weights alone decide. The table takes V N elements where W took K N, so V is at most
ROWS_BY_COLUMNS times K: characters, phonemes and classes, not words. A step that draws a token and reads its row then
reads N numbers in place of a matrix of K N.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import fixed
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.primitive.gather import take
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.tuned import ROWS_BY_COLUMNS


@register
@dataclass(frozen=True)
class FoldEmbeddings(Pass):
    """Embeddings that a product reads, as embeddings by the table's product."""

    name: ClassVar[str] = "fold-embeddings"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with such tables."""
        return self._folded(graph, fixed(graph), notes)

    def _folded(self, graph: Graph, known: Collection[Value], notes: Notes) -> Graph:
        def one(n: Node) -> tuple[Value, ...] | None:
            if n.op.name == "dot_general":
                table = _table(n, known, notes)
                if table is None:
                    return None
                with at(n.loc.through(self.name)):
                    notes.fire("the product of a table in place of that of its rows", n.loc)
                    return (take(table, n.inputs[0].node.inputs[1], 0),)
            loop = Loop.of(n, until=True)
            if loop is None:
                return None
            weights = [p for p, v in zip(loop.const_params, loop.consts, strict=True) if v in known]
            body = self._folded(loop.body, fixed(loop.body, weights), notes)
            if body is loop.body:
                return None
            return make(n.op, *n.args, loc=n.loc, **{**n.attrs, "body": body}).values

        return transform(graph, one)


def _table(n: Node, known: Collection[Value], notes: Notes) -> Value | None:
    """The product of the whole table, where this is one of its rows."""
    rows, matrix = n.inputs
    if rows.op != "gather" or rows.node.attrs["axis"] != 0:
        return None
    table, a = rows.node.inputs[0], n.attrs
    if table not in known or matrix not in known or table.rank != 2 or matrix.rank != 2:
        return None
    contracting = a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"]
    if a["lhs_batching_dimensions"] or contracting[0] != (rows.rank - 1,):
        return None
    count, columns = table.shape
    if not (isinstance(count, int) and isinstance(columns, int)):
        return None
    if count > ROWS_BY_COLUMNS * columns:
        notes.miss(f"a table of {count} rows of {columns}", n.values[0])
        return None
    with at(n.loc.through(FoldEmbeddings.name)):
        return dot_general(table, matrix, ((1,), contracting[1]))
