"""Values, nodes and graphs: immutable, compared by identity.

A graph is its outputs; what does not reach an output is not in it. A body (of `scan`) is a closed
graph: everything it reads is one of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from lstm_ir.ir.attributes import check_attrs
from lstm_ir.ir.cached import cached_property
from lstm_ir.ir.called import told
from lstm_ir.ir.errors import IRError, VerifyError, message
from lstm_ir.ir.location import Loc, here
from lstm_ir.ir.near_names import nearest
from lstm_ir.ir.opdef import Op, Range, RuleError, TypeOrList, derive
from lstm_ir.ir.operators import Operators, comparable, compared
from lstm_ir.ir.printable import is_text
from lstm_ir.ir.printer import print_graph
from lstm_ir.ir.shown import shown_by
from lstm_ir.ir.signature import Requirement
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ir.unchanging import Unchanging

if TYPE_CHECKING:
    from typing import Self

Arg: TypeAlias = "Value | tuple[Value, ...] | None"


class Value(Operators):
    """One result of a node. Arithmetic operators broadcast as NumPy does and make explicit
    nodes.
    """

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int) -> None:
        self.node, self.index = node, index

    @property
    def type(self) -> TensorType:
        """Shape and dtype."""
        return self.node.types[self.index]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes; ints or dimension expressions."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.type.dtype

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.type.rank

    @property
    def ndim(self) -> int:
        """Number of axes, by NumPy's name."""
        return self.type.rank

    @property
    def op(self) -> str:
        """Name of the op that makes this value."""
        return self.node.op.name

    def __eq__(self, other: object) -> Any:
        return self._compared("equal", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("not_equal", other)

    def _compared(self, builder: str, other: object) -> Any:
        if isinstance(other, Value):
            return DeferredComparison(self, other, builder)
        return compared(builder, self, other) if comparable(other) else NotImplemented

    __hash__ = object.__hash__

    def __reduce__(self) -> NoReturn:
        raise IRError(f"{self!r} is part of a graph, which can be pickled; a value alone cannot, nor be copied")

    def __repr__(self) -> str:
        return f"<{self.node.op.name}#{self.index}: {self.type}>"


class DeferredComparison(Value):
    """What `a == b` and `a != b` give of two values: elements compared; the node is made where a value is wanted.

    Lists and dicts of values ask for its truth: whether both are one value.
    """

    __slots__ = ("builder", "left", "made", "right")

    def __init__(self, left: Value, right: Value, builder: str) -> None:
        self.left, self.right, self.builder = left, right, builder
        self.made: Value | None = None

    @property
    def value(self) -> Value:
        """The value of the comparing node."""
        if self.made is None:
            self.made = compared(self.builder, self.left, self.right)
        return self.made

    @property
    def node(self) -> Node:  # type: ignore[override]  # a slot of other values
        """The comparing node."""
        return self.value.node

    @property
    def index(self) -> int:  # type: ignore[override]
        """0: its only result."""
        return 0

    def __bool__(self) -> bool:
        return (self.left is self.right) is (self.builder == "equal")


def resolved(arg: Any) -> Any:
    """The argument with comparisons as the values that they stand for."""
    if isinstance(arg, tuple):
        return tuple(map(resolved, arg)) if any(type(v) is DeferredComparison for v in arg) else arg
    return arg.value if type(arg) is DeferredComparison else arg


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """One application of an op. `make` is the only constructor used outside this file."""

    op: Op
    args: tuple[Arg, ...]
    attrs: Mapping[str, Any]
    results: tuple[tuple[str, TypeOrList], ...]
    requires: tuple[Requirement, ...]
    loc: Loc
    inputs: tuple[Value, ...] = field(init=False)
    types: tuple[TensorType, ...] = field(init=False)
    values: tuple[Value, ...] = field(init=False)

    def __post_init__(self) -> None:
        flat: list[Value] = []
        for a in self.args:
            flat.extend(a if isinstance(a, tuple) else () if a is None else (a,))
        types: list[TensorType] = []
        for _, t in self.results:
            types.extend(t if isinstance(t, tuple) else (t,))
        object.__setattr__(self, "inputs", tuple(flat))
        object.__setattr__(self, "types", tuple(types))
        object.__setattr__(self, "values", tuple(Value(self, i) for i in range(len(types))))

    def __repr__(self) -> str:
        return f"<node {self.op.name} at {self.loc}>"

    def arg(self, operand: str) -> Arg:
        """The argument given for the operand of that name."""
        return self.args[self.op.operand_index(operand)]

    def result(self, name: str) -> Value | tuple[Value, ...] | None:
        """The result (or list) of that name; None if this node does not have it."""
        return self.by_name.get(name)

    @cached_property
    def by_name(self) -> dict[str, Value | tuple[Value, ...]]:
        """Present results by name, in order."""
        out: dict[str, Value | tuple[Value, ...]] = {}
        i = 0
        for name, t in self.results:
            if isinstance(t, tuple):
                out[name] = self.values[i : i + len(t)]
                i += len(t)
            else:
                out[name] = self.values[i]
                i += 1
        return out

    @cached_property
    def results_by_rule(self) -> tuple[tuple[str, TypeOrList], ...]:
        """What the type rule gives for these operands: asked when the node is made, or once if it was made by hand."""
        return make_node(self.op, self.args, self.attrs, self.loc).results

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Value preconditions of this node's operands."""
        return () if self.op.ranges is None else self.op.ranges(self)

    def with_args(self, args: tuple[Arg, ...]) -> Node:
        """This node over other arguments; itself if they are the same."""
        if len(args) == len(self.args) and all(map(_same_arg, args, self.args)):
            return self
        return make_node(self.op, args, self.attrs, self.loc)


def _same_arg(a: Arg, b: Arg) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
    return a is b


def _rule_arg(op: Op, i: int, arg: Arg) -> Any:
    spec = op.operands[i]
    if arg is None:
        if not spec.optional:
            raise RuleError(f"operand {spec.name} is required")
        return None
    if isinstance(arg, tuple) != spec.many:
        raise RuleError(f"operand {spec.name} is {'a list' if spec.many else 'one value'}")
    if isinstance(arg, tuple):
        return tuple(v.type for v in arg)
    if spec.constant:
        if arg.op != "constant":
            raise RuleError(f"operand {spec.name} must be a constant, got a value of {arg.op}")
        return arg.node.attrs["value"].array
    return arg.type


def operand_types(op: Op, args: Sequence[Arg]) -> list[tuple[str, object]]:
    """(operand name, type) pairs for a message."""
    out: list[tuple[str, object]] = []
    for spec, a in zip(op.operands, args, strict=False):
        shown = [v.type for v in a] if isinstance(a, tuple) else None if a is None else a.type
        out.append((spec.name, shown))
    return out


def make_node(op: Op, args: tuple[Arg, ...], attrs: Mapping[str, Any], loc: Loc) -> Node:
    """The node, its type rule run; a broken rule is an IRError of four lines."""
    try:
        args = tuple(map(resolved, args))
        for a in args:
            for v in a if isinstance(a, tuple) else (a,):
                if v is not None and not isinstance(v, Value):
                    raise RuleError(f"an operand is {type(v).__name__}, not a value of the graph")
        if len(args) != len(op.operands):
            raise RuleError(f"takes {len(op.operands)} operands, got {len(args)}")
        checked = check_attrs(op, attrs, Graph)
        rule_args = tuple(_rule_arg(op, i, a) for i, a in enumerate(args))
        results, requires = derive(op, rule_args, checked)
    except IRError as e:
        if not isinstance(e, RuleError) and "\n" in str(e):
            raise
        raise IRError(message(op.name, str(e), operand_types(op, args), loc)) from None
    made = Node(op, args, MappingProxyType(checked), results, requires, loc)
    made.__dict__["results_by_rule"] = results
    return made


def make(op: Op, *args: Arg, loc: Loc | None = None, **attrs: Any) -> Node:
    """A node at the user's line."""
    return make_node(op, args, attrs, here() if loc is None else loc)


class Graph(Unchanging):
    """Named inputs, named outputs, and the nodes between them.

        g = Graph("tagger", inputs=[x], outputs={"y": y})

    Raises IRError for a duplicate name, a parameter that is not an input, or two weights of one
    name.
    """

    __slots__ = ("__dict__", "name", "output_names", "outputs", "params")

    @told({"output": "outputs", "params": "inputs", "input": "inputs"}, "Graph")
    def __init__(self, name: str, inputs: Iterable[Value], outputs: Mapping[str, Value] | Iterable[Value]) -> None:
        check_name(name, "graph", "Graph(name, inputs, outputs)")
        self.name = name
        self.params: tuple[Value, ...] = _listed(name, "inputs", inputs, "a list of values of li.input: [x]")
        if isinstance(outputs, Mapping):
            self.output_names = tuple(outputs)
            self.outputs: tuple[Any, ...] = resolved(tuple(outputs.values()))
        else:
            self.outputs = resolved(_listed(name, "outputs", outputs, 'a dict of values by name: {"y": y}'))
            self.output_names = tuple(f"out{i}" for i in range(len(self.outputs)))
        check_structure(self)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, inputs first, each after what it reads.

        The order depends on the graph only.
        """
        return tuple(topological([p.node for p in self.params] + [v.node for v in self.outputs]))

    @cached_property
    def users(self) -> Mapping[Value, tuple[Node, ...]]:
        """The nodes that read each value; an absent value has none."""
        out: dict[Value, dict[Node, None]] = {}
        for n in self.nodes:
            for v in n.inputs:
                out.setdefault(v, {})[n] = None
        return {v: tuple(ns) for v, ns in out.items()}

    @cached_property
    def weights(self) -> Mapping[str, Value]:
        """Named weights, those of bodies excluded (a body reads weights through its parameters)."""
        return {n.attrs["name"]: n.values[0] for n in self.nodes if n.op.name == "weight"}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(p.node.attrs["name"] for p in self.params)

    @property
    def is_static(self) -> bool:
        """No named dimension anywhere, bodies included."""
        return all(t.is_static for n in self.nodes for t in n.types) and all(
            a.is_static for n in self.nodes for a in n.attrs.values() if isinstance(a, Graph)
        )

    def output(self, name: str) -> Value:
        """The output called `name`; IRError for a name that is none."""
        if name not in self.output_names:
            near = nearest(name, self.output_names)
            hint = (
                f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(self.output_names) or 'none'}"
            )
            raise IRError(f"graph @{self.name} has no output {name!r}; {hint}")
        found: Value = self.outputs[self.output_names.index(name)]
        return found

    def replace(self, outputs: Sequence[Value], params: Sequence[Value] | None = None) -> Self:
        """The same graph with other outputs, one for each of its names; itself if nothing differs."""
        wanted = f"a list of values, one for each of {', '.join(self.output_names)}"
        given = _listed(self.name, "outputs", outputs, wanted)
        new = self.params if params is None else _listed(self.name, "params", params, "a list of values of li.input")
        if len(given) != len(self.outputs):
            raise VerifyError(f"graph: outputs are {len(given)} values; expected {wanted}\n  in graph @{self.name}")
        if _same_arg(given, self.outputs) and _same_arg(new, self.params):
            return self
        return type(self)(self.name, new, dict(zip(self.output_names, given, strict=True)))

    def __str__(self) -> str:
        return print_graph(self)

    def __repr__(self) -> str:
        return f"<graph @{self.name}: {len(self.params)} inputs, {len(self.outputs)} outputs>"

    def _repr_svg_(self) -> str | None:
        return shown_by("graph_svg", self)

    def _repr_html_(self) -> str | None:
        return shown_by("graph_html", self)


def check_name(name: object, what: str, order: str) -> None:
    """Refuse what cannot name a graph or a program; the text form has names that are no words in quotes."""
    if not isinstance(name, str):
        raise VerifyError(f"{what}: the name is {type(name).__name__}, not text; the order is {order}")
    if not name or not name.isprintable():
        raise VerifyError(f"{what}: the name is {name!r:.80}; it is text of one letter or more that can be printed")


def _listed(name: str, what: str, values: Any, wanted: str) -> tuple[Any, ...]:
    """The values of a list; a single value, a dict or what is no list at all is refused."""
    one = isinstance(values, (Value, Mapping, str, bytes)) or not isinstance(values, Iterable)
    if one:
        got = "one value" if isinstance(values, Value) else type(values).__name__
        raise VerifyError(f"graph: {what} is {got}; expected {wanted}\n  in graph @{name}")
    return tuple(values)


def check_structure(graph: Graph) -> None:
    """Names are unique and every parameter is an input."""
    where = f"graph @{graph.name}"
    for what, values in (("input", graph.params), ("output", graph.outputs)):
        for v in values:
            if not isinstance(v, Value):
                several = getattr(v, "_fields", ())  # of what a layer gives
                one = f"; take one of its values: {', '.join(map(str, several))}" if several else ""
                problem = f"an {what} is {type(v).__name__}, not a value of the graph{one}"
                raise VerifyError(f"graph: {problem}\n  in {where}")
    for p in graph.params:
        if p.op != "parameter":
            raise VerifyError(f"graph: an input is a value of {p.op}, not of li.input\n  in {where}")
    _unique(graph.input_names, "input", where)
    _unique(graph.output_names, "output", where)
    inputs = set(graph.params)
    weights: dict[str, object] = {}
    for n in graph.nodes:
        if n.op.name == "parameter" and n.values[0] not in inputs:
            problem = f"reads {n.attrs['name']!r}, which is not an input of the graph"
            raise VerifyError(message("graph", problem, (), n.loc, where))
        if n.op.name == "weight" and weights.setdefault(n.attrs["name"], n) is not n:
            problem = f"two weights are called {n.attrs['name']!r}; make one, and use its value in both places"
            raise VerifyError(message("weight", problem, (), n.loc, where))


def _unique(names: Iterable[str], what: str, where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise VerifyError(f"graph: an {what} has no name\n  in {where}")
        if not is_text(name):
            raise VerifyError(f"graph: the name of an {what}, {name!r:.80}, has half of a surrogate pair\n  in {where}")
        if name in seen:
            raise VerifyError(f"graph: two {what}s are called {name!r}\n  in {where}")
        seen.add(name)


def topological(roots: Iterable[Node], done: set[Node] | None = None) -> Iterator[Node]:
    """The roots and all they read, each after its inputs; iterative, so depth has no limit.

    done: nodes that were met before with all that they read; those that are given now are added.
    """
    done = set() if done is None else done
    for root in roots:
        stack: list[tuple[Node, int]] = [(root, 0)]
        while stack:
            node, i = stack.pop()
            if node in done:
                continue
            while i < len(node.inputs) and node.inputs[i].node in done:
                i += 1
            if i < len(node.inputs):
                stack.append((node, i + 1))
                stack.append((node.inputs[i].node, 0))
            else:
                done.add(node)
                yield node


Rule: TypeAlias = "Callable[[Node], Sequence[Value] | None]"


def map_arg(arg: Arg, env: Mapping[Value, Value]) -> Arg:
    """The argument with every value looked up in `env` (kept where absent)."""
    if isinstance(arg, tuple):
        return tuple(env.get(v, v) for v in arg)
    return None if arg is None else env.get(arg, arg)


def transform(graph: Graph, rule: Rule) -> Graph:
    """Rebuild `graph` in order; `rule` sees each node over its new inputs and may give other values
    for its results.

    Returns the same object if no rule gave anything. The types of replacements must be those
    replaced.
    """
    env: dict[Value, Value] = {}
    for old in graph.nodes:
        node = old.with_args(tuple(map_arg(a, env) for a in old.args)) if env else old
        new = rule(node)
        if new is None:
            new = node.values
        for o, v in zip(old.values, new, strict=True):
            if v is not o:
                if v.type != o.type:
                    problem = f"was replaced by a value of another type, {v.type}"
                    raise IRError(message(old.op.name, problem, [("result", o.type)], old.loc))
                env[o] = v
    return graph.replace([env.get(v, v) for v in graph.outputs])


def substitute(graph: Graph, new: Mapping[Value, Value]) -> Graph:
    """`graph` with values replaced.

    A replacement may read the value it replaces, and others that are replaced.
    """
    if not new:
        return graph
    env: dict[Value, Value] = {}

    def rebuilt(root: Value) -> Value:
        for n in topological([root.node], seen):
            for o, v in zip(n.values, _over(n).values, strict=True):
                env[o] = v
        return env[root]

    def _over(n: Node) -> Node:
        return n.with_args(tuple(map_arg(a, env) for a in n.args))

    seen: set[Node] = set()
    for old in graph.nodes:
        for o, v in zip(old.values, _over(old).values, strict=True):
            env[o] = v
        seen.add(old)
        for o in old.values:
            if o in new:
                if new[o].type != o.type:
                    problem = f"was replaced by a value of another type, {new[o].type}"
                    raise IRError(message(old.op.name, problem, [("result", o.type)], old.loc))
                env[o] = rebuilt(new[o])
    return graph.replace([env[v] for v in graph.outputs])
