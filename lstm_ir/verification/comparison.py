"""A program and its original on the same arrays: drawn sizes, differences, times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.importers.original import Original, Plain
from lstm_ir.ir.errors import CallError, LstmIrError
from lstm_ir.ir.numpy_files import write_npz
from lstm_ir.ir.options import is_int
from lstm_ir.ir.signature import Entry
from lstm_ir.ir.types import DType
from lstm_ir.measurement.machine import machine
from lstm_ir.measurement.side_by_side import OURS, interleaved
from lstm_ir.verification.bounds import Bounds
from lstm_ir.verification.cold import cold_starts, ours_cold
from lstm_ir.verification.compare import Difference, Tolerance, difference, worst
from lstm_ir.verification.draw import REACH, TRIES, draw_arrays, draw_sizes, given_arrays
from lstm_ir.verification.result import CaseResult, Verification, sizes_text

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Executable

Array = np.ndarray[Any, Any]
ORIGINAL = "original"
MAX_PASSED_OVER = 3  # reasons that are kept


@dataclass(frozen=True)
class ComparisonOptions:
    """How calls are drawn and timed. `arrays`: those of the calls, where none are drawn."""

    sizes: Mapping[str, Sequence[int]]
    ranges: Mapping[str, tuple[float, float]]
    calls: int
    seed: int
    limits: Tolerance
    seconds: float
    arrays: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for option, given, least in (("calls", self.calls, 1), ("seed", self.seed, 0)):
            if not is_int(given) or given < least:
                raise CallError(f"verify: {option} is {given!r}, not a number of {least} or more")
        for name, value in (("absolute", self.limits.absolute), ("relative", self.limits.relative)):
            if value is not None and not 0 <= value < float("inf"):
                raise CallError(f"verify: {name} is {value!r}, not a finite number of 0 or more")
        if not 0 <= self.seconds < float("inf"):
            raise CallError(f"verify: seconds is {self.seconds!r}, not a number of 0 or more")

    def check(self, entry: Entry) -> None:
        """Refuse names that the entry does not have."""
        kinds = {p.name: p.type.dtype for p in entry.inputs}
        for what, given, there in (("sizes", self.sizes, entry.dims), ("ranges", self.ranges, list(kinds))):
            unknown = sorted(set(given) - set(there))
            if unknown:
                raise CallError(f"verify: {what} has {unknown[0]!r}; there are {', '.join(there) or 'none'}")
        if self.arrays and (self.sizes or self.ranges):
            raise CallError("verify: arrays are given, so sizes and ranges have nothing to draw")
        for name, values in self.sizes.items():
            if not isinstance(values, Sequence) or not values or not all(is_int(n) and n >= 0 for n in values):
                raise CallError(f"verify: the sizes of {name} are {values!r}, not numbers of 0 or more")
        for name, (low, high) in self.ranges.items():
            if not (_finite(low) and _finite(high) and low <= high and _finite(float(high) - float(low))):
                why = "" if not low <= high else ", of which an end, or how far they lie apart, is no finite number"
                raise CallError(f"verify: the range of {name} is {low}..{high}{why}")
            if kinds[name] is DType.i1:
                raise CallError(f"verify: {name} has a range, and its elements are booleans, which have none")
            if not kinds[name].is_float and not (_whole(low) and _whole(high)):
                what = f"of whole numbers, as {name} has them ({kinds[name]})"
                raise CallError(f"verify: the range of {name} is {low}..{high}; expected one {what}")


def _whole(number: float) -> bool:
    return int(number) == number


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no float holds
        return False


@dataclass(frozen=True)
class Ours:
    """Our side: what runs a call of `entry`, what is known of its inputs, and the package that it came from, if any.

    module: the name of the package's module; None is the best for this machine.
    """

    name: str
    entry: Entry
    run: Plain
    bounds: Bounds
    target: str
    package: Path | None = None
    module: str | None = None

    @classmethod
    def of(
        cls, exe: Executable, bounds: Bounds, target: str, package: Path | None = None, module: str | None = None
    ) -> Ours:
        """The entry of an executable that is called; CallError where there is none without state."""
        found = exe.signature.main
        if found is None or found.reads or found.writes:
            raise CallError("verify: takes one entry without state: results of others depend on earlier calls")
        return cls(exe.signature.name, found, exe, bounds, target, package, module)


@dataclass
class Comparison:
    """Calls of both sides, one after the other."""

    ours: Ours
    original: Original
    options: ComparisonOptions
    entry: Entry = field(init=False)
    differences: dict[str, list[tuple[Mapping[str, int], Difference]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entry = self.ours.entry
        self.options.check(self.entry)

    def run(self, folder: Path, cold: bool) -> Verification:
        """All calls; `folder` is for files of the cold starts."""
        rng = np.random.default_rng(self.options.seed)
        cases = []
        arrays: dict[str, Array] = {}
        for number in range(self._calls()):
            sizes, arrays, want = self._drawn(number, rng)
            cases.append(self._case(sizes, arrays, want))
        starts = self._cold(folder, arrays) if cold else {}
        package = self.ours.package
        ports = {p.name: p for p in self.entry.outputs}
        return Verification(
            name=self.ours.name,
            original=self.original.name,
            outputs=tuple(worst(ports[n], differences) for n, differences in self.differences.items()),
            cases=tuple(cases),
            failures=tuple(dict.fromkeys(self.failures)),
            passed_over=tuple(self.passed_over),
            seed=int(self.options.seed),
            machine=machine(),
            target=self.ours.target,
            package_bytes=None if package is None else package.stat().st_size,
            model_bytes=self.original.bytes,
            cold_start=starts.get(OURS),
            original_cold_start=starts.get(ORIGINAL),
        )

    def _calls(self) -> int:
        if self.options.arrays:
            return len(self.options.arrays)
        return max([self.options.calls, *map(len, self.options.sizes.values())])

    def _drawn(
        self, number: int, rng: np.random.Generator
    ) -> tuple[dict[str, int], dict[str, Array], Mapping[str, Any]]:
        """Sizes that both sides take, arrays of them, and the original's results."""
        if self.options.arrays:
            sizes, arrays = given_arrays(self.entry, self.options.arrays[number])
            return sizes, arrays, self.original(_copied(arrays))
        last = ""
        for sizes in self._sizes(number, rng):
            try:
                arrays = draw_arrays(self.entry, sizes, self.options.ranges, self.ours.bounds, rng)
            except CallError as e:
                last = self._pass(sizes, "lstm-ir", e)
                continue
            try:
                return sizes, arrays, self.original(_copied(arrays))
            except CallError:  # of ours: other sizes do not mend it
                raise
            except Exception as e:  # of whatever class the foreign program has
                last = self._pass(sizes, self.original.name, e)
        raise CallError(f"verify: no call was found that both sides take; the last: {last}")

    def _sizes(self, number: int, rng: np.random.Generator) -> Iterator[dict[str, int]]:
        free = set(self.entry.dims) - set(self.options.sizes)
        for reach in REACH if free else REACH[:1]:
            for _ in range(TRIES if free else 1):
                yield draw_sizes(self.entry, self.options.sizes, rng, number, reach)

    def _pass(self, sizes: Mapping[str, int], who: str, why: Exception) -> str:
        first = (str(why).splitlines() or [""])[0]
        text = f"{sizes_text(sizes)} by {who}: {type(why).__name__}: {first:.200}"
        if len(self.passed_over) < MAX_PASSED_OVER:
            self.passed_over.append(text)
        return text

    def _case(self, sizes: dict[str, int], arrays: Mapping[str, Array], want: Mapping[str, Any]) -> CaseResult:
        try:
            got = self.ours.run(arrays)
        except LstmIrError as e:
            self.failures.append(f"{sizes_text(sizes)}: {e}")
            return CaseResult(sizes)
        for port in self.entry.outputs:
            if port.name not in want:
                raise CallError(f"verify: the original gives no {port.name!r}; it gives {', '.join(want) or 'nothing'}")
            apart = difference(port, got[port.name], want[port.name], self.options.limits)
            if isinstance(apart, str):
                self.failures.append(f"{sizes_text(sizes)}: {apart}")
            else:
                self.differences.setdefault(port.name, []).append((sizes, apart))
        if not self.options.seconds:
            return CaseResult(sizes)
        theirs = _copied(arrays)
        runs: dict[str, Callable[[Any], Any]] = {OURS: self.ours.run, ORIGINAL: lambda _: self.original(theirs)}
        times = interleaved(runs, [arrays], self.options.seconds, min_turns=3)
        return CaseResult(sizes, times.median(OURS), times.median(ORIGINAL))

    def _cold(self, folder: Path, arrays: Mapping[str, Array]) -> dict[str, float]:
        if self.ours.package is None or any(p.type.dtype is DType.bf16 for p in self.entry.inputs):
            return {}  # NumPy alone reads no bf16 from files
        path = folder / "arrays.npz"
        with path.open("wb") as f:
            write_npz(f, arrays, str(path))
        codes = {OURS: ours_cold(self.ours.package, path, self.ours.module), ORIGINAL: self.original.cold(folder, path)}
        return cold_starts({who: code for who, code in codes.items() if code is not None})


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays that the original may change."""
    return {name: a.copy() for name, a in arrays.items()}
