"""The lists of the benchmark: points (layers, streams, convolutions) and whole models."""

from __future__ import annotations

from lstm_ir.bench.convolutions import named_sizes
from lstm_ir.bench.points import POINTS as LAYERS
from lstm_ir.bench.points import SHORT as SHORT_LAYERS
from lstm_ir.bench.streams import Stream
from lstm_ir.bench.subject import Subject
from lstm_ir.bench.whole.attention import Attention
from lstm_ir.bench.whole.char_lm import CharLm
from lstm_ir.bench.whole.speech import Speech
from lstm_ir.bench.whole.tagger import Tagger

STREAMS = (Stream(1, 64, 64), Stream(1, 256, 256), Stream(1, 256, 256, layers=2), Stream(16, 256, 256))
POINTS: tuple[Subject, ...] = (*LAYERS, *STREAMS, *named_sizes())
SHORT = SHORT_LAYERS | {
    "stream-b1-h256", "conv-n8-c80-l400-o128-k5-s2", "conv-n8-c80-l400-o128-k5-s2-dx", "conv-n8-c80-l400-o128-k5-s2-dw",
}  # fmt: skip
MODELS: tuple[Subject, ...] = (
    Tagger(40, 16), Tagger(40, 16, layers=4), Attention(30, 16), Attention(30, 16, training=True), Speech(400, 8),
    Speech(400, 8, training=True), Stream(1, 80, 256, layers=2, framed=True), CharLm(64, 16, training=True),
)  # fmt: skip


def named(words: tuple[str, ...] = (), of: tuple[Subject, ...] = POINTS) -> tuple[Subject, ...]:
    """The subjects whose name is, or else contains, one of the words; all of them for none."""
    names = {p.name for p in of}
    return tuple(p for p in of if not words or any(w == p.name or (w not in names and w in p.name) for w in words))


def short() -> tuple[Subject, ...]:
    """The default: a few minutes."""
    return tuple(p for p in POINTS if p.name in SHORT)
