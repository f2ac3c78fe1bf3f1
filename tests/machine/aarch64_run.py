"""Programs compiled for aarch64, run by the runtime of that architecture under qemu."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import aarch64
import numpy as np
from device import qemu

import lstm_ir as li
from lstm_ir.api import Report, build
from lstm_ir.backends.files import parameters
from lstm_ir.backends.run.devices import resolve


def compiled(work: Path, program: li.Program, word: str = "cpu:aarch64", **options: Any) -> Report:
    """The module and its weights in the folder `work`."""
    lowered, blob = build(program, resolve(word), options)
    (work / "m.vmfb").write_bytes(blob)
    weights = {n: np.ascontiguousarray(d.array) for n, d in lowered.program.weights.items()}
    parameters.index(weights).create_archive_file(str(work / "w.irpa"))
    return lowered.report


def run(work: Path, entry: str, graph: li.Graph, arrays: dict[str, Any], *flags: str) -> dict[str, Any]:
    """The results of an entry, whose graph says the order of inputs and outputs."""
    command = [qemu(), "-L", str(aarch64.sysroot()), str(aarch64.tool()), "--module=m.vmfb"]
    command += ["--parameters=model=w.irpa", f"--function={entry}", *flags]
    for i, p in enumerate(graph.params):
        np.save(work / f"{entry}{i}.npy", arrays[p.node.attrs["name"]])
        command.append(f"--input=@{entry}{i}.npy")
    command += [f"--output=@{entry}out{i}.npy" for i in range(len(graph.outputs))]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{entry}: {done.stderr[-2000:]}"
    return {k: np.load(work / f"{entry}out{i}.npy") for i, k in enumerate(graph.output_names)}
