"""docs/security.md names for each promise tests and campaigns that exist, and every verb that takes a key.

docs/packages.md has what the format has.
"""

from __future__ import annotations

import re

import click
import pytest
from paths import DOCS, ROOT

import lstm_ir as li
from lstm_ir.backends.files import archive, manifest
from lstm_ir.cli import group
from lstm_ir.options import RECORDED

SECURITY = (DOCS / "security.md").read_text(encoding="utf-8")
PACKAGES = (DOCS / "packages.md").read_text(encoding="utf-8")


def rows_of(title: str, heads: str) -> list[list[str]]:
    """The cells of a section's table, without its heads."""
    lines = SECURITY.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(heads)]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


PROMISES, SERVERS = rows_of("Promises", "| who "), rows_of("Servers", "| promise ")


def test_there_are_promises() -> None:
    assert len(PROMISES) > 12
    assert all(len(row) == 3 for row in PROMISES)


@pytest.mark.parametrize("row", PROMISES, ids=lambda r: r[1][:40])
def test_each_names_what_holds_it(row: list[str]) -> None:
    named = re.findall(r"`(tests/[^`]+\.py)`", row[2])
    assert named
    for file in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert "def test_" in text or "def trial(" in text


def test_the_servers_promises_are_held_by_tests() -> None:
    """`The same` is the first file of the row above; a file that stands alone means all of its tests."""
    assert len(SERVERS) > 15
    assert all(len(row) == 2 for row in SERVERS)
    first, named = "", 0
    for promise, cell in SERVERS:
        for i, part in enumerate(cell.split("; ")):
            where = re.search(r"`(tests/[^`]+\.py)`", part)
            assert where or (i == 0 and part.startswith("the same")), f"{promise}: {part}"
            file = where[1] if where else first
            first = file if i == 0 else first
            tests = re.findall(r"^(?:    )?def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.M)
            found = re.findall(r"`(test_\w+)`", part)
            assert tests, file
            assert set(found) <= set(tests), f"{file}: {set(found) - set(tests)}"
            named += len(found)
    assert named > 30


def test_the_page_has_every_verb_that_reads_packages() -> None:
    """Those that take a key."""
    sentence = SECURITY.partition("verb that reads packages (")[2].partition(")")[0]
    verbs = {v for v in group.VERBS if any(p.name == "key_file" for p in _command(v).params)}
    assert set(re.findall(r"`(\w+)`", sentence)) == verbs


def _command(verb: str) -> click.Command:
    found = group.group.get_command(click.Context(group.group), verb)
    assert found is not None
    return found


def importers() -> list[str]:
    """The public functions that read models of other libraries."""
    return sorted(n for n in li.__all__ if n.startswith("from_"))


@pytest.mark.parametrize("name", importers())
def test_every_importer_has_rows(name: str) -> None:
    """What its files are, and what it promises where they want harm."""
    files = SECURITY.partition("## What is code")[2].partition("\n## ")[0]
    assert f"`{name}`" in files
    assert any(f"`li.{name}`" in row[0] for row in PROMISES)


def test_every_kind_of_model_file_has_a_row() -> None:
    files = SECURITY.partition("## What is code")[2].partition("\n## ")[0]
    for kind in (".onnx", ".pb", ".meta", ".keras", ".h5", "SavedModels"):
        assert kind in files
    originals = [line for line in files.splitlines() if "`li.verify`" in line]
    assert {"onnxruntime", "TensorFlow", "Keras"} <= set(re.findall(r"\w+", " ".join(originals)))


def test_the_page_has_every_member_of_a_package() -> None:
    shown = set(re.findall(r"^\| (`[^|]*) \|", PACKAGES.partition("## The file")[2], re.M))
    members = {name for cell in shown for name in re.findall(r"`([^`]+)`", cell)}
    assert set(archive.MEMBERS) <= members
    assert all(map(archive.is_module, ("module-0.vmfb", "module-1.vmfb", "module-999.vmfb")))
    others = (
        "module-.vmfb", "module-1000.vmfb", "module-1.vmf", "module-\u0663.vmfb", "a/module-1.vmfb", "module-+1.vmfb",
    )  # fmt: skip
    assert not any(map(archive.is_module, others))


def test_the_page_has_every_field_and_format() -> None:
    fields = PACKAGES.partition("| field of the manifest |")[2].partition("\n\n")[0]
    named = {n for line in fields.splitlines()[2:] for n in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert named == {"format", "lstm_ir", "iree", "signature", "targets", "members", "extra", "graph"}
    formats = re.findall(r"^\| (\d) \|", PACKAGES, re.M)
    assert [int(f) for f in formats] == list(range(1, manifest.FORMAT + 1))
    options = PACKAGES.partition("* **Options** are recorded: ")[2].partition(".")[0]
    assert tuple(re.findall(r"`(\w+)`", options)) == RECORDED
