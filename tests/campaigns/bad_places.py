"""Places that a file system can be bad at, by what is wrong with them; at some nothing is.

Those of `BY_ANYBODY` a user makes in a folder of its own. Those of `BY_ROOT` need root: other file systems, which are
mounted in a namespace of this process alone and are gone with it (`private_mounts`), attributes, and owners.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_TERABYTE = 1 << 40
Make = Callable[[Path, str, bytes], str]  # from a folder, a suffix and the bytes of a good file, to a path


def private_mounts() -> bool:
    """Mounts of this process are its own from now on; False where that is refused."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    return _ran("mount", "--make-rprivate", "/")


def _ran(*words: str) -> bool:
    try:
        return subprocess.run(words, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _file(root: Path, name: str, suffix: str, data: bytes, mode: int = 0o644) -> str:
    path = root / f"{name}{suffix}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


def _in_folder(mode: int, name: str) -> Make:
    """A file of a folder of this mode; `name` is that of the file there, or a new one."""

    def make(root: Path, suffix: str, data: bytes) -> str:
        _file(root / "inner", "old", suffix, data)
        (root / "inner").chmod(mode)
        return str(root / "inner" / f"{name}{suffix}")

    return make


def _link(target: str) -> Make:
    """A link to so named a file; `plain` is one that is there."""

    def make(root: Path, suffix: str, data: bytes) -> str:
        _file(root, "plain", suffix, data)
        (root / f"link{suffix}").symlink_to(f"{target}{suffix}")
        return str(root / f"link{suffix}")

    return make


def _chain(length: int) -> Make:
    """So many links one behind another, the last one to a file: Linux follows 40."""

    def make(root: Path, suffix: str, data: bytes) -> str:
        _file(root, "0", suffix, data)
        for k in range(length):
            (root / f"{k + 1}{suffix}").symlink_to(f"{k}{suffix}")
        return str(root / f"{length}{suffix}")

    return make


def _through_a_parent(root: Path, suffix: str, data: bytes) -> str:
    _file(root, "f", suffix, data)
    return _folder("/..")(root, suffix, data) + f"/f{suffix}"


def _through_a_linked_folder(root: Path, suffix: str, data: bytes) -> str:
    _file(root / "real", "a", suffix, data)
    (root / "linked").symlink_to("real")
    return str(root / "linked" / f"a{suffix}")


def _hard_link(root: Path, suffix: str, data: bytes) -> str:
    path = _file(root, "first", suffix, data)
    os.link(path, root / f"second{suffix}")
    return path


def _fifo(root: Path, suffix: str, data: bytes) -> str:
    os.mkfifo(root / f"fifo{suffix}")
    return str(root / f"fifo{suffix}")


def _socket(root: Path, suffix: str, data: bytes) -> str:
    before = Path.cwd()
    os.chdir(root)  # the path of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(f"s{suffix}")
    os.chdir(before)
    return str(root / f"s{suffix}")


def _sparse(root: Path, suffix: str, data: bytes) -> str:
    path = _file(root, "sparse", suffix, data)
    os.truncate(path, _TERABYTE)
    return path


def _removed_folder(root: Path, suffix: str, data: bytes) -> str:
    """A relative path, where the working folder is gone."""
    (root / "gone").mkdir()
    os.chdir(root / "gone")
    (root / "gone").rmdir()
    return f"a{suffix}"


def _relative(root: Path, suffix: str, data: bytes) -> str:
    os.chdir(root)
    return f"a{suffix}"


def _there(name: str, mode: int = 0o644) -> Make:
    return lambda root, suffix, data: _file(root, name, suffix, data, mode)


def _new(name: str) -> Make:
    return lambda root, suffix, data: str(root / f"{name}{suffix}")


def _at(path: str) -> Make:
    """A path of the system."""
    return lambda root, suffix, data: path + suffix


def _folder(end: str) -> Make:
    def make(root: Path, suffix: str, data: bytes) -> str:
        (root / "a folder").mkdir()
        return str(root / "a folder") + end

    return make


BY_ANYBODY: dict[str, Make] = {
    "plain": _there("plain"),
    "new": _new("new"),
    "missing": _new("no/a"),
    "file as folder": lambda root, suffix, data: _file(root, "f", suffix, b"secret") + f"/a{suffix}",
    "folder": _folder(""),
    "folder/": _folder("/"),
    "folder/.": _folder("/."),
    "file/": lambda root, suffix, data: _file(root, "f", suffix, data) + "/",
    "through ..": _through_a_parent,
    "relative": _relative,
    "working folder removed": _removed_folder,
    "read-only folder": _in_folder(0o555, "old"),
    "read-only folder, new": _in_folder(0o555, "a"),
    "folder without listing": _in_folder(0o311, "old"),
    "folder without entry": _in_folder(0o600, "old"),
    "unreadable": _there("unreadable", 0),
    "write-only": _there("write-only", 0o222),
    "read-only": _there("read-only", 0o444),
    "empty file": lambda root, suffix, data: _file(root, "nothing", suffix, b""),
    "terabyte of zeros": _sparse,
    "link": _link("plain"),
    "dangling link": _link("made"),
    "link into nowhere": _link("nowhere/made"),
    "link to itself": _link("link"),
    "chain of 30 links": _chain(30),
    "chain of 41 links": _chain(41),
    "through a linked folder": _through_a_linked_folder,
    "hard link": _hard_link,
    "pipe": _fifo,
    "socket": _socket,
    "longest name": lambda root, suffix, data: str(root / ("n" * (255 - len(suffix)) + suffix)),
    "longest name, wide": lambda root, suffix, data: str(root / ("長" * ((255 - len(suffix)) // 3) + suffix)),
    "name too long": _new("n" * 256),
    "path too long": _new("d/" * 2500 + "a"),
    "bytes that are no text": _new(os.fsdecode(b"\xff\xfe")),
    "null character": _new("a\0b"),
    "newline": _new("a\nb"),
    "signs of a shell": _new("-a $(b); *~'\""),
    "no path": lambda root, suffix, data: "",
    "root's home": _at("/root/a"),
    "/proc": _at("/proc/a"),
    "/sys": _at("/sys/a"),
    "/dev/full": lambda root, suffix, data: "/dev/full",
    "/dev/null": lambda root, suffix, data: "/dev/null",
    "/dev/zero": lambda root, suffix, data: "/dev/zero",
    "closed descriptor": lambda root, suffix, data: "/proc/self/fd/250",
    "memory of the process": lambda root, suffix, data: "/proc/self/mem",
}  # fmt: skip


class NotHereError(Exception):
    """This system makes no such place."""


def _mounted(root: Path, options: str) -> Path:
    place = root / "disk"
    place.mkdir()
    if not _ran("mount", "-t", "tmpfs", "-o", f"mode=0777,{options}", "tmpfs", str(place)):
        raise NotHereError
    return place


def _disk(options: str, name: str, fill: bool = False, then: str = "") -> Make:
    """A file of another file system: an old one or a new one; fill: no page is free; then: mounted again so."""

    def make(root: Path, suffix: str, data: bytes) -> str:
        place = _mounted(root, options)
        path = place / f"{name}{suffix}"
        if name == "old":
            _file(place, name, suffix, data, 0o666)
        if fill:
            try:
                (place / "rest").write_bytes(bytes(1 << 20))
            except OSError:
                pass
        if then and not _ran("mount", "-o", f"remount,{then}", str(place)):
            raise NotHereError
        return str(path)

    return make


def _link_to_a_disk(root: Path, suffix: str, data: bytes) -> str:
    """What is written beside the link cannot be renamed to its target."""
    place = _mounted(root, "size=4m")
    (root / f"abroad{suffix}").symlink_to(_file(place, "old", suffix, data, 0o666))
    return str(root / f"abroad{suffix}")


def _attribute(sign: str, of_folder: bool = False) -> Make:
    def make(root: Path, suffix: str, data: bytes) -> str:
        path = _file(root / "kept", "old", suffix, data, 0o666)
        (root / "kept").chmod(0o777)
        held = str(root / "kept") if of_folder else path
        if not _ran("chattr", f"+{sign}", held) or f"{sign}" not in _attributes(held):
            raise NotHereError
        return path

    return make


def _attributes(path: str) -> str:
    done = subprocess.run(["lsattr", "-d", path], capture_output=True, text=True)
    return done.stdout.partition(" ")[0]


def _sticky(root: Path, suffix: str, data: bytes) -> str:
    """As in /tmp: of another user's file nobody else takes the name."""
    path = _file(root / "sticky", "old", suffix, data, 0o644)
    (root / "sticky").chmod(0o1777)
    return path


def _foreign(root: Path, suffix: str, data: bytes) -> str:
    """A file of root in a folder that everyone may write."""
    path = _file(root / "open", "old", suffix, data, 0o600)
    (root / "open").chmod(0o777)
    return path


BY_ROOT: dict[str, Make] = {
    "read-only disk": _disk("size=1m", "old", then="ro"),
    "read-only disk, new": _disk("size=1m", "a", then="ro"),
    "full disk": _disk("size=1m", "old", fill=True),
    "full disk, new": _disk("size=1m", "a", fill=True),
    "disk of 8 KiB": _disk("size=8k", "a"),
    "disk without inodes": _disk("size=1m,nr_inodes=2", "old"),
    "disk without inodes, new": _disk("size=1m,nr_inodes=2", "a"),
    "disk without programs": _disk("size=4m,noexec,nodev,nosuid", "old"),
    "link to another disk": _link_to_a_disk,
    "immutable file": _attribute("i"),
    "immutable folder": _attribute("i", of_folder=True),
    "file that only grows": _attribute("a"),
    "sticky folder": _sticky,
    "another user's file": _foreign,
}


def undone(root: Path) -> None:
    """Take back what would keep `root` from being removed."""
    if os.geteuid() != 0:
        return
    _ran("umount", "-l", str(root / "disk"))
    if (root / "kept").is_dir():
        _ran("chattr", "-R", "-i", "-a", str(root / "kept"))


def all_undone(folder: Path) -> None:
    """The same for each folder in `folder`: of a trial that was cut off, too."""
    for root in folder.iterdir():
        undone(root)
