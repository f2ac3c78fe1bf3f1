"""What a process may use of the machine's memory, and what a CPU's device keeps of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lstm_ir.backends.run import freed_memory, machine_memory

MIB = 1 << 20


@pytest.mark.parametrize(("written", "want"), [
    (["max\n"], 16 << 30), (["1073741824\n"], 1 << 30), (["max\n", "2147483648\n"], 2 << 30),
    (["9223372036854771712\n"], 16 << 30), ([], 16 << 30), (["not a number"], 16 << 30),
])  # fmt: skip
def test_the_least_of_all_limits(
    written: list[str], want: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "absent", *(tmp_path / str(i) for i in range(len(written)))]
    for path, text in zip(paths[1:], written, strict=True):
        path.write_text(text)
    monkeypatch.setattr(machine_memory, "_LIMITS", [str(p) for p in paths])
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4 << 20}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__, raising=False)
    assert machine_memory.usable_bytes() == want


def test_where_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf", raising=False)
    monkeypatch.setattr(machine_memory, "_LIMITS", [])
    assert machine_memory.usable_bytes() is None


@pytest.mark.parametrize(
    ("usable", "kept"), [(None, 256), (512, 256), (8 << 10, 512), (16 << 10, 1 << 10), (1 << 20, 2 << 10)]
)
def test_a_sixteenth_is_kept_within_bounds(usable: int | None, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "usable_bytes", lambda: None if usable is None else usable * MIB)
    assert freed_memory.kept_bytes() == kept * MIB
