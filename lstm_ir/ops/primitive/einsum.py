"""`einsum`: products summed over letters, as NumPy reads them.

Operands are multiplied from the left to the right, each product one `dot_general`, or one `multiply` where nothing
is summed and one operand has all letters; a letter is summed as soon as nothing later has it. A letter twice in one
operand is its diagonal. An axis of size 1 broadcasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lstm_ir.ir import options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.fill import iota
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.reduce import sum
from lstm_ir.ops.primitive.shape import expand_dims, reshape, squeeze, transpose

_DOTS = "0123456789"  # stand for the axes of an ellipsis


def letters(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """A letter for each axis of each operand, and of the result; a digit for an axis of an ellipsis.

    Raises ValueError that says what is wrong with the equation.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"{equation!r} is for {len(terms)} operands, there are {len(ranks)}")
    counted = [_term(t, rank) for t, rank in zip(terms, ranks, strict=True)]
    dots = max((n for _, n in counted), default=0)
    names = [_aligned(t, n, dots) for t, n in counted]
    flat = "".join(names)
    if arrow:
        _term(right, None)
        out = right.replace("...", _DOTS[:dots])
    else:
        out = _DOTS[:dots] + "".join(sorted(x for x in set(flat) - set(_DOTS) if flat.count(x) == 1))
    if lost := sorted(set(out) - set(flat)):
        raise ValueError(f"the result of {equation!r} has {lost[0]!r}, which no operand has")
    if twice := sorted(x for x in set(out) if out.count(x) > 1):
        raise ValueError(f"the result of {equation!r} has {twice[0]!r} twice")
    if any(d not in out for d in flat if d in _DOTS):
        raise ValueError(f"the result of {equation!r} has no '...', which operands have")
    return names, out


def _term(term: str, rank: int | None) -> tuple[str, int]:
    """A term, and the number of axes that its ellipsis stands for."""
    bare = term.replace("...", "", 1)
    if not all(x.isascii() and x.isalpha() for x in bare):
        raise ValueError(f"a term of the equation is {term!r}; it has letters and '...'")
    if rank is None:
        return term, 0
    count = rank - len(bare)
    if "..." not in term and count:
        raise ValueError(f"the term {term!r} is for {len(bare)} axes, its operand has {rank}")
    if not 0 <= count <= len(_DOTS):
        raise ValueError(f"the term {term!r} does not fit an operand of {rank} axes")
    return term, count


def _aligned(term: str, count: int, dots: int) -> str:
    return term.replace("...", _DOTS[dots - count : dots])


def einsum(equation: str, *operands: Any) -> Value:
    """Products of operands summed over the letters that the result does not have: "tbi,oi->tbo", as in NumPy.

    One dtype for all. '...' stands for axes that broadcast; a letter twice in an operand is its diagonal; without
    "->" the result has the letters that occur once, in the alphabet's order. Raises IRError for an equation that
    does not fit, or a letter with two sizes.
    """
    text = options.text("einsum", "equation", equation)
    xs = as_values("einsum", *operands)
    if not xs:
        raise IRError(message("einsum", "takes at least one operand", (), here()))
    shown = [(str(i), x.type) for i, x in enumerate(xs)]
    try:
        names, out = letters(text, [x.rank for x in xs])
        sizes = _sizes(text, xs, names)
    except ValueError as problem:
        if isinstance(problem, IRError):
            raise
        raise IRError(message("einsum", str(problem), shown, here())) from None
    pairs = [_plain(x, name, sizes) for x, name in zip(xs, names, strict=True)]
    while len(pairs) > 1:
        (a, la), (b, lb), *rest = pairs
        pairs = [_contracted(a, la, b, lb, out + "".join(n for _, n in rest)), *rest]
    x, name = _summed(*pairs[0], out)
    for letter in out:  # of size 1 in every operand, and left out
        if letter not in name:
            x, name = reshape(x, (*x.shape, 1)), name + letter
    return transpose(x, [name.index(letter) for letter in out])


def _sizes(equation: str, xs: Sequence[Value], names: Sequence[str]) -> dict[str, Dim]:
    """The size of each letter, that of 1 giving way."""
    sizes: dict[str, Dim] = {}
    for name, x in zip(names, xs, strict=True):
        for letter, size in zip(name, x.shape, strict=True):
            known = sizes.setdefault(letter, size)
            if known == 1:
                sizes[letter] = size
            elif size not in (1, known):
                what = "an axis of '...'" if letter in _DOTS else f"the letter {letter!r}"
                raise ValueError(f"{what} of {equation!r} has the sizes {known} and {size}")
    return sizes


def _plain(x: Value, name: str, sizes: dict[str, Dim]) -> tuple[Value, str]:
    """Without axes that broadcast, and with each letter once: the diagonal of one that stands there twice."""
    ones = [i for i, n in enumerate(name) if x.shape[i] == 1 and (sizes[n] != 1 or name.count(n) > 1)]
    x, name = squeeze(x, ones) if ones else x, "".join(n for i, n in enumerate(name) if i not in ones)
    for letter in dict.fromkeys(name):
        while name.count(letter) > 1:
            i = name.index(letter)
            j = name.index(letter, i + 1)
            kept = e.equal(iota(x.shape, i), iota(x.shape, j))
            x = _sum(e.select(kept, x, constant(0, x.dtype)), [j])
            name = name[:j] + name[j + 1 :]
    return x, name


def _sum(x: Value, axes: Sequence[int]) -> Value:
    if x.dtype is DType.i1:
        raise IRError(
            message("einsum", 'takes numbers, got i1; li.convert(x, "i32") converts', [("operand", x.type)], here())
        )
    return sum(x, axes)


def _summed(x: Value, name: str, remaining: str) -> tuple[Value, str]:
    gone = [i for i, letter in enumerate(name) if letter not in remaining]
    return (_sum(x, gone) if gone else x), "".join(n for n in name if n in remaining)


def _contracted(a: Value, la: str, b: Value, lb: str, later: str) -> tuple[Value, str]:
    """One product of two operands: letters that nobody needs later are summed."""
    a, la = _summed(a, la, later + lb)
    b, lb = _summed(b, lb, later + la)
    both = [x for x in la if x in lb]
    batch, inner = [x for x in both if x in later], [x for x in both if x not in later]
    if not inner and len(both) == min(len(la), len(lb)):
        return (_scaled(a, la, b, lb), la) if len(lb) == len(both) else (_scaled(b, lb, a, la), lb)
    places = [tuple(map(n.index, part)) for part in (inner, batch) for n in (la, lb)]
    y = dot_general(a, b, (places[0], places[1]), (places[2], places[3]))
    return y, "".join([*batch, *(x for x in la if x not in both), *(x for x in lb if x not in both)])


def _scaled(x: Value, name: str, by: Value, letters: str) -> Value:
    """x times numbers that some of its axes have: no sum, so no product of matrices, which compilers make slowly."""
    by = transpose(by, [letters.index(n) for n in name if n in letters])
    return e.multiply(x, expand_dims(by, [i for i, n in enumerate(name) if n not in letters]))


def outer(a: Any, b: Any) -> Value:
    """Every element of a times every element of b, both read as one row: [elements of a, elements of b]."""
    v, w = as_values("outer", a, b)
    return e.multiply(reshape(v, (-1, 1)), reshape(w, (1, -1)))
