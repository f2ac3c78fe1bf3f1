"""Executables that IREE translates in two groups, and functions of kernels that join the last phase alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.compile import compiler, grouping, phases
from lstm_ir.backends.compile.grouping import grouped
from lstm_ir.backends.run.devices import resolve

T, B, H = 5, 3, 4
MANY = 32  # executables


def executable(name: str, target: str = "llvm-cpu", exports: int = 1) -> str:
    """As IREE prints one before it translates it."""
    lines = [f"  hal.executable private @{name} {{",
             f'    hal.executable.variant public @elf target(<"{target}", "elf", {{cpu = "c"}}>) {{']  # fmt: skip
    for i in range(exports):
        lines += [f"      hal.executable.export public @{name}_{i} ordinal({i}) layout(#l) count(%a: !d) -> (index) {{",
                  "        hal.return %a : index", "      } loc(unknown)"]  # fmt: skip
    lines += ["      builtin.module {"]
    for i in range(exports):
        lines += [f"        func.func @{name}_{i}() {{", "          return", "        } loc(unknown)"]
    return "\n".join([*lines, "      } loc(unknown)", "    } loc(unknown)", "  } loc(unknown)", ""])


def module(executables: list[str], calls: list[str]) -> str:
    """Executables, and calls before and behind them."""
    called = [f"    stream.cmd.dispatch @{c}::@elf::@{c}_0 {{\n    }}\n" for c in calls]
    return "".join(
        ["#map = affine_map<() -> ()>\nmodule {\n", *called[:1], *executables, *called[1:], "} loc(unknown)\n"]
    )


def test_each_export_is_called_where_it_went() -> None:
    """Every function stands in one group, its export has a number of its own, and calls name the group."""
    names = [f"d{i}" for i in range(MANY)]
    text = grouped(module([executable(n, exports=1 + (n == "d3")) for n in names], names))
    assert text is not None
    blocks = re.findall(r"^  hal\.executable private @(\w+) \{\n(.*?)^  \}", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in blocks] == ["group_0", "group_1"]
    where = dict[str, str]()
    for name, block in blocks:
        exports = re.findall(r"export public @(\w+) ordinal\((\d+)\)", block)
        assert [int(n) for _, n in exports] == list(range(len(exports)))
        assert sorted(e for e, _ in exports) == sorted(re.findall(r"func\.func @(\w+)\(", block))
        where |= dict.fromkeys((e for e, _ in exports), name)
        assert abs(len(exports) - (MANY + 1) / 2) <= 2
    assert where.keys() == {f"{n}_0" for n in names} | {"d3_1"}
    assert re.findall(r"dispatch @(\w+)::@elf::@(\w+)", text) == [(where[f"{n}_0"], f"{n}_0") for n in names]
    assert text.startswith("#map = affine_map<() -> ()>\nmodule {\n")


@pytest.mark.parametrize("executables", [
    [executable(f"d{i}") for i in range(grouping.FROM - 1)],
    [executable(f"d{i}", "vulkan-spirv") for i in range(MANY)],
    [executable(f"d{i}").replace('"c"', f'"c{i % 2}"') for i in range(MANY)],
    [executable(f"d{i}").replace("builtin.module {", "builtin.module attributes {a} {") for i in range(MANY)],
    [*(executable(f"d{i}") for i in range(grouping.FROM)), "  hal.executable lazy @other {\n  }\n"],
    [executable(f"group_{i}") for i in range(MANY)],
], ids=["few", "another device", "two processors", "attributes", "another form", "the groups' names"])  # fmt: skip
def test_other_modules_stay_as_they_are(executables: list[str]) -> None:
    assert grouped(module(executables, ["d0"])) is None


def _model() -> tuple[li.Graph, dict[str, np.ndarray[Any, Any]]]:
    """Many dispatches, and loops that are kernels."""
    x, w = li.input("x", (T, B, H)), li.input("w", (H, H))
    h = li.weight("h0", np.zeros((B, H), np.float32))
    outputs = {}
    for i, act in enumerate((li.tanh, li.sigmoid)):
        y = li.scan(lambda s, x, act=act: (act(x * 2.0 + s),) * 2, h, x)[1]
        for j in range(10):
            outputs[f"y{i}_{j}"] = li.sum(li.matmul(y * float(j + 1), w), axis=j % 3)
    rng = np.random.default_rng(7)
    values = {"x": rng.standard_normal((T, B, H), np.float32), "w": rng.standard_normal((H, H), np.float32)}
    return li.Graph("g", [x, w], outputs), values


def _expected(values: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    found = {}
    for i in range(2):
        s, steps = np.zeros((B, H)), []
        for x in values["x"].astype(np.float64):
            s = x * 2.0 + s
            s = np.tanh(s) if i == 0 else 1 / (1 + np.exp(-s))
            steps.append(s)
        for j in range(10):
            found[f"y{i}_{j}"] = (np.stack(steps) * (j + 1) @ values["w"]).sum(j % 3)
    return found


def test_grouped_modules_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that differ in their bodies' op alone keep their own: IREE sees neither body when it joins equal
    executables."""
    graph, values = _model()
    texts: list[str | None] = []
    monkeypatch.setattr(grouping, "FROM", 4)

    def kept(text: str) -> str | None:
        texts.append(grouped(text))
        return texts[-1]

    monkeypatch.setattr(phases, "grouped", kept)
    out = li.compile(graph, "cpu", options={"cache": False})(values)
    assert texts[-1] is not None
    assert texts[-1].count("hal.executable private @") == grouping.GROUPS
    for name, expected in _expected(values).items():
        np.testing.assert_allclose(out[name], expected, rtol=2e-5, atol=2e-5)


def test_functions_of_kernels_are_read_by_the_last_phase_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that the first one reads declares them; the whole text has them."""
    graph, _ = _model()
    lowered = prepare(graph, resolve("cpu"))
    functions = lowered.module.functions
    assert len(functions) == 2, lowered.report.notes
    sources: list[str] = []
    real = compiler._child

    def seen(command: list[str], folder: str, *rest: Any) -> tuple[int, str]:
        sources.append((Path(folder) / "module.mlir").read_text())
        return real(command, folder, *rest)

    vars(compiler)["_child"], before = seen, compiler._child
    try:
        li.compile(graph, "cpu", options={"cache": False})
    finally:
        vars(compiler)["_child"] = before
    *early, last = sources[-3:]
    for name, text in functions.items():
        body = text.split("\n")[-2]
        assert all(f"func.func private @{name}(" in s and text not in s for s in early), body
        assert text in last
        assert text in lowered.text
        assert text not in lowered.module.declared
