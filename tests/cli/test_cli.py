"""The command line: text in and out, packages, pictures, and messages instead of tracebacks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.cli import group
from lstm_ir.verification import hardware

Capture = pytest.CaptureFixture[str]
T, B, I, H = 11, 3, 5, 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """g.lir, its weights, an input, and what the NumPy meaning says."""
    path = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(43)
    shapes = {"w_ih": (4 * H, I), "w_hh": (4 * H, H)}
    weights: dict[str, Any] = {n: (0.4 * rng.standard_normal(s)).astype("f4") for n, s in shapes.items()}
    x = li.input("x", ("T", "B", I))
    y, h, _ = li.lstm(x, li.weight("w_ih", weights["w_ih"]), li.weight("w_hh", weights["w_hh"]))
    g = li.Graph("small", [x], {"y": y, "h": h})
    a = rng.standard_normal((T, B, I)).astype("f4")
    (path / "g.lir").write_text(str(g))
    np.savez(path / "w.npz", **weights)
    np.save(path / "x.npy", a)
    np.savez(path / "want.npz", **li.interpret(g, x=a))  # type: ignore[arg-type]
    return path


def call(*args: str | Path) -> int:
    return group.run(list(map(str, args)))


def process(*args: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lstm_ir", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, **more)


def close(got: Path, want: Path) -> None:
    with np.load(got, allow_pickle=False) as a, np.load(want, allow_pickle=False) as b:
        assert set(a.files) == set(b.files)
        for name in a.files:
            np.testing.assert_allclose(a[name], b[name], rtol=2e-5, atol=2e-5)


def test_help_names_every_verb_and_imports_little() -> None:
    code = (
        "import sys; from lstm_ir.cli.group import run; code = run(['--help'])\n"
        "heavy = ['networkx', 'lark', 'rich', 'iree', 'ml_dtypes', 'lstm_ir.api']\n"
        "print([m for m in heavy if m in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "[]"
    for verb in group.VERBS:
        assert f"  {verb} " in done.stdout


@pytest.mark.parametrize("verb", group.VERBS)
def test_every_verb_explains_itself(verb: str, capsys: Capture) -> None:
    assert call(verb, "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: lstm-ir {verb}")
    command = group.group.get_command(click.Context(group.group), verb)
    assert command is not None
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{verb} {option.opts[0]} has no help"


def test_version(capsys: Capture) -> None:
    assert call("--version") == 0
    assert re.fullmatch(r"lstm-ir, version \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_opt_reads_and_writes_text_that_chains(folder: Path, tmp_path: Path) -> None:
    one = process("opt", folder / "g.lir", "-p", "decompose")
    assert one.returncode == 0
    assert " scan(" in one.stdout
    assert " lstm(" not in one.stdout
    two = process("opt", "-p", "decompose,cse", input=one.stdout)
    assert two.returncode == 0
    assert isinstance(li.parse(two.stdout), li.Graph)
    assert process("opt", folder / "g.lir", "-p", "decompose,cse").stdout == two.stdout


def test_opt_says_what_passes_did(folder: Path, capsys: Capture) -> None:
    assert call("opt", folder / "g.lir", "-p", "decompose,cse", "--explain", "--time",
                "--print-each", "--locs") == 0  # fmt: skip
    out, err = capsys.readouterr()
    assert re.search(r"// decompose: changed \(\d+\.\d ms\)", err)
    assert "//   fired decompose lstm" in err
    assert "graph @small" in err
    assert "<- decompose" in out


def test_opt_stops_after_a_pass_by_name_or_number(folder: Path, capsys: Capture) -> None:
    for stop in ("cse", "1"):
        assert call("opt", folder / "g.lir", "-p", "cse,decompose", "--stop-after", stop) == 0
        assert " lstm(" in capsys.readouterr().out
    assert call("opt", folder / "g.lir", "-p", "cse", "--stop-after", "decompose") == 1
    assert "the pipeline is cse" in capsys.readouterr().err


def test_opt_lists_passes(capsys: Capture) -> None:
    from lstm_ir.passes.pipelines import registry

    assert call("opt", "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == set(registry())
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.parametrize("verb", ["compile", "import"])
def test_the_help_names_the_targets_that_have_kernels(verb: str, capsys: Capture) -> None:
    assert call(verb, "--help") == 0
    words = " ".join(capsys.readouterr().out.split())
    have = [
        word for word in ("cpu:x86-64", "cuda:sm_80", "hip:gfx942", "vulkan", "metal") if resolve(word).info.kernels
    ]
    assert have == ["cpu:x86-64", "cuda:sm_80", "vulkan"]
    assert "default: kernels on CPUs, CUDA and Vulkan." in words


@pytest.mark.parametrize("stage", ["source", "core", "scheduled", "stablehlo", "kernel"])
def test_show_prints_every_stage(folder: Path, stage: str, capsys: Capture) -> None:
    assert call("show", folder / "g.lir", "--stage", stage) == 0
    text = capsys.readouterr().out
    if stage in ("stablehlo", "kernel"):
        assert "module" in text
        assert "func.func" in text
    else:
        graph = li.parse(text)
        assert isinstance(graph, li.Graph)
        ops = {n.op.name for n in graph.nodes}
        assert ("lstm" in ops) == (stage != "scheduled")


@pytest.mark.parametrize(
    "words",
    [
        "--stage source -t vulkan", "--stage source -p core", "--stage core -p nonsense", "--stage stablehlo -t vulkan",
        "--stage kernel --locs", "--stage module --beside -o m.vmfb", "--stage module --locs -o m.vmfb",
        "--profile --weights-to w.npz -o p.svg", "--profile --beside -o p.svg", "--profile --locs -o p.svg",
        "--profile --c -o p.svg", "--c -p core", "--c -w w.npz", "--contents -t cpu",
    ],
)  # fmt: skip
def test_show_refuses_what_has_no_meaning_for_a_stage(words: str, folder: Path, capsys: Capture) -> None:
    what, option = words.split()[:2] if words.startswith("--stage") else (words.split()[0], "")
    assert call("show", folder / "g.lir", *words.split()) == 2
    shown = f"{what} {option}".strip()
    assert f"{shown} takes no -" in capsys.readouterr().err


def test_show_draws_before_and_after(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "g.svg"
    assert call("show", folder / "g.lir", "--stage", "scheduled", "--beside", "-o", out) == 0
    root = ET.parse(out).getroot()
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{name}svg"
    words = [t.text for t in root.iter(f"{name}text")]
    assert {"@small, source", "@small, scheduled", "lstm", "scan", "→ y", "w_ih"} <= set(words)
    assert list(tmp_path.iterdir()) == [out]


def test_a_package_runs_as_the_graph_means(folder: Path, tmp_path: Path) -> None:
    package, out = tmp_path / "g.lirpkg", tmp_path / "out.npz"
    assert call("compile", folder / "g.lir", "-w", folder / "w.npz", "-o", package) == 0
    assert call("run", package, "-i", f"x={folder / 'x.npy'}", "-o", out) == 0
    close(out, folder / "want.npz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.lirpkg", "out.npz"]


def test_a_package_of_a_program_has_its_state(tmp_path: Path) -> None:
    start = np.asarray([2, -3, 5], "f4")
    x, before = li.input("x", ("T", 3)), li.input("before", (3,))
    graph = li.Graph("running", [x, before], {"total": before + li.sum(x, 0)})
    (tmp_path / "r.lir").write_text(str(li.stateful(graph, {"before": "total"}, {"before": start})))
    assert call("compile", tmp_path / "r.lir", "-o", tmp_path / "r.lirpkg") == 0
    exe = li.load(tmp_path / "r.lirpkg")
    np.testing.assert_array_equal(exe.state["before"], start)
    rows = np.arange(12, dtype="f4").reshape(4, 3)
    exe.entries["step"](x=rows[:1])
    exe.entries["step"](x=rows[1:])
    np.testing.assert_array_equal(exe.state["before"], start + rows.sum(0))


@pytest.mark.parametrize("how", [["--interpret"], ["--device", "cpu"], ["--device", "local-sync"]])
def test_a_graph_runs(folder: Path, tmp_path: Path, how: list[str]) -> None:
    out = tmp_path / "out.npz"
    given = ("-i", f"x={folder / 'x.npy'}", "-w", folder / "w.npz", "-o", out)
    assert call("run", folder / "g.lir", *given, *how) == 0
    close(out, folder / "want.npz")


def test_run_prints_a_summary(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    np.savez(tmp_path / "all.npz", x=np.load(folder / "x.npy"))
    for given in (tmp_path / "all.npz", f"x={tmp_path / 'all.npz'}:x"):
        assert call("run", folder / "g.lir", "-w", folder / "w.npz", "--interpret", "-i", given) == 0
        assert f"y: float32[{T},{B},{H}] [" in capsys.readouterr().out


@pytest.mark.slow
def test_targets_are_tried(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("cpu:x86-64-v2", "cpu:aarch64", "cpu:8086")
    monkeypatch.setattr(hardware, "trials", lambda: map(hardware.trial, words))
    assert call("targets", "--check") == 0
    own, *others = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"cpu:x86-64-v2 +compiles, \d+ bytes; runs, right: largest difference \S+", own)
    assert re.fullmatch(r"cpu:aarch64 +compiles, \d+ bytes; does not run here: .*made for aarch64.*", others[0])
    assert re.fullmatch(r"cpu:8086 +does not compile: .*8086.*", others[1])
    wrong = hardware.Trial("cpu:x86-64-v2", 100, worst=0.5)
    monkeypatch.setattr(hardware, "trials", lambda: iter([wrong]))
    assert call("targets", "--check") == 1
    assert "WRONG: largest difference 5.0e-01" in capsys.readouterr().out


def test_targets_name_devices_and_reasons(capsys: Capture) -> None:
    assert call("targets") == 0
    lines = capsys.readouterr().out.splitlines()
    for kind in ("cpu", "vulkan", "cuda", "hip", "metal"):
        (line,) = (text for text in lines if text.startswith(f"{kind} "))
        assert "compiles here" in line
        assert re.search(r"runs here (on|as) \S|does not run here: \S", line)
    assert call("targets", "--words") == 0
    assert "cuda:sm_89" in capsys.readouterr().out.splitlines()


def keeping(folder: Path) -> li.Program:
    """An LSTM that keeps its states, which start as arrays of more than 16 elements."""
    with np.load(folder / "w.npz") as held:
        w_ih, w_hh = (li.weight(n, held[n]) for n in ("w_ih", "w_hh"))
    x, h0, c0 = li.input("x", ("T", B, I)), li.input("h0", (1, B, H)), li.input("c0", (1, B, H))
    y, h, c = li.lstm(x, w_ih, w_hh, h0=h0, c0=c0)
    kept = li.Graph("keeping", [x, h0, c0], {"y": y, "h": h, "c": c})
    start = np.arange(B * H, dtype=np.float32).reshape(1, B, H)
    return li.stateful(kept, {"h0": "h", "c0": "c"}, {"h0": start, "c0": start / 2})


BAD: list[tuple[list[str], int, str]] = [
    (["frobnicate"], 2, "No such command 'frobnicate'"),
    (["show", "absent.lir"], 1, "absent.lir: No such file or directory"),
    (["show", "."], 1, "Is a directory"),
    (["show", "w.npz"], 1, "w.npz: not UTF-8 text"),
    (["show", "bad.lir"], 1, "bad.lir: line 1, column 21: unexpected"),
    (["show", "g.lir", "--stage", "stablehlo", "-o", "x.svg"], 2, "stablehlo is a module"),
    (["show", "g.lir", "-o", "absent/x.svg"], 1, "No such file or directory"),
    (["show", "g.lir", "-o", "g.png"], 2, "nothing is written as .png; the endings are .lir, .mlir, .txt, .svg"),
    (["show", "g.lir", "--stage", "module", "-o", "g.so"], 2, "nothing is written as .so; the endings are .vmfb"),
    (["show", "g.lir", "--locs", "-o", "g.svg"], 2, "--locs is of a text"),
    (["opt", "g.lir", "-o", "g.svg"], 2, "nothing is written as .svg; the endings are .lir, .mlir, .txt"),
    (["run", "g.lir", "--profile", "--picture", "g.png"], 2, "--picture g.png: nothing is written as .png"),
    (["run", "state.lir"], 1, "has only the hash of weight 'w_ih' (4 such); give the arrays with --weights FILE.npz"),
    (["run", "state.lir", "-w", "w.npz"], 1, "only the hash of state 'h0' (2 such); give the arrays with --weights"),
    (["run", "table.lir"], 1, "has only the hash of constant sha256("),
    (["opt", "g.lir", "-p", "fuse-everything"], 1, "there is no pass 'fuse-everything'"),
    (["compile", "g.lir", "-o", "g.zip"], 2, "a package ends in .lirpkg"),
    (["compile", "g.lir", "-o", "g.lirpkg"], 1, "only the hash of weight 'w_ih'"),
    (["compile", "g.lir", "-w", "x.npy", "-o", "g.lirpkg"], 1, "expected a .npz or .safetensors"),
    (["compile", "g.lir", "-w", "w.npz", "-t", "vulcan", "-o", "g.lirpkg"], 1, "near names"),
    (["run", "absent.lirpkg"], 1, "absent.lirpkg"),
    (["run", "torn.lirpkg"], 1, "torn.lirpkg"),
    (["run", "g.lir", "-w", "w.npz", "--interpret"], 1, "missing input x"),
    (["run", "g.lir", "-w", "w.npz", "--interpret", "-d", "vulkan"], 2, "--interpret compiles nothing"),
    (["run", "g.lir", "-w", "w.npz", "--interpret", "--explain"], 2, "--interpret compiles nothing"),
    (["run", "g.lir", "-w", "w.npz", "--interpret", "-i", "x=pickled.npy"], 1, "pickled"),
    (["run", "g.lir", "-w", "w.npz", "--interpret", "-i", "x=huge.npy"], 1, "does not fit"),
    (["run", "g.lir", "-w", "w.npz", "--interpret", "-i", "x=bad.lir"], 2, "expected a .npy file"),
    (["run", "g.lir", "-w", "w.npz", "-i", "x=x.npy", "-d", "quantum"], 1, "unknown target"),
    (["run", "g.lir", "-w", "w.npz", "--interpret", "-i", "x=x.npy", "-o", "y.npy"], 2, "outputs"),
]  # fmt: skip


def test_what_state_starts_as_comes_from_a_file_by_its_name(folder: Path, tmp_path: Path) -> None:
    program = keeping(folder)
    (tmp_path / "s.lir").write_text(str(program))
    start: dict[str, Any] = {n: s.initial.array for n, s in program.state.items()}
    np.savez(tmp_path / "start.npz", **start)
    arrays: list[str | Path] = ["-w", folder / "w.npz", "-w", tmp_path / "start.npz"]
    out, x = tmp_path / "y.npy", folder / "x.npy"
    assert call("run", tmp_path / "s.lir", *arrays, "-e", "step", "-i", f"x={x}", "-o", out) == 0
    want = li.interpret(program.entries["main"], {"x": np.load(x), **start})["y"]
    np.testing.assert_allclose(np.load(out), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("args", "code", "text"), BAD, ids=[" ".join(a) for a, _, _ in BAD])
def test_bad_usage_gets_a_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, args: list[str], code: int,
    text: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    (folder / "bad.lir").write_text("graph @g(%x: f32[3] # {")
    (folder / "torn.lirpkg").write_bytes(b"PK\3\4 and then nothing")
    np.save(folder / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    (folder / "state.lir").write_text(str(keeping(folder)))
    x = li.input("x", (32,))
    (folder / "table.lir").write_text(str(li.Graph("table", [x], {"y": x * np.arange(32, dtype=np.float32)})))
    header = np.lib.format.header_data_from_array_1_0(np.zeros(1))
    with (folder / "huge.npy").open("wb") as f:
        np.lib.format.write_array_header_1_0(f, {**header, "shape": (2**40,)})
    before = sorted(p.name for p in folder.iterdir())
    assert call(*args) == code
    out, err = capsys.readouterr()
    assert text in err
    assert "Traceback" not in out + err
    assert "fault of lstm-ir itself" not in err
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    command = f"{sys.executable} -m lstm_ir show g.lir --stage stablehlo | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_interrupting_a_compile_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    """SIGINT while the compiler runs: one line, exit code 130, no file and no process."""
    big = tmp_path / "big.lir"
    lines = [f"  %{i + 1} = tanh(%{i}) : f32[64,64]" for i in range(4000)]
    big.write_text("graph @big(%x: f32[64,64]) {\n  %0 = tanh(%x) : f32[64,64]\n"
                   + "\n".join(lines) + "\n  return %4000\n}\n")  # fmt: skip
    command = [sys.executable, "-m", "lstm_ir", "compile", str(big), "-o", str(tmp_path / "o.lirpkg")]
    env = {**os.environ, "LSTM_IR_CACHE": "off"}
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env,
                             start_new_session=True)  # fmt: skip
    compilers: list[int] = []
    end = time.monotonic() + 120
    while not compilers and child.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
        compilers = children(child.pid, "iree-compile")
    assert compilers, "the compiler was never seen"
    child.send_signal(signal.SIGINT)
    try:
        _, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 130
    assert err.splitlines()[-1] == "lstm-ir: interrupted"
    assert "Traceback" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["big.lir"]
    assert not [pid for pid in compilers if Path(f"/proc/{pid}").exists()]


def children(parent: int, name: str) -> list[int]:
    """Processes whose parent and name are these."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            head, _, tail = place.read_text().rpartition(")")
            if name.startswith(head.partition("(")[2]) and int(tail.split()[1]) == parent:
                found.append(int(place.parent.name))
    return found
