"""`--profile`: every dispatch has its time, its nodes and its lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.run.dispatch_places import DispatchPlace, dispatch_places
from lstm_ir.cli import group
from lstm_ir.view.profile_picture import bars

SVG = "{http://www.w3.org/2000/svg}"

FLOW = """
  stream.executable private @recurrence_a {
    stream.executable.export public @recurrence_a_run workgroups(%n: index) loc("-":1:1)
      func.func @recurrence_a_run() { loc("-":2:2)
        %0 = vector.fma %a, %b, %c : vector<16xf32> loc("recurrence":3:9)
  flow.executable private @main_dispatch_0 loc("tanh"("m.py":7:0)) {
    flow.executable.export public @main_dispatch_0_elementwise_8xf32 workgroups() -> (index) {
      func.func @main_dispatch_0_elementwise_8xf32(%x: f32 loc("scan"("m.py":3:0))) {
        %0 = iree_tensor_ext.dispatch.tensor.load %x loc("scan"("m.py":3:0))
        %1 = linalg.generic {indexing_maps = []} loc(fused["add"("m.py":7:0), "tanh"("m.py":8:0)])
        %2 = arith.constant 0.5 : f32 loc("constant"("m.py":9:0))
  util.func public @main(%x: !hal.buffer_view) {
    %3 = flow.dispatch @recurrence_a::@recurrence_a_run[%n](%x) : () -> () loc("scan"("m.py":3:0))
    %4 = flow.dispatch @recurrence_a::@recurrence_a_run[%n](%3) : () -> () loc("scan"("m.py":4:0))
    %5 = flow.dispatch @main_dispatch_0::@main_dispatch_0_elementwise_8xf32(%4) loc("add"("m.py":7:0))
"""


def test_places_are_those_of_the_ops_inside_and_of_a_kernels_calls() -> None:
    found = dispatch_places(FLOW)
    assert found == {
        "recurrence_a_run": (DispatchPlace("m.py", 3, "scan"), DispatchPlace("m.py", 4, "scan")),
        "main_dispatch_0_elementwise_8xf32": (DispatchPlace("m.py", 7, "add"), DispatchPlace("m.py", 8, "tanh")),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph as text, its weights, an input, and a package."""
    path = tmp_path_factory.mktemp("profile")
    rng = np.random.default_rng(3)
    x = li.input("x", (30, 3, 16))
    w, r, p = (
        li.weight(n, 0.1 * rng.standard_normal(s, np.float32))
        for n, s in (("w", (256, 16)), ("r", (256, 64)), ("p", (64, 2000)))
    )
    y, h, _ = li.lstm(x, w, r)
    graph = li.Graph("g", [x], {"y": li.softmax(y @ p, axis=-1), "h": h})
    arrays = {n: v.node.attrs["value"].array for n, v in graph.weights.items()}
    np.savez(path / "w.npz", **arrays)
    np.save(path / "x.npy", rng.standard_normal((30, 3, 16), np.float32))
    (path / "g.lir").write_text(str(graph))
    li.export(graph, path / "g.lirpkg", targets=["cpu"])
    return path


def profiled(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert group.run(["run", *args, "--profile"]) == 0
    return capsys.readouterr().out


def lines_of(text: str, op: str) -> list[int]:
    return [i for i, line in enumerate(text.splitlines(), 1) if f"= {op}(" in line]


def test_a_graph_with_its_lines_and_a_picture(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "p.svg"
    given = [str(folder / "g.lir"), "-w", str(folder / "w.npz"), "-i", f"x={folder / 'x.npy'}"]
    out = profiled(capsys, *given, "--picture", str(picture))
    text = (folder / "g.lir").read_text()
    for op, said in (("lstm", "scan"), ("dot_general", "product"), ("softmax", "divide")):
        (line,) = lines_of(text, op)
        assert f"{said} at g.lir:{line}" in out
    parts, by_line = out.split("by line:")
    times = [float(t) for t in re.findall(r"^ *([\d.]+) (?:ms|us) +[\d.]+% +.*_\w+$", parts, re.M)]
    assert len(times) >= 3
    assert min(times) > 0
    assert "no line known" not in by_line
    drawn = [e.text for e in ET.parse(picture).iter(f"{SVG}text")]
    for name in re.findall(r"\b(\w+_dispatch_\w+|(?:recurrence|packing)_\w+)", parts):
        assert name in drawn


def test_a_package_has_times_without_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = profiled(capsys, str(folder / "g.lirpkg"), "-i", f"x={folder / 'x.npy'}", "-d", "local-sync")
    assert out.startswith("main on local-sync, 1 workers: ")
    assert "recurrence_" in out
    assert "no line known" in out


def test_an_entry_with_state(rng: np.random.Generator) -> None:
    x = li.input("x", (4, 2, 8))
    h0, c0 = li.input("h0", (1, 2, 8)), li.input("c0", (1, 2, 8))
    w = li.weight("w", rng.standard_normal((32, 8), np.float32))
    y, h, c = li.lstm(x, w, w, h0=h0, c0=c0)
    graph = li.Graph("g", [x, h0, c0], {"y": y, "h": h, "c": c})
    exe = li.compile(li.stateful(graph, {"h0": "h", "c0": "c"}))
    name = "step"
    arrays: dict[str, Any] = {p.name: rng.standard_normal((4, 2, 8), np.float32) for p in exe.entries[name].inputs}
    for _ in range(2):  # before the first call, and with what a call left
        found = exe.profile(name, arrays)
        assert found.seconds > 0
        assert all(r.seconds > 0 and r.count == 1 for r in found.rows)
        before = exe.state["h0"].copy()
        exe.entries[name](arrays)
    assert (before != 0).any()


def test_usage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert group.run(["run", str(folder / "g.lir"), "--picture", "p.svg"]) == 2
    assert "give --profile too" in capsys.readouterr().err
    assert group.run(["run", str(folder / "g.lir"), "--interpret", "--profile"]) == 2


def test_bars_are_as_long_as_their_times() -> None:
    svg = ET.fromstring(bars("t", [("a", "x at m.py:1", 3e-3), ("b", "", 1e-3)], 2e-3))
    wide = [float(r.get("width", "")) for r in svg.iter(f"{SVG}rect") if r.get("rx")]
    assert wide[0] == 3 * wide[1]
    assert wide[2] == 2 * wide[1]
    texts = [t.text for t in svg.iter(f"{SVG}text")]
    assert "3.000 ms  50.0%" in texts
    assert "outside dispatches" in texts


def test_vulkan_has_the_devices_own_times(rng: np.random.Generator) -> None:
    need("vulkan")
    x = li.input("x", (8, 64))
    graph = li.Graph("g", [x], {"y": li.softmax(li.tanh(x), axis=-1)})
    exe = li.compile(graph, "vulkan")
    found = exe.profile("main", {"x": rng.standard_normal((8, 64), np.float32)})
    assert found.workers == 0
    assert all(r.seconds > 0 for r in found.rows)
