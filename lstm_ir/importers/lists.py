"""Lists of tensors in a foreign model: TensorFlow's TensorArrays and lists, sequences of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

MAX_ITEMS = 2**16  # of a list that stand one by one


def need_few(count: int) -> None:
    """RefusedError for more elements than may stand one by one, each a value of the graph."""
    if count > MAX_ITEMS:
        raise NodeRefusedError(f"a list of {count} elements, of which each is a value: at most {MAX_ITEMS}")


@dataclass(frozen=True, eq=False)
class TensorList:
    """a list: `count` elements of one type, all in `rows`, or some in `items`; others were never written.

    `grows`: writing behind the end makes it longer.
    """

    dtype: DType
    count: Dim
    element: tuple[int | None, ...] | None = None
    rows: Value | None = None
    items: Mapping[int, Value] = field(default_factory=dict)
    grows: bool = False

    def stacked(self) -> Value:
        """All elements along a new first axis; those that were not written are zeros."""
        if self.rows is not None:
            return self.rows
        if self.items:
            if not isinstance(self.count, int) or not all(0 <= k < self.count for k in self.items):
                raise NodeRefusedError("a list is read of which not all elements were written")
            need_few(self.count)
            like = next(iter(self.items.values()))
            nothing = li.zeros(like.shape, like.dtype)
            return li.stack([self.items.get(k, nothing) for k in range(self.count)])
        if self.element is None or None in self.element:
            raise NodeRefusedError("a list is read that was never written, and whose elements have no stated shape")
        return li.zeros((self.count, *(d for d in self.element if d is not None)), self.dtype)

    def with_item(self, place: int, value: Value) -> TensorList:
        """The list with one element written."""
        count = self.count
        if isinstance(count, Expr):
            raise NodeRefusedError("an element of a list is written whose number of elements only a call knows")
        if place >= count and not self.grows:
            raise NodeRefusedError(f"place {place} is outside a list of {count}")
        if self.rows is not None:
            need_few(count)
            rows = [v[0] for v in li.split(self.rows, count)] if count else []
            return replace(self, rows=None, items=dict(enumerate(rows)) | {place: value}, count=max(count, place + 1))
        return replace(self, items={**self.items, place: value}, count=max(count, place + 1))

    def each(self, change: Callable[[Value], Value]) -> TensorList:
        """The list with its elements changed."""
        rows = None if self.rows is None else change(self.rows)
        return replace(self, rows=rows, items={k: change(v) for k, v in self.items.items()})

    def chosen(self, other: TensorList, choose: Callable[[Value, Value], Value]) -> TensorList:
        """Of two lists one, by its elements; where one alone has an element written, the other has zeros there."""
        if self.dtype is not other.dtype or self.count != other.count:
            raise NodeRefusedError(
                f"one of two lists is chosen: of {self.count} elements of {self.dtype}, and of {other.count} of "
                f"{other.dtype}"
            )
        whole = replace(
            self, element=self.element if self.element == other.element else None, grows=self.grows and other.grows
        )
        if self.rows is not None or other.rows is not None:
            return replace(whole, rows=choose(self.stacked(), other.stacked()), items={})
        made = {}
        for k in sorted({*self.items, *other.items}):
            a, b = self.items.get(k), other.items.get(k)
            made[k] = choose(_or_zeros(a, b), _or_zeros(b, a))
        return replace(whole, items=made)

    def read(self, place: Value) -> Value:
        """The element at a place."""
        return li.take(self.stacked(), place, 0)


def _or_zeros(v: Value | None, like: Value | None) -> Value:
    if v is not None:
        return v
    assert like is not None
    return li.zeros(like.shape, like.dtype)


@dataclass(frozen=True, eq=False)
class LoopList:
    """a list: inside the loop that writes it. `write` is the place (None: the end) and the element of this step."""

    before: TensorList
    variable: int
    write: tuple[Value | None, Value] | None = None
