"""Ops whose result has the elements of their operands, at other places or as another type."""

from __future__ import annotations

MOVES = ("slice", "concatenate", "broadcast_in_dim", "reshape", "transpose", "reverse", "convert")
