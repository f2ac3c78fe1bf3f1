"""What a weight is called inside a module."""

from __future__ import annotations


def key(name: str) -> str:
    """The name as a module's parameter has it: in hex where IREE would not print it so that it can be
    read again.
    """
    plain = name.isprintable() and not set(name) & {'"', "\\"} and not name.startswith("%")
    return name if plain else f"%{name.encode().hex()}"
