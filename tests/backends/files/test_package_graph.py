"""The graph in a package: compiled again it is the same program, with weights and trained state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_packages import members, rebuild, rezip

import lstm_ir as li
from lstm_ir.backends import bindings
from lstm_ir.backends.files import archive
from lstm_ir.backends.files.archive import read_package
from lstm_ir.backends.run.package import open_package
from lstm_ir.cli.group import run

RNG = np.random.default_rng(20261124)
W, R, K = (0.4 * RNG.standard_normal(s).astype(np.float32) for s in ((20, 3), (20, 5), (5, 7)))
ROWS = [RNG.standard_normal((11, 4, 3)).astype(np.float32) for _ in range(6)]
HOST = ["cpu:host"]


def layer() -> li.Graph:
    """An LSTM, and a constant that is no weight and too large for the text."""
    x = li.input("x", ("T", "B", 3))
    y, h, _ = li.lstm(x, li.weight("w", W), li.weight("r", R), li.weight("small", np.zeros(20, np.float32) + 0.5))
    k = li.constant(K)
    return li.Graph("layer", [x], {"loss": li.mean(li.tanh(y @ k)), "z": h[0] @ k})


def learner() -> li.Program:
    return li.train_step(layer(), "loss", li.adam(0.05)).only("train", "infer")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return li.export(layer(), tmp_path_factory.mktemp("graph") / "m.lirpkg", HOST)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return li.export(learner(), tmp_path_factory.mktemp("trainer") / "m.lirpkg", HOST, {"kernels": False})


def test_modules_that_are_compiled_anew_alone_make_a_file_differ(tmp_path: Path) -> None:
    one, two = (li.export(layer(), tmp_path / f"{n}.lirpkg", HOST, {"cache": False}) for n in "ab")
    a, b = members(one), members(two)
    assert a.keys() == b.keys()
    differ = {name for name in a if a[name] != b[name]}
    assert differ <= {"module-0.vmfb", "manifest.json"}
    assert len(a["module-0.vmfb"]) == len(b["module-0.vmfb"])
    first, second = (json.loads(f["manifest.json"]) for f in (a, b))
    del first["members"]["module-0.vmfb"], second["members"]["module-0.vmfb"]
    assert first == second


def test_a_text_that_is_too_long_is_not_read(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "TEXT_LIMIT", 100)
    for call in (li.load, li.source):
        with pytest.raises(
            li.PackageError, match=r"graph\.lir has \d+ bytes; what the program has there takes at most 100"
        ):
            call(package)


def test_the_graph_comes_back(package: Path, trainer: Path) -> None:
    graph = li.source(package)
    assert isinstance(graph, li.Graph)
    assert str(graph) == str(layer())
    program = li.source(str(trainer))
    assert isinstance(program, li.Program)
    assert str(program) == str(learner())
    want = li.interpret(layer(), x=ROWS[0])
    np.testing.assert_array_equal(li.interpret(graph, x=ROWS[0])["z"], want["z"])


def test_members_and_what_is_recorded(package: Path, trainer: Path) -> None:
    assert set(members(package)) == {
        "manifest.json", "weights.safetensors", "module-0.vmfb", "graph.lir", "constants.safetensors",
    }  # fmt: skip
    manifest = json.loads(members(trainer)["manifest.json"])
    assert manifest["graph"] == {"targets": HOST, "options": {"kernels": False}}
    held = read_package(package).graph
    assert held is not None
    assert [a.tobytes() for a in held.constants.values()] == [K.tobytes()]
    assert str(Path(__file__).name) not in held.text  # whose file a node is from stays with its writer


def test_compiled_again_a_package_computes_the_same(package: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.lirpkg"
    assert run(["compile", str(package), "-o", str(new)]) == 0
    old, again = li.load(package), li.load(new)
    want = li.interpret(layer(), x=ROWS[0])
    for exe in (old, again):
        np.testing.assert_allclose(exe(x=ROWS[0])["z"], want["z"], rtol=2e-5, atol=2e-5)
    assert str(again.target) == str(old.target)
    for name, a in old.weights.items():
        np.testing.assert_array_equal(again.weights[name], a)
    assert str(li.source(new)) == str(layer())


def test_for_another_target(package: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.lirpkg"
    words = ["-t", "cpu:aarch64", "-t", "vulkan"]
    assert run(["compile", str(package), *words, "-o", str(new)]) == 0
    found = read_package(new)
    assert [t.info.name for t in found.targets] == ["cpu:aarch64", "vulkan"]
    assert found.manifest.recipe is not None
    assert found.manifest.recipe.targets == ("cpu:aarch64", "vulkan")


def test_training_goes_on_from_the_state_that_was_saved(trainer: Path, tmp_path: Path) -> None:
    new, saved = tmp_path / "new.lirpkg", tmp_path / "s.safetensors"
    old = li.load(trainer)
    for a in ROWS[:3]:
        old.entries["train"](x=a)
    old.save_state(saved)
    assert run(["compile", str(trainer), "-o", str(new)]) == 0
    assert json.loads(members(new)["manifest.json"])["graph"]["options"] == {"kernels": False}
    again = li.load(new)
    for name, start in li.load(trainer).state.items():
        np.testing.assert_array_equal(again.state[name], start)
    again.load_state(saved)
    for a in ROWS[3:]:
        want = old.entries["train"](x=a)["loss"]
        np.testing.assert_allclose(again.entries["train"](x=a)["loss"], want, rtol=1e-6)
    assert int(again.state["step"]) == len(ROWS)


def test_without_its_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = li.export(layer(), tmp_path / "m.lirpkg", HOST, graph=False)
    assert set(members(file)) == {"manifest.json", "weights.safetensors", "module-0.vmfb"}
    assert b"tanh" not in members(file)["manifest.json"]
    want = (
        f"{file}: the package has no graph: its writer left it out (graph=False, --no-graph). From the graph's text "
        f"and this package's arrays: lstm-ir compile GRAPH.lir --weights {file} -o NEW.lirpkg"
    )
    with pytest.raises(li.PackageError) as e:
        li.source(file)
    assert str(e.value) == want
    text, new = tmp_path / "g.lir", tmp_path / "new.lirpkg"
    text.write_text(str(layer()))
    assert run(["compile", str(text), "-w", str(li.export(layer(), tmp_path / "w.lirpkg", HOST)), "-t", "cpu:host",
                "-o", str(new), "--no-graph"]) == 0  # fmt: skip
    assert "graph.lir" not in members(new)
    capsys.readouterr()
    assert run(["show", str(new)]) == 1
    assert "the package has no graph: its writer left it out (graph=False, --no-graph)" in capsys.readouterr().err


def test_another_release_of_iree_is_told_the_command(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "version", lambda: "9.1.0")
    with pytest.raises(li.PackageError) as e:
        li.load(package)
    assert str(e.value) == (
        f"{package}: made with IREE 3.13.0, the runtime here is 9.1.0; install that release of iree-base-runtime. "
        f"Where the compiler is, `lstm-ir compile {package} -t TARGET -o NEW.lirpkg` makes it again"
    )
    assert str(li.source(package)) == str(layer())  # the graph needs no runtime


def test_a_package_without_a_module_for_this_machine_says_what_both_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far").mkdir()
    monkeypatch.chdir(tmp_path)
    file = li.export(layer(), "far/m.lirpkg", ["cpu:riscv64"])
    with pytest.raises(li.TargetError) as e:
        li.load(file)
    said = str(e.value)
    from lstm_ir.backends.targets import cpus

    assert f"no module runs here: cpu:riscv64: made for riscv64, this is {cpus.machine()}." in said
    assert f"This machine is {cpus.host_triple()} with " in said
    assert "`lstm-ir compile far/m.lirpkg -t TARGET -o NEW.lirpkg` makes it again" in said


def rehashed(files: dict[str, bytes]) -> list[tuple[str, bytes]]:
    """As somebody who knows the format would write other members."""
    manifest = json.loads(files["manifest.json"])
    manifest["members"] = {n: [len(d), hashlib.sha256(d).hexdigest()] for n, d in files.items() if n != "manifest.json"}
    return [*{**files, "manifest.json": json.dumps(manifest).encode()}.items()]


def swap(old: str, new: str) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        text = files["graph.lir"].decode()
        assert old in text
        files["graph.lir"] = text.replace(old, new).encode()

    return change


ALTERED: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "cut off": (lambda f: f.update({"graph.lir": f["graph.lir"][:-30]}), "line "),
    "not UTF-8": (lambda f: f.update({"graph.lir": b"\xff\xfe" + f["graph.lir"]}), "not UTF-8 text: byte 0"),
    "empty": (lambda f: f.update({"graph.lir": b""}), "the text ends too early"),
    "unknown op": (swap("= tanh(", "= tang("), "there is no op 'tang'"),
    "another entry": (swap("loss=", "less="), "the graph is not that of the package"),
    "another name": (swap("graph @layer(", "graph @player("), "the graph is not that of the package"),
    "another size": (swap("[T,B,3]", "[T,3,3]"), ""),
    "another weight's name": (swap('name="r"', 'name="q"'), "weight 'q' is not the one that the package has"),
    "no constants": (lambda f: f.pop("constants.safetensors"), "the package has no array with the hash "),
    "garbage for constants": (lambda f: f.update({"constants.safetensors": b"x" * 64}), "constants.safetensors: "),
}


@pytest.mark.parametrize("what", ALTERED)
def test_an_altered_text_is_a_package_error_that_names_the_file(package: Path, tmp_path: Path, what: str) -> None:
    change, said = ALTERED[what]
    files = members(package)
    change(files)
    file = tmp_path / "m.lirpkg"
    rezip(file, [*files.items()])
    with pytest.raises(li.PackageError):
        read_package(file)  # the hashes cover the text
    rezip(file, rehashed(files))
    with pytest.raises(li.PackageError) as e:
        li.source(file)
    assert str(e.value).startswith(f"{file}: ")
    assert said in str(e.value)
    np.testing.assert_array_equal(li.load(file)(x=ROWS[1])["z"], li.load(package)(x=ROWS[1])["z"])  # no text is run


@pytest.mark.parametrize(
    ("held", "stated"),
    [
        (np.array([2**53, 1], np.int64), np.array([2**53 + 1, 1], np.int64)),
        (np.array([0.0, 1.0], np.float32), np.array([-0.0, 1.0], np.float32)),
        (np.array([np.nan, 0.0], np.float64), np.array([np.nan, -0.0], np.float64)),
    ],
    ids=["integers beyond 2^53", "the sign of zero", "the sign of zero beside NaN"],
)
def test_a_text_with_other_bits_of_a_weight(tmp_path: Path, held: Any, stated: Any) -> None:
    """Numbers that f64 holds as one, and zeros that are equal, are other weights."""

    def graph(a: Any) -> li.Graph:
        x = li.input("x", ("B",), str(li.weight("w", a).type.dtype))
        return li.Graph("sum", [x], {"y": x + li.sum(li.weight("w", a))})

    files = [members(li.export(graph(a), tmp_path / f"{i}.lirpkg", HOST)) for i, a in enumerate((held, stated))]
    file = tmp_path / "m.lirpkg"
    rezip(file, rehashed({**files[0], "graph.lir": files[1]["graph.lir"]}))
    with pytest.raises(li.PackageError, match="weight 'w' is not the one that the package has"):
        li.source(file)
    assert str(li.source(tmp_path / "0.lirpkg")) == str(graph(held))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(graph=None),
        lambda m: m.pop("graph"),
        lambda m: m.update(graph=[]),
        lambda m: m.update(graph={"targets": ["cpu"]}),
        lambda m: m.update(graph={"targets": [], "options": {}}),
        lambda m: m.update(graph={"targets": [3], "options": {}}),
        lambda m: m.update(graph={"targets": ["cpu"], "options": []}),
        lambda m: m["members"].pop("graph.lir"),
        lambda m: m["members"].pop("constants.safetensors"),
    ],
)
def test_manifests_that_lie_about_the_graph(
    package: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    file = tmp_path / "m.lirpkg"
    file.write_bytes(package.read_bytes())
    rebuild(file, change)
    with pytest.raises(li.PackageError):
        open_package(file)


@pytest.mark.parametrize(
    "options", [{"flags": ["--iree-hal-dump-executable-files-to=/tmp"]}, {"timeout": 1}, {"kernels": "yes"}, {"x": 1}]
)
def test_options_that_no_package_records_are_refused(package: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """Flags above all: who writes a package would command a compiler."""
    file = tmp_path / "m.lirpkg"
    file.write_bytes(package.read_bytes())
    rebuild(file, lambda m: m["graph"].update(options=options))
    with pytest.raises(li.PackageError, match=r"graph\.lir: .*option"):
        li.source(file)


def test_flags_are_not_recorded(tmp_path: Path) -> None:
    given = {"flags": ["--iree-opt-level=O1"], "opt_level": "O2", "timeout": 100, "cache": False}
    file = li.export(layer(), tmp_path / "m.lirpkg", HOST, given)
    assert json.loads(members(file)["manifest.json"])["graph"]["options"] == {"opt_level": "O2"}
