"""Names of options: what is near a misspelt one, and what to write where one is handed over in another way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
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


B3 = li.input("b", ("B", 3))
W3 = li.weight("enc/w", np.ones((1, 3), "f4"))
MODEL = li.Graph("model", [B3], {"loss": li.sum(B3 * W3 * li.weight("scale", np.float32(2))), "y": B3 * W3})
TRAINS = li.train_step(MODEL, "loss", li.sgd(0.1), trainable=["enc/w"])
OF_AN_EXECUTABLE: dict[str, Callable[[Any], Any]] = {
    "weight 'enc/w' is trained, so it is state: exe.state['enc/w']": lambda exe: exe.weights["enc/w"],
    "no weight is called 'scala'. Did you mean scale?": lambda exe: exe.weights["scala"],
    "no weight is called 'zzz'; there are scale": lambda exe: exe.weights["zzz"],
    "there is no state 'enc/b'. Did you mean enc/w?": lambda exe: exe.state["enc/b"],
    "there is no state 'zzz'; there is enc/w, step": lambda exe: exe.state["zzz"],
    "the executable has no attribute 'train'; write exe.entries['train'](...)": lambda exe: exe.train,
    "no attribute 'fit'; write li.fit(exe, batches, epochs=n)": lambda exe: exe.fit,
    "no attribute 'evaluate'; write exe.entries[\"evaluate\"](x=a), by li.train_step": lambda exe: exe.evaluate,
    "no attribute 'predict'; write exe(x=a), or exe.entries[\"infer\"](x=a)": lambda exe: exe.predict,
    "the executable has no attribute 'zzz'": lambda exe: exe.zzz,
    "entries have no attribute 'train'; write entries['train']": lambda exe: exe.entries.train,
    "no entry is called 'trian'; there are train, infer": lambda exe: exe.entries["trian"],
    "export: takes a graph or a program, got Executable; give the graph that it was made of, or li.with_weights(graph, "
    "exe)": lambda exe: li.export(exe, "m.lirpkg"),
    "compile: takes a graph or a program, got Executable; give": lambda exe: li.compile(exe),
    "lower: takes a graph or a program, got Executable; give": lambda exe: li.lower(exe),
}  # fmt: skip


@pytest.fixture(scope="module")
def trains() -> Iterator[Any]:
    with li.compile(TRAINS) as exe:
        yield exe


@pytest.mark.parametrize("said", OF_AN_EXECUTABLE)
def test_what_an_executable_has_instead(said: str, trains: Any) -> None:
    with pytest.raises((li.LstmIrError, AttributeError), match=re.escape(said)):
        OF_AN_EXECUTABLE[said](trains)


def test_entries_and_weights_are_mappings(trains: Any) -> None:
    assert list(trains.entries) == ["train", "infer"]
    assert "train" in trains.entries
    assert trains.entries.get("main") is None
    assert (len(trains.entries), repr(trains.entries)) == (2, "entries train, infer")
    assert list(trains.weights) == ["scale"]
    assert trains.weights.get("enc/w") is None
    with pytest.raises(TypeError):
        trains.weights["scale"] = 1


def test_the_entries_of_a_program_are_named() -> None:
    with pytest.raises(
        li.IRError, match=r"'evaluate'; there are train, infer; li.train_step\(..., evaluate=True\) makes"
    ):
        TRAINS.only("train", "evaluate")
    with pytest.raises(li.IRError, match=r"no entry 'trian'\. Did you mean train\?"):
        TRAINS.only("trian")


def test_a_schedule_that_there_is_not() -> None:
    schedules: Any = li.schedules
    with pytest.raises(AttributeError, match=re.escape("write li.schedules.warmup(steps, li.schedules.cosine(lr, ")):
        _ = schedules.warmup_cosine
    with pytest.raises(AttributeError, match=re.escape("no 'onecycle'. Did you mean one_cycle?")):
        _ = schedules.onecycle
    with pytest.raises(AttributeError, match="there are linear, exponential, step, cosine, one_cycle, warmup, plateau"):
        _ = schedules.zzz
    assert "0.1" in str(li.schedules.warmup(3, li.schedules.cosine(0.1, 5)))
