"""What the verbs read and write: graphs as text, arrays as .npy and .npz, nothing pickled."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from lstm_ir.backends.files import npy, parameters, state_file
from lstm_ir.backends.files.archive import Package
from lstm_ir.backends.files.packed_graph import TEXT_LIMIT
from lstm_ir.cli import packages
from lstm_ir.ir import numpy_files
from lstm_ir.ir.errors import PackageError, ParseError
from lstm_ir.ir.input_file import reading
from lstm_ir.ir.output_file import check_folder, replacing
from lstm_ir.ir.parser import parse
from lstm_ir.ir.printer import named_by_hash
from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]


Reader = Callable[[str], Package]


def read_program(
    path: str, weights: Sequence[str] = (), *, whole: bool = False, key_file: str | None = None,
    read: Reader | None = None,
) -> Program:  # fmt: skip
    """The graph or program in the file (`-` is stdin), with arrays from the weight files; or that of a package.

    whole: every weight, state and constant needs its array, not only its hash. key_file: of the signature that
    packages must have, those of weights too. read: what reads these instead.
    """
    packages.no_key(path, key_file, weights)
    if read is None:
        read = partial(packages.read, key_file=key_file)
    if packages.is_package(path):
        if weights:
            raise click.UsageError(f"--weights are for graphs; {path} has its own")
        from lstm_ir.unpacking import unpacked

        return unpacked(read(path)).program
    text = _text(path)
    try:
        program = Program.of(parse(text, data=read_weights(weights, read), file=path))
    except ParseError as e:
        raise ParseError(f"{path}: {e}", e.line, e.column) from None
    absent = _absent(program) if whole else []
    if absent:
        raise PackageError(
            f"{path}: the text has only the hash of {absent[0]} "
            f"({len(absent)} such); give the arrays with --weights FILE.npz"
        )
    return program


def _absent(program: Program) -> list[str]:
    """What the text names by its hash alone, and nobody gave: weights and state by name, constants by the hash."""
    named = {"weight": program.weights, "state": {n: s.initial for n, s in program.state.items()}}
    found = {d.sha256: f"{kind} {n!r}" for kind, ds in named.items() for n, d in ds.items() if not d.known}
    others = {h: f"constant sha256({h})" for h, d in named_by_hash(program).items() if not d.known}
    return list({**found, **{h: what for h, what in others.items() if h not in found}}.values())


def _text(path: str) -> str:
    if path == "-":
        if sys.stdin is None:  # it was closed when this process began
            raise ParseError("a graph is read from stdin, which is closed")
        data = sys.stdin.buffer.read(TEXT_LIMIT + 1)
    else:
        with reading(path, "a graph's text", ParseError) as (f, _):
            data = f.read(TEXT_LIMIT + 1)
    if len(data) > TEXT_LIMIT:
        raise ParseError(f"{path}: more than {TEXT_LIMIT >> 20} MiB of text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ParseError(f"{path}: not UTF-8 text: byte {e.start}") from None


def read_weights(paths: Sequence[str], read: Reader) -> dict[str, Array]:
    """The arrays of .npz and .safetensors files, and those of packages, which `read` reads, by name."""
    out: dict[str, Array] = {}
    for path in paths:
        found = _packed(read(path)) if packages.is_package(path) else parameters.read_weights(path)
        for name, array in found.items():
            if name in out:
                raise PackageError(f"{path}: {name!r} is in an earlier file too")
            out[name] = array
    return out


def _packed(found: Package) -> dict[str, Array]:
    constants = {} if found.graph is None else found.graph.constants  # by hash
    return {**constants, **found.state, **found.weights}


def read_inputs(arguments: Sequence[str]) -> dict[str, Array]:
    """Arrays from `x=x.npy`, `x=all.npz:x` or `all.npz` (every array under its own name)."""
    out: dict[str, Array] = {}
    for text in arguments:
        name, eq, path = text.partition("=")
        found = _named(name, path) if eq else _all(text)
        for key, array in found.items():
            if key in out:
                raise click.UsageError(f"input {key!r} is given twice")
            out[key] = array
    return out


def _all(path: str) -> dict[str, Array]:
    if Path(path).suffix != ".npz":
        raise click.UsageError(f"--input {path}: write NAME=FILE.npy, NAME=FILE.npz:KEY, FILE.npz")
    return parameters.read_weights(path)


def _named(name: str, path: str) -> dict[str, Array]:
    file, colon, key = path.rpartition(":")
    if colon and Path(file).suffix == ".npz":
        arrays = parameters.read_weights(file)
        if key not in arrays:
            raise PackageError(f"{file}: there is no {key!r}; it has {', '.join(arrays)}")
        return {name: arrays[key]}
    if Path(path).suffix == ".npy":
        return {name: npy.read(path)}
    raise click.UsageError(f"--input {name}={path}: expected a .npy file, or FILE.npz:KEY")


class OutputFile(click.Path):
    """The type of an option: a file that is written behind the work. One in no folder is wrong usage, before it."""

    def __init__(self, path_type: type[Any] | None = None) -> None:
        super().__init__(dir_okay=False, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        path = super().convert(value, param, ctx)
        try:
            check_folder(os.fsdecode(path))
        except OSError as e:
            self.fail(f"{os.fsdecode(path)}: {e.strerror}", param, ctx)
        return path


ARRAYS = (".npz", ".npy", ".safetensors")


def check_arrays_path(path: Path) -> None:
    """Refuse a name that does not say which kind of file it is, and one in no folder; a device or pipe may have any."""
    if path.suffix not in ARRAYS and (path.is_file() or not path.exists()):
        raise click.UsageError(f"-o {path}: arrays are written to {', '.join(ARRAYS[:-1])} or {ARRAYS[-1]}")
    check_folder(path)


def check_arrays(path: Path, types: Mapping[str, np.dtype[Any]]) -> None:
    """Refuse arrays that such a file does not hold: several in a .npy, bf16 in one of NumPy's."""
    if path.suffix == ".npy" and len(types) != 1:
        raise click.UsageError(f"{path}: {len(types)} outputs need a .npz or .safetensors file")
    if path.suffix != ".safetensors":
        numpy_files.check(types, str(path))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """One .npz or .safetensors, or one .npy for a single array; in one step, so nothing half-written stays."""
    check_arrays_path(path)
    _write(path, arrays)


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    made = {name: np.asarray(a) for name, a in arrays.items()}
    check_arrays(path, {name: a.dtype for name, a in made.items()})
    if path.suffix == ".safetensors":
        state_file.write(path, made)
        return
    with replacing(path) as f:
        if path.suffix == ".npy":
            np.save(f, next(iter(made.values())), allow_pickle=False)
        else:
            numpy_files.write_npz(f, made, str(path))


def write_weights(path: Path, arrays: Mapping[str, Array]) -> None:
    """As .npz, .safetensors, or .irpa for IREE's tools (`--parameters=model=FILE`), in one step."""
    if path.suffix == ".irpa":
        parameters.write_irpa(path, arrays)
    else:
        _write(path, arrays)


def check_weights_path(path: Path) -> None:
    """Refuse a name that does not say which kind of file it is."""
    if path.suffix not in (".npz", ".safetensors", ".irpa"):
        raise click.UsageError(f"--weights-to {path}: weights are written to .npz, .safetensors or .irpa")


TEXTS = (".lir", ".mlir", ".txt")


def check_ending(option: str, path: str | None, *known: str) -> None:
    """Refuse a file whose ending promises another kind than those that are `known`; one without an ending passes."""
    suffix = "" if path is None else Path(path).suffix
    if suffix not in ("", *known):
        raise click.UsageError(f"{option} {path}: nothing is written as {suffix}; the endings are {', '.join(known)}")


def write_text(path: str | None, text: str) -> None:
    """To the file, or to stdout."""
    if path is None or path == "-":
        if sys.stdout is None:  # it was closed when this process began
            raise click.ClickException("a text is written to stdout, which is closed")
        click.echo(text, nl=not text.endswith("\n"))
        return
    with replacing(path) as f:
        f.write(text.encode())


def json_text(data: Any) -> str:
    """JSON in lines; numbers that it does not have are words: "inf", "nan"."""
    return json.dumps(_worded(data), indent=1)


def _worded(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(k): _worded(v) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [_worded(v) for v in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Says on stderr what takes seconds, and how long it took; a spinner on a terminal."""
    start = time.perf_counter()
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console  # only where it is drawn: importing it takes time

        with Console(stderr=True).status(what):
            yield
    else:
        yield
    click.echo(f"{what}: {time.perf_counter() - start:.2f} s", err=True)
