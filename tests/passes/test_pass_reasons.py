"""Why each pass is in the pipeline: counts with it and without it, the table of docs/passes.md.

Nodes, dots and loops are counted in the scheduled graph, dispatches in what IREE makes of it for
the CPU; "in loops" is per step of the loop.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import DOCS

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.opdef import Trait
from lstm_ir.passes.chunk_states import ChunkStates
from lstm_ir.passes.pipeline import Pipeline
from lstm_ir.passes.pipelines import NAMED

H = 64
Cell = Callable[..., Any]


def weight(name: str, *shape: int) -> li.Value:
    return li.weight(name, np.random.default_rng(len(name)).standard_normal(shape).astype("f") / 8)


def rows() -> li.Value:
    return li.input("x", ("T", "B", H))


def matrices(name: str) -> tuple[li.Value, li.Value]:
    return weight(f"{name}w", 4 * H, H), weight(f"{name}r", 4 * H, H)


def looped(cell: Cell) -> li.Graph:
    x = rows()
    _, y = li.scan(cell, li.zeros(("B", H)), x)
    return li.Graph("loop", [x], {"y": y})


def one_layer() -> li.Graph:
    x = rows()
    return li.Graph("layer", [x], {"y": li.lstm(x, *matrices("a"))[0]})


def saved_for_nothing() -> li.Graph:
    x = rows()
    return li.Graph("saved", [x], {"y": li.lstm(x, *matrices("a"), save=True)[0]})


def written_twice() -> li.Graph:
    x, (w, r) = rows(), matrices("a")
    return li.Graph("twice", [x], {"m": li.max(li.lstm(x, w, r)[0], 0), "h": li.lstm(x, w, r)[1]})


def two_ways() -> li.Graph:
    x = rows()
    f = li.lstm(x, *matrices("f"))[0]
    r = li.lstm(x, *matrices("r"), direction="reverse")[0]
    return li.Graph("ways", [x], {"y": li.concat([f, r], 2)})


def batch_major() -> li.Graph:
    x = li.input("x", ("B", "T", H))
    y = li.tanh(li.lstm(x, *matrices("a"), layout="batch")[0]) * 0.5
    return li.Graph("batch", [x], {"y": li.lstm(y, *matrices("b"), layout="batch")[0]})


def four_products() -> li.Graph:
    r = [weight(f"r{k}", H, H) for k in range(4)]

    def cell(h: li.Value, row: li.Value) -> Any:
        p = [h @ m for m in r]
        h = li.sin(row + p[0]) * li.cos(p[1]) + li.sin(p[2]) * p[3]
        return h, h

    return looped(cell)


def squashed_weight() -> li.Graph:
    r = weight("r", H, H)
    return looped(lambda h, row: ((h := li.sin(row + h @ li.tanh(r))), h))


def decay() -> li.Graph:
    k = li.constant(np.arange(H, dtype=np.float32))
    return looped(lambda h, row: ((h := h * li.exp(-(k / 64.0)) + row), h))


def two_layers_in_a_loop() -> li.Graph:
    w, r, v, q, u = (weight(n, H, H) for n in ("w", "rr", "vvv", "qqqq", "uuuuu"))

    def cell(state: li.Value, row: li.Value) -> Any:
        h = li.sin(row @ w + state[0] @ r)
        g = li.sin(h @ v + state[1] @ q)
        return li.stack([h, g]), g @ u

    x = rows()
    _, y = li.scan(cell, li.zeros((2, "B", H)), x)
    return li.Graph("frames", [x], {"y": y})


def letters_fed_back() -> li.Graph:
    table, w, r, out = weight("letters", 40, H), weight("w", H, H), weight("rr", H, H), weight("out", H, 40)

    def cell(state: Any, _: None) -> Any:
        h = li.tanh(li.embedding(table, state[1]) @ w + state[0] @ r)
        return (h, li.argmax(h @ out)), state[1]

    first = li.input("first", ("B",), "i32")
    _, y = li.scan(cell, (li.zeros(("B", H)), first), length=20)
    return li.Graph("generation", [first], {"letters": y})


def gradient_of_a_written_cell() -> li.Graph:
    x = rows()
    w = {g: (weight(f"w{g}", H, H), weight(f"r{g}", H, H)) for g in "ifgo"}

    def cell(carry: Any, row: li.Value) -> Any:
        h, c = carry
        i, f, g, o = (row @ w[k][0] + h @ w[k][1] for k in "ifgo")
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(c)
        return (h, c), h

    zero = li.zeros(("B", H))
    _, y = li.scan(cell, (zero, zero), x)
    return li.Graph("written", [x], {"loss": li.sum(y * y)})


@dataclass(frozen=True)
class Reason:
    """A pass, the graph that shows what it is for, and the count that falls."""

    name: str
    graph: Callable[[], li.Graph]
    counts: Callable[[li.Graph], int]
    without: int
    with_: int
    row: str


def deep(graph: li.Graph) -> Iterator[li.Node]:
    for n in graph.nodes:
        yield n
        for a in n.attrs.values():
            if isinstance(a, li.Graph):
                yield from deep(a)


def nodes(graph: li.Graph) -> int:
    return sum(1 for _ in deep(graph))


def named(op: str) -> Callable[[li.Graph], int]:
    return lambda graph: sum(n.op.name == op for n in deep(graph))


def dots_in_loops(graph: li.Graph) -> int:
    bodies = [n.attrs["body"] for n in graph.nodes if n.op.name == "scan"]
    return sum(named("dot_general")(b) for b in bodies)


def flow(graph: li.Graph) -> str:
    """What IREE makes of a scheduled graph, for the CPU, up to its dispatches."""
    from lstm_ir.backends.module import iree_module
    from lstm_ir.backends.targets.targets import resolve
    from lstm_ir.ir.program import Program

    info = resolve("cpu").info._replace(kernels=False)
    tool = Path(sys.executable).with_name("iree-compile")
    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    done = subprocess.run(
        [tool, "-", *flags, "--compile-to=flow"], capture_output=True, text=True,
        input=iree_module(Program.of(graph), info).text, check=True,
    )  # fmt: skip
    return done.stdout


def dispatches(graph: li.Graph) -> int:
    """Of one call; those of the initializer run at load."""
    text = re.sub(r"util\.initializer \{.*?\n  \}", "", flow(graph), flags=re.DOTALL)
    return len(re.findall(r"flow\.dispatch @", text))


def dispatches_in_loops(graph: li.Graph) -> int:
    total, loops = 0, list[int]()
    for line in flow(graph).splitlines():
        indent = len(line) - len(line.lstrip())
        if "scf.for" in line and line.endswith("{"):
            loops.append(indent)
        elif loops and line.strip().startswith("}") and indent <= loops[-1]:
            loops.pop()
        total += bool(loops) and "flow.dispatch @" in line
    return total


REASONS = [
    Reason("canonicalize", saved_for_nothing, dispatches_in_loops, 8, 2, "dispatches in loops"),
    Reason("cse", written_twice, named("scan"), 2, 1, "loops"),
    Reason("fuse-gates", four_products, dots_in_loops, 4, 1, "dots in loops"),
    Reason("fuse-gates", four_products, dispatches_in_loops, 4, 2, "dispatches in loops"),
    Reason("fold-embeddings", letters_fed_back, dots_in_loops, 3, 2, "dots in loops"),
    Reason("hoist-invariants", squashed_weight, dispatches_in_loops, 2, 1, "dispatches in loops"),
    Reason("hoist-projection", one_layer, dots_in_loops, 2, 1, "dots in loops"),
    Reason("hoist-projection", one_layer, dispatches_in_loops, 3, 2, "dispatches in loops"),
    Reason("split-carries", two_layers_in_a_loop, dots_in_loops, 3, 2, "dots in loops"),
    Reason("split-loops", two_layers_in_a_loop, dots_in_loops, 4, 2, "dots in loops"),
    Reason("stack-directions", two_ways, named("scan"), 2, 1, "loops"),
    Reason("stack-directions", two_ways, dispatches, 8, 7, "dispatches"),
    Reason("time-major", batch_major, named("transpose"), 4, 2, "transposes"),
    Reason("fold-constants", decay, nodes, 17, 12, "nodes"),
]


def pipeline(leave_out: str | None) -> Pipeline:
    return Pipeline(tuple(p for p in Pipeline.parse(NAMED["default"]).passes if p.name != leave_out))


@pytest.mark.parametrize("reason", REASONS, ids=lambda r: f"{r.name}: {r.row}")
def test_a_pass_is_worth_its_place(reason: Reason) -> None:
    graph = reason.graph()
    counted = [reason.counts(pipeline(out).run(graph).graph) for out in (reason.name, None)]
    assert counted == [reason.without, reason.with_]
    what = f"`{reason.name}` | {reason.graph.__name__.replace('_', ' ')} | {reason.row}"
    line = f"| {what} | {counted[0]} | {counted[1]} |"
    assert line in (DOCS / "passes.md").read_text()


def steps_of_loops(graph: li.Graph) -> int:
    """That wait for each other."""
    return sum(n.attrs["length"] for n in graph.nodes if n.op.name == "scan")


def test_chunks_have_few_steps() -> None:
    """Where loops are no kernels; otherwise they are left as they are."""
    q, k, v = (li.input(n, (100, 2, H)) for n in "qkv")

    def cell(s: li.Value, x: Any) -> Any:
        s = 0.9 * s + x[1][:, :, None] * x[2][:, None, :]
        return s, li.einsum("bk,bkv->bv", x[0], s)

    _, y = li.scan(cell, li.zeros((2, H, H)), (q, k, v))
    graph = li.Graph("attention", [q, k, v], {"y": y})
    passes = (replace(p, on="all") if isinstance(p, ChunkStates) else p for p in pipeline(None).passes)
    counted = [steps_of_loops(p.run(graph).graph) for p in (pipeline("chunk-states"), Pipeline(tuple(passes)))]
    line = f"| `chunk-states` | linear attention | steps of loops | {counted[0]} | {counted[1]} |"
    assert line in (DOCS / "passes.md").read_text()


def test_a_fused_cell_has_a_smaller_gradient() -> None:
    graph = gradient_of_a_written_cell()
    fused = Pipeline.parse("core").run(graph).graph
    plain = pipeline("fuse-cell").run(li.grad(graph, "loss", list(graph.weights))).graph
    saved = pipeline(None).run(li.grad(fused, "loss", list(graph.weights))).graph
    for row, counts in (("dots", named("dot_general")), ("dots in loops", dots_in_loops)):
        before, after = counts(plain), counts(saved)
        assert before > after
        line = f"| `fuse-cell` | gradient of a written cell | {row} | {before} | {after} |"
        assert line in (DOCS / "passes.md").read_text()


def test_precision_halves_what_is_kept_of_the_weights() -> None:
    def kept(text: str) -> int:
        """Bytes of the matrices that loops and dots read."""
        graph = Pipeline.parse(text).run(one_layer()).graph
        narrow = {n.values[0] for n in deep(graph) if n.op.name == "convert" and n.types[0].dtype is li.DType.bf16}
        weights = {n.values[0] for n in graph.nodes if n.op.name == "weight"}
        return sum(H * 4 * H * v.dtype.bytes for v in (narrow if narrow else weights))

    counted = kept("default"), kept("bf16")
    assert counted == (2 * 4 * H * H * 4, 2 * 4 * H * H * 2)
    assert (
        f"| `precision` | one layer | bytes of weights | {counted[0]} | {counted[1]} |"
        in (DOCS / "passes.md").read_text()
    )


def elementwise_ops(graph: li.Graph, name: str) -> list[int]:
    """Outside of loops, for a CPU's kernels: without the pass, and with it."""
    cpu = resolve("cpu").info
    scheduled = (pipeline(without).run(graph, cpu).graph for without in (name, None))
    return [sum(Trait.elementwise in n.op.traits for n in g.nodes) for g in scheduled]


def test_sunk_gates_are_no_tensors_of_all_steps() -> None:
    """A linear cell: its gates are made by the loop, in a CPU's kernel."""
    x, w, b = rows(), weight("w", H, 2 * H), li.weight("b", np.ones(2 * H, np.float32))

    def cell(h: li.Value, r: Any) -> Any:
        h = r[0] * h + (1.0 - r[0]) * r[1]
        return h, h

    z = x @ w + b
    _, y = li.scan(cell, li.zeros(("B", H)), (li.logistic(z[:, :, :H]), li.tanh(z[:, :, H:])))
    graph = li.Graph("linear", [x], {"y": y})
    counted = elementwise_ops(graph, "sink-elementwise")
    assert counted[0] > counted[1]
    line = f"| `sink-elementwise` | a linear cell | elementwise ops before loops | {counted[0]} | {counted[1]} |"
    assert line in (DOCS / "passes.md").read_text()


def test_a_dense_layer_is_one_loop() -> None:
    """Of a CPU's kernel; H is too small a matrix for one."""
    w, b = weight("w", 4 * H, 2 * H), li.weight("b", np.ones(4 * H, np.float32))
    x = li.input("x", ("T", "B", 2 * H))
    graph = li.Graph("dense", [x], {"y": li.tanh(li.dense(x, w, b))})
    counted = elementwise_ops(graph, "fuse-epilogues")
    assert counted[0] > counted[1]
    line = f"| `fuse-epilogues` | a dense layer | elementwise ops outside of loops | {counted[0]} | {counted[1]} |"
    assert line in (DOCS / "passes.md").read_text()
