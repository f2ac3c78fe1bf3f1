"""Memory of a call's tensors: from the allocator, but from the queue where the host loops."""

from __future__ import annotations

import re

import child
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.compile import phases
from lstm_ir.backends.compile.transients import from_allocator

ON, TIME = "on(#d<@x>)", "!stream.timepoint"


def alloca(name: str, size: str, after: str | None = None, kind: str = "transient") -> str:
    """As IREE prints it; the second result is {name}_t."""
    wait = " :" if after is None else f" await({after}) =>"
    return (
        f"    %{name}, %{name}_t = stream.resource.alloca uninitialized {ON}{wait} "
        f'!stream.resource<{kind}>{{{size}}} => {TIME} loc("{name}")\n'
    )


def dealloca(done: str, name: str, size: str, after: str, how: str = ON) -> str:
    return (
        f"    %{done} = stream.resource.dealloca {how} await({after}) => %{name} : "
        f"!stream.resource<transient>{{{size}}} => {TIME} loc(unknown)\n"
    )


def function(*blocks: str) -> str:
    return "  util.func public @main(%arg0: index) {\n" + "".join(blocks) + "    util.return loc(unknown)\n  } loc(x)\n"


def test_a_named_size_is_the_allocators() -> None:
    """It is ready when what it waited for is, and given back by nobody's order."""
    text = function(alloca("a", "%5", "%4"), alloca("b", "%6"), dealloca("9", "a", "%5", "%8"))
    assert from_allocator(f"module {{\n{text}}}\n") == (
        f"module {{\n  util.func public @main(%arg0: index) {{\n"
        f'    %a = stream.resource.alloc uninitialized {ON} : !stream.resource<transient>{{%5}} loc("a")\n'
        f'    %a_t = stream.timepoint.join max(%4) => {TIME} loc("a")\n'
        f'    %b = stream.resource.alloc uninitialized {ON} : !stream.resource<transient>{{%6}} loc("b")\n'
        f'    %b_t = stream.timepoint.immediate => {TIME} loc("b")\n'
        f"    %9 = stream.timepoint.join max(%8) => {TIME} loc(unknown)\n"
        "    util.return loc(unknown)\n  } loc(x)\n}\n"
    )


def test_of_any_size_and_results_too() -> None:
    """What the module reads from files or keeps between calls is nobody else's."""
    sizes = ["%c64", "%c67108865_3", "%5"]
    text = function(*(alloca(f"a{i}", s, kind=k) for i, s in enumerate(sizes) for k in ("transient", "external")))
    assert len(re.findall(r"stream\.resource\.alloc ", from_allocator(text))) == 6
    kept = function(alloca("w", "%c64", kind="constant"), dealloca("9", "z", "%5", "%w_t", "origin"))
    assert from_allocator(kept) == kept


@pytest.mark.parametrize("back", ["cf.br ^bb1(%2 : index)", "cf.cond_br %1, ^bb3, ^bb1"])
def test_a_loop_of_the_host_asks_the_queue(back: str) -> None:
    """In a block that comes again, by itself or by way of others, each as IREE prints it; what is around is not."""
    text = function(
        alloca("a", "%5"), "    cf.br ^bb1(%arg0 : index) loc(unknown)\n",
        "  ^bb1(%0: index loc(unknown)):  // 2 preds: ^bb0, ^bb2\n", alloca("b", "%5"),
        "    cf.cond_br %3, ^bb2, ^bb3 loc(unknown)\n",
        "  ^bb2:  // pred: ^bb1\n", alloca("c", "%5"), dealloca("8", "c", "%5", "%c_t"), f"    {back} loc(unknown)\n",
        "  ^bb3:  // pred: ^bb1\n", alloca("d", "%5"), dealloca("9", "a", "%5", "%d_t"),
    )  # fmt: skip
    found = from_allocator(text)
    assert re.findall(r"%(\w) = stream\.resource\.alloc ", found) == ["a", "d"]
    assert re.findall(r"%(\w), %\w+ = stream\.resource\.alloca ", found) == ["b", "c"]
    assert re.findall(r"%(\w) = stream\.(\w+)\.(\w+)", found[found.index("%8") :]) == [
        ("8", "resource", "dealloca"), ("d", "resource", "alloc"), ("9", "timepoint", "join"),
    ]  # fmt: skip


def test_functions_of_kernels_stay_as_they_are() -> None:
    text = "  hal.executable private @x {\n    func.func @k() {\n" + alloca("a", "%5") + "    }\n  }\n"
    assert from_allocator(text) == text


def _model(steps: str | int) -> li.Graph:
    """Two products of which the first, 8 kB a row, is read twice."""
    x = li.input("x", (steps, 8))
    first, second = (li.constant(np.full(s, 0.01, np.float32)) for s in ((8, 2000), (2000, 8)))
    wide = li.tanh(x @ first)
    return li.Graph("g", [x], {"y": (wide * li.max(wide)) @ second})


ROWS = 12_000  # of 8 kB each: 96 MB


@pytest.mark.parametrize("device", ["local-sync", "local-task"])
@pytest.mark.parametrize("steps", ["N", ROWS], ids=["named", "numbers"])
def test_later_calls_have_their_pages(steps: str | int, device: str) -> None:
    resource = pytest.importorskip("resource")  # POSIX has it
    a = np.ones((ROWS, 8), np.float32)
    with li.compile(_model(steps), device=device, options={"cache": False}) as exe:
        for _ in range(2):
            exe(x=a)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(3):
            got = exe(x=a)["y"]
        pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    wide = np.tanh(8 * np.float32(0.01))
    np.testing.assert_allclose(got, np.full((ROWS, 8), 2000 * wide * wide * 0.01), rtol=1e-4)
    assert pages < 96e6 / 4096, "a call makes its pages anew"


SESSIONS = """
import os
import threading

import numpy as np
import lstm_ir as li
from memory_maps import kilobytes

x = li.input("x", ("N", 8))
exe = li.compile(li.Graph("g", [x], {"y": li.tanh(x @ li.constant(np.ones((8, 900), "f4")))}), device="local-task")
rows, before = np.ones((9000, 8), "f4"), 0
clients = [exe, exe.session()]

def calls(client):
    for _ in range(3):
        client(x=rows)

for k in range(12):
    threads = [threading.Thread(target=calls, args=(c,)) for c in clients]
    [t.start() for t in threads]
    [t.join() for t in threads]
    before = kilobytes(os.getpid())["Rss"] if k == 3 else before
print(kilobytes(os.getpid())["Rss"] - before)
"""


def test_sessions_that_are_called_at_a_time_find_memory_again() -> None:
    """Results of 32 MB, by threads of eight rounds."""
    assert int(child.python("-c", SESSIONS)) < 3 * 32 << 10


def test_modules_that_iree_prints_have_what_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of a call is the queue's in a function without loops."""
    found: list[str] = []

    def kept(text: str) -> str:
        assert "stream.resource.alloca" in text
        found.append(from_allocator(text))
        return found[-1]

    monkeypatch.setattr(phases, "from_allocator", kept)
    li.compile(_model("N"), options={"cache": False}).close()
    assert "stream.resource.alloc " in found[-1]
    assert not re.search(r"resource\.alloca .*<(transient|external)>", found[-1])
