"""NumPy, iree-base-runtime and this project: packages load, run, stream and train; what needs more names it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aarch64
import alone
import numpy as np
import pytest
from device import qemu
from paths import ROOT
from plain_lstm import plain_lstm

import lstm_ir as li

RNG = np.random.default_rng(20261125)
W, R, B = (0.4 * RNG.standard_normal(s).astype(np.float32) for s in ((28, 5), (28, 7), (28,)))
X = RNG.standard_normal((11, 3, 5)).astype(np.float32)
LINE = np.array([[0.5, -1.25], [2.0, 0.75], [-0.5, 1.5]], np.float32)
STEPS = [tuple(RNG.standard_normal(s).astype(np.float32) for s in ((6, 3), (6, 2))) for _ in range(4)]
COMPILER_SIDE = (
    "networkx", "lark", "click", "rich", "ml_dtypes", "iree.compiler", "iree.runtime", "safetensors",
    "lstm_ir.ops", "lstm_ir.ir.graph", "lstm_ir.ir.parser", "lstm_ir.passes", "lstm_ir.backends.compile", "lstm_ir.api",
)  # fmt: skip
ALL = " (or lstm-ir, without --no-deps, for all that it needs)"
pytestmark = pytest.mark.xdist_group("packaging")

RUN = """
import json, sys
import numpy as np
import lstm_ir as li
given = np.load("given.npz", allow_pickle=False)
out = {"y": li.load("layer.lirpkg")(x=given["x"])["y"]}
stream = li.load("stream.lirpkg")
one, two = stream.session(), stream.session()
out["one"] = np.concatenate([one.entries["step"](x=given["x"][t:t + 1])["y"] for t in range(11)])
out["two"] = two.entries["step"](x=given["x"][:4])["y"]
learner = li.load("learner.lirpkg")
losses = [learner.entries["train"](x=given[f"x{i}"], want=given[f"want{i}"])["loss"] for i in range(2)]
learner.save_state("saved.safetensors")
again = li.load("learner.lirpkg")
again.load_state("saved.safetensors")
losses += [again.entries["train"](x=given[f"x{i}"], want=given[f"want{i}"])["loss"] for i in range(2, 4)]
fitted, steps = li.load("learner.lirpkg"), [{n: given[f"{n}{i}"] for n in ("x", "want")} for i in range(4)]
history = li.fit(fitted, steps, epochs=1, every=2, checkpoint="run.safetensors", log="log.csv", progress=False)
out |= {"fitted": np.array(history.losses), "fitted_w": fitted.state["w"]}
out |= {"losses": np.array(losses), "w": again.state["w"], "weights": li.load("layer.lirpkg").weights["w"]}
np.savez("out.npz", **out)
print(json.dumps([li.__file__, sorted(sys.modules)]))
"""

MANY = """
import json, sys
import numpy as np
from lstm_ir.parallel import Trainer
from lstm_ir.ray import Predictor
given = np.load("given.npz", allow_pickle=False)
rows = [given["x"][:t, i] for i, t in enumerate((11, 4, 7))]
out = {f"y{i}": y for i, y in enumerate(Predictor("layer.lirpkg")({"x": rows})["y"])}
with Trainer("whole.lirpkg", 2, threads=1) as trainer:
    losses = [trainer.step(x=given[f"x{i}"], want=given[f"want{i}"])["loss"] for i in range(4)]
    out |= {"losses": np.array(losses), "w": trainer.state["w"]}
np.savez("many.npz", **out)
print(json.dumps(sorted(sys.modules)))
"""

MORE = """
import json, sys
import numpy as np
import lstm_ir as li
for name in li.__all__:
    getattr(li, name)  # to read a name needs none of what a call of it needs
x = li.input("x", (2,))
g = li.Graph("g", [x], {"y": x + x})
ones = {"kernel": np.ones((3, 16), np.float32), "recurrent_kernel": np.ones((4, 16), np.float32)}
torch = li.convert_weights(ones, source="keras", target="torch")
assert torch["weight_ih"].shape == (16, 3)
calls = {
    "compile": lambda: li.compile(g),
    "export": lambda: li.export(g, "new.lirpkg"),
    "lower": lambda: li.lower(g),
    "parse": lambda: li.parse(str(g)),
    "source": lambda: li.source("layer.lirpkg"),
    "import": lambda: li.from_onnx("m.onnx"),
    "import of TensorFlow": lambda: li.from_tf("m.pb"),
    "copy of TensorFlow": lambda: li.to_tf({"w": np.ones(2, np.float32)}, "m.pb", "copy.pb"),
    "import of HDF5": lambda: li.from_keras("m.h5"),
    "verify": lambda: li.verify(g, against="m.onnx"),
    "bf16": lambda: li.weight("w", [1.0], "bf16"),
    "ray": lambda: __import__("lstm_ir.ray").ray.Trainer("whole.lirpkg"),
    "picture": lambda: __import__("lstm_ir.view.picture").view.picture.picture([("g", g)]),
}
said = {}
for name, call in calls.items():
    try:
        call()
    except li.LstmIrError as e:
        said[name] = f"{type(e).__name__}: {e}".partition("\\n  at ")[0]
print(json.dumps(said))
"""


def stateful() -> li.Program:
    """The LSTM, one call after the other: h and c stay."""
    x, h0, c0 = li.input("x", ("T", 3, 5)), li.input("h0", (1, 3, 7)), li.input("c0", (1, 3, 7))
    y, h, c = li.lstm(x, li.weight("w", W), li.weight("r", R), li.weight("b", B), h0=h0, c0=c0)
    graph = li.Graph("stream", [x, h0, c0], {"y": y, "h_n": h, "c_n": c})
    return li.stateful(graph, {"h0": "h_n", "c0": "c_n"})


def layer() -> li.Graph:
    x = li.input("x", ("T", "B", 5))
    return li.Graph("layer", [x], {"y": li.lstm(x, li.weight("w", W), li.weight("r", R), li.weight("b", B))[0]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, and what they are called with."""
    return packages(tmp_path_factory.mktemp("packages"))


def packages(where: Path, targets: Sequence[str] = ("cpu",)) -> Path:
    x, want = li.input("x", ("B", 3)), li.input("want", ("B", 2))
    y = x @ li.weight("w", LINE)
    line = li.Graph("line", [x, want], {"loss": li.mse(y, want), "y": y})
    li.export(layer(), where / "layer.lirpkg", targets)
    li.export(stateful(), where / "stream.lirpkg", targets)
    li.export(li.train_step(line, "loss", li.sgd(0.25)).only("train", "infer"), where / "learner.lirpkg", targets)
    li.export(li.train_step(line, "loss", li.sgd(0.25), grads=True), where / "whole.lirpkg", targets)
    steps = {f"{n}{i}": a for i, pair in enumerate(STEPS) for n, a in zip(("x", "want"), pair, strict=True)}
    np.savez(where / "given.npz", x=X, **steps)  # type: ignore[arg-type]
    np.save(where / "x.npy", X)
    (where / "m.pb").write_bytes(b"")
    (where / "m.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    (where / "g.lir").write_text(str(layer()))
    return where


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return alone.environment(tmp_path_factory.mktemp("alone"))


@pytest.mark.slow
def test_packages_load_run_stream_and_train(python: Path, folder: Path) -> None:
    assert alone.installed(python) == {"numpy", "iree-base-runtime", "lstm-ir"}
    done = alone.run(python, "-W", "error", "-c", RUN, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    file, modules = json.loads(done.stdout)
    assert not file.startswith(str(ROOT))
    assert not [m for m in modules if any(m == c or m.startswith(c + ".") for c in COMPILER_SIDE)]
    confirm(folder)


def confirm(folder: Path) -> None:
    """What the program `RUN` wrote, by the equations."""
    out = np.load(folder / "out.npz")
    want = plain_lstm(X, W, R, B)
    np.testing.assert_allclose(out["y"], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out["one"], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out["two"], want[:4], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(out["weights"], W)
    confirm_training(out)
    np.testing.assert_array_equal(out["fitted"], out["losses"])
    np.testing.assert_array_equal(out["fitted_w"], out["w"])


@pytest.mark.slow
def test_packages_load_run_stream_and_train_on_aarch64(tmp_path: Path) -> None:
    """Debian's Python for arm64 under qemu, with NumPy, the runtime's wheel and this project."""
    emulator = qemu()
    if not aarch64.found_python():
        pytest.skip("qemu-aarch64: no aarch64 Python; python tests/machine/aarch64.py fetches it")
    packages(tmp_path, ["cpu:aarch64"])
    alone.project(tmp_path / "site")
    paths = [str(tmp_path / "site"), str(aarch64.site())]
    code = f"import sys; sys.path[:0] = {paths!r}\nimport platform; assert platform.machine() == 'aarch64'\n{RUN}"
    command = [emulator, *aarch64.python(), "-I", "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    file, modules = json.loads(done.stdout)
    assert file.startswith(str(tmp_path / "site"))
    assert not [m for m in modules if any(m == c or m.startswith(c + ".") for c in COMPILER_SIDE)]
    confirm(tmp_path)


def confirm_training(out: Mapping[str, Any]) -> None:
    """Losses and weights of the four steps, by the equations."""
    w = LINE.astype(np.float64)
    losses = []
    for x, target in STEPS:
        error = x @ w - target
        losses.append(np.square(error).mean())
        w -= 0.25 * 2 / error.size * x.T @ error
    np.testing.assert_allclose(out["losses"], losses, rtol=1e-5)
    np.testing.assert_allclose(out["w"], w, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_columns_and_several_processes(python: Path, folder: Path) -> None:
    done = alone.run(python, "-W", "error", "-c", MANY, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    third_party = ("networkx", "lark", "click", "rich", "ml_dtypes", "iree.compiler", "ray", "pandas")
    assert not set(json.loads(done.stdout)) & set(third_party)
    out = np.load(folder / "many.npz")
    want = plain_lstm(X, W, R, B)
    for i, steps in enumerate((11, 4, 7)):
        np.testing.assert_allclose(out[f"y{i}"], want[:steps, i], rtol=1e-5, atol=1e-5)
    confirm_training(out)


@pytest.mark.slow
def test_what_needs_more_says_what_to_install(python: Path, folder: Path) -> None:
    done = alone.run(python, "-c", MORE, cwd=folder)
    assert done.returncode == 0, done.stderr
    compiler = "iree-base-compiler, which compiles, is not installed: pip install iree-base-compiler" + ALL
    lark = "MissingLibraryError: lark, which reads the text of graphs, is not installed: pip install lark" + ALL
    executable = "CompileError: iree-compile is not installed: pip install iree-base-compiler"
    assert json.loads(done.stdout) == {
        "compile": executable,
        "export": executable,
        "lower": f"MissingLibraryError: {compiler}",
        "parse": lark,
        "source": lark,
        "import": "ModelError: from_onnx needs onnx: pip install 'lstm-ir[onnx]'",
        "import of TensorFlow": "ModelError: from_tf needs protobuf: pip install 'lstm-ir[tf]'",
        "copy of TensorFlow": "ModelError: from_tf needs protobuf: pip install 'lstm-ir[tf]'",
        "import of HDF5": "ModelError: to read HDF5 needs h5py: pip install 'lstm-ir[keras]'",
        "verify": "ModelError: to compare with an ONNX model needs onnxruntime: pip install onnxruntime",
        "bf16": "IRError: weight 'w': a list is not an array of bf16: "
        "bf16: NumPy has no bfloat16 of its own; install ml-dtypes",
        "ray": "MissingLibraryError: ray is not installed: pip install ray (or 'lstm-ir[ray]')",
    }
    assert not (folder / "new.lirpkg").exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["run", "layer.lirpkg"], ["--help"], ["compile", "g.lir"]])
def test_the_command_line_says_what_to_install(python: Path, folder: Path, words: list[str]) -> None:
    done = alone.run(python, "-m", "lstm_ir", *words, cwd=folder)
    assert done.returncode == 1
    assert done.stdout == ""
    message = "lstm-ir: click, which the command line is made with, is not installed: pip install click"
    assert done.stderr == f"{message}{ALL}\n"


@pytest.mark.slow
def test_with_click_packages_run_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    python = alone.environment(tmp_path, "click")
    done = alone.run(python, "-m", "lstm_ir", "run", "layer.lirpkg", "-i", "x=x.npy", "-o", "y.npz", cwd=folder)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "y.npz")["y"], plain_lstm(X, W, R, B), rtol=1e-5, atol=1e-5)
    needs = {
        "compile g.lir -o g.lirpkg": "iree-base-compiler",
        "compile layer.lirpkg -o g.lirpkg": "lark",
        "run g.lir": "lark",
        "show g.lir": "lark",
        "show layer.lirpkg --stage stablehlo": "lark",
        "opt g.lir": "lark",
        "demo": "rich",
        "bench": "rich",
        "show g.lir -o g.svg": "lark",
        "import m.onnx": "iree-base-compiler",
        "verify m.onnx": "lstm-ir[onnx]",
        "serve layer.lirpkg": "lstm-ir[serve]",
    }
    for words, library in needs.items():
        done = alone.run(python, "-m", "lstm_ir", *words.split(), cwd=folder)
        assert done.returncode == 1, words
        assert "Traceback" not in done.stderr
        assert library in done.stderr, (words, done.stderr)
        assert "pip install" in done.stderr
    done = alone.run(python, "-m", "lstm_ir", "targets", cwd=folder)
    assert done.returncode == 0, done.stderr
    cpu = next(line for line in done.stdout.splitlines() if line.startswith("cpu "))
    absent = "does not compile here: iree-base-compiler is not installed: pip install iree-base-compiler; runs here: "
    assert absent in cpu
    done = alone.run(python, "-m", "lstm_ir", "show", "layer.lirpkg", "-s", "module", "-o", "x.vmfb", cwd=folder)
    assert done.returncode == 0, done.stderr
