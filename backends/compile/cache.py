"""Compiled modules on disk: machine code, so the folder belongs to its owner alone."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from lstm_ir.ir.output_file import replacing
from lstm_ir.ir.temporary import is_ours

_MAGIC = b"LSTMIR1\n"
_HEADER = len(_MAGIC) + 32 + 8  # magic, sha256 of the payload, its length
LIMIT = 2 << 30  # bytes kept; the least recently used go first
_warned: set[str] = set()


def folder() -> Path | None:
    """Where entries lie: LSTM_IR_CACHE (`off` for nowhere), else the user's cache folder."""
    word = os.environ.get("LSTM_IR_CACHE")
    if word is not None and word.strip().lower() in ("off", "0", "none"):
        return None
    if word:
        return Path(word).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "lstm-ir"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "lstm-ir"
    return home / ".cache" / "lstm-ir"


def key(*parts: str) -> str:
    """A name for these texts; no two lists of texts share one."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """The entries of one folder; every method works, and does nothing, without one."""

    def __init__(self, path: Path | None = None, limit: int = LIMIT) -> None:
        self.path = _safe(folder() if path is None else path)
        self.limit = limit

    def get(self, name: str) -> bytes | None:
        """The entry, or None; a damaged one is deleted."""
        if self.path is None:
            return None
        file = self.path / name
        try:
            data = file.read_bytes()
        except OSError:
            return None
        head, payload = data[:_HEADER], data[_HEADER:]
        if head != _header(payload):
            with suppress(OSError):
                file.unlink()
            return None
        with suppress(OSError):
            os.utime(file)  # used now
        return payload

    def put(self, name: str, payload: bytes) -> None:
        """Write the entry in one step; a full or read-only disk leaves the cache as it was."""
        if self.path is None:
            return
        with suppress(OSError):
            with replacing(self.path / name, mode=0o600, durable=False) as f:
                f.write(_header(payload))
                f.write(payload)
            self._evict()

    def _evict(self) -> None:
        assert self.path is not None
        found: list[tuple[float, int, str]] = []
        with os.scandir(self.path) as entries:
            for e in entries:
                with suppress(OSError):
                    info = e.stat(follow_symlinks=False)
                    if stat.S_ISREG(info.st_mode) and not is_ours(e.name):
                        found.append((info.st_mtime, info.st_size, e.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= size


def _header(payload: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(payload).digest() + len(payload).to_bytes(8, "little")


def _safe(path: Path | None) -> Path | None:
    """`path`, made if it is missing, or None where another user could write into it."""
    if path is None:
        return None
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.stat()
    except OSError as e:
        _warn(path, f"it cannot be used ({e.strerror})")
        return None
    why = ""
    if not stat.S_ISDIR(info.st_mode):
        why = "it is not a folder"
    elif info.st_uid != os.getuid():
        why = f"it belongs to user {info.st_uid}"
    elif info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "other users can write to it"
    if not why:
        return path
    _warn(path, why)
    return None


def _warn(path: Path, why: str) -> None:
    text = f"no compile cache in {path}: {why}"
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=5)
