"""Altered packages, loaded and called: PackageError or TargetError, or the results of the one that was altered.

The graph of each is asked for too: PackageError, or the graph of the one that was altered; a text that was altered
under a hash that fits may be another graph of the same entries, weights and state, and has a module's text.

Modules are not altered under a hash that fits: they are machine code, which nothing checks.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import numpy as np
from mutation import altered

import lstm_ir as li
from lstm_ir.backends.run.package import open_package, read_package

Rng = np.random.Generator
KEY = "a secret"
A = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
MANIFEST, SEAL, GRAPH = "manifest.json", "manifest.hmac", "graph.lir"
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, 2**64, 1.5, 1e400, "", "x", "y", "T", "main", "cpu",
    "vulkan", "metal",
    "module-0.vmfb", "../x", "f32[T,3]", "f32[3,2]", "f32[U]", "f64[T,3]", "f32[-1]", "T*T", "2*T", "T-9",
    "\ud800", "\0",
    "x86_64-unknown-linux-eabi-elf", "+avx512f", [], {}, [[]], ["a", "b"], ["x", "f32[T,3]"], "0" * 64,
    "a" * 5000, "9" * 5000,
)  # fmt: skip


@cache
def sound() -> tuple[bytes, ...]:
    """A graph with weights, another with other names and sizes, and a program with state."""
    x = li.input("x", ("T", 3))
    w = li.weight("w", np.arange(6, dtype=np.float32).reshape(3, 2))
    z = li.input("z", (2, 3))
    loss = li.Graph("learn", [x], {"y": x @ w, "loss": li.sum(li.tanh(x @ w))})
    k = li.constant(np.arange(34, dtype=np.float32).reshape(2, 17))
    programs: dict[str, Any] = {
        "one": li.Graph("one", [x], {"y": li.tanh(x @ w) @ k}),
        "two": li.Graph("two", [z], {"u": z * 2.0, "v": li.sum(z)}),
        "three": li.train_step(loss, "loss", li.adam(0.1)),
    }
    for name, program in programs.items():
        li.export(program, f"{name}.lirpkg", ["cpu:host"])
    return tuple(Path(f"{name}.lirpkg").read_bytes() for name in programs)


@cache
def answers() -> tuple[dict[str, Any], ...]:
    """What the sound ones give."""
    out = []
    for data in sound():
        Path("sound.lirpkg").write_bytes(data)
        out.append(called(open_package("sound.lirpkg")))
    return tuple(out)


def called(exe: Any) -> dict[str, Any]:
    """Results of all entries, for the same inputs."""
    out: dict[str, Any] = {}
    for name, f in exe.entries.items():
        given = {p.name: A for p in f.inputs} if len(f.inputs) == 1 else {}
        try:
            out.update({f"{name}.{k}": v for k, v in f(given).items()})
        except (li.CallError, li.ValueRangeError, li.DeviceError) as e:
            out[name] = type(e)
    exe.close()
    return out


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {n: z.read(n) for n in z.namelist()}


def packed(rng: Rng, files: dict[str, bytes]) -> bytes:
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w", 8 if rng.random() < 0.03 else 0) as z:
        for name, data in files.items():
            z.writestr(zipfile.ZipInfo(name), data)
    return f.getvalue()


def odd_manifest(rng: Rng, manifest: Any) -> None:
    """Put something odd into it, or exchange two of its values."""
    for _ in range(int(rng.integers(1, 3))):
        path: Any = manifest
        while True:
            keys = list(path) if isinstance(path, dict) else list(range(len(path)))
            if not keys:
                break
            key = keys[int(rng.integers(len(keys)))]
            inner = path[key]
            if isinstance(inner, (dict, list)) and inner and rng.random() < 0.85:
                path = inner
            elif rng.random() < 0.15:
                del path[key]
                break
            else:
                path[key] = copy.deepcopy(ODD[int(rng.integers(len(ODD)))])  # it may be altered next
                break


def spliced(rng: Rng, one: bytes, other: bytes) -> bytes:
    """Members of two packages in one, with hashes that fit."""
    files, more = members(one), members(other)
    for name in [n for n in more if n != MANIFEST and rng.random() < 0.4]:
        files[name] = more[name]
    manifest = json.loads(files[MANIFEST])
    if rng.random() < 0.4:
        manifest["signature"] = json.loads(more[MANIFEST])["signature"]
    return packed(rng, rehashed(files, manifest))


def rehashed(files: dict[str, bytes], manifest: Any) -> dict[str, bytes]:
    manifest["members"] = {
        n: [len(d), hashlib.sha256(d).hexdigest()] for n, d in files.items() if n not in (MANIFEST, SEAL)
    }
    return {**files, MANIFEST: json.dumps(manifest).encode()}


def made(rng: Rng, which: int) -> tuple[str, bytes]:
    """How it was altered, and the file."""
    data = sound()[which]
    other = sound()[int(rng.integers(len(sound())))]
    way = rng.random()
    if way < 0.35:
        return "bytes", altered(rng, data, [other])
    files = members(data)
    manifest = json.loads(files[MANIFEST])
    if way < 0.65:
        odd_manifest(rng, manifest)
        return "manifest", packed(rng, {**files, MANIFEST: json.dumps(manifest).encode()})
    if way < 0.8:
        return "spliced", spliced(rng, data, other)
    if way < 0.9:
        files[GRAPH] = altered(rng, files[GRAPH], [members(other)[GRAPH]])
        if rng.random() < 0.9:
            files = rehashed(files, manifest)
        return "text", packed(rng, files)
    names = [n for n in files if n.endswith(".safetensors")]
    name = names[int(rng.integers(len(names)))]
    files[name] = altered(rng, files[name], [members(other)["weights.safetensors"]])
    if rng.random() < 0.8:
        files = rehashed(files, manifest)
    return "weights", packed(rng, files)


def trial(rng: Rng, number: int) -> str:
    which = number % len(sound())
    way, data = made(rng, which)
    file = Path("altered.lirpkg")
    file.write_bytes(data)
    told = graph_of(file, which if way == "bytes" else None)
    try:
        if rng.random() < 0.05:
            read_package(file, require_key=KEY)
            raise AssertionError("nobody signed this")
        exe = open_package(file)
    except (li.PackageError, li.TargetError) as e:
        assert str(e).strip()
        return f"{way} refused, {told}"
    found = called(exe)
    if way == "bytes":  # what means nothing was altered, a time stamp for one
        for name, want in answers()[which].items():
            np.testing.assert_array_equal(found[name], want)
    return f"{way} loaded, {told}"


def graph_of(file: Path, same: int | None) -> str:
    """Whether the package gives its graph; `same`: of which sound one it must be."""
    try:
        found = li.Program.of(li.source(file))
    except li.PackageError as e:
        assert str(e).startswith(str(file)), e
        return "no graph"
    if same is not None:
        assert str(found) == texts()[same]
    signature, package = found.signature(), read_package(file)
    assert list(signature.entries) == list(package.signature.entries)
    assert signature.weights == package.signature.weights
    for name, held in found.weights.items():
        np.testing.assert_array_equal(held.array, package.weights[name])
    return "graph"


@cache
def texts() -> tuple[str, ...]:
    """The programs of the sound ones, as text."""
    out = []
    for data in sound():
        Path("sound.lirpkg").write_bytes(data)
        out.append(str(li.Program.of(li.source("sound.lirpkg"))))
    return tuple(out)


if __name__ == "__main__":
    campaign.main(trial, seconds=30, prepare=answers)
