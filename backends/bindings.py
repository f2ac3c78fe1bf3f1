"""IREE's native bindings: where they are, and what their messages say."""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from functools import cache
from typing import Any

from lstm_ir.ir.errors import DeviceError
from lstm_ir.ir.foreign_errors import limit_in, refusals_become, strerror

# What the bindings raise, by status code; never a class derived from these.
RAISED = (RuntimeError, ValueError, IndexError, NotImplementedError)
STATUS = r"(?s)\b([A-Z]+(?:_[A-Z]+)*); (.*)"  # how its messages begin, behind a place
_NUMBER = r"failed with (\d+)|failed \((\d+)\)"  # of the system's error, in place of its words


@cache
def native() -> Any:
    """IREE's native bindings. The package around them imports ml_dtypes, which few models need."""
    for name in ("iree._runtime_libs._runtime", "iree.runtime._binding"):
        with suppress(ModuleNotFoundError), refusals_become(DeviceError, "iree-base-runtime cannot be loaded"):
            return importlib.import_module(name)
    raise DeviceError("iree-base-runtime is not installed: pip install iree-base-runtime")


def version() -> str:
    """The release of iree-base-runtime; from its own file, which takes a twentieth of asking for metadata."""
    native()
    with suppress(ImportError, AttributeError):
        found = re.match(r"\d+(\.\d+)*", importlib.import_module("iree._runtime_libs.version").VERSION)
        if found is not None:
            return found[0]
    from importlib import metadata  # slow: where the file above is missing

    return metadata.version("iree-base-runtime")


def short(error: BaseException | str) -> str:
    """What the runtime said, without its source places and stack, and the limit that it met."""
    text = str(error)
    found = re.search(STATUS, text)
    if found is not None:
        text = found[2]
    text = re.split(r"; while (?:invoking|calling)|\n\s*\[\s*\d+\]|; \n", text, maxsplit=1)[0]
    text = text.strip().rstrip(";").strip()[:400]
    number = re.search(_NUMBER, text)
    limit = limit_in(text) if number is None else strerror(int(number[1] or number[2]))
    return text if limit is None else f"{text} ({limit})"
