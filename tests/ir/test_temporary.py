"""Files written in one step: what they keep of the file before, and what killed writers leave."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from child import environment

from lstm_ir.ir import temporary
from lstm_ir.ir.output_file import replacing
from lstm_ir.ir.temporary import new_folder

KILLED = """
import os, signal, sys
from pathlib import Path
from lstm_ir.ir.output_file import replacing
from lstm_ir.ir.temporary import new_folder
with new_folder() as folder, replacing(sys.argv[1]) as f:
    (folder / "module").write_text("half")
    f.write(b"half")
    f.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def write(path: Path, text: str = "new") -> None:
    with replacing(path) as f:
        f.write(text.encode())


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path, scratch: Path) -> None:
    target = tmp_path / "m.lirpkg"
    target.write_text("old")
    mine = tmp_path / ".lstm-ir-notes.tmp"  # not a name that writers choose
    mine.write_text("mine")
    command = [sys.executable, "-c", KILLED, str(target)]
    for _ in range(2):
        done = subprocess.run(command, env={**environment(), "TMPDIR": str(scratch)}, timeout=60)
        assert done.returncode == -9
        assert target.read_text() == "old"
        assert len(list(scratch.iterdir())) == 1
        assert len(list(tmp_path.iterdir())) == 4
    with replacing(tmp_path / "other") as living, new_folder() as folder:
        write(target)  # removes what is dead, and leaves what lives
        with new_folder():
            assert len(list(scratch.iterdir())) == 2
        living.write(b"lives")
        (folder / "x").write_text("lives")
    assert sorted(p.name for p in tmp_path.iterdir()) == [mine.name, target.name, "other", "scratch"]
    assert (target.read_text(), (tmp_path / "other").read_text()) == ("new", "lives")
    assert list(scratch.iterdir()) == []


def test_a_file_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, late = fcntl.flock, [2]

    def flock(handle: Any, how: int) -> None:
        if late[0]:  # another process looks at the new file, or folder, first
            late[0] -= 1
            temporary.remove_dead(tmp_path)
            temporary.remove_dead(scratch)
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    write(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "new"
    late[0] = 2
    with new_folder() as folder:
        (folder / "x").write_text("there")
    assert list(scratch.iterdir()) == []
    assert sorted(os.listdir(tmp_path)) == ["a", "scratch"]


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    with replacing(tmp_path / "a") as f:
        write(tmp_path / "b")
        f.write(b"first")
    assert (tmp_path / "a").read_text() == "first"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_replaced_file_keeps_its_mode(tmp_path: Path, umask: None) -> None:
    file = tmp_path / "state"
    write(file)
    assert mode(file) == "0o640"
    for bits in (0o600, 0o666, 0o444, 0o604):
        file.chmod(bits)
        with replacing(file) as f:
            assert os.fstat(f.fileno()).st_mode & 0o077 == 0  # nobody reads it before
            f.write(b"again")
        assert mode(file) == oct(bits)


def test_a_link_stays_and_its_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "file", tmp_path / "link"
    link.symlink_to("there/file")
    write(link, "first")  # makes what the link names
    file.chmod(0o600)
    write(link, "second")
    assert link.is_symlink()
    assert (file.read_text(), mode(file)) == ("second", "0o600")
    assert os.listdir(tmp_path / "there") == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "state"
    write(file)
    file.chmod(0o660)
    os.chown(file, 1234, 2345)
    write(file)
    assert (file.stat().st_uid, file.stat().st_gid, mode(file)) == (1234, 2345, "0o660")

    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", forbidden)
    write(file)
    assert (file.stat().st_uid, mode(file)) == (os.geteuid(), "0o600")  # another group gets nothing


def test_names_may_be_as_long_as_the_system_lets_them(tmp_path: Path) -> None:
    for name in ("é" * 120, "長" * 80 + ".lirpkg", "a" * 255):
        write(tmp_path / name)
    odd = os.fsdecode(b"\xff\xfe.npz")
    write(tmp_path / odd)
    assert len(os.listdir(tmp_path)) == 4


NO_DESCRIPTORS = """
import os, sys
from pathlib import Path
from lstm_ir.ir.temporary import new_folder
with new_folder(Path(sys.argv[1])) as folder:
    (folder / "inside").mkdir()
    (folder / "inside" / "file").write_bytes(b"x")
    try:
        while True:
            os.open("/", os.O_RDONLY)
    except OSError:
        pass
"""


def test_a_folder_goes_where_no_file_can_be_opened(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", NO_DESCRIPTORS, str(tmp_path)], env=environment(), check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []
