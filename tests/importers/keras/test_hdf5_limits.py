"""HDF5 is read in a process of its own: what takes long or much memory, or leads outside, is refused by its name."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.importers.keras import hdf5

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("keras")  # which brings h5py
    pytest.importorskip("h5py")


def written(path: Path, fill: Callable[[Any, Any], None]) -> Path:
    import h5py

    with h5py.File(path, "w", libver="latest") as f:
        fill(f, h5py)
    return path


def refused(path: Path, said: str, within: float) -> None:
    """One error that names the file, in so many seconds at most."""
    began = time.monotonic()
    with pytest.raises(li.ModelError, match=said) as e:
        hdf5.read_hdf5(path, path.name)
    assert str(e.value).startswith(f"{path.name}: ")
    assert time.monotonic() - began < within


def sound(f: Any, h5py: Any) -> None:
    f["layers/dense/vars/0"] = np.arange(6, dtype=np.float32).reshape(3, 2)
    f.attrs["model_config"] = "{}"


def test_what_a_sound_file_holds(tmp_path: Path) -> None:
    arrays, attributes = hdf5.read_hdf5(written(tmp_path / "m.h5", sound), "m.h5")
    assert list(arrays) == ["layers/dense/vars/0"]
    np.testing.assert_array_equal(arrays["layers/dense/vars/0"], np.arange(6, dtype=np.float32).reshape(3, 2))
    assert attributes[""] == {"model_config": "{}"}


def many_groups(f: Any, h5py: Any) -> None:
    """Two seconds of reading and more in a small file: attributes are slow."""
    for k in range(50_000):
        h5py.h5g.create(f.id, b"%d" % k)


def test_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is ended by the system at its limit, wherever HDF5 is."""
    path = written(tmp_path / "m.h5", many_groups)
    monkeypatch.setattr(hdf5, "SECONDS", 1)
    refused(path, "its reader was ended by signal (24, SIGXCPU|9, SIGKILL)", within=6 * hdf5.BUSY_FACTOR)


def test_time_on_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits takes no processor time: it has a limit on the clock too, and is gone afterwards."""
    path = written(tmp_path / "m.h5", sound)
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import time\ntime.sleep(300)\n", encoding="utf-8")
    monkeypatch.setattr(hdf5, "_CHILD", sleeper)
    monkeypatch.setattr(hdf5, "SECONDS", 1)
    monkeypatch.setattr(hdf5, "BUSY_FACTOR", 2)
    refused(path, r"reading it took more than 2 s", within=20)


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that are not too large each, and too large together: 50 times what the file has."""

    def fill(f: Any, h5py: Any) -> None:
        rows = np.zeros((64, MEGABYTE), np.uint8)
        rows[:, : MEGABYTE // 50] = np.random.default_rng(0).integers(0, 256, (64, MEGABYTE // 50), np.uint8)
        for k in range(12):
            f.create_dataset(f"a{k}", data=rows, chunks=(1, MEGABYTE), compression="lzf")

    path = written(tmp_path / "m.h5", fill)
    assert path.stat().st_size * 30 < 12 * 64 * MEGABYTE
    monkeypatch.setattr(hdf5, "MEMORY", 512 * MEGABYTE)
    refused(path, "(?i)memory|unable to allocate|can't (read|allocate)", within=60)


def virtual(f: Any, h5py: Any) -> None:
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = h5py.VirtualSource("secret.h5", "x", (3,))
    f.create_virtual_dataset("a", layout)


def unknown_filter(f: Any, h5py: Any) -> None:
    """A filter that would be a shared library: none is loaded."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((4,))
    properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple((4,))
    d = h5py.Dataset(h5py.h5d.create(f.id, b"a", h5py.h5t.NATIVE_FLOAT, space, properties))
    d.id.write_direct_chunk((0,), bytes(16), 0)


def claiming(f: Any, h5py: Any) -> None:
    f.create_dataset("a", (1 << 20, 1 << 20), "f4", chunks=(1 << 10, 1 << 10), compression="gzip")


PLACES: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "an external link": (lambda f, h: f.__setitem__("a", h.ExternalLink("/etc/passwd", "/x")), "a is a ExternalLink"),
    "an external link in a group": (
        lambda f, h: f.create_group("g").__setitem__("a", h.ExternalLink("other.h5", "/")), "g/a is a ExternalLink"),
    "a soft link": (lambda f, h: f.__setitem__("a", h.SoftLink("/nothing")), "a is a SoftLink; links are not followed"),
    "data in another file": (
        lambda f, h: f.create_dataset("a", (3,), "f4", external=[("/etc/passwd", 0, 12)]),
        "a has its data in another file"),
    "a view of another file": (virtual, "a has its data in another file"),
    "a filter": (unknown_filter, "(?i)filter"),
    "a claim": (claiming, "a claims 4398046511104 bytes and holds 0"),
    "a committed type": (lambda f, h: f.__setitem__("a", np.dtype("f4")), "a is a Datatype, not an array"),
    "references": (
        lambda f, h: f.create_dataset("a", (2,), h.ref_dtype), "elements, not numbers"),
    "a compound": (
        lambda f, h: f.create_dataset("a", (2,), [("x", "f4"), ("y", "f4")]), "elements, not numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_what_leads_elsewhere_or_is_no_array(name: str, tmp_path: Path) -> None:
    fill, said = PLACES[name]
    refused(written(tmp_path / "m.h5", fill), said, within=60)


def test_external_links_of_a_legacy_model(tmp_path: Path) -> None:
    """By `from_keras`, in a file that Keras wrote: the file that the link names is not opened."""
    need("torch")
    import h5py
    from keras_torch import keras, saved

    keras.utils.clear_session(free_memory=False)
    x = keras.Input((None, 3), name="x")
    path = tmp_path / "m.h5"
    saved(keras.Model(x, keras.layers.Dense(2)(x), name="model"), path)
    with h5py.File(path, "r+") as f:
        group = f["model_weights"]["dense"]
        (name,) = (n for n in group.attrs["weight_names"] if "kernel" in str(n))
        word = name.decode() if isinstance(name, bytes) else name
        del group[word]
        group[word] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/kernel")
    written(tmp_path / "secret.h5", lambda g, h: g.__setitem__("kernel", np.ones((3, 2), np.float32)))
    with pytest.raises(li.ModelError, match=r"^m\.h5: .*ExternalLink; links are not followed"):
        li.from_keras(path)
