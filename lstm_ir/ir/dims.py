"""Dimensions: an int, a name, or a normalised integer expression of names.

An expression is a sum of products of *atoms*; an atom is a name or a floor division `(e)//k`.
Two expressions are equal sizes exactly when their normal forms are equal. Names stand for values >=
0.

    expr = ["-"] term (("+" | "-") term)*     term = factor ("*" factor | "//" int)*, from left to right
    factor = int | name | "(" expr ")"

A term behind a sign at the beginning has no "//": in Python `-T//2` is (-T)//2, in older texts it was -(T//2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lstm_ir.ir.errors import DimError
from lstm_ir.ir.immutable import Immutable

DIVISORS = 2**31  # up to which quotients of quotients become one
LIMIT = 2**62  # no size, and no coefficient, reaches it: products stay inside 64 bits
TERMS = 250  # of a product, which each factor may double
CHARACTERS, TOKENS = 2000, 200  # of a text


class Floor(NamedTuple):
    """The atom `(numerator)//divisor`, divisor >= 2."""

    numerator: Expr
    divisor: int

    def __str__(self) -> str:
        return f"({self.numerator})//{self.divisor}"


Atom: TypeAlias = "str | Floor"
Monomial: TypeAlias = "tuple[Atom, ...]"  # sorted by text; () is the constant term


class Expr(Immutable):
    """A non-constant dimension expression in normal form: sorted (monomial, coefficient) pairs."""

    __slots__ = ("terms", "text")
    terms: tuple[tuple[Monomial, int], ...]
    text: str  # once it was asked for: monomials are sorted by it

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self._set(terms=terms, text="")

    def __str__(self) -> str:
        if not self.text:
            self._set(text=self._written())
        return self.text

    def _written(self) -> str:
        parts: list[str] = []
        for mono, k in sorted(self.terms, key=lambda t: (t[0] == (), tuple(map(str, t[0])))):
            # 4*(T)//4 would be read as (4*T)//4, and -(T)//4 is refused
            alone = len(mono) == 1 and (k == 1 or (k == -1 and bool(parts)))
            body = "*".join(f"({a})" if isinstance(a, Floor) and not alone else str(a) for a in mono)
            size = str(abs(k)) if not body else body if abs(k) == 1 else f"{abs(k)}*{body}"
            sign = "-" if k < 0 else "+" if parts else ""
            parts.append(sign + size)
        return "".join(parts)

    __repr__ = __str__

    def __add__(self, other: Any) -> Dim:
        return NotImplemented if (d := _operand(self, other)) is None else add(self, d)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dim:
        return NotImplemented if (d := _operand(self, other)) is None else add(self, mul(d, -1))

    def __rsub__(self, other: Any) -> Dim:
        return NotImplemented if (d := _operand(self, other)) is None else add(d, mul(self, -1))

    def __mul__(self, other: Any) -> Dim:
        return NotImplemented if (d := _operand(self, other)) is None else mul(self, d)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Dim:
        return NotImplemented if (d := _operand(self, other)) is None else floordiv(self, d)

    def __rfloordiv__(self, other: Any) -> Dim:
        return NotImplemented if (d := _operand(self, other)) is None else floordiv(d, self)

    def __truediv__(self, other: Any) -> Any:
        return _refused(self, other, f"({self})/{other}", f"is no size; ({self})//{other} is one")

    def __rtruediv__(self, other: Any) -> Any:
        return _refused(self, other, f"{other}/({self})", "is no size")

    def __mod__(self, other: Any) -> Any:
        return _refused(self, other, f"({self}) % {other}", f"is no size; {self} - ({self})//{other}*{other} is one")

    def __pow__(self, other: Any) -> Any:
        return _refused(self, other, f"({self})**{other}", "is no size; a product is one")

    def __lt__(self, other: Any) -> Any:
        return _refused(self, other, f"{self} < {other}", _AT_A_CALL)

    def __le__(self, other: Any) -> Any:
        return _refused(self, other, f"{self} <= {other}", _AT_A_CALL)

    def __gt__(self, other: Any) -> Any:
        return _refused(self, other, f"{self} > {other}", _AT_A_CALL)

    def __ge__(self, other: Any) -> Any:
        return _refused(self, other, f"{self} >= {other}", _AT_A_CALL)

    def __neg__(self) -> Dim:
        return mul(self, -1)

    def __pos__(self) -> Dim:
        return self

    if not TYPE_CHECKING:  # a checker refuses int(size) before it runs

        def __index__(self) -> int:
            problem = f"the size {self} {_AT_A_CALL}, so it is no number of Python's, of range or of NumPy's shapes"
            raise DimError(f"{problem}; in a graph li.size({str(self)!r}) is its value, i32[]")

        __int__ = __float__ = __index__


Dim: TypeAlias = "int | Expr"


_AT_A_CALL = "is known at a call alone"


def _operand(d: Expr, other: Any) -> Dim | None:
    """The other operand of an operator as a size; None for what may know sizes itself, such as values of graphs."""
    if isinstance(other, (Expr, Integral)):
        return other if isinstance(other, Expr) else int(other)
    _refused(d, other, f"{other} beside the size {d}", "is not a whole number")
    return None


def _refused(d: Expr, other: Any, what: str, why: str) -> Any:
    """DimError for an operator that gives no size; it says what has numbers that are none."""
    if isinstance(other, (Real, Expr)):
        raise DimError(f"{what} {why}; in a graph li.size({str(d)!r}) is the value of {d}, i32[]")
    return NotImplemented


def _terms(d: Dim) -> dict[Monomial, int]:
    if isinstance(d, Expr):
        return dict(d.terms)
    return {(): d} if d else {}


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = {m: k for m, k in terms.items() if k}
    if any(abs(k) >= LIMIT for k in kept.values()):
        raise DimError(f"a dimension's coefficient is not below 2^62: {max(kept.values(), key=abs)}")
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    return Expr(tuple(sorted(kept.items(), key=lambda t: tuple(map(str, t[0])))))


def name(text: str) -> Expr:
    """The dimension called `text`."""
    if not (text.isascii() and text.isidentifier()):
        raise DimError(f"a dimension name is a letter, then letters, digits and _; got {text!r}")
    return Expr((((text,), 1),))


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    if type(a) is int and type(b) is int and abs(n := a + b) < LIMIT:
        return n
    out = _terms(a)
    for m, k in _terms(b).items():
        out[m] = out.get(m, 0) + k
    return _make(out)


def mul(a: Dim, b: Dim) -> Dim:
    """a * b."""
    if type(a) is int and type(b) is int and abs(n := a * b) < LIMIT:
        return n
    left, right = _terms(a), _terms(b)
    most = max(TERMS, len(left), len(right))
    out: dict[Monomial, int] = {}
    for ma, ka in left.items():
        for mb, kb in right.items():
            m = tuple(sorted(ma + mb, key=str))
            out[m] = out.get(m, 0) + ka * kb
            if len(out) > most:
                raise DimError(f"a product of sizes has more than {most} terms")
    return _make(out)


def total(parts: Iterable[Dim]) -> Dim:
    """The sum of all, 0 for none."""
    out: Dim = 0
    for d in parts:
        out = add(out, d)
    return out


def product(dims: tuple[Dim, ...]) -> Dim:
    """The product of all, 1 for none."""
    out: Dim = 1
    for d in dims:
        out = mul(out, d)
    return out


def floordiv(a: Dim, k: Dim) -> Dim:
    """a // k, exact where every coefficient divides."""
    if isinstance(k, Expr):
        raise DimError(f"({a})//({k}) is no size; only positive integers divide sizes")
    if k <= 0:
        raise DimError(f"a dimension is divided by {k}; only positive integers divide")
    if isinstance(a, int):
        return a // k
    whole = {m: c for m, c in a.terms if c % k == 0}
    rest = {m: c for m, c in a.terms if c % k}
    if () in rest and set(rest) != {()}:  # move the multiple of k out of the constant
        q, r = divmod(rest[()], k)
        whole[()] = whole.get((), 0) + q * k
        rest[()] = r
    out = _make({m: c // k for m, c in whole.items()})
    # (g*q + c) // (g*k) is (q + c//g) // k, and (q + n//m) // k is (m*q + n) // (m*k).
    shared = math.gcd(k, *(c for m, c in rest.items() if m != ()))
    rest, k = {m: c // shared for m, c in rest.items()}, k // shared
    for (atom, *more), c in ((m, c) for m, c in rest.items() if m):
        if c == 1 and not more and isinstance(atom, Floor) and k * atom.divisor < DIVISORS:
            others = _make({m: c for m, c in rest.items() if m != (atom,)})
            return add(out, floordiv(add(mul(others, atom.divisor), atom.numerator), k * atom.divisor))
    left = _make(rest)
    if isinstance(left, int):
        return add(out, left // k)
    return add(out, Expr((((Floor(left, k),), 1),)) if k > 1 else left)


def names(d: Dim) -> set[str]:
    """The names that `d` depends on."""
    found: set[str] = set()
    todo: list[Dim] = [d]
    while todo:
        e = todo.pop()
        if isinstance(e, Expr):
            for mono, _ in e.terms:
                for atom in mono:
                    if isinstance(atom, str):
                        found.add(atom)
                    else:
                        todo.append(atom.numerator)
    return found


def evaluate(d: Dim, env: Mapping[str, int]) -> int:
    """The value of `d` with every name bound."""
    if isinstance(d, int):
        return d
    total = 0
    for mono, k in d.terms:
        value = k
        for atom in mono:
            if isinstance(atom, Floor):
                value *= evaluate(atom.numerator, env) // atom.divisor
            elif atom in env:
                value *= env[atom]
            else:
                raise DimError(f"the dimension {atom} has no value here")
        total += value
    return total


def substitute(d: Dim, env: Mapping[str, Dim]) -> Dim:
    """`d` with names replaced by expressions."""
    if isinstance(d, int):
        return d
    total: Dim = 0
    for mono, k in d.terms:
        value: Dim = k
        for atom in mono:
            if isinstance(atom, Floor):
                value = mul(value, floordiv(substitute(atom.numerator, env), atom.divisor))
            else:
                value = mul(value, env[atom] if atom in env else name(atom))
        total = add(total, value)
    return total


def at_least(d: Dim, low: int) -> bool | None:
    """Whether d >= low for all values (>= 0) of the names; None if that depends on them, or was not found out."""
    if isinstance(d, int):
        return d >= low
    bounds = [_interval(d)]
    # k*(n//k) lies in n-k+1..n: with it 4*((T+3)//4) - T is 0 or more, term by term nothing is known of it.
    below, above = _unfloored(d, 1), _unfloored(d, -1)
    if (below, above) != (d, d):
        bounds.append((_interval(below)[0], _interval(above)[1]))
    if any(least is not None and least >= low for least, _ in bounds):
        return True
    return False if any(most is not None and most < low for _, most in bounds) else None


def _unfloored(d: Dim, sign: int) -> Dim:
    """A bound of d, from below (sign 1) or above (-1), without the floor divisions whose factor is a multiple."""
    if isinstance(d, int):
        return d
    total: Dim = 0
    for mono, k in d.terms:
        atom = mono[0] if len(mono) == 1 else None
        if isinstance(atom, Floor) and k % atom.divisor == 0:
            least = 1 - atom.divisor if k * sign > 0 else 0
            part = mul(add(_unfloored(atom.numerator, sign if k > 0 else -sign), least), k // atom.divisor)
        else:
            part = _make({mono: k})
        total = add(total, part)
    return total


def _interval(d: Dim) -> tuple[int | None, int | None]:
    """The least and the largest value of d, or bounds of them, for all names >= 0; None where there is none."""
    if isinstance(d, int):
        return d, d
    low: int | None = 0
    high: int | None = 0
    for mono, k in d.terms:
        least, most = _monomial(mono)
        if k < 0:
            least, most = most, least
        low = None if low is None or least is None else low + k * least
        high = None if high is None or most is None else high + k * most
    return low, high


def _monomial(mono: Monomial) -> tuple[int | None, int | None]:
    """The same of a product of atoms; nothing where one of several may be negative."""
    least: int | None = 1
    most: int | None = 1
    for atom in mono:
        low, high = (0, None) if isinstance(atom, str) else _interval(atom.numerator)
        if isinstance(atom, Floor):
            low, high = (None if b is None else b // atom.divisor for b in (low, high))
        if len(mono) > 1 and (low is None or low < 0):
            return None, None
        least = None if least is None or low is None else least * low
        most = None if most is None or high is None else most * high
    return least, most


_INSTEAD = {
    "/": "; sizes are divided by //, which rounds down: T//2",
    "%": "; a remainder is T - T//2*2",
    "^": "; a power is a product: T*T",
}
"""What sizes do not hold, and what to write for it."""
_TOKEN = r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_]*)|(//|[-+*()]))"


def parse(text: str) -> Dim:
    """The dimension written as `text`, for example `2*B` or `(T+1)//2`."""
    if len(text) > CHARACTERS:
        raise DimError(f"a dimension expression of more than {CHARACTERS} characters: {text[:60]!r}...")
    if text.isascii() and text.isidentifier():  # most are
        return name(text)
    if text.isascii() and text.isdigit():
        return _number(text)
    tokens: list[str] = []
    pos, token = 0, re.compile(_TOKEN)  # which takes 0.4 ms
    while text[pos:].strip():
        m = token.match(text, pos)
        if m is None:
            strange = text[pos:].strip()
            raise DimError(f"a dimension cannot hold {strange[:8]!r}: {text!r}{_INSTEAD.get(strange[0], '')}")
        tokens.append(m.group().strip())
        pos = m.end()
        if len(tokens) > TOKENS:
            raise DimError(f"a dimension expression of more than {TOKENS} tokens")
    value, rest = _sum(tokens, text)
    if rest:
        raise DimError(f"a dimension ends before {rest[0]!r}: {text!r}")
    return value


def _number(digits: str) -> int:
    if len(digits) > 19 or int(digits) >= LIMIT:
        raise DimError(f"a size is not below 2^62: {digits[:24]}")
    return int(digits)


def _sum(tokens: list[str], text: str) -> tuple[Dim, list[str]]:
    signed = tokens[:1] == ["-"]
    value, rest = _product(tokens[signed:], text)
    if signed:
        words = tokens[1 : len(tokens) - len(rest)]
        at = _quotient(words)
        if at is not None:
            whole, above, below = "".join(words), "".join(words[:at]), "".join(words[at:])
            raise DimError(f"-{whole} in {text!r} may be -({whole}) or (-{above}){below}; write one of them")
        value = mul(value, -1)
    tokens = rest
    while tokens and tokens[0] in "+-":
        term, rest = _product(tokens[1:], text)
        value = add(value, mul(term, 1 if tokens[0] == "+" else -1))
        tokens = rest
    return value, tokens


def _quotient(term: list[str]) -> int | None:
    """Where the first `//` of the term itself stands, outside of parentheses."""
    depth = 0
    for i, token in enumerate(term):
        depth += (token == "(") - (token == ")")
        if token == "//" and not depth:
            return i
    return None


def _product(tokens: list[str], text: str) -> tuple[Dim, list[str]]:
    value, tokens = _factor(tokens, text)
    while tokens and tokens[0] in ("*", "//"):
        if tokens[0] == "*":
            other, rest = _factor(tokens[1:], text)
            value = mul(value, other)
        else:
            other, rest = _factor(tokens[1:], text)
            if not isinstance(other, int):
                raise DimError(f"only an integer divides a dimension: {text!r}")
            value = floordiv(value, other)
        tokens = rest
    return value, tokens


def _factor(tokens: list[str], text: str) -> tuple[Dim, list[str]]:
    if not tokens:
        raise DimError(f"a dimension expression ends too early: {text!r}")
    head, rest = tokens[0], tokens[1:]
    if head == "(":
        value, rest = _sum(rest, text)
        if rest[:1] != [")"]:
            raise DimError(f"a parenthesis is not closed: {text!r}")
        value, rest = value, rest[1:]
    elif head.isdigit():
        value = _number(head)
    elif head.isidentifier():
        value = name(head)
    else:
        raise DimError(f"a dimension expression has {head!r} where a size should be: {text!r}")
    return value, rest
