"""Text -> graph or program; the inverse of `printer.py`. Errors carry line, column and a caret."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from lstm_ir.ir.data import Data
from lstm_ir.ir.dims import parse as parse_dim
from lstm_ir.ir.errors import IRError, LstmIrError, ParseError
from lstm_ir.ir.foreign_errors import refusals_become
from lstm_ir.ir.graph import Arg, Graph, Node, Value, make_node
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.location import Loc, at
from lstm_ir.ir.opdef import OPS, REQUIRED, Op
from lstm_ir.ir.program import Program, State
from lstm_ir.ir.sizes import sizes_of_attribute
from lstm_ir.ir.types import DType, TensorType, parse_type
from lstm_ir.ir.verify import DEPTH

DIGITS = 9  # of a line number
GRAMMAR = r"""
start: program | graph
program: "program" "@" name "{" (state | entry)+ "}"
state: "state" name "=" value ":" TYPE ("as" TYPE)?
entry: "entry" name ("bind" "(" bind ("," bind)* ")")? finite? graph
finite: "finite" "(" name ("," name)* ")"
bind: name (READS | WRITES) name
graph: "graph" "@" name "(" params ")" "{" node* "return" outputs "}"
params: (param ("," param)*)?
param: VALUE ":" TYPE
outputs: (output ("," output)*)?
output: (name "=")? VALUE
node: results name "(" args ")" attrs types loc? body*
results: (VALUE ("," VALUE)* "=")?
args: (arg ("," arg)*)?
?arg: VALUE | NONE | many
many: "[" (VALUE ("," VALUE)*)? "]"
attrs: ("{" attr ("," attr)* "}")?
attr: NAME "=" value
?value: RAW | STRING | list
list: "[" (value ("," value)*)? "]"
types: (":" type ("," type)*)?
?type: TYPE | type_list
type_list: "[" (TYPE ("," TYPE)*)? "]"
loc: "@" name ":" (INT | STRING) (READS name)*
body: "with" NAME "{" graph "}"
?name: NAME | STRING
VALUE: /%([A-Za-z_][A-Za-z0-9_.]*|[0-9]+|"([^"\\\n]|\\.)*")/
TYPE: /[a-z]+[0-9]+\[[^\]\n]*\]/
STRING: /"([^"\\\n]|\\.)*"/
NAME: /[A-Za-z_][A-Za-z0-9_.]*/
RAW: /[-+A-Za-z0-9_.][-+*\/A-Za-z0-9_.()]*|\([-+*\/A-Za-z0-9_.()]*/
NONE.2: /_(?![A-Za-z0-9_.])/
READS: "<-"
WRITES: "->"
INT: /[0-9]+/
COMMENT: /\/\/[^\n]*/
%import common.WS
%ignore WS
%ignore COMMENT
"""


@lru_cache(maxsize=1)
def _lark() -> Any:
    import lark

    return lark.Lark(GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=False)


@refusals_become(IRError, "parse")
def parse(text: str, data: Mapping[str, Any] | None = None, file: str = "<text>") -> Graph | Program:
    """The graph or program written as `text`.

    data: arrays by weight name or by hash, for those that the text gives as `sha256(...)`. A weight
    whose array is not given can be printed and rewritten, not run. Raises ParseError.
    """
    import lark

    if not isinstance(text, str):
        raise ParseError(f"parse: takes text, got {type(text).__name__}")
    try:
        tree = _lark().parse(text)
    except lark.exceptions.UnexpectedInput as e:
        got = getattr(e, "token", None) or getattr(e, "char", "")
        what = "the text ends too early" if str(got) == "" else f"unexpected {str(got)[:20]!r}"
        names = getattr(e, "expected", None) or getattr(e, "allowed", None) or ()
        hint = f"; expected {', '.join(sorted(map(_readable, names)))}" if 0 < len(names) <= 6 else ""
        raise _fault(what + hint, text, e.line, e.column) from None
    try:
        return _Reader(text, dict(data or {}), file).start(tree)
    except RecursionError:
        raise ParseError("lists in the text nest too deep") from None


def _readable(terminal: str) -> str:
    known = {
        "LBRACE": "{",
        "RBRACE": "}",
        "LPAR": "(",
        "RPAR": ")",
        "LSQB": "[",
        "RSQB": "]",
        "COMMA": ",",
        "COLON": ":",
        "EQUAL": "=",
        "AT": "@",
        "READS": "<-",
        "WRITES": "->",
    }
    return repr(known[terminal]) if terminal in known else terminal.lower()


def _fault(problem: str, text: str, line: int, column: int) -> ParseError:
    lines = text.removesuffix("\n").split("\n")  # as lark counts them; splitlines ends a line at more
    if not 1 <= line <= len(lines):  # lark gives -1 at the end of the text
        line = len(lines)
        column = len(lines[-1]) + 1
    shown = lines[line - 1].rstrip("\r")
    start = max(0, column - 60)
    excerpt = shown[start : start + 100]
    caret = " " * (column - 1 - start) + "^"
    return ParseError(f"line {line}, column {column}: {problem}\n  {excerpt}\n  {caret}", line, column)


def _unquote(token: str) -> str:
    if not token.startswith('"'):
        return str(token)
    out: list[str] = []
    chars = iter(token[1:-1])
    for c in chars:
        if c == "\\":
            c = next(chars)
            c = {"n": "\n", "r": "\r"}.get(c, c)
        out.append(c)
    return "".join(out)


class _Reader:
    def __init__(self, text: str, data: dict[str, Any], file: str) -> None:
        self.text, self.data, self.file = text, data, file

    def fail(self, problem: str, at: Any) -> ParseError:
        meta = getattr(at, "meta", at)
        return _fault(problem, self.text, getattr(meta, "line", 1), getattr(meta, "column", 1))

    def start(self, tree: Any) -> Graph | Program:
        top = tree.children[0]
        return self.graph(top, 0, frozenset()) if top.data == "graph" else self.program(top)

    def program(self, tree: Any) -> Program:
        state: dict[str, State] = {}
        entries: dict[str, Graph] = {}
        binding: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        finite: dict[str, tuple[str, ...]] = {}
        for part in tree.children[1:]:
            name = _unquote(part.children[0])
            if part.data == "state":
                if name in state:
                    raise self.fail(f"two states are called {name!r}", part)
                kind = self.type(part.children[2])
                start = self.literal(part.children[1], kind, name)
                whole = self.type(part.children[3]) if len(part.children) > 3 else kind
                try:
                    state[name] = State(name, start, whole)
                except IRError as e:
                    raise self.fail(str(e), part) from None
                continue
            if name in entries:
                raise self.fail(f"two entries are called {name!r}", part)
            entries[name] = self.graph(part.children[-1], 0, frozenset())
            middle = part.children[1:-1]
            if middle and middle[-1].data == "finite":
                finite[name] = tuple(_unquote(n) for n in middle.pop().children)
            binding[name] = self.binding(middle)
        try:
            bound = {k: b for k, b in binding.items() if b[0] or b[1]}
            return Program(_unquote(tree.children[0]), entries, state, bound, finite)
        except LstmIrError as e:
            raise self.fail(str(e), tree) from None

    def binding(self, parts: list[Any]) -> tuple[dict[str, str], dict[str, str]]:
        reads: dict[str, str] = {}
        writes: dict[str, str] = {}
        for b in parts:
            port, arrow, name = b.children
            bound = reads if arrow.type == "READS" else writes
            if _unquote(port) in bound:
                raise self.fail(f"{_unquote(port)!r} is bound twice", port)
            bound[_unquote(port)] = _unquote(name)
        return reads, writes

    def graph(self, tree: Any, depth: int, outer: frozenset[str]) -> Graph:
        if depth > DEPTH:
            raise self.fail(f"bodies nest deeper than {DEPTH}", tree)
        name, params, *nodes, outputs = tree.children
        env: dict[str, Value] = {}
        inputs: list[Value] = []
        for p in params.children:
            token, kind = p.children
            if str(token) in env:
                raise self.fail(f"{token} is defined twice", token)
            with at(Loc(self.file, p.meta.line)):
                inputs.append(parameter(_unquote(token[1:]), self.type(kind)))
            env[str(token)] = inputs[-1]
        sizes = outer.union(*(v.type.names for v in inputs))
        for n in nodes:
            self.node(n, env, depth, sizes)
        results: dict[str, Value] = {}
        for i, o in enumerate(outputs.children):
            key = f"out{i}" if len(o.children) == 1 else _unquote(o.children[0])
            if key in results:
                raise self.fail(f"two outputs are called {key!r}", o)
            results[key] = self.value(o.children[-1], env)
        try:
            return Graph(_unquote(name), inputs, results)
        except IRError as e:
            raise self.fail(str(e), name) from None

    def value(self, token: Any, env: dict[str, Value]) -> Value:
        found = env.get(str(token))
        if found is None:
            raise self.fail(f"{token} is not defined above", token)
        return found

    def type(self, token: Any) -> TensorType:
        try:
            return parse_type(str(token))
        except IRError as e:
            raise self.fail(str(e), token) from None

    def node(self, tree: Any, env: dict[str, Value], depth: int, sizes: frozenset[str]) -> None:
        results, name, args, attrs, types, *rest = tree.children
        op = OPS.get(_unquote(name))
        if op is None or op.name == "parameter":
            raise self.fail(f"there is no op {_unquote(name)!r}", name)
        written = [self.type_entry(t) for t in types.children]
        flat = [t for w in written for t in (w if isinstance(w, tuple) else (w,))]
        values = self.attrs(op, attrs, flat, name)
        loc = Loc(self.file, tree.meta.line)
        for part in rest:
            if part.data == "loc":
                file, place, *via = (t for t in part.children if getattr(t, "type", "") != "READS")
                if place.type == "INT" and len(place) > DIGITS:
                    raise self.fail(f"a line number of more than {DIGITS} digits", place)
                line, name_there = (int(place), "") if place.type == "INT" else (0, _unquote(place))
                loc = Loc(_unquote(file), line, tuple(_unquote(v) for v in via), name_there)
            elif (body := str(part.children[0])) in values:
                raise self.fail(f"{op.name}: attribute {body} is given twice", part)
            else:
                values[body] = self.graph(part.children[1], depth + 1, sizes)
        operands = tuple(self.arg(a, env) for a in args.children)
        try:
            node = make_node(op, operands, values, loc)
        except IRError as e:
            raise self.fail(str(e), name) from None
        self.check_sizes(node, sizes, name)
        derived = [t for _, t in node.results]
        if derived != written:
            shown = ", ".join(map(str, derived))
            raise self.fail(f"{op.name}: the text says {', '.join(map(str, written))}, its operands give {shown}", name)
        if len(results.children) != len(node.values):
            raise self.fail(f"{op.name} has {len(node.values)} results, {len(results.children)} are named", tree)
        for token, v in zip(results.children, node.values, strict=True):
            if str(token) in env:
                raise self.fail(f"{token} is defined twice", token)
            env[str(token)] = v

    def check_sizes(self, node: Node, known: frozenset[str], at: Any) -> None:
        """ParseError for a size that no input determines: such a graph does not verify."""
        found = [t.names for t in node.types]
        found += [sizes_of_attribute(a) for a in node.attrs.values() if not isinstance(a, Graph)]
        missing = set[str]().union(*found) - known
        if missing:
            raise self.fail(f"{node.op.name}: the size {min(missing)} is in no input's shape", at)

    def type_entry(self, t: Any) -> Any:
        if getattr(t, "data", None) == "type_list":
            return tuple(self.type(k) for k in t.children)
        return self.type(t)

    def arg(self, a: Any, env: dict[str, Value]) -> Arg:
        if getattr(a, "data", None) == "many":
            return tuple(self.value(v, env) for v in a.children)
        return None if a.type == "NONE" else self.value(a, env)

    def attrs(self, op: Op, tree: Any, types: list[TensorType], at: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        raw: dict[str, Any] = {}
        for a in tree.children:
            if str(a.children[0]) in raw:
                raise self.fail(f"{op.name}: attribute {a.children[0]} is given twice", a)
            raw[str(a.children[0])] = a.children[1]
        for key, value in raw.items():
            spec = op.attrs.get(key)
            if spec is None:
                raise self.fail(f"{op.name} has no attribute {key}", tree)
            if spec.kind == "data":
                name = _unquote(raw["name"]) if getattr(raw.get("name"), "type", "") == "STRING" else None
                out[key] = self.literal(value, types[0] if types else TensorType((), DType.f32), name)
            elif spec.default is None and str(value) == "none":
                out[key] = None
            else:
                out[key] = self.attr(value, spec.kind)
        for key, spec in op.attrs.items():
            if spec.default is REQUIRED and key not in out and spec.kind != "graph":
                raise self.fail(f"{op.name}: attribute {key} is required", at)
        return out

    def attr(self, value: Any, kind: str) -> Any:
        if getattr(value, "data", None) == "list":
            if not kind.endswith("s"):
                raise self.fail(f"a list where one {kind} is expected", value)
            return tuple(self.attr(v, kind[:-1]) for v in value.children)
        text = str(value)
        try:
            if kind == "str":
                if value.type != "STRING":
                    raise ValueError
                return _unquote(text)
            if kind == "bool":
                return {"true": True, "false": False}[text]
            if kind == "int":
                return int(text)
            if kind == "float":
                return float(text)
            if kind == "dtype":
                return DType(text)
            if kind in ("dim", "offset"):
                return parse_dim(text)
        except (ValueError, KeyError, IRError) as e:
            why = f": {e}" if isinstance(e, IRError) else ""
            raise self.fail(f"{text[:40]!r} is not a {kind}{why}", value) from None
        raise self.fail(f"one value where a list ({kind}) is expected", value)

    def literal(self, value: Any, kind: TensorType, name: str | None) -> Data:
        if getattr(value, "data", None) != "list" and str(value).startswith("sha256("):
            return self.by_hash(str(value)[7:-1], kind, name, value)
        shape = tuple(int(d) for d in kind.shape if isinstance(d, int))
        numbers = self.numbers(value, kind)
        try:
            if not kind.is_static:
                raise ValueError("a literal has no named sizes")
            array = np.array(numbers, dtype=kind.dtype.numpy).reshape(shape)
            return Data.of(array, kind.dtype)
        except (ValueError, OverflowError) as e:
            raise self.fail(f"the literal is not a {kind}: {e}", value) from None

    def numbers(self, value: Any, kind: TensorType) -> Any:
        if getattr(value, "data", None) == "list":
            return [self.numbers(v, kind) for v in value.children]
        one = "bool" if kind.dtype is DType.i1 else "float" if kind.dtype.is_float else "int"
        number = self.attr(value, one)
        if one == "float" and "inf" not in str(value).lower():
            with np.errstate(over="ignore"):
                beyond = np.isinf(np.asarray(number).astype(kind.dtype.numpy))
            if beyond:
                raise self.fail(f"{str(value)[:40]} is beyond {kind.dtype.value}", value)
        return number

    def by_hash(self, digest: str, kind: TensorType, name: str | None, at: Any) -> Data:
        for key in (digest, name):
            if key is not None and key in self.data:
                found = Data.of(self.data[key])
                if found.type != kind:
                    raise self.fail(f"the data given for {key!r} is {found.type}, the text says {kind}", at)
                if key == digest and found.sha256 != digest:
                    raise self.fail(f"the data given for {key!r} has another hash", at)
                return found
        return Data(None, kind, digest)
