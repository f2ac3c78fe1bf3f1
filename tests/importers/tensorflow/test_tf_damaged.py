"""SavedModels whose files are damaged: each is one ModelError that names the file, never wrong numbers.

A SavedModel of TensorFlow is altered: its graph, the index of its variables, their data. What is written into an index
has right checksums there, so that what it says is looked at.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_models as tm
from device import need

import lstm_ir as li

pytest.importorskip("google.protobuf.message")
pytestmark = pytest.mark.xdist_group("tensorflow")
GRAPH, INDEX, DATA = "saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"
X = np.arange(6, dtype="f4").reshape(2, 3)
Change = Callable[[Any], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel of one variable, w f32[3,2], which its signatures multiply x by."""
    need("tensorflow")
    path = tm.made(tmp_path_factory.mktemp("sound"), 7, "tensorflow_saved_cases", ["two"])["two"].path
    for later in path.glob("later*"):
        later.unlink()
    return path


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    """A copy, which a test may damage."""
    return Path(shutil.copytree(sound, tmp_path / "m"))


def results(path: Path) -> Any:
    graph = li.from_tf(path, signature="double")
    assert isinstance(graph, li.Graph)
    return li.interpret(graph, x=X)["y"]


def refused(path: Path, *said: str) -> None:
    """One error, which names the SavedModel or the file in it, and says all this."""
    with pytest.raises(li.ModelError) as e:
        li.from_tf(path, signature="double")
    text = str(e.value)
    assert path.name in text or Path(INDEX).name in text or "variables.data" in text
    for part in said:
        assert part in text, text


def test_it_is_sound(model: Path) -> None:
    graph = li.from_tf(model, signature="double")
    assert isinstance(graph, li.Graph)
    held = graph.weights["w"].node.attrs["value"].array
    np.testing.assert_allclose(results(model), X @ held * 2, rtol=1e-6)


@pytest.mark.parametrize("file", [GRAPH, INDEX, DATA])
def test_a_file_that_ends_early(file: str, model: Path) -> None:
    """At thirty places, the last byte among them."""
    data = (model / file).read_bytes()
    for size in sorted({*np.linspace(0, len(data) - 1, 30).astype(int).tolist(), len(data) - 1}):
        (model / file).write_bytes(data[:size])
        refused(model)


def test_what_a_truncated_file_is_said_to_be(model: Path) -> None:
    for file, said in (
        (GRAPH, ("m/saved_model.pb: is not a SavedModel, or is damaged",)),
        (INDEX, ("variables.index", "its end is not that of a table")),
        (DATA, ("variables.data-00000-of-00001 ends before a tensor does",)),
    ):
        data = (model / file).read_bytes()
        (model / file).write_bytes(data[: len(data) - 7])
        refused(model, *said)
        (model / file).write_bytes(data)


@pytest.mark.parametrize("file", [GRAPH, INDEX, DATA])
def test_a_bit_that_is_another(file: str, sound: Path, model: Path, rng: np.random.Generator) -> None:
    """Forty bits, one at a time: an error that names a file, or, where nothing reads the bit, the same numbers."""
    want = results(sound)
    data = (model / file).read_bytes()
    for at, bit in zip(rng.integers(len(data), size=40), rng.integers(8, size=40), strict=True):
        print(file, at, bit)
        altered = bytearray(data)
        altered[at] ^= 1 << int(bit)
        (model / file).write_bytes(altered)
        got, said = attempted(model)
        if got is None:
            assert model.name in said or "variables." in said, said
        elif file != GRAPH:  # whose numbers have no checksum
            np.testing.assert_array_equal(got, want)


def attempted(path: Path) -> tuple[Any, str]:
    """The results, or None and what is said."""
    try:
        return results(path), ""
    except li.ModelError as e:
        return None, str(e)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (GRAPH, "is no SavedModel: the folder has no saved_model.pb"),
        (INDEX, "the variable 'w' has no value here: give checkpoint="),
        (DATA, "variables.data-00000-of-00001: No such file"),
    ],
)
def test_a_file_that_is_not_there(file: str, said: str, model: Path) -> None:
    (model / file).unlink()
    refused(model, said)


def rewritten(model: Path, change: Callable[[dict[bytes, bytes]], None]) -> None:
    """The index with other entries, whole and with its checksums."""
    from lstm_ir.importers.tensorflow.sorted_table import entries, table

    path = model / INDEX
    found = entries(path.read_bytes(), path.name)
    change(found)
    path.write_bytes(table(found))


def entry(change: Change) -> Callable[[dict[bytes, bytes]], None]:
    """A change of what the index says of w."""
    from lstm_ir.importers.tensorflow.messages import parsed

    def run(found: dict[bytes, bytes]) -> None:
        (key,) = (k for k in found if k.startswith(b"w/"))
        message = parsed("BundleEntryProto", found[key], "m", "an entry")
        change(message)
        found[key] = message.SerializeToString()

    return run


def header(change: Change) -> Callable[[dict[bytes, bytes]], None]:
    """A change of what the index says of all."""
    from lstm_ir.importers.tensorflow.messages import parsed

    def run(found: dict[bytes, bytes]) -> None:
        message = parsed("BundleHeaderProto", found[b""], "m", "a header")
        change(message)
        found[b""] = message.SerializeToString()

    return run


def _dtype(number: int) -> Change:
    return lambda e: setattr(e, "dtype", number)


def _shape(*sizes: int) -> Change:
    def change(e: Any) -> None:
        del e.shape.dim[:]
        for d in sizes:
            e.shape.dim.add(size=d)

    return change


def _place(**fields: int) -> Change:
    def change(e: Any) -> None:
        for name, value in fields.items():
            setattr(e, name, value)

    return change


ENTRIES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "i32": (_dtype(3), ("the variable is f32, in the checkpoint it is i32[3,2]", "m: ")),
    "f64": (_dtype(2), ("of f64 has 24 bytes",)),
    "i16": (_dtype(5), ("elements of type int16 are not taken",)),
    "text": (_dtype(7), ("elements of type string are not taken",)),
    "unknown": (_dtype(99), ("elements of type type 99 are not taken",)),
    "turned": (_shape(2, 3), ("the variable is [3, 2], in the checkpoint it is f32[2,3]",)),
    "flat": (_shape(6), ("the variable is [3, 2], in the checkpoint it is f32[6]",)),
    "larger": (_shape(4, 2), ("[4, 2] of f32 has 24 bytes",)),
    "huge": (_shape(2**40, 2**40), ("has 24 bytes",)),
    "open": (_shape(-1, 2), ("variables.index", "has no whole shape")),
    "a place behind the end": (_place(offset=2**40), ("ends before a tensor does",)),
    "a place in front": (_place(offset=-4), ("variables.index", "has no place in the data files")),
    "another place": (_place(offset=4), ("the checksum of the tensor", "is wrong")),
    "more bytes": (_place(size=28), ("has 28 bytes",)),
    "no bytes": (_place(size=0), ("has 0 bytes",)),
    "bytes without end": (_place(size=2**62), ("bytes",)),
    "a shard that is none": (_place(shard_id=1), ("variables.index", "has no place in the data files")),
    "another checksum": (_place(crc32c=1), ("the checksum of the tensor", "is wrong")),
}
HEADERS: dict[str, tuple[Change, tuple[str, ...]]] = {
    "two shards": (_place(num_shards=2), ("variables.data-00000-of-00002: No such file",)),
    "no shards": (_place(num_shards=0), ("variables.index", "the checkpoint has 0 data files")),
    "many shards": (_place(num_shards=2**31 - 1), ("variables.index", "data files")),
    "the other end first": (_place(endianness=1), ("variables.index", "big-endian")),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_index_that_says_something_else_of_a_tensor(name: str, model: Path) -> None:
    change, said = ENTRIES[name]
    rewritten(model, entry(change))
    refused(model, *said)


@pytest.mark.parametrize("name", HEADERS)
def test_an_index_that_says_something_else_of_its_files(name: str, model: Path) -> None:
    change, said = HEADERS[name]
    rewritten(model, header(change))
    refused(model, *said)


def test_an_index_without_the_tensor(model: Path) -> None:
    def without(found: dict[bytes, bytes]) -> None:
        for key in [k for k in found if k.startswith(b"w/")]:
            del found[key]

    rewritten(model, without)
    refused(model, "variables.index", "has no value for the variable 'w'")


def test_the_index_of_another_model(model: Path, tmp_path: Path) -> None:
    """Whole, and of other variables."""
    from paths import DOCS

    for part in ("index", "data-00000-of-00001"):
        shutil.copy(
            DOCS / "tutorial" / "data" / "tf1" / f"model.ckpt-400.{part}", model / "variables" / f"variables.{part}"
        )
    refused(model, "variables.index", "has no value for the variable 'w'")
