"""ONNX files that the package `onnx` brings: of its tests, and those that its own campaigns start from."""

from __future__ import annotations

import contextlib
import io
import runpy
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGED = 1 << 16  # bytes of a file of the package


@cache
def packaged() -> dict[str, bytes]:
    """Small files of its tests by folder, and the beginnings of its campaigns by name."""
    import onnx

    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    small = (p for p in sorted(data.rglob("*.onnx")) if p.stat().st_size < PACKAGED)
    return {str(p.relative_to(data)): p.read_bytes() for p in small} | seeds()


def seeds() -> dict[str, bytes]:
    """What `onnx/fuzz/make_seed_corpus.py` writes, as models: its texts are parsed, its pairs are taken apart.

    There are none where the package does not bring the script.
    """
    import onnx

    script = Path(onnx.__file__).parent / "fuzz" / "make_seed_corpus.py"
    if not script.is_file():
        return {}
    with tempfile.TemporaryDirectory() as folder:
        archives = [Path(folder) / f"{n}.zip" for n in ("converter", "parser", "checker", "inference", "compose")]
        words, sys.argv = sys.argv, [str(script), *map(str, archives)]
        try:
            with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                runpy.run_path(str(script), run_name="__main__")
        finally:
            sys.argv = words
        return {name: model for p in archives if p.is_file() for name, model in _models(p)}


def _models(archive: Path) -> Iterator[tuple[str, bytes]]:
    import onnx.parser

    with zipfile.ZipFile(archive) as z:
        for name in z.namelist():
            content, what = z.read(name), f"seed {archive.stem} {name}"
            if name.endswith(".txt"):
                yield what, onnx.parser.parse_model(content.decode()).SerializeToString()
            elif name.endswith(".bin"):  # the length of the first, both models, one byte of choices
                end = 4 + struct.unpack(">I", content[:4])[0]
                yield f"{what}, first", content[4:end]
                yield f"{what}, second", content[end:-1]
            else:
                yield what, content
