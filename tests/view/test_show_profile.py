"""`lstm-ir show --profile`: nodes coloured by the time of the dispatches that compute them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.cli import group
from lstm_ir.view.drawing import CHAR, Coloured
from lstm_ir.view.picture import picture
from lstm_ir.view.times import LEGEND, STEPS, coloured

SVG = "{http://www.w3.org/2000/svg}"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    monkeypatch.chdir(tmp_path)
    x = li.input("x", (40, 2, 8))
    w = li.weight("w", rng.standard_normal((64, 8), np.float32))
    r = li.weight("r", rng.standard_normal((64, 16), np.float32))
    y, h, _ = li.lstm(x, w, r)
    graph = li.Graph("g", [x], {"y": li.softmax(y, -1), "h": h})
    Path("g.lir").write_text(str(graph))
    np.savez("w.npz", **{n: v.node.attrs["value"].array for n, v in graph.weights.items()})
    np.save("x.npy", rng.standard_normal((40, 2, 8), np.float32))
    return tmp_path


def test_each_node_has_the_time_of_all_its_dispatches() -> None:
    x = li.input("x", (3,))
    y = li.tanh(x)
    z = li.exp(y)
    graph = li.Graph("g", [x], {"z": z + 1.0})
    file, line, other = Path(y.node.loc.file).name, y.node.loc.line, z.node.loc.line
    a, b = (file, line, "tanh"), (file, other, "exponential")
    found = coloured(graph, [([a, a], 1, 0.002), ([a, b], 1, 0.006), ([("else.py", line, "tanh")], 1, 9.0)], 0.01)
    assert found == {y.node: Coloured(4, "8.000 ms, 80.0%"), z.node: Coloured(4, "6.000 ms, 60.0%")}
    for share, step in ((0.0, 0), (0.0099, 0), (0.01, 1), (0.05, 2), (0.2, 3), (0.5, 4), (1.0, 4)):
        assert coloured(graph, [([a], 1, share)], 1.0)[y.node].step == step
    assert coloured(graph, [([a], 1, 0.0)], 0.0)[y.node] == Coloured(0, "0.000 ms, 0.0%")
    assert len(LEGEND) == len(STEPS) + 4


def test_equal_layers_share_the_time_of_their_dispatch() -> None:
    """Three nodes of one line: their shares are those of the dispatch, not three times as much."""
    x = y = li.input("x", (3,))
    for _ in range(3):
        y = li.tanh(y)
    graph = li.Graph("g", [x], {"y": y})
    place = (Path(y.node.loc.file).name, y.node.loc.line, "tanh")
    found = coloured(graph, [([place], 1, 0.006), ([place], 1, 0.003)], 0.01)
    assert found == {n: Coloured(3, "3.000 ms, 30.0%, 1 of 3") for n in graph.nodes if n.op.name == "tanh"}
    assert len(found) == 3


def test_equal_layers_of_several_lines_share_the_calls_of_one_dispatch() -> None:
    x = li.input("x", (3,))
    a = li.tanh(x)
    b = li.tanh(a)
    places = [(Path(v.node.loc.file).name, v.node.loc.line, "tanh") for v in (a, b)]
    graph = li.Graph("g", [x], {"b": b})
    together = coloured(graph, [(places, 2, 0.006)], 0.01)
    assert together == dict.fromkeys((a.node, b.node), Coloured(3, "3.000 ms, 30.0%, 1 of 2"))
    fused = coloured(graph, [(places, 1, 0.006)], 0.01)
    assert fused == dict.fromkeys((a.node, b.node), Coloured(4, "6.000 ms, 60.0%"))


@pytest.mark.slow
def test_three_equal_layers_have_a_third_each(folder: Path) -> None:
    x = y = li.input("x", (40, 2, 16))
    for k in range(3):
        y = li.lstm(y, li.weight(f"w{k}", np.ones((64, 16), "f4")), li.weight(f"r{k}", np.ones((64, 16), "f4"))).y
    Path("three.lir").write_text(str(li.Graph("g", [x], {"y": y})))
    weights = {f"{n}{k}": np.full((64, 16), 0.01, "f4") for n in "wr" for k in range(3)}
    np.savez("w.npz", **weights)  # type: ignore[arg-type]  # names of arrays, not of options
    np.save("x.npy", np.ones((40, 2, 16), "f4"))
    assert group.run("show three.lir -w w.npz --profile -i x=x.npy -o p.svg".split()) == 0
    boxes = [[t.text or "" for t in g.findall(f"{SVG}text")] for g in ET.parse("p.svg").getroot().iter(f"{SVG}g")]
    shares = [w for words in boxes if "scan" in words for w in words if "1 of 3" in w]
    assert len(shares) == 3
    assert sum(float(w.split(", ")[1].removesuffix("%")) for w in shares) <= 100.2


def right_ends(svg: str) -> list[float]:
    """Where texts that stand in the picture itself end."""
    root = ET.fromstring(svg)
    return [float(t.get("x", "0")) + CHAR * len(t.text or "") for t in root.findall(f"{SVG}text")]


@pytest.mark.parametrize("layers", [1, 4])
def test_the_legend_is_inside_the_picture(layers: int) -> None:
    x = y = li.input("x", (3,))
    for _ in range(layers):
        y = li.tanh(y)
    svg = picture([(str(i), li.Graph("g", [x], {"y": y})) for i in range(layers)], {}, LEGEND)
    root = ET.fromstring(svg)
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    assert max(right_ends(svg)) <= width
    below = [float(t.get("y", "0")) for t in root.findall(f"{SVG}text") if t.text in LEGEND]
    assert len(below) == len(LEGEND)
    assert max(below) <= height


def test_products_that_are_kernels_are_nodes_too() -> None:
    x = li.input("x", (3, 5))
    y = x @ li.weight("w", np.ones((5, 7), "f4"))
    place = (Path(y.node.loc.file).name, y.node.loc.line, "product")
    assert set(coloured(li.Graph("g", [x], {"y": y}), [([place], 1, 1.0)], 2.0)) == {y.node}


def test_a_graph_is_run_and_its_picture_coloured(folder: Path, capsys: Capture) -> None:
    assert group.run("show g.lir -w w.npz --profile -i x=x.npy -o p.svg".split()) == 0
    root = ET.parse("p.svg").getroot()
    boxes = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}rect") is not None]
    timed = {}
    for g in boxes:
        rect, words = g.find(f"{SVG}rect"), [t.text or "" for t in g.findall(f"{SVG}text")]
        assert rect is not None
        kind = rect.get("class", "")
        assert kind.startswith("s") or kind == "k-elementwise"
        times = [w for w in words if "%" in w and " ms, " in w]
        assert bool(times) == kind.startswith("s")
        if times:
            name = next(t.text for t in g.findall(f"{SVG}text") if (t.get("class") or "").startswith("t"))
            timed[name] = times[0]
    assert float(timed["scan"].split(" ms")[0]) > 0
    assert all(float(t.split(" ms")[0]) >= 0 for t in timed.values())  # a softmax of 48 rows may take under 0.5 us
    words = [t.text or "" for t in root.iter(f"{SVG}text")]
    assert set(LEGEND) <= set(words)
    assert any(t.startswith("@g, main on ") and t.endswith(" ms per call") for t in words)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("show g.lir --profile -i x=x.npy", 2, "needs -o FILE.svg"),
        ("show g.lir --profile -i x=x.npy -o g.txt", 2, "needs -o FILE.svg"),
        ("show g.lir --profile -i x=x.npy -s core -o p.svg", 2, "of the scheduled graph"),
        ("show g.lir -i x=x.npy -o p.svg", 2, "give --profile too"),
        ("show g.lir -w w.npz --profile -i x=x.npy -t metal -o p.svg", 1, "metal"),
        ("show g.lir -w w.npz --profile -i x=x.npy -t hip:gfx942 -o p.svg", 1, "hip"),
    ],
)
def test_what_cannot_be_coloured_is_refused_by_name(
    folder: Path, capsys: Capture, line: str, code: int, said: str
) -> None:
    assert group.run(line.split()) == code
    assert said in capsys.readouterr().err
    assert not Path("p.svg").exists()
