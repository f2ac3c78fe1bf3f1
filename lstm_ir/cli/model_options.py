"""What `import` and `verify` share: constants, sizes and ranges as words of the command line."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from lstm_ir.backends.files import npy
from lstm_ir.cli import packages
from lstm_ir.importers.kinds import kind_of_file
from lstm_ir.ir.dims import LIMIT

WORDS = {"true": True, "false": False}
_DIGITS = 300  # characters of a number: the largest floats have as many


def imported(command: Callable[..., None]) -> Callable[..., None]:
    """The options of importers; the command gets a kind of model, and `importer_options`, what its importer is told.

    Of a package the kind is None, and there are no such options.
    """

    @click.option(
        "--constant", "constant_words", multiple=True, help="Fix an input: NAME=NUMBER, NAME=1,2,3 or NAME=FILE.npy."
    )
    @click.option("--size", "size_words", multiple=True, help="Fix or rename a named size: T=100, input_0=B.")
    @click.option("--signature", help="TensorFlow: the signature to take.")
    @click.option("--checkpoint", help="TensorFlow: the stem of a checkpoint's files, for a graph without variables.")
    @click.option(
        "--result", "results", multiple=True, help="TensorFlow: a node of a GraphDef to give: softmax, lstm:6."
    )
    @functools.wraps(command)
    def made(
        model: str, constant_words: Sequence[str], size_words: Sequence[str], signature: str | None,
        checkpoint: str | None, results: Sequence[str], **others: Any,
    ) -> None:  # fmt: skip
        if Path(model).suffix == ".lir":
            raise click.UsageError(
                f"{model} is a graph's text: `lstm-ir compile`, `lstm-ir run` and `lstm-ir show` take it"
            )
        kind = None if packages.is_package(model) else kind_of_file(model)
        options = {
            "constants": constants(constant_words), "sizes": sizes(size_words), "signature": signature,
            "checkpoint": checkpoint, "outputs": results,
        }  # fmt: skip
        importer_options = {name: value for name, value in options.items() if value}
        if kind is not None:
            kind.check(model, importer_options)
        elif importer_options:
            raise click.UsageError(f"{model} is a package, and its {next(iter(importer_options))} are chosen")
        command(model=model, kind=kind, importer_options=importer_options, **others)

    return made


def constants(words: Sequence[str]) -> dict[str, Any]:
    """Arrays by name from `sr=16000`, `w=0.5,0.25` and `m=m.npy`."""
    return {name: _array(f"--constant {name}={text}", text) for name, text in _pairs("--constant", words)}


def _array(word: str, text: str) -> Any:
    if Path(text).suffix == ".npy":
        return npy.read(text)
    numbers = [_number(word, part) for part in text.split(",")]
    made = np.asarray(numbers if "," in text else numbers[0])
    if made.dtype.kind not in "biu" and all(isinstance(n, int) for n in numbers):
        raise click.UsageError(f"{word:.80}: no integers of 64 bits hold these numbers")
    return made


def _number(word: str, text: str) -> Any:
    text = text.strip()
    if text in WORDS:
        return WORDS[text]
    if len(text) > _DIGITS:  # Python reads no whole number of thousands of digits, and a float would be infinite
        raise click.UsageError(f"{word:.80}…: a number of {len(text)} characters; at most {_DIGITS} are read")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise click.UsageError(f"{word}: {text!r} is not a number, true, false or a .npy file")


def sizes(words: Sequence[str]) -> dict[str, int | str]:
    """Numbers, or other names, by name from `T=100` and `input_0=B`."""
    pairs = _pairs("--size", words)
    return {n: _size(f"--size {n}={text}", text) if re.fullmatch(r"\d+", text) else text for n, text in pairs}


def _size(word: str, text: str) -> int:
    if len(text) > len(str(LIMIT)) or int(text) >= LIMIT:
        raise click.UsageError(f"{word:.80}: sizes are 0 to 2^62 - 1")
    return int(text)


def states(words: Sequence[str]) -> dict[str, str]:
    """Outputs by the input that they become, from `state=stateN`."""
    return dict(_pairs("--state", words))


def tried(words: Sequence[str]) -> dict[str, list[int]]:
    """Numbers that are tried by name of a size, from `T=1,7,100`."""
    out: dict[str, list[int]] = {}
    for name, text in _pairs("--try", words):
        if not re.fullmatch(r"\d+(,\d+)*", text):
            raise click.UsageError(f"--try {name}={text}: expected whole numbers with commas between")
        out[name] = [_size(f"--try {name}={part}", part) for part in text.split(",")]
    return out


def ranges(words: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Lowest and highest value by input, from `ids=0..99`."""
    out: dict[str, tuple[Any, Any]] = {}
    for name, text in _pairs("--range", words):
        low, dots, high = text.partition("..")
        if not dots:
            raise click.UsageError(f"--range {name}={text}: expected LOW..HIGH")
        word = f"--range {name}={text}"
        out[name] = (_number(word, low), _number(word, high))
    return out


def say_limits(precision: str) -> None:
    """Why results differ by more than the limit that nobody chose."""
    click.echo(
        f"precision {precision} makes differences of its own, larger than the limit of 2e-5: "
        "say with --absolute and --relative how far the results may differ", err=True,
    )  # fmt: skip


def _pairs(option: str, words: Sequence[str]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for word in words:
        name, eq, text = word.rpartition("=")
        if not eq or not name or not text:
            raise click.UsageError(f"{option} {word}: expected NAME=VALUE")
        if name in found:
            raise click.UsageError(f"{option} {name} is given twice")
        found[name] = text
    return list(found.items())
