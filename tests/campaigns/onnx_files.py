"""ONNX files that are damaged, or made to do damage, are imported: a graph that verifies and runs, or ModelError.

A base file is built here, lies beside the project, or is a small one of the package `onnx`. Bytes are altered, or
fields: op types, domains, attributes, names, sizes, element types, data, operands, subgraphs, versions, places of
external data. A refusal names the file, and nodes with their ops. What is imported verifies. Small models are run, and
where onnxruntime takes the file too, and both give numbers, these are equal.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import onnx_bases
import onnx_mutation
import onnx_runner
from mutation import altered
from paths import MODELS

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.verify import verify

Rng = np.random.Generator
LARGE = 1 << 20  # bytes of a file of which only bytes are altered now and then, and which is not run
PACKAGED = 1 << 16  # bytes of a file of the package `onnx`
SMALL = 1 << 16  # elements of all operands and results of a graph that is run
SIZES = (3, 1, 2, 5)


@cache
def bases() -> dict[str, bytes]:
    """Sound files by name."""
    found = {name: made.SerializeToString() for name, made in onnx_bases.models().items()}
    if MODELS.is_dir():
        found |= {p.name: p.read_bytes() for p in sorted(MODELS.glob("*.onnx")) if p.stat().st_size < LARGE}
    return found


@cache
def packaged() -> dict[str, bytes]:
    """Files of the tests of `onnx` by folder."""
    import onnx

    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    small = (p for p in sorted(data.rglob("*.onnx")) if p.stat().st_size < PACKAGED)
    return {str(p.relative_to(data)): p.read_bytes() for p in small}


def prepare() -> None:
    bases()
    packaged()


def damaged(rng: Rng) -> tuple[str, bytes]:
    found = bases() if rng.random() < 0.5 else packaged()
    names = list(found)
    name = names[int(rng.integers(len(names)))]
    data = found[name]
    if (way := rng.random()) < 0.03:
        return f"{name} as it is", data
    if way < 0.25:
        return f"{name}, bytes", altered(rng, data, tuple(found.values()))
    if way < 0.28:
        return f"{name}, nested", onnx_mutation.nested(rng, data)
    return f"{name}, fields", onnx_mutation.changed(rng, data)


def trial(rng: Rng, number: int) -> str:
    what, data = damaged(rng)
    file = Path("model.onnx")
    file.write_bytes(data)
    Path("data.bin").write_bytes(bytes(64))
    Path("outside").mkdir(exist_ok=True)
    sizes = {"T": 3} if rng.random() < 0.1 else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            g = li.from_onnx(file if rng.random() < 0.8 else data, sizes=sizes)
        except li.ModelError as e:
            _named(e, number)
            return "refused"
        verify(g)
        if len(data) > LARGE or _elements(g) > SMALL:
            return "imported"
        return _ran(g, data, what, rng)


def _named(e: li.ModelError, number: int) -> None:
    """Refusals name nodes and ops; the rest names the file, or what was asked for."""
    text = str(e)
    assert text.startswith(("model.onnx: ", "<onnx>: ", "from_onnx ", "the function ")), text
    for line in e.refusals:
        name, _, reason = line.partition("): ")
        assert " (" in name, text
        assert reason, text
        assert "\n" not in line, text


def _sizes(g: li.Graph) -> dict[str, int]:
    """A number for each name of a size, in the order of the inputs."""
    names: dict[str, int] = {}
    for p in g.params:
        for d in p.type.shape:
            for name in sorted(dims.names(d)):
                names.setdefault(name, SIZES[len(names) % len(SIZES)])
    return names


def _elements(g: li.Graph) -> int:
    """How many elements the values of a graph have in a trial; of a loop a hundred times as many."""
    names, total = _sizes(g), 0
    for n in g.nodes:
        for t in n.types:
            try:
                size = math.prod(max(0, dims.evaluate(d, names)) for d in t.shape)
            except (li.LstmIrError, KeyError):  # a size that no input has
                continue
            total += size * (100 if n.op.name == "scan" else 1)
    return total


def _given(g: li.Graph, rng: Rng) -> dict[str, Any]:
    names, found = _sizes(g), {}
    for p in g.params:
        t = p.type
        shape = [max(0, dims.evaluate(d, names)) for d in t.shape]
        drawn = rng.standard_normal(shape) if t.dtype.is_float else rng.integers(0, 2, shape)
        found[p.node.attrs["name"]] = drawn.astype(t.dtype.numpy)
    return found


def _calm(g: li.Graph) -> bool:
    """Whether no constant is NaN, or above a million.

    Sums of such numbers overflow, or keep no digit of the others; where NaN stands among sorted ones nobody says.
    """
    floats = (
        n.attrs["value"].array for n in g.nodes if n.op.name in ("weight", "constant") and n.types[0].dtype.is_float
    )
    return all(bool(((np.abs(a) <= 1e6) | np.isinf(a)).all()) for a in floats)


def _ran(g: li.Graph, data: bytes, what: str, rng: Rng) -> str:
    try:
        given = _given(g, rng)
        got = li.interpret(g, given)
    except li.LstmIrError:
        return "imported, refused at the call"
    wanted = onnx_runner.by_onnxruntime(data, given) if _calm(g) else None
    if wanted is None:
        return "imported, run"
    for (name, a), w in zip(got.items(), wanted, strict=True):
        assert a.dtype == w.dtype, (what, name, a.dtype, w.dtype)
        assert a.shape == w.shape, (what, name, a.shape, w.shape)
        onnx_runner.close(a, w, f"{what}: {name}")
    return "imported, as onnxruntime"


if __name__ == "__main__":
    with contextlib.suppress(ImportError):
        import onnxruntime  # noqa: F401  before the first trial's time begins
    campaign.main(trial, seconds=20, memory=6 << 30, prepare=prepare)
