"""One walk through a body: what its nodes gave, around it the walk that it is part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.bodies import Body, FunctionNode, Ref
from lstm_ir.importers.tensorflow.table import TABLE, place

if TYPE_CHECKING:
    from lstm_ir.importers.known import Knowledge
    from lstm_ir.importers.tensorflow.reading import Source
    from lstm_ir.importers.tensorflow.variable import Variable
    from lstm_ir.importers.tensorflow.variables import Variables
    from lstm_ir.ir.data import Data
    from lstm_ir.ir.graph import Value


class Undefined:
    """What a node gives that was refused: nodes that read it are passed over."""


UNDEFINED = Undefined()


class PassedError(Exception):
    """A node whose function has refusals: these say why."""


@dataclass(eq=False)
class Scope:
    """`preset` are results that are set from outside; `parent` is around the loop whose frame this is."""

    body: Body
    preset: Mapping[tuple[str, int], Any] = field(default_factory=dict)
    parent: Scope | None = None
    frame: str | None = None
    results: dict[str, Any] = field(default_factory=dict)
    ordered: bool = False

    def has(self, ref: Ref) -> bool:
        """Whether this result is known."""
        return (ref.node, ref.index) in self.preset or ref.node in self.results

    def of_frame(self, frame: str | None) -> Scope:
        """This scope, or one around it: that of a loop, None for what stands in none."""
        found: Scope | None = self
        while found is not None and found.frame != frame:
            found = found.parent
        if found is None:
            raise NodeRefusedError("its condition stands in a loop that is not around it")
        return found

    def result(self, ref: Ref, walk: Walker) -> Any:
        """A result, whose node was run."""
        if (ref.node, ref.index) in self.preset:
            return self.preset[ref.node, ref.index]
        found = self.results[ref.node]
        if isinstance(found, Undefined):
            return found
        node = self.body.nodes.get(ref.node)
        at = ref.index
        if ref.output and node is not None:
            called = walk.source.function(node.op) if node.op not in TABLE else None
            if called is not None:
                at += called.result_names.index(ref.output) if ref.output in called.result_names else 0
            else:
                at = place(TABLE.get(node.op), ref.output, ref.index)
        if at >= len(found):
            raise NodeRefusedError(f"it reads result {at} of {ref.node}, which has {len(found)}")
        return found[at]


class Walker(Protocol):
    """What ops that run other nodes need of the walk."""

    source: Source
    knowledge: Knowledge
    variables: Variables

    def results_of(self, refs: Sequence[Ref], scope: Scope) -> list[Any]:
        """The results, whose nodes are run where they were not; PassedError where one is refused."""
        ...

    def call(self, function: str, arguments: Sequence[Any]) -> list[Any]:
        """The results of a function of the model; PassedError where one is refused."""
        ...

    def read(self, variable: Variable) -> Value:
        """What a variable holds at this point."""
        ...

    def read_at(self, variable: Variable, node: FunctionNode, scope: Scope) -> Value:
        """The same as a node reads it that conditions of TensorFlow 1 let run."""
        ...

    def assign(self, variable: Variable, value: Value) -> None:
        """From here on the variable holds this."""
        ...

    def literal(self, node: FunctionNode, data: Data, scope: Scope) -> Value:
        """A literal of the file: a constant, or a weight of a model that was frozen."""
        ...


@dataclass(frozen=True)
class Site:
    """A node that runs other nodes: where it stands, and its operands."""

    walk: Walker
    node: FunctionNode
    scope: Scope
    inputs: Sequence[Any]
