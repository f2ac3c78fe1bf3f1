"""Matrix products, and sums of products written as letters."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call, RefusedError
from lstm_ir.importers.onnx.table import taken
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value


@taken("MatMul", 1, 9, 13)
def matmul(c: Call) -> Value:
    """NumPy's matmul."""
    a, b = c.value(0), c.value(1)
    return agreed_matmul(c, a, b)


def agreed_matmul(c: Call, a: Value, b: Value) -> Value:
    """a @ b, whose inner sizes are one."""
    if not (a.rank and b.rank):
        raise RefusedError("an operand is a scalar")
    c.agree("columns of the first and rows of the second", a.shape[-1], b.shape[max(0, b.rank - 2)])
    return li.matmul(a, b)


@taken("Gemm", 7, 9, 11, 13)
def gemm(c: Call) -> Value:
    """alpha A B + beta C, with A and B transposed as the attributes say."""
    a, b = (li.transpose(v) if c.flag(f) else v for v, f in ((c.value(0), "transA"), (c.value(1), "transB")))
    alpha, beta = c.real("alpha", 1.0), c.real("beta", 1.0)
    if a.rank != 2 or b.rank != 2:
        raise RefusedError(f"takes two matrices, got {a.type} and {b.type}")
    y = _times(agreed_matmul(c, a, b), alpha)
    added = c.maybe(2)
    if added is None:
        return y
    return y + li.broadcast_to(_times(added, beta), y.shape)


def _times(x: Value, factor: float) -> Value:
    if factor == 1.0:
        return x
    if not x.dtype.is_float:
        raise RefusedError(f"a product of {x.dtype} with {factor} is not taken")
    return x * factor


@taken("Einsum", 12, 28, refused="a letter that one operand has twice")
def einsum(c: Call) -> Value:
    """Products summed over the letters that the result does not have."""
    equation = c.word("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms, xs = left.split(","), c.values()
    if len(terms) != len(xs):
        raise RefusedError(f"{equation!r} has {len(terms)} operands, the node {len(xs)}")
    lettered = [_letters(t, x.rank) for t, x in zip(terms, xs, strict=True)]
    dots = max((n for _, n in lettered), default=0)
    names = [_aligned(t, n, dots) for t, n in lettered]
    if arrow:
        out = _aligned(*_letters(right, None, dots), dots)
    else:
        flat = "".join(names)
        once = sorted(x for x in set(flat) if flat.count(x) == 1 and x not in _DOTS)
        out = _DOTS[:dots] + "".join(once)
    if set(out) - set("".join(names)) or len(set(out)) != len(out):
        raise RefusedError(f"the result of {equation!r} has a letter twice, or one of no operand")
    sizes: dict[str, Dim] = {}
    for name, x in zip(names, xs, strict=True):
        if len(set(name)) != len(name):
            raise RefusedError(f"{equation!r}: an operand has a letter twice")
        for letter, size in zip(name, x.shape, strict=True):
            c.agree(f"the sizes of one letter of {equation!r}", sizes.setdefault(letter, size), size)
    pairs = list(zip(xs, names, strict=True))
    while len(pairs) > 1:
        (a, la), (b, lb), *rest = pairs
        pairs = [_contracted(a, la, b, lb, out + "".join(n for _, n in rest)), *rest]
    x, name = pairs[0]
    x, name = _summed(x, name, out)
    return li.transpose(x, [name.index(letter) for letter in out])


_DOTS = "0123456789"  # stand for the axes of an ellipsis


def _letters(term: str, rank: int | None, dots: int = 0) -> tuple[str, int]:
    """A term, and the number of axes that its ellipsis stands for."""
    bare = term.replace("...", "", 1)
    if not all(x.isascii() and x.isalpha() for x in bare):
        raise RefusedError(f"a term of the equation is {term!r}")
    count = dots if rank is None else rank - len(bare)
    if "..." not in term:
        count = 0
        if rank is not None and rank != len(bare):
            raise RefusedError(f"the term {term!r} is for {len(bare)} axes, the operand has {rank}")
    if not 0 <= count <= len(_DOTS):
        raise RefusedError(f"the term {term!r} does not fit an operand of {rank} axes")
    return term, count


def _aligned(term: str, count: int, dots: int) -> str:
    return term.replace("...", _DOTS[dots - count : dots])


def _summed(x: Value, name: str, kept: str) -> tuple[Value, str]:
    gone = [i for i, letter in enumerate(name) if letter not in kept]
    return (li.sum(x, gone) if gone else x), "".join(n for n in name if n in kept)


def _contracted(a: Value, la: str, b: Value, lb: str, later: str) -> tuple[Value, str]:
    """One product of two operands: letters that nobody needs later are summed."""
    a, la = _summed(a, la, later + lb)
    b, lb = _summed(b, lb, later + la)
    both = [x for x in la if x in lb]
    batch, inner = [x for x in both if x in later], [x for x in both if x not in later]
    places = [(tuple(map(n.index, part))) for part in (inner, batch) for n in (la, lb)]
    y = li.dot_general(a, b, (places[0], places[1]), (places[2], places[3]))
    return y, "".join([*batch, *(x for x in la if x not in both), *(x for x in lb if x not in both)])
