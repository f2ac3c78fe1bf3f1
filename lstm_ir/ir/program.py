"""What is compiled and exported: named entries over shared weights and state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.called import told_class
from lstm_ir.ir.clone import clone
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import GradientError, IRError, ValueRangeError, VerifyError, message
from lstm_ir.ir.graph import Graph, Node, Value, check_name, operand_types
from lstm_ir.ir.leaf import literal, parameter
from lstm_ir.ir.literals import constant_of
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.near_names import hint
from lstm_ir.ir.printable import is_text
from lstm_ir.ir.printer import print_program
from lstm_ir.ir.shown import shown_by
from lstm_ir.ir.signature import Check, Entry, Port, Requirement, Signature, StateVar, starts
from lstm_ir.ir.types import TensorType
from lstm_ir.ir.unchanging import Unchanging
from lstm_ir.ir.verify import verify


@dataclass(frozen=True, eq=False, init=False)
class State:
    """A named tensor that is kept between calls, and what it starts as: an array, or a number in the type's dtype.

    `type`, by default that of `initial`, may have named sizes: then `initial` is broadcast to the sizes of the first
    call. Raises VerifyError where it does not fit.
    """

    name: str
    initial: Data
    type: TensorType

    def __init__(self, name: str, initial: Any, type: TensorType | None = None) -> None:
        if not isinstance(name, str) or not name or not is_text(name):
            raise VerifyError(f"a state is called {name!r:.80}; expected text")
        start = literal("State", initial, None if type is None or hasattr(initial, "dtype") else type.dtype)
        whole = start.type if type is None else type
        if not starts(start.type, whole):
            raise VerifyError(f"state {name!r}: {start.type} does not start a {whole}")
        for field_name, value in (("name", name), ("initial", start), ("type", whole)):
            object.__setattr__(self, field_name, value)


@told_class({"states": "state", "graphs": "entries, graphs by name"})
@dataclass(frozen=True, eq=False)
class Program(Unchanging):
    """Entries by name; `binding[entry]` says which input is fed from, and which output goes to, a
    state.

        binding = {"step": ({"h0": "h"}, {"h_n": "h"})}       input -> state, output -> state

    A weight of one name is one array in all entries. A graph alone is `Program.of(graph)`, entry
    `main`. `finite[entry]` names outputs, or inputs, that must be finite: a call with others
    fails and keeps the state. An entry without inputs and outputs starts the state that it reads again, or
    all state if it reads none.
    """

    name: str
    entries: Mapping[str, Graph]
    state: Mapping[str, State] = field(default_factory=dict)
    binding: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = field(default_factory=dict)
    finite: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name, "program", "Program(name, entries)")
        if not self.entries:
            raise VerifyError(f"program {self.name!r} has no entries")
        self._check_kinds()
        self._check_weights()
        for entry, (reads, writes) in self.binding.items():
            self._check_binding(entry, reads, writes)
        for entry, names in self.finite.items():
            self._check_finite(entry, names)

    @classmethod
    def of(cls, graph: Graph | Program, word: str = "") -> Program:
        """A program with the one entry `main`; a Program as it is. `word` is the function that an error names."""
        if isinstance(graph, Program):
            return graph
        if not isinstance(graph, Graph):
            compiled = isinstance(getattr(graph, "entries", None), Mapping) and hasattr(graph, "weights")
            remedy = "; give the graph that it was made of, or li.with_weights(graph, exe)" if compiled else ""
            where = f"{word}: " if word else ""
            raise IRError(f"{where}takes a graph or a program, got {type(graph).__name__}{remedy}")
        return cls(graph.name, {"main": graph})

    @property
    def weights(self) -> dict[str, Data]:
        """Every weight of every entry by name."""
        return {n: v.node.attrs["value"] for g in self.entries.values() for n, v in g.weights.items()}

    def with_entry(self, name: str, graph: Graph) -> Program:
        """The program with one entry more, whose weights that are state here are read from the state.

        So an entry acts with the weights as trained so far. Raises VerifyError for a name that an entry has, and for
        a weight whose type is not that of the state of its name.
        """
        where = f"program {self.name!r}, entry {name!r:.80}"
        if not isinstance(graph, Graph):
            raise VerifyError(f"{where}: expected a graph, got {type(graph).__name__:.80}")
        if name in self.entries:
            raise VerifyError(f"{where}: there is one of this name; give it another")
        held = {}
        for n, v in graph.weights.items():
            if n in self.state:
                if v.type != self.state[n].type:
                    raise VerifyError(f"{where}: weight {n!r} is {v.type}, state {n!r} is {self.state[n].type}")
                if n in graph.input_names:
                    raise VerifyError(f"{where}: {n!r} is an input and a weight that is state; rename the input")
                held[n] = parameter(n, v.type)
        if held:
            graph = Graph(graph.name, [*graph.params, *held.values()], from_state(graph, held))
        binding = {**self.binding, name: ({n: n for n in held}, {})}
        return replace(self, entries={**self.entries, name: graph}, binding=binding)

    def only(self, *entries: str) -> Program:
        """The program with these entries alone, and the state that they read or write."""
        if not all(isinstance(n, str) for n in entries):
            problem = f'only takes names: only("train", "infer"), and got {entries!r:.80}'
            raise VerifyError(f"program {self.name!r}: {problem}")
        unknown = sorted(set(entries) - set(self.entries))
        if unknown:
            made = "; li.train_step(..., evaluate=True) makes it" if unknown[0] == "evaluate" else ""
            there = f"; there are {', '.join(self.entries)}{made}"
            raise VerifyError(
                f"program {self.name!r} has no entry {unknown[0]!r}{hint(unknown[0], self.entries, there)}"
            )
        kept = {n: g for n, g in self.entries.items() if n in entries}
        binding = {n: b for n, b in self.binding.items() if n in kept}
        used = {s for reads, writes in binding.values() for s in (*reads.values(), *writes.values())}
        state = {n: s for n, s in self.state.items() if n in used}
        finite = {n: f for n, f in self.finite.items() if n in kept}
        return Program(self.name, kept, state, binding, finite)

    def verify(self) -> None:
        """Verify every entry, and that constants lie in the ranges of what reads them."""
        for g in self.entries.values():
            verify(g)
        self.signature()

    def signature(self, *made: Program) -> Signature:
        """What callers see: bound inputs and outputs are left out.

        made: what passes made of the program. Where they find that an index is an input as it is,
        the input's values are checked too.
        """
        entries = {}
        for name, g in self.entries.items():
            reads, writes = self.binding.get(name, ({}, {}))
            plain = entry_signature(g, name, hidden=reads, silent=writes)
            more = [c for m in made for c in _checks(m.entries[name], reads)]
            known = {(c.input, c.low, c.high): c for c in (*more, *plain.checks)}
            plain = plain._replace(checks=tuple(known.values()))
            bound = (tuple(reads.values()), tuple(writes.values()))
            watched = tuple(self.finite.get(name, ()))
            entries[name] = plain._replace(reads=bound[0], writes=bound[1], finite=watched)
        weights = {n: d.type for n, d in self.weights.items()}
        state = {n: StateVar(n, s.type) for n, s in self.state.items()}
        return Signature(self.name, entries, weights, state)

    def ordered(self, entry: str) -> Graph:
        """The entry with what belongs to state last, among inputs and among outputs, as it is
        compiled.
        """
        g = self.entries[entry]
        reads, writes = self.binding.get(entry, ({}, {}))
        if not reads and not writes:
            return g
        params = dict(zip(g.input_names, g.params, strict=True))
        outputs = dict(zip(g.output_names, g.outputs, strict=True))
        first = [v for n, v in params.items() if n not in reads]
        open_outputs = {n: v for n, v in outputs.items() if n not in writes}
        return Graph(g.name, [*first, *(params[n] for n in reads)], open_outputs | {n: outputs[n] for n in writes})

    def __str__(self) -> str:
        return print_program(self)

    def _repr_svg_(self) -> str | None:
        return shown_by("program_svg", self)

    def _repr_html_(self) -> str | None:
        return shown_by("program_html", self)

    def _check_kinds(self) -> None:
        """Refuse what is no graph, no state or no binding, and a state under another name than its own."""
        where = f"program {self.name!r}"
        for entry, graph in self.entries.items():
            check_name(entry, f"{where}, an entry", "Program(name, {entry: graph})")
            if not isinstance(graph, Graph):
                raise VerifyError(f"{where}, entry {entry!r:.80}: expected a graph, got {type(graph).__name__:.80}")
        for name, state in self.state.items():
            if not isinstance(state, State):
                problem = f"expected li.State({name!r:.80}, array), got {type(state).__name__:.80}"
                raise VerifyError(f"{where}, state {name!r:.80}: {problem}")
            if state.name != name:
                raise VerifyError(
                    f"{where}: state {state.name!r} stands under the name {name!r:.80}; they are the same"
                )
        for entry, bound in self.binding.items():
            pair = isinstance(bound, (tuple, list)) and len(bound) == 2
            if not pair or not all(isinstance(b, Mapping) for b in bound):
                problem = f"its binding is {bound!r:.80}; expected ({{input: state}}, {{output: state}})"
                raise VerifyError(f"{where}, entry {entry!r:.80}: {problem}")

    def _check_weights(self) -> None:
        seen: dict[str, Data] = {}
        for entry, g in self.entries.items():
            for n, v in g.weights.items():
                if n in self.state:
                    problem = f"weight {n!r} would not be the state of this name"
                    remedy = "add the entry by Program.with_entry, which reads the state, or rename the weight"
                    raise VerifyError(f"program {self.name!r}, entry {entry!r}: {problem}; {remedy}")
                data = v.node.attrs["value"]
                if seen.setdefault(n, data) != data:
                    raise VerifyError(f"program {self.name!r}: weight {n!r} is another array in entry {entry!r}")

    def _check_finite(self, entry: str, names: Iterable[str]) -> None:
        where = f"program {self.name!r}, entry {entry!r}"
        graph = self.entries.get(entry)
        known: dict[str, Value] = {}
        if graph is not None:
            reads, writes = self.binding.get(entry, ({}, {}))
            inputs = zip(graph.input_names, graph.params, strict=True)
            known = {n: v for n, v in inputs if n not in reads}
            known |= {n: graph.output(n) for n in graph.output_names if n not in writes}
        for name in names:
            if name not in known:
                problem = f"there is no output or input {name!r} that can be finite"
                raise VerifyError(f"{where}: {problem}")
            if not known[name].dtype.is_float:
                raise VerifyError(f"{where}: {name!r} is not of floats")

    def _check_binding(self, entry: str, reads: Mapping[str, str], writes: Mapping[str, str]) -> None:
        where = f"program {self.name!r}, entry {entry!r}"
        graph = self.entries.get(entry)
        if graph is None:
            raise VerifyError(f"{where}: a binding for an entry that does not exist")
        ports = [(dict(zip(graph.input_names, graph.params, strict=True)), reads, "input")]
        ports.append((dict(zip(graph.output_names, graph.outputs, strict=True)), writes, "output"))
        for known, bound, what in ports:
            for port, name in bound.items():
                if port not in known or name not in self.state:
                    raise VerifyError(f"{where}: no {what} {port!r} or no state {name!r}")
                if known[port].type != self.state[name].type:
                    raise VerifyError(
                        f"{where}: {what} {port!r} is {known[port].type}, state {name!r} is {self.state[name].type}"
                    )


def entry_signature(graph: Graph, name: str = "main", hidden: Iterable[str] = (), silent: Iterable[str] = ()) -> Entry:
    """The callable that a graph is.

    Ports in `hidden` (inputs) and `silent` (outputs) belong to state.
    """
    away, quiet = set(hidden), set(silent)
    names = dict(zip(graph.params, graph.input_names, strict=True))
    inputs = tuple(Port(n, v.type) for v, n in names.items() if n not in away)
    outputs = tuple(Port(n, v.type) for n, v in zip(graph.output_names, graph.outputs, strict=True) if n not in quiet)
    requires = {
        (r.dim, r.what): Requirement(r.dim, f"{n.op.name}: {r.what}") for n in every_node(graph) for r in n.requires
    }
    requires |= {(r.dim, r.what): r for n in every_node(graph) for r in _constants(n)}
    used: set[str] = set()
    for p in inputs:
        used |= p.type.names
    return Entry(
        name, inputs, outputs, tuple(requires.values()), tuple(_checks(graph, away)),
        tuple(sorted(used)),
    )  # fmt: skip


def _checks(graph: Graph, hidden: Iterable[str]) -> Iterator[Check]:
    """Ranges of inputs' values: an op reads the input, or a step of a scan does."""
    away = set(hidden)
    names = dict(zip(graph.params, graph.input_names, strict=True))
    return _ranges(graph, {v: n for v, n in names.items() if n not in away})


def _ranges(graph: Graph, names: Mapping[Value, str]) -> Iterator[Check]:
    confined: dict[Value, str] = {}  # inputs behind `in_range`, whose integers any width holds
    for n in graph.nodes:
        if n.op.name in ("in_range", "convert") and n.values[0].dtype.is_int:
            (v,) = n.inputs
            found = confined.get(v, names.get(v) if n.op.name == "in_range" else None)
            if found is not None:
                confined[n.values[0]] = found
        for r in n.ranges:
            arg = n.arg(r.operand)
            if not isinstance(arg, Value):
                continue
            # That an input is the lengths of a layer is said through a range of an importer's own.
            found = names.get(arg, confined.get(arg) if r.operand == "lengths" else None)
            if found is not None:
                yield Check(found, r.low, r.high, f"{n.op.name} at {n.loc}{r.added}")
        loop = Loop.of(n, until=True)
        if loop is not None:
            read = list(zip(loop.const_params, loop.consts, strict=True))
            if loop.count is None and not loop.until:  # rows past a count may hold anything
                read += zip(loop.x_params, loop.xs, strict=True)
            inner = {p: names[v] for p, v in read if v in names}
            if inner:
                yield from _ranges(loop.body, inner)


def _constants(n: Node) -> Iterator[Requirement]:
    """That constant operands lie in range: refused here, or left to a call that knows the sizes."""
    for r in n.ranges:
        arg = n.arg(r.operand)
        held = constant_of(arg) if isinstance(arg, Value) else None
        data = None if held is None else held.node.attrs["value"]
        if data is None or not data.known or not data.array.size:
            continue
        low, high = int(data.array.min()), int(data.array.max())
        room = ((low, dims.add(low, dims.mul(r.low, -1))), (high, dims.add(r.high, -high)))
        for value, left in room:
            problem = f"{r.operand} holds {value}, outside {r.low}..{r.high}{r.added}"
            inside = dims.at_least(left, 0)
            if inside is False:
                shown = operand_types(n.op, n.args)
                raise ValueRangeError(message(n.op.name, problem, shown, n.loc))
            if inside is None:
                yield Requirement(left, f"{n.op.name}: {problem}")


def every_node(graph: Graph) -> Iterator[Node]:
    """Nodes of the graph and of all bodies."""
    for n in graph.nodes:
        yield n
        for a in n.attrs.values():
            if isinstance(a, Graph):
                yield from every_node(a)


def from_state(graph: Graph, held: Mapping[str, Value], fed: Mapping[Value, Value] | None = None) -> dict[str, Value]:
    """The graph's outputs by name, where weights are the values that `held` has by their names.

    fed: values that stand for other ones, inputs for instance.
    """
    env = {v: held[n] for n, v in graph.weights.items() if n in held} | dict({} if fed is None else fed)
    return dict(zip(graph.output_names, clone(graph.outputs, env), strict=True))


def need_graph(word: str, graph: object, instead: str) -> None:
    """Refuse what is no graph; `instead` says what to do with a program."""
    if isinstance(graph, Program):
        raise GradientError(f"{word}: takes a graph, got the program {graph.name!r}; {instead}")
    if not isinstance(graph, Graph):
        raise GradientError(f"{word}: takes a graph, got {type(graph).__name__}")
