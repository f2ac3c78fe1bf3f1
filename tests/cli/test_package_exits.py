"""Ways out of a package: its StableHLO with the weights beside it, and its module for IREE's own tools."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import aarch64
import numpy as np
import pytest
from device import need, qemu
from paths import IREE_RUN_MODULE
from plain_lstm import plain_lstm

import lstm_ir as li
from lstm_ir.backends.files import npz, safetensors
from lstm_ir.backends.files.archive import read_package
from lstm_ir.cli.group import run

RNG = np.random.default_rng(20261126)
W, R, B = (0.4 * RNG.standard_normal(s).astype(np.float32) for s in ((28, 5), (28, 7), (28,)))
X = RNG.standard_normal((11, 3, 5)).astype(np.float32)
WANT = plain_lstm(X, W, R, B)
Capture = pytest.CaptureFixture[str]


def graph() -> li.Graph:
    x = li.input("x", ("T", "B", 5))
    return li.Graph("layer", [x], {"y": li.lstm(x, li.weight("w", W), li.weight("r", R), li.weight("enc/b", B))[0]})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return li.export(graph(), tmp_path_factory.mktemp("exits") / "m.lirpkg", ["cpu:aarch64", "cpu:host"])


def told(err: str) -> list[str]:
    """What the verb says that the function takes after its inputs."""
    lines = [line for line in err.splitlines() if line.startswith("main: takes, after its inputs, ")]
    return lines[0].partition("inputs, ")[2].split() if lines else []


def iree(tool: list[str], folder: Path, weights: str, *more: str) -> np.ndarray:
    np.save(folder / "x.npy", X)
    command = [*tool, "--device=local-sync", "--module=m.vmfb", f"--parameters=model={weights}", "--function=main"]
    command += ["--input=@x.npy", *more, "--output=@y.npy"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return np.asarray(np.load(folder / "y.npy"))


@pytest.mark.parametrize("kind", ["irpa", "safetensors"])
def test_the_module_runs_in_iree_run_module(package: Path, tmp_path: Path, kind: str, capsys: Capture) -> None:
    module, weights = tmp_path / "m.vmfb", tmp_path / f"w.{kind}"
    assert run(["show", str(package), "--stage", "module", "-o", str(module), "--weights-to", str(weights)]) == 0
    err = capsys.readouterr().err
    assert f"{module}: the module for {li.load(package).target}, IREE 3.13.0" in err
    got = iree([str(IREE_RUN_MODULE)], tmp_path, weights.name, *told(err))
    np.testing.assert_allclose(got, WANT, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_module_for_aarch64_runs_there(package: Path, tmp_path: Path, capsys: Capture) -> None:
    emulated = [qemu(), "-L", str(aarch64.sysroot()), str(aarch64.tool())]
    words = ["-t", "cpu:aarch64", "-o", str(tmp_path / "m.vmfb"), "--weights-to", str(tmp_path / "w.irpa")]
    assert run(["show", str(package), "--stage", "module", *words]) == 0
    more = told(capsys.readouterr().err)
    np.testing.assert_allclose(iree(emulated, tmp_path, "w.irpa", *more), WANT, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_stablehlo_and_its_weights_are_enough_for_another_compiler(package: Path, tmp_path: Path, kind: str) -> None:
    """XLA: the names of a function's arguments stand above it, in its order."""
    need("jax")
    import jax
    from jax.extend import backend
    from jaxlib import xla_client as xc

    x = li.input("x", (11, 3, 5))  # XLA takes numbers alone
    y = li.lstm(x, li.weight("w", W), li.weight("r", R), li.weight("enc/b", B))[0]
    static = li.export(li.Graph("layer", [x], {"y": y}), tmp_path / "s.lirpkg", ["cpu:aarch64"])
    text, weights = tmp_path / "m.mlir", tmp_path / f"w.{kind}"
    assert run(["show", str(static), "--stage", "stablehlo", "-o", str(text), "--weights-to", str(weights)]) == 0
    held: dict[str, Any] = {**(npz if kind == "npz" else safetensors).read(weights), "x": X}
    lines = text.read_text().splitlines()
    assert lines[0] == "// main: x, w, r, enc/b"
    names = lines[0].removeprefix("// main: ").split(", ")
    client = backend.get_backend("cpu")
    devices = xc.DeviceList(tuple(client.local_devices()[:1]))
    exe = client.compile_and_load(text.read_text(), devices, xc.CompileOptions())
    (got,) = (np.asarray(a) for a in exe.execute([jax.device_put(held[n]) for n in names]))
    np.testing.assert_allclose(got, WANT, rtol=1e-5, atol=1e-5)


def test_a_graphs_module_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "g.lir").write_text(str(graph()))
    np.savez(tmp_path / "w.npz", w=W, r=R, **{"enc/b": B})  # type: ignore[arg-type]
    words = ["-w", str(tmp_path / "w.npz"), "-o", str(tmp_path / "m.vmfb"), "--weights-to", str(tmp_path / "w.irpa")]
    assert run(["show", str(tmp_path / "g.lir"), "--stage", "module", *words]) == 0
    np.testing.assert_allclose(iree([str(IREE_RUN_MODULE)], tmp_path, "w.irpa"), WANT, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--stage", "module"], 2, "--stage module is no text: give -o FILE.vmfb"),
        (["--stage", "module", "-o", "m.vmfb", "-p", "core"], 2, "--weights and --pipeline are for graphs"),
        (["--stage", "module", "-o", "m.vmfb", "-t", "metal"], 1, "no module is for metal; the package has cpu:"),
        (["--weights-to", "w.txt"], 2, "weights are written to .npz, .safetensors or .irpa"),
        (["--weights", "w.npz"], 2, "has its own"),
    ],
)
def test_what_is_asked_wrongly(
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    said: str,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["show", str(package), *words]) == code
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_module_is_the_one_in_the_package(package: Path, tmp_path: Path) -> None:
    found = read_package(package)
    for target in found.targets:
        out = tmp_path / "m.vmfb"
        assert run(["show", str(package), "--stage", "module", "-t", target.info.name, "-o", str(out)]) == 0
        assert out.read_bytes() == found.blobs[target.file]
