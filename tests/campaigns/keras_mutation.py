"""Files of Keras models that are a little wrong: configs, archives, HDF5 files."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from mutation import altered

Rng = np.random.Generator
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 1.5, -0.5, float("nan"), float("inf"), 2**31, 2**63, -(2**63), 10**30, "",
    "x", "tanh", "relu", "same", "float16", "float64", "object", "U99999999", "é\0\n", "y" * 400, [], {}, [None],
    [0, 0], [[]], [1, 2, 3, 4, 5], {"a": 1}, {"class_name": "Dense"},
    {"class_name": "Lambda", "config": {"function": "import os"}},
    {"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}}, ["x", 0, 0], ["x", 0, 0, {}],
    {"class_name": "__numpy__", "config": {"value": [1, "a"], "dtype": "U99999999"}},
    {"class_name": "LSTMCell", "config": {"units": 3}}, {"class_name": "__tuple__", "items": [1, 2]},
    {"class_name": "slice", "config": {"start": "a"}}, {"class_name": "function", "config": "os.system"},
)  # fmt: skip
KINDS = (
    "Lambda", "Dense", "LSTM", "GRU", "Bidirectional", "TimeDistributed", "RNN", "Functional", "Sequential",
    "Add", "Dot", "Reshape", "RepeatVector", "Embedding", "InputLayer", "BatchNormalization", "Conv1D", "Conv2D",
    "StackedRNNCells",
    "Masking", "MyLayer", "Concatenate", "Permute", "Flatten", "UpSampling1D", "MaxPooling1D", "ZeroPadding1D", "",
    "GetItem", "Transpose", "Mean", "Softmax", "GroupNormalization", "PReLU", "Cropping1D", "LayerNormalization",
)  # fmt: skip

OTHERS = (
    np.ones((2, 3)), np.ones(3, "i8"), np.ones(2, "c8"), np.zeros((0, 4), "f4"), np.array(b"word"), np.ones(1, "f2"),
    np.ones((1, 1, 1, 1), "f4"),
)  # fmt: skip


def _of(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a tree of JSON."""
    out, todo = [], [tree]
    while todo:
        t = todo.pop()
        keys = list(t) if isinstance(t, dict) else range(len(t)) if isinstance(t, list) else ()
        for k in keys:
            out.append((t, k))
            todo.append(t[k])
    return out


def changed(rng: Rng, config: Any) -> Any:
    """The config after one to three changes."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        places = _places(config)
        holder, key = _of(rng, places)
        way = int(rng.integers(8))
        if way <= 2:
            holder[key] = json.loads(json.dumps(_of(rng, ODD)))
        elif way == 3:
            del holder[key]
        elif way == 4:
            other, k = _of(rng, places)
            holder[key] = json.loads(json.dumps(other[k]))
        elif way == 5:
            named = [h for h, k in places if k == "class_name"]
            if named:
                _of(rng, named)["class_name"] = _of(rng, KINDS)
        elif way == 6:
            numbers = [(h, k) for h, k in places if type(h[k]) is int]
            if numbers:
                h, k = _of(rng, numbers)
                h[k] = _of(rng, (0, -1, 1, 2, 7, 10**6, 2**40, 10**30))
        elif isinstance(holder, list):
            holder.append(json.loads(json.dumps(holder[key])))
        else:
            holder[_of(rng, ("extra", "lora_rank", "module", "registered_name", "axis", "units", "name"))] = holder[key]
    return config


def grown(rng: Rng, config: Any) -> Any:
    """A config that is large where it is small: deep nests, models that double, cycles, many layers."""
    layers = config["config"]["layers"]
    last = layers[-1]
    way = int(rng.integers(5))
    if way == 0:  # a layer around a layer around …
        inner = last
        for _ in range(int(rng.choice([5, 40, 150, 300]))):
            inner = {"class_name": "TimeDistributed", "module": "keras.layers", "config": {"layer": inner, "name": "t"}}
        layers[-1] = {**inner, "name": last["name"], "inbound_nodes": last.get("inbound_nodes")}
    elif way == 1:  # a model that calls a model twice that calls …
        model: Any = None
        for k in range(int(rng.choice([3, 12, 30]))):
            called = model or {"class_name": "Activation", "module": "keras.layers", "config": {"activation": "tanh"}}
            calls = [_call("i", 0), _call("m", 0)]
            model = {"class_name": "Functional", "module": "keras", "config": {"name": f"n{k}", "layers": [
                {"class_name": "InputLayer", "module": "keras.layers", "name": "i", "inbound_nodes": [],
                 "config": {"name": "i", "batch_shape": [None, 4]}},
                {**called, "name": "m", "config": {**called["config"], "name": "m"}, "inbound_nodes": calls}],
                "input_layers": ["i", 0, 0], "output_layers": ["m", 1 + (k > 0), 0]}}  # fmt: skip
        return model
    elif way == 2:  # a layer that reads itself
        for layer in layers:
            for h, k in _places(layer.get("inbound_nodes", [])):
                if k == "keras_history" and rng.random() < 0.5:
                    h[k] = [_of(rng, layers)["name"], 0, 0]
    elif way == 3:  # many layers, the last one first
        many = int(rng.choice([100, 3000, 30000]))
        names = [f"a{k}" for k in range(many)]
        chain = [{"class_name": "Activation", "module": "keras.layers", "config": {"activation": "tanh", "name": n},
                  "name": n, "inbound_nodes": [_call(before, 0)]}
                 for n, before in zip(names, ["i", *names[:-1]], strict=True)]  # fmt: skip
        start = {"class_name": "InputLayer", "config": {"batch_shape": [None, 3], "name": "i"}, "name": "i",
                 "inbound_nodes": []}  # fmt: skip
        return {"class_name": "Functional", "module": "keras", "config": {"name": "m", "layers": [start, *chain[::-1]],
                "input_layers": ["i", 0, 0], "output_layers": [names[-1], 0, 0]}}  # fmt: skip
    else:
        for _ in range(int(rng.choice([50, 900]))):
            config["config"]["output_layers"] = [config["config"].get("output_layers")]
    return config


def _call(layer: str, node: int) -> Any:
    tensor = {"class_name": "__keras_tensor__", "config": {"keras_history": [layer, node, 0], "shape": [None, 4]}}
    return {"args": [tensor], "kwargs": {}}


def members_of(data: bytes) -> dict[str, bytes]:
    """The members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {n: z.read(n) for n in z.namelist()}


def archive(members: Any, how: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of these members, in which a name may stand twice."""
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w", how) as z:
        for name, data in members:
            z.writestr(name, data)
    return f.getvalue()


def crafted_archive(rng: Rng, members: dict[str, bytes]) -> bytes:
    """Archives with wrong names, members that are missing, packed, large, or of other kinds."""
    way = int(rng.integers(9))
    listed = list(members.items())
    if way == 0:
        k = int(rng.integers(len(listed)))
        bad = _of(
            rng, ("/etc/x", "../config.json", "C:/x", "a/../../b", "\\x", "config.json\0", "CONFIG.JSON", "é" * 300)
        )
        listed[k] = (bad, listed[k][1])
    elif way == 1:
        listed.append(_of(rng, listed))
    elif way == 2:
        del listed[int(rng.integers(len(listed)))]
    elif way == 3:
        return archive(listed, _of(rng, (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)))
    elif way == 4:  # a bomb
        k = int(rng.integers(len(listed)))
        listed[k] = (listed[k][0], bytes(int(rng.choice([1 << 20, 1 << 24, 1 << 27]))))
        return archive(listed, zipfile.ZIP_DEFLATED)
    elif way == 5:
        listed += [(f"x{k}", b"") for k in range(int(rng.choice([50, 20_000])))]
    elif way == 6:
        members = {n: a for n, a in listed if not n.endswith(".h5")}
        return archive([*members.items(), ("model.weights.npz", npz(rng))])
    elif way == 7:
        listed = [(n, altered(rng, a) if rng.random() < 0.5 else a) for n, a in listed]
    else:
        k = int(rng.integers(len(listed)))
        listed[k] = (listed[k][0], _of(rng, listed)[1])
    return archive(listed, zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED)


def npz(rng: Rng) -> bytes:
    """A .npz: sound, a pickle, altered, or with a header that claims more than there is."""
    f = io.BytesIO()
    way = int(rng.integers(4))
    arrays: dict[str, Any] = {f"layers/dense/vars/{k}": np.ones((3, 4)[: 2 - k], "f4") for k in range(2)}
    if way == 1:
        arrays = {"layers/dense/vars": np.array({"0": np.ones(3)}, dtype=object)}
    np.savez(f, **arrays)
    data = f.getvalue()
    if way == 2:
        return altered(rng, data)
    if way == 3:
        member = io.BytesIO()
        claim = _of(rng, ((10**12,), (2**62, 4), (10**6, 10**3), (0, 10**30)))
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": claim})
        return archive([("layers/dense/vars/0.npy", member.getvalue() + bytes(64))])
    return data


def crafted_hdf5(rng: Rng, data: bytes) -> bytes:
    """The file with links outside, circles, arrays that claim more than there is, other elements, other attributes."""
    import h5py

    path = Path("crafted.h5")
    path.write_bytes(data)
    Path("outside.bin").write_bytes(bytes(4096))
    with h5py.File(path, "r+") as f:
        found: list[Any] = []
        f.visititems(lambda name, thing: found.append((name, thing)))
        arrays = [(n, t) for n, t in found if isinstance(t, h5py.Dataset)]
        groups = [f, *(t for _, t in found if isinstance(t, h5py.Group))]
        name = _of(rng, arrays)[0] if arrays else "none"
        way = int(rng.integers(12))
        if way < 8 and name in f:
            del f[name]
        if way == 0:
            f[name] = h5py.ExternalLink("outside.bin", "/x")
        elif way == 1:
            f[name] = h5py.SoftLink("/" + _of(rng, groups).name.strip("/"))
        elif way == 2:
            f.create_dataset(name, (3,), "f4", external=[("outside.bin", 0, 4096)])
        elif way == 3:
            claim = _of(rng, ((10**9, 100), (1 << 40,), (0, 1 << 50), (200_000_000,)))
            f.create_dataset(name, claim, "f4", chunks=True, compression=_of(rng, (None, "gzip")))
        elif way == 4:
            layout = h5py.VirtualLayout((4,), "f4")
            layout[:] = h5py.VirtualSource("outside.bin", "x", (4,))
            f.create_virtual_dataset(name, layout)
        elif way == 5:
            f.create_dataset(name, data=_of(rng, OTHERS))
        elif way == 6:
            f.create_group(name)
        elif way == 7:
            f.create_dataset(name, data=np.zeros(1 << 22, "f4"), compression="gzip", chunks=True)
        elif way == 8:
            for k in range(int(rng.integers(1, 4))):
                _of(rng, groups)[f"again{k}"] = _of(rng, groups)
        elif way == 9:
            f.create_group("/".join(["deep"] * int(rng.choice([20, 100, 400]))))
        else:
            holder = _of(rng, [g for g in groups if len(g.attrs)] or [f])
            key = _of(rng, list(holder.attrs) or ["layer_names"])
            words = (3, "x", b"\xff", np.ones(4), np.array([b"a", b"b"]), h5py.Empty("f"), "{}", "[" * 3000)
            holder.attrs[key] = _of(rng, words)
    return path.read_bytes()
