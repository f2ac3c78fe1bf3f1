"""Which parts of a model write variables: there the order of nodes matters, and control edges count."""

from __future__ import annotations

from collections.abc import Iterable

from lstm_ir.importers.tensorflow.bodies import NEXT, Body, function_attr
from lstm_ir.importers.tensorflow.reading import Source

WRITES = ("AssignVariableOp", "Assign", "AssignAddVariableOp", "AssignAdd", "AssignSubVariableOp", "AssignSub")
READS = ("ReadVariableOp",)
SILENT = ("NoOp", "Assert", "PrintV2")  # they give nothing; what they check and print is passed over
_FUNCTIONS = ("f", "then_branch", "else_branch", "body", "cond")


class Order:
    """What is asked of a model's functions, each found out once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._assigns: dict[str, bool] = {}
        self._acting: dict[Body, list[str]] = {}
        self._reach: dict[Body, frozenset[str]] = {}

    def assigns(self, body: Body) -> bool:
        """Whether a function writes a variable, itself or by what it calls."""
        if body.name not in self._assigns:
            self._assigns[body.name] = False  # of one that calls itself
            self._assigns[body.name] = any(n.op in WRITES for n in body.nodes.values()) or any(
                self.assigns(b) for b in self._called(body)
            )
        return self._assigns[body.name]

    def writes(self, body: Body, name: str) -> bool:
        """Whether a node writes a variable, itself or by what it calls."""
        return body.nodes[name].op in WRITES or any(self.assigns(b) for b in self._functions(body, name))

    def acting(self, body: Body) -> list[str]:
        """Nodes that read or write variables, or call functions, in the order of the file."""
        if body not in self._acting:
            self._acting[body] = [
                n.name for n in body.nodes.values() if n.op in (*WRITES, *READS) or self._functions(body, n.name)
            ]
        return self._acting[body]

    def in_order(self, body: Body, outputs: Iterable[str]) -> bool:
        """Whether a node that writes has to run before these."""
        writing = self._writing(body)
        return any(name in writing for name in outputs)

    def acts(self, body: Body, name: str) -> bool:
        """Whether a node has to run because it, or one before it, reads or writes a variable."""
        if body.arguments or body is not self._source.graph:
            return name in set(self.acting(body)) or name in self._writing(body)
        return name in self._writing(body)

    def _writing(self, body: Body) -> frozenset[str]:
        """Nodes that write, and those behind them."""
        if body not in self._reach:
            readers: dict[str, list[str]] = {}
            for n in body.nodes.values():
                if n.op not in NEXT:
                    for before in (*(r.node for r in n.inputs), *n.controls):
                        readers.setdefault(before, []).append(n.name)
            todo = [n.name for n in body.nodes.values() if self.writes(body, n.name)]
            found = set(todo)
            while todo:
                for name in readers.get(todo.pop(), ()):
                    if name not in found:
                        found.add(name)
                        todo.append(name)
            self._reach[body] = frozenset(found)
        return self._reach[body]

    def _functions(self, body: Body, name: str) -> list[Body]:
        node = body.nodes[name]
        names = [function_attr(node, a) for a in _FUNCTIONS] + [node.op]
        return [b for n in names if n and (b := self._source.function(n)) is not None]

    def _called(self, body: Body) -> list[Body]:
        return [b for name in body.nodes for b in self._functions(body, name)]
