"""A package as the program that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import LstmIrError, MissingLibraryError, PackageError
from lstm_ir.ir.parser import parse
from lstm_ir.ir.printer import named_by_hash
from lstm_ir.ir.program import Program
from lstm_ir.ir.types import DType
from lstm_ir.options import RECORDED, checked

if TYPE_CHECKING:
    from lstm_ir.backends.files.archive import Package

Array = np.ndarray[Any, Any]
TEXT = "graph.lir"


class Unpacked(NamedTuple):
    """A program with weights and state, and the targets and options that it was compiled with."""

    program: Program
    targets: tuple[str, ...]
    options: dict[str, Any]


def unpacked(package: Package) -> Unpacked:
    """What the package was made of; PackageError where it does not say, or says what its other parts do not."""
    held = package.graph
    if held is None:
        version = package.manifest.version
        left = "its writer left it out (graph=False, --no-graph)" if version >= 4 else f"format {version} had none"
        raise PackageError(
            f"{package.path}: the package has no graph: {left}. From the graph's text and this package's arrays: "
            f"lstm-ir compile GRAPH.lir --weights {package.path} -o NEW.lirpkg"
        )
    arrays = (*package.weights.values(), *package.state.values(), *held.constants.values())
    where = f"{package.path}: {TEXT}"
    try:
        program = Program.of(parse(held.text, data={Data.of(a).sha256: a for a in arrays}, file=TEXT))
        program.verify()
        options = checked(held.recipe.options, RECORDED)
    except MissingLibraryError:
        raise
    except LstmIrError as e:
        raise PackageError(f"{where}: {e}") from e
    _same_arrays({n: d for n, d in program.weights.items()}, package.weights, "weight", where)
    _same_arrays({n: s.initial for n, s in program.state.items()}, package.state, "state", where)
    lost = [h for h, d in named_by_hash(program).items() if not d.known]
    if lost:
        raise PackageError(f"{where}: the package has no array with the hash {lost[0]}")
    _same_entries(program, package, where)
    return Unpacked(program, held.recipe.targets, options)


def _same_arrays(stated: Mapping[str, Data], stored: Mapping[str, Array], kind: str, where: str) -> None:
    """That the text speaks of the arrays that the package has, which its modules run with."""
    for name in sorted({*stated, *stored}):
        known = name in stated and name in stored and stated[name].known
        if not known or not _equal(stated[name].array, stored[name]):
            raise PackageError(f"{where}: {kind} {name!r} is not the one that the package has")


def _equal(a: Array, b: Array) -> bool:
    """By bits, but text keeps none of a NaN beyond its being one."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.tobytes() == b.tobytes():
        return True
    if not DType.of(a.dtype).is_float:
        return False
    bits = np.dtype(f"u{a.itemsize}")
    same = np.frombuffer(a.tobytes(), bits) == np.frombuffer(b.tobytes(), bits)
    neither = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return bool((same | neither.reshape(-1)).all())


def _same_entries(program: Program, package: Package, where: str) -> None:
    """That the text is of the program that the package runs: entries, inputs, outputs and state."""
    stated, runs = program.signature(), package.signature
    same = (stated.name, stated.state, stated.weights) == (runs.name, runs.state, runs.weights)
    same &= list(stated.entries) == list(runs.entries)
    for name, entry in stated.entries.items() if same else ():
        other = runs.entries[name]
        ports = (entry.inputs, entry.outputs, entry.reads, entry.writes, entry.finite)
        same &= ports == (other.inputs, other.outputs, other.reads, other.writes, other.finite)
    if not same:
        raise PackageError(f"{where}: the graph is not that of the package: its entries differ from the manifest's")
