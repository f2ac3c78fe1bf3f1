"""What the NumPy meanings of MPSGraph's ops share: a direction's part of a call, both joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.ops.mps.activations import ACTIVATIONS
from lstm_ir.ops.mps.contract import plain_mask
from lstm_ir.ops.primitive.numpy_math import wide

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Any]


def named(names: Sequence[str], arrays: Sequence[Array | None]) -> dict[str, Any]:
    """Operands by name, half and bfloat16 as float32."""
    return {n: wide(v) for n, v in zip(names, arrays, strict=True)}


class Direction:
    """One direction: its blocks of the operands, and its steps in the order of processing."""

    def __init__(self, v: Arrays, a: Mapping[str, Any], gates: int, d: int) -> None:
        self.v, self.d, self.D = v, d, 2 if a["bidirectional"] else 1
        x, R, W = v["source"], v["recurrentWeight"], v["inputWeight"]
        self.T, self.N, self.H = x.shape[0], x.shape[1], R.shape[-1]
        self.kind = x.dtype
        back = d == 1 if a["bidirectional"] else a["reverse"]
        self.times = range(self.T)[::-1] if back else range(self.T)
        self.R = R[d] if self.D == 2 else R
        self.W = None if W is None else self.block(W, 0)
        self.x = x if W is not None else self.block(x, 2)
        self.gates = gates

    @classmethod
    def all(cls, v: Arrays, a: Mapping[str, Any], gates: int) -> list[Direction]:
        """Forward and, if the descriptor has it, backward."""
        return [cls(v, a, gates, d) for d in range(2 if a["bidirectional"] else 1)]

    def block(self, array: Array, axis: int) -> Array:
        """This direction's part of an axis."""
        return np.split(array, self.D, axis)[self.d]

    def rows(self, name: str) -> Array:
        """This direction's part of an operand [T,N,D*w]."""
        return self.block(self.v[name], 2)

    def state(self, name: str) -> Array:
        """A state or its gradient, [N,H]; zeros for nil."""
        given = self.v[name]
        if given is None:
            return np.zeros((self.N, self.H), self.kind)
        return self.block(given.reshape(self.N, self.D * self.H), 1)

    def vector(self, name: str) -> Array | None:
        """This direction's part of a bias or peephole; None for nil."""
        given = self.v[name]
        return None if given is None else self.block(given.reshape(-1), 0)

    def given(self) -> Array:
        """x W^T + b for all steps, [T,N,gates*H]."""
        out = self.x if self.W is None else self.x @ self.W.T
        bias = self.vector("bias")
        return out if bias is None else out + bias

    def masked(self, h: Array) -> Array:
        """h (or a gradient) times the mask."""
        m = self.v["mask"]
        if m is None:
            return h
        full = np.broadcast_to(m.reshape(plain_mask(m.shape)), (self.N, self.D * self.H))
        return h * self.block(full, 1)

    def empty(self, gates: int = 1) -> Array:
        """Rows to be filled, [T,N,gates*H]."""
        return np.zeros((self.T, self.N, gates * self.H), self.kind)

    def backwards(self) -> Iterator[tuple[int, int | None]]:
        """(time, time of the step before or None) from the last processed step to the first."""
        for s in reversed(range(self.T)):
            yield self.times[s], self.times[s - 1] if s else None

    def common(self, da: Array, dR: Array, first: Array) -> dict[str, Array]:
        """Gradients that all three ops form alike from da [T,N,gates*H]."""
        flat = da.reshape(-1, da.shape[2])
        out = {"recurrentWeight": dR, "bias": flat.sum(0), "initState": first}
        if self.W is None:
            return out | {"source": da}
        columns = self.x.reshape(-1, self.x.shape[2])
        return out | {"source": da @ self.W, "inputWeight": flat.T @ columns}


def gates_of(array: Array, order: Sequence[str]) -> dict[str, Array]:
    """The gate blocks of the last axis, by name."""
    return dict(zip(order, np.split(array, len(order), axis=-1), strict=True))


def in_order(blocks: Mapping[str, Array], order: Sequence[str]) -> Array:
    """Gate blocks side by side."""
    return np.concatenate([blocks[n] for n in order], axis=-1)


def act(name: str, x: Array) -> Array:
    """An activation."""
    return np.asarray(ACTIVATIONS[name].numpy(x), x.dtype)


def slope(name: str, y: Array) -> Array:
    """An activation's derivative, from its output."""
    return np.asarray(ACTIVATIONS[name].slope(y), y.dtype)


def side_by_side(parts: Sequence[Mapping[str, Array]], present: Sequence[str]) -> list[Array]:
    """Results of the directions joined on the channel axis."""
    return [np.concatenate([p[n] for p in parts], axis=2) for n in present]


def gradients(parts: Sequence[Mapping[str, Array]], v: Arrays, order: str) -> list[Array]:
    """Gradients of the operands that are not nil, the directions' parts joined as the operands are.

    A source that both directions read through inputWeight gets the sum, forward first.
    """
    out = []
    for name in order.split():
        operand = v[name]
        if operand is None:
            continue
        found = [p[name] for p in parts]
        if name == "source" and v["inputWeight"] is not None:
            joined = found[0] if len(found) == 1 else found[0] + found[1]
        else:
            axis = {"source": 2, "initState": 1, "initCell": 1}.get(name, 0)
            joined = np.concatenate(found, axis=axis)
        out.append(joined.reshape(operand.shape))
    return out
