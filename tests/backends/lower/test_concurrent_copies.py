"""What IREE schedules at the same time must not touch the same bytes.

IREE 3.13 lets copies into a tensor and a copy out of the same part run together where a loop of one
iteration was put in the loop's place (`backends/lower/scan_packed.py`): a worker reads a carry before
another has written it, once in some thousand calls. So the module is read instead.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.compile.compiler import BASE_FLAGS, option_flags
from lstm_ir.backends.run.devices import resolve

CONSTANT = re.compile(r"(%c\d+\w*) = arith\.constant (\d+) : index")
COPY = re.compile(r"stream\.cmd\.copy (%\w+)\[(%\w+)\], (%\w+)\[(%\w+)\], (%\w+) :")
Bytes = tuple[str, int, int]  # of a resource, from, to


def scheduled(text: str) -> str:
    """The module when IREE has ordered its work."""
    tool = Path(sys.executable).with_name("iree-compile")
    target = resolve("cpu")
    flags = [*BASE_FLAGS, *target.flags, *option_flags(None, "cpu"), "--compile-to=stream"]
    done = subprocess.run([tool, "-", *flags], capture_output=True, text=True, input=text, check=True)
    return done.stdout


def races(module: str) -> list[tuple[Bytes, Bytes]]:
    """(read, written) where both may happen at once."""
    numbers = {name: int(n) for name, n in CONSTANT.findall(module)}
    found = []
    for group in _groups(module):
        reads, writes = list[Bytes](), list[Bytes]()
        for source, at, to, there, count in COPY.findall(group):
            n = numbers.get(count)
            if n is None:
                continue
            for where, resource, begin in ((reads, source, at), (writes, to, there)):
                if begin in numbers:
                    where.append((resource, numbers[begin], numbers[begin] + n))
        found += [(r, w) for r in reads for w in writes if r[0] == w[0] and r[1] < w[2] and w[1] < r[2]]
    return found


def _groups(module: str) -> Iterator[str]:
    for part in re.split(r"stream\.cmd\.concurrent \{", module)[1:]:
        yield part[: part.index("\n      }")]


def test_the_reader_finds_a_race() -> None:
    module = """
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c32 = arith.constant 32 : index
    %1 = stream.cmd.execute {
      stream.cmd.concurrent {
        stream.cmd.copy %a[%c0], %b[%c0], %c64 : x
        stream.cmd.copy %b[%c32], %b[%c64], %c32 : x
      }
"""
    assert races(module) == [(("%b", 32, 64), ("%b", 0, 64))]
    assert races(module.replace("[%c32], %b", "[%c64], %b")) == [(("%b", 64, 96), ("%b", 64, 96))]


def _two_loops(T: int, last: int) -> li.Graph:
    """A loop of T steps, and one of `last` that goes on from there, as gradients have them."""
    w = li.weight("w", np.random.default_rng(7).uniform(-0.3, 0.3, (16, 16)))
    x, h0 = li.input("x", (T + last, 16, 16), "f64"), li.input("h", (16, 16), "f64")

    def cell(carry: Any, row: li.Value, w: li.Value) -> Any:
        h, c = carry
        new = li.tanh(h @ w + row)
        return (new, c * 0.5 + li.sum(new, 1)), (li.select(row > 0.0, h, 0.0), li.exp(new), c)

    carry: Any = (h0, li.zeros((16,), "f64"))
    outputs, loss = dict[str, li.Value](), li.constant(0.0, "f64")
    for part, rows in enumerate((x[:T], x[T:])):
        carry, ys = li.scan(cell, carry, rows, (w,))
        outputs |= {f"h{part}": carry[0], f"c{part}": carry[1]}
        outputs |= {f"y{part}{i}": y for i, y in enumerate(ys)}
        loss = loss + li.sum(ys[0] * ys[1]) + li.sum(carry[0] * carry[0])
    return li.Graph("loops", [x, h0], {**outputs, "loss": loss})


@pytest.mark.parametrize("gradient", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("last", [1, pytest.param(2, marks=pytest.mark.slow), 8, 32])
def test_loops_copy_what_is_there(last: int, gradient: bool) -> None:
    """The portable loop, of numbers of steps that IREE may write out."""
    rng = np.random.default_rng(7)
    g = _two_loops(5, last)
    if gradient:
        g = li.grad(g, "loss", ["x", "h", "w"], remat=3)
    text = prepare(g, resolve("cpu"), {"kernels": False}).text
    assert races(scheduled(text)) == []
    a = {"x": rng.standard_normal((5 + last, 16, 16)), "h": rng.standard_normal((16, 16))}
    got, want = li.compile(g, options={"kernels": False})(**a), li.interpret(g, a)
    for name, v in want.items():
        largest = max(1.0, np.abs(v).max())
        assert np.abs(got[name] - v).max() <= 1e-10 * largest, name
