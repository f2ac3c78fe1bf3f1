"""Names of options: what is near a misspelt one, and what to write where one is handed over in another way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

X = li.input("x", (2,))
G = li.Graph("g", [X], {"y": li.tanh(X)})
any_: Any = li
SAID: dict[str, tuple[Callable[[], Any], str]] = {
    "of compile": (lambda: li.compile(G, options={"data_tilling": True}), r"'data_tilling'\. Did you mean data_tiling"),
    "near nothing": (lambda: li.compile(G, options={"colour": 1}), r"'colour'; the options are pipeline, precision, "),
    "no text": (lambda: any_.compile(G, options={1: 2, "a": 3}), r"unknown option 1; the options are "),
    "of export": (lambda: li.export(G, "g.lirpkg", options={"kernel": 1}), r"'kernel'\. Did you mean kernels\?"),
    "of load": (lambda: li.load("g.lirpkg", options={"map_weight": 1}), r"'map_weight'\. Did you mean map_weights\?"),
    "of compile at load": (lambda: li.load("g.lirpkg", options={"kernels": False}),
                           r"it is one of compile and export, and the package is compiled; here there are helpers, "),
    "of load at compile": (lambda: li.compile(G, options={"map_weights": True}), r"it is one of load; here there are "),
    "a keyword": (lambda: any_.compile(G, kernels=False),
                  r"no argument 'kernels'; options are handed over together: options=\{'kernels': \.\.\.\}"),
    "a misspelt keyword": (lambda: any_.export(G, "g.lirpkg", data_tilling=True), r"options=\{'data_tiling': \.\.\.\}"),
    "a misspelt argument": (lambda: any_.compile(G, targett="cpu"), r"no argument 'targett'\. Did you mean target\?"),
    "no argument": (lambda: any_.load("g.lirpkg", colour=1), r"'colour'; they are path, device, options, require_key"),
    "a keyword of load": (lambda: any_.load("g.lirpkg", map_weights=True),
                          r"load: .*options=\{'map_weights': \.\.\.\}"),
    "a threshold": (lambda: li.compile(G, options={"thresholds": {"shared_steps": 1}}),
                    r"option thresholds: there is no 'shared_steps'\. Did you mean shared_step\?"),
    "a pass": (lambda: Pipeline.parse("fuse-gate"), r"there is no pass 'fuse-gate'\. Did you mean fuse-gates\?"),
    "a pipeline": (lambda: li.compile(G, options={"pipeline": "defalt"}), r"'defalt'\. Did you mean default\?"),
    "of a pass": (lambda: Pipeline.parse("precision{weight=f16}"), r"no option 'weight'\. Did you mean weights\?"),
    "a precision": (lambda: li.compile(G, options={"precision": "int8-dynamik"}), r"Did you mean int8-dynamic\?"),
    "of a group of weights": (lambda: li.adamw(0.1, groups={"*": {"weight_deca": 0.0}}).each(["w"]), r"weight_decay\?"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_what_a_wrong_name_is_told(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, text = SAID[case]
    with pytest.raises(li.LstmIrError, match=text):
        call()
    assert not list(tmp_path.iterdir())


def test_a_wrong_keyword_is_a_type_error_too() -> None:
    with pytest.raises(TypeError):
        any_.compile(G, kernels=False)
