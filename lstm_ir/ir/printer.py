"""Graph -> text. One node per line; `parser.py` reads it back."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.ir.attributes import same
from lstm_ir.ir.data import Data
from lstm_ir.ir.location import Loc
from lstm_ir.ir.opdef import TypeOrList
from lstm_ir.ir.types import DType

if TYPE_CHECKING:
    from lstm_ir.ir.graph import Arg, Graph, Node, Value
    from lstm_ir.ir.program import Program

INLINE = 16  # constants of more elements are written as their hash
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|[0-9]+")


def print_program(program: Program, locs: bool = False) -> str:
    """All entries; a program that is one graph `main` prints as that graph."""
    if set(program.entries) == {"main"} and not program.state:
        return print_graph(program.entries["main"], locs)
    lines = [f"program @{_quoted(program.name)} {{"]
    for s in program.state.values():
        tail = "" if s.type == s.initial.type else f" as {s.type}"
        head = f"  state {_quoted(s.name)} = {_data(s.initial)}"
        lines.append(f"{head} : {s.initial.type}{tail}")
    for name, g in program.entries.items():
        reads, writes = program.binding.get(name, ({}, {}))
        bound = [f"{_quoted(p)} <- {_quoted(s)}" for p, s in reads.items()]
        bound += [f"{_quoted(p)} -> {_quoted(s)}" for p, s in writes.items()]
        tail = f" bind ({', '.join(bound)})" if bound else ""
        watched = ", ".join(map(_quoted, program.finite.get(name, ())))
        tail += f" finite ({watched})" if watched else ""
        lines.append(f"  entry {_quoted(name)}{tail}")
        lines.extend(f"  {line}" for line in _graph_lines(g, locs))
    lines.append("}")
    return "\n".join(lines) + "\n"


def print_graph(graph: Graph, locs: bool = False) -> str:
    """The graph's text; with `locs`, each node's source line."""
    return "\n".join(_graph_lines(graph, locs)) + "\n"


def named_by_hash(program: Program) -> dict[str, Data]:
    """The arrays, by hash, of which the text has the hash alone."""
    found: dict[str, Data] = {}
    graphs = list(program.entries.values())
    arrays = [s.initial for s in program.state.values()]
    while graphs:
        for n in graphs.pop().nodes:
            for k, spec in n.op.attrs.items():
                if spec.kind == "graph":
                    graphs.append(n.attrs[k])
                elif spec.kind == "data":
                    arrays.append(n.attrs[k])
    for data in arrays:
        if _by_hash(data):
            found.setdefault(data.sha256, data)
    return found


def _graph_lines(graph: Graph, locs: bool) -> Iterator[str]:
    names: dict[Value, str] = {}
    for p in graph.params:
        names[p] = _param(p.node.attrs["name"])
    count = 0
    for n in graph.nodes:
        if n.op.name != "parameter":
            for v in n.values:
                names[v] = f"%{count}"
                count += 1
    params = ", ".join(f"{names[p]}: {p.type}" for p in graph.params)
    yield f"graph @{_quoted(graph.name)}({params}) {{"
    for n in graph.nodes:
        if n.op.name != "parameter":
            yield from (f"  {line}" for line in _node_lines(n, names, locs))
    yield f"  return {', '.join(_outputs(graph, names))}".rstrip()
    yield "}"


def _outputs(graph: Graph, names: dict[Value, str]) -> Iterator[str]:
    for i, (name, v) in enumerate(zip(graph.output_names, graph.outputs, strict=True)):
        yield names[v] if name == f"out{i}" else f"{_quoted(name)}={names[v]}"


def _node_lines(n: Node, names: dict[Value, str], locs: bool) -> Iterator[str]:
    results = ", ".join(names[v] for v in n.values)
    args = ", ".join(_arg(a, names) for a in n.args)
    bodies = [(k, n.attrs[k]) for k, spec in n.op.attrs.items() if spec.kind == "graph"]
    plain = [
        f"{k}={_attr(v, spec.kind)}"
        for (k, spec), v in zip(n.op.attrs.items(), n.attrs.values(), strict=True)
        if spec.kind != "graph" and not _is_default(v, spec.default)
    ]
    attrs = f" {{{', '.join(plain)}}}" if plain else ""
    types = f" : {', '.join(_result(t) for _, t in n.results)}" if n.results else ""
    where = _place(n.loc) if locs else ""
    head = f"{results} = " if results else ""
    line = f"{head}{_quoted(n.op.name)}({args}){attrs}{types}{where}"
    if not bodies:
        yield line
        return
    for i, (k, body) in enumerate(bodies):
        inner = list(_graph_lines(body, locs))
        yield f"{line if not i else '}'} with {k} {{"
        yield from (f"  {text}" for text in inner)
    yield "}"


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and same(value, default)  # -0.0 is not 0.0


def _result(t: TypeOrList) -> str:
    return f"[{', '.join(map(str, t))}]" if isinstance(t, tuple) else str(t)


def _arg(arg: Arg, names: dict[Value, str]) -> str:
    if arg is None:
        return "_"
    if isinstance(arg, tuple):
        return f"[{', '.join(names[v] for v in arg)}]"
    return names[arg]


def _attr(value: Any, kind: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, Data):
        return _data(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_attr(v, kind.rstrip('s')) for v in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number(value)
    return _string(value) if isinstance(value, str) else str(value)


def number(x: float) -> str:
    """A float that reads back as the same float; of a NaN the sign alone."""
    if math.isnan(x):
        return "nan" if math.copysign(1.0, x) > 0 else "-nan"
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return repr(float(x))


def _by_hash(data: Data) -> bool:
    if not data.known or math.prod(int(d) for d in data.type.shape if isinstance(d, int)) > INLINE:
        return True
    return data.type.dtype.is_float and not _has_plain_nans(data.array)


def _has_plain_nans(a: np.ndarray[Any, Any]) -> bool:
    """Whether every NaN has the bits that `nan` or `-nan` is read as."""
    bits = f"u{a.itemsize}"
    plain = np.array([math.nan, -math.nan], a.dtype).view(bits)
    return bool(np.isin(a[np.isnan(a)].view(bits), plain).all())


def _data(data: Data) -> str:
    if _by_hash(data):
        return f"sha256({data.sha256})"
    return _literal(data.array, data.type.dtype)


def _literal(a: np.ndarray[Any, Any], dtype: DType) -> str:
    if not a.size:  # of any shape, such as 1000000000 rows without columns
        return "[]"
    if a.ndim:
        return f"[{', '.join(_literal(x, dtype) for x in a)}]"
    if dtype is DType.i1:
        return "true" if a else "false"
    if not dtype.is_float:
        return str(int(a))
    wide = float(a)
    if dtype is DType.f32 and math.isfinite(wide):  # the shortest text that gives the same f32
        return repr(float(str(np.float32(wide))))
    return number(wide)


def _param(name: str) -> str:
    numeric = name.isdigit()  # a parameter called "0" would read as the first node
    return f"%{name}" if _BARE.fullmatch(name) and not numeric else f"%{_string(name)}"


def _place(loc: Loc) -> str:
    place = _string(loc.node) if loc.node else str(loc.line)
    return f" @ {_quoted(loc.file)}:{place}" + "".join(f" <- {_quoted(r)}" for r in loc.via)


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) and not name.isdigit() else _string(name)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
