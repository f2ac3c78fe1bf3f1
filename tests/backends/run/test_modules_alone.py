"""The module is the model: IREE's own runner with .npy inputs and a parameter file agrees.

No Python of this project takes part in these runs, so nothing can hide outside the module.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample
import zoo

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.files.parameters import write_irpa
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.opdef import OPS

Array = np.ndarray[Any, Any]
EACH = 1  # samples of an op
TOLERANCE = {2: 4e-3, 4: 2e-5, 8: 1e-11}  # by bytes: half rounds to 11 bits


def runner() -> Path:
    from iree import _runtime_libs

    return Path(_runtime_libs.__path__[0]) / "iree-run-module"


def run(folder: Path, module: Path, entry: str, inputs: Mapping[str, Array], outputs: int) -> list[Array]:
    """The results of one function of a module file, on the CPU."""
    command = [str(runner()), f"--module={module}", f"--function={entry}", "--device=local-task"]
    if (folder / "weights.irpa").exists():
        command.append(f"--parameters=model={folder / 'weights.irpa'}")
    for i, a in enumerate(inputs.values()):
        np.save(folder / f"in{i}.npy", np.require(a, requirements="C"))
        command.append(f"--input=@{folder / f'in{i}.npy'}")
    files = [folder / f"out{i}.npy" for i in range(outputs)]
    command += [f"--output=@{f}" for f in files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [np.load(f, allow_pickle=False) for f in files]


def compare(graph: li.Graph, got: list[Array], inputs: Mapping[str, Array]) -> None:
    want = li.interpret(graph, inputs)
    for (name, w), a in zip(want.items(), got, strict=True):
        assert a.shape == w.shape
        if w.dtype.kind == "f":
            tolerance = TOLERANCE[w.dtype.itemsize]
            np.testing.assert_allclose(a.astype("f8"), w.astype("f8"), rtol=tolerance, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(a.astype(w.dtype), w, err_msg=name)


@pytest.mark.slow_cases(name=["branches", "tagger", "two_ways"])
@pytest.mark.parametrize("name", sorted(zoo.ZOO))
def test_zoo(name: str, tmp_path: Path) -> None:
    animal = zoo.get(name)
    lowered, blob = build(animal.graph, resolve("cpu"))
    module = tmp_path / "m.vmfb"
    module.write_bytes(blob)
    weights = {n: d.array for n, d in lowered.program.weights.items()}
    if weights:
        write_irpa(tmp_path / "weights.irpa", weights)
    inputs = {n: animal.inputs[n] for n in animal.graph.input_names}
    got = run(tmp_path, module, "main", inputs, len(animal.graph.outputs))
    compare(animal.graph, got, inputs)


def chosen() -> dict[str, sample.Sample]:
    """A few samples of every op; .npy has no bfloat16."""
    out: dict[str, sample.Sample] = {}
    for op in OPS:
        plain = [s for s in sample.samples(op) if _plain(s)]
        for s in plain[:EACH]:
            out[f"e{len(out)}"] = s
    return out


def _plain(s: sample.Sample) -> bool:
    values = [*s.graph.params, *s.graph.outputs]
    return all(v.dtype is not li.DType.bf16 for v in values) and not s.graph.weights


@pytest.mark.slow
def test_samples_of_every_op(tmp_path: Path) -> None:
    cases = chosen()
    assert len(cases) > 60
    program = li.Program("samples", {k: s.graph for k, s in cases.items()})
    _, blob = build(program, resolve("cpu"))
    module = tmp_path / "m.vmfb"
    module.write_bytes(blob)
    for entry, s in cases.items():
        inputs = {n: np.asarray(s.inputs[n]) for n in s.graph.input_names}
        try:
            compare(s.graph, run(tmp_path, module, entry, inputs, len(s.graph.outputs)), inputs)
        except AssertionError as e:
            raise AssertionError(f"{s.name}: {e}") from e
