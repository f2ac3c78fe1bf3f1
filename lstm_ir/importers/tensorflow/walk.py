"""The walk from the outputs of a model to its inputs, which gives every node on the way to its handler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.choices import entering
from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.naming import tensor
from lstm_ir.importers.on_sizes import on_sizes
from lstm_ir.importers.refusals import WRONG, NodeRefusedError, Refusals
from lstm_ir.importers.report import Outcome
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.importers.tensorflow import handlers
from lstm_ir.importers.tensorflow.bodies import MERGE, Body, FunctionNode, Ref
from lstm_ir.importers.tensorflow.branches import known_at_import, sides, ways
from lstm_ir.importers.tensorflow.call import Call, Inputs
from lstm_ir.importers.tensorflow.complexes import on_complex
from lstm_ir.importers.tensorflow.interface import Bindings, Input
from lstm_ir.importers.tensorflow.order import SILENT, Order
from lstm_ir.importers.tensorflow.own_gradients import marked
from lstm_ir.importers.tensorflow.reading import Source
from lstm_ir.importers.tensorflow.scope import UNDEFINED, PassedError, Scope, Site, Undefined
from lstm_ir.importers.tensorflow.table import TABLE, OpRule
from lstm_ir.importers.tensorflow.variable import VARIABLES, Variable
from lstm_ir.importers.tensorflow.variables import Variables
from lstm_ir.importers.truths import truth_of
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.location import Loc, at

DEPTH = 32  # functions and loops nested deeper are refused
MAX_RUNS = 2_000_000  # of nodes, those of functions counted at each call
assert handlers.__doc__  # importing them registers every op


class Walk:
    """One walk over one signature. `outcomes` says of each node that was looked at what became of it."""

    def __init__(
        self, source: Source, bindings: Bindings, inputs: Mapping[Ref, Input], outputs: Mapping[str, Ref],
        state: frozenset[str],
    ) -> None:  # fmt: skip
        self.source, self.bindings, self.state = source, bindings, state
        self.knowledge = Knowledge()
        self.refusals = Refusals(source.file)
        self.outcomes: dict[FunctionNode, Outcome] = {}
        self.bodies: dict[Body, None] = {source.graph: None}
        self.variables = Variables(source, state)
        self.inputs: list[Value] = []
        self.results: dict[str, Any] = {}
        self._given, self._outputs = inputs, outputs
        self._order = Order(source)
        nodes = source.graph.nodes.values()
        self._frozen = not any(n.op in VARIABLES for n in nodes)
        # Freezing leaves the read of a variable in its place, under the variable's name.
        reads = (n.inputs[0].node for n in nodes if n.op == "Identity" and n.inputs and n.name.endswith("/read"))
        self._read_as_variables = frozenset(reads)
        self._depth = self._runs = self._loops = 0

    def run(self) -> None:
        """Walk; UnifiedError where two names are one size, and the walk starts again."""
        values: dict[tuple[str, int], Any] = {}
        for place, given in self._given.items():
            with at(self._loc(given.name)):
                try:
                    v = self.bindings.constant(given)
                    if v is None:
                        v = parameter(given.name, self.bindings.type(given))
                        self.inputs.append(v)
                    values[place.node, place.index] = v
                except (NodeRefusedError, LstmIrError) as e:
                    self.refusals.add(given.name, "input", e)
                    values[place.node, place.index] = UNDEFINED
        graph = self.source.graph
        scope = Scope(graph, values, ordered=self._order.in_order(graph, [r.node for r in self._outputs.values()]))
        for name, ref in self._outputs.items():
            found = self._found([ref], scope)[0]
            if not isinstance(found, Value | SizeArray | Undefined):
                self.refusals.add(name, "output", NodeRefusedError("it is no tensor"))
            self.results[name] = found
        self.variables.check_written(self.bindings)

    def output(self, name: str) -> Value:
        """An output as a tensor; the walk has no refusals."""
        return tensor(self.results[name])

    # -- what ops that run other nodes need (scope.Walker)

    def results_of(self, refs: Sequence[Ref], scope: Scope) -> list[Any]:
        """The results, whose nodes are run where they were not; PassedError where one is refused."""
        self._enter()
        try:
            before = len(self.refusals)
            found = self._found(refs, scope)
        finally:
            self._depth -= 1
        if len(self.refusals) > before or any(isinstance(v, Undefined) for v in found):
            raise PassedError
        return found

    def call(self, function: str, arguments: Sequence[Any]) -> list[Any]:
        """The results of a function of the model; PassedError where one is refused."""
        body = self.source.function(function)
        if body is None:
            raise NodeRefusedError(f"the function {function!r:.80} is not in the file")
        if len(arguments) != len(body.arguments):
            raise NodeRefusedError(f"the function has {len(body.arguments)} arguments, not {len(arguments)}")
        self.bodies[body] = None
        ordered = self._order.assigns(body)
        scope = Scope(body, {(n, 0): v for n, v in zip(body.arguments, arguments, strict=True)}, ordered=ordered)
        if ordered:
            self.results_of([Ref(n) for n in self._order.acting(body)], scope)
        return self.results_of(body.results, scope)

    def read(self, variable: Variable) -> Value:
        """What a variable holds at this point."""
        return self.variables.read(variable)

    def read_at(self, variable: Variable, node: FunctionNode, scope: Scope) -> Value:
        """The same as a node reads it that conditions of TensorFlow 1 let run, each in the loop where it stands."""
        value = self.read(variable)
        for ref, runs in ways(scope.body, node.name):
            (pred,) = self.results_of([ref], scope.of_frame(scope.body.frame_of(ref.node)))
            if known_at_import(self.knowledge, pred) is None:
                holds = truth_of(tensor(pred))
                value = entering(value, holds if runs else li.logical_not(holds))
        return value

    def assign(self, variable: Variable, value: Value) -> None:
        """From here on the variable holds this."""
        if self._loops:
            raise NodeRefusedError("a loop writes the variable")
        self.variables.assign(variable, value)

    def literal(self, node: FunctionNode, data: Data, scope: Scope) -> Value:
        """A literal of the file: a constant, or a weight of a model that was frozen."""
        frozen = scope.body is self.source.graph and self._frozen and data.type.dtype.is_float and data.type.rank
        if not frozen or (data.splat is not None and node.name not in self._read_as_variables):
            return constant(data)
        return self.variables.frozen(node.name, data)

    def _enter(self) -> None:
        if self._depth >= DEPTH:
            raise NodeRefusedError(f"functions and loops are nested deeper than {DEPTH}")
        self._depth += 1

    # -- the walk

    def _found(self, refs: Sequence[Ref], scope: Scope) -> list[Any]:
        self._evaluate([r for r in refs if not scope.has(r)], scope)
        out = []
        for r in refs:
            try:
                out.append(scope.result(r, self))
            except NodeRefusedError as e:
                self.refusals.add(str(r), "output", e)
                out.append(UNDEFINED)
        return out

    def _evaluate(self, refs: Sequence[Ref], scope: Scope) -> None:
        """Run nodes, each after what it reads, without recursion over a graph's length."""
        stack = list(refs)[::-1]
        waiting: set[str] = set()
        while stack:
            ref = stack[-1]
            name = ref.node
            if scope.has(ref):
                waiting.discard(name)
                stack.pop()
                continue
            node = scope.body.nodes.get(name)
            if node is None:
                self.refusals.add(name, "operand", NodeRefusedError("no node makes it"))
                scope.results[name] = UNDEFINED
                continue
            below = [r for r in self._below(node, scope) if not scope.has(r)]
            if any(r.node in waiting or r.node == name for r in below):
                self.outcomes[node] = Outcome.refused
                self.refusals.add(name, node.op, NodeRefusedError("it depends on itself"))
                scope.results[name] = UNDEFINED
                continue
            if below:
                waiting.add(name)
                stack += below[::-1]
                continue
            scope.results[name] = self._node(node, scope)

    def _below(self, node: FunctionNode, scope: Scope) -> Iterable[Ref]:
        """What has to be run before a node."""
        frame = scope.body.frames.get(node.name) if node.op.endswith("Exit") else None
        if frame is not None:
            # Not all that enter: gradients, which a file may hold too, add what only they read.
            return [e.inputs[0] for e in frame.starts]
        if node.op.endswith("Enter"):
            return []
        if node.op in MERGE:
            return self._before_merge(node, scope)
        more = [Ref(c) for c in node.controls if self._order.acts(scope.body, c)] if scope.ordered else []
        return more if node.op in SILENT else [*more, *node.inputs]

    def _before_merge(self, node: FunctionNode, scope: Scope) -> Sequence[Ref]:
        try:
            found = sides(scope.body, node)
        except NodeRefusedError:
            return []  # its handler says why
        if not scope.has(found.pred):
            return [found.pred]
        pred = scope.result(found.pred, self)
        array = self.knowledge.array(pred) if isinstance(pred, Value) else None
        return [found.false, found.true] if array is None else [found.when(bool(array.reshape(-1)[:1].any()))]

    def _node(self, node: FunctionNode, scope: Scope) -> Any:
        """The results of a node; what cannot be had is noted as a refusal."""
        self._runs += 1
        self.outcomes[node] = Outcome.passed
        with at(self._loc(node.name)):
            try:
                if self._runs > MAX_RUNS:
                    raise NodeRefusedError(f"more than {MAX_RUNS} nodes would have to be looked at")
                results = self._on_its_ways(node, scope)
                self.outcomes[node] = Outcome.taken
                return results
            except PassedError:
                return UNDEFINED
            except (NodeRefusedError, LstmIrError) as e:
                self.outcomes[node] = Outcome.refused
                self.refusals.add(node.name, node.op, e)
                return UNDEFINED
            except WRONG as e:
                self.outcomes[node] = Outcome.refused
                self.refusals.add_wrong(node.name, node.op, e)
                return UNDEFINED

    def _on_its_ways(self, node: FunctionNode, scope: Scope) -> list[Any]:
        """The results of a node. What it writes counts where the conditions of TensorFlow 1 around it let it run."""
        found = [] if self._loops else ways(scope.body, node.name)
        if not found or not self._order.writes(scope.body, node.name):
            return self._results(node, scope)
        preds = self.results_of([r for r, _ in found], scope)
        before = self.variables.held()
        results = self._results(node, scope)
        for pred, (_, runs) in zip(preds, found, strict=True):
            after = self.variables.held()
            known = known_at_import(self.knowledge, pred)
            if known is None:
                self.variables.choose(truth_of(tensor(pred)), *((after, before) if runs else (before, after)))
            elif known is not runs:
                self.variables.hold(before)
        return results

    def _results(self, node: FunctionNode, scope: Scope) -> list[Any]:
        if node.op not in TABLE and self.source.function(node.op) is not None:
            return self.call(node.op, self._inputs(node, scope))
        entry = TABLE.entry(node.op)
        if entry.runs:
            waits = node.op.endswith(("Exit", "Enter")) or node.op in (*MERGE, *SILENT)
            site = Site(self, node, scope, Inputs() if waits else self._inputs(node, scope))
            loop = node.op in ("While", "StatelessWhile") or node.op.endswith("Exit")
            self._loops += loop
            try:
                found: Any = entry.build(site)  # type: ignore[arg-type]  # entries that run nodes take a site
            finally:
                self._loops -= loop
            return [self.knowledge.folded(v) if isinstance(v, Value) else v for v in found]
        return self._built(entry, node, scope)

    def _inputs(self, node: FunctionNode, scope: Scope) -> Inputs:
        found = Inputs(scope.result(r, self) for r in node.inputs)
        if any(isinstance(v, Undefined) for v in found):
            raise PassedError
        return found

    def _built(self, entry: OpRule, node: FunctionNode, scope: Scope) -> list[Any]:
        def read_(v: Any) -> Any:
            reads = isinstance(v, Variable) and (v.reference or node.op != "Identity")
            return self.read_at(v, node, scope) if reads else v

        read = Inputs(map(read_, self._inputs(node, scope)))
        call = Call(node.op, node.name, read, node.attrs, self.knowledge, self.call)
        results: Any = on_complex(entry, call, read)
        if results is None:
            results = on_sizes(entry, call)
        if results is None:
            built = entry.build(call)
            results = list(built) if isinstance(built, (list, tuple)) else [built]
            call.check_all_read()
        results = marked(node, results, scope.body, self.source)
        return [self.knowledge.folded(r) if isinstance(r, Value) else r for r in results]

    def _loc(self, name: str) -> Loc:
        return Loc(self.source.file, 0, node=name)
