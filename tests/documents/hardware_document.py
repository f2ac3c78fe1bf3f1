"""The table of targets in docs/hardware.md, from what the tests compile and run.

`python tests/machine/child.py tests/documents/hardware_document.py` writes it anew, on a machine that runs all that the
column of tests names: AVX-512, lavapipe, qemu with the runtime for aarch64 (`tests/machine/aarch64.py`).
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import aarch64_run
from paths import DOCS

from lstm_ir.verification import hardware
from lstm_ir.verification.hardware import Trial

PAGE = DOCS / "hardware.md"
MARK = re.compile(r"<!-- hardware -->\n(?:\|.*\n)*")
QEMU = ("cpu:aarch64", "cpu:aarch64-dotprod")
ROWS = {
    # word: the machine that tests run it on; what a person ran; on which nothing was run
    "cpu:x86-64-v2": ("any x86-64, Linux", "", "Windows, macOS"),
    "cpu:x86-64-v3": ("AVX2, Linux", "", "Windows, macOS"),
    "cpu:x86-64-v4": ("AVX-512, Linux", "", "Windows"),
    "cpu:x86-64-v4-vnni": ("AVX-512 with VNNI, Linux", "", "Windows"),
    "cpu:x86-64-android": ("the same module on Linux", "", "Android"),
    **dict.fromkeys(QEMU, ("qemu, with the runtime for aarch64", "", "aarch64 processors")),
    "cpu:aarch64-android": ("", "", "Android"),
    "cpu:aarch64-apple": ("", "", "macOS"),
    "cpu:riscv64": ("", "", "riscv64 processors"),
    "vulkan": ("lavapipe, Mesa's driver for processors", "NVIDIA H100 and H200", "AMD, Intel and mobile GPUs"),
    "cuda:sm_89": ("", "NVIDIA H100 and H200", "other GPUs"),
    "hip:gfx942": ("", "", "every GPU"),
    "metal": ("", "", "every GPU"),
}


def tried(word: str) -> Trial:
    """As `hardware.trial`; aarch64 under qemu."""
    found = hardware.trial(word)
    if word not in QEMU or found.bytes is None:
        return found
    with TemporaryDirectory() as folder:
        work = Path(folder)
        aarch64_run.compiled(work, hardware.model(), word)
        worst = [
            hardware.difference(aarch64_run.run(work, name, graph, given, "--device=local-sync"), want)
            for name, graph, given, want in hardware.calls()
        ]
    return Trial(word, found.bytes, max(worst))


def row(word: str, found: Trial) -> str:
    """A line of the table; what ran is right, else it has no line."""
    tests, hand, none = ROWS[word]
    assert found.worst is None or found.right, f"{word}: {found}"
    ran = tests if found.worst is not None else ""
    cells = [f"`{word}`", "yes" if found.bytes is not None else f"no: {found.reason}", ran, hand, none]
    return f"| {' | '.join(cells)} |\n"


def renewed(page: str, found: dict[str, Trial]) -> str:
    head = "| target | compiles | executed by the tests on | executed by hand on | never executed on |\n"
    table = head + "|---|---|---|---|---|\n" + "".join(row(word, t) for word, t in found.items())
    return MARK.sub(lambda _: f"<!-- hardware -->\n{table}", page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), {w: tried(w) for w in ROWS}), encoding="utf-8")
