"""docs/serving.md has every limit of `lstm-ir serve` with its default."""

from __future__ import annotations

import re

import click
from paths import DOCS

from lstm_ir.cli import group

TABLE = (DOCS / "serving.md").read_text(encoding="utf-8").partition("## Limits")[2].partition("\n\nThe loop")[0]
BYTES = {"KiB": 1 << 10, "MiB": 1 << 20}


def defaults() -> dict[str, float]:
    """The options of the verb that are numbers, but for the port."""
    command = group.group.get_command(click.Context(group.group), "serve")
    assert command is not None
    kinds = (click.types.IntParamType, click.types.FloatParamType)
    found = {p.opts[0]: p.default for p in command.params if isinstance(p.type, kinds) and p.name != "port"}
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}


def test_every_limit_has_a_row_with_its_default() -> None:
    said: dict[str, float] = {}
    for row in re.findall(r"^\| (`--[^|]*) \| ([^|]*) \|", TABLE, re.M):
        options = re.findall(r"`(--[\w-]+)`", row[0])
        numbers = re.findall(r"([\d.,]*\d)(?: (KiB|MiB))?", row[1])
        assert len(options) == len(numbers), row
        for option, (number, unit) in zip(options, numbers, strict=True):
            said[option] = float(number.replace(",", "")) * BYTES.get(unit, 1)
    assert said == defaults()
