"""What a caller says of a foreign model by name: sizes, and whether the model has what is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lstm_ir.importers.refusals import UnifiedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import DimError, ModelError
from lstm_ir.ir.types import DimLike, shape_of


class NamedSizes:
    """Names of open sizes as the graph has them; ModelError for what is no size."""

    def __init__(self, file: str, sizes: Mapping[str, DimLike]) -> None:
        self.file = file
        self.named: dict[str, Dim] = {}
        try:
            for name, size in sizes.items():
                (self.named[name],) = shape_of((size,))
        except DimError as e:
            raise ModelError(f"{file}: sizes: {e}") from None

    def unify(self, name: str, by: Dim) -> None:
        """From now on the size `name` is `by`."""
        self._unify({name: by})

    def unify_all(self, found: UnifiedError) -> None:
        """The same of all pairs, none of which names what another one replaces."""
        self._unify(dict(found.pairs))

    def _unify(self, by: Mapping[str, Dim]) -> None:
        self.named = {n: dims.substitute(d, by) for n, d in self.named.items()} | dict(by)


def need_mappings(importer: str, **arguments: Any) -> None:
    """ModelError for an argument that is neither None nor values by name."""
    for name, value in arguments.items():
        if not isinstance(value, Mapping | None):
            raise ModelError(f"{importer}: {name} is {value!r:.80}, not names with values")


def refuse_unknown(file: str, what: str, names: Iterable[str], there: Iterable[str]) -> None:
    """ModelError for a name that the model does not have; `there` is shown in its order."""
    shown = list(there)
    unknown = sorted(set(names) - set(shown))
    if unknown:
        raise ModelError(f"{file}: {what} has {unknown[0]!r}; the model has {', '.join(shown) or 'none'}")
