"""Executables: values, names, memory, faults, threads, sessions, on CPU and Vulkan."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child import python
from device import need
from handmade import DOUBLED, WEIGHTS, load, module, signature

from lstm_ir.backends import memory
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.call_plan import remember
from lstm_ir.backends.run.contexts import LIMIT
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.executable import Executable, Session
from lstm_ir.backends.targets import cpus
from lstm_ir.ir.errors import CallError, DeviceError, PackageError, TargetError, ValueRangeError
from lstm_ir.ir.signature import Signature
from lstm_ir.ir.types import DType

W = WEIGHTS["enc/w"]


@pytest.fixture(scope="module", params=["local-sync", "local-task", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def exe(request: pytest.FixtureRequest) -> Iterator[Executable]:
    if request.param == "vulkan":
        need("vulkan")
        loaded = load("vulkan")
    else:
        loaded = load("cpu", driver=request.param)
    yield loaded
    loaded.close()


def test_ports(exe: Executable) -> None:
    assert [str(p) for p in exe.inputs] == ["input.1: f32[T,5]"]
    assert [str(p) for p in exe.outputs] == ["y: f32[T,5]"]
    assert list(exe.entries) == list(exe.signature.entries)
    assert dict(exe.state) == {}


def test_call_by_name(exe: Executable, rng: np.random.Generator) -> None:
    for rows in (1, 2, 11, 3000):  # 3000 rows are lent to the runtime, 11 are not
        a = rng.standard_normal((rows, 5), np.float32)
        before = a.copy()
        np.testing.assert_allclose(exe({"input.1": a})["y"], a + W, rtol=1e-6)
        np.testing.assert_array_equal(a, before)
    both = exe.entries["sums"](a=[1.0, 2, 3], b=np.array([5, 7, 11], np.float32))
    assert list(both) == ["sum", "difference"]
    np.testing.assert_array_equal(both["sum"], np.array([6, 9, 14], np.float32))
    np.testing.assert_array_equal(both["difference"], np.array([-4, -5, -8], np.float32))
    np.testing.assert_array_equal(exe.entries["sums"]({"a": [1, 2, 3]}, b=[5, 7, 11])["sum"], [6, 9, 14])


def test_no_rows(exe: Executable) -> None:
    assert exe.entries["nothing"](a=np.zeros((0, 3), np.float32))["y"].shape == (0, 3)
    none = np.zeros((0, 5), np.float32)
    if exe.device != "vulkan":
        assert exe({"input.1": none})["y"].shape == (0, 5)
        return
    with pytest.raises(
        DeviceError, match="Vulkan refuses it; make this call on a CPU"
    ):  # hence variants, as @count has
        exe({"input.1": none})
    assert exe({"input.1": [[1.0] * 5]})["y"].shape == (1, 5)


def test_variant_for_empty_dimensions(exe: Executable) -> None:
    f = exe.entries["count"]
    for n in (4, 0, 4, 0):
        got = f(a=np.full(n, 3, np.float32))
        np.testing.assert_array_equal(got["y"], np.full(n, 6, np.float32))
        assert got["n"] == n  # the module says -1 where the wrong function ran


@pytest.mark.parametrize("kind", DOUBLED)
def test_element_types(exe: Executable, kind: str) -> None:
    if f"double_{kind}" not in exe.entries:
        info = exe.target.info  # left out of the module only where the target lacks the type
        assert not {"f64": info.has_f64, "bf16": info.has_bf16}[kind]
        return
    dtype = DType(kind).numpy
    values = [0, 1, 2, 3, 60, 100, 127] if kind in ("i8", "u8") else [0, 1, 2.0, -3, 5, 7, -11]
    if kind in ("u32", "i64", "i32"):
        values = [0, 1, 2, 2**31 - 1, 5, 7, 11]
    a = np.array(values).astype(dtype)
    for _ in range(2):
        got = exe.entries[f"double_{kind}"](a=a)["y"]
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, a + a)


def test_booleans(exe: Executable) -> None:
    a = np.array([1, 0, 0, 1, 1, 0, 1], bool)
    got = exe.entries["invert"](a=a)["y"]
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, ~a)
    np.testing.assert_array_equal(got.view(np.uint8), 1 - a.view(np.uint8))


def test_booleans_between_dispatches(exe: Executable) -> None:
    a = np.arange(7, dtype=np.float32)  # 7 bytes: the target must address single ones
    got = exe.entries["larger"](a=a, b=a[::-1])["y"]
    np.testing.assert_array_equal(got, [6, 5, 4, 3, 4, 5, 6])


@pytest.mark.parametrize("size", [3, 40_000])
def test_results_share_no_memory(exe: Executable, size: int) -> None:
    a = np.arange(size, dtype=np.float32)
    aligned = memory.empty((size,), np.dtype(np.float32))
    aligned[:] = a
    for given in (a, aligned):
        got = exe.entries["twice"](a=given)  # both outputs are the input itself
        got["p"][:] = -1
        np.testing.assert_array_equal(got["q"], np.arange(size, dtype=np.float32))
        got["q"][:] = -2
        np.testing.assert_array_equal(given, np.arange(size, dtype=np.float32))
    kept = [exe.entries["twice"](a=a + i)["p"] for i in range(5)]
    for i, k in enumerate(kept):  # later calls do not reuse what was handed out
        np.testing.assert_array_equal(k, a + i)


def test_unaligned_and_read_only_inputs(exe: Executable) -> None:
    memory = np.arange(50_003, dtype=np.float32)
    for start in (0, 1, 2, 3):
        a = memory[start : start + 50_000]
        a.flags.writeable = False
        np.testing.assert_array_equal(exe.entries["twice"](a=a)["p"], a)


def test_weights(exe: Executable) -> None:
    got = exe.entries["weight"]()["w"]
    np.testing.assert_array_equal(got, W)
    got[:] = 99  # a result, not the weight
    np.testing.assert_array_equal(exe.entries["weight"]()["w"], W)
    assert list(exe.weights) == ["enc/w"]
    with pytest.raises(ValueError, match="read-only"):
        exe.weights["enc/w"][0] = 1
    with pytest.raises(TypeError):
        exe.weights["enc/w"] = W  # type: ignore[index]


def test_callers_weights_are_copied() -> None:
    target, blob = module("cpu")
    mine = {"enc/w": W.copy()}
    exe = Executable(signature(), blob, mine, target)
    mine["enc/w"][:] = 7
    np.testing.assert_array_equal(exe.entries["weight"]()["w"], W)


def test_assertions_become_errors(exe: Executable) -> None:
    guarded = exe.entries["guarded"]
    for _ in range(3):
        with pytest.raises(ValueRangeError, match=r"^guarded: guarded: a is above 5$"):
            guarded(a=6)
        assert guarded(a=5)["y"] == 10  # the process, and the executable, live


def test_checks_come_before_the_runtime(exe: Executable) -> None:
    f = exe.entries["lengths"]
    x = np.zeros((11, 3), np.float32)
    np.testing.assert_array_equal(f(x=x, n=[0, 4, 11])["y"], [0, 8, 22])
    with pytest.raises(ValueRangeError, match="0 <= n <= T = 11, got 12"):
        f(x=x, n=[0, 12, 3])
    with pytest.raises(CallError, match="at least 2"):
        f(x=x[:1], n=[0, 1, 1])
    with pytest.raises(CallError, match="missing input n"):
        f(x=x)
    with pytest.raises(CallError, match="n is given twice"):
        f({"x": x, "n": [1, 2, 3]}, n=[1, 2, 3])
    with pytest.raises(CallError, match=r"x: expected f32\[T,3\], got shape \[11,4\]"):
        f(x=np.zeros((11, 4), np.float32), n=[1, 2, 3])


def test_many_shapes(exe: Executable) -> None:
    f = exe.entries["twice"]
    for n in [*range(1, 70), *range(1, 70)]:
        a = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(a=a)["p"], a)
    assert len(f.plans) == 64
    before = dict(f.plans)
    f(a=np.zeros(70, np.float32))  # the oldest alone goes
    assert list(f.plans) == [*list(before)[1:], ((70,),)]
    remember(f.plans, ((70,),), f.plans[((70,),)])  # one that is there takes no other's place
    assert len(f.plans) == 64


def test_many_large_shapes_keep_few_buffers(exe: Executable) -> None:
    f = exe.entries["twice"]
    sizes = range(200_000, 200_040)
    for n in [*sizes, *sizes]:
        a = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(a=a)["p"], a)
    slots = [f.plans[((n,),)].slots for n in sizes]
    assert sum(s.block.nbytes for s in slots if s is not None) <= 16 << 20
    if f.on_cpu:
        assert [s is not None for s in slots] == [False] * 20 + [True] * 20


def test_threads_share_one_executable(exe: Executable) -> None:
    rounds = 40 if exe.device == "vulkan" else 400
    faults: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for i in range(rounds):
            a = rng.standard_normal((int(rng.integers(1, 3000)) if i % 5 else 7, 5), np.float32)
            try:
                y = exe({"input.1": a})["y"]
                if not np.allclose(y, a + W, rtol=1e-6):
                    faults.append(f"thread {seed}, round {i}: wrong values")
                if i % 7 == 0:
                    with pytest.raises(ValueRangeError):
                        exe.entries["guarded"](a=6 + i)
            except BaseException as e:
                faults.append(f"thread {seed}, round {i}: {e!r}")

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert faults == []


def test_sessions(exe: Executable) -> None:
    with exe.session() as one, exe.session() as two:
        for s in (one, two, exe):
            np.testing.assert_array_equal(s.entries["weight"]()["w"], W)
            assert s.inputs == exe.inputs
    with pytest.raises(DeviceError, match="closed"):
        one({"input.1": np.zeros((2, 5), np.float32)})
    assert exe({"input.1": np.zeros((2, 5), np.float32)})["y"].shape == (2, 5)


def test_sessions_share_what_was_computed_from_weights() -> None:
    exe = load("cpu", driver="local-sync")
    sessions = [exe.session() for _ in range(9)]
    assert exe._calls.loaded is not None
    contexts = exe._calls.loaded.contexts("local-sync")
    for s in sessions:
        s.entries["weight"]()
    assert contexts.made == 1
    faults: list[str] = []

    def work(s: Session, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(150):
            a = rng.standard_normal((2000, 5), np.float32)
            if not np.allclose(s({"input.1": a})["y"], a + W, rtol=1e-6):
                faults.append(f"session {seed}")

    threads = [threading.Thread(target=work, args=(s, i)) for i, s in enumerate(sessions)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert faults == []
    assert 1 <= contexts.made <= LIMIT


def test_close() -> None:
    exe = load("cpu", driver="local-sync")
    kept = exe.entries["weight"]()["w"]
    session = exe.session()
    exe.close()
    exe.close()
    for what, of in (("executable", exe), ("session", session)):
        with pytest.raises(DeviceError, match=f"the {what} is closed"):
            of.entries["weight"]()
    with pytest.raises(DeviceError, match="closed"):
        exe.session()
    np.testing.assert_array_equal(kept, W)


def test_bad_modules_and_weights() -> None:
    target, blob = module("cpu")
    for bad in (b"", b"text", blob[:1000], bytes(5000)):
        with pytest.raises(PackageError):
            Executable(signature(), bad, WEIGHTS, target)
    more = signature()
    more.entries["other"] = more.entries["main"].__class__("other", (), ())
    with pytest.raises(PackageError, match="no function @other"):
        Executable(more, blob, WEIGHTS, target)
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "missing weight 'enc/w'"),
        ({**WEIGHTS, "b": W}, "unknown weight 'b'"),
        ({"enc/w": W.astype(float)}, r"weight enc/w: expected f32\[5\], got float64\[5\]"),
        ({"enc/w": W[:4]}, r"got float32\[4\]"),
    ]
    for weights, said in cases:
        with pytest.raises(CallError, match=said):
            Executable(signature(), blob, weights, target)


def test_devices_that_are_not_there() -> None:
    target, blob = module("cpu")
    for word, said in (
        ("vulkan", "does not run modules for cpu"),
        ("local-task:7", "this machine has 1"),
        ("nonsense", "does not run modules"),
    ):
        with pytest.raises(TargetError, match=said):
            Executable(signature(), blob, WEIGHTS, target, word)
    with pytest.raises(TargetError, match="unknown device"):
        runtime.device("nonsense")
    by_kind = Executable(signature(), blob, WEIGHTS, target, "cpu")
    assert by_kind.device == "local-task"


def test_other_processors_are_refused() -> None:
    foreign = "cpu:aarch64" if cpus.machine() == "x86_64" else "cpu:x86-64-v3"
    lacking = "cpu:diamondrapids" if cpus.machine() == "x86_64" else "cpu:grace"
    for word, said in ((foreign, "made for"), (lacking, "this processor lacks")):
        target, blob = resolve(word), module("cpu")[1]
        if not cpus.missing(target.info.features) and word == lacking:
            pytest.skip(f"this is a {lacking}")
        with pytest.raises(TargetError, match=said):
            Executable(signature(), blob, WEIGHTS, target)


def test_main_is_needed_for_a_plain_call() -> None:
    target, blob = module("cpu")
    s = signature()
    chosen = {n: s.entries[n] for n in ("weight", "guarded")}
    exe = Executable(Signature("two", chosen, s.weights), blob, WEIGHTS, target)
    with pytest.raises(CallError, match=r"main; call \.entries\['weight'\]\(\.\.\.\) or \.entries\['guarded'\]"):
        exe()
    only = Executable(Signature("one", {"guarded": chosen["guarded"]}, s.weights), blob, WEIGHTS, target)
    assert only(a=2)["y"] == 4


def test_number_of_workers() -> None:
    out = python(
        "-c",
        "import os\nfrom handmade import load\nfrom lstm_ir.backends.run import runtime as r\n"
        "def names():\n"
        "    tasks = '/proc/self/task'\n"
        "    return [open(f'{tasks}/{t}/comm').read() for t in os.listdir(tasks)]\n"
        "r.set_threads(5); r.set_threads(3)\n"
        "exe = load('cpu'); exe.entries['weight']()\n"
        "print(sum('iree-worker' in n for n in names()))\n"
        "r.set_threads(3)\n"
        "try: r.set_threads(2)\nexcept r.DeviceError as e: print(e)\n",
    )
    first, second = out.splitlines()
    assert first == "3"
    assert second.startswith("set_threads(2): the CPU's 3 workers already run")


def test_default_workers_are_the_usable_cores() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("no sched_setaffinity here")
    out = python(
        "-c",
        "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from lstm_ir.backends.run import runtime\nprint(runtime.threads())\n",
    )
    assert out.strip() == "1"


@pytest.mark.parametrize("n", [0, -1, 65, 1.5, True, "2"])
def test_set_threads_refuses(n: Any) -> None:
    with pytest.raises(DeviceError, match="set_threads"):
        runtime.set_threads(n)


def test_fork_is_an_error_not_a_hang() -> None:
    out = python(
        "-c",
        "import os\nfrom handmade import load\n"
        "exe = load('cpu', driver='local-sync'); exe.entries['weight']()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try: exe.entries['weight']()\n"
        "    except Exception as e: print(type(e).__name__, \"'spawn'\" in str(e), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n",
    )
    assert out.split() == ["DeviceError", "True"]


def test_a_forked_child_ends() -> None:
    """With its exit code and without messages, whatever of the parent it lets go of before."""
    out = python(
        "-c",
        "import gc, os, sys, time\nfrom handmade import load\n"
        "exe = load('cpu', driver='local-task'); exe.entries['weight']()\n"
        "held = load('cpu', driver='local-task').session()\n"
        "gone = load('cpu', driver='local-task'); gone.entries['weight'](); gone.close(); del gone\n"
        "os.dup2(1, 2)\n"
        "def child(n):\n"
        "    pid = os.fork()\n"
        "    if pid: return pid\n"
        "    if n == 4: exe.close()\n"
        "    if n == 5: del globals()['exe']; gc.collect()\n"
        "    sys.exit(n)\n"
        "for n in (3, 4, 5):\n"
        "    pid, ended = child(n), 0\n"
        "    for _ in range(400):\n"
        "        ended, status = os.waitpid(pid, os.WNOHANG)\n"
        "        if ended: break\n"
        "        time.sleep(0.05)\n"
        "    else: os.kill(pid, 9)\n"
        "    print(os.waitstatus_to_exitcode(status) if ended else 'hangs', flush=True)\n"
        "print(len(exe.entries['weight']()))\n",
    )
    assert out.split() == ["3", "4", "5", "1"]


def test_what_a_signal_handler_raises_in_a_call_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class TooSlowError(Exception):
        pass

    def raises(error: Exception) -> Any:
        def call(*_: object) -> None:
            raise error

        return call

    with load("cpu", driver="local-sync") as exe:
        loaded = exe._calls.loaded
        assert loaded is not None
        for error in (TooSlowError("9 s"), TimeoutError("9 s")):
            monkeypatch.setattr(loaded.contexts("local-sync"), "invoke", raises(error))
            exe.entries["weight"].plans.clear()  # which look it up once
            with pytest.raises(type(error)) as caught:
                exe.entries["weight"]()
            assert caught.value is error
        monkeypatch.setattr(loaded.contexts("local-sync"), "invoke", raises(RuntimeError("a.c:1: INTERNAL; broken")))
        exe.entries["weight"].plans.clear()
        with pytest.raises(DeviceError, match="broken"):
            exe.entries["weight"]()


def test_a_child_forked_after_compiling_ends_and_compiles(tmp_path: Path) -> None:
    """Servers prepare, then fork: what the compiler's bindings hold has no threads to wait for."""
    out = python(
        "-c",
        "import os, sys, signal\nimport numpy as np\nimport lstm_ir as li\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "x = li.input('x', (2, 4, 8))\n"
        "w = [li.weight(n, np.ones((64, k), np.float32)) for n, k in (('a', 8), ('b', 16))]\n"
        "g = li.Graph('g', [x], {'y': li.lstm(x, *w)[0]})\n"
        "li.export(g, 'parent.lirpkg', targets=['cpu'])\n"
        "for compiles in (False, True):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        signal.alarm(60)\n"
        "        if compiles: li.export(g, 'child.lirpkg', targets=['cpu'], options={'cache': False})\n"
        "        sys.exit(3)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n",
    )
    assert out.split() == ["3", "3"]


def test_loading_needs_no_compiler() -> None:
    out = python(
        "-c",
        "import sys\n"
        "from lstm_ir.backends.run import runtime, executable, package\n"
        "runtime.instance()\n"
        "names = ('networkx', 'lark', 'iree.compiler', 'ml_dtypes')\n"
        "bad = [m for m in names if m in sys.modules]\n"
        "print(bad)\n",
    )
    assert out.strip() == "[]"


def test_a_failed_cuda_queue_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a launch of nothing the device takes no more work; without memory it does."""
    for text, lost in (
        ("cuda/stream_command_buffer.c:601: INVALID_ARGUMENT; CUDA error 'CUDA_ERROR_INVALID_VALUE' (1)", True),
        ("INVALID_ARGUMENT; while invoking native function hal.device.queue.dealloca; while calling", True),
        ("cuda_allocator.c:421: RESOURCE_EXHAUSTED; CUDA error 'CUDA_ERROR_OUT_OF_MEMORY' (2)", False),
    ):
        kept = {"local-task": object(), "cuda": object()}
        monkeypatch.setattr(runtime, "_devices", kept)
        error = runtime.failure(RuntimeError(text), "f")
        assert isinstance(error, DeviceError)
        assert ("device was lost" in str(error)) is lost
        assert list(kept) == (["local-task"] if lost else ["local-task", "cuda"])


def test_a_lost_device_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"local-task": object(), "vulkan": object(), "cuda:1": object()}
    monkeypatch.setattr(runtime, "_devices", kept)
    error = runtime.failure(RuntimeError("x.c:7: INTERNAL; VK_ERROR_DEVICE_LOST; while invoking"), "f")
    assert isinstance(error, DeviceError)
    assert str(error) == "f: the device was lost; compile or load again (VK_ERROR_DEVICE_LOST)"
    assert list(kept) == ["local-task"]
