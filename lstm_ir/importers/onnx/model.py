"""`li.from_onnx`: the walk over a model, which gives every node to its handler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from lstm_ir import ops as li
from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.lists import TensorList
from lstm_ir.importers.named_sizes import need_mappings
from lstm_ir.importers.naming import graph_name, tensor
from lstm_ir.importers.on_sizes import on_sizes
from lstm_ir.importers.onnx import handlers
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.interface import Bindings
from lstm_ir.importers.onnx.narrow import LIMITS, Narrow, name_of, refuse_outside
from lstm_ir.importers.onnx.reading import Source, read
from lstm_ir.importers.onnx.table import TABLE, OpRule
from lstm_ir.importers.onnx.tensors import Tensors
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import WRONG, NodeRefusedError, Refusals, UnifiedError
from lstm_ir.importers.report import Outcome
from lstm_ir.importers.streams import streamed
from lstm_ir.importers.table import ALL
from lstm_ir.ir.errors import IRError, LstmIrError, ModelError
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.location import Loc, at
from lstm_ir.ir.program import Program
from lstm_ir.ir.types import DimLike, DType, TensorType

if TYPE_CHECKING:
    from lstm_ir.importers.onnx.reading import Model

DEPTH = 32  # subgraphs nested deeper are refused
assert handlers.__doc__  # importing them registers every op


@overload
def from_onnx(
    model: Model,
    *,
    constants: Mapping[str, Any] | None = ...,
    sizes: Mapping[str, DimLike] | None = ...,
    stateful: Literal[False] = ...,
) -> Graph: ...


@overload
def from_onnx(
    model: Model,
    *,
    constants: Mapping[str, Any] | None = ...,
    sizes: Mapping[str, DimLike] | None = ...,
    stateful: Literal[True] | Mapping[str, str],
) -> Program: ...


def from_onnx(
    model: Model,
    *,
    constants: Mapping[str, Any] | None = None,
    sizes: Mapping[str, DimLike] | None = None,
    stateful: bool | Mapping[str, str] = False,
) -> Graph | Program:
    """The graph of an ONNX model, with the names of its inputs, outputs and initializers.

    model: a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`. constants: arrays for inputs
    that are to be fixed. sizes: numbers, or other names, for named sizes; an axis without a name is
    called after its input, `x_0`. Initializers with float elements are weights. stateful: True makes
    a program with the entries of `li.stateful`, whose state is found: the states of recurrent layers
    that start at zero, and the last rows that causal windows saw; `{"state": "stateN"}` names the
    inputs that are state and the outputs that they become. Raises ModelError, which lists every node
    that is not taken, or that would have to know later steps.
    """
    if not isinstance(stateful, (bool, Mapping)):
        raise ModelError(f"from_onnx: stateful is {stateful!r}, not a bool and not names of inputs and outputs")
    need_mappings("from_onnx", constants=constants, sizes=sizes)
    source = read(model)
    bindings = Bindings(source, constants or {}, sizes or {})
    while True:  # as often as a size of the stream turns out to be another one
        graph = walked(source, bindings).graph()
        if stateful is False:
            return graph
        try:
            return streamed(source.file, graph, stateful, _ops(source))
        except UnifiedError as e:
            bindings.unify_all(e)


def _ops(source: Source) -> dict[str, str]:
    """The op of every node by its name, or by that of its first output."""
    nodes = source.model.graph.all_nodes()
    return {n.name or next((o.name for o in n.outputs if o.name), ""): n.op_type for n in nodes}


def walked(source: Source, bindings: Bindings) -> Walk:
    """The walk over the whole model, with what it made and what it refused."""
    tensors = Tensors(source.file)
    while True:  # as often as two names turn out to be one size
        walk = Walk(source, tensors, bindings)
        try:
            walk.run()
            return walk
        except UnifiedError as e:
            bindings.unify_all(e)


class _Undefined:
    """What a node gives that was refused: nodes that read it are passed over."""


_UNDEFINED = _Undefined()


class _PassedError(Exception):
    """A node whose subgraph has refusals: these say why."""


class Walk:
    """One walk over a model. `outcomes` says of each node that was looked at what became of it."""

    def __init__(self, source: Source, tensors: Tensors, bindings: Bindings) -> None:
        self.source, self.tensors, self.bindings = source, tensors, bindings
        self.knowledge = Knowledge()
        self.refusals = Refusals(source.file)
        self.outcomes: dict[Any, Outcome] = {}
        self.weights: dict[str, Value] = {}
        self.inputs: list[Value] = []
        self.results: list[Any] = []
        self.depth = self._keys = 0
        self._step: Value | None = None

    def run(self) -> None:
        """Walk over all nodes; UnifiedError where two names are one size, and the walk starts again."""
        model = self.source.model.graph
        known: dict[Any, Any] = {}
        for v in model.inputs:
            if v.name in model.initializers:
                continue
            with at(self._loc(v.name)):
                try:
                    known[v] = self.bindings.constant(v)
                    if known[v] is None:
                        known[v] = parameter(v.name, self.bindings.type(v))
                        self.inputs.append(known[v])
                except (NodeRefusedError, LstmIrError) as e:
                    self.refusals.add(v.name, "input", e)
                    known[v] = _UNDEFINED
        self.results = self._run(model, known)
        for v, r in zip(model.outputs, self.results, strict=True):
            try:
                if isinstance(r, TensorList):
                    raise NodeRefusedError("it is a sequence")
                if isinstance(r, Narrow):
                    refuse_outside(r.kind, "output")
            except NodeRefusedError as e:
                self.refusals.add(v.name, "output", e)

    def key(self, seed: int | None) -> Value:
        """A key u32[2] for one use, by its seed and number, and by the input `step`."""
        if self._step is None:
            if any(v.name == "step" for v in self.source.model.graph.inputs):
                raise NodeRefusedError("training mode draws by an input `step`, and the model has one of that name")
            self._step = parameter("step", TensorType((), DType.i64))
            self.inputs.append(self._step)
        self._keys += 1
        return li.random_key(abs(seed or 0), self._step, stream=self._keys)

    def graph(self) -> Graph:
        """The graph of the whole model; ModelError with all refusals where there is one."""
        self.refusals.raise_any()
        model = self.source.model.graph
        outputs = {v.name: tensor(r) for v, r in zip(model.outputs, self.results, strict=True)}
        if len(outputs) < len(self.results):
            twice = next(name for name, n in Counter(v.name for v in model.outputs).items() if n > 1)
            raise ModelError(f"{self.source.file}: two outputs are called {twice!r}")
        try:
            return Graph(graph_name(model.name), self.inputs, outputs)
        except IRError as e:
            raise ModelError(f"{self.source.file}: {e}") from e

    def _run(self, graph: Any, known: dict[Any, Any]) -> list[Any]:
        """The outputs of a graph, whose inputs and outer values are in `known`."""
        if self.depth > DEPTH:
            raise NodeRefusedError(f"subgraphs are nested deeper than {DEPTH}")
        self.depth += 1
        try:
            for v in graph.initializers.values():
                known[v] = self._initializer(v)
            for place, node in enumerate(graph):
                results = self._node(node, known, place)
                known.update(zip(node.outputs, results, strict=True))
            return [self._lookup(v, known, "output") for v in graph.outputs]
        finally:
            self.depth -= 1

    def _initializer(self, v: Any) -> Any:
        with at(self._loc(v.name)):
            try:
                data = self.tensors.data(v.const_value)
                if (kind := name_of(v.const_value.dtype)) in LIMITS:
                    return Narrow(constant(data), kind)
                # A scalar is a number of a formula, as the 1 of 1 - z: not what is trained.
                if not data.type.dtype.is_float or not data.type.rank:
                    return constant(data)
                # Two subgraphs may have tensors of one name; the first keeps it.
                name = v.name if v.name not in self.weights else f"{v.name}#{len(self.weights)}"
                self.weights[name] = self.tensors.weight(name, data)
                return self.weights[name]
            except (NodeRefusedError, LstmIrError) as e:
                self.refusals.add(v.name, "initializer", e)
                return _UNDEFINED
            except WRONG as e:
                self.refusals.add_wrong(v.name, "initializer", e)
                return _UNDEFINED

    def _lookup(self, v: Any, known: Mapping[Any, Any], what: str) -> Any:
        if v is None or v.name == "":
            return None
        if v not in known:
            self.refusals.add(v.name, what, NodeRefusedError("no earlier node makes it: a cycle, or a missing node"))
            return _UNDEFINED
        return known[v]

    def _node(self, node: Any, known: dict[Any, Any], place: int) -> Sequence[Any]:
        """The results of a node; what cannot be had is noted as a refusal."""
        name = node.name or next((o.name for o in node.outputs if o.name), f"node {place}")
        undefined = [_UNDEFINED] * len(node.outputs)
        self.outcomes[node] = Outcome.passed
        with at(self._loc(name)):
            try:
                entry = self._entry(node)
                inputs = [self._lookup(v, known, f"operand of {name}") for v in node.inputs]
                if any(v is _UNDEFINED for v in inputs):
                    return undefined
                outputs = [bool(o.name) for o in node.outputs]

                def inner(graph: Any, values: Sequence[Result]) -> list[Result]:
                    return self._inner(graph, values, known)

                call = Call(
                    node.op_type, self._opset(node), inputs, outputs, node.attributes, self.knowledge, inner, self.key
                )  # fmt: skip
                results = self._results(entry, call)
                self.outcomes[node] = Outcome.taken
                return results
            except _PassedError:
                return undefined
            except (NodeRefusedError, LstmIrError) as e:
                self.outcomes[node] = Outcome.refused
                self.refusals.add(name, node.op_type, e)
                return undefined
            except WRONG as e:
                self.outcomes[node] = Outcome.refused
                self.refusals.add_wrong(name, node.op_type, e)
                return undefined

    def _opset(self, node: Any) -> int:
        domain = "" if node.domain == "ai.onnx" else node.domain
        return self.source.opset if domain == "" else int(self.source.model.opset_imports.get(domain, 1))

    def _entry(self, node: Any) -> OpRule:
        domain = "" if node.domain == "ai.onnx" else node.domain
        entry = TABLE.entry((domain, node.op_type), f" of the domain {domain}" if domain else "")
        if self._opset(node) < entry.versions[0]:
            first = entry.versions[0]
            raise NodeRefusedError(f"taken from operator set {first} on, the model has {self._opset(node)}")
        return entry

    def _inner(self, graph: Any, values: Sequence[Result], outer: dict[Any, Any]) -> list[Result]:
        """The outputs of a subgraph over values; its nodes read the graph around it."""
        if len(values) != len(graph.inputs):
            raise NodeRefusedError(f"the subgraph has {len(graph.inputs)} inputs, not {len(values)}")
        scope = dict(outer)
        scope.update(zip(graph.inputs, values, strict=True))
        before = len(self.refusals)
        results = self._run(graph, scope)
        if len(self.refusals) > before or any(r is _UNDEFINED for r in results):
            raise _PassedError
        return results

    def _results(self, entry: OpRule, call: Call) -> list[Result]:
        results: list[Any] | None = on_sizes(entry, call)
        if results is None:
            alone = entry.moves == (ALL,) and len(call.inputs) == 1
            moved: Any = call.inputs[0] if (entry.moves == (0,) or alone) and call.inputs else None
            kind = moved.kind if isinstance(moved, Narrow) else None
            if isinstance(moved, Narrow):
                call = call.with_inputs([moved.value, *call.inputs[1:]])
            built = entry.build(call)
            results = list(built) if isinstance(built, Sequence) else [built]
            call.check_all_read()
            if kind is not None:
                results = [Narrow(r, kind) if isinstance(r, Value) else r for r in results]
        for i, wanted in enumerate(call.outputs):
            if wanted and (i >= len(results) or results[i] is None):
                raise NodeRefusedError(f"its result {i} is not taken")
        results = [self.knowledge.folded(r) if isinstance(r, Value) else r for r in results]
        return (results + [None] * len(call.outputs))[: len(call.outputs)]

    def _loc(self, name: str) -> Loc:
        return Loc(self.source.file, 0, node=name)
