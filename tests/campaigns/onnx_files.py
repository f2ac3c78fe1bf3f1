"""ONNX files that are damaged, or made to do damage, are imported: a graph that verifies and runs, or ModelError.

A base file is built here, lies beside the project, or is a small one of the package `onnx`. Bytes are altered, or
fields: op types, domains, attributes, names, sizes, element types, data, operands, subgraphs, versions, places of
external data. A refusal names the file, and nodes with their ops. What is imported verifies. Small models are run, and
where onnxruntime takes the file too, and both give numbers, these are equal. Some trials fix inputs to constants, some
make a program that keeps state and compare its parts with the whole, some ask for the report alone, and print it.
"""

from __future__ import annotations

import contextlib
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import onnx_bases
import onnx_mutation
import onnx_runner
import onnx_streams
from mutation import altered
from onnx_seeds import packaged
from onnx_ways import SMALL, calm, constants, elements, given, report, stream
from paths import MODELS

import lstm_ir as li
from lstm_ir.ir.verify import verify

Rng = np.random.Generator
LARGE = 1 << 20  # bytes of a file of which only bytes are altered now and then, and which is not run


@cache
def bases() -> dict[str, bytes]:
    """Sound files by name."""
    found = {name: made.SerializeToString() for name, made in onnx_bases.models().items()} | streams()
    if MODELS.is_dir():
        found |= {p.name: p.read_bytes() for p in sorted(MODELS.glob("*.onnx")) if p.stat().st_size < LARGE}
    return found


@cache
def streams() -> dict[str, bytes]:
    """Models that look at no later frame."""
    rng = np.random.default_rng(onnx_bases.SEED)
    return {f"stream {n}": onnx_streams.chain(rng, n).made().SerializeToString() for n in range(2, 10)}


def prepare() -> None:
    bases()
    packaged()
    str(li.examine(bases()["lstm"]))  # the libraries that draw and plan are not the first trial's time


def damaged(rng: Rng, causal: bool = False) -> tuple[str, bytes]:
    found = streams() if causal else bases() if rng.random() < 0.5 else packaged()
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
    way = rng.random()
    what, data = damaged(rng, way < 0.1)
    file = Path("model.onnx")
    file.write_bytes(data)
    Path("data.bin").write_bytes(bytes(64))
    Path("outside").mkdir(exist_ok=True)
    model = file if rng.random() < 0.8 else data
    options: dict[str, Any] = {"sizes": {"T": 3}} if rng.random() < 0.1 else {}
    if rng.random() < 0.15:
        options["constants"] = constants(rng, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if way < 0.15:  # of files that are streams two thirds
                return stream(model, rng, **options)
            if way < 0.3:
                return report(model, rng, **options)
            g = li.from_onnx(model, **options)
        except li.ModelError as e:
            _named(e, number)
            return "refused"
        verify(g)
        if len(data) > LARGE or elements(g) > SMALL:
            return "imported"
        return _ran(g, data, what, rng, options.get("constants", {}))


def _named(e: li.ModelError, number: int) -> None:
    """Refusals name nodes and ops; the rest names the file, or what was asked for."""
    text = str(e)
    assert text.startswith(("model.onnx: ", "<onnx>: ", "from_onnx ", "the function ")), text
    for line in e.refusals:
        name, _, reason = line.partition("): ")
        assert " (" in name, text
        assert reason, text
        assert "\n" not in line, text


def _ran(g: li.Graph, data: bytes, what: str, rng: Rng, fixed: dict[str, Any]) -> str:
    try:
        arrays = given(g, rng)
        got = li.interpret(g, arrays)
    except li.LstmIrError:
        return "imported, refused at the call"
    wanted = onnx_runner.by_onnxruntime(data, {**arrays, **fixed}) if calm(g) else None
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
