"""What a message says behind a name that is none: which one was meant, or what there is."""

from __future__ import annotations

from collections.abc import Iterable


def near(word: object, known: Iterable[str]) -> str | None:
    """The name that is most like `word`; None where none is like it."""
    import difflib  # where a name is wrong alone: what loads packages imports this file

    found = difflib.get_close_matches(str(word), list(known), n=1)
    return found[0] if found else None


def hint(word: object, known: Iterable[str], otherwise: str) -> str:
    """`. Did you mean X?` for the name that is near `word`; `otherwise` where none is."""
    meant = near(word, known)
    return otherwise if meant is None else f". Did you mean {meant}?"
