"""A class has one meaning: its name stands once in the project."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest
from paths import ROOT, files
from syntax import parsed

pytestmark = pytest.mark.xdist_group("syntax")

# Names that several importers give to the same role, each over the model files of its own framework.
ROLES = {"Bindings", "Call", "Input", "Kind", "OpRule", "Ref", "Source", "Walk", "Walker", "_PassedError", "_Undefined"}
# Names of two classes on purpose.
SAME = {"Trainer": "lstm_ir.ray has the class of lstm_ir.parallel, over Ray's actors"}


def classes() -> dict[str, list[Path]]:
    """Every class at the top of a file, by its name."""
    found = defaultdict(list)
    for path in (*files("lstm_ir"), *files("passes"), *files("backends")):
        for n in parsed(path).body:
            if isinstance(n, ast.ClassDef):
                found[n.name].append(path.relative_to(ROOT))
    return found


def test_a_class_name_stands_once() -> None:
    found = classes()
    assert len(found) > 400
    several = {name: paths for name, paths in found.items() if len(paths) > 1}
    for name in ROLES & set(several):
        rooms = [p.parts[:3] for p in several[name]]
        assert all(r[:2] == ("lstm_ir", "importers") for r in rooms), several[name]
        assert len(set(rooms)) == len(rooms), several[name]
    assert set(several) == ROLES | set(SAME), {n: p for n, p in several.items() if n not in ROLES | set(SAME)}
