"""Arguments of a wrong kind are refused by name at the edge, and files are written as asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir import api
from lstm_ir.cli.group import run
from lstm_ir.ir.output_file import replacing

X = li.input("x", (2,))
A = np.zeros(2, "f4")
G = li.Graph("g", [X], {"y": X + 1, "l": li.sum(X * li.weight("w", A))})
C = li.input("c", (3, 2, 2))
any_: Any = li
WRONG: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "interpret an array": (lambda: any_.interpret(G, np.zeros(3)), li.CallError),
    "interpret no graph": (lambda: any_.interpret("g"), li.CallError),
    "an input twice": (lambda: li.interpret(G, {"x": A}, x=A), li.CallError),
    "compile text": (lambda: any_.compile("g"), li.IRError),
    "no target": (lambda: any_.compile(G, target=None), li.TargetError),
    "a number as device": (lambda: any_.compile(G, device=5), li.TargetError),
    "load nothing": (lambda: any_.load(None), li.PackageError),
    "load on a number": (lambda: any_.load("a.lirpkg", device=5), li.TargetError),
    "parse nothing": (lambda: any_.parse(None), li.ParseError),
    "parse bytes": (lambda: any_.parse(b"graph"), li.ParseError),
    "a number as output": (lambda: any_.Graph("g", [X], {"y": 3}), li.IRError),
    "a number as input": (lambda: any_.Graph("g", [3], {}), li.IRError),
    "grad of nothing": (lambda: any_.grad(G, None, "x"), li.GradientError),
    "grad by nothing": (lambda: any_.grad(G, "l", None), li.GradientError),
    "grad of no graph": (lambda: any_.grad("g", "l", "x"), li.GradientError),
    "remat of text": (lambda: any_.grad(G, "l", "x", remat="a"), li.GradientError),
    "optimizer by name": (lambda: any_.train_step(G, "l", "adam"), li.GradientError),
    "optimizer not called": (lambda: any_.train_step(G, "l", li.adam), li.GradientError),
    "one beta": (lambda: any_.adam(1e-3, (0.9,)), li.IRError),
    "a beta of text": (lambda: any_.adam(1e-3, ("a", 0.9)), li.IRError),
    "no learning rate": (lambda: any_.sgd(None), li.IRError),
    "options of a number": (lambda: any_.compile(G, options=5), li.CompileError),
    "an axis that is a number with a point": (lambda: any_.sum(X, axis=0.0), li.IRError),
    "an axis that is true": (lambda: any_.softmax(X, axis=True), li.IRError),
    "axes in no list": (lambda: any_.transpose(X, axes=5), li.IRError),
    "an axis that is not there": (lambda: li.dim(X, 1), li.IRError),
    "keepdims of an array": (lambda: any_.sum(X, keepdims=np.zeros(2)), li.IRError),
    "a shape of a number": (lambda: any_.zeros(3), li.IRError),
    "a shape that is an array": (lambda: any_.broadcast_to(X, np.array(2)), li.IRError),
    "a dtype of a number": (lambda: any_.zeros((2,), dtype=5), li.IRError),
    "a dtype of fields": (lambda: any_.constant(1, dtype=[("a", "f4")]), li.IRError),
    "contracting a number": (lambda: any_.dot_general(X, X, contracting=0), li.IRError),
    "batching one side": (lambda: any_.dot_general(X, X, ((0,), (0,)), batching=((),)), li.IRError),
    "strides in no list": (lambda: any_.slice(X, (0,), (1,), strides=1), li.IRError),
    "edges in no list": (lambda: any_.pad(X, 1, 1), li.IRError),
    "three paddings": (lambda: any_.conv1d(C, C, padding=(1, 2, 3)), li.IRError),
    "a dilation of text": (lambda: any_.conv1d(C, C, dilation="2"), li.IRError),
    "reverse of a number": (lambda: any_.scan(lambda c, x: (c, x), X, C, reverse=1), li.IRError),
    "a name of bytes": (lambda: any_.scan(lambda c, x: (c, x), X, C, name=b"s"), li.IRError),
    "a direction of numbers": (lambda: any_.lstm(C, C, C, direction=np.zeros(2)), li.IRError),
    "a reduction of numbers": (lambda: any_.mse(X, X, reduction=np.zeros(2)), li.IRError),
    "a weight named by an array": (lambda: any_.weight(np.zeros(2), A), li.IRError),
    "a loss of a list": (lambda: any_.train_step(G, ["l"], li.sgd(0.1)), li.GradientError),
    "trainable by number": (lambda: any_.train_step(G, "l", li.sgd(0.1), 5), li.GradientError),
    "stop_on_nan of an array": (lambda: any_.train_step(G, "l", li.sgd(0.1), stop_on_nan=A), li.GradientError),
    "remat of an array": (lambda: any_.grad(G, "l", "x", remat=A), li.GradientError),
    "grad by an array of no axis": (lambda: any_.grad(G, "l", np.array(1)), li.GradientError),
    "lower with locs of text": (lambda: any_.lower(G, locs="yes"), li.CompileError),
    "lower by a pipeline of numbers": (lambda: any_.lower(G, pipeline=5), li.CompileError),
    "helpers of an array": (lambda: any_.compile(G, options={"helpers": A}), li.CompileError),
    "opt_level of an array": (lambda: any_.compile(G, options={"opt_level": A, "cache": False}), li.CompileError),
    "flags of a number": (lambda: any_.compile(G, options={"flags": 5, "cache": False}), li.CompileError),
    "a path with a null": (lambda: li.export(G, "a\0b.lirpkg"), li.PackageError),
}
OPTIONS: list[dict[str, Any]] = [
    {"timeout": -1}, {"timeout": 0}, {"timeout": float("nan")}, {"timeout": "a"}, {"timeout": None},
    {"timeout": True}, {"kernels": "no"}, {"cache": "off"}, {"pipeline": 5},
]  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_named(name: str) -> None:
    case, error = WRONG[name]
    with pytest.raises(error) as caught:
        case()
    assert isinstance(caught.value, li.LstmIrError)


def test_options_are_checked_where_the_module_is_cached_too() -> None:
    with li.compile(G) as exe:
        for options in OPTIONS:
            with pytest.raises(li.CompileError, match=next(iter(options))):
                li.compile(G, options=options)
        call: Any = exe
        with pytest.raises(li.CallError, match="arrays by name"):
            call(A)
        with pytest.raises(li.CallError, match="no entry is called 'nope'; there are main"):
            _ = exe.entries["nope"]
        with pytest.raises(li.CallError, match="no entry is called 'zz'"):
            call.profile("zz", {"x": A})
        assert "nope" not in exe.entries


def test_a_package_in_no_folder_is_refused_before_it_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def never(*given: Any, **more: Any) -> Any:
        raise AssertionError("compiled")

    monkeypatch.setattr(api, "build", never)
    with pytest.raises(li.PackageError, match=r"none/m\.lirpkg: No such file or directory"):
        li.export(G, tmp_path / "none" / "m.lirpkg")


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "m.lirpkg", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    li.export(G, link)
    assert link.is_symlink()
    with li.load(target) as exe:
        np.testing.assert_array_equal(exe(x=A)["y"], [1, 1])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "m.lirpkg"]


def test_what_is_no_file_is_written_through(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replacing(pipe) as f:
            f.write(b"through")
        assert os.read(end, 99) == b"through"
    finally:
        os.close(end)
    assert pipe.is_fifo()
    with pytest.raises(IsADirectoryError) as caught, replacing(tmp_path):
        pass
    assert caught.value.filename == str(tmp_path)


def _half(f: BinaryIO) -> None:
    f.write(b"new")
    raise MemoryError


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    old = tmp_path / "a"
    old.write_text("old")
    with pytest.raises(MemoryError), replacing(old) as f:
        _half(f)
    assert old.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_the_command_line_refuses_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.lir").write_text(str(li.Graph("g", [X], {"y": X + 1})))
    np.save("x.npy", A)
    wrong = {
        "run g.lir -i x=x.npy -o out.txt --interpret": (2, "out.txt: arrays are written to"),
        "run g.lir -i x=x.npy -o no/out.npz --interpret": (1, "no/out.npz: No such file"),
        "compile g.lir --timeout nan": (2, "--timeout nan"),
        "compile g.lir --timeout -1": (2, "--timeout -1"),
        "compile g.lir -t cpu -t vulcan": (1, "unknown target 'vulcan'"),
        "bench nosuchpoint": (1, "lstm-ir: no point's name contains nosuchpoint"),
    }
    for line, (code, part) in wrong.items():
        assert run(line.split()) == code, line
        said = capsys.readouterr().err
        assert part in said, line
        assert "compiling for" not in said
    assert sorted(os.listdir()) == ["g.lir", "x.npy"]
