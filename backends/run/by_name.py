"""What an executable has by name: entries and weights, which say what there is where a name is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from lstm_ir.ir.errors import CallError
from lstm_ir.ir.near_names import hint

Array = np.ndarray[Any, Any]
Function = TypeVar("Function")
_METHODS = {
    "fit": "li.fit(exe, batches, epochs=n)",
    **dict.fromkeys(("predict", "infer", "forward"), 'exe(x=a), or exe.entries["infer"](x=a) of a program that trains'),
    **dict.fromkeys(("evaluate", "eval"), 'exe.entries["evaluate"](x=a), by li.train_step(..., evaluate=True)'),
    "save": "exe.save_state(path), or li.export(graph, path)",
    "load": "exe.load_state(path), or li.load(path)",
}
"""Methods of other libraries' models, and what executables have in their place."""


def instead(name: str, entries: Iterable[str]) -> str:
    """What to write for an attribute that an executable with these entries lacks: the end of a sentence, or nothing."""
    said = f"exe.entries[{name!r}](...)" if name in entries else _METHODS.get(name)
    return "" if said is None else f"; write {said}"


class Entries(Mapping[str, Function], Generic[Function]):
    """Entries by name; CallError for a name that is none."""

    def __init__(self, held: Mapping[str, Function]) -> None:
        self._held = dict(held)

    def __getitem__(self, name: str) -> Function:
        found = self._held.get(name)
        if found is None:
            raise CallError(f"no entry is called {name!r}; there are {', '.join(self)}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def get(self, name: str, default: Any = None) -> Any:
        """The entry, or `default`."""
        return self._held.get(name, default)

    def __repr__(self) -> str:
        return f"entries {', '.join(self)}"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            written = f"; write entries[{name!r}]" if name in self.__dict__.get("_held", ()) else ""
            raise AttributeError(f"entries have no attribute {name!r}{written}", name=name, obj=self)


class FixedWeights(dict[str, Array]):
    """Weights by name, those that no call changes; CallError for a name that is none."""

    def __init__(self, weights: Mapping[str, Array], state: Iterable[str]) -> None:
        super().__init__(weights)
        self._state = frozenset(state)

    def __missing__(self, name: object) -> Array:
        if name in self._state:
            raise CallError(f"weight {name!r} is trained, so it is state: exe.state[{name!r}]")
        there = f"; there are {', '.join(list(self)[:8]) or 'none'}"
        raise CallError(f"no weight is called {name!r}{hint(name, (*self, *self._state), there)}")
