"""Altered `.lir` texts, parsed: a ParseError, or a graph that verifies, prints, and reads again as the same text."""

from __future__ import annotations

import json
import re
from functools import cache

import campaign
import numpy as np
import zoo
from bad_texts import TEXTS
from mutation import altered, kind_of, reworded
from paths import GOLDEN, ROOT

import lstm_ir as li
from lstm_ir.ir.opdef import OPS

Rng = np.random.Generator
TOKEN = re.compile(
    r'[a-z]+[0-9]+\[[^\]\n]*\]|"(?:[^"\\\n]|\\.)*"|%?[A-Za-z_][A-Za-z0-9_.]*|-?[0-9][0-9.e+-]*|\s+|.', re.S
)
ATOM = re.compile(r"\b(?:[A-Za-z_]\w*|[0-9]+)\b")
NUMBERS = ("0", "1", "2", "3", "4", "5", "8", "16", "N", "T", "2*T", "T+1", "4294967296", "9223372036854775807")
LONGEST = 3000  # characters of a text to begin with: short ones are read faster
ODD = (
    "_", "[]", "[", "]", "{", "}", "(", ")", "none", "true", "false", "nan", "inf", "-inf", "-1", "0",
    "1e400", "1e-400", "0x1", "99999999999999999999", "-9223372036854775808", "9223372036854775807",
    "2*T", "T-1", "T/2", "(T)", "T*T*T",
    '""', '"\\"', '"a\\nb"', "%0", "%x", '%"a b"', "f32[]", "f32[T]", "f32[0]", "f64[2,3]", "bf16[T,2]",
    "i1[]", "i64[3]",
    "f32[-1]", "f32[2*T+1]", "f8[2]", "<-", "->", "@", "=", ":", ",", "//", "\0", "é", "\ud800",
    "sha256(0)", "with", "entry",
)  # fmt: skip


@cache
def seeds() -> tuple[str, ...]:
    """Sound texts of every op, of larger graphs and of programs, and some that are refused."""
    with np.load(ROOT / "lstm_ir" / "data" / "vectors.npz") as recorded:  # of foreign ops
        out = [case["text"] for case in json.loads(recorded["meta"].item())]
    out += [str(zoo.get(name).graph) for name in zoo.ZOO]
    out += [p.read_text(encoding="utf-8") for p in sorted(GOLDEN.rglob("*.lir"))]
    x = li.input("x", ("T", 3))
    loss = li.Graph("g", [x], {"loss": li.sum(li.tanh(x @ li.weight("w", np.ones((3, 2), "f4"))))})
    out.append(str(li.train_step(loss, "loss", li.adam(0.1))))
    return tuple(t for t in out if len(t) < LONGEST) + tuple(t for t in TEXTS.values() if len(t) < LONGEST)


@cache
def tokens(text: str) -> tuple[str, ...]:
    return tuple(TOKEN.findall(text))


@cache
def vocabulary() -> dict[str, list[str]]:
    """Words by their kind."""
    words = {w for t in seeds() for w in tokens(t) if not w.isspace()}
    out: dict[str, list[str]] = {}
    for w in (*ODD, *sorted(words), *OPS):
        out.setdefault(kind_of(w) if w else "", []).append(w)
    return out


def made(rng: Rng) -> str:
    texts = seeds()
    text = texts[int(rng.integers(len(texts)))]
    if rng.random() < 0.1:
        return altered(rng, text.encode(), [t.encode() for t in texts[:20]]).decode("utf-8", "replace")
    if rng.random() < 0.5:
        return renamed(rng, text)
    return "".join(reworded(rng, tokens(text), vocabulary()))


def renamed(rng: Rng, text: str) -> str:
    """One or two words or numbers replaced wherever they stand: what remains is often sound."""
    for _ in range(int(rng.integers(1, 3))):
        atoms = ATOM.findall(text)
        if not atoms:
            return text
        old, new = (atoms[int(n)] for n in rng.integers(len(atoms), size=2))
        new = NUMBERS[int(rng.integers(len(NUMBERS)))] if old.isdigit() and rng.random() < 0.7 else new
        text = re.sub(rf"\b{old}\b", new, text)
    return text


def trial(rng: Rng, number: int) -> str:
    try:
        found = li.parse(made(rng))
    except li.ParseError as e:
        assert e.line >= 0
        return "refused"
    outcome = "read"
    try:
        li.Program.of(found).verify()
    except li.VerifyError as e:
        assert "is in no input's shape" in str(e)
        outcome = "read, with a size that no input has"
    text = str(found)
    again = li.parse(text)
    assert str(again) == text, text
    return outcome


if __name__ == "__main__":
    campaign.main(trial, seconds=10, memory=4 << 30, prepare=vocabulary)
