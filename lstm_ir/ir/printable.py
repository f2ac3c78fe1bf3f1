"""Words on a terminal: names that come from files, and bytes in units."""

from __future__ import annotations

UNBROKEN = "\ue000"  # becomes a space, but no line ends at it
KEPT = f"\n{UNBROKEN}"


def safe(text: str) -> str:
    """The text without control characters: names come from files, and a terminal obeys some of them."""
    return "".join(c if c.isprintable() or c in KEPT else repr(c)[1:-1] for c in text)


def is_text(name: str) -> bool:
    """Whether a name can be written to a file: not where it has half of a surrogate pair."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def bytes_text(count: float) -> str:
    """Bytes in the unit that fits."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} bytes"
