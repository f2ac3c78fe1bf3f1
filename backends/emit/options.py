"""What was chosen for a module, beside the target that it is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Read by lowering rules and kernels; a target says what the hardware is."""

    kernels: bool = False  # loops and products may become kernels of this project
    helpers: bool = False  # functions take what lets helper threads take part in their kernels


PLAIN = Options()
"""No kernels, no helpers: StableHLO alone."""
