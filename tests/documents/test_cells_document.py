"""docs/cells.md is what the files, the compiler and the figures make of it; the files keep their form."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cells_document as document
import pytest
from cell_gallery import FOLDER, KINDS, NAMES, cell

from lstm_ir.ir.carry_kinds import circles, loops_of
from lstm_ir.ops.scan.unrolled import without_short_loops

LINES = 60
ONE_OF_EACH_KIND = {cell(n).KIND: n for n in NAMES}.values()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_the_form_of_all(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES
    module = cell(name)
    assert module.KIND in KINDS
    title, equations, source = module.__doc__.strip().split("\n\n")
    assert title.startswith(module.NAME)
    assert title.endswith(".")
    assert all(line.startswith("    ") for line in equations.splitlines())
    assert re.match(r"Source: .+, (19|20)\d\d,", " ".join(source.split()))
    assert list(inspect.signature(module.build).parameters) == ["T", "B", "I", "H", "dtype", "seed"]
    imported = {a.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import) for a in n.names}
    assert imported == {"numpy", "lstm_ir"}  # a file stands alone
    assert f'li.Graph("{name}"' in text


@pytest.mark.parametrize("name", NAMES)
def test_the_kind_is_that_of_the_analysis(name: str) -> None:
    """Of the circle that the first carry is in, with short loops of a step written out; others stand in the picture."""
    outer = next(loops_of(cell(name).build("T", "B", 16, 32)))
    assert circles(without_short_loops(outer))[0].kind.value == cell(name).KIND


def test_every_kind_has_a_cell() -> None:
    assert {cell(n).KIND for n in NAMES} == set(KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_is_what_is_drawn(name: str, request: pytest.FixtureRequest) -> None:
    path, made = document.PICTURES / f"{name}.svg", document.drawn(name)
    if request.config.getoption("--update-golden"):
        path.write_text(made, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == made, f"{path.name} is not what is drawn today"


def test_the_page_is_that_of_the_files(request: pytest.FixtureRequest) -> None:
    """What it says of loops is compared below."""
    if request.config.getoption("--update-golden"):
        of_loops = {n: document.shown_loops(n) for n in NAMES}
        document.PAGE.write_text(document.page(of_loops, document.figures()), encoding="utf-8")
    shown = document.PAGE.read_text(encoding="utf-8")
    assert document.page(document.found_loops(shown), document.figures()) == shown, (
        "docs/cells.md is not up to date: python tests/machine/child.py tests/documents/cells_document.py"
    )


CASES = [pytest.param(n, marks=[] if n in ONE_OF_EACH_KIND else pytest.mark.slow) for n in NAMES]


@pytest.mark.parametrize("name", CASES)
def test_the_page_says_which_loops_are_kernels(name: str) -> None:
    shown = document.PAGE.read_text(encoding="utf-8")
    assert document.found_loops(shown)[name] == document.shown_loops(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_file_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(FOLDER / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith(f"{cell(name).NAME}: largest difference to the NumPy meaning ")
    assert float(first.rpartition(" ")[2]) < 2e-5


def measured(*points: dict[str, Any]) -> dict[str, Any]:
    return {"machine": "M", "versions": {"jax": "1"}, "points": list(points)}


def test_figures_that_are_missing_are_said_to_be_missing() -> None:
    point = {
        "cell": "min_gru", "T": 200, "B": 8, "H": 128, "mode": "inference", "ratio": 1.5, "interval": [1.25, 1.75],
        "median_ms": {"lstm-ir": 2.0, "jax.jit": 3.0, "torch": 12.0}, "missing": {"torch.compile": "refused"},
        "ready_seconds": {"lstm-ir": 0.84, "jax.jit": 9.0, "torch": 0.1},
    }  # fmt: skip
    assert document.speeds("slstm", measured(point)) == "Speed: not measured.\n"
    lines = document.speeds("min_gru", measured(point)).splitlines()
    assert lines[2] == "| 200,8,128 | inference | 2 | 3 | 12 | — | 1.50 (1.25–1.75) | 0.8 |"
    assert len(lines) == 2 + len(document.POINTS) * len(document.MODES)
    assert all("not measured" in line for line in lines[3:])
    assert {line.count("|") for line in lines} == {9}


def test_the_means_are_geometric_and_over_what_was_measured() -> None:
    """sqrt(0.5 * 8) = 2 in inference; a point without a peer has no ratio, and no mean where all are such."""

    def point(mode: str, ratio: float | None, ready: float) -> dict[str, Any]:
        interval = None if ratio is None else [ratio, ratio]
        return {"cell": "min_gru", "T": 200, "B": 8, "H": 128, "mode": mode, "ratio": ratio, "interval": interval,
                "median_ms": {}, "ready_seconds": {"lstm-ir": ready, "torch": 70.0}}  # fmt: skip

    alone = point("inference", None, 5.25)
    found = measured(point("inference", 0.5, 1.0), point("inference", 8.0, 2.0), alone)
    assert document.means(found).splitlines()[3:] == ["| inference | 2.00 over 2 points | 5.2 |"]
    found = measured(*found["points"], point("training step", None, 4.0))
    assert document.means(found).splitlines()[4:] == ["| training step | not measured | 4.0 |"]
    assert document.means(found) in document.page(
        {n: "* Inference: kernel.\n* Training step: kernel.\n" for n in NAMES}, found
    )
    assert "| — | 5.2 |" in document.speeds("min_gru", measured(alone))


def test_versions_are_those_of_the_points() -> None:
    point = {"cell": "min_gru"}
    assert document.versions_of(measured(point, point)) == "jax 1"
    later = {**point, "versions": {"jax": "2", "torch": "3"}}
    assert document.versions_of(measured(later)) == "jax 2, torch 3"
    assert document.versions_of(measured(point, later, later)) == "2 points: jax 2, torch 3; 1 points: jax 1"


def test_what_was_measured_names_its_machine() -> None:
    if not document.MEASURED.is_file():
        assert "not measured" in document.PAGE.read_text(encoding="utf-8")
        return
    found = json.loads(document.MEASURED.read_text(encoding="utf-8"))
    assert found["machine"]
    assert {p["cell"] for p in found["points"]} <= set(NAMES)
