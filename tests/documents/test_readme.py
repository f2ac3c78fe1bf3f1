"""What the README and the documents show is so: commands, examples, texts, links and messages."""

from __future__ import annotations

import re
import shlex
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from device import model_file, need
from paths import DOCS, ROOT

import lstm_ir as li
from lstm_ir.backends.targets.targets import words
from lstm_ir.cli import group

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted(DOCS.glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCUMENTS, *sorted(DOCS.glob("tutorial/**/*.md"))]
LINES = 160  # of the README


FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(kind: str, page: str = README) -> list[str]:
    return [text for name, text in FENCED.findall(page) if name == kind]


def document(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_it_begins_with_its_purpose_and_the_two_commands() -> None:
    """One sentence says what it is for; the commands stand behind it, and the rest behind them."""
    one, two = blocks("sh")[:2]
    purpose = README.split("\n\n")[1]
    assert purpose.startswith("lstm-ir takes the LSTM that you own")
    assert purpose.count(". ") == 0
    assert README.index(two) < 900
    assert one == "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/lstm-ir demo\n"
    assert two == "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest\n"
    assert README.index(two) < README.index("It is a graph compiler for recurrent networks")
    script = (ROOT / ".ci" / "run").read_text()
    assert two in script
    assert script.index(".[oracles]") < script.index(two)
    assert script.endswith(two)


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= LINES


def test_the_example_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, training = blocks("python")
    printed, trained = blocks("text")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "< 2e-5" in code
    assert capsys.readouterr().out == printed == "(3, 64) True\n(7, 1, 64)\n"
    exec(compile(training, "README.md", "exec"), names)
    assert capsys.readouterr().out == trained
    losses = names["losses"]
    assert isinstance(losses, list)
    assert float(losses[-1]) < 0.1
    assert (tmp_path / "sign.safetensors").stat().st_size > 3 * 4 * (256 * (8 + 64) + 2 * 64)


@pytest.mark.slow
def test_what_the_page_on_training_shows_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, entry, model, head, rates, groups, chunks, loop, stream, frames = blocks("python", document("training.md"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(train, "training.md", "exec"), names)
    loss, accuracy, steps, shape = capsys.readouterr().out.split(maxsplit=3)
    assert float(loss) < 0.5
    assert float(accuracy) > 0.7
    assert (steps, shape) == ("200", "(16, 2)\n")
    assert li.load("sign.lirpkg").entries.keys() == {"train", "infer"}
    for block in (entry, model):
        exec(compile(block, "training.md", "exec"), names)
        assert capsys.readouterr().out == "(16, 2)\n"
    exec(compile(head, "training.md", "exec"), names)
    state, step = capsys.readouterr().out.rsplit(maxsplit=1)
    assert {"head/w", "step"} < set(literal_eval(state))
    assert step == "1"
    exec(compile(rates, "training.md", "exec"), names)
    assert capsys.readouterr().out.startswith("[0.0, 9.99")
    exec(compile(groups, "training.md", "exec"), names)
    assert capsys.readouterr().out == "loss: f32[]\ngrad_norm: f32[]\nlr/lstm/*: f32[]\n"
    exec(compile(chunks, "training.md", "exec"), names)
    assert capsys.readouterr().out == "(1, 4, 32)\n"
    assert names["carried"]["h0"].any()
    exec(compile(loop, "training.md", "exec"), names)
    out, err = capsys.readouterr()
    first, shape = out.splitlines()
    assert first.split()[0] in ("patience", "epochs")
    assert (first.split()[2], shape) == ("True", "(16, 2)")
    (line,) = (b for b in blocks("", document("training.md")) if b.startswith("epoch 1"))
    numbers = re.compile(r"[\d.]+")
    assert numbers.sub("0", err.splitlines()[0]) == numbers.sub("0", line.rstrip("\n"))
    assert set(li.load("sign.lirpkg").state) > {"step", "adam/m/out/w"}
    names = {}
    exec(compile(stream, "training.md", "exec"), names)
    assert float(capsys.readouterr().out) < 1e-6
    exec(compile(frames, "training.md", "exec"), names)
    assert capsys.readouterr().out == "f32[T,1]\n"


def test_what_the_page_on_security_shows_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = blocks("python", document("security.md"))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "security.md", "exec"), {})
    assert capsys.readouterr().out == "[2. 2. 2.]\n"


def test_what_the_page_on_passes_shows_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python", document("passes.md"))
    exec(compile(code, "passes.md", "exec"), {})
    steps = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["canonicalize", "True"] in steps
    assert ["precision", "True"] in steps


def test_the_text_parses_and_means_what_it_says() -> None:
    (text,) = blocks("lir", document("text-form.md"))
    graph = li.parse(text)
    assert isinstance(graph, li.Graph)
    assert str(graph) == text
    x = np.arange(48, dtype="f4").reshape(3, 2, 8)
    np.testing.assert_array_equal(li.interpret(graph, x=x)["y"], x * 0.5)


def test_the_grammar_has_twelve_lines_and_every_dtype() -> None:
    (grammar,) = [b for b in blocks("", document("text-form.md")) if b.startswith("file ")]
    assert len(grammar.splitlines()) == 12
    assert all(f" {d.value} " in grammar.replace("\n", " ") for d in li.DType)


def test_the_message_is_the_real_one() -> None:
    (shown,) = [b for b in blocks("") if "contracting sizes" in b]
    with pytest.raises(li.IRError) as e:
        li.dot(li.input("a", (3, 5)), li.input("b", (3, 7)))
    here = re.compile(r"\S+\.py:\d+")
    assert here.sub("model.py:78", str(e.value)) == shown.rstrip("\n")


@pytest.mark.slow
def test_the_import_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a file that lies beside the project, where it does."""
    file = model_file("silero.onnx")
    need("onnx")
    need("onnx_ir")
    (line,) = [b for b in blocks("sh") if b.startswith("lstm-ir import")]
    (shown,) = [b for b in blocks("") if b.startswith("silero.onnx")]
    monkeypatch.chdir(tmp_path)
    (tmp_path / file.name).symlink_to(file)
    assert group.run(shlex.split(line)[1:]) == 0
    tile = re.compile(r", tile \S+")  # of this processor
    printed = tile.sub("", capsys.readouterr().out).splitlines()
    first, elided, *others = tile.sub("", shown).splitlines()
    assert (first, elided) == (printed[0], "…")
    assert others == [text for text in printed if text in others]
    assert len(others) == 4
    assert (tmp_path / "vad.lirpkg").is_file()


def test_every_command_is_one_that_exists() -> None:
    shown = re.findall(r"^\| `(lstm-ir .*?)` \|", document("api.md"), re.M)
    assert [s.split()[1] for s in shown] == list(group.VERBS)
    for line in shown:
        verb, *args = shlex.split(line)[1:]
        command = group.group.get_command(click.Context(group.group), verb)
        assert command is not None
        command.make_parser(click.Context(command)).parse_args(args)


def test_every_target_word_is_known() -> None:
    table = README[README.index("## Targets") : README.index("## Errors")]
    cells = re.findall(r"^\| (`.*?) \|", table, re.M)
    shown = [w for cell in cells for w in re.findall(r"`([^`]+)`", cell)]
    assert len(shown) >= 9
    assert not set(shown) - set(words()) - {"cuda"}


def test_every_document_is_linked_from_the_readme() -> None:
    linked = {target.partition("#")[0] for target in LINK.findall(README)}
    others = {"docs/" + p.name for p in DOCUMENTS} | {"CONTRIBUTING.md", "CHANGELOG.md", "docs/tutorial/README.md"}
    assert others <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        place = page if not name else page.parent / name
        assert place.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in set(_anchors(place)), f"{page.name}: {target}"


def _anchors(page: Path) -> Iterator[str]:
    """What a heading is called in a link: small letters, hyphens for spaces, no other signs."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for title in re.findall(r"^#+ (.*)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_named_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    folders = "lstm_ir|passes|backends|tests|docs|examples|benchmarks"
    for name in re.findall(rf"`((?:{folders})/[\w./*-]*)`", text):
        found = list(ROOT.glob(name.rstrip("/"))) if "*" in name else [ROOT / name]
        assert found, f"{page.name}: {name}"
        assert all(f.exists() for f in found), f"{page.name}: {name}"
