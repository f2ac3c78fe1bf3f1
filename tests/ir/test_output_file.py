"""Where a file is to be written: asked before the work, in the words of the attempt to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from lstm_ir.ir.output_file import check_folder, replacing


def _write(path: str) -> None:
    with replacing(path) as f:
        f.write(b"1")


@pytest.mark.parametrize("name", ["none/a", "file/a"])
def test_a_folder_that_is_not_there(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = str(tmp_path / name)
    with pytest.raises((FileNotFoundError, NotADirectoryError)) as asked:
        check_folder(path)
    with pytest.raises((FileNotFoundError, NotADirectoryError)) as tried:
        _write(path)
    assert (asked.value.errno, asked.value.filename) == (tried.value.errno, tried.value.filename)


def test_a_working_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    with pytest.raises(FileNotFoundError) as asked:
        check_folder("a")
    assert asked.value.filename == "a"


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    check_folder(tmp_path / "a")
    check_folder("a\0b")  # no path: the attempt to write says so
