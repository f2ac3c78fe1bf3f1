"""What runs aarch64 modules on another processor: fetched once, outside the tests.

    python tests/machine/aarch64.py            # pip's wheel of the runtime, Debian's cross libraries; no root
    pytest tests/backends/kernels/test_kernels_aarch64.py

They lie in the folder that LSTM_IR_AARCH64 names, or in ~/.cache/lstm-ir-aarch64: `iree-run-module`
of the aarch64 wheel, and the C library that it needs, for qemu-aarch64-static.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

LIBRARIES = ("libc6-arm64-cross", "libstdc++6-arm64-cross", "libgcc-s1-arm64-cross")


def folder() -> Path:
    named = os.environ.get("LSTM_IR_AARCH64")
    return Path(named) if named else Path.home() / ".cache" / "lstm-ir-aarch64"


def tool() -> Path:
    return folder() / "iree-run-module"


def sysroot() -> Path:
    return folder() / "usr" / "aarch64-linux-gnu"


def found() -> bool:
    return tool().is_file() and (sysroot() / "lib" / "ld-linux-aarch64.so.1").exists()


def fetch() -> None:
    where = folder()
    work = where / "fetched"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    release = metadata.version("iree-base-runtime")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wheel = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    wheel += ["--platform", "manylinux_2_28_aarch64", "--python-version", python]
    subprocess.run([*wheel, "-d", str(work), f"iree-base-runtime=={release}"], check=True)
    subprocess.run(["apt-get", "download", "-q", *LIBRARIES], cwd=work, check=True)
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package.name, str(where)], cwd=work, check=True)
    with zipfile.ZipFile(next(work.glob("*.whl"))) as z:
        tool().write_bytes(z.read("iree/_runtime_libs/iree-run-module"))
    tool().chmod(0o755)
    shutil.rmtree(work)


if __name__ == "__main__":
    fetch()
    print(folder())
