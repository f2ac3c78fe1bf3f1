"""DTLN's SavedModels, by drawn weights and by its authors': beside TensorFlow, and beside its ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dtln
import numpy as np
import pytest
import tensorflow_models as tm
from device import model_file, need
from tensorflow_compare import compare
from tensorflow_dtln_cases import CASES
from tolerances import BETWEEN_RUNTIMES, RECURRENCE, close

import lstm_ir as li

pytestmark = pytest.mark.xdist_group("tensorflow")
STREAMS = [n for n in CASES if n.startswith("stream")]
LIMIT = RECURRENCE["f32", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kinds of weights with a signal; the authors' where their files are."""
    need("tensorflow")
    where, rng = tmp_path_factory.mktemp("dtln"), np.random.default_rng(5)
    signal = (0.1 * rng.standard_normal(dtln.FRAME + 12 * dtln.SHIFT)).astype(np.float32)
    for kind in kinds():
        weights = dtln.drawn(rng)
        if kind == "file":
            weights |= dtln.of_files(*(model_file(n) for n in dtln.FILES))
        arrays: dict[str, Any] = {f"{n}/{k}": a for n, held in weights.items() for k, a in enumerate(held)}
        np.savez(where / f"dtln_{kind}.npz", signal=dtln.speech() if kind == "file" else signal, **arrays)
    return where


def kinds() -> list[str]:
    return ["drawn", *(["file"] if dtln.published() else [])]


@pytest.fixture(scope="module")
def streams(folder: Path) -> dict[str, tm.Recorded]:
    return made(folder, STREAMS)


@pytest.fixture(scope="module")
def others(folder: Path) -> dict[str, tm.Recorded]:
    return made(folder, [n for n in CASES if n not in STREAMS])


def made(folder: Path, names: list[str]) -> dict[str, tm.Recorded]:
    """The cases whose weights are here."""
    there = [n for n in names if n.rpartition("_")[2] in kinds()]
    return tm.made(folder, 5, "tensorflow_dtln_cases", there)


def recorded(models: dict[str, tm.Recorded], name: str) -> tm.Recorded:
    for file in dtln.FILES if name.endswith("file") else ():
        model_file(file)
    return models[name]


@pytest.mark.slow_cases(name=[n for n in STREAMS if n != "stream_normed_drawn"])
@pytest.mark.parametrize("name", STREAMS)
def test_frame_by_frame(name: str, streams: dict[str, tm.Recorded]) -> None:
    """The layers' states are the program's."""
    want = recorded(streams, name)
    program = li.from_tf(want.path)
    assert isinstance(program, li.Program)
    assert len(program.state) == 8
    with li.compile(program) as exe:
        for _ in range(2):
            got = np.concatenate([exe.entries["step"](x=row[None])["y"] for row in want.inputs["x"]])
            close({"y": got}, want.outputs, LIMIT, name)
            exe.entries["reset"]()


@pytest.mark.slow
def test_the_saved_model_is_the_onnx_files(streams: dict[str, tm.Recorded]) -> None:
    """With the authors' weights: their files by onnxruntime, and as this project imports them."""
    need("onnx", "onnx_ir", "onnxruntime")
    want = recorded(streams, "stream_file")
    files, rows = [model_file(f) for f in dtln.FILES], want.inputs["x"]
    by_runtime = dtln.chained(map(dtln.by_onnxruntime, files), rows)
    with li.compile(li.from_onnx(files[0])) as first, li.compile(li.from_onnx(files[1])) as second:
        ours = dtln.chained(map(dtln.called, (first, second)), rows)
    with li.compile(li.from_tf(want.path)) as exe:
        got = np.concatenate([exe.entries["step"](x=row[None])["y"][:, 0] for row in rows])
    for y in (want.outputs["y"][:, 0], ours, got):
        close({"y": y}, {"y": by_runtime}, BETWEEN_RUNTIMES, "onnxruntime")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("whole")])
def test_whole_signals(name: str, others: dict[str, tm.Recorded]) -> None:
    """A number of samples that is that of whole frames, so that sizes say how many there are; with gradients."""
    want = recorded(others, name)
    graph = li.from_tf(want.path, sizes={"T": "128*N+512"})
    assert isinstance(graph, li.Graph)
    assert str(graph.params[0].type) == "f32[B,128*N+512]"
    compare(want, graph, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("unrolled")])
def test_unrolled_cores(name: str, others: dict[str, tm.Recorded]) -> None:
    """The form for TFLite: states go in and come out."""
    want = recorded(others, name)
    graph = li.from_tf(want.path)
    assert isinstance(graph, li.Graph)
    assert [str(p.type) for p in graph.params][1] == "f32[1,2,128,2]"
    states, made = np.zeros((1, 2, 128, 2), np.float32), []
    with li.compile(graph) as exe:
        for row in want.inputs["rows"]:
            given = dict(zip(graph.input_names, (row[None, None], states), strict=True))
            found = exe(given)
            states = found["after"]
            made.append(found["y"])
    close({"y": np.stack(made), "after": states}, want.outputs, LIMIT, name)
