"""docs/builders.md: all builders by purpose, each with its line, an example, and what the example gives.

`python tests/machine/child.py tests/documents/builders_document.py` writes it anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from api_document import first_paragraph
from builder_examples import EXAMPLES, GIVEN
from paths import DOCS

import lstm_ir as li
from lstm_ir.ir.graph import topological
from lstm_ir.ops.primitive.tree import flatten

PAGE = DOCS / "builders.md"
HEAD = f"""\
# All builders, by purpose

Each with its first line, an example, and what the example gives: numbers where there are few, else dtype and shape.
Signatures stand in [the list of public names](api.md). The page comes from the code
(`python tests/machine/child.py tests/documents/builders_document.py` writes it anew), and a test runs every example.
The examples read these values:

```python
{GIVEN}```

`li.op` makes any op by its name, and the operators of Python (`+ - * / // % ** @`, comparisons, `x[...]`) are builders
too. `x % y` is `mod`, whose sign is that of y, as Python's and NumPy's; `remainder` is C's, whose sign is that of x.
"""
FEW = 6


def namespace() -> dict[str, Any]:
    """The values at the top of the page."""
    found: dict[str, Any] = {}
    exec(GIVEN, found)
    return found


def results(name: str, code: str) -> list[tuple[li.Value, Any]]:
    """What an example gives: values, and their numbers; None where it has an input."""
    values = flatten(eval(code, namespace()))
    if any(n.op.name == "parameter" for n in topological(v.node for v in values)):
        return [(v, None) for v in values]
    out = li.interpret(li.Graph("example", [], {f"y{k}": v for k, v in enumerate(values)}))
    return [(v, out[f"y{k}"]) for k, v in enumerate(values)]


def shown(value: li.Value, array: Any) -> str:
    """Numbers where there are few, else the type."""
    if array is None or array.size > FEW:
        return str(value.type)
    return _text(np.asarray(array).tolist())


def _text(number: Any) -> str:
    if isinstance(number, list):
        return f"[{', '.join(map(_text, number))}]"
    if isinstance(number, float):
        return f"{number + 0.0:.4g}" if number != 0 else "0"
    return str(number).lower() if isinstance(number, bool) else str(number)


def row(name: str, code: str) -> str:
    line = first_paragraph(getattr(li, name)).replace("|", r"\|")
    given = ", ".join(shown(*r) for r in results(name, code))
    return f"| `{name}` | {line} | `{code}` | `{given}` |\n"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, examples in EXAMPLES.items():
        rows = "".join(row(name, code) for name, code in examples.items())
        parts.append(f"\n## {title}\n\n| builder | gives | example | which gives |\n|---|---|---|---|\n{rows}")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
