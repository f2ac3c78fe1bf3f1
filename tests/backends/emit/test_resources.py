"""Where a call's tensors lie, read from what IREE made of the module before it wrote processor code."""

from __future__ import annotations

import re

import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.compile.compiler import compile_mlir
from lstm_ir.backends.emit import resources
from lstm_ir.backends.run.devices import resolve

# Of a whole buffer. An offset in it may state more; code takes the lesser of both.
_STATED = re.compile(r"!stream\.binding \{stream\.alignment = (\d+) : index")
_OFFSET = re.compile(r"(?:ro|wo|rw) %\w+\[%c(\d+)\w* for ")
APART = "--iree-scheduling-optimize-bindings=false"  # each tensor is passed with its own offset


def _stream(steps: int | str, rows: int | str, *flags: str) -> str:
    """A training step with tensors of 4 bytes (its loss), of 28, and larger ones."""
    x, w, u = li.input("x", (steps, rows, 7)), li.input("w", (1, 12, 7)), li.input("u", (1, 12, 3))
    y = li.lstm(x, w, u)[0]
    step = li.grad(li.Graph("g", [x, w, u], {"loss": li.mean(y * y)}), of="loss", wrt=["x", "w", "u"])
    target = resolve("cpu")
    options = {"flags": ["--compile-to=stream", *flags]}
    return compile_mlir(prepare(step, target).text, target, name="g", options=options, use_cache=False).decode()


def test_tensors_begin_at_multiples_of_64() -> None:
    offsets = {int(n) for n in _OFFSET.findall(_stream(5, 3, APART))}
    assert len(offsets) > 3
    assert {n % 64 for n in offsets} == {0}


@pytest.mark.parametrize("sizes", [(5, 3), ("T", "B")])
def test_of_a_buffer_8_bytes_are_stated(sizes: tuple[int | str, int | str]) -> None:
    assert set(_STATED.findall(_stream(*sizes))) == {"8"}


def test_iree_by_itself_states_64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of buffers with rows as well: why the module says otherwise."""
    monkeypatch.setattr(resources, "place", lambda module: None)
    assert set(_STATED.findall(_stream("T", "B"))) == {"64"}
