"""Keys: of a package that is not signed with the right one nothing but its manifest is read."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_packages import members, rezip

import lstm_ir as li
from lstm_ir.backends.run import loaded
from lstm_ir.cli.group import run

KEY = b"a secret of many bytes"
A = np.arange(15, dtype=np.float32).reshape(5, 3)
Capture = pytest.CaptureFixture[str]


def graph() -> li.Graph:
    x = li.input("x", ("B", 3))
    return li.Graph("keyed", [x], {"y": x @ li.weight("w", np.full((3, 2), 0.5, np.float32))})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """plain.lirpkg, signed.lirpkg, the key, a wrong one and an input."""
    where = tmp_path_factory.mktemp("keys")
    li.export(graph(), where / "plain.lirpkg", ["cpu:host"])
    li.export(graph(), where / "signed.lirpkg", ["cpu:host"], sign_key=KEY)
    (where / "key").write_bytes(KEY + b"\n")
    (where / "wrong").write_bytes(KEY[::-1])
    (where / "empty").write_bytes(b"\n")
    (where / "long").write_bytes(b"k" * 70_000)
    np.save(where / "x.npy", A)
    (where / "g.lir").write_text(str(graph()))
    large = np.arange(60, dtype=np.float32).reshape(3, 20)  # more than the text writes
    x = li.input("x", ("B", 3))
    many = li.Graph("large", [x], {"y": x @ li.weight("w", large)})
    li.export(many, where / "large.lirpkg", ["cpu:host"])
    li.export(many, where / "large_signed.lirpkg", ["cpu:host"], sign_key=KEY)
    (where / "large.lir").write_text(str(many))
    np.savez(where / "large.npz", w=large)
    return where


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The members that are read, and "module" where one is given to the runtime."""
    seen: list[str] = []
    read, load = zipfile.ZipFile.read, loaded.Loaded.__init__

    def reading(self: zipfile.ZipFile, name: str, pwd: bytes | None = None) -> bytes:
        seen.append(name)
        return read(self, name, pwd)

    def loading(self: loaded.Loaded, *args: object) -> None:
        seen.append("module")
        load(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(zipfile.ZipFile, "read", reading)
    monkeypatch.setattr(loaded.Loaded, "__init__", loading)
    return seen


def test_a_signed_package_loads_with_its_key(folder: Path, opened: list[str]) -> None:
    exe = li.load(folder / "signed.lirpkg", require_key=KEY)
    np.testing.assert_array_equal(exe(x=A)["y"], np.repeat(A.sum(1, keepdims=True) / 2, 2, 1))
    assert opened[:2] == ["manifest.json", "manifest.hmac"]
    assert opened[-1] == "module"
    assert str(li.source(folder / "signed.lirpkg", require_key=KEY.decode())) == str(graph())


@pytest.mark.parametrize("call", [li.load, li.source])
def test_of_an_unsigned_package_nothing_else_is_opened(
    folder: Path, opened: list[str], call: Callable[..., object]
) -> None:
    with pytest.raises(li.PackageError, match=r"plain\.lirpkg: a signature is required, and the package has none"):
        call(folder / "plain.lirpkg", require_key=KEY)
    assert opened == ["manifest.json"]


@pytest.mark.parametrize("call", [li.load, li.source])
def test_of_a_package_that_another_key_signed_nothing_else_is_opened(
    folder: Path, opened: list[str], call: Callable[..., object]
) -> None:
    with pytest.raises(li.PackageError, match="the signature was not made with this key"):
        call(folder / "signed.lirpkg", require_key=KEY[::-1])
    assert opened == ["manifest.json", "manifest.hmac"]


@pytest.mark.parametrize("member", ["weights.safetensors", "module-0.vmfb", "graph.lir"])
def test_an_exchanged_member_of_a_signed_package_is_refused(folder: Path, tmp_path: Path, member: str) -> None:
    files = members(folder / "signed.lirpkg")
    files[member] = files[member][:-1] + bytes([files[member][-1] ^ 1])
    rezip(tmp_path / "m.lirpkg", [*files.items()])
    with pytest.raises(li.PackageError, match=f"{member} is not the file that the manifest describes"):
        li.load(tmp_path / "m.lirpkg", require_key=KEY)


@pytest.mark.parametrize("key", ["", b"", 3, ["k"]])
def test_keys_that_are_none(folder: Path, key: object) -> None:
    kind = li.PackageError if isinstance(key, (str, bytes)) else TypeError
    for file in ("signed.lirpkg", "weights.npz"):  # of another ending, too
        with pytest.raises(li.PackageError, match="the key of a signature is") as e:
            li.load(folder / file, require_key=key)  # type: ignore[arg-type]
        assert isinstance(e.value, kind)
    with pytest.raises(li.PackageError, match="the key of a signature is"):
        li.export(graph(), folder / "none.lirpkg", ["cpu:host"], sign_key=key)  # type: ignore[arg-type]
    assert not (folder / "none.lirpkg").exists()


VERBS = {
    "run": ["-i", "x=x.npy"],
    "show": ["-o", "out.lir"],
    "show --stage module": ["-o", "out.vmfb"],
    "opt": ["-o", "out.lir"],
    "compile": ["-o", "out.lirpkg", "--sign-key-file", "wrong"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_reads_packages_asks_for_the_key(
    folder: Path, opened: list[str], verb: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    word, *more = verb.split()
    ask = [word, "plain.lirpkg", *more, *VERBS[verb], "--key-file", "key"]
    assert run(ask) == 1
    assert "a signature is required" in capsys.readouterr().err
    assert opened == ["manifest.json"]
    ask[1] = "signed.lirpkg"
    assert run([*ask[:-1], "wrong"]) == 1
    assert "the signature was not made with this key" in capsys.readouterr().err
    assert run(ask) == 0
    assert run([word, "g.lir", *more, *VERBS[verb], "--key-file", "key"]) == 2
    assert "g.lir is no package" in capsys.readouterr().err
    for name, said in (("empty", "the key is empty"), ("long", "70000 bytes"), ("none", "No such file")):
        assert run([*ask[:-1], name]) == 1
        assert said in capsys.readouterr().err


def test_a_signed_package_is_compiled_again_with_both_keys_alone(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    signed, new = str(folder / "signed.lirpkg"), str(tmp_path / "new.lirpkg")
    key, other = ["--key-file", str(folder / "key")], ["--sign-key-file", str(folder / "wrong")]
    for given in ([], key, other):
        assert run(["compile", signed, "-o", new, *given]) == 1
        assert capsys.readouterr().err.strip() == (
            f"lstm-ir: {signed}: the package is signed: give its key with --key-file, and the key of the new one with "
            "--sign-key-file"
        )
    assert not Path(new).exists()
    assert run(["compile", signed, "-o", new, *key, *other]) == 0
    np.testing.assert_array_equal(li.load(new, require_key=KEY[::-1])(x=A)["y"], li.load(signed)(x=A)["y"])
    with pytest.raises(li.PackageError, match="not made with this key"):
        li.load(new, require_key=KEY)


WITH_WEIGHTS = {
    "run": ["-i", "x=x.npy"],
    "run --interpret": ["-i", "x=x.npy"],
    "run --profile": ["-i", "x=x.npy"],
    "show": ["-o", "out.lir"],
    "show --stage module": ["-o", "out.vmfb"],
    "show --profile": ["-o", "out.svg", "-i", "x=x.npy"],
    "opt": ["-o", "out.lir"],
    "compile": ["-o", "out.lirpkg", "-t", "cpu:host", "--sign-key-file", "wrong"],
}


@pytest.mark.parametrize("verb", WITH_WEIGHTS)
def test_packages_of_weights_are_asked_for_the_key(
    folder: Path, opened: list[str], verb: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    word, *more = verb.split()
    ask = [word, "large.lir", *more, *WITH_WEIGHTS[verb], "--key-file", "key", "--weights"]
    assert run([*ask, "large.lirpkg"]) == 1
    assert "large.lirpkg: a signature is required" in capsys.readouterr().err
    assert opened == ["manifest.json"]
    assert run([*ask, "large_signed.lirpkg"]) == 0
    assert run([*ask, "large.npz"]) == 2
    assert "large.lir is no package" in capsys.readouterr().err


def test_weights_of_a_signed_package_lead_to_a_signed_one_alone(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    new = str(tmp_path / "new.lirpkg")
    ask = ["compile", "large.lir", "-w", "large_signed.lirpkg", "-t", "cpu:host", "-o", new]
    key, other = ["--key-file", "key"], ["--sign-key-file", "wrong"]
    for given in ([], key, other):
        assert run([*ask, *given]) == 1
        assert "large_signed.lirpkg: the package is signed: give its key" in capsys.readouterr().err
    assert not Path(new).exists()
    assert run([*ask, *key, *other]) == 0
    li.load(new, require_key=KEY[::-1]).close()
    (tmp_path / "new.lirpkg").unlink()
    assert run([*ask[:3], "large.lirpkg", *ask[4:]]) == 0  # what is not signed needs no keys
