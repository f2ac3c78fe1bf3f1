"""Scratch memory of loops: one tensor where a dispatch takes few, one that stays where it can."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from iree.compiler import ir
from iree_stream import stream

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.emit.options import DispatchLimits, Options
from lstm_ir.backends.kernels.call.call import KernelCall
from lstm_ir.backends.kernels.cpu import scratch
from lstm_ir.backends.kernels.cpu.machine import KEPT_BYTES, KEPT_ROWS
from lstm_ir.backends.module import iree_module
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.interpret import interpret

SIZES = ((5, 3), (1, 1), (2, 0), (0, 2), (9, 18))


@pytest.mark.slow
def test_scratch_memories_share_a_tensor(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a dispatch may take few; against the loop, for several sizes of one module."""
    shared = []
    original = scratch._together

    def seen(made: KernelCall, rows: list[scratch.ScratchRows]) -> scratch.Scratch:
        shared.append(rows)
        return original(made, rows)

    monkeypatch.setattr(scratch, "_together", seen)
    monkeypatch.setattr(scratch, "_kept", lambda *_: None)  # as in a loop's body
    I, H = 7, 19
    arrays = {"w_ih": (2, 4 * H, I), "w_hh": (2, 4 * H, H), "b": (2, 4 * H)}
    w = {n: rng.standard_normal(s).astype(np.float32) * 0.3 for n, s in arrays.items()}
    x = li.input("x", ("T", "B", I))
    y, h_n, c_n = li.lstm(x, *(li.weight(n, a) for n, a in w.items()), direction="bidirectional")
    outputs = {"loss": li.sum(y * y) + li.sum(h_n[0] * c_n[1])}
    g = li.grad(li.Graph("both", [x], outputs), "loss", ["x", "w_hh", "b"])
    few = {"thresholds": {"scratch_tensors": 0}}
    exe, loop = li.compile(g, options=few), li.compile(g, options={"kernels": False})
    assert [n for n in exe.report.notes if ": loop" in n] == []
    assert len(shared) > 2  # there and back, each with a projection before and inside
    assert max(map(len, shared)) > 2
    for T, B in SIZES:
        a = rng.standard_normal((T, B, I)).astype(np.float32)
        got, want = exe(x=a), loop(x=a)
        for name, v in want.items():
            largest = np.abs(v).max(initial=1.0)
            assert np.abs(got[name] - v).max(initial=0.0) <= 1e-5 * largest, (name, T, B)


def _layers(T: int, B: int, H: int, count: int = 2) -> li.Graph:
    """Bidirectional layers of one size."""
    rng = np.random.default_rng(7)
    x = y = li.input("x", (T, B, 2 * H))
    for k in range(count):
        shapes = {"w": (2, 4 * H, 2 * H), "r": (2, 4 * H, H), "b": (2, 4 * H)}
        w = {n: rng.uniform(-0.2, 0.2, s).astype(np.float32) for n, s in shapes.items()}
        y = li.lstm(y, *(li.weight(f"{n}{k}", a) for n, a in w.items()), direction="bidirectional")[0]
    return li.Graph("layers", [x], {"y": y})


def test_globals_for_scratch_differ_in_size() -> None:
    """IREE makes one of two that are alike, and a loop's rows would be another's."""
    text = prepare(_layers(5, 3, 20, count=3), resolve("cpu")).text
    found = re.findall(r"util.global private @lstm_ir.scratch(\d+) : (\S+)", text)
    assert sorted(n for n, _ in found) == ["0", "1", "2"]
    assert len({kind for _, kind in found}) == 3
    assert text.count("flow.tensor.splat") == 3  # the globals, at load


def test_globals_of_any_sizes_differ_in_type() -> None:
    """Sizes that a cache line for each global before would make equal: two kernels had one memory."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            made = [scratch._declare(n) for n in (640, 576, 512, 640, 704)]
    assert len({kind for _, kind in made}) == len({symbol for symbol, _ in made}) == 5


def test_scratch_is_not_in_the_module_nor_without_bound(rng: np.random.Generator) -> None:
    """A module does not grow with its zeros; memory of more than the limit is a call's own."""
    sizes = [li.compile(_layers(2, B, 20)).report.module_bytes for B in (3, 300)]
    assert sizes[1] < sizes[0] + 20_000
    many = KEPT_BYTES // (2 * 2 * 20 * 4) + 1
    graph = _layers(2, many, 20, count=1)
    assert "lstm_ir.scratch" not in prepare(graph, resolve("cpu")).text
    a = rng.standard_normal((2, many, 40)).astype(np.float32)
    want = interpret(graph, {"x": a})["y"]
    np.testing.assert_allclose(li.compile(graph)(x=a)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(4, 1), ("T", "B")])
def test_a_kernel_that_does_not_fit_leaves_nothing(sizes: tuple[Any, Any]) -> None:
    """Neither its scratch, nor packed weights, nor the executable of one of two variants."""
    x = li.input("x", (*sizes, 5))
    w, r = (li.weight(n, np.ones((4 * 6, k), np.float32)) for n, k in (("w", 5), ("r", 6)))
    graph = li.Graph("layer", [x], {"y": li.lstm(x, w, r)[0]})
    assert "stream.executable" in prepare(graph, resolve("cpu")).text
    notes: list[str] = []
    few = Options(kernels=True, dispatch=DispatchLimits(tensors=2))
    text = iree_module(prepare(graph, resolve("cpu")).optimized, resolve("cpu").info, few, notes).text
    assert any("it reads and writes" in n for n in notes)
    left = ("stream.executable", "flow.dispatch", "lstm_ir.scratch", "lstm_ir.workers", "stablehlo.pad")
    assert [word for word in left if word in text] == []


@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_calls_leave_no_trace(device: str, rng: np.random.Generator) -> None:
    """Each call as the first one, bit for bit; of several threads too."""
    graph = _layers(9, 5, 24)
    inputs = [rng.standard_normal((9, 5, 48)).astype(np.float32) for _ in range(3)]
    first = [li.compile(graph, device=device)(x=a)["y"] for a in inputs]
    want = [interpret(graph, {"x": a})["y"] for a in inputs]
    for a, b in zip(first, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    with li.compile(graph, device=device) as exe, ThreadPoolExecutor(3) as pool:
        for _ in range(50):
            for a, b in zip(inputs, first, strict=True):
                assert (exe(x=a)["y"] == b).all()
        numbers = [k % 3 for k in range(60)]
        got = pool.map(lambda k: exe(x=inputs[k])["y"], numbers)
        assert all((a == first[k]).all() for a, k in zip(got, numbers, strict=True))


def _named(H: int, count: int = 1) -> li.Graph:
    """As `_layers`, with names."""
    graph = _layers(5, 3, H, count)
    w = {n.attrs["name"]: n.attrs["value"].array for n in graph.nodes if n.op.name == "weight"}
    x = y = li.input("x", ("T", "B", 2 * H))
    for k in range(count):
        y = li.lstm(y, *(li.weight(f"{n}{k}", w[f"{n}{k}"]) for n in "wrb"), direction="bidirectional")[0]
    return li.Graph("layers", [x], {"y": y})


@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_named_sizes_leave_no_trace(device: str, rng: np.random.Generator) -> None:
    """One module; calls of few rows and steps share memory, larger ones have their own: in any order, each as alone."""
    H = 24
    sizes = [(1, 1), (7, 2), (0, 3), (4, 0), (5, 9), (2, KEPT_ROWS), (2, KEPT_ROWS + 1), (1500, 1), (3, 1)]
    graph = _named(H, count=2)
    inputs = {s: (0.5 * rng.standard_normal((*s, 2 * H))).astype(np.float32) for s in sizes}
    first = {s: li.compile(graph, device=device)(x=a)["y"] for s, a in inputs.items()}
    for s in sizes[:-2]:
        np.testing.assert_allclose(first[s], interpret(graph, {"x": inputs[s]})["y"], rtol=1e-5, atol=1e-5)
    with li.compile(graph, device=device) as exe, ThreadPoolExecutor(3) as pool:
        order = [sizes[i] for i in rng.integers(0, len(sizes), 150)]
        for s in order:
            np.testing.assert_array_equal(exe(x=inputs[s])["y"], first[s], err_msg=str(s))
        for s, y in zip(order, pool.map(lambda s: exe(x=inputs[s])["y"], order), strict=True):
            np.testing.assert_array_equal(y, first[s], err_msg=str(s))


def test_a_call_with_named_sizes_allocates_its_results_alone() -> None:
    """Within the room that a module keeps: no scratch, no fill, one submission; beyond it all three. Few rows have room
    at any number of steps."""
    _, main = stream(_named(20))
    assert main.count("lstm_ir.scratch") >= 2  # both variants
    branches = [b for b in re.split(r"\n  \^bb", main) if "stream.cmd.dispatch @recurrence_" in b]
    kept = [b for b in branches if "stream.cmd.fill" not in b]
    assert (len(kept), len(branches)) == (2, 3)
    for b in kept:
        assert b.count("stream.resource.alloca") == b.count("stream.cmd.execute") == 1


@pytest.mark.slow_cases(gates=[3])
@pytest.mark.slow_cases(layers=[2])
@pytest.mark.parametrize(("cell", "gates"), [(li.lstm, 4), (li.gru, 3)])
@pytest.mark.parametrize(("ways", "layers", "H"), [(1, 1, 19), (2, 1, 5), (1, 2, 7)])
def test_results_of_branches(ways: int, layers: int, H: int, cell: Any, gates: int, rng: np.random.Generator) -> None:
    """Results whose bytes are no whole lines, of several loops; IREE packs them, and a branch may lose an offset."""
    x = y = li.input("x", ("T", "B", 6))
    outputs: dict[str, li.Value] = {}
    for k in range(layers):
        shapes = {"w": (ways, gates * H, int(y.shape[-1])), "r": (ways, gates * H, H), "b": (ways, gates * H)}
        w = [li.weight(f"{n}{k}", (0.3 * rng.standard_normal(s)).astype(np.float32)) for n, s in shapes.items()]
        y, *states = cell(y, *w, direction="bidirectional" if ways == 2 else "forward")
        outputs |= {f"s{k}{i}": s for i, s in enumerate(states)}
    outputs["y"] = y
    loss = li.Graph("loss", [x], {"loss": sum((li.sum(v * v) for v in outputs.values()), li.constant(0.0))})
    graphs = {"values": li.Graph("values", [x], outputs), "slopes": li.grad(loss, "loss", ["x", "w0", "r0"])}
    exe = li.compile(li.Program("both", graphs))
    for T, B in [(1, 1), (5, 1), (3, 2), (7, 3), (4, KEPT_ROWS + 1), (2, KEPT_ROWS), (0, 2), (3, 0), (40, 1), (6, 5)]:
        a = rng.standard_normal((T, B, 6)).astype(np.float32)
        for entry, graph in graphs.items():
            got = exe.entries[entry](x=a)
            for name, want in li.interpret(graph, {"x": a}).items():
                largest = np.abs(want).max(initial=1.0)
                assert np.abs(got[name] - want).max(initial=0.0) <= 3e-5 * largest, (entry, name, T, B)


@pytest.mark.parametrize("H", [4, 20])
@pytest.mark.parametrize(("cell", "gates"), [(li.lstm, 4), (li.gru, 3), (li.rnn, 1)])
def test_rows_between_layers_that_others_read_too(cell: Any, gates: int, H: int, rng: np.random.Generator) -> None:
    """Of two branches of one condition IREE makes one, in which the second layer read zeros: each has its own."""
    x = li.input("x", ("T", "B", 3))
    shapes = [(gates * H, 3), (gates * H, H), (gates * H, H), (gates * H, H)]
    w = [li.weight(f"w{k}", (0.3 * rng.standard_normal(s)).astype(np.float32)) for k, s in enumerate(shapes)]
    first = cell(x, *w[:2])[0]
    second = cell(first, *w[2:])[0]
    values = li.Graph("values", [x], {"first": first, "second": second, "both": li.sum(first * second)})
    slopes = li.grad(li.Graph("loss", [x], {"loss": li.sum(second * second)}), "loss", ["x", "w0", "w3"])
    exe = li.compile(li.Program("both", {"values": values, "slopes": slopes}))
    for T, B in [(5, 1), (5, 2), (5, 3), (1, 1), (40, 1)]:
        a = rng.standard_normal((T, B, 3)).astype(np.float32)
        for entry, graph in (("values", values), ("slopes", slopes)):
            got = exe.entries[entry](x=a)
            for name, want in interpret(graph, {"x": a}).items():
                largest = np.abs(want).max(initial=1.0)
                assert np.abs(got[name] - want).max() <= 1e-5 * largest, (entry, name, T, B)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_teams_of_any_size_leave_their_flags_as_they_were(threads: int) -> None:
    """A hundred calls of one module; a flag that stayed would end a wait too early, or never."""
    code = f"""
import numpy as np, lstm_ir as li
li.set_threads({threads})
rng = np.random.default_rng(3)
w = [rng.uniform(-0.1, 0.1, (512, 128)).astype(np.float32) for _ in range(2)]
x = li.input("x", (12, 2, 128))
y = li.lstm(x, *(li.weight(f"w{{i}}", a) for i, a in enumerate(w)))[0]
exe = li.compile(li.Graph("g", [x], {{"y": y}}), "cpu", device="local-task")
inputs = [rng.standard_normal((12, 2, 128)).astype(np.float32) for _ in range(2)]
want = [exe(x=a)["y"] for a in inputs]
for k in range(100):
    assert (exe(x=inputs[k % 2])["y"] == want[k % 2]).all(), k
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_more_teams_than_the_room_has_flags_for() -> None:
    """With many workers 68 rows are 17 teams of several members, and the room of 64 rows has flags for 16."""
    code = """
import numpy as np, lstm_ir as li
li.set_threads(64)
rng = np.random.default_rng(3)
w = [rng.uniform(-0.1, 0.1, (512, 128)).astype(np.float32) for _ in range(2)]
x = li.input("x", ("T", "B", 128))
graph = li.Graph("g", [x], {"y": li.lstm(x, *(li.weight(f"w{i}", a) for i, a in enumerate(w)))[0]})
exe = li.compile(graph, "cpu", device="local-task")
for rows in (68, 3, 68, 200, 64, 68):
    a = rng.standard_normal((3, rows, 128)).astype(np.float32)
    np.testing.assert_allclose(exe(x=a)["y"], li.interpret(graph, {"x": a})["y"], rtol=1e-5, atol=1e-5)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_last_values_that_nothing_reads(rng: np.random.Generator) -> None:
    """They are not written; the others are."""
    x = li.input("x", (4, 3, 40))
    arrays = [rng.uniform(-0.2, 0.2, (80, n)).astype(np.float32) for n in (40, 20)]
    y, h, c = li.lstm(x, *(li.weight(f"w{i}", a) for i, a in enumerate(arrays)))
    a = rng.standard_normal((4, 3, 40)).astype(np.float32)
    for outputs in ({"y": y}, {"h": h}, {"c": c}, {"y": y, "c": c}, {"h": h, "c": c, "y": y}):
        g = li.Graph("some", [x], outputs)
        want = interpret(g, {"x": a})
        for name, got in li.compile(g)(x=a).items():
            np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-5, err_msg=name)
