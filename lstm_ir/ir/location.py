"""Where in the user's program a node was written, and which rewrites it went through."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from lstm_ir.ir.immutable import Immutable

_PACKAGE = Path(__file__).resolve().parents[1]
# In a checkout two folders of the package stand beside it.
_BESIDE = () if (_PACKAGE / "backends").is_dir() else ("passes", "backends")
_OWN = tuple(f"{f}/" for f in (_PACKAGE, *(_PACKAGE.parent / name for name in _BESIDE)))
_LIBRARIES = frozenset(("jax", "numpy", "torch"))  # a value that was given to one of them is not written there
_CURRENT: ContextVar[Loc | None] = ContextVar("lstm_ir_loc", default=None)


class Loc(Immutable):
    """A line of the user's source, and the rules that rewrote the node since.

    In a file without lines `node` is the name that the node has there, and `line` is 0.
    """

    __slots__ = ("file", "line", "node", "via")
    file: str
    line: int
    via: tuple[str, ...]
    node: str

    def __init__(self, file: str, line: int, via: tuple[str, ...] = (), node: str = "") -> None:
        self._set(file=file, line=line, via=via, node=node)

    def __str__(self) -> str:
        return " <- ".join((self.place, *self.via))

    @property
    def place(self) -> str:
        """`model.py:54`, or `model.onnx:lstm_4`; the file's name alone, without its folder."""
        return f"{Path(self.file).name}:{self.node or self.line}"

    def through(self, rule: str) -> Loc:
        """This line, after one more rule; a rule that repeats is named once."""
        return self if rule in self.via else self._replace(via=(*self.via, rule))


UNKNOWN = Loc("<unknown>", 0)


def here() -> Loc:
    """The active `at` location, or else the innermost frame outside this package."""
    active = _CURRENT.get()
    if active is not None:
        return active
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OWN):
            module = str(frame.f_globals.get("__name__"))
            typed = module == "__main__"  # at a prompt, or read from a pipe: `<stdin>`
            if module.partition(".")[0] not in _LIBRARIES and (typed or not name.startswith("<")):
                return Loc(name, frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return UNKNOWN


@contextlib.contextmanager
def at(loc: Loc) -> Iterator[None]:
    """Give every node that is made inside the location `loc`."""
    token = _CURRENT.set(loc)
    try:
        yield
    finally:
        _CURRENT.reset(token)
