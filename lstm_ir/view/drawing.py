"""A graph as boxes and lines with places: what a node's box says, its ports, the body of a loop inside its box.

Numbers that all elements of a value are stand at the operand that reads them. A carry that goes back to the next step
is a line around the body. Bodies of one structure are drawn once: `Sheet` collects them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from lstm_ir.ir.carry_kinds import circles, described, words
from lstm_ir.ir.data import Data
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Level, Trait
from lstm_ir.view.folding import Folded
from lstm_ir.view.layers import DrawnEdge, Item, Point, arrange

CHAR, SMALL, LINE, ROW, PAD = 6.35, 5.45, 14.0, 12.0, 6.0  # pixels: letters, of ports; lines, of ports; inside
SIDE = 9.0  # between lines around a body
LONGEST = 34  # letters of a name, or of a line of attributes


@dataclass
class DrawnWord:
    """A word at a place: its left, the line under it, and its style: t bold, d dim, p small. `tail` follows it, dim."""

    x: float
    y: float
    text: str
    style: str
    tail: str = ""

    @property
    def w(self) -> float:
        """How wide it is, about."""
        letters = len(self.text) + (len(self.tail) + 1 if self.tail else 0)
        return letters * (SMALL if self.style.startswith("p") else CHAR)


@dataclass
class Box:
    """A node: its rectangle, words, tooltip, and what is drawn inside."""

    x: float
    y: float
    w: float
    h: float
    style: str
    title: str
    texts: list[DrawnWord] = field(default_factory=list)
    inner: Drawing | None = None


@dataclass
class Line:
    """Points that are joined by vertical lines and curves in turn; `back`: corners of a line around a body."""

    points: list[Point]
    back: bool = False


@dataclass
class Drawing:
    """Boxes and lines in one frame of coordinates, those of inner drawings included."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def move(self, dx: float, dy: float) -> None:
        """Shift everything."""
        for b in self.boxes:
            b.x, b.y = b.x + dx, b.y + dy
            for t in b.texts:
                t.x, t.y = t.x + dx, t.y + dy
            if b.inner is not None:
                b.inner.move(dx, dy)
        for line in self.lines:
            line.points = [(x + dx, y + dy) for x, y in line.points]


@dataclass(frozen=True)
class Coloured:
    """How long a node takes, for its box: the step of the scale, and the words."""

    step: int
    words: str


@dataclass
class _UnplacedBox:
    """A box before it has a place: its words by rows, and its ports."""

    box: Box
    item: Item
    carry: int = -1  # of a body's parameter or result


class Sheet:
    """Draws graphs; what they share is folded, and what takes time is coloured."""

    def __init__(self, folded: Folded, times: Mapping[Node, Coloured] | None = None) -> None:
        self.folded, self.times = folded, times

    def draw(self, graph: Graph, loop: Loop | None = None, alone: bool = False) -> Drawing:
        """The graph, or the body of a loop with its carries going back.

        alone: the loop is the only one with this body, whose parameters may be called as what they are given.
        """
        made: list[_UnplacedBox] = []
        at: dict[Node, int] = {}
        links: list[DrawnEdge] = []
        hidden = self._hidden(graph, loop)
        roles = {} if loop is None else _roles(loop, alone)
        for n in graph.nodes:
            if n in hidden:
                continue
            at[n] = len(made)
            ports = list(_ports(n))
            made.append(self._node(n, ports, roles.get(n.values[0]) if n.values else None))
            drawn = [p.value for p in ports if p.value.node in at]
            links += [DrawnEdge(at[v.node], v.index, at[n], i) for i, v in enumerate(drawn)]
        for i, (name, v) in enumerate(zip(graph.output_names, graph.outputs, strict=True)):
            number = None if v.node in at else splat(v)
            made.append(_output(name, v, i, loop, number))
            if self.times is not None:
                made[-1].box.style = "k-elementwise"
            if v.node in at:
                links.append(DrawnEdge(at[v.node], v.index, len(made) - 1, 0))
        found = arrange([m.item for m in made], links)
        out = Drawing(found.width, found.height, [_placed(m) for m in made], [Line(w) for w in found.ways])
        if loop is not None:
            _carry_back(out, made)
        return out

    def _hidden(self, graph: Graph, loop: Loop | None) -> set[Node]:
        """Nodes without a box: numbers that stand at their readers, and parameters of a body that nothing reads."""
        hidden: set[Node] = set()
        for n in graph.nodes:
            if len(n.values) == 1 and splat(n.values[0]) is not None:
                hidden.add(n)
        if loop is not None:
            carried = {p.node for p in loop.carry_params}
            results = {v.node for v in graph.outputs}
            hidden |= {p.node for p in graph.params if p not in graph.users and p.node not in carried | results}
        return hidden

    def _node(self, n: Node, ports: Sequence[OperandPort], role: tuple[str, str, int] | None) -> _UnplacedBox:
        kind, lines = _kind(n), list(self._lines(n))
        carry = -1
        if role is not None:
            word, name, carry = role
            called = _cut_off(name if name.startswith(word) else f"{word} {name}")
            lines[0] = f"{called}  {n.types[0]}"
        inner = None
        body = next((a for a in n.attrs.values() if isinstance(a, Graph)), None)
        if body is not None:
            letter = self.folded.letter(body)
            if letter:
                lines.append(f"body {letter}, drawn beside")
            else:
                inner = self.draw(body, Loop.of(n, until=True), alone=True)
        style, time = f"k-{kind}", None
        if self.times is not None:  # the colours are those of times alone
            style, time = "k-elementwise", self.times.get(n)
        if time is not None:
            style = f"s{time.step}"
            lines.append(time.words)
        labels = _labels(ports) if len(ports) > 1 else []
        drawn = [i for i, p in enumerate(ports) if splat(p.value) is None]
        outs = _results(n) if len(n.values) > 1 else []
        place = "first" if n.op.name == "parameter" and (role is None or carry >= 0) else ""
        return _boxed(lines, style, _title(n), labels, drawn, outs, inner, place, carry, heat=time is not None)

    def _lines(self, n: Node) -> Iterator[str]:
        name = str(n.attrs["name"]) if n.op.name in ("parameter", "weight") else n.op.name
        kind = f"  {n.types[0]}" if len(n.types) == 1 else ""
        yield _cut_off(name) + kind
        text = ", ".join(_attributes(n))
        if text:
            yield _cut_off(text)
        loop = Loop.of(n, until=True)
        if loop is not None:
            names = [str(p.node.attrs["name"]) for p in loop.carry_params]
            yield from (_cut_off(words(c, names)) for c in circles(loop))


@dataclass(frozen=True)
class OperandPort:
    """An operand of a node: its name, and the value that it reads."""

    name: str
    value: Value


def _ports(n: Node) -> Iterator[OperandPort]:
    """The operands that are given, in order."""
    loop = Loop.of(n, until=True)
    names = {} if loop is None else {
        "consts": [p.node.attrs["name"] for p in loop.const_params],
        "init": [p.node.attrs["name"] for p in loop.carry_params],
        "xs": [p.node.attrs["name"] for p in loop.x_params],
    }  # fmt: skip
    for spec, a in zip(n.op.operands, n.args, strict=True):
        if isinstance(a, tuple):
            given = names.get(spec.name, [f"{spec.name}{i}" for i in range(len(a))])
            yield from (OperandPort(name, v) for name, v in zip(given, a, strict=True))
        elif a is not None:
            yield OperandPort(spec.name, a)


def _cut_off(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _labels(ports: Sequence[OperandPort]) -> list[str]:
    out = []
    for p in ports:
        number = splat(p.value)
        out.append(p.name if number is None else f"{p.name}={_number(number)}")
    return out


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower()


def _results(n: Node) -> list[str]:
    out: list[str] = []
    for name, t in n.results:
        out += [f"{name}{i}" for i in range(len(t))] if isinstance(t, tuple) else [name]
    return out


def _roles(loop: Loop, alone: bool) -> dict[Value, tuple[str, str, int]]:
    """What a parameter of the body is, what it is called, and the number of a carry."""
    own = {p: str(p.node.attrs["name"]) for p in loop.body.params}
    given = {p: str(v.node.attrs["name"]) for p, v in loop.operands() if v.op in ("weight", "parameter")}
    called = own | given if alone else own
    out = {p: ("const", called[p], -1) for p in loop.const_params}
    out |= {p: ("carry", own[p], i) for i, p in enumerate(loop.carry_params)}
    out |= {p: ("row", called[p], -1) for p in loop.x_params}
    return out | {loop.step: ("number", own[loop.step], -1)}


def _output(name: str, v: Value, i: int, loop: Loop | None, number: Any) -> _UnplacedBox:
    carries = 0 if loop is None else len(loop.init)
    carry = i if loop is not None and i < carries else -1
    if loop is not None:
        name = f"next {loop.carry_params[i].node.attrs['name']}" if carry >= 0 else f"row ys{i - carries}"
    short = _cut_off(name)
    lines = [f"→ {short}"] if number is None else [f"→ {short} = {_number(number)}"]
    return _boxed(lines, "k-input", f"output {name}: {v.type}", [], [0], [], None, "last", carry)


def _boxed(
    lines: list[str], style: str, title: str, labels: list[str], drawn: Sequence[int], outs: list[str],
    inner: Drawing | None, place: str, carry: int, heat: bool = False,
) -> _UnplacedBox:  # fmt: skip
    """The box with its left top at 0, its words in rows: operands, lines, what is inside, results."""
    head, tail = ROW if labels else 0.0, ROW if outs else 0.0
    inside_w, inside_h = (0.0, 0.0) if inner is None else (inner.width, inner.height + PAD)
    wide = [len(line) * CHAR for line in lines]
    wide += [sum(len(t) * SMALL + PAD for t in row) - PAD for row in (labels, outs) if row]
    w = max(*wide, inside_w, 20.0) + 2 * PAD
    h = head + len(lines) * LINE + inside_h + tail + PAD
    dim = "" if heat else "d"
    top, texts = _row(labels, w, ROW - 2.0)
    name, _, kind = lines[0].partition("  ")
    texts.append(DrawnWord(PAD, head + LINE - 2.0, name, "t h" if heat else "t", kind))
    for i, line in enumerate(lines[1:], 2):
        texts.append(DrawnWord(PAD, head + LINE * i - 2.0, line, dim))
    bottom, results = _row(outs, w, h - 3.0)
    texts += results
    if heat:
        texts = [DrawnWord(t.x, t.y, t.text, "p h" if t.style == "p" else t.style, t.tail) for t in texts]
    if inner is not None:
        inner.move((w - inner.width) / 2, head + len(lines) * LINE + PAD / 2)
    tops = tuple(top[i] for i in drawn) if labels else (w / 2,) * max(1, len(drawn))
    item = Item(w, h, tops, tuple(bottom) if outs else (w / 2,), place)
    return _UnplacedBox(Box(0.0, 0.0, w, h, style, title, texts, inner), item, carry)


def _row(words: list[str], w: float, y: float) -> tuple[list[float], list[DrawnWord]]:
    """Small words spread over a width, each with the middle where its line ends."""
    need = sum(len(t) * SMALL for t in words)
    gap = (w - 2 * PAD - need) / max(1, len(words))
    x, middles, texts = PAD + gap / 2, [], []
    for t in words:
        long = len(t) * SMALL
        texts.append(DrawnWord(x, y, t, "p"))
        middles.append(x + long / 2)
        x += long + gap
    return middles, texts


def _placed(m: _UnplacedBox) -> Box:
    shell = Drawing(boxes=[m.box])
    shell.move(m.item.x, m.item.y)
    return m.box


def _carry_back(d: Drawing, boxes: list[_UnplacedBox]) -> None:
    """A line from each new carry around the right side of the body to the carry's parameter."""
    ends = {m.carry: m.box for m in boxes if m.carry >= 0 and m.item.where == "last"}
    starts = {m.carry: m.box for m in boxes if m.carry >= 0 and m.item.where == "first"}
    pairs = [(k, ends[k], starts[k]) for k in sorted(ends.keys() & starts.keys())]
    room = SIDE * (len(pairs) + 1)
    d.move(0.0, room)
    for i, (_, end, start) in enumerate(pairs):
        side, under = d.width + SIDE * (i + 1), d.height + room + SIDE * (i + 1)
        over = room - SIDE * (i + 1)
        x0, x1 = end.x + end.w / 2, start.x + start.w / 2
        points = [(x0, end.y + end.h), (x0, under), (side, under), (side, over), (x1, over), (x1, start.y)]
        d.lines.append(Line(points, back=True))
    if pairs:
        d.width += room
        d.height += 2 * room


def _attributes(n: Node) -> Iterator[str]:
    """What distinguishes this node, short; the tooltip has everything."""
    if n.op.name == "slice":
        a = n.attrs
        (x,) = n.inputs
        cuts = zip(a["start_indices"], a["limit_indices"], a["strides"], x.shape, strict=True)
        yield f"[{', '.join(_cut(*c) for c in cuts)}]"
        return
    if n.op.name == "dot_general":
        yield _letters(n)
        return
    loop = Loop.of(n, until=True)
    if loop is not None:
        yield f"{loop.length} steps"
        names = [p.node.attrs["name"] for p in loop.x_params] + [f"ys{i}" for i in range(len(loop.ys))]
        back = [name for name, flag in zip(names, loop.reverse, strict=True) if flag]
        if back:
            yield f"from the last: {', '.join(back)}"
        return
    if n.op.name == "parameter":
        return
    for key, spec in n.op.attrs.items():
        value = n.attrs[key]
        if key in ("name", "shape") or isinstance(value, (Graph, Data)) or value in (spec.default, ()):
            continue
        yield f"{_SHORT.get(key, key)}={_short(value)}"


_SHORT = {"broadcast_dimensions": "axes", "dimensions": "axes", "permutation": "axes"}


def _letters(n: Node) -> str:
    """A product as einsum writes it."""
    fresh = iter(ascii_lowercase + ascii_uppercase)
    sides = ["?" * v.rank for v in n.inputs]
    a = n.attrs
    pairs = [(a[f"lhs_{k}_dimensions"], a[f"rhs_{k}_dimensions"]) for k in ("batching", "contracting")]
    shared = [list(zip(*p, strict=True)) for p in pairs]
    named: list[dict[int, str]] = [{}, {}]
    for i, j in [*shared[0], *shared[1]]:
        named[0][i] = named[1][j] = next(fresh)
    free = [[axis for axis in range(len(side)) if axis not in known] for side, known in zip(sides, named, strict=True)]
    for known, axes in zip(named, free, strict=True):
        known.update((axis, next(fresh)) for axis in axes)
    read = ["".join(known[axis] for axis in range(len(side))) for side, known in zip(sides, named, strict=True)]
    batch = "".join(named[0][i] for i, _ in shared[0])
    return f"{read[0]},{read[1]}->{batch}{''.join(k[i] for k, axes in zip(named, free, strict=True) for i in axes)}"


def _cut(start: Any, limit: Any, stride: int, size: Any) -> str:
    text = ":" if (start, limit) == (0, size) else f"{'' if start == 0 else start}:{'' if limit == size else limit}"
    return text if stride == 1 else f"{text}:{stride}" if text != ":" else f"::{stride}"


def _short(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _title(n: Node) -> str:
    operands = ", ".join(f"{p.name}: {p.value.type}" for p in _ports(n))
    attrs = ", ".join(f"{k}={_short(v)}" for k, v in n.attrs.items() if not isinstance(v, (Graph, Data)))
    loop = Loop.of(n, until=True)
    carries = "" if loop is None else f"\n{described(loop)}"
    return f"{n.op.name}({operands}) {{{attrs}}} : {', '.join(map(str, n.types))}{carries}\n{n.loc}"


def _kind(n: Node) -> str:
    known = {"parameter": "input", "weight": "weight", "constant": "constant", "scan": "loop",
             "dot_general": "product"}  # fmt: skip
    if n.op.name in known:
        return known[n.op.name]
    if n.op.level is not Level.primitive:
        return "recurrent"
    return "shape" if Trait.data_movement in n.op.traits else "elementwise"
