"""Importers read regular files only: a pipe may never begin, a device never end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li


def onnx_libraries() -> None:
    need("onnx", "onnx_ir")


def protobuf() -> None:
    pytest.importorskip("google.protobuf")


def h5py() -> None:
    pytest.importorskip("h5py")


def nothing() -> None:
    """Beside NumPy."""


IMPORTERS: dict[str, tuple[Callable[[Path], Any], str, Callable[[], None]]] = {
    "onnx": (li.from_onnx, "m.onnx", onnx_libraries),
    "keras": (li.from_keras, "m.keras", nothing),
    "hdf5": (li.from_keras, "m.h5", h5py),
    "tensorflow": (li.from_tf, "m.pb", protobuf),
    "checkpoint": (lambda p: li.from_tf(b"", checkpoint=p), "m.ckpt.index", protobuf),
    "examine": (li.examine, "m.onnx", onnx_libraries),
    "examine by content": (li.examine, "m", onnx_libraries),
    "examine a graph": (li.examine, "m.pb", protobuf),
}


@pytest.mark.parametrize("name", IMPORTERS)
@pytest.mark.parametrize("what", ["a device", "a pipe"])
def test_regular_files_only(name: str, what: str, tmp_path: Path) -> None:
    read, file, needed = IMPORTERS[name]
    needed()
    place = tmp_path / file
    if what == "a device":
        place.symlink_to("/dev/zero")
    else:
        os.mkfifo(place)
    with pytest.raises(li.ModelError, match=f"{file}: not a regular file"):
        read(place)


def test_data_of_an_onnx_model_in_a_pipe(tmp_path: Path) -> None:
    need("onnx", "onnx_ir")
    import onnx
    import onnx_models as om

    weights = {"w": np.ones((4, 3), np.float32)}
    made = om.model([om.node("Mul", ["x", "w"], ["y"], name="scale")], {"x": ([4, 3], "f4")}, ["y"], weights)
    path = tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert li.from_onnx(path).outputs[0].shape == (4, 3)
    (tmp_path / "m.data").unlink()
    os.mkfifo(tmp_path / "m.data")
    with pytest.raises(li.ModelError, match=r"its data is in m\.data, which is not a regular file"):
        li.from_onnx(path)
