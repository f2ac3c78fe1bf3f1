"""TensorFlow's files that are damaged, or made to do damage, are imported: a graph that verifies, or ModelError.

A base is the graph and checkpoint of the tutorial, or, where TensorFlow is installed, what it writes: SavedModels of
Keras, graphs with loops of both kinds. Fields of the graph are altered, bytes of the graph, of a checkpoint's index or
of its data, or messages are nested. What is imported verifies, and small graphs are run by their meaning.
"""

from __future__ import annotations

import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import tensorflow_models
import tensorflow_mutation
from device import look
from mutation import altered
from onnx_ways import SMALL, elements, given
from paths import DOCS

import lstm_ir as li
from lstm_ir.ir.verify import verify

Rng = np.random.Generator
TUTORIAL = DOCS / "tutorial" / "data" / "tf1"
RECORDED = {
    "tensorflow_graph_cases": ("dynamic_lengths", "block_checkpoint", "both_ways"),
    "tensorflow_keras_cases": ("keras_lstm", "keras_bidirectional"),
}
Files = dict[str, bytes]  # by path


@cache
def bases() -> dict[str, Files]:
    """Sound models by name: their files."""
    names = ("graph.pb", "model.ckpt-400.index", "model.ckpt-400.data-00000-of-00001")
    found = {"tutorial": {n.replace("model.ckpt-400", "graph"): (TUTORIAL / n).read_bytes() for n in names}}
    if not look("tensorflow")[0]:
        return found
    with tempfile.TemporaryDirectory() as folder:
        for module, cases in RECORDED.items():
            for name, made in tensorflow_models.made(Path(folder), 1, module, list(cases)).items():
                whole = sorted(p for p in made.path.parent.rglob("*") if p.is_file() and p.name != "arrays.npz")
                mine = [p for p in whole if made.path.is_dir() and made.path in p.parents]
                mine += [p for p in whole if p.name.startswith(f"{name}.")]
                found[name] = {str(p.relative_to(made.path.parent)): p.read_bytes() for p in mine}
    return found


def damaged(rng: Rng) -> tuple[str, Files]:
    """Which base, and its files, one of them changed."""
    names = list(bases())
    name = names[int(rng.integers(len(names)))]
    files = {p: d for p, d in bases()[name].items() if not p.endswith(".npz")}
    if (way := rng.random()) < 0.03:
        return f"{name} as it is", files
    graphs = [p for p in files if p.endswith(".pb") and "fingerprint" not in p]
    path = graphs[int(rng.integers(len(graphs)))]
    kind = "SavedModel" if "saved_model" in path else "GraphDef"
    if way < 0.1:
        files[path] = altered(rng, files[path], tuple(files.values()))
    elif way < 0.3:
        path = list(files)[int(rng.integers(len(files)))]
        files[path] = altered(rng, files[path], tuple(files.values()))
    elif way < 0.32:
        files[path] += tensorflow_mutation.nested(rng, kind)
    else:
        files[path] = tensorflow_mutation.changed(rng, kind, files[path])
    return f"{name}, {path}", files


def trial(rng: Rng, number: int) -> str:
    what, files = damaged(rng)
    for place, data in files.items():
        path = Path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    model = Path(next(iter(files))).parts[0] if any("saved_model" in p for p in files) else _graph(files)
    indices = [p for p in files if p.endswith(".index") and "/" not in p]
    options: dict[str, Any] = {"checkpoint": indices[0][: -len(".index")]} if indices else {}
    if what.startswith("tutorial"):
        options["outputs"] = ["following"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = li.from_tf(model, **options)
        except li.ModelError as e:
            _named(e, what)
            return "refused"
        outcomes = {_ran(g, rng) for g in ([made] if isinstance(made, li.Graph) else made.entries.values())}
    return min(outcomes)


def _graph(files: Files) -> str:
    return next(p for p in files if p.endswith(".pb"))


def _named(e: li.ModelError, what: str) -> None:
    text = str(e)
    assert ": " in text, (what, text)
    for line in e.refusals:
        name, _, reason = line.partition("): ")
        assert " (" in name, (what, text)
        assert reason, (what, text)
        assert "\n" not in line, (what, text)


def _ran(g: li.Graph, rng: Rng) -> str:
    verify(g)
    if elements(g) > SMALL:
        return "imported"
    try:
        li.interpret(g, given(g, rng))
    except li.LstmIrError:
        return "imported, refused at the call"
    return "imported, run"


if __name__ == "__main__":
    campaign.main(trial, seconds=20, memory=6 << 30, prepare=bases)
