"""A target, resolved: what passes, the compiler and the runtime are told of it."""

from __future__ import annotations

from typing import NamedTuple

from lstm_ir.ir.target import TargetInfo


class Target(NamedTuple):
    """What passes see, what the compiler is told, and the runtime drivers, best first."""

    info: TargetInfo
    flags: tuple[str, ...]
    drivers: tuple[str, ...]
    note: str = ""  # what resolving changed, for the user

    def __str__(self) -> str:
        return self.info.name
