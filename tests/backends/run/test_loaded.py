"""Each call decides who runs it: the caller's thread, with helpers or without, or IREE's workers."""

from __future__ import annotations

import json
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from lstm_graph import lstm

import lstm_ir as li
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.executable import Executable
from lstm_ir.backends.run.loaded import CALLER, WORKERS, Loaded
from lstm_ir.backends.run.package import read_package, stored_module

H = 48
# (T, B) by who runs them: 1 and 0 rows and steps are among them.
SIZES = {
    "alone": [(1, 1), (0, 3), (3, 0), (2, 5), (5, 2)],
    "helped": [(40, 3), (40, 16), (300, 1)],
    "workers": [(300, 30), (1200, 8)],
}


def graph() -> li.Graph:
    """One layer over named steps and rows: 2 * 4H * (I + H) operations for each row of a step, and more."""
    return lstm(("T", "B", 40, H))  # type: ignore[arg-type]


def loaded(exe: Executable) -> Loaded:
    assert exe._calls.loaded is not None
    return exe._calls.loaded


def who(exe: Executable, T: int, B: int) -> str:
    """The words of SIZES."""
    (entry,) = exe.entries
    choice = loaded(exe).choice(entry, {"T": T, "B": B})
    return "workers" if choice.driver == WORKERS else "helped" if choice.helpers else "alone"


@pytest.fixture(scope="module")
def exe() -> Executable:
    return li.compile(graph())


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return li.export(graph(), tmp_path_factory.mktemp("package") / "m.lirpkg", ["cpu:host"])


@pytest.mark.parametrize("word", ["cpu", "cpu:host"])
def test_words_for_this_processor(package: Path, word: str) -> None:
    """That which it was exported with, too; the module's own name is the processor's."""
    assert stored_module(read_package(package), word).info.name not in ("cpu", "cpu:host")
    with li.load(package, word) as exe:
        assert exe.device == "cpu"
        assert exe(x=np.zeros((3, 2, 40), np.float32))["y"].shape[:2] == (3, 2)


def test_sizes_choose(exe: Executable) -> None:
    assert exe.device == "cpu"
    assert exe.helped
    assert [n for n in exe.report.notes if n.startswith("driver chosen at each call: ")]
    for word, sizes in SIZES.items():
        assert {who(exe, T, B) for T, B in sizes} == {word}


def test_results_are_those_of_the_equations_whoever_runs_them(
    exe: Executable, package: Path, rng: np.random.Generator
) -> None:
    """In any order, so that each follows each; the package is opened by a process that did not compile it."""
    others = [li.load(package), li.load(package, options={"helpers": False}), li.load(package, "local-task")]
    calls = [s for sizes in SIZES.values() for s in sizes] * 2
    want = {}
    for i in rng.permutation(len(calls)):
        T, B = calls[i]
        if (T, B) not in want:
            x = rng.standard_normal((T, B, 40)).astype(np.float32)
            want[T, B] = x, li.interpret(graph(), {"x": x})["y"]
        x, y = want[T, B]
        for e in (exe, *others):
            np.testing.assert_allclose(e(x=x)["y"], y, rtol=2e-5, atol=2e-5, err_msg=f"{T}, {B}")


def test_a_device_is_opened_when_a_call_takes_it(package: Path, rng: np.random.Generator) -> None:
    e = li.load(package)
    assert e.device == "cpu"
    assert list(loaded(e)._contexts) == [CALLER]
    for word, taken in (("alone", [CALLER]), ("helped", [CALLER]), ("workers", [CALLER, WORKERS])):
        for T, B in SIZES[word]:
            e(x=rng.standard_normal((T, B, 40)).astype(np.float32))
        assert list(loaded(e)._contexts) == taken
    alone = li.load(package, "local-task")
    assert (alone.device, list(loaded(alone)._contexts)) == (WORKERS, [WORKERS])


def test_helpers_of_a_package_can_be_refused(package: Path) -> None:
    assert who(li.load(package), 40, 3) == "helped"
    e = li.load(package, options={"helpers": False})
    assert (who(e, 40, 3), who(e, 40, 16), e.helped) == ("alone", "workers", False)
    with pytest.raises(li.CompileError, match="option helpers is 'no'"):
        li.load(package, options={"helpers": "no"})


def test_sessions_choose_for_themselves(package: Path, rng: np.random.Generator) -> None:
    """From several threads at once, with sizes that change at each call."""
    e = li.load(package)
    calls = [s for sizes in SIZES.values() for s in sizes]
    arrays = {s: rng.standard_normal((*s, 40)).astype(np.float32) for s in calls}
    want = {s: li.interpret(graph(), {"x": x})["y"] for s, x in arrays.items()}
    faults: list[str] = []

    def work(seed: int) -> None:
        order = np.random.default_rng(seed)
        with e.session() as s:
            for i in order.integers(0, len(calls), 20):
                if not np.allclose(s(x=arrays[calls[i]])["y"], want[calls[i]], rtol=2e-5, atol=2e-5):
                    faults.append(f"{seed}: {calls[i]}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert faults == []


def test_numbers_have_one_device() -> None:
    assert li.compile(lstm((2, 1, 40, H))).device == CALLER
    assert li.compile(lstm((300, 30, 40, H))).device == WORKERS


def test_a_package_of_format_2_runs_on_workers(package: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    """It does not say how much its entries compute."""
    old = li.export(graph(), tmp_path / "old.lirpkg", ["cpu:host"], {"helpers": False}, graph=False)
    changed = _changed(old, 2, None)
    e = li.load(changed)
    assert e.device == WORKERS
    x = rng.standard_normal((4, 3, 40)).astype(np.float32)
    np.testing.assert_array_equal(e(x=x)["y"], li.load(old, WORKERS)(x=x)["y"])


@pytest.mark.parametrize("published", [0, 1])
def test_a_package_that_lies_about_its_kernels(published: int, package: Path, tmp_path: Path) -> None:
    """Its functions take other arguments than it says."""
    path = package
    if published:
        path = li.export(graph(), tmp_path / "m.lirpkg", ["cpu:host"], options={"helpers": False})
    (entry,) = li.load(path).entries
    changed = _changed(path, 4, {entry: ["T", 1, published]})
    x = np.zeros((40, 3, 40), np.float32)
    if published:
        assert li.load(changed)(x=x)["y"].shape == (40, 3, H)  # there is no queue, so none is passed
    else:
        with pytest.raises(li.LstmIrError):
            li.load(changed)(x=x)


def _changed(path: Path, version: int, work: dict[str, list[object]] | None) -> Path:
    """A copy of the package with another format and other work."""
    with zipfile.ZipFile(path) as archive:
        files = {i.filename: archive.read(i) for i in archive.infolist()}
    data = json.loads(files["manifest.json"])
    data["format"] = version
    if version < 4:
        assert data.pop("graph") is None
    for target in data["targets"]:
        target["work"] = work
        if work is None:
            del target["work"]
    files["manifest.json"] = json.dumps(data).encode()
    out = path.with_name(f"changed{version}.lirpkg")
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out


def test_memory_of_one_device_is_good_for_the_other(rng: np.random.Generator) -> None:
    """State that a call on workers wrote is read by the caller's thread, and back."""
    B = 24
    x, states = li.input("x", ("T", B, 40)), [li.input(n, (1, B, H)) for n in ("h0", "c0")]
    w, r = (li.weight(n, rng.uniform(-0.1, 0.1, (4 * H, k)).astype(np.float32)) for n, k in (("w", 40), ("r", H)))
    y, h_n, c_n = li.lstm(x, w, r, h0=states[0], c0=states[1])
    step = li.Graph("step", [x, *states], {"y": y, "h_n": h_n, "c_n": c_n})
    exe = li.compile(li.stateful(step, {"h0": "h_n", "c0": "c_n"}))
    kept = {n: np.zeros((1, B, H), np.float32) for n in ("h0", "c0")}
    drivers = []
    for T in (400, 1, 400, 3):
        drivers.append(loaded(exe).choice("step", {"T": T}).driver)
        given = rng.standard_normal((T, B, 40)).astype(np.float32)
        want = li.interpret(step, {"x": given, **kept})
        kept = {"h0": want["h_n"], "c0": want["c_n"]}
        np.testing.assert_allclose(exe.entries["step"](x=given)["y"], want["y"], rtol=2e-5, atol=2e-5)
    assert drivers == [WORKERS, CALLER, WORKERS, CALLER]


def test_one_thread_runs_everything() -> None:
    assert runtime.threads() > 1
    from lstm_ir.backends.run.threads.choice import choose

    assert choose(10**12, 1, 1, 1).driver == CALLER
