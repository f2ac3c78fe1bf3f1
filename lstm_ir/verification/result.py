"""What a comparison gave: figures with names, and the same as text that can be pasted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lstm_ir.ir.printable import bytes_text


@dataclass(frozen=True)
class OutputDifference:
    """One output over all calls.

    absolute: the largest |ours - original|. relative: the same by the largest |original| of its call. sizes: those
    of the worst call. ok: whether every call stayed within absolute + relative * largest |original|.
    """

    name: str
    type: str
    absolute: float
    relative: float
    sizes: Mapping[str, int]
    ok: bool


@dataclass(frozen=True)
class CaseResult:
    """One call: its sizes, and the median seconds of both where they were measured."""

    sizes: Mapping[str, int]
    seconds: float | None = None
    original_seconds: float | None = None


@dataclass(frozen=True)
class Verification:
    """A graph beside its original.

    failures are sentences, one for each call that only the original took and for results of another shape or
    dtype. passed_over: sizes that were drawn and that one of the two does not take, with the reason. Bytes and
    cold starts (seconds from the start of a process to its first result) are None where they are not known.
    """

    name: str
    original: str
    outputs: tuple[OutputDifference, ...]
    cases: tuple[CaseResult, ...]
    failures: tuple[str, ...]
    passed_over: tuple[str, ...]
    seed: int
    machine: str
    target: str
    package_bytes: int | None = None
    model_bytes: int | None = None
    cold_start: float | None = None
    original_cold_start: float | None = None

    @property
    def ok(self) -> bool:
        """Whether every output of every call is within the limits."""
        return not self.failures and all(o.ok for o in self.outputs)

    @property
    def summary(self) -> str:
        """One line: the verdict and the worst difference."""
        calls = f"{len(self.cases)} call{'s' if len(self.cases) != 1 else ''}"
        worst = max((o.absolute for o in self.outputs), default=0.0)
        if self.failures:
            many = f"{len(self.failures)} failure{'s' if len(self.failures) != 1 else ''}"
            return f"{self.name}: NOT equal to {self.original}, {calls}, {many}: {self.failures[0]}"
        verdict = "equal" if self.ok else "NOT equal"
        return f"{self.name}: {verdict} to {self.original}, {calls}, worst difference {worst:.1e}"

    def as_json(self) -> dict[str, Any]:
        """The fields as values of JSON, with `ok`."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.summary
        yield f"{self.machine}; target {self.target}; seed {self.seed}"
        yield ""
        outputs = [("output", "type", "absolute", "relative", "worst at", "")]
        for o in self.outputs:
            verdict = "ok" if o.ok else "BEYOND"
            outputs.append((o.name, o.type, f"{o.absolute:.1e}", f"{o.relative:.1e}", sizes_text(o.sizes), verdict))
        yield from table(outputs)
        if any(c.seconds is not None for c in self.cases):
            yield ""
            rows = [("median of a call", "lstm-ir", "original", "original by ours")]
            for c in self.cases:
                if c.seconds is not None and c.original_seconds is not None:
                    ratio = f"{c.original_seconds / c.seconds:.2f}"
                    rows.append((sizes_text(c.sizes), time_text(c.seconds), time_text(c.original_seconds), ratio))
            yield from table(rows)
        costs = [("", "lstm-ir", "original")]
        for name, show, pair in (
            ("cold start", time_text, (self.cold_start, self.original_cold_start)),
            ("package, model", bytes_text, (self.package_bytes, self.model_bytes)),
        ):
            if pair != (None, None):
                ours, original = ("-" if v is None else show(v) for v in pair)
                costs.append((name, ours, original))
        if len(costs) > 1:
            yield ""
            yield from table(costs)
        for line in self.passed_over:
            yield f"passed over: {line}"
        for line in self.failures:
            yield f"FAILED: {line}"


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines of cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()


def sizes_text(sizes: Mapping[str, int]) -> str:
    """`T=7 B=3`, or words where no size has a name."""
    return " ".join(f"{n}={s}" for n, s in sizes.items()) or "fixed sizes"


def time_text(seconds: float) -> str:
    """Seconds in the unit that fits."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} us"
