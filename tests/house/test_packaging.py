"""The wheel holds what the tree holds, and runs a package where nothing else is installed."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT

import lstm_ir as li

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ALONE = """
import json, sys
import numpy as np
import lstm_ir
assert "site-packages" in lstm_ir.__file__, lstm_ir.__file__
exe = lstm_ir.load(sys.argv[1])
out = exe(x=np.load(sys.argv[2], allow_pickle=False))
np.save(sys.argv[3], out["y"])
tops = sorted({m.partition(".")[0] for m in sys.modules} | {m for m in sys.modules if "iree" in m})
print(json.dumps(tops))
"""

pytestmark = pytest.mark.xdist_group("packaging")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and sdist, made from a clean copy: a `build/` left in the tree must not count."""
    folder = tmp_path_factory.mktemp("built")
    copy = folder / "tree"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        source, place = ROOT / name, copy / name
        if not source.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            place.symlink_to(source.readlink())
        else:
            place.write_bytes(source.read_bytes())
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", copy)
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


def expected() -> set[str]:
    """Every file of the three folders under its import path."""
    out = set()
    for folder, prefix in (("lstm_ir", "lstm_ir"), ("passes", "lstm_ir/passes"),
                           ("backends", "lstm_ir/backends")):  # fmt: skip
        listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", folder,
                     cwd=ROOT).splitlines()  # fmt: skip
        for name in listed:
            if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
                out.add(str(Path(prefix) / Path(name).relative_to(folder)))
    return out


def test_wheel_holds_the_tree(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = {n for n in wheel.namelist() if ".dist-info/" not in n}
        assert any(n.endswith(".dist-info/licenses/LICENSE") for n in wheel.namelist())
    assert names == expected()


def test_sdist_keeps_the_folders(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        names = {n.partition("/")[2] for n in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "passes/base.py", "backends/module.py",
            "lstm_ir/ir/graph.py"} <= names  # fmt: skip


@pytest.fixture(scope="module")
def bare(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, iree-base-runtime and NumPy alone."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder)
    python = folder / "bin" / "python"
    needs = [f"{name}=={version(name)}" for name in ("iree-base-runtime", "numpy")]
    pip(python, "install", "-q", "--no-deps", *needs, built[0])
    return python


def pip(python: Path, *words: str | Path) -> str:
    """This environment's pip at work in another, which need not have its own: to install it takes seconds."""
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *words)


def test_a_package_runs_with_runtime_and_numpy_alone(bare: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    w_ih, w_hh, a = (rng.standard_normal(s).astype("f4") for s in ((28, 5), (28, 7), (11, 3, 5)))
    x = li.input("x", ("T", "B", 5))
    y, _, _ = li.lstm(x, li.weight("w_ih", w_ih), li.weight("w_hh", w_hh))
    g = li.Graph("alone", [x], {"y": y})
    li.export(g, tmp_path / "m.lirpkg", targets=["cpu"])
    np.save(tmp_path / "x.npy", a)
    out = run(bare, "-c", ALONE, tmp_path / "m.lirpkg", tmp_path / "x.npy", tmp_path / "y.npy",
              cwd=tmp_path)  # fmt: skip
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), li.interpret(g, x=a)["y"], rtol=2e-5, atol=2e-5)
    modules = set(json.loads(out.splitlines()[-1]))
    assert not modules & {"networkx", "lark", "click", "rich", "ml_dtypes", "iree.compiler"}
    listed = json.loads(pip(bare, "list", "--format", "json"))
    assert {d["name"] for d in listed} == {"lstm-ir", "iree-base-runtime", "numpy"}


@pytest.mark.slow
def test_parsing_names_what_is_missing(bare: Path, tmp_path: Path) -> None:
    """Without lark the text form is refused by an ImportError that names it, not by a crash."""
    code = "import lstm_ir\ntry: lstm_ir.parse('x')\nexcept ImportError as e: print(e.name)"
    assert run(bare, "-c", code, cwd=tmp_path).strip() == "lark"


def test_every_dependency_of_pyproject_is_imported_somewhere() -> None:
    text = "\n".join(p.read_text() for f in ("lstm_ir", "passes", "backends")
                     for p in (ROOT / f).rglob("*.py"))  # fmt: skip
    modules = {"iree-base-compiler": "iree.compiler", "iree-base-runtime": "iree",
               "ml-dtypes": "ml_dtypes"}  # fmt: skip
    for line in PROJECT["project"]["dependencies"]:
        name = line.partition(">")[0]
        assert f"import {modules.get(name, name)}" in text or f"from {modules.get(name, name)}" in text


def test_tests_need_nothing_of_gigabyte_size() -> None:
    heavy = ("torch", "tensorflow", "jax", "jaxlib", "onnxruntime")
    extra = PROJECT["project"]["optional-dependencies"]
    assert not [d for d in extra["test"] if d.startswith(heavy)]
    for name in ("torch", "tensorflow", "jax"):
        assert any(d.startswith(name) for d in extra["oracles"])
