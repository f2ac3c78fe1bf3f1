"""HDF5 files, which may come from anybody: HDF5 is C code, so a process of its own reads them, with limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.importers.refusals import printable
from lstm_ir.ir.errors import ModelError

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Mapping[str, Any]]
SECONDS = 10
"""Of processor time that reading a small file may take: HDF5 runs without end over some damaged ones."""
RATE = 32 << 20  # bytes of a larger one for each second more
BUSY_FACTOR = 6  # times as long the process may take where the machine is busy
MEMORY = 2 << 30  # bytes that the process may have beside what the file needs
_CHILD = Path(__file__).with_name("hdf5_child.py")


def read_hdf5(path: Path, where: str) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
    """Arrays by path, and attributes by the path of their group ("" is the file).

    ModelError for what is no HDF5 file, is damaged, links outside, or takes too long or too much memory.
    """
    with tempfile.TemporaryDirectory(prefix="lstm-ir-") as folder:
        found = Path(folder) / "found.npz"
        size = path.stat().st_size
        limit, seconds = MEMORY + 4 * size, SECONDS + size // RATE
        command = [sys.executable, "-I", str(_CHILD), str(path), str(found), str(limit), str(seconds)]
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HDF5_USE_FILE_LOCKING": "FALSE"}
        env["HDF5_PLUGIN_PRELOAD"] = "::"  # no filter from a shared library
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=BUSY_FACTOR * seconds,
                env=env,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ModelError(f"{where}: reading it took more than {BUSY_FACTOR * seconds} s") from None
        if done.returncode == 3:
            raise ModelError("to read HDF5 needs h5py: pip install 'lstm-ir[keras]'")
        if done.returncode != 0 or not found.exists():
            raise ModelError(f"{where}: not a whole HDF5 file, or a damaged one: {_said(done)}")
        try:
            with np.load(found, allow_pickle=False) as z:
                index = json.loads(z["index"].tobytes())
                arrays = {name: z[f"a{k}"] for k, name in enumerate(index["arrays"])}
        except (ValueError, KeyError, OSError) as e:
            raise ModelError(f"{where}: its reader gave no arrays: {e}") from e
        return arrays, index["attributes"]


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last line of the process, or what ended it."""
    if done.returncode < 0:
        return f"its reader was ended by signal {-done.returncode}, {signal.Signals(-done.returncode).name}"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return printable(lines[-1][:300]) if lines else f"its reader ended with {done.returncode}"
