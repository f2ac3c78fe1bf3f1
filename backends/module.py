"""Program -> MLIR module.

`stablehlo_text` is the pure form: one function per entry, weights as trailing arguments.
`iree_module` is what is compiled: weights are parameters, what depends on weights alone is computed
once by an initializer, and what the signature promises about sizes is asserted at the entry.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from iree.compiler import ir

from lstm_ir.backends import process
from lstm_ir.backends.compile.phases import joined, readable
from lstm_ir.backends.emit import module_globals, resources
from lstm_ir.backends.emit.decisions import decisions
from lstm_ir.backends.emit.derived import derived_values
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.backends.emit.options import PLAIN, Options
from lstm_ir.backends.emit.places import mlir_loc
from lstm_ir.backends.emit.regions import signless
from lstm_ir.backends.files import parameters
from lstm_ir.backends.kernels.call import executables
from lstm_ir.backends.kernels.cpu.alike_elements import alike_elements
from lstm_ir.backends.kernels.cpu.team import relax_instruction
from lstm_ir.backends.kernels.cpu.workers import workers
from lstm_ir.backends.kernels.helpers import publish
from lstm_ir.backends.kernels.text.kernel import Kernel
from lstm_ir.backends.lower import rules as _rules  # noqa: F401  fills the rule table
from lstm_ir.ir import dims
from lstm_ir.ir.binding import bind_sizes
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import CompileError, IRError, LoweringError, ValueRangeError, message
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.program import Program, entry_signature
from lstm_ir.ir.signature import Requirement
from lstm_ir.ir.target import TargetInfo

_PLACE = re.compile(r'loc\("([^"]+)"\("([^"]+)":(\d+):\d+\)\)')  # as `mlir_loc` makes it


def stablehlo_text(program: Program, source: Program, locs: bool = False) -> str:
    """The module in StableHLO (with tensor and scf where sizes are named).

    Weights are arguments after the inputs, those of `source` in its order: passes change the order
    of use.
    """
    with _context(), ir.Location.unknown(), _refused():
        module = ir.Module.create()
        for name, graph in program.entries.items():
            with ir.InsertionPoint(module.body):
                _Function(name, graph, None, PLAIN).pure(source.entries[name].weights)
        return _text(module, locs)


@contextlib.contextmanager
def _context() -> Iterator[None]:
    """A context without threads: a forked child would wait for those of its parent. The end of the process waits
    for what is done inside: a thread that Python ends inside of the bindings aborts it."""
    made = ir.Context()
    made.enable_multithreading(False)
    with process.work(), made:
        yield


class Module(NamedTuple):
    """A module for IREE."""

    declared: str  # with declarations of the functions that join it later
    functions: Mapping[str, str]  # these, by name
    published: Mapping[str, int]  # kernels that helpers may take part in, by function

    @property
    def text(self) -> str:
        """The whole module."""
        return joined(self.declared, self.functions)


def iree_module(
    program: Program, target: TargetInfo, options: Options | None = None,
    notes: list[str] | None = None, helped: Collection[str] = (),
) -> Module:  # fmt: skip
    """The module that IREE compiles for `target`; without options, with kernels where it has them.

    Adds to `notes` how each recurrence was lowered. `helped`: entries whose kernels helpers may take part in.
    """
    options = Options(target.kernels) if options is None else options
    said = [] if notes is None else notes
    with _uncollected(), _context(), ir.Location.unknown(), _refused():
        module = ir.Module.create()
        if target.kind == "cpu":
            resources.place(module)
        with ir.InsertionPoint(module.body):
            symbols, kernels = _weights(program), dict[str, Kernel]()
            functions: list[_Function] = []
            for name in program.entries:
                graph = program.ordered(name)
                own = replace(options, helpers=name in helped)
                functions.append(_Function(name, graph, target, own, symbols, said))
                if target.kind != "cpu":
                    for suffix, bound in empty_variants(graph):
                        part = f"{name}.empty.{suffix}"
                        functions.append(_Function(part, bound, target, options, symbols, []))
            for f in functions:
                kernels |= f.runnable()
            relax = relax_instruction(target)
            defined = executables.define(module, kernels, options, target.kind == "cpu", helped, relax)
            for f in functions:
                if f.name in helped and not defined.published[f.name]:
                    f.leave_helpers_out()
        return Module(_text(module, locs=True), defined.functions, defined.published)


def empty_variants(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The graph with named sizes written as 0, by the names: GPU drivers refuse dispatches with
    empty buffers.

    Of more than three names, those variants where one or all are 0. A graph that cannot have the size
    has no variant.
    """
    names = sorted(set().union(*(p.type.names for p in graph.params)))
    counts = range(1, len(names) + 1) if len(names) <= 3 else (1, len(names))
    for zero in (part for k in counts for part in itertools.combinations(names, k)):
        with contextlib.suppress(IRError, ValueRangeError):
            bound = bind_sizes(graph, dict.fromkeys(zero, 0))
            entry_signature(bound)  # refuses literals that lie outside of what such a size allows
            yield ".".join(zero), bound


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection inside: the parts of a module stay until its text is written, and looking through
    them took a fifth of the time."""
    thread = threading.get_ident()
    if gc.isenabled():
        _paused.add(thread)
    gc.disable()
    try:
        yield
    finally:
        if thread in _paused:
            _paused.remove(thread)
            gc.enable()


_paused: set[int] = set()  # the thread that gives garbage collection back


def _collect_again() -> None:
    """In a forked child, which lacks that thread."""
    if _paused:
        _paused.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_collect_again)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """CompileError, with the node's op and line, for a module that MLIR refuses."""
    try:
        yield
    except ir.MLIRError as e:
        said = e.error_diagnostics
        if not said:
            raise CompileError(f"MLIR refused the module: {e}") from e
        place = _PLACE.fullmatch(str(said[0].location))
        op, loc = (place[1], f"{place[2]}:{place[3]}") if place else ("module", None)
        raise CompileError(message(op, f"MLIR refused it: {said[0].message}", loc=loc)) from e


def _text(module: ir.Module, locs: bool) -> str:
    module.operation.verify()
    text = str(module.operation.get_asm(enable_debug_info=locs, pretty_debug_info=False))
    return readable(text)


def _weights(program: Program) -> dict[str, str]:
    symbols: dict[str, str] = {}
    for i, (name, data) in enumerate(program.weights.items()):
        symbols[name] = f"w{i}"
        key = parameters.key(name)
        module_globals.declare(symbols[name], data.type, f'"{parameters.SCOPE}"::"{key}"')
    return symbols


class _Function:
    """One entry."""

    def __init__(
        self,
        name: str,
        graph: Graph,
        target: TargetInfo | None,
        options: Options,
        symbols: dict[str, str] | None = None,
        notes: list[str] | None = None,
    ) -> None:
        self.name, self.graph, self.target, self.options = name, graph, target, options
        self.symbols = {} if symbols is None else symbols
        self.e = Emitter(target, graph.is_static, notes, options)
        if target is not None:
            self.e.decided = decisions(graph)

    def pure(self, weights: Mapping[str, Value]) -> None:
        """`weights` are arguments after the inputs, used or not."""
        block = self._function([*self.graph.params, *weights.values()])
        args = list(block.arguments)
        inputs = args[: len(self.graph.params)]
        trailing = dict(zip(weights, args[len(inputs) :], strict=True))
        self.e.leaf = lambda n: trailing[n.attrs["name"]]
        with ir.InsertionPoint(block):
            self._body(inputs, checks=False)

    def runnable(self) -> dict[str, Kernel]:
        """Weights are globals; derived values too. Gives the kernels that it calls."""
        derived = derived_values(self.graph, narrow=self.e.has_cpu_kernels)
        held = self._initializer(derived)
        block = self._function(self.graph.params)
        self.e.leaf = lambda n: self._load_weight(self.e, n)
        with ir.InsertionPoint(block):
            arguments = list(block.arguments)
            if self.options.helpers:
                *arguments, _, self.e.workers, _ = arguments
            self._body(arguments, checks=True, held=held)
        return self.e.kernels

    def leave_helpers_out(self) -> None:
        """Take away the arguments that no kernel of the module uses to publish its work."""
        block = self.func.regions[0].blocks[0]
        *_, queue, brought, publishes = block.arguments
        if list(brought.uses):  # kernels that have no room for a queue
            self.e.workers = None
            with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
                found = self.e.make("arith.index_cast", [workers(self.e)], [brought.type])
            brought.replace_all_uses_with(found.result)
        for argument in (publishes, brought, queue):
            block.erase_argument(argument.arg_number)
        outs = [tensor(v.type) for v in self.graph.outputs]
        kind = ir.FunctionType.get([a.type for a in block.arguments], outs)
        self.func.attributes["function_type"] = ir.TypeAttr.get(kind)

    def _load_weight(self, e: Emitter, n: Node) -> ir.Value:
        return module_globals.load(e, self.symbols[n.attrs["name"]], n.types[0])

    def _function(self, params: Sequence[Value]) -> ir.Block:
        ins: list[ir.Type] = [tensor(p.type) for p in params]
        if self.options.helpers:
            ins += [ir.Type.parse(t) for t in publish.CALL_ARGUMENTS]
        outs = [tensor(v.type) for v in self.graph.outputs]
        kind = ir.FunctionType.get(ins, outs)
        attrs = {"sym_name": ir.StringAttr.get(self.name), "function_type": ir.TypeAttr.get(kind)}
        self.func = ir.Operation.create("func.func", attributes=attrs, regions=1)
        locs = [mlir_loc(p.node.loc, p.node.attrs["name"]) for p in params]
        locs += [ir.Location.unknown()] * (len(ins) - len(params))
        return self.func.regions[0].blocks.append(*ins, arg_locs=locs)

    def _body(self, args: list[ir.Value], checks: bool, held: dict[Value, str] | None = None) -> None:
        if checks or not self.graph.is_static:
            self._sizes(args, checks)
        if checks and self.target is not None:
            args = [self._tied(p, a) for p, a in zip(self.graph.params, args, strict=True)]
        known = {v: module_globals.load(self.e, s, v.type) for v, s in (held or {}).items()}
        self.e.preset = known
        self.e.together = alike_elements(self.e, self.graph)
        outputs = self.e.graph(self.graph, args)
        self.e.make("func.return", outputs, [])

    def _tied(self, p: Value, arg: ir.Value) -> ir.Value:
        """The input, whose named sizes are the function's: IREE takes those of two inputs for different."""
        return self.e.tie(arg, p.type)

    def _sizes(self, args: list[ir.Value], checks: bool) -> None:
        e = self.e
        anchor = head(e)
        e.begin(anchor, {})
        pending: list[tuple[Dim, ir.Value, str]] = []
        for p, arg in zip(self.graph.params, args, strict=True):
            for axis, d in enumerate(p.type.shape):
                if isinstance(d, int):
                    continue
                with ir.InsertionPoint(anchor):
                    held, _ = signless(e, arg, p.type)
                    at = e.make("tensor.dim", [held, e.size(axis)], [ir.IndexType.get()]).result
                plain = _plain_name(d)
                if plain is not None and plain not in e.sizes:
                    e.sizes[plain] = at
                else:
                    pending.append((d, at, f"input {p.node.attrs['name']}: axis {axis} is not {d}"))
        while any([self._solve(d, at) for d, at, _ in pending]):  # a name that is found may be what another lacks
            pass
        for d, _, _ in pending:
            for n in sorted(dims.names(d) - set(e.sizes)):
                raise LoweringError(f"the size {n} cannot be solved from {d}; give an input an axis of this name alone")
        if checks:
            for d, at, what in pending:
                self._assert_equal(e.size(d), at, what)
            for r in entry_signature(self.graph).requires:
                self._assert_holds(r)

    def _solve(self, d: Dim, at: ir.Value) -> bool:
        """Bind the one unknown of k*N + m; whether there is one, and it was bound."""
        e = self.e
        unknown = [n for n in dims.names(d) if n not in e.sizes]
        if len(unknown) != 1 or not isinstance(d, dims.Expr):
            return False
        k = dict(d.terms).get((unknown[0],))
        rest = dims.add(d, dims.mul(dims.name(unknown[0]), -k)) if k else None
        if k is None or rest is None or unknown[0] in dims.names(rest):
            return False
        with ir.InsertionPoint(e.anchor):
            left = e.arith("subi", at, e.size(rest))
            e.sizes[unknown[0]] = e.arith("divsi", left, e.size(k))
        return True

    def _assert_equal(self, a: ir.Value, b: ir.Value, what: str) -> None:
        self._assert("eq", a, b, what)

    def _assert_holds(self, r: Requirement) -> None:
        self._assert("sge", self.e.size(r.dim), self.e.size(0), r.what)

    def _assert(self, way: str, a: ir.Value, b: ir.Value, what: str) -> None:
        self.e.make("cf.assert", [self.e.compare(way, a, b)], [], {"msg": ir.StringAttr.get(what)})

    def _initializer(self, derived: Sequence[Value]) -> dict[Value, str]:
        held = {v: f"{self.name}.derived{i}" for i, v in enumerate(derived)}
        if not held:
            return held
        for v, symbol in held.items():
            module_globals.declare(symbol, v.type)
        init = ir.Operation.create(
            "util.initializer", attributes={"function_type": ir.TypeAttr.get(ir.FunctionType.get([], []))}, regions=1
        )
        block = init.regions[0].blocks.append()
        e = Emitter(self.target, static=True, options=self.options)
        e.leaf = lambda n: self._load_weight(e, n)
        e.kernels, e.decided = self.e.kernels, self.e.decided
        with ir.InsertionPoint(block):
            e.begin(head(e), {})
            part = Graph("derived", [], list(held))
            values = e.graph(part, [])
            for (held_value, symbol), value in zip(held.items(), values, strict=True):
                module_globals.store(e, symbol, value, held_value.type)
            e.make("util.return", [], [])
        return held


def head(e: Emitter) -> ir.Operation:
    """An op at the head of a function, before which sizes are computed."""
    return e.index(0).owner


def _plain_name(d: Dim) -> str | None:
    if isinstance(d, dims.Expr) and len(d.terms) == 1:
        (mono, k), *_ = d.terms
        if k == 1 and len(mono) == 1 and isinstance(mono[0], str):
            return mono[0]
    return None
