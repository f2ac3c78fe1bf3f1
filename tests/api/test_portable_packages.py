"""What `cpu` means in a package: a module for each level of the architecture, of which the loader takes the best."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lstm_ir as li
from lstm_ir.backends.files.archive import read_package
from lstm_ir.backends.targets import cpus
from lstm_ir.cli.group import group

RNG = np.random.default_rng(20261123)
W, R, B = (RNG.standard_normal(s).astype(np.float32) * 0.3 for s in ((1, 68, 13), (1, 68, 17), (1, 68)))
X = RNG.standard_normal((7, 3, 13)).astype(np.float32)
pytestmark = [
    pytest.mark.skipif(cpus.machine() != "x86_64", reason="levels of x86-64"),
    pytest.mark.xdist_group("portable"),  # one process makes the packages
]


def graph() -> li.Graph:
    x = li.input("x", ("T", "B", 13))
    return li.Graph("levels", [x], {"y": li.lstm(x, li.weight("w", W), li.weight("r", R), li.weight("b", B))[0]})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return li.export(graph(), tmp_path_factory.mktemp("package") / "m.lirpkg")


def test_modules_of_three_levels_and_the_weights_once(package: Path) -> None:
    found = read_package(package)
    assert [t.info.name for t in found.targets] == ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"]
    weights = sum(a.nbytes for a in (W, R, B))
    modules = sum(len(found.blobs[t.file]) for t in found.targets)
    assert weights + modules < package.stat().st_size < weights + modules + 40_000


@pytest.mark.parametrize(
    ("absent", "level"), [((), "v4"), (("avx512",), "v3"), (("avx", "fma", "f16c"), "v2")], ids=["v4", "v3", "v2"]
)
def test_the_loader_takes_the_best_and_says_so(
    package: Path, monkeypatch: pytest.MonkeyPatch, absent: tuple[str, ...], level: str
) -> None:
    target = next(t for t in read_package(package).targets if t.info.name.endswith(level))
    if cpus.refusal(target.info.triple, target.features) is not None:
        pytest.skip(f"a processor without x86-64-{level}")
    flags = frozenset(f for f in cpus.flags() if not f.startswith(absent))
    monkeypatch.setattr(cpus, "flags", lambda: flags)
    monkeypatch.setattr(cpus, "_confirmed", set())
    exe = li.load(package)
    assert str(exe.target) == f"cpu:x86-64-{level}"
    np.testing.assert_allclose(exe(x=X)["y"], li.interpret(graph(), {"x": X})["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", ["v2", "v3"])
def test_a_module_is_chosen_by_its_name(package: Path, level: str) -> None:
    name = f"cpu:x86-64-{level}"
    target = next(t for t in read_package(package).targets if t.info.name == name)
    if (why := cpus.refusal(target.info.triple, target.features)) is not None:
        pytest.skip(why)
    exe = li.load(package, device=name)
    assert str(exe.target) == name
    np.testing.assert_allclose(exe(x=X)["y"], li.interpret(graph(), {"x": X})["y"], rtol=1e-4, atol=1e-5)


def test_a_module_that_is_chosen_and_does_not_run_here_is_refused(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpus, "flags", lambda: frozenset({"pni", "ssse3", "sse4_1", "sse4_2"}))
    monkeypatch.setattr(cpus, "_confirmed", set())
    with pytest.raises(li.TargetError, match=r"no module runs here: cpu:x86-64-v3: this processor lacks [^;]*$"):
        li.load(package, device="cpu:x86-64-v3")


@pytest.mark.parametrize("word", ["cpu:x86-64-v5", "x86-64-v2", "cpu:0", "cpuu", "cuda", "local-sync:a"])
def test_a_device_that_is_none_is_told_what_there_is(package: Path, word: str) -> None:
    """`cpu:0`: of the processor there is one."""
    with pytest.raises(li.TargetError) as refused:
        li.load(package, device=word)
    text = str(refused.value)
    assert f"no module for device {word}" in text
    assert "name one of them, or where it runs: cpu, local-task, local-sync" in text
    assert all(level in text for level in ("cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"))


@pytest.mark.parametrize("word", ["", 0])
def test_what_is_no_word_of_a_device(package: Path, word: Any) -> None:
    with pytest.raises(li.TargetError, match=f"^device is {word!r}; expected a word like 'vulkan:1'"):
        li.load(package, device=word)


def test_the_command_line_names_the_module(package: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    done = CliRunner().invoke(group, ["run", str(package), "-i", f"x={tmp_path / 'x.npy'}", "--explain"])
    assert done.exit_code == 0, done.output
    assert f"{package}: its module for {li.load(package).target}" in done.output


def test_two_words_for_one_target_are_one_module(tmp_path: Path) -> None:
    x = li.input("x", (3,))
    words = [
        "cpu:x86_64",
        "cpu:x86-64",
        "cpu:x86-64-v1",
        "cpu:x86-64-v3",
        "cpu",
        "cuda:sm_90",
        "cuda:sm_89",
        "cuda:sm_90a",
    ]
    path = li.export(li.Graph("g", [x], {"y": -x}), tmp_path / "m.lirpkg", words)
    names = [t.info.name for t in read_package(path).targets]
    assert names == ["cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v2", "cpu:x86-64-v4", "cuda:sm_89"]
