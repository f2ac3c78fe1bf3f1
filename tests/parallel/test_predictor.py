"""`lstm_ir.ray.Predictor` as a plain callable: columns in, columns out, without Ray."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child import environment, python
from memory_maps import kilobytes
from served_models import WEIGHTS, C, H, I, encoder, stream

import lstm_ir as li
from lstm_ir.ray import Predictor
from lstm_ir.serving.rows import length_class

STEPS = (3, 9, 1, 9, 4, 33, 10, 3, 0, 11)
BOUND = 2e-5


def plain(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y [T, H] and scores [C] of one row [T, I], by the equations in f64; gates i, f, g, o."""
    w = {n: a.astype(np.float64) for n, a in WEIGHTS.items()}
    h = c = np.zeros(H)
    out = np.zeros((len(x), H))
    for t, row in enumerate(x.astype(np.float64)):
        i, f, g, o = np.split(w["w_ih"] @ row + w["w_hh"] @ h, 4)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = out[t] = np.tanh(c) / (1 + np.exp(-o))
    return out, w["w_out"] @ h


def ragged(rng: np.random.Generator, steps: tuple[int, ...] = STEPS) -> np.ndarray:
    """A column of objects: a row [t, I] for each of `steps`."""
    out = np.empty(len(steps), object)
    for i, t in enumerate(steps):
        out[i] = rng.standard_normal((t, I), np.float32)
    return out


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder(tmp_path_factory.mktemp("predictor"))


@pytest.fixture(scope="module")
def predictor(package: Path) -> Predictor:
    return Predictor(package, inputs={"x": "frames"}, outputs={"scores": "s", "y": "states"}, keep=["id"])


def confirm(found: Mapping[str, Any], column: Any) -> None:
    for i, x in enumerate(column):
        y, scores = plain(np.asarray(x))
        np.testing.assert_allclose(found["s"][i], scores, atol=BOUND)
        assert found["states"][i].shape == y.shape
        np.testing.assert_allclose(found["states"][i], y, atol=BOUND)


def test_rows_of_unequal_lengths_come_back_in_their_order(predictor: Predictor, rng: np.random.Generator) -> None:
    column, ids = ragged(rng), rng.permutation(len(STEPS))
    found = predictor({"frames": column, "id": ids, "other": ids})
    assert set(found) == {"id", "s", "states"}
    np.testing.assert_array_equal(found["id"], ids)
    assert found["s"].shape == (len(STEPS), C)
    assert found["s"].dtype == np.float32
    assert found["states"].dtype == object
    confirm(found, column)


def test_lists_are_columns_too(predictor: Predictor, rng: np.random.Generator) -> None:
    column = ragged(rng, (4, 2, 5))
    lists = [a.tolist() for a in column]
    nested = np.empty(3, object)  # as pyarrow gives lists of lists: objects in objects
    for i, a in enumerate(column):
        nested[i] = np.empty(len(a), object)
        for t, frame in enumerate(a):
            nested[i][t] = frame
    for given in (lists, tuple(column), nested):
        confirm(predictor({"frames": given, "id": [0, 1, 2]}), column)


def test_a_list_of_nothing_is_a_row_of_no_steps(predictor: Predictor, rng: np.random.Generator) -> None:
    """A list does not say how wide its steps would be: readers of Parquet give [] for them."""
    column = ragged(rng, (3, 0, 2))
    lists = [a.tolist() for a in column]
    objects = np.empty(3, object)
    for i, a in enumerate(column):
        objects[i] = np.empty(len(a), object)
        objects[i][:] = list(a)
    for given in (lists, objects):
        confirm(predictor({"frames": given, "id": [0, 1, 2]}), column)
    confirm(predictor({"frames": [[]], "id": [0]}), column[1:2])


def test_a_column_of_one_array_is_one_call(package: Path, rng: np.random.Generator) -> None:
    p = Predictor(package, inputs={"x": "frames"}, outputs={"scores": "s", "y": "states"})
    calls = count_calls(p)
    x = rng.standard_normal((13, 6, I), np.float32)
    found = p({"frames": x})
    assert calls == [(6, 13)]
    assert found["states"].shape == (13, 6, H)
    confirm(found, x)
    five: Any = np.int64(5)
    few = Predictor(package, inputs={"x": "frames"}, outputs={"scores": "s", "y": "states"}, max_rows=five)
    calls = count_calls(few)
    confirm(few({"frames": x}), x)
    assert calls == [(6, 5), (6, 5), (6, 3)]


def count_calls(p: Predictor) -> list[tuple[int, int]]:
    """T and B of each call that the predictor makes from now on."""
    opened, out = p._open(), []
    model = opened.model

    class Counted:
        entry = model.entry

        def __call__(self, arrays: Mapping[str, Any], /) -> Mapping[str, Any]:
            out.append(np.shape(arrays["x"])[:2])
            return model(arrays)

    opened.model = Counted()
    return out


def test_lengths_are_classes_as_the_server_has_them(package: Path, rng: np.random.Generator) -> None:
    p = Predictor(package, inputs={"x": "frames"}, outputs=["scores"])
    calls = count_calls(p)
    steps = tuple(int(t) for t in rng.integers(1, 70, 200))
    p({"frames": ragged(rng, steps)})
    classes = {length_class(t) for t in steps}
    assert len(calls) == len(classes)
    assert sorted(t for t, _ in calls) == sorted(max(s for s in steps if length_class(s) == c) for c in classes)
    assert sum(b for _, b in calls) == len(steps)


def test_a_column_of_lengths_is_read(package: Path, rng: np.random.Generator) -> None:
    """Steps behind a row's length are filled with what no result may show."""
    p = Predictor(package, inputs={"x": "frames", "lengths": "n"})
    x, n = rng.standard_normal((4, 8, I), np.float32), np.array([8, 3, 5, 1], np.int32)
    for i, t in enumerate(n):
        x[i, t:] = 1e3
    found = p({"frames": x, "n": n})
    for i, t in enumerate(n):
        y, scores = plain(x[i, :t])
        np.testing.assert_allclose(found["scores"][i], scores, atol=BOUND)
        np.testing.assert_allclose(found["y"][i], np.concatenate([y, np.zeros((8 - t, H))]), atol=BOUND)


def test_a_graph_without_lengths_takes_equal_steps_together(tmp_path: Path, rng: np.random.Generator) -> None:
    x = li.input("x", ("B", "T", 3))
    g = li.Graph("mean", [x], {"m": li.mean(x, 1), "twice": x + x})
    p = Predictor(li.export(g, tmp_path / "m.lirpkg", ["cpu:host"]))
    column = [rng.standard_normal((t, 3), np.float32) for t in (2, 5, 2, 1, 5)]
    found = p({"x": column})
    for i, a in enumerate(column):
        np.testing.assert_allclose(found["m"][i], a.mean(0), atol=1e-6)
        np.testing.assert_array_equal(found["twice"][i], 2 * a)


def test_constants(tmp_path: Path, rng: np.random.Generator) -> None:
    x, k = li.input("x", ("B", 3)), li.input("k", (3,))
    path = li.export(li.Graph("scale", [x, k], {"y": x * k}), tmp_path / "m.lirpkg", ["cpu:host"])
    a, k3 = rng.standard_normal((5, 3), np.float32), rng.standard_normal(3, np.float32)
    np.testing.assert_array_equal(Predictor(path, constants={"k": k3})({"x": a})["y"], a * k3)
    for words, said in (
        ({}, r"main: input k: f32\[3\] is missing: name it among constants"),
        ({"constants": {"k": k3, "x": a}}, "input x: .* has a value for each row: name its column"),
        ({"inputs": {"x": "x", "k": "k"}}, "input k: .* is one value for all rows: give it among constants"),
        ({"constants": {"z": k3}}, "there is no input 'z'; there is x, k"),
    ):
        with pytest.raises(li.CallError, match=said):
            Predictor(path, **words)


def test_no_rows(predictor: Predictor, package: Path) -> None:
    found = predictor({"frames": np.zeros((0, 4, I), np.float32), "id": np.zeros(0, np.int64)})
    assert {n: a.shape for n, a in found.items()} == {"id": (0,), "s": (0, C), "states": (0, 0, H)}
    assert found["s"].dtype == np.float32
    assert predictor({"frames": [], "id": []})["s"].shape == (0, C)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"id": [1]}, "there is no column 'frames'; the batch has id"),
        ({"frames": np.zeros((1, 2, I), np.float32)}, "there is no column 'id'"),
        ({"frames": np.zeros((2, 2, I), np.float32), "id": [1]}, "column 'id' has 1 rows, column 'frames' 2"),
        ({"frames": np.zeros((2, 2, I)), "id": [1, 2]}, r"column 'frames': expected f32 \(float32\), got float64"),
        ({"frames": np.zeros((2, 2, I + 1), np.float32), "id": [1, 2]}, r"column 'frames': expected a row of \[T,5\]"),
        ({"frames": np.zeros((2, I), np.float32), "id": [1, 2]}, r"column 'frames': expected .*, got \[5\]"),
        ({"frames": [np.zeros((2, I), np.float32), np.zeros((2, I))], "id": [1, 2]}, "'frames', row 1: .*got float64"),
        ({"frames": [np.zeros((2, I), np.float32), None], "id": [1, 2]}, "column 'frames', row 1"),
        ({"frames": [[[1.0] * I, [1.0]]], "id": [1]}, "column 'frames', row 0: expected f32"),
        ({"frames": [[[], []]], "id": [1]}, r"column 'frames', row 0: expected a row of \[T,5\] .*, got \[2,0\]"),
        ({"frames": [[np.ones(I), np.ones(2)]], "id": [1]}, "column 'frames', row 0: its parts make no array"),
        ({"frames": np.array(["a", "b"]), "id": [1, 2]}, "column 'frames'"),
        ({"frames": "text", "id": [1, 2]}, "column 'frames' is a str; expected an array or a list"),
        ({"frames": np.float32(2), "id": [1]}, "column 'frames' is a float32"),
        ({"frames": np.zeros((), np.float32), "id": [1]}, "column 'frames' is an array without axes"),
        ([1, 2], "a batch is columns by name; got list"),
    ],
    ids=str,
)
def test_a_batch_that_does_not_fit(predictor: Predictor, batch: Any, said: str) -> None:
    with pytest.raises(li.CallError, match=said):
        predictor(batch)


def test_lengths_that_are_too_long_name_the_row(package: Path) -> None:
    p = Predictor(package, inputs={"x": "x", "lengths": "n"})
    with pytest.raises(li.LstmIrError, match="lengths"):
        p({"x": np.zeros((2, 3, I), np.float32), "n": np.array([3, 4], np.int32)})
    with pytest.raises(li.CallError, match="column 'n' has 1 rows, column 'x' 2"):
        p({"x": np.zeros((2, 3, I), np.float32), "n": np.array([3], np.int32)})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"entry": "train"}, "no entry is called 'train'"),
        ({"inputs": {"z": "x"}}, "there is no input 'z'; there is x, lengths"),
        ({"inputs": {}}, "input x: .* is missing: name it among inputs"),
        ({"inputs": {"x": 3}}, "inputs is .*; expected texts by name"),
        ({"outputs": ["z"]}, "there is no output 'z'"),
        ({"outputs": "scores"}, "outputs is 'scores'; expected a list of names"),
        ({"outputs": {"y": "a", "scores": "a"}}, "two columns of the result are called 'a'"),
        ({"keep": ["y"]}, "two columns of the result are called 'y'"),
        ({"max_rows": 0}, "max_rows is 0"),
        ({"batch": "N"}, "no input has an axis of size N"),
        ({"constants": 3}, "constants is a int"),
    ],
    ids=str,
)
def test_what_a_predictor_cannot_be_made_of(package: Path, words: dict[str, Any], said: str) -> None:
    with pytest.raises(li.CallError, match=said):
        Predictor(package, **words)


def test_lengths_alone_tell_the_rows(tmp_path: Path) -> None:
    """They are made where they have no column, which needs another one."""
    table = np.arange(8, dtype=np.float32)
    n = li.input("n", ("B",), "i32")
    graph = li.Graph("alone", [n], {"y": li.convert(n, "f32") + li.sum(li.weight("w", table))})
    path = li.export(graph, tmp_path / "alone.lirpkg", ["cpu:host"])
    with pytest.raises(li.CallError, match=r"main: no column tells how many rows there are: name one, inputs=.'n': "):
        Predictor(path, lengths="n")
    found = Predictor(path, lengths="n", inputs={"n": "c"})({"c": np.array([3, 5], np.int32)})
    np.testing.assert_array_equal(found["y"], [31, 33])


def test_packages_that_are_not_there_or_keep_state(tmp_path: Path) -> None:
    with pytest.raises(li.PackageError, match=r"none\.lirpkg: No such file"):
        Predictor(tmp_path / "none.lirpkg")
    with pytest.raises(li.PackageError, match="takes the path of a package, got int"):
        Predictor(3)  # type: ignore[arg-type]
    with pytest.raises(li.CallError, match="keeps state between calls"):
        Predictor(stream(tmp_path), entry="step")


def test_pickled_is_what_it_was_given(predictor: Predictor, package: Path, rng: np.random.Generator) -> None:
    data = pickle.dumps(predictor)
    assert len(data) < 1000
    again = pickle.loads(data)
    column = ragged(rng)
    batch = {"frames": column, "id": np.arange(len(column))}
    confirm(again(batch), column)
    relative = Predictor(Path(package.name).name if False else package)
    assert str(package) in str(pickle.dumps(relative))


def test_a_process_of_its_own_finds_a_relative_path(package: Path, tmp_path: Path) -> None:
    code = (
        "import os, pickle, sys\nfrom lstm_ir.ray import Predictor\n"
        "os.chdir(sys.argv[1])\np = Predictor(sys.argv[2])\nos.chdir('/')\n"
        "import numpy as np\nprint(pickle.loads(pickle.dumps(p))({'x': np.zeros((2, 3, 5), np.float32)})['y'].shape)"
    )
    assert python("-c", code, package.parent, package.name).strip() == "(2, 3, 7)"


def test_the_number_of_threads(package: Path) -> None:
    code = "import sys\nfrom lstm_ir.ray import Predictor\nprint(Predictor(sys.argv[1], threads=3).threads)"
    assert python("-c", code, package).strip() == "3"


CHILD = """
import sys
import numpy as np
from lstm_ir.ray import Predictor
p = Predictor(sys.argv[1])
p({"ids": np.arange(0, 50000, 7, dtype=np.int32).reshape(-1, 1)})
print("ready", flush=True)
input()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system has no /proc/PID/smaps")
def test_processes_share_the_weights(tmp_path: Path, rng: np.random.Generator) -> None:
    table = rng.standard_normal((50_000, 128), np.float32)  # 25.6 MB
    ids = li.input("ids", ("B", 1), "i32")
    graph = li.Graph("table", [ids], {"rows": li.embedding(li.weight("table", table), ids)})
    path = li.export(graph, tmp_path / "m.lirpkg", ["cpu:host"])
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True, env=environment())
        for _ in range(4)
    ]  # fmt: skip
    try:
        for c in children:
            assert c.stdout is not None
            assert c.stdout.readline() == "ready\n"
        for c in children:
            held = kilobytes(c.pid, "m.lirpkg")
            assert held["Rss"] >= table.nbytes // 1024
            assert held["Pss"] < 0.3 * table.nbytes / 1024
            assert held["Private_Dirty"] == 0
    finally:
        for c in children:
            c.communicate("\n", timeout=60)
