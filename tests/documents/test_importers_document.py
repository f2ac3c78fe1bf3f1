"""What the pages of the importers list is what their tables have."""

from __future__ import annotations

import importers_document
import pytest
from device import need
from paths import DOCS


@pytest.mark.parametrize("page", importers_document.PAGES)
def test_the_list_is_up_to_date(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    command = "python tests/machine/child.py tests/documents/importers_document.py"
    assert text == importers_document.renewed(text), f"docs/{page}.md is not up to date: {command}"


@pytest.mark.slow
def test_the_example_of_pytorch_runs() -> None:
    need("torch")
    blocks = (DOCS / "torch.md").read_text(encoding="utf-8").split("```python\n")[1:]
    assert len(blocks) == 2
    exec(compile("\n".join(b.partition("```")[0] for b in blocks), "torch.md", "exec"), {})
