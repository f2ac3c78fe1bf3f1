"""Squares of vectors turned in registers: rows become columns."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text


def turned(t: Text, element: str, rows: Sequence[TextOperand]) -> Sequence[TextOperand]:
    """Columns of a square: its halves are shuffled together as often as they can be halved."""
    n = len(rows)
    kind = t.vector(element)
    ways = [[lane // 2 + part + n * (lane % 2) for lane in range(n)] for part in (0, n // 2)]
    for _ in range(n.bit_length() - 1):
        rows = [
            t.op(f"vector.shuffle {{}} {way} : {{}}", [rows[pair], rows[pair + n // 2]], [kind] * 2)
            for pair in range(n // 2)
            for way in ways
        ]
    return rows
