"""Elements that do not lie side by side, one for each lane of a vector.

IREE takes `vector.gather` apart into branches around loads of one element; these are LLVM's own operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.backends.kernels.text.memory import ELEMENT_BYTES, Memory, Shifted, address, load_vector, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand
from lstm_ir.backends.kernels.text.text import Text


def load_along(t: Text, m: Memory, at: Sequence[TextOperand], axis: int, mask: TextOperand | None) -> TextOperand:
    """A vector along an axis; lanes outside `mask` are zero and not read."""
    if axis == len(at) - 1:
        return load_vector(t, m, at, mask)
    kind = t.vector(m.element)
    if isinstance(m, Shifted):
        there, is_edge = m.moved(t, at)
        v = load_along(t, Memory(m.name, m.element, m.sizes), there, axis, mask)
        edge: TextOperand
        if isinstance(m.edge, Memory):
            edge = load_along(t, m.edge, [t.index(0), *at[1:]], axis, mask)
        else:
            edge = t.constant(f"{m.edge:.17e}", kind)
        return t.select(is_edge, edge, v, kind)
    nothing = t.constant("0" if m.element[0] == "i" else "0.0", kind)
    text = '"llvm.intr.masked.gather"({}, {}, {}) {} : ({}, {}, {}) -> {}'
    return t.op(text, _places(t, m, at, axis), _every(t, mask), nothing, _alignment(m), *_kinds(t), kind, kind)


def store_along(
    t: Text, v: TextOperand, m: Memory, at: Sequence[TextOperand], axis: int, mask: TextOperand | None
) -> None:
    """A vector along an axis; lanes outside `mask` are not written."""
    if axis == len(at) - 1:
        store_vector(t, v, m, at, mask)
        return
    places, bits = _kinds(t)
    text = '"llvm.intr.masked.scatter"({}, {}, {}) {} : ({}, {}, {}) -> ()'
    t.line(text, v, _places(t, m, at, axis), _every(t, mask), _alignment(m), t.vector(m.element), places, bits)


def _kinds(t: Text) -> tuple[str, str]:
    """Of places, and of a mask."""
    return f"vector<{t.lanes}x!llvm.ptr>", t.vector("i1")


def _alignment(m: Memory) -> str:
    return f"<{{alignment = {ELEMENT_BYTES[m.element]} : i64}}>"


def _every(t: Text, mask: TextOperand | None) -> TextOperand:
    return t.constant("true", t.vector("i1")) if mask is None else mask


def _places(t: Text, m: Memory, at: Sequence[TextOperand], axis: int) -> Name:
    """Where the elements are: a pointer to the first one, and how many elements behind it each is."""
    first = at[0]
    for index, size in zip(at[1:], m.sizes[1:], strict=True):
        first = t.binary("addi", t.binary("muli", first, _size(t, size)), index)
    stride: TextOperand = t.index(1)
    for size in m.sizes[axis + 1 :]:
        stride = t.binary("muli", stride, _size(t, size))
    base = t.op("llvm.inttoptr {} : i64 to !llvm.ptr", _cast(t, address(t, m.ref, m.kind), "i64"))
    begin = t.op(
        "llvm.getelementptr {}[{}] : (!llvm.ptr, i64) -> !llvm.ptr, {}", base, _cast(t, first, "i64"), m.element
    )
    kind = t.vector("i32")
    each = t.op("vector.broadcast {} : i32 to {}", _cast(t, stride, "i32"), kind)
    behind = t.binary("muli", t.constant(str(list(range(t.lanes))), kind), each, kind)
    text = "llvm.getelementptr {}[{}] : (!llvm.ptr, {}) -> {}, {}"
    return t.op(text, begin, behind, kind, _kinds(t)[0], m.element)


def _size(t: Text, d: int | TextOperand) -> TextOperand:
    return t.index(d) if isinstance(d, int) else d


def _cast(t: Text, v: TextOperand, kind: str) -> Name:
    return t.op(f"arith.index_cast {{}} : index to {kind}", v)
