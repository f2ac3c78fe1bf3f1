"""A `scan` node by the role of each value: the one view that ops, passes and backends use.

The node is known by the names of its op, operands and attributes; what they mean stands in
`ops/scan/op.py`, and what makes such nodes in `ops/scan/node.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.types import TensorType


@dataclass(frozen=True)
class Loop:
    """Operands, results and flags of a scan, and the body's parameters and outputs for each."""

    node: Node

    @classmethod
    def of(cls, node: Node, until: bool = False) -> Loop | None:
        """The loop that a node is; None for another op, and for a loop with `until` where none is asked for."""
        return cls(node) if node.op.name == "scan" and (until or not node.attrs["until"]) else None

    def _list(self, operand: str) -> tuple[Value, ...]:
        values = self.node.arg(operand)
        assert isinstance(values, tuple)
        return values

    @property
    def consts(self) -> tuple[Value, ...]:
        """Operands that every step reads unchanged."""
        return self._list("consts")

    @property
    def init(self) -> tuple[Value, ...]:
        """First carries."""
        return self._list("init")

    @property
    def xs(self) -> tuple[Value, ...]:
        """Scanned operands."""
        return self._list("xs")

    @property
    def count(self) -> Value | None:
        """Steps to run; None: all."""
        count = self.node.arg("count")
        assert not isinstance(count, tuple)
        return count

    @property
    def until(self) -> bool:
        """Whether a step says that the loop ends after it."""
        return bool(self.node.attrs["until"])

    @property
    def length(self) -> Dim:
        """Rows of scanned operands and of stacked results."""
        length: Dim = self.node.attrs["length"]
        return length

    @property
    def body(self) -> Graph:
        """One step."""
        body: Graph = self.node.attrs["body"]
        return body

    @property
    def step(self) -> Value:
        """The body's step number."""
        return self.body.params[0]

    @property
    def const_params(self) -> tuple[Value, ...]:
        """The body's parameters for `consts`."""
        return self.body.params[1 : 1 + len(self.consts)]

    @property
    def carry_params(self) -> tuple[Value, ...]:
        """The body's parameters for the carries."""
        start = 1 + len(self.consts)
        return self.body.params[start : start + len(self.init)]

    @property
    def x_params(self) -> tuple[Value, ...]:
        """The body's parameters for the scanned rows."""
        return self.body.params[1 + len(self.consts) + len(self.init) :]

    @property
    def varying(self) -> tuple[Value, ...]:
        """The body's parameters that differ between steps."""
        return (self.step, *self.carry_params, *self.x_params)

    def operands(self) -> Iterator[tuple[Value, Value]]:
        """(parameter of the body, operand) of all constants, carries and scanned operands."""
        return zip(self.body.params[1:], (*self.consts, *self.init, *self.xs), strict=True)

    @property
    def next(self) -> tuple[Value, ...]:
        """The body's new carries."""
        return self.body.outputs[: len(self.init)]

    @property
    def stop(self) -> tuple[Value, ...]:
        """The body's flag i1[], or flags i1[B], that end the loop; nothing without `until`."""
        return self.body.outputs[len(self.init) : self.first_row]

    @property
    def first_row(self) -> int:
        """The place of the first stacked result, among the body's outputs and the node's values."""
        return len(self.init) + self.until

    @property
    def rows(self) -> tuple[Value, ...]:
        """The body's stacked results: one row each."""
        return self.body.outputs[self.first_row :]

    @property
    def reverse(self) -> tuple[bool, ...]:
        """`x_reverse`, then `y_reverse`."""
        flags: tuple[bool, ...] = self.node.attrs["reverse"]
        return flags

    @property
    def x_reverse(self) -> tuple[bool, ...]:
        """One flag per scanned operand."""
        return self.reverse[: len(self.xs)]

    @property
    def y_reverse(self) -> tuple[bool, ...]:
        """One flag per stacked result."""
        return self.reverse[len(self.xs) :]

    @property
    def carry_types(self) -> tuple[TensorType, ...]:
        """Types of the carries."""
        return tuple(v.type for v in self.init)

    @property
    def x_types(self) -> tuple[TensorType, ...]:
        """Types of the scanned operands, with all rows."""
        return tuple(v.type for v in self.xs)

    @property
    def y_types(self) -> tuple[TensorType, ...]:
        """Types of the stacked results, with all rows."""
        return self.node.types[self.first_row :]

    @property
    def finals(self) -> tuple[Value, ...]:
        """The carries after the last step."""
        return self.node.values[: len(self.init)]

    @property
    def steps(self) -> Value | None:
        """How many steps ran, of a loop with `until`."""
        return self.node.values[len(self.init)] if self.until else None

    @property
    def ys(self) -> tuple[Value, ...]:
        """Stacked results."""
        return self.node.values[self.first_row :]
