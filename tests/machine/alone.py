"""A virtual environment that holds NumPy, iree-base-runtime and this project, and nothing else; made without a network.

It sees a folder of links to those installed here. `iree` is a folder of several distributions: the runtime's parts of
it are linked, the compiler's are not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

from paths import ROOT

RUNTIME = ("numpy", "iree-base-runtime")


def environment(folder: Path, *more: str) -> Path:
    """The interpreter of an environment in `folder`, with the distributions `more` beside those three."""
    venv.create(folder / "env", with_pip=False, symlinks=True)
    packages = folder / "packages"
    for name in (*RUNTIME, *more):
        _link(metadata.distribution(name), packages)
    project(packages)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "alone.pth").write_text(f"{packages}\n")
    return folder / "env" / "bin" / "python"


def project(packages: Path) -> None:
    """This project alone, as its wheel has it."""
    for part in (ROOT / "lstm_ir").iterdir():
        _to(packages / "lstm_ir" / part.name, part)
    for part in (ROOT / "passes", ROOT / "backends"):  # where the wheel has them
        _to(packages / "lstm_ir" / part.name, part)
    _link(metadata.distribution("lstm-ir"), packages, only=".dist-info")


def _link(distribution: metadata.Distribution, packages: Path, only: str = "") -> None:
    """Links to the top of each tree that is the distribution's alone, and whose name ends in `only`."""
    files = distribution.files
    assert files is not None
    for top in {_top(Path(f)) for f in files} - {None}:
        assert top is not None
        if not top.name.endswith(only):
            continue
        _to(packages / top, Path(str(distribution.locate_file(top))))


def _top(file: Path) -> Path | None:
    if file.parts[0] == ".." or file.suffix == ".pth" or file.parts[0] == "__pycache__":
        return None
    return Path(*file.parts[:2]) if file.parts[0] == "iree" and len(file.parts) > 1 else Path(file.parts[0])


def _to(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists() and target.name != "__pycache__":
        place.symlink_to(target)


def run(python: Path, *command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command by that interpreter, with no path of this process."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [str(python), *map(str, command)], capture_output=True, text=True, env=clean, timeout=300, check=False, **more
    )


def installed(python: Path) -> set[str]:
    """What the environment says that it holds."""
    code = "from importlib import metadata; print(*sorted(d.name for d in metadata.distributions()))"
    return set(run(python, "-c", code).stdout.split())


if __name__ == "__main__":
    print(environment(Path(sys.argv[1]), *sys.argv[2:]))
