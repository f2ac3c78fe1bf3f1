"""Nodes of a TensorFlow graph or of one of its functions, by name, and what they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lstm_ir.ir.errors import ModelError

ENTER = ("Enter", "RefEnter")
EXIT = ("Exit", "RefExit")
SWITCH = ("Switch", "RefSwitch")
MERGE = ("Merge", "RefMerge")
NEXT = ("NextIteration", "RefNextIteration")


@dataclass(frozen=True)
class Ref:
    """One result of a node: of its result `output` (empty in a graph) the tensor `index`; or an argument."""

    node: str
    output: str = ""
    index: int = 0

    def __str__(self) -> str:
        return f"{self.node}:{self.index}" if self.index else self.node


@dataclass(frozen=True, eq=False)
class FunctionNode:
    """A node: what it reads, and the nodes that have to run before it."""

    name: str
    op: str
    inputs: tuple[Ref, ...]
    controls: tuple[str, ...]
    attrs: Mapping[str, Any]


def ref(text: str, owner: str) -> Ref:
    """`name`, `name:1` in a graph, `name:output:1` in a function. owner: who says it, in messages."""
    parts = text.split(":")
    if len(parts) == 1:
        return Ref(text)
    if not parts[-1].isdecimal() or len(parts) > 3 or len(parts[-1]) > 9:
        raise ModelError(f"{owner}: {text!r:.80} names no result of a node")
    return Ref(parts[0], parts[1] if len(parts) == 3 else "", int(parts[-1]))


@dataclass(frozen=True, eq=False)
class WhileFrame:
    """A loop of TensorFlow 1. Its variables are `merges`, each with what it starts as and what it becomes.

    `switches` are those of the variables, `condition` says whether another step is made.
    """

    name: str
    merges: tuple[FunctionNode, ...]
    starts: tuple[FunctionNode, ...]
    nexts: tuple[FunctionNode, ...]
    switches: Mapping[str, int] = field(repr=False)
    condition: FunctionNode


class Body:
    """A graph, or the body of a function with arguments and results."""

    def __init__(
        self, name: str, nodes: Iterable[Any], arguments: Iterable[str] = (), results: Iterable[str] = (),
        result_names: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.name, self.result_names = name, tuple(result_names)
        self.arguments = {a: k for k, a in enumerate(arguments)}
        self.nodes: dict[str, FunctionNode] = {}
        for n in nodes:
            data = tuple(ref(t, name) for t in n.input if not t.startswith("^"))
            controls = tuple(t[1:] for t in n.input if t.startswith("^"))
            if n.name in self.nodes or n.name in self.arguments:
                raise ModelError(f"{name}: two nodes are called {n.name!r:.80}")
            self.nodes[n.name] = FunctionNode(n.name, n.op, data, controls, n.attr)
        self.results = tuple(ref(r, name) for r in results)

    def passed(self, result: Ref) -> Ref:
        """Where a result comes from when nothing but Identity lies between."""
        seen = 0
        while (n := self.nodes.get(result.node)) is not None and n.op == "Identity" and n.inputs:
            result, seen = n.inputs[0], seen + 1
            if seen > len(self.nodes):
                raise ModelError(f"{self.name}: the node {n.name!r:.80} depends on itself")
        return result

    def behind(self, ends: Iterable[str]) -> set[str]:
        """Names of the nodes that have to run for these, themselves among them."""
        todo, seen = list(ends), set[str]()
        while todo:
            name = todo.pop()
            if name not in seen and name in self.nodes:
                seen.add(name)
                todo += [r.node for r in self.nodes[name].inputs] + list(self.nodes[name].controls)
        return seen

    @cached_property
    def read(self) -> frozenset[str]:
        """Names of the nodes whose results other nodes read."""
        return frozenset(r.node for n in self.nodes.values() for r in n.inputs)

    @cached_property
    def frames(self) -> dict[str, WhileFrame]:
        """The loops of TensorFlow 1 by the name of an Exit node, and of each of their switches."""
        merges: dict[str, list[tuple[FunctionNode, FunctionNode, FunctionNode]]] = {}
        for n in self.nodes.values():
            if n.op in MERGE and len(n.inputs) == 2:
                before = [self.nodes.get(r.node) for r in n.inputs]
                for start, after in (before, before[::-1]):
                    if start is None or after is None or not (start.inputs and after.inputs):
                        continue
                    if start.op in ENTER and after.op in NEXT:
                        merges.setdefault(frame_name(start), []).append((n, start, after))
        made: dict[str, WhileFrame] = {}
        for name, variables in merges.items():
            places = {m.name: k for k, (m, _, _) in enumerate(variables)}
            switches, conditions = self._switches(places)
            if len(conditions) != 1:
                continue  # its exits are refused
            frame = WhileFrame(
                name, tuple(m for m, _, _ in variables), tuple(s for _, s, _ in variables),
                tuple(n for _, _, n in variables), switches, self.nodes[conditions.pop()],
            )  # fmt: skip
            made |= dict.fromkeys(switches, frame)
        exits = {n.name: n.inputs[0].node for n in self.nodes.values() if n.op in EXIT and n.inputs}
        return {e: made[s] for e, s in exits.items() if s in made}

    def frame_of(self, name: str) -> str | None:
        """The innermost loop of TensorFlow 1 in which a node stands; None outside of all."""
        todo, seen = [name], set[str]()
        while todo:
            n = self.nodes.get(todo.pop())
            if n is None or n.name in seen or n.op in NEXT:
                continue
            seen.add(n.name)
            if n.op in ENTER:
                return frame_name(n)
            left = self.frames.get(n.name) if n.op in EXIT else None
            # What comes out of a loop stands where that which enters it stands.
            todo += [r.node for s in left.starts for r in s.inputs] if left else [r.node for r in n.inputs]
            todo += () if left else n.controls
        return None

    def _switches(self, places: Mapping[str, int]) -> tuple[dict[str, int], set[str]]:
        """Of a loop's variables the switches, each with the variable's place, and the nodes that decide."""
        switches: dict[str, int] = {}
        conditions: set[str] = set()
        for n in self.nodes.values():
            if n.op in SWITCH and len(n.inputs) == 2 and n.inputs[0].node in places:
                decides = self.nodes.get(n.inputs[1].node)
                if decides is not None and decides.op == "LoopCond" and decides.inputs:
                    switches[n.name] = places[n.inputs[0].node]
                    conditions.add(decides.name)
        return switches, conditions


def frame_name(enter: FunctionNode) -> str:
    """The loop that an Enter node leads into."""
    attr = enter.attrs.get("frame_name")
    return "" if attr is None else attr.s.decode("utf-8", "replace")


def text_attr(node: FunctionNode, name: str) -> str:
    """An attribute that is text; empty where it is absent."""
    return node.attrs[name].s.decode("utf-8", "replace") if name in node.attrs else ""


def function_attr(node: FunctionNode, name: str) -> str:
    """The function that an attribute names; empty where it is absent."""
    return str(node.attrs[name].func.name) if name in node.attrs else ""
