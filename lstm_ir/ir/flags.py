"""Arguments of calls that are True or False."""

from __future__ import annotations

from lstm_ir.ir.errors import CallError


def confirm_flags(where: str = "", **given: object) -> None:
    """CallError for what is neither True nor False; `where` begins the message."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise CallError(f"{where}{name} is {value!r:.80}; expected True or False")
