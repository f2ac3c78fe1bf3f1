"""`lstm-ir show --c`: the header compiles, says what the package says, and a module is called as it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from paths import IREE_RUN_MODULE, ROOT
from plain_lstm import plain_lstm
from small_packages import packed

import lstm_ir as li
from lstm_ir.backends import bindings
from lstm_ir.backends.run.package import ModuleFile, write_package
from lstm_ir.cli.group import run
from lstm_ir.ir.program import Program
from lstm_ir.ir.types import DType
from lstm_ir.view.c_header import HAL

COMPILER = shutil.which("cc")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Wno-overlength-strings", "-Werror"]
Capture = pytest.CaptureFixture[str]
needs_cc = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc)")

# Prints what a header says, as JSON: names are escaped as JSON has them, byte by byte.
PRINTER = r"""
#include <stdio.h>
#include "m.h"
static void text(const char *s) {
  putchar('"');
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\') printf("\\%c", c);
    else if (c < 32) printf("\\u%04x", c);
    else putchar(c);
  }
  putchar('"');
}
static void tensor(const lir_tensor *t) {
  size_t i;
  printf("{\"name\": "); text(t->name);
  printf(", \"type\": "); text(t->type);
  printf(", \"c\": "); text(t->c_type);
  printf(", \"element\": %lu, \"shape\": [", (unsigned long)t->element_type);
  for (i = 0; i < t->rank; i++) printf("%s%ld", i ? ", " : "", (long)t->shape[i]);
  printf("], \"sizes\": [");
  for (i = 0; i < t->rank; i++) { if (i) printf(", "); text(t->sizes[i]); }
  printf("]}");
}
static void tensors(const char *name, const lir_tensor *t, size_t n) {
  size_t i;
  printf(", \"%s\": [", name);
  for (i = 0; i < n; i++) { if (i) printf(", "); tensor(t + i); }
  printf("]");
}
static void numbers(const char *name, const size_t *a, size_t n) {
  size_t i;
  printf(", \"%s\": [", name);
  for (i = 0; i < n; i++) printf("%s%lu", i ? ", " : "", (unsigned long)a[i]);
  printf("]");
}
int main(void) {
  const lir_package *p = &lir_m;
  size_t i, j;
  printf("{\"name\": "); text(p->name);
  printf(", \"iree\": "); text(p->iree);
  printf(", \"target\": "); text(p->target);
  printf(", \"triple\": "); text(p->triple);
  printf(", \"features\": "); text(p->features);
  printf(", \"scope\": "); text(p->scope);
  printf(", \"queue\": %d, \"weights\": [", LIR_QUEUE_BYTES);
  for (i = 0; i < p->weight_count; i++) {
    if (i) printf(", ");
    printf("["); tensor(&p->weights[i].tensor); printf(", "); text(p->weights[i].key); printf("]");
  }
  printf("]");
  tensors("state", p->state, p->state_count);
  printf(", \"entries\": [");
  for (i = 0; i < p->entry_count; i++) {
    const lir_entry *e = p->entries + i;
    printf("%s{\"name\": ", i ? ", " : ""); text(e->name);
    printf(", \"function\": "); text(e->function);
    printf(", \"shares\": %d", e->shares_work);
    tensors("inputs", e->inputs, e->input_count);
    tensors("outputs", e->outputs, e->output_count);
    numbers("reads", e->reads, e->read_count);
    numbers("writes", e->writes, e->write_count);
    printf(", \"rules\": [");
    for (j = 0; j < e->rule_count; j++) { if (j) printf(", "); text(e->rules[j]); }
    printf("]}");
  }
  printf("]}\n");
  return 0;
}
"""


def header(package: Path, folder: Path, *words: str) -> str:
    assert run(["show", "--c", str(package), "-o", str(folder / "m.h"), *words]) == 0
    return (folder / "m.h").read_text()


def said(folder: Path, code: str = PRINTER) -> Any:
    """What a program with the header prints, as JSON."""
    assert COMPILER is not None
    (folder / "main.c").write_text(code)
    done = subprocess.run(
        [COMPILER, *STRICT, "main.c", "-o", "main"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(subprocess.run([folder / "main"], capture_output=True, timeout=60, check=True).stdout)


def packaged(program: Program, folder: Path, *, module: ModuleFile | None = None) -> Path:
    """A package of the program whose module is another's: headers do not look into it."""
    file = folder / "m.lirpkg"
    weights = {n: d.array for n, d in program.weights.items()}
    state = {n: s.initial.array for n, s in program.state.items()}
    made = packed("cpu") if module is None else module
    write_package(file, program.signature(), {"cpu": made}, weights, state=state)
    return file


def confirm(found: Any, package: Path) -> None:
    """Against the package's manifest, read without the project's code."""
    with zipfile.ZipFile(package) as z:
        manifest = json.loads(z.read("manifest.json"))
    want = manifest["signature"]
    assert found["name"] == want["name"]
    assert found["iree"] == manifest["iree"]
    assert found["scope"] == "model"
    assert [[t["name"], t["type"]] for t, _ in found["weights"]] == want["weights"]
    assert [[t["name"], t["type"]] for t in found["state"]] == want["state"]
    assert [e["name"] for e in found["entries"]] == [e["name"] for e in want["entries"]]
    for e, w in zip(found["entries"], want["entries"], strict=True):
        assert e["function"] == f"module.{w['name']}"
        for kind in ("inputs", "outputs"):
            assert [[t["name"], t["type"]] for t in e[kind]] == w[kind]
        for kind in ("reads", "writes"):
            assert [found["state"][i]["name"] for i in e[kind]] == w[kind]
        ports = {t["name"] for t in e["inputs"]}
        at = [c for c in w["checks"] if c[0] in ports]
        assert len(e["rules"]) >= len(at) + len(w["requires"])
    for t in tensors(found):
        inner = re.fullmatch(r"(\w+)\[(.*)\]", t["type"])
        assert inner is not None
        assert t["sizes"] == ([s for s in inner[2].split(",")] if inner[2] else [])
        assert t["shape"] == [int(s) if s.isdigit() else -1 for s in t["sizes"]]


def tensors(found: Any) -> list[Any]:
    ports = [t for e in found["entries"] for k in ("inputs", "outputs") for t in e[k]]
    return [*ports, *found["state"], *(t for t, _ in found["weights"])]


@needs_cc
@pytest.mark.parametrize("animal", zoo.ZOO)
def test_every_kind_of_graph(animal: str, tmp_path: Path) -> None:
    package = packaged(Program.of(zoo.get(animal).graph), tmp_path)
    header(package, tmp_path)
    confirm(said(tmp_path), package)


def trained() -> Program:
    x, label = li.input("x", ("T", "B", 5)), li.input("label", ("B",), "i32")
    w, r = np.ones((28, 5), np.float32), np.ones((28, 7), np.float32)
    _, h, _ = li.lstm(x, li.weight("cell/w", w), li.weight("cell/r", r))
    graph = li.Graph("trained", [x, label], {"loss": li.cross_entropy(h[0], label), "h": h})
    return li.train_step(graph, loss="loss", optimizer=li.adam("lr"), grads=True)


def streamed() -> Program:
    x, h0, c0 = li.input("x", ("T", "B", 5)), li.input("h0", (1, "B", 7)), li.input("c0", (1, "B", 7))
    rng = np.random.default_rng(20261206)
    w, r = (0.4 * rng.standard_normal(s).astype(np.float32) for s in ((28, 5), (28, 7)))
    y, h, c = li.lstm(x, li.weight("w", w), li.weight("r", r), h0=h0, c0=c0)
    return li.stateful(li.Graph("streamed", [x, h0, c0], {"y": y, "h_n": h, "c_n": c}), {"h0": "h_n", "c0": "c_n"})


@needs_cc
@pytest.mark.parametrize("make", [trained, streamed])
def test_programs_with_state(make: Any, tmp_path: Path) -> None:
    package = packaged(make(), tmp_path)
    header(package, tmp_path)
    found = said(tmp_path)
    confirm(found, package)
    rules = {e["name"]: e["rules"] for e in found["entries"]}
    if make is trained:
        assert any(r.startswith("0 <= label <= 6: ") for r in rules["train"])
        assert "where loss comes out not finite, keep the state from before the call" in rules["train"]
        assert "lr is finite" in rules["train"]
        assert "it computes nothing: start all state again" not in rules["apply"]
    else:
        assert rules["reset"] == ["it computes nothing: start all state again"]


WILD = [
    "x", "X", "a/b", "a.b", "a_b", "a b", "a b_2", "é", "ö", "1", "int", "*/", "//", "/*", '"', "\\", "??/", "%n",
    "x" * 300, "NULL", "at", "in", "日本", "\t", "a\nb",
]  # fmt: skip


@needs_cc
def test_names_that_are_no_identifiers_do_not_collide(tmp_path: Path) -> None:
    """As inputs, outputs, weights and the file; places by name are those of the arrays."""
    ports = {n: li.input(n, ("B",)) for n in WILD}
    ws = {n: li.weight(f"w{n}", np.full(1, i, np.float32)) for i, n in enumerate(WILD)}
    graph = li.Graph("wild", [*ports.values()], {f"o{n}": ports[n] + ws[n] for n in WILD})
    first = packaged(Program.of(graph), tmp_path)
    text = header(first, tmp_path)
    found = said(tmp_path)
    confirm(found, first)
    assert [t["name"] for t in found["entries"][0]["inputs"]] == WILD
    places = re.findall(r"^  (lir_m_at_main_in_\w+) = (\d+),$", text, re.M)
    assert len({n for n, _ in places}) == len(WILD)
    assert [int(i) for _, i in places] == list(range(len(WILD)))
    odd = tmp_path / "1-a ü.lirpkg"
    first.rename(odd)
    assert run(["show", "--c", str(odd), "-o", str(tmp_path / "m.h")]) == 0
    code = '#include <stdio.h>\n#include "m.h"\nint main(void) { printf("%d", (int)lir_1_a__.entry_count); return 0; }'
    got = said(tmp_path, code)
    assert got == 1


@pytest.mark.parametrize("stem", ["package", "tensor", "entry", "weight", "package_2", "QUEUE_BYTES", "PACKAGE_TYPES"])
@pytest.mark.parametrize("language", ["c", "c++"])
def test_files_that_are_called_like_a_type(stem: str, language: str, tmp_path: Path) -> None:
    """The package has a number behind its name, and everything else stays as it would be."""
    compiler = shutil.which("cc" if language == "c" else "c++")
    if compiler is None:
        pytest.skip(f"there is no compiler of {language}")
    x = li.input("x", ("B",))
    made = {"2": x + li.weight("s", np.ones(1, np.float32)), "s": x}
    package = packaged(Program.of(li.Graph("plain", [x], made)), tmp_path)
    package = package.rename(tmp_path / f"{stem}.lirpkg")
    assert run(["show", "--c", str(package), "-o", str(tmp_path / f"{stem}.h")]) == 0
    taken = stem in ("package", "tensor", "entry", "weight")
    whole = f"lir_{stem}{'_2' if taken else ''}"
    use = f'#include "{stem}.h"\nint main(void) {{ return (int){whole}.entry_count - 1 + lir_{stem}_at_entry_main; }}\n'
    (tmp_path / "main.c").write_text(use)
    words = [compiler, "-x", language, "-Wno-unused", "-Werror", "main.c", "-o", "main"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "main"], timeout=60, check=False).returncode == 0


@needs_cc
def test_two_headers_in_one_file(tmp_path: Path) -> None:
    package = packaged(streamed(), tmp_path)
    header(package, tmp_path)
    other = tmp_path / "n.lirpkg"
    shutil.copy(package, other)
    assert run(["show", "--c", str(other), "-o", str(tmp_path / "n.h")]) == 0
    code = '#include "m.h"\n#include "n.h"\n#include "m.h"\n' + PRINTER.replace('#include "m.h"\n', "")
    confirm(said(tmp_path, code), package)


def test_element_types_are_those_of_the_runtime() -> None:
    """The bindings say them, and the words of C are as wide as NumPy's types."""
    named = {
        DType.f16: "FLOAT_16", DType.bf16: "BFLOAT_16", DType.f32: "FLOAT_32", DType.f64: "FLOAT_64",
        DType.i8: "SINT_8", DType.u8: "UINT_8", DType.i32: "SINT_32", DType.u32: "UINT_32", DType.i64: "SINT_64",
        DType.i1: "BOOL_8",
    }  # fmt: skip
    assert set(HAL) == set(DType) == set(named)
    bits = {"float": 32, "double": 64}
    for kind, (number, word) in HAL.items():
        assert number == int(getattr(bindings.native().HalElementType, named[kind]))
        width = bits.get(word) or int(re.sub(r"\D", "", word))
        assert width == 8 * kind.numpy.itemsize


@needs_cc
def test_a_module_is_called_as_the_header_says(tmp_path: Path, capsys: Capture) -> None:
    """By IREE's own tool: function, order of arguments, queue, parameters, state that comes back; against equations."""
    package = li.export(streamed(), tmp_path / "m.lirpkg", ["cpu:host"])
    header(package, tmp_path, "--weights-to", str(tmp_path / "w.irpa"))
    found = said(tmp_path)
    confirm(found, package)
    assert run(["show", str(package), "--stage", "module", "-o", str(tmp_path / "m.vmfb")]) == 0
    told = capsys.readouterr().err
    entry = next(e for e in found["entries"] if e["name"] == "step")
    assert bool(entry["shares"]) == ("step" in told.partition(": takes, after")[0].split("\n")[-1])
    rng = np.random.default_rng(20261207)
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    state = {n: np.zeros((1, 3, 7), np.float32) for n in ("h0", "c0")}
    ys = []
    for part in (x[:1], x[1:]):
        values = {"x": part, **state}
        names = [t["name"] for t in entry["inputs"]] + [found["state"][i]["name"] for i in entry["reads"]]
        given = []
        for i, n in enumerate(names):
            np.save(tmp_path / f"in{i}.npy", values[n])
            given.append(f"--input=@in{i}.npy")
        if entry["shares"]:
            given += [f"--input={found['queue']}xi8=0", "--input=1", "--input=0"]
        names = [t["name"] for t in entry["outputs"]] + [found["state"][i]["name"] for i in entry["writes"]]
        done = subprocess.run(
            [IREE_RUN_MODULE, "--device=local-sync", "--module=m.vmfb", f"--parameters={found['scope']}=w.irpa",
             f"--function={entry['function'].removeprefix('module.')}", *given,
             *(f"--output=@out{i}.npy" for i in range(len(names)))],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        outs = {n: np.load(tmp_path / f"out{i}.npy") for i, n in enumerate(names)}
        ys.append(outs["y"])
        state = {n: outs[n] for n in state}
    np.testing.assert_allclose(np.concatenate(ys), plain(x), atol=1e-5)


def plain(x: np.ndarray) -> np.ndarray:
    """By the equations, with the weights of the package."""
    rng = np.random.default_rng(20261206)
    w, r = (0.4 * rng.standard_normal(s).astype(np.float32) for s in ((28, 5), (28, 7)))
    return plain_lstm(x, w, r)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["g.lir"], 2, "--c shows how a package's module is called; g.lir is no package"),
        (["m.lirpkg", "--stage", "core"], 2, "of the others it takes -o, -t, --weights-to"),
        (["m.lirpkg", "-p", "core"], 2, "of the others it takes -o, -t, --weights-to"),
        (["m.lirpkg", "-t", "metal"], 1, "no module is for metal; the package has cpu:"),
        (["none.lirpkg"], 1, "No such file"),
    ],
    ids=str,
)
def test_what_is_asked_wrongly(
    words: list[str], code: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    packaged(streamed(), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["show", "--c", *words]) == code
    assert text in capsys.readouterr().err


def test_without_a_file_it_goes_to_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    assert run(["show", "--c", str(packaged(streamed(), tmp_path))]) == 0
    assert capsys.readouterr().out.startswith("/* Written by lstm-ir show --c")


def test_older_formats_have_headers_too(tmp_path: Path, capsys: Capture) -> None:
    for number in (2, 3):
        package = ROOT / "tests" / "data" / "packages" / f"format-{number}.lirpkg"
        words = ["-t", json.loads(zipfile.ZipFile(package).read("manifest.json"))["targets"][0]["name"]]
        text = header(package, tmp_path, *words)
        assert f"lir_format_{number} = {{" in text
