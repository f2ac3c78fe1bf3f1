"""What a foreign library says of its own workings while it reads a model; the importer's errors say the rest."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silenced(library: str) -> Iterator[None]:
    """Without warnings, and without messages of the loggers of a library, in all threads."""
    names = [n for n in logging.root.manager.loggerDict if n.split(".")[0] == library]
    loggers = [found for found in map(logging.getLogger, names) if not found.disabled]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for found in loggers:
                found.disabled = True
            yield
        finally:
            for found in loggers:
                found.disabled = False
