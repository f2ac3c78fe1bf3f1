"""What every dispatch of a broad corpus takes of the stack: as compiled, and as workers touched it.

The compiler counts a dispatch's arrays and refuses more than DISPATCH_STACK. Saved and spilled registers come on
top of that, and what the runtime has on the stack before it.
"""

from __future__ import annotations

import json
from pathlib import Path

import frames
import pytest
import stack_corpus
from child import script

import lstm_ir as li
from lstm_ir.backends.compile.compiler import DISPATCH_STACK
from lstm_ir.backends.lower import linear
from lstm_ir.backends.run.threads import stacks

SPILLED = 16 << 10  # bytes of a frame that are no arrays: 8.5 KiB were seen, of a product for AVX-512
RUNTIME = 32 << 10  # bytes before a dispatch: a worker that ran nothing has touched 8 KiB
PAGE = 16 << 10  # the largest of the machines that this runs on
WORDS = ("cpu", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:aarch64")
linux = pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="needs Linux's /proc")


@pytest.fixture(autouse=True)
def uncut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are cut before their product leave its dispatch no array; `stacks_child.py` cuts none either."""
    monkeypatch.setattr(linear, "CUT_ROWS", 1 << 30)


def workers(corpus: str) -> list[tuple[int, int]]:
    """(bytes of the stack, bytes touched) of each worker after the corpus was called."""
    return [(size, touched) for size, touched in json.loads(script("stacks_child.py", corpus, timeout=1500))]


def test_frames_are_read_from_assembly() -> None:
    """Frames of both processors, as LLVM writes them."""
    x86 = "f:\n\tpushq\t%rbp\n\tmovq\t%rsp, %rbp\n\tandq\t$-64, %rsp\n\tsubq\t$28224, %rsp\n\tretq\ng:\n\tpushq\t%rax\n"
    assert frames.read(x86) == {"f": 8 + frames.ALIGNED + 28224, "g": 8}
    arm = (
        "f:\n\tstp\tx29, x30, [sp, #-64]!\n\tsub\tx9, sp, #6, lsl #12\n\tsub\tx9, x9, #1984\n"
        "\tand\tsp, x9, #0xffffffffffffffc0\n\tsub\tx9, x9, #1\ng:\n\tsub\tsp, sp, #1, lsl #12\n"
    )
    assert frames.read(arm) == {"f": 64 + 6 * 4096 + 1984 + frames.ALIGNED, "g": 4096}


@pytest.mark.slow_cases(word=["cpu"])
@pytest.mark.parametrize("word", ["cpu", "cpu:aarch64"])
def test_frames_of_dispatches_at_the_limit(word: str) -> None:
    """What is there to be seen: the arrays of these are no less than a quarter of the limit."""
    most = max(frames.frames(stack_corpus.strided_product(*stack_corpus.AT_THE_LIMIT[0]), word, kernels=False).values())
    assert DISPATCH_STACK // 4 < most < DISPATCH_STACK + SPILLED, most
    assert most + RUNTIME < stacks.CALLER


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_frames_of_the_corpus(word: str) -> None:
    found = {
        f"{name}: {f}": size for name, graph, _ in stack_corpus.broad() for f, size in _frames(graph, word).items()
    }
    assert len(found) > 100
    high = {f: size for f, size in found.items() if size > DISPATCH_STACK + SPILLED}
    assert not high
    assert max(found.values()) + RUNTIME < stacks.CALLER


def _frames(graph: li.Graph, word: str) -> dict[str, int]:
    """The functions of dispatches; a module of copies alone has none."""
    try:
        return frames.frames(graph, word)
    except AssertionError:
        return {}


@pytest.mark.slow
@linux
def test_workers_touch_what_frames_say() -> None:
    """The frame of the largest dispatch is seen on a worker's stack, and little more than that."""
    most = max(touched for _, touched in workers("largest"))
    frame = max(frames.frames(stack_corpus.strided_product(*stack_corpus.AT_THE_LIMIT[0]), kernels=False).values())
    assert frame - PAGE < most < frame + RUNTIME, (frame, most)


@linux
@pytest.mark.slow
def test_workers_that_ran_the_corpus_have_most_of_their_stacks_left() -> None:
    found = workers("broad")
    assert all(size >= stacks.WORKER for size, _ in found)
    most = max(touched for _, touched in found)
    assert DISPATCH_STACK // 4 < most < stacks.CALLER - RUNTIME, most
