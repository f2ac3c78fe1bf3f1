"""How many workgroups a product has: every worker of IREE takes as many."""

from __future__ import annotations

import re

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.kernels.cpu.machine import RESERVED
from lstm_ir.backends.run.devices import resolve


def workgroups(rows: int, workers: int) -> int:
    """Of a product of so many rows, as IREE computes them; 128 rows are a panel."""
    target = resolve("cpu:x86-64-v4")
    x, w = li.input("x", (rows, 256)), li.weight("w", np.ones((256, 768), np.float32))
    text = prepare(li.Graph("g", [x], {"y": x @ w}), target).text
    known, count = re.subn(r"util\.global\.load @lstm_ir\.workers : index", f"arith.constant {workers} : index", text)
    assert count == 1
    out = compiler.run(
        known, [*compiler.BASE_FLAGS, *target.flags, "--compile-to=flow"], name="grid", target="cpu", timeout=120
    ).decode()
    main = out.partition("util.func public @main")[2]
    (found,) = re.findall(r"flow\.dispatch @recurrence_\w+::@\w+\[%(\w+)\]", main)
    number = re.search(rf"%{found} = arith\.constant (\d+) : index", main)
    assert number is not None
    return int(number[1])


@pytest.mark.parametrize(
    ("rows", "workers", "panels"),
    [(3200, 2, 25), (640, 2, 5), (1600, 4, 13), (256, 4, 2), (3200, 1, 25), (12800, 3, 100)],
)  # fmt: skip
def test_workers_take_as_many(rows: int, workers: int, panels: int) -> None:
    """One at a time, or RESERVED where there are as many for each; few rows are not cut further."""
    count = workgroups(rows, workers)
    assert panels <= count < panels + RESERVED * workers
    each = RESERVED * workers if count >= RESERVED * workers else workers
    assert workers == 1 or panels <= workers or count % each == 0, count
