"""The weights of one recurrent layer in one direction, in the one form that every convention is read into.

Rows are output units, gates stand as in the core ops: i, f, g, o of an LSTM, r, z, n of a GRU, one of a plain RNN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.foreign_arrays import as_numpy

Array = np.ndarray[Any, Any]
GATES = {"lstm": "ifgo", "gru": "rzn", "rnn": "h"}
"""Gates of each cell, in the order of the core ops."""
FLOATS = ("float16", "bfloat16", "float32", "float64")  # by name: bfloat16 is of another library


@dataclass(frozen=True)
class CellWeights:
    """w_ih [G*H,I], w_hh [G*H,P], biases [G*H] of the two products, w_hr [P,H], peephole [3H] (i, f, o).

    One bias stands in `b_in`, with `b_rec` absent. `reset_after`: of a GRU, whether the reset gate multiplies
    the product with h, and so b_rec's block n too, or h itself.
    """

    cell: str
    w_ih: Array
    w_hh: Array
    b_in: Array | None = None
    b_rec: Array | None = None
    w_hr: Array | None = None
    peephole: Array | None = None
    reset_after: bool | None = None

    @property
    def hidden(self) -> int:
        """H, the width of the gates."""
        return len(self.w_hh) // len(GATES[self.cell])

    @property
    def inner(self) -> Array | None:
        """The bias [H] inside the product that the reset gate multiplies; None where nothing stands there."""
        if not self.reset_after or self.b_rec is None:
            return None
        return self.b_rec[2 * self.hidden :]

    @property
    def outer(self) -> Array | None:
        """The sum of both biases [G*H], without `inner`; None where the layer has no bias."""
        if self.b_in is None or self.b_rec is None:
            return self.b_in
        whole: Array = self.b_in + self.b_rec
        if self.inner is not None:
            whole[2 * self.hidden :] = self.b_in[2 * self.hidden :]
        return whole

    def with_forget(self, amount: float) -> CellWeights:
        """The same with a number added to the bias of f; a bias of zeros is made for it."""
        if not amount:
            return self
        bias = np.zeros(len(self.w_hh), self.w_hh.dtype) if self.b_in is None else self.b_in.copy()
        bias[self.hidden : 2 * self.hidden] += bias.dtype.type(amount)
        return replace(self, b_in=bias)

    def checked(self, where: str) -> CellWeights:
        """The same weights; IRError for a shape that does not fit the others."""
        G, H = len(GATES[self.cell]), self.hidden
        if not H or len(self.w_hh) != G * H:
            raise IRError(f"{where}: {len(self.w_hh)} rows are not {G} gates of one size")
        P = self.w_hh.shape[1]
        if self.w_hr is None and P != H:
            raise IRError(f"{where}: the recurrent matrix has {P} columns for {H} units, and there is no projection")
        wanted = {
            "the input matrix": (self.w_ih, (G * H, self.w_ih.shape[1])), "the bias": (self.b_in, (G * H,)),
            "the recurrent bias": (self.b_rec, (G * H,)), "the projection": (self.w_hr, (P, H)),
            "the peephole": (self.peephole, (3 * H,)),
        }  # fmt: skip
        for what, (array, shape) in wanted.items():
            if array is not None and array.shape != shape:
                raise IRError(f"{where}: {what} has the shape {array.shape}, expected {shape} (rows are output units)")
        return self


def blocks(a: Array, have: str, want: str) -> Array:
    """Equal blocks of the first axis that stand as `have`, in the order `want`."""
    if have == want:
        return a
    parts = dict(zip(have, np.split(a, len(have)), strict=True))
    return np.concatenate([parts[k] for k in want])


class Given:
    """Named arrays of a caller; what no form asks for is refused afterwards."""

    def __init__(self, arrays: Mapping[str, Any], where: str) -> None:
        if not isinstance(arrays, Mapping):
            raise IRError(f"{where}: expected arrays by name, got {type(arrays).__name__}")
        self.where, self._arrays = where, {str(k): _array(v, f"{where}: {k}") for k, v in arrays.items()}
        self._read: set[str] = set()
        kinds = {a.dtype for a in self._arrays.values()}
        if len(kinds) > 1:
            raise IRError(f"{where}: arrays of {' and '.join(sorted(map(str, kinds)))}; all have one dtype")

    def has(self, name: str) -> bool:
        """Whether the array is given."""
        return name in self._arrays

    def get(self, name: str, rank: int | None = None) -> Array:
        """An array; IRError where it is absent or has another number of axes."""
        self._read.add(name)
        if name not in self._arrays:
            raise IRError(f"{self.where}: {name} is missing; there are {', '.join(self._arrays) or 'none'}")
        found = self._arrays[name]
        if rank is not None and found.ndim != rank:
            raise IRError(f"{self.where}: {name} has the shape {found.shape}, expected {rank} axes")
        return found

    def maybe(self, name: str, rank: int | None = None) -> Array | None:
        """An array; None where it is absent."""
        return self.get(name, rank) if self.has(name) else None

    def together(self, names: list[str]) -> bool:
        """Whether these arrays are given, all or none; IRError for some of them."""
        there = [n for n in names if self.has(n)]
        if there and len(there) < len(names):
            raise IRError(f"{self.where}: {', '.join(n for n in names if n not in there)} missing beside {there[0]}")
        return bool(there)

    def check_all_read(self, reasons: Mapping[str, str]) -> None:
        """Refuse arrays that the form does not have; `reasons` says more of some names."""
        for name in self._arrays:
            if name not in self._read:
                raise IRError(f"{self.where}: {name} {reasons.get(name, 'is no array of this cell there')}")


def _array(value: Any, what: str) -> Array:
    near = value.cpu() if hasattr(value, "cpu") else value
    found = np.asarray(as_numpy(near, lambda got: IRError(f"{what} is {got}")))
    if found.dtype.name not in FLOATS:
        raise IRError(f"{what} has {found.dtype} elements, not floats")
    return found
