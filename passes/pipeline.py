"""The pipeline: passes read from a text, run in order, verified after each; the culprit is named.

"default,precision{weights=bf16},cse"      the text form of a pipeline
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lstm_ir.ir.errors import LstmIrError, OptionError, PassError, message
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.near_names import hint
from lstm_ir.ir.opdef import Level
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.verify import verify
from lstm_ir.passes.base import KernelPass, Miss, Notes, Pass
from lstm_ir.passes.pipelines import NAMED, PRECISIONS, registry
from lstm_ir.passes.stages import REMOVES, SOURCE


@dataclass(frozen=True)
class PassStep:
    """One pass of a run."""

    name: str
    before: Graph
    after: Graph
    seconds: float
    fired: tuple[str, ...]
    misses: tuple[Miss, ...]

    @property
    def changed(self) -> bool:
        """Whether the pass rewrote anything."""
        return self.after is not self.before


@dataclass(frozen=True)
class PassResult:
    """The graph after the last pass, and every step."""

    graph: Graph
    steps: tuple[PassStep, ...] = field(default=())


@dataclass(frozen=True)
class Pipeline:
    """Passes in order."""

    passes: tuple[Pass, ...]

    @classmethod
    def parse(cls, text: str) -> Pipeline:
        """The pipeline written as `a,b{x=1},c`; a part may be a named pipeline, such as `default`.

        Raises PassError for an unknown pass or option.
        """
        passes: list[Pass] = []
        for part in _split(text):
            named = NAMED.get(part)
            passes.extend([_parse_pass(part)] if named is None else cls.parse(named).passes)
        return cls(tuple(passes))

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))

    def with_precision(self, word: str) -> Pipeline:
        """The same passes, and those that store weights as `word` says: bf16, f16, int8 or int8-dynamic."""
        if word not in PRECISIONS:
            raise OptionError(f"precision is {word!r}{hint(word, PRECISIONS, _listed(', not one of', PRECISIONS))}")
        first, last = map(self.parse, PRECISIONS[word])
        wanted = next(p for p in last.passes if p.name == "precision")
        for found in self.passes:
            if found.name == wanted.name and found != wanted:  # what the first one stored the second one would leave
                raise OptionError(f"precision is {word!r}, and the pipeline has the pass {found}: leave one out")
        return Pipeline((*first.passes, *self.passes, *last.passes))

    def with_kernels(self, wanted: bool) -> Pipeline:
        """The same passes, where the caller chose whether loops become kernels."""
        return Pipeline(tuple(
            replace(p, kernels="yes" if wanted else "no") if isinstance(p, KernelPass) else p
            for p in self.passes
        ))  # fmt: skip

    def run(
        self, graph: Graph, target: TargetInfo | None = None, observe: Callable[[PassStep], None] | None = None
    ) -> PassResult:
        """Run all passes, verifying after each; PassError names the pass that failed.

        After a pass that ends a stage (`passes/stages.py`), ops of that stage are refused.
        """
        verify(graph)
        steps: list[PassStep] = []
        levels = SOURCE
        for p in self.passes:
            levels = levels - {REMOVES[p.name]} if p.name in REMOVES else levels
            step = self._one(p, graph, target, [s.name for s in steps], levels)
            steps.append(step)
            graph = step.after
            if observe is not None:
                observe(step)
        return PassResult(graph, tuple(steps))

    def _one(
        self, p: Pass, graph: Graph, target: TargetInfo | None, before: list[str],
        levels: frozenset[Level],
    ) -> PassStep:  # fmt: skip
        notes = Notes()
        start = time.perf_counter()
        past = ", ".join(before) if before else "none"
        context = f"graph @{graph.name}, in pass {p.name} (number {len(before) + 1}, after {past})"
        try:
            after = p.run(graph, notes, target)
            if after is not graph or p.name in REMOVES:
                verify(after, levels)
                _same_signature(graph, after)
        except LstmIrError as e:
            raise PassError(f"{e}\n  in {context}") from e
        except RecursionError as e:
            raise PassError(message(p.name, "recursed too deep", (), None, context)) from e
        seconds = time.perf_counter() - start
        return PassStep(p.name, graph, after, seconds, tuple(notes.fired), tuple(notes.misses))


def _same_signature(before: Graph, after: Graph) -> None:
    old = [(n, v.type) for n, v in zip(before.output_names, before.outputs, strict=True)]
    new = [(n, v.type) for n, v in zip(after.output_names, after.outputs, strict=True)]
    if old != new or before.input_names != after.input_names:
        raise PassError(f"the signature changed from {old} to {new}")


def _split(text: str) -> Iterator[str]:
    for m in re.finditer(r"([^,{}]+(\{[^{}]*\})?)\s*(,|$)|(\S)", text.strip()):
        if m.group(4):
            raise PassError(f"a pipeline is a,b{{x=1}},c; got {m.group(4)!r} in {text!r}")
        yield m.group(1).strip()


def _parse_pass(text: str) -> Pass:
    name, _, rest = text.partition("{")
    cls = registry().get(name.strip())
    if cls is None:
        there = sorted(registry())
        meant = hint(name.strip(), (*there, *NAMED), _listed("; there are", there))
        raise PassError(f"there is no pass {name.strip()!r}{meant}")
    options: dict[str, Any] = {}
    known = {f.name: f for f in dataclasses.fields(cls)}
    for item in filter(None, rest.rstrip("}").split(",")):
        key, _, value = item.partition("=")
        if key.strip() not in known:
            meant = hint(key.strip(), known, _listed("; it has", list(known) or ["none"]))
            raise PassError(f"pass {cls.name} has no option {key.strip()!r}{meant}")
        options[key.strip()] = _value(value.strip(), known[key.strip()].default, cls.name, key.strip())
    return cls(**options)


def _listed(words: str, names: Iterable[str]) -> str:
    return f"{words} {', '.join(names)}"


def _value(text: str, default: Any, name: str, key: str) -> Any:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text]
        return type(default)(text)
    except (ValueError, KeyError):
        raise PassError(f"pass {name}: option {key} is {text!r}, not a {type(default).__name__}") from None


def for_target(target: TargetInfo | None) -> Pipeline:
    """The passes that bring a source graph to the scheduled stage for `target`.

    None is plain StableHLO. One text serves all targets: passes read the target where it matters.
    """
    return Pipeline.parse(NAMED["default"])
