"""docs/cells.md and the pictures of docs/cells/, from the files of examples/cells/, the compiler's report and figures.

`python tests/machine/child.py tests/documents/cells_document.py` writes them anew, or
`pytest --update-golden -m "slow or not slow" tests/documents/test_cells_document.py`. The figures are those of
docs/cells/measured.json, which benchmarks/cells.py writes.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from statistics import geometric_mean
from typing import Any

from cell_gallery import KINDS, NAMES, cell, step
from paths import DOCS

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.view.picture import picture

PAGE, PICTURES = DOCS / "cells.md", DOCS / "cells"
MEASURED = PICTURES / "measured.json"
POINTS = ((200, 8, 128), (1000, 1, 128), (100, 32, 256))
MODES = ("inference", "training step")
RUNNERS = ("lstm-ir", "jax.jit", "torch", "torch.compile")
TARGET = "cpu:x86-64-v3"
PLACE = re.compile(r" at \w+\.py:\d+")
HEAD = f"""\
# Cells

Recurrences that people invent, each a file of at most 60 lines in [examples/cells](../examples/cells): its equations,
its body for [`li.scan`](api.md#scan), weights to start with. `python examples/cells/min_gru.py` compiles one and
compares it with the NumPy meaning. A file has `build(T, B, I, H)`, the graph from x [T,B,I] to y [T,B,H], and
`layer`, which is copied into a model. Tests hold every cell to its equations in torch and in JAX: values, and
gradients by all weights and inputs, in f32 and f64, interpreted, compiled, and on Vulkan.

The page comes from the files, from what the compiler reports and from measured figures (`python
tests/machine/child.py tests/documents/cells_document.py` writes it anew). How to write a cell of one's own: [a page
of the tutorial](tutorial/3-own-cell.md).

The kind says how the next carry depends on the last:

| kind | the next carry is |
|---|---|
| dense | what a matrix makes of the whole last one |
| block-diagonal | the same by heads: a matrix for each |
| elementwise linear | `a[t] ⊙ s + b[t]`, where a and b do not read the state |
| elementwise nonlinear | a function of the same element of the last one |
| matrix state | the last matrix with a decay, plus an outer product, perhaps less what it holds for a key |
| convolution | what a convolution makes of the last planes |

*Kernel*: a loop is one dispatch for all its steps ([kernels](kernels.md)). *Loop*: a StableHLO loop, with the reason
below. A pass may make several loops of one, as of a matrix state that is computed by chunks. Here for `{TARGET}` at
(T,B,H) = (200,8,128); the training step is the gradient of sum(y²) by all inputs and weights, forward loops before
backward ones.
"""


def loops(graph: li.Graph) -> list[str]:
    """Of each loop `kernel`, or `loop` and the reason."""
    found: list[str] = prepare(graph, resolve(TARGET), {"kernels": True}).report.notes
    words = [n.split(": ", 1)[1] for n in found if n.startswith("scan at")]
    return ["kernel" if w.startswith("kernel") else PLACE.sub("", w) for w in words]


def shown_loops(name: str) -> str:
    """The lines of a cell's section on its loops."""
    graph = cell(name).build(*POINTS[0][:2], POINTS[0][2], POINTS[0][2])
    lines = []
    for what, given in (("Inference", graph), ("Training step", step(graph))):
        lines.append(f"* {what}: {'; '.join(loops(given))}.\n")
    return "".join(lines)


def row(name: str, of_loops: str) -> str:
    """A cell's row of the table at the top."""
    marks = []
    for line in of_loops.splitlines():
        words = re.findall(r"(?:: |; )(kernel|loop)(?=[;,.])", line)
        counted = [
            f"{words.count(w)} {w}s" if words.count(w) > 1 else f"1 {w}" for w in ("kernel", "loop") if w in words
        ]
        marks.append(" and ".join(counted))
    anchor = re.sub(r"[^\w -]", "", cell(name).NAME.lower()).replace(" ", "-")
    return f"| [{cell(name).NAME}](#{anchor}) | {cell(name).KIND} | {marks[0]} | {marks[1]} |\n"


def speeds(name: str, measured: dict[str, Any]) -> str:
    """A cell's table of figures; what has none is said to be not measured."""
    found = {(p["T"], p["B"], p["H"], p["mode"]): p for p in measured["points"] if p["cell"] == name}
    if not found:
        return "Speed: not measured.\n"
    lines = [f"| T,B,H | call | {' | '.join(f'{r} ms' for r in RUNNERS)} | ratio (90 % interval) | ready s |\n"]
    lines.append("|---|---|" + "---|" * (len(RUNNERS) + 2) + "\n")
    for T, B, H in POINTS:
        for mode in MODES:
            p = found.get((T, B, H, mode))
            if p is None:
                lines.append(f"| {T},{B},{H} | {mode} | not measured |{' |' * (len(RUNNERS) + 1)}\n")
                continue
            ms = [f"{p['median_ms'][r]:.3g}" if r in p["median_ms"] else "—" for r in RUNNERS]
            ratio = "—" if p["ratio"] is None else "{:.2f} ({:.2f}–{:.2f})".format(p["ratio"], *p["interval"])
            ready = f"{p['ready_seconds'][RUNNERS[0]]:.1f}"
            lines.append(f"| {T},{B},{H} | {mode} | {' | '.join(ms)} | {ratio} | {ready} |\n")
    return "".join(lines)


def means(measured: dict[str, Any]) -> str:
    """The geometric mean of the ratios of each mode, over the points that have one, and the longest wait."""
    words = []
    for mode in MODES:
        points = [p for p in measured["points"] if p["mode"] == mode]
        ratios = [p["ratio"] for p in points if p["ratio"] is not None]
        if not points:
            continue
        longest = max(p["ready_seconds"][RUNNERS[0]] for p in points)
        mean = f"{geometric_mean(ratios):.2f} over {len(ratios)} points" if ratios else "not measured"
        words.append(f"| {mode} | {mean} | {longest:.1f} |\n")
    return f"\n| call | geometric mean of the ratios | ready s, at most |\n|---|---|---|\n{''.join(words)}"


def section(name: str, of_loops: str, measured: dict[str, Any]) -> str:
    """Everything about one cell."""
    module = cell(name)
    title, equations, source = module.__doc__.strip().split("\n\n")
    says = title.partition(": ")[2]
    words = f"{says[:1].upper()}{says[1:]}\n\n" if says else ""
    return (
        f"\n## {module.NAME}\n\n{words}```\n{textwrap.dedent(equations)}\n```\n\n{' '.join(source.split())}\n\n"
        f"* File: [{name}.py](../examples/cells/{name}.py). Kind: {module.KIND}. Sizes: {module.SIZES}.\n{of_loops}\n"
        f"{speeds(name, measured)}\n![{module.NAME}: the body stands inside the loop](cells/{name}.svg)\n"
    )


def figures() -> dict[str, Any]:
    """What was measured, or nothing."""
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else {"points": []}
    return found


def about(measured: dict[str, Any]) -> str:
    """Where the figures are from."""
    if not measured["points"]:
        return "\nNo speed was measured yet; `python benchmarks/cells.py -o docs/cells/measured.json` does.\n"
    versions = versions_of(measured)
    return (
        f"\nSpeeds: medians of interleaved calls on {measured['machine']} ({versions}), by `python benchmarks/cells.py "
        "-o docs/cells/measured.json`. The ratio is the fastest other runner's median by ours: above 1 we are faster. "
        "x has H columns; sizes are numbers for all runners. —: not ready within the limit, refused there, or its "
        "results are others than those of all the rest. Ready s: seconds until our first results are there, of which "
        "nearly all are the compiler's.\n"
        f"{means(measured)}"
    )


def versions_of(measured: dict[str, Any]) -> str:
    """The versions that the points were measured with; how many points, where they differ."""
    words = [p.get("versions", measured.get("versions", {})) for p in measured["points"]]
    found = Counter(", ".join(f"{k} {v}" for k, v in versions.items()) for versions in words)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{count} points: {text}" for text, count in found.most_common())


def page(of_loops: dict[str, str], measured: dict[str, Any]) -> str:
    """The whole page, kind by kind."""
    names = sorted(NAMES, key=lambda n: (KINDS.index(cell(n).KIND), cell(n).NAME.lower()))
    table = "".join(row(n, of_loops[n]) for n in names)
    head = f"{HEAD}{about(measured)}\n| cell | kind | inference | training step |\n|---|---|---|---|\n{table}"
    return head + "".join(section(n, of_loops[n], measured) for n in names)


def found_loops(text: str) -> dict[str, str]:
    """What a page says of the loops of each cell."""
    pattern = r"\]\(\.\./examples/cells/(\w+)\.py\)[^\n]*\n((?:\* (?:Inference|Training)[^\n]*\n)+)"
    return dict(re.findall(pattern, text))


def drawn(name: str) -> str:
    """The picture of a cell at H = 128."""
    return picture([(cell(name).NAME, cell(name).build("T", "B", 64, 128))])


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for each in NAMES:
        (PICTURES / f"{each}.svg").write_text(drawn(each), encoding="utf-8")
    PAGE.write_text(page({n: shown_loops(n) for n in NAMES}, figures()), encoding="utf-8")
