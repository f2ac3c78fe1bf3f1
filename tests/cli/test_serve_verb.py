"""`lstm-ir serve`: wrong usage, and what it says where its libraries are not installed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click
import pytest
from child import environment
from click.testing import CliRunner
from served import served
from served_models import encoder, stream

import lstm_ir as li
from lstm_ir.cli.serving import _again, _outputs, _places, _version, command


def verb(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lstm_ir", "serve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    """No traceback, and what to install."""
    for missing in ("starlette", "uvicorn", "prometheus_client", "websockets"):
        folder = tmp_path / missing
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(f"import sys; sys.modules[{missing!r}] = None\n")
        env = environment() | {"PYTHONPATH": f"{folder}{os.pathsep}{environment()['PYTHONPATH']}"}
        command = [sys.executable, "-m", "lstm_ir", "serve", "m.lirpkg"]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
        assert done.returncode == 1
        assert done.stderr.startswith("lstm-ir: lstm-ir serve needs ")
        assert done.stderr.endswith(": pip install 'lstm-ir[serve]'\n")
        assert missing in done.stderr


def test_a_package_without_the_key_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    refused = verb(encoder(tmp_path), "--key-file", tmp_path / "key")
    assert refused.returncode == 1
    assert "a signature is required" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    absent = verb(tmp_path / "absent.lirpkg")
    assert (absent.returncode, "absent.lirpkg" in absent.stderr) == (1, True)
    package = encoder(tmp_path)
    twice = verb(package, package)
    assert (twice.returncode, "there are two models called encoder; give NAME=" in twice.stderr) == (2, True)
    entry = verb(package, "--entry", "none")
    assert (entry.returncode, "no entry is called 'none'; there are main" in entry.stderr) == (1, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = verb(package, "--port", taken.getsockname()[1])
        assert (busy.returncode, "cannot listen on 127.0.0.1:" in busy.stderr) == (1, True)
    for done in (absent, twice, entry, busy):
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_seconds_are_finite(value: str) -> None:
    """The same for all that are asked for in seconds."""
    named = [p for p in command.params if isinstance(p.type, click.FloatRange)]
    assert len(named) == 7
    for option in named:
        done = CliRunner().invoke(command, ["m.lirpkg", option.opts[0], value])
        assert (done.exit_code, option.opts[0] in done.output) == (2, True), done.output
        assert "is not a finite number of seconds" in done.output or "is not in the range" in done.output


def test_of_several_packages_the_one_at_fault_is_named(tmp_path: Path) -> None:
    """The error of a batcher names an entry alone; a package's begins with its path, which stands there once."""
    package = encoder(tmp_path)
    done = verb(package, f"speech={package}", "--output", "speech=none")
    assert done.returncode == 1
    assert f"lstm-ir: {package}, to be served as speech: main: there is no output 'none'" in done.stderr
    absent = tmp_path / "absent.lirpkg"
    done = verb(package, f"other={absent}")
    assert f"lstm-ir: {absent}, to be served as other: No such file or directory" in done.stderr


def test_outputs_by_model() -> None:
    models = {"a": "a.lirpkg", "b": "b.lirpkg"}
    assert [_outputs((), m, models) for m in models] == [None, None]
    assert [_outputs(("y", "b=h"), m, models) for m in models] == [["y"], ["y", "h"]]
    assert [_outputs(("b=h", "x=y"), m, models) for m in models] == [["x=y"], ["h", "x=y"]]


def test_chosen_outputs_are_all_that_is_served(tmp_path: Path) -> None:
    """One without the batch keeps no package from being served, where it is left out."""
    x = li.input("x", ("B", 3))
    package = li.export(li.Graph("sums", [x], {"y": x * 2.0, "rows": li.sum(x, 0)}), tmp_path / "sums.lirpkg")
    refused = verb(package)
    assert (refused.returncode, "--output of lstm-ir serve" in refused.stderr) == (1, True)
    with served(package, "--output", "y") as server:
        with urllib.request.urlopen(f"{server.url}/v2/models/sums", timeout=60) as answer:
            outputs = json.load(answer)["outputs"]
        assert [o["name"] for o in outputs] == ["y"]


def longer_than_three(url: str, model: str) -> int:
    """The status of a request of four steps."""
    data = {"inputs": [{"name": "x", "shape": [4, 1, 3], "datatype": "FP32", "data": [1.0] * 12}]}
    asked = urllib.request.Request(f"{url}/v2/models/{model}/infer", json.dumps(data).encode())
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as e:
        with e:
            return e.code


def test_time_has_the_name_that_it_is_given(tmp_path: Path) -> None:
    """Steps are bounded by that size; a model without it is named at the start."""
    packages = []
    for size in ("T", "S"):
        x = li.input("x", (size, "B", 3))
        packages.append(li.export(li.Graph(size, [x], {"y": x * 2.0}), tmp_path / f"{size}.lirpkg", ["cpu:host"]))
    for words, bounded in (((), "T"), (("--time-size-name", "S"), "S")):
        with served(*packages, "--max-steps", 3, *words) as server:
            found = {model: longer_than_three(server.url, model) for model in ("T", "S")}
            server.process.send_signal(signal.SIGINT)
            server.process.wait(60)
            assert server.process.stderr is not None
            said = server.process.stderr.read()
        other = "S" if bounded == "T" else "T"
        assert found == {bounded: 413, other: 200}
        assert f"{other}: no size is called {bounded}, there is {other}: --max-steps bounds nothing" in said
        assert f"{bounded}: no size is called" not in said


def test_names_of_models() -> None:
    assert _places(("a/b.lirpkg", "c=d.lirpkg")) == {"b": "a/b.lirpkg", "c": "d.lirpkg"}


def test_ctrl_c_ends_it_well(tmp_path: Path) -> None:
    with served(stream(tmp_path)) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert server.process.stderr is not None
        assert "stream.lirpkg, entry step, sequences" in server.process.stderr.read()


def test_a_package_that_has_changed_is_not_loaded_again(tmp_path: Path) -> None:
    """Sequences would go on with other weights."""
    path = str(encoder(tmp_path))
    was = _version(path)
    opened: dict[str, Any] = {}
    with _again(opened, "encoder", path, None, None, was) as found:
        assert opened == {"encoder": found}
    os.utime(path, ns=(1, 1))
    with pytest.raises(li.PackageError, match="has changed since it was loaded; start the server again"):
        _again(opened, "encoder", path, None, None, was)
