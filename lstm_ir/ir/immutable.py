"""What small objects that never change have in common, without code that is compiled at import.

A dataclass writes its methods as text and compiles them: 0.4 to 1 ms for each class, of every process that loads a
package. What is made on the way to a first result is a named tuple or an `Immutable`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar, NoReturn, Self


class Immutable:
    """Equal to another of its class whose fields are equal: the arguments of its own `__init__`, in order."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]]
    _key: ClassVar[attrgetter[Any]]

    def __init_subclass__(cls) -> None:
        code = vars(cls)["__init__"].__code__
        cls._fields = code.co_varnames[1 : code.co_argcount]
        cls._key = attrgetter(*cls._fields)

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _replace(self, **changes: object) -> Self:
        """The same with other values of some fields."""
        return type(self)(**{n: getattr(self, n) for n in self._fields} | changes)

    def __eq__(self, other: object) -> bool:
        return NotImplemented if type(other) is not type(self) else self._key(self) == self._key(other)

    def __hash__(self) -> int:
        return hash(self._key(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in self._fields)})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: it never changes")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted: it never changes")

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), tuple(getattr(self, n) for n in self._fields)
