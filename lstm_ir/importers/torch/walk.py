"""The walk over an exported program, which gives every node to its handler."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import NodeRefusedError, Refusals
from lstm_ir.importers.report import Outcome
from lstm_ir.importers.torch.call import Call, WalkContext, result_type
from lstm_ir.importers.torch.functional import op_name
from lstm_ir.importers.torch.interface import Example
from lstm_ir.importers.torch.places import of_node
from lstm_ir.importers.torch.scalars import scalar
from lstm_ir.importers.torch.symbols import Symbols, expression
from lstm_ir.importers.torch.table import TABLE, OpRule
from lstm_ir.importers.torch.tensors import data_of
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Graph, Value, topological
from lstm_ir.ir.interpret import interpret
from lstm_ir.ir.leaf import constant, parameter, weight
from lstm_ir.ir.location import Loc, at
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.nn.dropout import random_key
from lstm_ir.ops.primitive.custom_gradient import unknown_gradient

Shapes = Mapping[str, tuple[str, tuple[Dim, ...]]]  # by placeholder the name in the graph, and the shape
STEP = "step"  # the input that counts calls, from which masks of dropout are drawn
_NOTHING = {"aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten.sym_constrain_range.default",
            "aten.sym_constrain_range_for_size.default"}  # fmt: skip
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
PACK = "lstm_ir.pack.default"
DEPTH = 32  # bodies nested deeper are refused


class _Undefined:
    """What a node gives that was refused: nodes that read it are passed over."""


_UNDEFINED = _Undefined()


class _PassedError(Exception):
    """A node that reads what was refused."""


class Walk:
    """One walk over a program. `outcomes` says of each node that was looked at what became of it."""

    def __init__(self, title: str, ep: Any, inputs: Shapes, symbols: Symbols, example: Example | None = None) -> None:
        self.title, self.ep, self.symbols, self._example = title, ep, symbols, example
        self._declared = inputs
        self.knowledge = Knowledge()
        self.refusals = Refusals(title)
        self.outcomes: dict[Any, Outcome] = {}
        self.weights: dict[str, Value] = {}
        self._first_names: dict[int, str] = {}  # of parameters that several modules hold, as in `named_parameters()`
        for name, tensor in self.ep.state_dict.items():
            self._first_names.setdefault(id(tensor), name)
        self.inputs: list[Value] = []
        self.results: list[Any] = []
        self._step: Value | None = None
        self._keys = 0
        self._depth = self._loops = 0
        self.context = WalkContext(self._inner, self._key, self._in_example)

    def run(self) -> None:
        """Walk over all nodes."""
        known: dict[Any, Any] = {}
        specs = {s.arg.name: s for s in self.ep.graph_signature.input_specs}
        for n in self.ep.graph.nodes:
            if n.op == "placeholder":
                known[n] = self._leaf(n, specs[n.name])
        self._refuse_writes()
        self.results = self._run(self.ep.graph_module, known)
        if self._step is not None:
            self.inputs.append(self._step)

    # -- what a program begins with

    def _leaf(self, n: Any, spec: Any) -> Any:
        """An input, a weight or a constant."""
        kind = spec.kind.name
        with at(Loc(self.title, 0, node=n.name)):
            try:
                if kind == "USER_INPUT":
                    return self._input(n, spec)
                if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                    return self._held(n, spec.target, kind) if n.users else None
                raise NodeRefusedError(f"an input of the kind {kind.lower()} is not taken")
            except (NodeRefusedError, LstmIrError) as e:
                self.refusals.add(spec.target or n.name, kind.lower().replace("_", " "), e)
                return _UNDEFINED

    def _input(self, n: Any, spec: Any) -> Any:
        if n.name not in self._declared:  # a number, None: fixed by the export
            return getattr(spec.arg, "value", None)
        name, shape = self._declared[n.name]
        found = result_type(n.meta["val"], self.symbols)
        assert found is not None
        value = parameter(name, found.with_shape(shape))
        self.inputs.append(value)
        return value

    def _held(self, n: Any, name: str, kind: str) -> Value:
        """A parameter that learns is a weight; buffers, frozen parameters and literals are constants."""
        store = self.ep.constants if kind == "CONSTANT_TENSOR" else self.ep.state_dict
        tensor = store[name] if name in store else self.ep.constants[name]
        data = data_of(tensor)
        if kind != "PARAMETER" or not tensor.requires_grad or not data.type.dtype.is_float:
            return constant(data)
        name = self._first_names.get(id(tensor), name)
        self.weights[name] = weight(name, data)
        if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
            why = f"the parameter {name} has a hook on its gradient, which torch.export drops"
            return unknown_gradient(self.weights[name], f"{why}; remove it before the import")
        return self.weights[name]

    def _key(self) -> Value:
        """A key of its own for each dropout, of the number of the call."""
        if self._loops:
            raise NodeRefusedError("dropout inside the body of a loop is not taken: every step would drop the same")
        if self._step is None:
            if STEP in (name for name, _ in self._declared.values()):
                raise NodeRefusedError(
                    f"dropout draws by an input {STEP!r} that counts calls; the module has one of that name"
                )
            self._step = parameter(STEP, TensorType((), DType.i64))
        self._keys += 1
        return random_key(0, self._step, stream=self._keys)

    def _refuse_writes(self) -> None:
        """Refuse what forward writes to: running statistics, inputs."""
        for s in self.ep.graph_signature.output_specs:
            if s.kind.name.endswith("MUTATION"):
                word = s.kind.name.lower().partition("_")[0]
                why = "forward writes to it; a graph changes nothing that is given to it"
                advice = "; module.eval() leaves running statistics as they are" * (word == "buffer")
                self.refusals.add(s.target, {"user": "input"}.get(word, word), NodeRefusedError(f"{why}{advice}"))

    def _in_example(self, v: Value) -> Any:
        read = {n.values[0] for n in topological([v.node]) if n.op.name == "parameter"}
        if self._example is None or not read <= set(self.inputs):
            return None
        arrays = {i.name: data_of(i.example).array for i in self._example.inputs}
        return interpret(Graph("example", self.inputs, {"v": v}), arrays)["v"]

    # -- nodes

    def _run(self, module: Any, known: dict[Any, Any]) -> list[Any]:
        """The outputs of a graph module whose placeholders are in `known`."""
        if self._depth > DEPTH:
            raise NodeRefusedError(f"bodies are nested deeper than {DEPTH}")
        self._depth += 1
        try:
            for n in module.graph.nodes:
                if n.op == "get_attr":
                    known[n] = self._attribute(module, n)
                elif n.op == "call_function":
                    known[n] = self._node(n, known)
                elif n.op == "output":
                    (given,) = n.args
                    return [known.get(a, a) if isinstance(a, torch.fx.Node) else a
                            for a in (given if isinstance(given, (tuple, list)) else (given,))]  # fmt: skip
            return []
        finally:
            self._depth -= 1

    def _attribute(self, module: Any, n: Any) -> Any:
        found = operator.attrgetter(n.target)(module)
        return constant(data_of(found)) if isinstance(found, torch.Tensor) else found

    def _inner(self, module: Any, values: Sequence[Any], loop: bool = False) -> list[Value]:
        """The results of a body over values, for a handler. loop: whether it runs once for each step."""
        holders = [n for n in module.graph.nodes if n.op == "placeholder"]
        if len(holders) != len(values):
            raise NodeRefusedError(f"its body has {len(holders)} inputs, not {len(values)}")
        before, loops = len(self.refusals), self._loops
        self._loops += loop
        for n, v in zip(holders, values, strict=True):
            if isinstance(v, Value):
                self._learn(n.meta.get("val"), v)
        try:
            results = self._run(module, dict(zip(holders, values, strict=True)))
        finally:
            self._loops = loops
        if len(self.refusals) > before or any(r is _UNDEFINED for r in results):
            raise _PassedError
        return results

    def _learn(self, meta: Any, v: Value) -> None:
        """What symbols of a body are, which has some of its own for the sizes of its inputs."""
        if not isinstance(meta, torch.Tensor):
            return
        for d, size in zip(meta.shape, v.shape, strict=True):
            e = None if isinstance(d, int) else expression(d)
            if e is not None and e.is_Symbol and self.symbols.known(e.name) is None:
                self.symbols.bind(e.name, size)

    def _node(self, n: Any, known: dict[Any, Any]) -> Any:
        """The result of a node, a tuple of several; what cannot be had is noted as a refusal."""
        val = n.meta.get("val")
        if n.target is operator.getitem and isinstance(known.get(n.args[0]), (tuple, list, _Undefined)):
            return self._one_of(known[n.args[0]], n)
        name = op_name(n.target)
        if isinstance(val, _SYMBOLIC):
            return _Symbolic(val, self.symbols)
        if name in _NOTHING:
            return None
        loc = self._loc(n)
        self.outcomes[n] = Outcome.passed
        with at(loc):
            try:
                entry = TABLE.entry(name)
                call = self._call(n, name, known, val)
                self._check_packed(n, entry, call)
                built = entry.build(call)
                results = list(built) if isinstance(built, Sequence) else [built]
                call.check_all_read()
                results = self._checked(results, call)
                self.outcomes[n] = Outcome.taken
                return results if isinstance(built, Sequence) else results[0]
            except _PassedError:
                return _UNDEFINED
            except (NodeRefusedError, LstmIrError) as e:
                self.outcomes[n] = Outcome.refused
                self.refusals.add(loc.node, name, NodeRefusedError(f"{_first(e)}{of_node(n)}"))
                return _UNDEFINED

    def _one_of(self, whole: Any, n: Any) -> Any:
        """One of several results; those that a handler does not give are refused where they are used."""
        source, index = n.args
        if whole is _UNDEFINED:
            return whole
        found = whole[index] if index < len(whole) else None
        if found is not None or not n.users or not isinstance(n.meta.get("val"), torch.Tensor):
            return found
        name = op_name(source.target)
        self.refusals.add(
            self._loc(source).node, name, NodeRefusedError(f"its result {index} is not taken{of_node(source)}")
        )
        return _UNDEFINED

    def _call(self, n: Any, name: str, known: Mapping[Any, Any], val: Any) -> Call:
        schema = getattr(n.target, "_schema", None)
        if schema is None:
            names, defaults = [f"arg{i}" for i in range(len(n.args))], {}
        else:
            names = [a.name for a in schema.arguments]
            defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        given = {k: self._argument(v, known) for k, v in zip(names, n.args, strict=False)}
        given.update((k, self._argument(v, known)) for k, v in n.kwargs.items())
        whole = {k: given.get(k, defaults.get(k)) for k in names}
        several = val if isinstance(val, (tuple, list)) else (val,)
        if name == PACK:
            self._bind_rows(val[0], given["input"])
        types = [result_type(v, self.symbols) if isinstance(v, torch.Tensor) else None for v in several]
        return Call(name, whole, defaults, types, self.knowledge, self.context)

    def _bind_rows(self, data: Any, x: Value) -> None:
        """The rows of a packed sequence stay where they are, so there are as many as steps times rows."""
        self.symbols.bind(expression(data.shape[0]).name, dims.mul(x.shape[0], x.shape[1]))

    def _argument(self, v: Any, known: Mapping[Any, Any]) -> Any:
        if isinstance(v, torch.fx.Node):
            found = known[v]
            if found is _UNDEFINED:
                raise _PassedError
            return found.value() if isinstance(found, _Symbolic) else found
        if isinstance(v, (tuple, list)):
            return [self._argument(x, known) for x in v]
        return v

    def _check_packed(self, n: Any, entry: OpRule, call: Call) -> None:
        """On the data of a packed sequence stand only ops that give each row by itself."""
        metas = [a.meta.get("val") for a in n.all_input_nodes]
        rows = {s for m in metas if isinstance(m, torch.Tensor) for s in _unbacked(m)}
        if rows and not (entry.rows(call) if callable(entry.rows) else entry.rows):
            raise NodeRefusedError(
                "it reads the rows of a packed sequence together; unpack them with pad_packed_sequence"
            )

    def _checked(self, results: Sequence[Result], call: Call) -> list[Any]:
        """The results, of the types that PyTorch gives them."""
        out: list[Any] = []
        for r, want in zip(results, call.types, strict=False):
            if isinstance(r, Value):
                r = self.knowledge.folded(r)
                if want is not None and not _equal(r.type, want):
                    raise NodeRefusedError(f"it gives {r.type} where PyTorch gives {want}")
            out.append(r)
        return out

    def _loc(self, n: Any) -> Loc:
        stack = n.meta.get("nn_module_stack") or {}
        paths = [p for p, _ in stack.values() if isinstance(p, str) and not p.startswith("_empty")]
        path = paths[-1] if paths else ""
        return Loc(self.title, 0, node=f"{path}/{n.name}" if path else n.name)


class _Symbolic:
    """A size, a number or a truth that PyTorch computes of sizes."""

    def __init__(self, val: Any, symbols: Symbols) -> None:
        self._val, self._symbols = val, symbols

    def value(self) -> Any:
        """A dimension, or a scalar that a call computes."""
        if isinstance(self._val, torch.SymInt):
            return self._symbols.dim(self._val)
        if isinstance(self._val, torch.SymFloat):
            return scalar(expression(self._val), self._symbols)
        raise NodeRefusedError("a condition on sizes depends on the call")


def _unbacked(m: Any) -> set[str]:
    """Symbols of sizes that only values decide: the rows of packed sequences."""
    return {str(s) for d in m.shape if not isinstance(d, int) for s in expression(d).free_symbols
            if str(s).startswith("u")}  # fmt: skip


def _equal(a: TensorType, b: TensorType) -> bool:
    if a.dtype is not b.dtype or a.rank != b.rank:
        return False
    return all(x == y or _alike(x, y) for x, y in zip(a.shape, b.shape, strict=True))


def _alike(x: Dim, y: Dim) -> bool:
    """Whether two sizes of other forms are one at every try."""
    names = sorted(dims.names(x) | dims.names(y))
    tries = ({n: 7 + 5 * k + 3 * t * (k + 1) for k, n in enumerate(names)} for t in range(8))
    return all(dims.evaluate(x, env) == dims.evaluate(y, env) for env in tries)


def _first(e: Exception) -> str:
    return str(e).splitlines()[0] if str(e) else type(e).__name__
