"""`lstm-ir import` and `lstm-ir verify`: what they print, the packages they write, and their exit codes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li
from lstm_ir.cli import group, importing

Capture = pytest.CaptureFixture[str]
I, H = 5, 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """good.onnx, an LSTM with states; rate.onnx, which wants a constant; bad.onnx with two refusals."""
    need("onnx", "onnx_ir")
    path = tmp_path_factory.mktemp("onnx")
    rng = np.random.default_rng(44)
    need("onnx", "onnx_ir")
    shapes = {"W": (1, 4 * H, I), "R": (1, 4 * H, H)}
    weights = {n: rng.standard_normal(s).astype("f4") / 2 for n, s in shapes.items()}
    states = {n: ([1, "B", H], "f4") for n in ("h0", "c0")}
    inputs: dict[str, Any] = {"x": (["T", "B", I], "f4"), **states}
    layer = om.node("LSTM", ["v", "W", "R", "", "", "h0", "c0"], ["Y", "h1", "c1"], hidden_size=H, name="/rnn/LSTM")
    outs = ["Y", "h1", "c1"]
    plain = om.node("Identity", ["x"], ["v"])
    then, other = (om.graph([om.node(op, ["x"], [op])], {}, [op]) for op in ("Neg", "Identity"))
    choice = [
        om.node("Equal", ["rate", "high"], ["is"]),
        om.node("If", ["is"], ["v"], then_branch=then, else_branch=other),
    ]
    odd = [om.node("Odd\x1b[31m", ["x"], ["v"], name="odd\x1b[2J[bold]"), om.node("NoSuchOp", ["x"], ["z"])]
    models = {
        "good": om.model([plain, layer], inputs, outs, weights),
        "rate": om.model([*choice, layer], {**inputs, "rate": ([], "i8")}, outs, {**weights, "high": np.array(16000)}),
        "bad": om.model([*odd, layer], inputs, [*outs, "z"], weights),
    }
    for name, model in models.items():
        (path / f"{name}.onnx").write_bytes(model.SerializeToString())
    return path


def call(*args: str | Path) -> int:
    return group.run(list(map(str, args)))


# import -----------------------------------------------------------------------------------------


def test_the_report_stands_on_one_screen(folder: Path, capsys: Capture) -> None:
    assert call("import", folder / "good.onnx") == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].endswith("operator set 22, 2 nodes of 2 ops: taken")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 120
    assert "ops taken   Identity 1  LSTM 1" in lines
    assert "open sizes  T (x axis 0)  B (x axis 1, h0 axis 1, c0 axis 1)" in lines
    assert "state       h0 -> h1, f32[1,B,7], of /rnn/LSTM" in lines
    assert "1 x lstm forward T=T B=B I=5 H=7: kernel, " in out
    assert "2 arrays, 1.3 KiB: f32 1.3 KiB" in out


def test_all_refusals_are_printed_and_the_exit_code_is_1(folder: Path, capsys: Capture) -> None:
    assert call("import", folder / "bad.onnx", "-o", folder / "bad.lirpkg") == 1
    out = capsys.readouterr().out
    assert "2 refusals" in out
    assert re.search(r"^NoSuchOp +the_NoSuchOp +the op is not taken$", out, re.M)
    assert not (folder / "bad.lirpkg").exists()


def test_names_from_a_file_do_not_command_the_terminal(folder: Path, capsys: Capture) -> None:
    call("import", folder / "bad.onnx")
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    assert "\x1b[31m" not in out
    assert "[bold]" in out


def test_a_wanted_constant_is_named_with_what_to_type(folder: Path, capsys: Capture) -> None:
    assert call("import", folder / "rate.onnx") == 1
    assert "rate, compared with 16000: --constant rate=16000" in capsys.readouterr().out
    assert call("import", folder / "rate.onnx", "--constant", "rate=16000") == 0
    assert "1 nodes in branches that are not taken" in capsys.readouterr().out


def test_the_report_as_json(folder: Path, capsys: Capture) -> None:
    assert call("import", folder / "rate.onnx", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["constants"] == [{"input": "rate", "values": [16000]}]
    assert found["refusals"][0]["op"] == "If"
    assert call("import", folder / "good.onnx", "--json", "--no-kernels") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["target"], found["nodes"]) == (True, "cpu", 2)
    assert found["recurrences"][0]["runs"] == "loop: without kernels"


def test_a_package_of_a_model(folder: Path, tmp_path: Path, rng: np.random.Generator, capsys: Capture) -> None:
    package = tmp_path / "m.lirpkg"
    assert call("import", folder / "rate.onnx", "-o", package, "--constant", "rate=16000", "--size", "B=3") == 0
    assert "m.lirpkg: cpu:" in capsys.readouterr().err
    graph = li.from_onnx(folder / "rate.onnx", constants={"rate": 16000}, sizes={"B": 3})
    given = {"x": rng.standard_normal((11, 3, I)).astype("f4")}
    given |= {n: rng.standard_normal((1, 3, H)).astype("f4") for n in ("h0", "c0")}
    with li.load(package) as exe:
        got, want = exe(given), li.interpret(graph, given)
    assert set(got) == {"Y", "h1", "c1"}
    for n, a in want.items():
        np.testing.assert_allclose(got[n], a, rtol=2e-5, atol=2e-5)


def test_states_by_name(folder: Path, tmp_path: Path, capsys: Capture, rng: np.random.Generator) -> None:
    """One call of two steps, and two calls of one."""
    package, model = tmp_path / "s.lirpkg", folder / "good.onnx"
    words = ["--state", "h0=h1", "--state", "c0=c1", "--size", "B=2", "--size", "T=1"]
    assert call("import", model, *words, "-o", package, "-t", "cpu:host") == 0
    said = capsys.readouterr().out
    assert f"kept           h0: f32[1,2,{H}]" in said
    assert f"kept           c0: f32[1,2,{H}]" in said
    x, zero = rng.standard_normal((2, 2, I)).astype("f4"), np.zeros((1, 2, H), "f4")
    want = li.interpret(li.from_onnx(model), {"x": x, "h0": zero, "c0": zero})["Y"]
    with li.load(package) as exe:
        step = exe.entries["step"]
        assert [p.name for p in step.inputs] == ["x"]
        got = [step(x=x[t : t + 1])["Y"] for t in range(2)]
    np.testing.assert_allclose(np.concatenate(got), want, rtol=2e-5, atol=2e-5)


def test_stateful_says_what_it_keeps(rng: np.random.Generator, tmp_path: Path, capsys: Capture) -> None:
    need("onnx", "onnx_ir")
    shapes = {"W": (1, 4 * H, I), "R": (1, 4 * H, H)}
    weights = {n: rng.standard_normal(s).astype("f4") / 2 for n, s in shapes.items()}
    layer = om.node("LSTM", ["x", "W", "R"], ["Y"], hidden_size=H, name="/rnn/LSTM")
    data = om.model([layer], {"x": (["T", "B", I], "f4")}, ["Y"], weights).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    assert call("import", tmp_path / "m.onnx", "--stateful") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()].count("kept") == 2
    assert call("import", tmp_path / "m.onnx", "--stateful", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["kept"]) == 2


def test_a_model_that_looks_ahead_is_reported_before_its_stream_is_refused(
    rng: np.random.Generator, tmp_path: Path, capsys: Capture
) -> None:
    """Its text and its JSON; no package is written."""
    need("onnx", "onnx_ir")
    shapes = {"W": (1, 4 * H, I), "R": (1, 4 * H, H)}
    weights = {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}
    layer = om.node("LSTM", ["x", "W", "R"], ["Y"], hidden_size=H, name="/rnn/LSTM", direction="reverse")
    model, package = tmp_path / "m.onnx", tmp_path / "m.lirpkg"
    model.write_bytes(om.model([layer], {"x": (["T", "B", I], "f4")}, ["Y"], weights).SerializeToString())
    assert call("import", model, "--stateful", "-o", package) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0].endswith("operator set 22, 1 nodes of 1 ops: taken")
    assert f"1 x lstm reverse T=T B=B I={I} H={H}: " in out
    assert "/rnn/LSTM (LSTM): " in err
    assert not package.exists()
    assert call("import", model, "--stateful", "--json") == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["ok"], found["kept"], found["recurrences"][0]["direction"]) == (True, {}, "reverse")
    assert "/rnn/LSTM (LSTM): " in err


def test_states_are_named_or_found(folder: Path, capsys: Capture) -> None:
    assert call("import", folder / "good.onnx", "--stateful", "--state", "h0=h1") == 2
    assert "--stateful finds what is kept, --state names it" in capsys.readouterr().err
    assert call("import", folder / "good.onnx", "--state", "h0") == 2
    assert "--state h0: expected NAME=VALUE" in capsys.readouterr().err
    assert call("import", folder / "good.onnx", "--state", "nobody=h1") == 1
    assert "stateful has the input 'nobody'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_check_beside_onnxruntime(folder: Path, capsys: Capture) -> None:
    need("onnxruntime")
    assert call("import", folder / "rate.onnx", "--constant", "rate=16000", "--check") == 0
    assert "equal to rate.onnx by onnxruntime" in capsys.readouterr().out


@pytest.mark.slow
def test_a_check_is_of_what_the_options_make(folder: Path, capsys: Capture) -> None:
    """Weights of eight bits differ from onnxruntime's by more than roundings; of 32 bits they do not."""
    need("onnxruntime")
    assert call("import", folder / "good.onnx", "--check") == 0
    assert call("import", folder / "good.onnx", "--check", "--precision", "int8") == 1
    assert "say with --absolute and --relative how far" in capsys.readouterr().err
    assert call("import", folder / "good.onnx", "--check", "--pipeline", "no-such-pass") != 0
    capsys.readouterr()


def test_a_check_takes_limits(folder: Path, capsys: Capture) -> None:
    """Calls and streams; without --check they have no meaning."""
    need("onnxruntime")
    narrow: list[str | Path] = [folder / "good.onnx", "-t", "cpu:host", "--check", "--precision", "int8"]
    for states in ([], ["--state", "h0=h1", "--state", "c0=c1"]):
        assert call("import", *narrow, *states) == 1
        assert "say with --absolute and --relative how far" in capsys.readouterr().err
        assert call("import", *narrow, *states, "--absolute", "0.1") == 0
        assert call("import", *narrow, *states, "--absolute", "1e-9", "--relative", "0") == 1
        assert "--absolute" not in capsys.readouterr().err
    assert call("import", folder / "good.onnx", "--relative", "0.1") == 2
    assert "give --check too" in capsys.readouterr().err


def test_a_check_is_of_the_module_that_runs_here(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:  # fmt: skip
    """Of the levels that `cpu` stands for the one that the loader takes."""
    need("onnxruntime")
    words: list[str] = []

    def compiled(program: Any, word: str, **more: Any) -> li.Executable:
        words.append(word)
        return li.compile(program, word, **more)

    monkeypatch.setattr(importing, "compile", compiled)
    package = tmp_path / "m.lirpkg"
    assert call("import", folder / "good.onnx", "--check", "-o", package) == 0
    with li.load(package) as exe:
        assert words == [str(exe.target)]
    assert call("import", folder / "good.onnx", "--check", "-t", "cpu:host", "-t", "cpu") == 0
    assert words[1:] == ["cpu:host"]
    capsys.readouterr()


# verify -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_verify_prints_one_screen_and_its_exit_code_says_whether_all_is_equal(folder: Path, capsys: Capture) -> None:
    need("onnxruntime")
    how = ["--calls", "2", "--seconds", "0.02"]
    assert call("verify", folder / "good.onnx", *how) == 0
    out = capsys.readouterr().out
    assert "equal to good.onnx by onnxruntime" in out.splitlines()[0]
    assert "cold start" in out
    assert len(out.splitlines()) <= 24
    assert call("verify", folder / "good.onnx", *how, "--no-cold", "--absolute", "0", "--relative", "0") == 1
    assert "BEYOND" in capsys.readouterr().out


@pytest.mark.slow
def test_verify_as_json_over_given_sizes(folder: Path, capsys: Capture) -> None:
    need("onnxruntime")
    words = ["--constant", "rate=16000", "--try", "T=1,9", "--size", "B=N", "--try", "N=4", "--range", "x=-2..2"]
    assert call("verify", folder / "rate.onnx", *words, "--calls", "1", "--seconds", "0", "--no-cold", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [c["sizes"] for c in found["cases"]] == [{"N": 4, "T": 1}, {"N": 4, "T": 9}]
    assert found["ok"] is True
    assert {o["name"] for o in found["outputs"]} == {"Y", "h1", "c1"}


def test_the_report_where_stdout_is_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lstm_ir.importers.report_text import text

    report = li.examine(folder / "good.onnx").report
    monkeypatch.setattr(sys, "stdout", None)
    assert "good.onnx" in text(report)


USAGE: dict[str, tuple[list[str], str]] = {
    "constant without a value": (["import", "--constant", "rate"], "--constant rate: expected NAME=VALUE"),
    "constant that is no number": (["import", "--constant", "rate=fast"], "'fast' is not a number"),
    "constant twice": (["import", "--constant", "a=1", "--constant", "a=2"], "--constant a is given twice"),
    "package name": (["import", "-o", "m.onnx"], "a package ends in .lirpkg"),
    "explain without a package": (["import", "--explain"], "give -o too"),
    "sizes to try": (["verify", "--try", "T=1,x"], "expected whole numbers"),
    "range": (["verify", "--range", "x=1"], "expected LOW..HIGH"),
    "size of too many digits": (["import", "--size", "T=" + "9" * 5000], "sizes are 0 to 2^62 - 1"),
    "too large a size": (["import", "--size", f"T={2**62}"], "sizes are 0 to 2^62 - 1"),
    "sizes to try of too many digits": (["verify", "--try", "T=1," + "9" * 5000], "sizes are 0 to 2^62 - 1"),
    "constant of too many digits": (["import", "--constant", "a=" + "9" * 5000], "a number of 5000 characters"),
    "seed below 0": (["verify", "--seed", "-1"], "-1 is not in the range x>=0"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_code_2(case: str, folder: Path, capsys: Capture) -> None:
    (verb, *words), why = USAGE[case]
    assert call(verb, folder / "good.onnx", *words) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["import", "verify"])
def test_files_that_are_no_models_are_code_1(verb: str, tmp_path: Path, capsys: Capture) -> None:
    need("onnx")
    need("onnx_ir")
    (tmp_path / "junk.onnx").write_bytes(b"not a model")
    assert call(verb, tmp_path / "junk.onnx") == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    assert call(verb, tmp_path / "nothing.onnx") == 1
    assert "No such file" in capsys.readouterr().err


def test_constants_as_words() -> None:
    from lstm_ir.cli.model_options import constants, ranges, sizes

    found = constants(["a=3", "b=0.5", "c=true", "d=1,2,3", "name=with=4"])
    assert {n: (np.asarray(v).shape, np.asarray(v).tolist()) for n, v in found.items()} == {
        "a": ((), 3), "b": ((), 0.5), "c": ((), True), "d": ((3,), [1, 2, 3]), "name=with": ((), 4),
    }  # fmt: skip
    assert sizes(["T=100", "input_0=B"]) == {"T": 100, "input_0": "B"}
    assert ranges(["x=-1.5..2", "ids=0..99"]) == {"x": (-1.5, 2), "ids": (0, 99)}


@pytest.mark.parametrize("text", ["99999999999999999999999", "1,99999999999999999999999", "-1,18446744073709551615"])
def test_constants_that_no_integer_holds(text: str) -> None:
    from lstm_ir.cli.model_options import constants

    with pytest.raises(click.UsageError, match=f"--constant sr={text}: no integers of 64 bits"):
        constants([f"sr={text}"])
    assert constants(["sr=18446744073709551615"])["sr"].dtype == np.uint64


def test_constants_from_a_file(tmp_path: Path) -> None:
    from lstm_ir.cli.model_options import constants

    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    (found,) = constants([f"a={tmp_path / 'a.npy'}"]).values()
    np.testing.assert_array_equal(found, np.arange(6).reshape(2, 3))


def test_a_package_of_a_program_with_state(tmp_path: Path) -> None:
    """`lstm-ir compile` of a text that has state writes what the state starts as."""
    x, h = li.input("x", (3,)), li.input("h", (3,))
    program = li.stateful(li.Graph("sums", [x, h], {"y": x + h, "h1": x + h}), {"h": "h1"}, {"h": np.full(3, 2, "f4")})
    (tmp_path / "s.lir").write_text(str(program))
    assert call("compile", tmp_path / "s.lir") == 0
    with li.load(tmp_path / "s.lirpkg") as exe:
        ones = np.ones(3, np.float32)
        assert [exe.entries["step"](x=ones)["y"][0] for _ in range(2)] == [3, 4]
