"""Walks a graph and writes each node by the rule of its op (`lower` registers them)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.builder import Builder
from lstm_ir.backends.emit.conversion import converted
from lstm_ir.backends.emit.decisions import Decisions
from lstm_ir.backends.emit.fused_reads import FusedReads, most_reads
from lstm_ir.backends.emit.options import PLAIN, Options
from lstm_ir.backends.emit.places import location
from lstm_ir.backends.emit.rounding import rounded
from lstm_ir.ir.errors import LoweringError, message
from lstm_ir.ir.graph import Arg, Graph, Node, Value, operand_types
from lstm_ir.ir.location import at
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType, TensorType

Operand: TypeAlias = "ir.Value | list[ir.Value] | None"
Rule: TypeAlias = "Callable[..., ir.Value | Sequence[ir.Value]]"
RULES: dict[str, Rule] = {}


def lower(*names: str) -> Callable[[Rule], Rule]:
    """Register the lowering of an op: `(e, node, *operands) -> value or values`."""

    def put(rule: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise LoweringError(f"{name} has two lowerings")
            RULES[name] = rule
        return rule

    return put


class Together(Protocol):
    """Nodes of a function that are made at once."""

    @property
    def last(self) -> Node:
        """The one that needs all others."""

    def values(self) -> Mapping[Value, ir.Value]:
        """What others read of them."""


class Emitter(Builder):
    """Writes one function's worth of nodes at the current insertion point."""

    def __init__(
        self, target: TargetInfo | None, static: bool, notes: list[str] | None = None,
        options: Options = PLAIN,
    ) -> None:  # fmt: skip
        super().__init__(target)
        self.static, self.options = static, options
        # How recurrences were lowered, for --explain.
        self.notes: list[str] = [] if notes is None else notes
        self.known: dict[Value, ir.Value] = {}
        self.within: Graph | None = None  # the graph that is being emitted
        self.leaf: Callable[[Node], ir.Value] | None = None  # how a weight is read
        self.depth = 0  # of loop bodies
        self.decided = Decisions()
        self.reads = FusedReads()
        self.rounds = False  # whether the products of this node round (`rounding.py`)
        self.turn: ir.Value | None = None  # the index of the innermost loop
        self.host_loops: set[Node] = set()  # scans that are no kernel, emitted so far
        self.outside: ir.Operation | None = None  # before it stands what weights alone decide
        self.preset: Mapping[Value, ir.Value] = {}  # values that need no computing
        self.together: Mapping[Node, Together] = {}
        self.before_loop: Mapping[Node, ir.Value] = {}  # of bodies: kernels of stencils, packed before the loop
        self.kernels: dict[str, Any] = {}  # `kernels.text.kernel.Kernel` by symbol
        self.workers: ir.Value | None = None  # an i32 that calls bring: the caller and its helpers

    @contextmanager
    def before_choice(self) -> Iterator[None]:
        """Ops made inside depend on weights alone, and are not made in a branch: once, at load."""
        if self.outside is None:
            yield
            return
        with ir.InsertionPoint(self.outside):
            yield

    @contextmanager
    def packed_before(self, made: Mapping[Node, ir.Value]) -> Iterator[None]:
        """The body of a loop is emitted inside, for which these were made."""
        outer, self.before_loop = self.before_loop, {**self.before_loop, **made}
        try:
            yield
        finally:
            self.before_loop = outer

    @property
    def asserts(self) -> bool:
        """Whether a value may be read and checked here: once per call, where that is cheap."""
        return self.target is not None and self.target.assertions_cheap and not self.in_loop

    @property
    def has_kernels(self) -> bool:
        """Whether loops may become kernels."""
        return self.target is not None and self.options.kernels

    @property
    def has_cpu_kernels(self) -> bool:
        """Whether loops and products may become a CPU's kernels."""
        return self.has_kernels and self.target is not None and self.target.kind == "cpu"

    @property
    def in_loop(self) -> bool:
        """Whether ops are made in the body of a loop."""
        return self.depth > 0

    @property
    def at_top(self) -> bool:
        """Whether ops are made at a function's top level: once per call, in no loop and no branch."""
        owner = ir.InsertionPoint.current.block.owner.operation
        return bool(owner.name == "func.func")

    @property
    def once(self) -> bool:
        """Whether a call runs what is made here at most once: at the top level, or in a branch of a choice there."""
        owner = ir.InsertionPoint.current.block.owner.operation
        return self.at_top or (self.outside is not None and owner == self.outside.operation)

    # -- ops

    def hlo(self, name: str, operands: Sequence[ir.Value], result: TensorType, **attrs: ir.Attribute) -> ir.Value:
        """stablehlo.`name` with one result, whose products round where a decision needs it."""
        out = super().hlo(name, operands, result, **attrs)
        return rounded(self, name, out, result) if self.rounds else out

    def convert(self, v: ir.Value, t: TensorType, dtype: DType) -> ir.Value:
        """The same values in another float or integer dtype, no saturation."""
        return converted(self, v, t, dtype)

    # -- graphs

    def graph(self, graph: Graph, args: Sequence[ir.Value]) -> list[ir.Value]:
        """Emit every node of `graph` here; gives its outputs."""
        outer = self.known, self.within
        self.known = dict(zip(graph.params, args, strict=True)) | dict(self.preset)
        self.within = graph
        try:
            for n in self._needed(graph):
                group = self.together.get(n)
                if n.values and all(v in self.known for v in n.values):
                    continue  # the rule of a node before it made them, too
                if group is None:
                    self.node(n)
                elif n is group.last:
                    with location(n), at(n.loc):
                        self.known.update(group.values())
            return [self.known[v] for v in graph.outputs]
        finally:
            self.known, self.within = outer

    def body(self, graph: Graph, args: Sequence[ir.Value]) -> list[ir.Value]:
        """The body of a loop."""
        self.depth += 1
        try:
            return self.graph(graph, args)
        finally:
            self.depth -= 1

    def _needed(self, graph: Graph) -> list[Node]:
        """Nodes to emit: those that an output reaches without passing a preset value."""
        wanted: set[Node] = set()
        stack = [v for v in graph.outputs if v not in self.known]
        while stack:
            n = stack.pop().node
            if n not in wanted:
                wanted.add(n)
                stack.extend(v for v in n.inputs if v not in self.known)
        return [n for n in graph.nodes if n in wanted]

    def node(self, n: Node) -> None:
        """Emit one node by its op's rule."""
        rule = RULES.get(n.op.name)
        if rule is None:
            raise self.refuse(n, "has no lowering to StableHLO")
        self._need_dtypes(n)
        if n.types and all(0 in t.shape for t in n.types):  # nothing to compute
            self.known.update((v, self.full(0, v.type)) for v in n.values)
            return
        with location(n), at(n.loc):  # nodes that a rule makes have this line too
            self._cut(n)
            self.rounds = self.target is not None and n in self.decided.products
            try:
                out = rule(self, n, *(self._operand(a) for a in n.args))
            except (ir.MLIRError, ValueError) as e:
                raise self.refuse(n, f"StableHLO refused it: {e}") from e
            finally:
                self.rounds = False
        results = [out] if isinstance(out, ir.Value) else list(out)
        if self.options.apart and self.target is not None and n.inputs:
            results = [
                v if t.rank == 0 or 0 in t.shape else self.barrier(v, t) for v, t in zip(results, n.types, strict=True)
            ]
        self.reads.put(n, [self.known[v] for v in n.inputs], results)
        self.known.update(zip(n.values, results, strict=True))

    def _cut(self, n: Node) -> None:
        """Operands stand in memory where the node would else be fused with more than a dispatch reads."""
        if self.target is None:
            return
        most = most_reads(self.target, self.options.dispatch, moving=self.in_loop or not self.static)
        for v in self.reads.too_many(n, [(v, self.known[v]) for v in n.inputs], most):
            self.known[v] = self.barrier(self.known[v], v.type)

    def _need_dtypes(self, n: Node) -> None:
        """Refuse element types that the target has no memory or arithmetic for."""
        if self.target is None:
            return
        kinds = {t.dtype for t in n.types} | {v.dtype for v in n.inputs}
        if DType.f64 in kinds and not self.target.has_f64:
            raise self.refuse(n, f"has f64 elements, which target {self.target.name} lacks; use f32")

    def _operand(self, a: Arg) -> Operand:
        if isinstance(a, tuple):
            return [self.known[v] for v in a]
        return None if a is None else self.known[a]

    def refuse(self, n: Node, why: str) -> LoweringError:
        """The error that names op, reason, operands, line and target."""
        word = "any target" if self.target is None else self.target.name
        return LoweringError(message(n.op.name, why, operand_types(n.op, n.args), n.loc, f"target {word}"))
