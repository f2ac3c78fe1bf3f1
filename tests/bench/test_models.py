"""Streams, convolutions and whole models: every runner gives the same numbers, call after call."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.bench.convolutions import BY_W, BY_X, FORWARD, Convolution
from lstm_ir.bench.elsewhere import PACKAGE, ElsewhereError, OtherProcess
from lstm_ir.bench.lists import MODELS, POINTS, named
from lstm_ir.bench.streams import Stream
from lstm_ir.bench.subject import Subject, TimedRun
from lstm_ir.bench.whole.attention import Attention
from lstm_ir.bench.whole.char_lm import CharLm
from lstm_ir.bench.whole.speech import Speech
from lstm_ir.bench.whole.tagger import Tagger
from lstm_ir.ir import dims

SMALL: tuple[Subject, ...] = (
    Tagger(5, 3, layers=2, V=11, E=6, H=7, K=4), Attention(5, 3, S=8, V=11, E=6, H=7),
    Attention(5, 3, True, S=8, V=11, E=6, H=7), Speech(33, 3, F=6, D=5, H=7, C=9, S=2),
    Speech(33, 3, True, F=6, D=5, H=7, C=9, S=2), CharLm(5, 3, True, V=11, E=6, H=7), CharLm(5, 3, V=11, E=6, H=7),
    Stream(3, 5, 7), Stream(1, 5, 7, layers=2, framed=True),
)  # fmt: skip
CONVOLUTIONS = (
    Convolution(3, 4, 11, 6, 5, stride=2), Convolution(2, 6, 17, 4, 3, dilation=3, groups=2),
    Convolution(2, 5, 9, 5, 4, groups=5), Convolution(1, 1, 23, 3, 8, stride=5),
)  # fmt: skip
WAYS = [replace(c, way=way) for c in CONVOLUTIONS for way in (FORWARD, BY_X, BY_W)]


class Meaning:
    """The entries of a program by the interpreter, with the program's state; called as an executable is."""

    def __init__(self, program: Any) -> None:
        self.program = li.Program.of(program)
        self.state = {n: s.initial.array for n, s in self.program.state.items()}
        self.entries = {n: self._entry(n) for n in self.program.entries}

    def _entry(self, name: str) -> Any:
        graph, (reads, writes) = self.program.entries[name], self.program.binding.get(name, ({}, {}))

        def call(arrays: dict[str, Any]) -> dict[str, Any]:
            held = {n: self._held(s, arrays) for n, s in reads.items()}
            given = {n: a for n, a in {**arrays, **held}.items() if n in graph.input_names}
            out = li.interpret(graph, given)
            self.state |= {s: out[n] for n, s in writes.items()}
            return {n: a for n, a in out.items() if n not in writes}

        ports = ([SimpleNamespace(name=n) for n in names] for names in (graph.input_names, graph.output_names))
        call.entry = SimpleNamespace(**dict(zip(("inputs", "outputs"), ports, strict=True)))  # type: ignore[attr-defined]
        return call

    def _held(self, name: str, arrays: dict[str, Any]) -> Any:
        """The state; a named size, which is B in these models, begins as that of the call."""
        sizes = [arrays["x"].shape[1] if isinstance(d, dims.Expr) else d for d in self.program.state[name].type.shape]
        return np.broadcast_to(self.state[name], sizes)


def agree(mine: TimedRun, theirs: TimedRun, subject: Subject, count: int = 3) -> None:
    for k, call in enumerate(subject.calls(count)):
        got, want = (r.read(r.run(call)) for r in (theirs, mine))
        assert got.keys() == want.keys()
        for n, a in want.items():
            np.testing.assert_allclose(got[n], a, rtol=2e-4, atol=1e-5, err_msg=f"{subject.name}: {n} of call {k}")


@pytest.mark.parametrize("peer", ["torch", "onnxruntime", "jax"])
@pytest.mark.parametrize("subject", [*SMALL, *WAYS], ids=lambda s: s.name)
@pytest.mark.slow_cases(subject=[s for s in SMALL if s.training])
def test_every_peer_runs_the_same_model(subject: Subject, peer: str) -> None:
    need(peer)
    theirs = subject.peers()[peer](1)
    if theirs is None:
        assert (peer, subject.training) == ("onnxruntime", True)
        return
    agree(subject.runner(Meaning(subject.program(names=True))), theirs, subject)


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("subject", [*SMALL, *WAYS], ids=lambda s: s.name)
@pytest.mark.slow
def test_compiled_models_give_what_they_mean(subject: Subject, names: bool) -> None:
    program = subject.program(names)
    agree(subject.runner(Meaning(program)), subject.runner(li.compile(program)), subject)


def test_a_stream_from_a_package_keeps_its_state(tmp_path: Path) -> None:
    subject = Stream(3, 5, 7, layers=2)
    program, path = subject.program(names=True), tmp_path / "stream.lirpkg"
    li.export(program, path, targets=["cpu:host"])
    meaning = subject.runner(Meaning(program))
    with OtherProcess(subject, PACKAGE, 1, path) as process:
        found = process.results()
    for call, got in zip(subject.calls(), found, strict=True):
        np.testing.assert_allclose(got["y"], meaning.read(meaning.run(call))["y"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("subject", [SMALL[0], SMALL[4]], ids=lambda s: s.name)
@pytest.mark.slow
def test_torch_compile_gives_the_same(subject: Subject) -> None:
    need("torch")
    meaning = subject.runner(Meaning(subject.program(names=True)))
    with OtherProcess(subject, "torch.compile", 1) as process:
        found = process.results(300)
    for call, got in zip(subject.calls(), found, strict=True):
        want = meaning.read(meaning.run(call))
        for n, a in want.items():
            np.testing.assert_allclose(got[n], a, rtol=2e-4, atol=1e-5, err_msg=n)


def test_a_peer_that_does_not_end_or_fails_is_said() -> None:
    with OtherProcess(SMALL[0], "torch.compile", 1) as process, pytest.raises(ElsewhereError, match=r"within 0\.01 s"):
        process.results(0.01)
    with OtherProcess(SMALL[0], "nobody", 1) as process, pytest.raises(ElsewhereError, match="KeyError: 'nobody'"):
        process.results()


def test_flops_by_hand() -> None:
    # two layers, two directions: 8 H (I + H) and 8 H (2 H + H) each; scores 2 * 2 H K
    assert SMALL[0].flops == 15 * (2 * 8 * 7 * (6 + 7) + 2 * 8 * 7 * 21 + 4 * 7 * 4)
    assert Stream(3, 5, 7, framed=True).flops == 3 * (2 * 5 * 7 * 2 + 8 * 7 * 14)
    # N O L' C/G K
    assert Convolution(3, 4, 11, 6, 5, stride=2).flops == 2 * 3 * 6 * 6 * 4 * 5


def test_the_lists_have_every_kind() -> None:
    kinds = {m.name.split("-")[0] for m in MODELS}
    assert kinds == {"tagger2", "tagger4", "attention", "ctc", "frames", "char"}
    assert {p.name for p in named(("conv-",)) if p.name.endswith("-dw")}
    assert len({p.group for p in (*POINTS, *MODELS)}) == 8
