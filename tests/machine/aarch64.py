"""What runs aarch64 modules on another processor: fetched once, outside the tests.

    python tests/machine/aarch64.py            # pip's wheel of the runtime, Debian's cross libraries; no root
    pytest tests/backends/kernels/test_kernels_aarch64.py

They lie in the folder that LSTM_IR_AARCH64 names, or in ~/.cache/lstm-ir-aarch64, for qemu-aarch64-static:
`iree-run-module` of the aarch64 wheel, and the C library that it needs; in `python` Debian's Python 3.11 for arm64
with its libraries, in `site` NumPy and the runtime as pip has them for it. apt's lists for arm64 lie there too while
they are needed: the machine's own stay as they are.
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


PYTHON = (
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libgcc-s1", "libstdc++6", "zlib1g",
    "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1",
)  # fmt: skip
"""Of Debian 12 (bookworm), whose Python is 3.11."""


def folder() -> Path:
    named = os.environ.get("LSTM_IR_AARCH64")
    return Path(named) if named else Path.home() / ".cache" / "lstm-ir-aarch64"


def tool() -> Path:
    return folder() / "iree-run-module"


def sysroot() -> Path:
    return folder() / "usr" / "aarch64-linux-gnu"


def found() -> bool:
    return tool().is_file() and (sysroot() / "lib" / "ld-linux-aarch64.so.1").exists()


def python() -> list[str]:
    """Python's command under qemu, without the name of qemu."""
    return ["-L", str(folder() / "python"), str(folder() / "python" / "usr" / "bin" / "python3.11")]


def site() -> Path:
    """NumPy and the runtime for aarch64."""
    return folder() / "site"


def found_python() -> bool:
    return Path(python()[-1]).is_file() and (site() / "numpy").is_dir() and (site() / "iree").is_dir()


def fetch_python() -> None:
    """Debian's packages by lists of their own, and pip's wheels; needs a machine whose apt reaches Debian 12."""
    where = folder()
    work = where / "fetched"
    shutil.rmtree(work, ignore_errors=True)
    for made in ("lists/partial", "cache/archives/partial", "debs", "wheels"):
        (work / made).mkdir(parents=True)
    options = {
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "Dir::State::lists": str(work / "lists"),
        "Dir::Cache": str(work / "cache"), "Dir::State::status": "/dev/null", "APT::Sandbox::User": "root",
    }  # fmt: skip
    apt = ["apt-get", "-q", *(part for k, v in options.items() for part in ("-o", f"{k}={v}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", *PYTHON], cwd=work / "debs", check=True)
    for package in (work / "debs").glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(where / "python")], check=True)
    wanted = [f"{name}=={metadata.version(name)}" for name in ("iree-base-runtime", "numpy")]
    wheel = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    wheel += [
        w
        for old in ("2_28", "2_27", "2014")
        for w in ("--platform", f"manylinux{'' if old == '2014' else '_'}{old}_aarch64")
    ]
    subprocess.run([*wheel, "--python-version", "3.11", "-d", str(work / "wheels"), *wanted], check=True)
    for file in (work / "wheels").glob("*.whl"):
        with zipfile.ZipFile(file) as z:
            z.extractall(site())
    shutil.rmtree(work)


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
    fetch_python()
    print(folder())
