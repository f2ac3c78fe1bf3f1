"""Files of Keras models that are damaged, or made to do damage: each is refused by name, in bounded time and memory."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound `.keras` file, and `.h5` beside it."""
    need("keras")
    need("torch")
    from keras_torch import keras, saved

    folder = tmp_path_factory.mktemp("sound")
    keras.utils.clear_session(free_memory=False)
    x = keras.Input((None, 3), name="x")
    model = keras.Model(x, keras.layers.Dense(2)(keras.layers.LSTM(4)(x)), name="model")
    saved(model, folder / "m.h5")
    return Path(saved(model, folder / "m.keras"))


def _members(path: Path) -> Members:
    with zipfile.ZipFile(path) as z:
        return {n: z.read(n) for n in z.namelist()}


def _written(path: Path, members: Any, how: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", how) as z:
        for name, data in members:
            z.writestr(name, data)
    return path


def _refused(path: Path, text: str) -> None:
    with pytest.raises(li.ModelError, match=text) as e:
        li.from_keras(path)
    assert str(e.value).startswith(("m.keras", "m.h5")) or str(path) in str(e.value)


def _npy(shape: Any) -> bytes:
    f = io.BytesIO()
    np.lib.format.write_array_header_1_0(f, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return f.getvalue() + bytes(64)


def _npz(name: str, data: bytes) -> bytes:
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        z.writestr(name, data)
    return f.getvalue()


ARCHIVES: dict[str, tuple[Callable[[Members], Any], str]] = {
    "no config": (lambda m: [("metadata.json", b"{}")], "it has no config.json: not a .keras file"),
    "no weights": (lambda m: [("config.json", m["config.json"])], r"neither model\.weights\.h5 nor model\.weights\."),
    "an absolute name": (lambda m: [*m.items(), ("/etc/x", b"")], "leads outside, or stands twice"),
    "a name that leads out": (lambda m: [*m.items(), ("../x", b"")], "leads outside, or stands twice"),
    "a drive": (lambda m: [*m.items(), ("C:x", b"")], "leads outside, or stands twice"),
    "a name twice": (lambda m: [*m.items(), ("config.json", b"{}")], "leads outside, or stands twice"),
    "many members": (lambda m: [(f"x{k}", b"") for k in range(10_001)], "10001 members; at most 10000"),
    "a list": (lambda m: [*{**m, "config.json": b"[]"}.items()], "no object of JSON"),
    "no JSON": (lambda m: [*{**m, "config.json": b"{"}.items()], "not JSON"),
    "deep JSON": (lambda m: [*{**m, "config.json": b"[" * 5000 + b"]" * 5000}.items()], "not JSON|deeper than 160"),
    "less deep JSON": (lambda m: [*{**m, "config.json": b"[" * 300 + b"]" * 300}.items()], "nested deeper than 160"),
    "weights in parts": (
        lambda m: [("config.json", m["config.json"]), ("model.weights.json", b"{}")], "weights in several files"),
    "no HDF5": (lambda m: [*{**m, "model.weights.h5": b"x" * 900}.items()], "not a whole HDF5 file, or a damaged one"),
    "a pickle": (
        lambda m: [("config.json", m["config.json"]), ("model.weights.npz", _pickled())], "a pickle, which may run"),
    "a claim": (
        lambda m: [("config.json", m["config.json"]), ("model.weights.npz", _npz("a.npy", _npy((10**12,))))],
        "its header claims float32"),
}  # fmt: skip


def _pickled() -> bytes:
    f = io.BytesIO()
    np.savez(f, a=np.array({"0": 1}, dtype=object))
    return f.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(name: str, sound: Path, tmp_path: Path) -> None:
    change, text = ARCHIVES[name]
    _refused(_written(tmp_path / "m.keras", change(_members(sound))), text)


def test_bombs(sound: Path, tmp_path: Path) -> None:
    members = _members(sound)
    members["model.weights.h5"] = bytes(1 << 26)
    bomb = _written(tmp_path / "m.keras", members.items(), zipfile.ZIP_DEFLATED)
    _refused(bomb, "bytes that inflate to 67108864; at most 100 times")
    _refused(_written(tmp_path / "m.keras", _members(sound).items(), zipfile.ZIP_LZMA), "packed or locked in a way")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("form", ["keras", "h5"])
def test_truncated(form: str, share: float, sound: Path, tmp_path: Path) -> None:
    data = sound.with_suffix(f".{form}").read_bytes()
    path = tmp_path / f"m.{form}"
    path.write_bytes(data[: int(len(data) * share)])
    _refused(path, "damaged|not a whole|no File|not a .keras")


def test_other_things(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(b"a file")
    _refused(tmp_path / "m.keras", "neither a .keras archive nor an HDF5 file")
    for given, text in ((tmp_path, "directory"), (tmp_path / "none.keras", "No such file")):
        with pytest.raises(li.ModelError, match=text):
            li.from_keras(given)
    with pytest.raises(li.ModelError, match="dict is no Keras 3 model, and no path of a file"):
        li.from_keras({})


def _layer(config: Any, name: str) -> Any:
    return next(s for s in config["config"]["layers"] if s["name"].startswith(name))


def _set(name: str, key: str, value: Any) -> Callable[[Any], None]:
    return lambda config: _layer(config, name)["config"].update({key: value})


def _reads_itself(config: Any) -> None:
    dense = _layer(config, "dense")
    dense["inbound_nodes"][0]["args"][0]["config"]["keras_history"] = [dense["name"], 0, 0]


def _doubled(config: Any) -> None:
    """A model of 30 models, each of which calls the next one twice: 2 to the 30 calls."""

    def tensor(layer: str, node: int) -> Any:
        place = {"class_name": "__keras_tensor__", "config": {"keras_history": [layer, node, 0]}}
        return {"args": [place], "kwargs": {}}

    model: Any = {"class_name": "ReLU", "module": "keras.layers", "config": {}}
    for k in range(30):
        inner = {**model, "name": "m", "config": {**model["config"], "name": "m"},
                 "inbound_nodes": [tensor("i", 0), tensor("m", 0)]}  # fmt: skip
        start = {"class_name": "InputLayer", "module": "keras.layers", "name": "i", "inbound_nodes": [],
                 "config": {"name": "i", "batch_shape": [None, 4]}}  # fmt: skip
        model = {"class_name": "Functional", "module": "keras", "config": {
            "name": "n", "layers": [start, inner], "input_layers": ["i", 0, 0],
            "output_layers": ["m", 1 + (k > 0), 0]}}  # fmt: skip
    config.clear()
    config.update(model)


CONFIGS: dict[str, tuple[Callable[[Any], None], str]] = {
    "Lambda": (lambda c: _layer(c, "dense").update(class_name="Lambda"), r"\(Lambda\): the layer is not taken"),
    "unknown": (lambda c: _layer(c, "dense").update(class_name="Warp"), r"\(Warp\): the layer is not taken"),
    "custom": (lambda c: _layer(c, "dense").update(module="my", class_name="Mine"), r"\(Mine\): .* it is my\.Mine"),
    "registered": (lambda c: _layer(c, "dense").update(registered_name="my>Dense"), "not one of Keras"),
    "a function": (_set("dense", "activation", {"class_name": "function", "config": "f"}), r"dense\w* \(Dense\)"),
    "units": (_set("lstm", "units", "4"), "units is '4'"),
    "huge units": (_set("lstm", "units", 10**12), "kernel is f32"),
    "a flag": (_set("lstm", "return_sequences", [1]), r"return_sequences is \[1\], not true or false"),
    "a rate": (_set("lstm", "dropout", {}), r"a rate of dropout is \{\}"),
    "an argument": (_set("lstm", "extra", 1), "the argument extra is not known"),
    "no input": (lambda c: _layer(c, "x").update(class_name="Dense"), "no InputLayer"),
    "a shape": (_set("x", "batch_shape", [None, -3]), r"its shape is \[None, -3\]"),
    "a type": (_set("x", "dtype", "object"), "elements of the type 'object'"),
    "a circle": (_reads_itself, r"dense\w* \(Dense\): no layer gives one of its operands"),
    "two of one name": (lambda c: c["config"]["layers"].append(c["config"]["layers"][-1]), "two layers are called"),
    "no layers": (lambda c: c["config"].update(layers=3), "no list of layers"),
    "calls": (lambda c: _layer(c, "dense").update(inbound_nodes=7), "the calls of Dense are 7"),
    "doubled": (_doubled, "more than 20000 calls of layers"),
    "a name": (lambda c: _layer(c, "dense").update(config={"name": "\udcff"}), "is no name of a layer"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_configs(name: str, sound: Path, tmp_path: Path) -> None:
    change, text = CONFIGS[name]
    members = _members(sound)
    config = json.loads(members["config.json"])
    change(config)
    members["config.json"] = json.dumps(config).encode()
    _refused(_written(tmp_path / "m.keras", members.items()), text)


def _external(f: Any, h5py: Any) -> None:
    f["layers/dense/vars/0"] = h5py.ExternalLink("secret.h5", "/x")


def _circle(f: Any, h5py: Any) -> None:
    f["layers/dense/again"] = f["layers"]


HDF5: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "another file": (_external, "is a ExternalLink; links are not followed"),
    "a soft link": (lambda f, h: f.__setitem__("layers/dense/vars/0", h.SoftLink("/layers")), "is a SoftLink"),
    "a circle": (_circle, "stands in two places, or in itself"),
    "data elsewhere": (
        lambda f, h: f.create_dataset("layers/dense/vars/0", (3,), "f4", external=[("/etc/passwd", 0, 12)]),
        "has its data in another file"),
    "a claim": (
        lambda f, h: f.create_dataset("layers/dense/vars/0", (10**9, 1000), "f4", chunks=True),
        "claims 4000000000000 bytes and holds 0"),
    "text": (lambda f, h: f.create_dataset("layers/dense/vars/0", data=[b"ab"] * 3), "elements, not numbers"),
    "another shape": (lambda f, h: f.create_dataset("layers/dense/vars/0", data=np.ones((7, 2), "f4")), r"\(Dense\)"),
    "less": (lambda f, h: None, r"0 variables are stored at layers/dense/vars, its config says kernel, bias"),
    "deep": (lambda f, h: f.create_group("/".join("a" * 200)), "nested too deeply"),
}  # fmt: skip


@pytest.mark.parametrize("name", HDF5)
def test_hdf5(name: str, sound: Path, tmp_path: Path) -> None:
    import h5py

    change, text = HDF5[name]
    members = _members(sound)
    (tmp_path / "w.h5").write_bytes(members["model.weights.h5"])
    with h5py.File(tmp_path / "w.h5", "r+") as f:
        if name not in ("a circle", "deep"):
            del f["layers/dense/vars/0"]
        change(f, h5py)
    members["model.weights.h5"] = (tmp_path / "w.h5").read_bytes()
    _refused(_written(tmp_path / "m.keras", members.items()), text)


def test_a_legacy_file_of_weights_alone(sound: Path, tmp_path: Path) -> None:
    import h5py

    path = tmp_path / "m.h5"
    path.write_bytes(sound.with_suffix(".h5").read_bytes())
    with h5py.File(path, "r+") as f:
        f["model_weights"]["dense"].attrs["weight_names"] = 5
    _refused(path, r"\(Dense\): the file has 0 weights for it, its config says 2")
    with h5py.File(path, "r+") as f:
        del f.attrs["model_config"]
    _refused(path, "no model_config: it holds weights alone")
