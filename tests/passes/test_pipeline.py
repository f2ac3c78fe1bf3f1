"""Pipelines: text, stages, reports, and what a pass that breaks its contract gets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import zoo

import lstm_ir as li
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.opdef import Level
from lstm_ir.ir.target import TargetInfo
from lstm_ir.passes import base, rewrite
from lstm_ir.passes.base import Notes, Pass
from lstm_ir.passes.pipeline import PassStep, Pipeline, for_target
from lstm_ir.passes.pipelines import NAMED
from lstm_ir.passes.stages import STAGES

KERNELS = TargetInfo("cpu:test", "cpu", kernels=True)


def small() -> Graph:
    x = li.input("x", ("N", 3))
    return Graph("small", [x], {"y": li.tanh(x) * 2.0})


def deep(graph: Graph) -> Iterator[Node]:
    for n in graph.nodes:
        yield n
        for a in n.attrs.values():
            if isinstance(a, Graph):
                yield from deep(a)


# text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*NAMED.values(), "cse", "precision{weights=f16},cse", "fold-constants{limit=4}"])
def test_text_round_trips(text: str) -> None:
    pipeline = Pipeline.parse(text)
    assert Pipeline.parse(str(pipeline)) == pipeline


def test_options_that_are_not_default_are_written() -> None:
    assert str(Pipeline.parse("fold-constants{ limit = 4 } , cse,precision{weights=bf16}")) == (
        "fold-constants{limit=4},cse,precision"
    )


def test_a_named_pipeline_may_stand_among_passes() -> None:
    assert Pipeline.parse("core,decompose") == Pipeline.parse(f"{NAMED['core']},decompose")
    assert Pipeline.parse("default") == for_target(None) == for_target(KERNELS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cse,nothing", "there is no pass 'nothing'; there are canonicalize, chunk-states, cse, "),
        ("fold-constants{size=3}", "pass fold-constants has no option 'size'; it has limit"),
        ("cse{size=3}", "pass cse has no option 'size'; it has none"),
        ("fold-constants{limit=many}", "pass fold-constants: option limit is 'many', not a int"),
        ("cse{", "a pipeline is a,b"),
    ],
)
def test_wrong_text(text: str, message: str) -> None:
    with pytest.raises(li.PassError) as e:
        Pipeline.parse(text)
    assert message in str(e.value)


def test_no_text_is_no_passes() -> None:
    graph = small()
    assert Pipeline.parse("").run(graph).graph is graph


# stages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", zoo.ZOO)
def test_stages_hold_what_their_table_says(name: str) -> None:
    graph = zoo.get(name).graph
    for text, stage in (("core", "core"), ("o0", "scheduled"), ("default", "scheduled")):
        made = Pipeline.parse(text).run(graph).graph
        assert {n.op.level for n in deep(made)} <= STAGES[stage]
        li.verify(made, STAGES[stage])
    for info in (KERNELS, KERNELS._replace(kernels=False)):
        li.verify(for_target(info).run(graph, info).graph, STAGES["scheduled"])


@dataclass(frozen=True)
class Idle(Pass):
    """Has the name of the pass that ends a stage, and rewrites nothing."""

    name: ClassVar[str] = "expand"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None) -> Graph:
        return graph


def test_an_op_that_is_left_behind_is_named() -> None:
    x = li.input("x", ("N", 3))
    with pytest.raises(li.PassError) as e:
        Pipeline((*Pipeline.parse("cse").passes, Idle())).run(Graph("g", [x], {"y": li.softmax(x)}))
    assert "softmax: a composite op is left at this stage" in str(e.value)
    assert "in pass expand (number 2, after cse)" in str(e.value)


def test_the_scheduled_graph_has_one_loop_per_layer() -> None:
    made = Pipeline.parse("default").run(zoo.get("two_ways").graph).graph
    assert sum(n.op.name == "scan" for n in deep(made)) == 1


def test_a_loss_and_its_gradient_share_the_forward_loops() -> None:
    """Two layers: two loops there, two back; the second layer is a loop that the user wrote."""
    made = Pipeline.parse("default").run(zoo.get("trained").graph).graph
    assert sum(n.op.name == "scan" for n in deep(made)) == 4


@pytest.mark.parametrize("name", ["tagger", "four_dots", "gru_lengths"])
def test_the_projection_leaves_the_loop_unless_the_target_has_kernels(name: str) -> None:
    def dots_inside(graph: Graph) -> list[int]:
        loops = [n.attrs["body"] for n in graph.nodes if n.op.name == "scan"]
        return [sum(n.op.name == "dot_general" for n in b.nodes) for b in loops]

    graph = zoo.get(name).graph
    gemms = dots_inside(for_target(None).run(graph).graph)
    kernels = for_target(KERNELS).run(graph, KERNELS)
    assert dots_inside(kernels.graph) == [2] * len(gemms)
    assert gemms == [1] * len(gemms)
    (step,) = [s for s in kernels.steps if s.name == "hoist-projection"]
    assert [m.reason for m in step.misses] == ["cpu:test has recurrence kernels, whose schedule places the projection"]


def test_the_graph_has_the_same_size_for_every_t() -> None:
    def made(steps: int) -> str:
        x = li.input("x", (steps, 3, 5))
        w = [li.weight(n, np.ones(s, np.float32)) for n, s in (("w", (28, 5)), ("r", (28, 7)))]
        g = Graph("g", [x], {"y": li.lstm(x, *w)[0]})
        text = str(Pipeline.parse("default").run(g).graph)
        return re.sub(rf"\b{steps}\b", "T", text)

    assert made(1013) == made(10_007)


# reports ----------------------------------------------------------------------------------------


def test_steps_are_observed_in_order() -> None:
    seen: list[PassStep] = []
    result = Pipeline.parse("cse,canonicalize").run(small(), observe=seen.append)
    assert [s.name for s in seen] == ["cse", "canonicalize"]
    assert tuple(seen) == result.steps
    assert not seen[0].changed
    assert seen[0].after is seen[0].before
    assert seen[0].seconds >= 0


def test_what_fired_and_what_was_left_alone() -> None:
    result = Pipeline.parse("default").run(zoo.get("wide_dots").graph)
    (step,) = [s for s in result.steps if s.name == "fuse-gates"]
    assert len(step.fired) == 1
    assert step.fired[0].startswith("2 dots into one at zoo.py:")
    assert {m.reason for m in step.misses} == {
        "its weights lie in another order or number", "its right operand is computed at run time",
    }  # fmt: skip
    assert all("(at zoo.py:" in str(m) for m in step.misses)


def test_nodes_name_their_line_and_the_passes_they_went_through() -> None:
    graph = zoo.get("four_dots").graph
    made = Pipeline.parse("default").run(graph).graph
    lines = {(n.loc.file, n.loc.line) for n in deep(graph)}
    assert {(n.loc.file, n.loc.line) for n in deep(made)} <= lines
    (loop,) = [n for n in made.nodes if n.op.name == "scan"]
    assert loop.loc.via[:2] == ("fuse-cell", "decompose")


def test_joined_nodes_name_each_others_lines() -> None:
    x = li.input("x", (3,))
    a = li.tanh(x)
    b = li.tanh(x)
    (n,) = [n for n in Pipeline.parse("cse").run(Graph("g", [x], {"y": a * b})).graph.nodes if n.op.name == "tanh"]
    assert n.loc.line == a.node.loc.line
    assert n.loc.via == (f"cse test_pipeline.py:{b.node.loc.line}",)


# passes that break the contract -----------------------------------------------------------------


@dataclass(frozen=True)
class Broken(Pass):
    """Does `how` to the graph."""

    name: ClassVar[str] = "broken"
    how: Any = None

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None) -> Graph:
        return self.how(graph)  # type: ignore[no-any-return]


def _fails(how: Any) -> str:
    cse = Pipeline.parse("cse").passes[0]
    with pytest.raises(li.PassError) as e:
        Pipeline((cse, Broken(how))).run(small())
    assert "pass broken (number 2, after cse)" in str(e.value)
    return str(e.value)


def test_another_signature_is_refused() -> None:
    def renamed(g: Graph) -> Graph:
        return Graph(g.name, g.params, {"z": g.outputs[0]})

    assert "the signature changed" in _fails(renamed)
    assert "the signature changed" in _fails(lambda g: Graph(g.name, g.params, {"y": li.convert(g.outputs[0], "f16")}))


def test_a_node_whose_types_are_not_those_of_its_rule_is_refused() -> None:
    def lying(g: Graph) -> Graph:
        n = g.outputs[0].node
        wrong = Node(n.op, n.args, n.attrs, (("result", n.types[0].with_dtype(li.DType.f16)),), (), n.loc)
        return Graph(g.name, g.params, {"y": li.convert(wrong.values[0], "f32")})

    assert "its rule gives" in _fails(lying)


def test_an_error_inside_a_pass_keeps_its_message() -> None:
    def mistyped(g: Graph) -> Graph:
        return Graph(g.name, g.params, {"y": li.logical_not(g.outputs[0])})

    assert "takes integer or boolean (i1) elements, got f32" in _fails(mistyped)


def test_endless_recursion_is_an_error_that_names_the_pass() -> None:
    def endless(g: Graph) -> Graph:
        return endless(g)

    assert "recursed too deep" in _fails(endless)


def test_rules_that_do_not_arrive_are_named() -> None:
    table: rewrite.Rules = {}

    @rewrite.rule(table, "tanh")
    def back_and_forth(n: Node) -> li.Value:
        return li.negate(li.tanh(li.negate(n.inputs[0])))

    with pytest.raises(li.PassError, match=r"no fixed point after 64 rounds; rules still firing: back and forth \(1\)"):
        rewrite.fixed_point(small(), table, "endless", Notes())


def test_two_passes_of_one_name_are_refused() -> None:
    with pytest.raises(li.PassError, match="pass cse is registered twice"):
        base.register(type(Pipeline.parse("cse").passes[0]))


def test_deep_graphs_do_not_recurse() -> None:
    v = x = li.input("x", (3,))
    for _ in range(3000):
        v = li.tanh(v) + 0.5
    graph = Graph("deep", [x], {"y": v})
    made = Pipeline.parse("default").run(graph).graph
    assert sum(n.op.name == "tanh" for n in made.nodes) == 3000


def test_levels_are_three() -> None:
    assert {level.value for level in Level} == {"primitive", "core", "composite"}
