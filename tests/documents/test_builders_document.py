"""docs/builders.md has every builder once, and every example on it runs and gives what stands there."""

from __future__ import annotations

import re
from collections import Counter

import builders_document as document
import numpy as np
import pytest
from builder_examples import EXAMPLES

import lstm_ir as li
from lstm_ir import ops

CODES = [(name, code) for examples in EXAMPLES.values() for name, code in examples.items()]


def test_every_builder_stands_once() -> None:
    assert Counter(name for name, _ in CODES) == Counter(ops.__all__)


@pytest.mark.parametrize(("name", "code"), CODES, ids=[n for n, _ in CODES])
def test_an_example_runs_the_builder(name: str, code: str) -> None:
    assert re.search(rf"\bli\.{name}\(", code)
    found = document.results(name, code)
    assert found
    for value, array in found:
        if array is not None:
            assert li.DType.of(np.asarray(array).dtype) is value.dtype


def test_the_page_is_that_of_the_code(request: pytest.FixtureRequest) -> None:
    made = document.page()
    if request.config.getoption("--update-golden"):
        document.PAGE.write_text(made, encoding="utf-8")
        return
    assert document.PAGE.read_text(encoding="utf-8") == made, (
        "docs/builders.md is not up to date: python tests/machine/child.py tests/documents/builders_document.py"
    )
