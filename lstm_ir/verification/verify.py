"""`li.verify`: a graph's types again; and with `against`, its results beside those of the model it was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from lstm_ir.ir import verify as structure
from lstm_ir.ir.called import told
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.flags import confirm_flags
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.opdef import Level
from lstm_ir.ir.temporary import new_folder

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Executable
    from lstm_ir.importers.original import Original, Plain
    from lstm_ir.verification.comparison import Ours
    from lstm_ir.verification.result import Verification

Against: TypeAlias = "Any | Original | Plain"


@overload
def verify(model: Graph, levels: frozenset[Level] | None = None) -> None: ...


@overload
def verify(
    model: Graph | Executable, levels: frozenset[Level] | None = None, *, against: Against,
    constants: Mapping[str, Any] | None = None, sizes: Mapping[str, Sequence[int]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None, arrays: Sequence[Mapping[str, Any]] | None = None,
    calls: int = 4, seed: int = 0,
    absolute: float | None = None, relative: float | None = None, seconds: float = 0.3, cold: bool = True,
    target: str | None = None,
) -> Verification: ...  # fmt: skip


@told({
    **dict.fromkeys(("atol", "abs_tol"), "absolute"), **dict.fromkeys(("rtol", "rel_tol"), "relative"),
    **dict.fromkeys(("inputs", "data"), "arrays"), "device": "target", "reference": "against",
})  # fmt: skip
def verify(
    model: Graph | Executable,
    levels: frozenset[Level] | None = None,
    *,
    against: Against | None = None,
    constants: Mapping[str, Any] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    arrays: Sequence[Mapping[str, Any]] | None = None,
    calls: int = 4,
    seed: int = 0,
    absolute: float | None = None,
    relative: float | None = None,
    seconds: float = 0.3,
    cold: bool = True,
    target: str | None = None,
) -> Verification | None:
    """A graph's types derived again and compared; with `levels` ops of other stages are refused too.

    against: a model as its importer takes it, which its own library runs (onnxruntime, TensorFlow, Keras, PyTorch),
    or a callable from a dict of arrays to a dict of arrays. The graph is compiled for `target`, by default cpu; an
    executable is taken as it is. Both run `calls` times on arrays drawn from `seed`, each time with other sizes for
    named ones. constants: as they were given to the importer. sizes: the numbers that a named size has in turn.
    ranges: lowest and highest value of an input, whole numbers for integers; booleans have none.
    arrays: the inputs of each call by name, in place of drawn ones: recordings, rows of a data set.
    absolute, relative: what a difference may be at most, absolute + relative * the largest |value| of the output.
    seconds: how long each side is timed in each call; 0 is not at all. cold: time processes from their start too, of
    ours where a graph is given, or an executable that was loaded from a package.
    Raises VerifyError for a graph that contradicts itself, CallError where no drawn sizes fit both sides; a
    difference raises nothing: the result's `ok` is False.
    """
    if isinstance(model, Graph):
        structure.verify(model, levels)
    if against is None:
        if not isinstance(model, Graph):
            raise CallError(f"verify: {type(model).__name__} is no graph; give against to compare its results")
        return None
    from lstm_ir.verification.compare import Tolerance
    from lstm_ir.verification.comparison import Comparison, ComparisonOptions

    if target is not None and not isinstance(model, Graph):
        raise CallError("verify: target is what a graph is compiled for; an executable is taken as it is")
    confirm_flags("verify: ", cold=cold)
    limits = Tolerance(absolute, relative)
    options = ComparisonOptions(
        dict(sizes or {}), dict(ranges or {}), calls, seed, limits, seconds, tuple(arrays or ())
    )
    original = _original(against, constants)
    with new_folder() as folder, _ours(model, "cpu" if target is None else target, folder, cold) as ours:
        return Comparison(ours, original, options).run(folder, cold)


@contextmanager
def _ours(model: Graph | Executable, target: str, folder: Path, pack: bool) -> Iterator[Ours]:
    """A graph is compiled, and packed as it is shipped; an executable is taken as it is, with the package that it was
    loaded from."""
    from lstm_ir.api import compile, export
    from lstm_ir.verification.bounds import bounds, checked
    from lstm_ir.verification.comparison import Ours

    if not isinstance(model, Graph):
        entry = model.signature.main
        known = {} if entry is None else checked(entry)
        yield Ours.of(model, known, str(model.device), model.package, str(model.target))
        return
    with compile(model, target) as exe:
        package = export(model, folder / "ours.lirpkg", [target]) if pack else None
        yield Ours.of(exe, bounds(model), target, package)


def _original(against: Against, constants: Mapping[str, Any] | None) -> Original:
    from lstm_ir.importers.kinds import kind_of
    from lstm_ir.importers.original import CallableOriginal, Original

    if isinstance(against, Original):
        return against
    kind = kind_of(against)
    if kind is not None:
        return kind.original(against, {"constants": constants} if constants else {})
    if callable(against):
        if constants:
            raise CallError("verify: constants are those of a model; a callable has its own")
        return CallableOriginal(against)
    raise CallError(f"verify: against is {type(against).__name__}: neither a model nor a callable")
