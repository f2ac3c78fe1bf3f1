"""What docs/weights.md shows is so: the table is that of the code, and the example runs."""

from __future__ import annotations

import numpy as np
import weights_document
from device import need


def test_the_table_is_up_to_date() -> None:
    page = weights_document.PAGE.read_text(encoding="utf-8")
    command = "python tests/machine/child.py tests/documents/weights_document.py"
    assert page == weights_document.renewed(page), f"docs/weights.md is not up to date: {command}"


def test_the_example_runs() -> None:
    need("torch")
    page = weights_document.PAGE.read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(compile(code, "weights.md", "exec"), names)
    made = names["made"]
    assert isinstance(made, dict)
    assert {n: a.shape for n, a in made.items()} == {"kernel": (3, 20), "recurrent_kernel": (5, 20), "bias": (20,)}
    layer = names["layer"]
    np.testing.assert_array_equal(made["kernel"].T, layer.weight_ih_l0.detach().numpy())  # type: ignore[attr-defined]
