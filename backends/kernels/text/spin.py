"""How a thread waits for another one's word in memory."""

from __future__ import annotations

from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text

PAUSES = 64  # at most, between two looks; one more after so many looks; figure not kept


def spin_pause(t: Text, relax: str, turn: TextOperand) -> None:
    """Pauses between two looks, more of them with every PAUSES turns."""
    if relax:
        most = t.index(PAUSES)
        n = t.binary("minui", t.add(t.binary("divui", turn, most), 1), most)
        with t.loop(t.index(0), n, t.index(1)):
            t.line('llvm.inline_asm has_side_effects "{}", "" : () -> ()', relax)
