"""What a graph is compared with: a callable from arrays by name to arrays by name, which may know more of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from lstm_ir.ir.errors import CallError

Array = np.ndarray[Any, Any]
Plain: TypeAlias = "Callable[[Mapping[str, Array]], Mapping[str, Any]]"


@runtime_checkable
class Original(Protocol):
    """The foreign model, ready to call. An importer makes one of its model.

    name: what runs it, with its version. bytes: of the model, None where nobody knows.
    """

    name: str
    bytes: int | None

    def __call__(self, arrays: Mapping[str, Array]) -> Mapping[str, Any]:
        """Results by name."""
        ...

    def cold(self, folder: Path, arrays: Path) -> str | None:
        """Python code that calls the model once, in a process of its own, on the arrays in a .npz file.

        folder: where it may write files for that. None: not known.
        """
        ...


class CallableOriginal:
    """Any callable, of which nothing else is known."""

    bytes: int | None = None

    def __init__(self, call: Plain) -> None:
        self._call = call
        self.name = str(getattr(call, "__name__", type(call).__name__))

    def __call__(self, arrays: Mapping[str, Array]) -> Mapping[str, Any]:
        """What the callable gives. CallError where that is no dict."""
        given = self._call(arrays)
        if not isinstance(given, Mapping):
            raise CallError(f"verify: {self.name} gives {type(given).__name__}, not a dict of arrays by output name")
        return given

    def cold(self, folder: Path, arrays: Path) -> str | None:
        """Not known."""
        return None
