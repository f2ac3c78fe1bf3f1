"""When IREE checks the module that it compiles, and the phases that it is compiled in.

MLIR checks a module after each of some 200 passes, a third of the time of a compilation, and wherever it reads one. So
a module that is compiled in phases, each by a run of iree-compile that writes it as text, is checked as a whole where
the next run reads it. Two such places cost 3 to 6 % of the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from lstm_ir.backends.compile.grouping import UNLINKED, grouped
from lstm_ir.backends.compile.transients import from_allocator

# Behind fusion, while tensors are values; and when the host's code and the layouts of all tensors are there.
SEAMS = ("flow", "executable-configurations")
_UNCHECKED = "--verify=false"
_DECLARED = re.compile(r"^ *func\.func private @([\w.$]+)\(.*[^{]$", re.MULTILINE)
_FIELD = re.compile(r"(#stream\.resource_config<\{[^{}]*?)alias_mutable_bindings = 0, ")


class Checks(Enum):
    """When IREE checks its module."""

    PASSES = "after each pass"
    PHASES = "where the next phase reads it"

    @property
    def runs(self) -> tuple[tuple[str, ...], ...]:
        """Flags of each run of iree-compile in turn; the next one reads what the last one wrote."""
        if self is Checks.PASSES:
            return ((),)
        # Places in the user's files stay in the text, for messages.
        ends = [(f"--compile-to={seam}", "--mlir-print-debuginfo") for seam in SEAMS] + [()]
        begins = [()] + [(f"--compile-from={seam}",) for seam in SEAMS]
        return tuple((_UNCHECKED, *a, *b) for a, b in zip(begins, ends, strict=True))


def prepared(text: str, functions: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The module for the last run, and flags that this one needs besides."""
    whole = from_allocator(joined(text, functions))
    together = grouped(whole)
    return (whole, ()) if together is None else (together, (UNLINKED,))


def joined(text: str, functions: Mapping[str, str]) -> str:
    """The module with these functions in place of their declarations."""
    return _DECLARED.sub(lambda found: functions.get(found[1], found[0]), text) if functions else text


def readable(text: str) -> str:
    """A module's text that IREE reads: it prints a field of an attribute that its parser refuses."""
    return _FIELD.sub(r"\1", text)
