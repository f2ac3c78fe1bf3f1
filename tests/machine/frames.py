"""How many bytes each compiled function takes of the stack, read from the assembly that the compiler writes.

A frame is what the function pushes and what it subtracts from the stack pointer, for x86-64 and aarch64; an
aligned frame may take as much more as its alignment. No function of a module calls itself.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.run.devices import resolve

ALIGNED = 64  # bytes, at most
_FUNCTION = re.compile(r"^([A-Za-z_][\w.$]*):")
_PUSHED = re.compile(r"^\s(?:pushq\s|st[rp]\s.*\[sp, #-(\d+)\]!)")
_TAKEN = re.compile(r"^\s(?:subq\s\$(\d+), %rsp|sub\ssp, sp, #(\d+)(, lsl #12)?)")
_ALIGNED = re.compile(r"^\s(?:andq\s\$-\d+, %rsp|and\ssp, x9, )")
# aarch64 counts an aligned frame in x9: from the stack pointer, further down, then back to it.
_COUNTED = re.compile(r"^\ssub\sx9, (sp|x9), #(\d+)(, lsl #12)?")


def frames(program: li.Graph | li.Program, word: str = "cpu", kernels: bool = True) -> dict[str, int]:
    """Bytes of the frame of every function of the module for this processor; without kernels they are all IREE's."""
    with tempfile.TemporaryDirectory() as folder:
        flags = (f"--iree-hal-dump-executable-intermediates-to={folder}",)
        build(li.Program.of(program), resolve(word), {"flags": flags, "kernels": kernels})
        texts = [p.read_text() for p in sorted(Path(folder).glob("*.s"))]
    assert texts, "the compiler wrote no assembly"
    return {name: size for text in texts for name, size in read(text).items()}


def read(assembly: str) -> dict[str, int]:
    """Bytes of the frame of every function."""
    found: dict[str, int] = {}
    name, counted = "", 0
    for line in assembly.splitlines():
        if label := _FUNCTION.match(line):
            name, counted = label[1], 0
            found[name] = 0
        elif not name:
            continue
        elif pushed := _PUSHED.match(line):
            found[name] += int(pushed[1]) if pushed[1] else 8
        elif taken := _TAKEN.match(line):
            found[name] += int(taken[1] or taken[2]) << (12 if taken[3] else 0)
        elif part := _COUNTED.match(line):
            size = int(part[2]) << (12 if part[3] else 0)
            counted = size if part[1] == "sp" else counted + size if counted else 0
        elif _ALIGNED.match(line):
            found[name] += counted + ALIGNED
            counted = 0
    return found
