"""The table of conventions in docs/weights.md, from the project's own.

`python tests/machine/child.py tests/documents/weights_document.py` writes it anew.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from paths import DOCS

import lstm_ir as li
from lstm_ir.importers.conventions import CONVENTIONS

Array = np.ndarray[Any, Any]
PAGE = DOCS / "weights.md"
MARK = re.compile(r"<!-- conventions -->\n(?:\|.*\n|\n)*")
I, H, P = 11, 13, 7
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
PLAIN = {1: "1", 2: "2", 3: "3", 4: "4", I: "I", H: "H", P: "P", I + H: "I+H", I + P: "I+P"}
LETTERS = PLAIN | {k * H: f"{k}H" for k in range(2, 9)}


def shape(a: Array) -> str:
    return f"[{','.join(LETTERS.get(n, 'all') for n in a.shape)}]"


def arrays(name: str, cell: str) -> str:
    """Names and shapes, those of each variant once."""
    form, G = CONVENTIONS[name].forms[cell], GATES[cell]
    variants = [{"reset_after": r} for r in ((True, False) if form.resets is None else (form.resets,))]
    found: dict[str, list[str]] = {}
    for told in variants if cell == "gru" else [{}]:
        for extra in ("", "w_hr", "peephole"):
            if extra and (cell != "lstm" or not (form.projection if extra == "w_hr" else form.peephole)):
                continue
            ours: dict[str, Array] = {
                "w_ih": np.zeros((G * H, I), "f"),
                "w_hh": np.zeros((G * H, P if extra == "w_hr" else H), "f"),
            }
            ours |= {"b": np.zeros(G * H, "f")}
            ours |= {"b_hn": np.zeros(H, "f")} if told.get("reset_after") else {}
            ours |= {"w_hr": np.zeros((P, H), "f")} if extra == "w_hr" else {}
            ours |= {"peephole": np.zeros(3 * H, "f")} if extra == "peephole" else {}
            made = li.convert_weights(ours, source="lstm_ir", target=name, cell=cell, **told)
            for n, a in made.items():
                new = n not in found
                if new or (not extra and shape(a) not in found[n]):
                    found.setdefault(n, []).append(shape(a))
    return ", ".join(f"`{n}` {' or '.join(s)}" for n, s in found.items())


def rows() -> str:
    out = "| convention | cell | gates | arrays |\n|---|---|---|---|\n"
    for name, c in CONVENTIONS.items():
        for cell, form in c.forms.items():
            more = {True: ", resets after", False: ", resets before", None: ""}[form.resets] if cell == "gru" else ""
            gates = ", ".join(form.gates) + more + (", adds a number to f" if form.adds_forget else "")
            out += f"| `{name}` | {cell} | {gates} | {arrays(name, cell)} |\n"
    out += "\n| convention | of | rests on |\n|---|---|---|\n"
    return out + "".join(f"| `{n}` | {c.title} | {c.source} |\n" for n, c in CONVENTIONS.items()) + "\n"


def renewed(page: str) -> str:
    return MARK.sub(lambda _: f"<!-- conventions -->\n{rows()}", page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
