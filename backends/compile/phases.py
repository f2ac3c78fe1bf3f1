"""When IREE checks the module that it compiles, and the phases that it is compiled in.

MLIR checks a module after each of some 200 passes, a third of the time of a compilation, and wherever it reads one. So
a module that is compiled in phases, each by a run of iree-compile that writes it as text, is checked as a whole where
the next run reads it. Two such places cost 3 to 6 % of the time.
"""

from __future__ import annotations

import re
from enum import Enum

# Behind fusion, while tensors are values; and when the host's code and the layouts of all tensors are there.
SEAMS = ("flow", "executable-configurations")
_UNCHECKED = "--verify=false"
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


def readable(text: str) -> str:
    """A module's text that IREE reads: it prints a field of an attribute that its parser refuses."""
    return _FIELD.sub(r"\1", text)
