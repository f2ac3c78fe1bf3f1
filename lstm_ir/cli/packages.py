"""What verbs read of packages: the program that one was made of, and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstm_ir.backends.files.archive import Package, read_package
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.input_file import reading

if TYPE_CHECKING:
    from lstm_ir.unpacking import Unpacked

SUFFIX = ".lirpkg"
_KEY_LIMIT = 64 << 10  # bytes


def is_package(path: str) -> bool:
    """Whether the name is that of a package."""
    return Path(path).suffix == SUFFIX


def key_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option --key-file of a verb that reads packages."""
    text = ("Refuse a package, as MODEL or in --weights, that is not signed with the key in this file, before anything "
            "else of it is read.")  # fmt: skip
    return click.option("--key-file", help=text)(command)


def sign_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a verb that writes packages: with which key, and whether with the graph."""
    key = click.option("--sign-key-file", help="Sign the package with the key in this file.")
    graph = click.option("--graph/--no-graph", "keep_graph", default=True, show_default=True,
                         help="Whether the graph's text goes into the package; without it nobody can compile "
                         "the package again.")  # fmt: skip
    return key(graph(command))


def read_key(path: str | None) -> bytes | None:
    """The key in the file: its bytes, without a line's end behind them. None without a file."""
    if path is None:
        return None
    with reading(path, "a key") as (f, size):
        data = f.read(_KEY_LIMIT + 1)
    if len(data) > _KEY_LIMIT:
        raise PackageError(f"{path}: a key of {size} bytes; at most {_KEY_LIMIT} are read")
    key = data.removesuffix(b"\n").removesuffix(b"\r")
    if not key:
        raise PackageError(f"{path}: the key is empty")
    return key


def read(path: str, key_file: str | None) -> Package:
    """The package, checked; with a key file, its signature first."""
    return read_package(path, require_key=read_key(key_file))


def read_for_new(path: str, key_file: str | None, sign_key_file: str | None) -> Package:
    """The package, for one that is made of it. A signed one is read with its key alone, and leads to a signed one."""
    found = read(path, key_file)
    if found.sealed and (key_file is None or sign_key_file is None):
        raise PackageError(
            f"{path}: the package is signed: give its key with --key-file, and the key of the new one with "
            "--sign-key-file"
        )
    return found


def again(path: str, key_file: str | None, sign_key_file: str | None) -> Unpacked:
    """What the package was made of, for a new one."""
    from lstm_ir.unpacking import unpacked

    return unpacked(read_for_new(path, key_file, sign_key_file))


def no_key(path: str, key_file: str | None, weights: Sequence[str] = ()) -> None:
    """Refuse a key where neither the model nor a file of weights is a package: nothing would be asked of it."""
    if key_file is not None and not any(map(is_package, (path, *weights))):
        raise click.UsageError(f"--key-file: {path} is no package, and has no signature")
