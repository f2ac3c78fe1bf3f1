"""The table of docs/hardware.md: each target is compiled, and run where the table says that tests run it."""

from __future__ import annotations

import hardware_document
import pytest
from device import need, qemu

from lstm_ir.backends.targets.targets import this_machine
from lstm_ir.verification.hardware import WORDS

PAGE = hardware_document.PAGE.read_text(encoding="utf-8")
LEVELS = {"cpu:x86-64-v3": "avx2", "cpu:x86-64-v4": "avx512f", "cpu:x86-64-v4-vnni": "avx512vnni"}


def test_every_kind_of_module_has_a_row() -> None:
    assert tuple(hardware_document.ROWS) == WORDS
    block = hardware_document.MARK.search(PAGE)
    assert block is not None
    lines = block[0].splitlines()[3:]
    assert [line.split("`")[1] for line in lines] == list(WORDS)


@pytest.mark.parametrize(
    "word",
    [
        pytest.param(w, marks=[getattr(pytest.mark, w.partition(":")[0])] if w in ("vulkan", "cuda:sm_89") else [])
        for w in WORDS
    ],
)
def test_the_row_is_what_happens(word: str) -> None:
    """On a machine that has what the row names; elsewhere only that it compiles."""
    tests, *_ = hardware_document.ROWS[word]
    if word in hardware_document.QEMU:
        qemu()
    elif word in ("vulkan", "cuda:sm_89"):
        need(word.partition(":")[0])
    found = hardware_document.tried(word)
    info = this_machine().info
    here = info.triple.startswith("x86_64") and LEVELS.get(word, "") in ("", *info.features)
    assert found.bytes is not None
    assert found.worst is None or found.right, str(found)
    if tests and (here or not word.startswith("cpu:x86")):
        assert found.worst is not None, str(found)
        assert hardware_document.row(word, found) in PAGE
    elif found.worst is None:
        assert found.reason
