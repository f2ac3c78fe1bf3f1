"""What a message says behind a name that is none: which one was meant, or what there is."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: object, known: Iterable[str], n: int = 3, cutoff: float = 0.7) -> list[str]:
    """Those that are `word` in other letters, or else up to `n` that are like it, the likeliest first."""
    import difflib  # where a name is wrong alone: what loads packages imports this file

    names, text = list(known), str(word)
    # at difflib's own 0.6 `huber` is like `where`
    return [m for m in names if m.lower() == text.lower()] or difflib.get_close_matches(text, names, n, cutoff)


def near(word: object, known: Iterable[str]) -> str | None:
    """The name that is most like `word`; None where none is like it."""
    found = nearest(word, known, 1)
    return found[0] if found else None


def hint(word: object, known: Iterable[str], otherwise: str) -> str:
    """`. Did you mean X?` for the name that is near `word`; `otherwise` where none is."""
    meant = near(word, known)
    return otherwise if meant is None else f". Did you mean {meant}?"
