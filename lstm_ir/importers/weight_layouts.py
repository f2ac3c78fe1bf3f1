"""How conventions lay out matrices and biases: each layout reads arrays by name, and writes them.

Matrices are read as rows of output units [G*H,n], biases as [G*H], with the gate blocks in the convention's order.
G is the number of gates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lstm_ir.importers.cell_weights import Array, Given
from lstm_ir.ir.errors import IRError

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Biases:
    """Biases [G*H] of the product with x and of that with h, in the convention's order of gates.

    inner [H]: of a GRU, the one inside the product that the reset gate multiplies, where it stands apart.
    outer: the sum of both without `inner`. after: whether a GRU resets after the product, None where nothing says it.
    """

    b_in: Array | None = None
    b_rec: Array | None = None
    inner: Array | None = None
    outer: Array | None = None
    after: bool | None = None
    zeros: Array | None = None  # [G*H], for a convention whose biases are never absent

    @property
    def both(self) -> tuple[Array, Array] | None:
        """Two biases; zeros where only one was given, None where there is none."""
        if self.b_in is None:
            return None
        return self.b_in, np.zeros_like(self.b_in) if self.b_rec is None else self.b_rec


class Matrices(Protocol):
    """The two matrices. `columns` is P, the width of h, where a projection says it."""

    def read(self, g: Given, G: int, columns: int | None) -> tuple[Array, Array]:
        """w_ih [G*H,I] and w_hh [G*H,P]."""
        ...

    def write(self, w_ih: Array, w_hh: Array, G: int) -> Arrays:
        """The arrays by name."""
        ...


class BiasLayout(Protocol):
    """The biases by name."""

    def read(self, g: Given, G: int) -> Biases:
        """What is given."""
        ...

    def write(self, b: Biases, G: int) -> Arrays:
        """The arrays by name."""
        ...


@dataclass(frozen=True)
class GateRows:
    """Two matrices of rows [G*H,n], with `leading` axes of size 1 before."""

    x: str
    h: str
    leading: int = 0

    def read(self, g: Given, G: int, columns: int | None) -> tuple[Array, Array]:
        """As they are, without the leading axes."""
        return plain(g, self.x, 2, self.leading), plain(g, self.h, 2, self.leading)

    def write(self, w_ih: Array, w_hh: Array, G: int) -> Arrays:
        """As they are, with the leading axes."""
        return {self.x: led(w_ih, self.leading), self.h: led(w_hh, self.leading)}


@dataclass(frozen=True)
class GateColumns:
    """Two matrices of columns [n,G*H]."""

    x: str
    h: str

    def read(self, g: Given, G: int, columns: int | None) -> tuple[Array, Array]:
        """Transposed."""
        return g.get(self.x, 2).T, g.get(self.h, 2).T

    def write(self, w_ih: Array, w_hh: Array, G: int) -> Arrays:
        """Transposed."""
        return {self.x: w_ih.T, self.h: w_hh.T}


@dataclass(frozen=True)
class Joined:
    """Matrices [I+P,k*H] of x and h in one; several of them have the gates side by side."""

    names: tuple[str, ...]
    shares: tuple[int, ...]  # gates in each

    def read(self, g: Given, G: int, columns: int | None) -> tuple[Array, Array]:
        """Cut below the rows of x."""
        parts = [g.get(n, 2) for n in self.names]
        heights, widths = [len(p) for p in parts], [p.shape[1] for p in parts]
        H = sum(widths) // G
        P = H if columns is None else columns
        if len(set(heights)) > 1 or widths != [k * H for k in self.shares] or heights[0] < P:
            shown = ", ".join(f"{n} {p.shape}" for n, p in zip(self.names, parts, strict=True))
            raise IRError(f"{g.where}: {shown}: expected I+{P} rows and {', '.join(f'{k}*H' for k in self.shares)}")
        whole = np.concatenate(parts, 1)
        return whole[: len(whole) - P].T, whole[len(whole) - P :].T

    def write(self, w_ih: Array, w_hh: Array, G: int) -> Arrays:
        """Joined, and cut between the matrices."""
        whole = np.concatenate([w_ih, w_hh], 1).T
        return dict(zip(self.names, _shared(whole, self.shares), strict=True))


@dataclass(frozen=True)
class Apart:
    """One matrix [H,n] for each gate of x, then of h: `PREFIX0`, `PREFIX1`, ..."""

    prefix: str

    def read(self, g: Given, G: int, columns: int | None) -> tuple[Array, Array]:
        """One above the other."""
        found = [g.get(f"{self.prefix}{k}", 2) for k in range(2 * G)]
        return _joined(g, found[:G]), _joined(g, found[G:])

    def write(self, w_ih: Array, w_hh: Array, G: int) -> Arrays:
        """Cut between the gates."""
        parts = [p for w in (w_ih, w_hh) for p in np.split(w, G)]
        return {f"{self.prefix}{k}": p for k, p in enumerate(parts)}


@dataclass(frozen=True)
class Ldigo:
    """Two matrices [1,1,n,G,H]: layers, directions, inputs, gates, outputs."""

    x: str
    h: str

    def read(self, g: Given, G: int, columns: int | None) -> tuple[Array, Array]:
        """Rows of output units."""
        return self._rows(g, self.x, G), self._rows(g, self.h, G)

    def _rows(self, g: Given, name: str, G: int) -> Array:
        a = plain(g, name, 3, 2)
        if a.shape[1] != G:
            raise IRError(f"{g.where}: {name} has {a.shape[1]} gates, expected {G}; its axes are l, d, i, g, o")
        return a.reshape(len(a), G * a.shape[2]).T

    def write(self, w_ih: Array, w_hh: Array, G: int) -> Arrays:
        """Five axes again."""
        return {n: led(w.T.reshape(w.shape[1], G, -1), 2) for n, w in ((self.x, w_ih), (self.h, w_hh))}


# -- biases


@dataclass(frozen=True)
class OneBias:
    """One bias [G*H], joined of the parts that `names` have; `needed`: a convention without absent biases."""

    names: tuple[str, ...]
    shares: tuple[int, ...] = (1,)
    needed: bool = False

    def read(self, g: Given, G: int) -> Biases:
        """One bias."""
        if not self.needed and not g.together(list(self.names)):
            return Biases()
        return Biases(np.concatenate([g.get(n, 1) for n in self.names]))

    def write(self, b: Biases, G: int) -> Arrays:
        """The sum of both; IRError for one inside the product."""
        if b.inner is not None and b.inner.any():
            raise IRError("the GRU has a bias inside the product that the reset gate multiplies, the target has none")
        whole = b.zeros if b.outer is None and self.needed else b.outer
        return {} if whole is None else dict(zip(self.names, _shared(whole, self.shares), strict=True))


@dataclass(frozen=True)
class TwoBiases:
    """One bias for each product, both or none."""

    x: str
    h: str

    def read(self, g: Given, G: int) -> Biases:
        """As they are."""
        return Biases(g.get(self.x, 1), g.get(self.h, 1)) if g.together([self.x, self.h]) else Biases()

    def write(self, b: Biases, G: int) -> Arrays:
        """As they are; the second is zeros where there was one."""
        return {} if b.both is None else dict(zip((self.x, self.h), b.both, strict=True))


@dataclass(frozen=True)
class JoinedBiases:
    """[1,2*G*H]: that of x, then that of h."""

    name: str

    def read(self, g: Given, G: int) -> Biases:
        """The halves."""
        if not g.has(self.name):
            return Biases()
        b = plain(g, self.name, 1, 1)
        if len(b) % 2:
            raise IRError(f"{g.where}: {self.name} has {len(b)} numbers, not two biases")
        return Biases(b[: len(b) // 2], b[len(b) // 2 :])

    def write(self, b: Biases, G: int) -> Arrays:
        """One after the other."""
        return {} if b.both is None else {self.name: led(np.concatenate(b.both), 1)}


@dataclass(frozen=True)
class KerasBias:
    """[G*H]; [2,G*H] for a GRU that resets after the product."""

    name: str

    def read(self, g: Given, G: int) -> Biases:
        """One or two, which says where a GRU resets."""
        if not g.has(self.name):
            return Biases()
        b = g.get(self.name)
        if G == 3 and b.ndim == 2 and len(b) == 2:
            return Biases(b[0], b[1], after=True)
        return Biases(g.get(self.name, 1), after=False if G == 3 else None)

    def write(self, b: Biases, G: int) -> Arrays:
        """One or two."""
        if b.both is None or b.outer is None:
            return {}
        return {self.name: np.stack(b.both) if b.after else b.outer}


@dataclass(frozen=True)
class InnerBias:
    """[G*H], and for a GRU that resets after the product a second one [H] inside it."""

    name: str
    inner: str

    def read(self, g: Given, G: int) -> Biases:
        """The inner one says that the GRU resets after the product."""
        b = g.maybe(self.name, 1)
        inner = g.maybe(self.inner, 1) if G == 3 else None
        if inner is None:
            return Biases(b)
        return Biases(np.zeros(3 * len(inner), inner.dtype) if b is None else b, inner=inner, after=True)

    def write(self, b: Biases, G: int) -> Arrays:
        """The sum, and the inner one where it is there."""
        out = {} if b.outer is None else {self.name: b.outer}
        return out if b.inner is None else {**out, self.inner: b.inner}


@dataclass(frozen=True)
class LdgoBias:
    """[1,1,G,H]; [1,1,4,H] for a GRU that resets after the product, whose fourth block stands inside it."""

    name: str

    def read(self, g: Given, G: int) -> Biases:
        """The fourth block says that a GRU resets after the product."""
        if not g.has(self.name):
            return Biases()
        b = plain(g, self.name, 2, 2)
        if len(b) != G and not (G == 3 and len(b) == 4):
            raise IRError(f"{g.where}: {self.name} has {len(b)} gates, expected {G}; its axes are l, d, g, o")
        if len(b) == G:
            return Biases(b.reshape(-1), after=False if G == 3 else None)
        return Biases(b[:3].reshape(-1), inner=b[3], after=True)

    def write(self, b: Biases, G: int) -> Arrays:
        """With the fourth block of such a GRU."""
        if b.outer is None:
            return {}
        rows = b.outer.reshape(G, -1)
        if b.after:
            rows = np.concatenate([rows, np.zeros_like(rows[:1]) if b.inner is None else b.inner[None]])
        return {self.name: led(rows, 2)}


@dataclass(frozen=True)
class ApartBiases:
    """One vector [H] for each gate of x, then of h: `PREFIX0`, ...; never absent."""

    prefix: str

    def read(self, g: Given, G: int) -> Biases:
        """One after the other."""
        found = [g.get(f"{self.prefix}{k}", 1) for k in range(2 * G)]
        return Biases(np.concatenate(found[:G]), np.concatenate(found[G:]))

    def write(self, b: Biases, G: int) -> Arrays:
        """Cut between the gates; zeros where there was none."""
        assert b.zeros is not None
        parts = [p for v in b.both or (b.zeros, b.zeros) for p in np.split(v, G)]
        return {f"{self.prefix}{k}": p for k, p in enumerate(parts)}


def plain(g: Given, name: str, rank: int, leading: int) -> Array:
    """An array without its leading axes, which have size 1."""
    a = g.get(name, rank + leading)
    if a.shape[:leading] != (1,) * leading:
        raise IRError(f"{g.where}: {name} has the shape {a.shape}; one layer and direction at a time: its first "
                      f"{'axis has' if leading == 1 else 'axes have'} size 1")  # fmt: skip
    return a.reshape(a.shape[leading:])


def led(a: Array, leading: int) -> Array:
    """An array with leading axes of size 1."""
    return a.reshape((1,) * leading + a.shape)


def _joined(g: Given, parts: list[Array]) -> Array:
    if len({p.shape for p in parts}) > 1:
        raise IRError(f"{g.where}: matrices of the gates have the shapes {', '.join(str(p.shape) for p in parts)}")
    return np.concatenate(parts)


def _shared(a: Array, shares: tuple[int, ...]) -> list[Array]:
    """Parts of the last axis with so many gates each."""
    each = a.shape[-1] // sum(shares)
    places = np.cumsum(shares)[:-1] * each
    return np.split(a, places, axis=-1)
