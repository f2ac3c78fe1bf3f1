"""The demo does what it says, and its closing table cannot look better than the facts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from device import REQUIRED, has, need

import lstm_ir as li
from lstm_ir import cli, demo, oracle_table
from lstm_ir.cli_demo import _print
from lstm_ir.opdef import OPS


def test_demo_reads_digits_on_every_device_and_from_the_package(tmp_path: Path) -> None:
    if has("vulkan") or "vulkan" in REQUIRED:
        need("vulkan")
    said: list[str] = []
    package = tmp_path / "digits.lirpkg"
    scores = demo.run(said.append, package, seconds=0.05)
    here, absent = demo.devices()
    assert "cpu" in here
    assert ("vulkan" in here) == has("vulkan")
    assert [s.target for s in scores] == [*here, *(f"package on {t}" for t in here)]
    for s in scores:
        assert s.accuracy > 0.95
        assert s.error < 1e-4
        assert s.same == s.of == 360
        assert min(s.one_ms, s.all_ms) > 0
    text = "\n".join(said)
    assert all(f"{t}: compiled in " in text for t in here)
    assert all(f"{t}: not run: {reason}" in text for t, reason in absent.items())
    assert package.stat().st_size < 1 << 20


def test_demo_refuses_a_wrong_executable() -> None:
    graph = demo.classifier()
    held = demo.Held.of(graph)
    exe = li.compile(graph)
    fewer = dataclasses.replace(held, images=held.images[:5], labels=held.labels[:5],
                                logits=held.logits[:5] + 1e-3, digit=held.digit[:5])  # fmt: skip
    with pytest.raises(li.LstmIrError, match=r"largest difference to the NumPy meaning 1\.0e-03"):
        demo.score(exe, fewer, "cpu", seconds=0.0)
    others = dataclasses.replace(held, labels=(held.labels + 1) % 10)
    with pytest.raises(li.LstmIrError, match=r"accuracy 0\.\d%"):
        demo.score(exe, others, "cpu", seconds=0.0)


def test_demo_keeps_a_package_only_where_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["demo", "-o", "digits.zip"]) == 2
    assert "a package ends in .lirpkg" in capsys.readouterr().err


def test_the_table_has_every_foreign_op() -> None:
    rows = oracle_table.rows([], {"cuda": "no device"})
    assert [r.op for r in rows] == sorted(n for n in OPS if "." in n)
    assert all(r.cells["cuda"] == "not run: no device" for r in rows)


def vectors(expected: float) -> oracle_table.Vectors:
    x = li.input("x", (3,))
    g = li.Graph("g", [x], {"y": x * 2.0})
    given = {"x": np.array([1.0, -2.0, 10.0], "f4")}
    return oracle_table.Vectors(
        "a pocket calculator 1.0",
        [oracle_table.Case(g, given, {"y": np.array([2.0, -4.0, expected])})],
    )


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    table: dict[str, object] = {}
    monkeypatch.setattr(oracle_table, "_SOURCES", table)
    return table


def test_a_row_gives_the_worst_error_per_target(source: dict[str, object]) -> None:
    oracle_table.register("calc.Double", lambda: vectors(20.02))
    row = oracle_table._row("calc.Double", ["cpu"], {"cuda": "no device"})
    assert row.oracle == "a pocket calculator 1.0"
    assert row.cells == {"NumPy meaning": "1.0e-03", "cpu": "1.0e-03", "cuda": "not run: no device"}


def test_a_row_without_its_oracle_says_so(source: dict[str, object]) -> None:
    def absent() -> oracle_table.Vectors:
        raise oracle_table.AbsentError("the calculator is not installed")

    oracle_table.register("calc.Double", absent)
    row = oracle_table._row("calc.Double", ["cpu"], {})
    assert set(row.cells.values()) == {"not run: the calculator is not installed"}
    with pytest.raises(li.LstmIrError, match="two oracles"):
        oracle_table.register("calc.Double", absent)


@pytest.mark.parametrize(
    ("got", "want", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.5], [0.25], 0.25),
        ([np.nan], [np.nan], 0.0),
        ([np.nan], [1.0], np.inf),
        ([1.0], [np.nan], np.inf),
        ([np.inf], [np.inf], 0.0),
        ([-np.inf], [np.inf], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_error_hides_nothing(got: list[float], want: list[float], error: float) -> None:
    assert oracle_table.error({"y": np.array(got)}, {"y": np.array(want)}) == error
    assert oracle_table.error({"z": np.array(got)}, {"y": np.array(want)}) == np.inf


def test_the_table_prints_long_reasons_once(capsys: pytest.CaptureFixture[str]) -> None:
    cells = {"cpu": "1.0e-07", "cuda": "not run: no driver library: libcuda.so"}
    _print([oracle_table.Row(op, "calc 1.0", cells) for op in ("a.X", "a.Y")])
    out = capsys.readouterr().out
    assert out.count("no driver library: libcuda.so") == 1
    assert out.count("not run: (1)") == 2
    _print([])
    assert "no foreign op" in capsys.readouterr().out
