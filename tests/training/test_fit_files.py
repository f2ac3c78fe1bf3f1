"""The log and the checkpoint of `li.fit`: what is in them, damaged ones, those of other runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need
from fit_model import batches, model
from fit_runs import COUNT, interrupting, options, state_of, with_all_state

import lstm_ir as li
from lstm_ir.backends.files import safetensors
from lstm_ir.backends.run.executable import Executable
from lstm_ir.fitting import checkpoint

pytestmark = pytest.mark.xdist_group("resumed")  # one process makes what they share


@pytest.fixture(scope="module")
def exe() -> Iterator[Executable]:
    with li.compile(with_all_state()) as made:
        yield made


def test_the_log_has_a_row_for_each_step(exe: Executable, seed: int, tmp_path: Path) -> None:
    with exe.session() as s:
        history = li.fit(s, batches(seed, COUNT), log=tmp_path / "log.csv", **options(2))
    with open(tmp_path / "log.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert list(rows[0]) == [
        "step", "epoch", "loss", "grad_norm", "lr", "accuracy", "validation/loss", "validation/accuracy",
    ]  # fmt: skip
    assert [float(r["loss"]) for r in rows] == history.losses
    assert [(int(r["step"]), int(r["epoch"])) for r in rows] == [(k + 1, k // COUNT + 1) for k in range(20)]
    checked = [float(r["validation/loss"]) for r in rows if r["validation/loss"]]
    assert checked == history["validation/loss"]
    assert [r["step"] for r in rows if r["validation/loss"]] == [str(r.step) for r in history]


def test_the_log_is_never_behind_the_checkpoint(
    exe: Executable, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed writes no more rows; the row of the last step lies in the checkpoint."""
    log, save, saved = tmp_path / "log.csv", checkpoint.save, []

    def seen(path: Any, session: Any, position: checkpoint.Position) -> None:
        saved.append(([row.partition(",")[0] for row in log.read_text().splitlines()], [*position.last]))
        save(path, session, position)

    monkeypatch.setattr(checkpoint, "save", seen)
    with exe.session() as s, pytest.raises(KeyboardInterrupt):
        li.fit(s, interrupting(batches(seed, COUNT), (0, 3)), checkpoint=tmp_path / "run", log=log, **options(None))
    assert saved == [(["step", "1", "2"], ["loss", "grad_norm", "lr", "accuracy"])]


def test_a_log_of_another_run_is_refused(exe: Executable, seed: int, tmp_path: Path) -> None:
    given, path, log = batches(seed, COUNT), tmp_path / "run", tmp_path / "log.csv"
    with exe.session() as s:
        li.fit(s, given, steps=2, checkpoint=path, progress=False)
        log.write_text("a,b\n1,2\n")
        with pytest.raises(li.PackageError, match=r"log.csv: its columns are a,b, this run has step,epoch,loss"):
            li.fit(s, given, steps=4, checkpoint=path, resume=True, log=log, progress=False)
        with pytest.raises(li.PackageError, match="nowhere"):
            li.fit(s, given, steps=4, log=tmp_path / "nowhere" / "log.csv", progress=False)


def test_checkpoints_that_cannot_be_resumed(exe: Executable, seed: int, tmp_path: Path) -> None:
    given, path = batches(seed, COUNT), tmp_path / "run"
    with exe.session() as s:

        def resume(given: Any = given) -> None:
            li.fit(s, given, epochs=9, checkpoint=path, resume=True, progress=False)

        with pytest.raises(li.PackageError, match="run"):
            resume()
        li.fit(s, given, steps=7, checkpoint=path, progress=False)
        arrays, metadata = safetensors.read_with_metadata(path)
        at = json.loads(metadata["fit"])
        assert (at["epoch"], at["batch"], at["step"]) == (1, 2, 7)
        with pytest.raises(
            li.CallError, match="batches gave 1 batches in epoch 2, where the checkpoint was made after 2"
        ):
            resume(given[:1])
        s.save_state(path)
        before = state_of(s)
        with pytest.raises(li.PackageError, match="run: a state file that fit did not write; load_state reads it"):
            resume()
        texts = ("", "{}x", "[]", '{"epoch": -1}', '{"other": 1}', '{"due": 1}', '{"sums": 5}', '{"best": "x"}',
                 '{"sums": {"loss": "x"}}', '{"best_step": 0.5}', '{"step": true}')  # fmt: skip
        for text in texts:
            with path.open("wb") as f:
                safetensors.write(f, arrays, {"fit": text})
            with pytest.raises(li.PackageError, match="run: the position of the run is damaged"):
                resume()
        with path.open("wb") as f:
            safetensors.write(f, {"other": np.zeros(1)}, metadata)
        with pytest.raises(li.PackageError, match="run: no state"):
            resume()
        for n, a in before.items():
            np.testing.assert_array_equal(s.state[n], a, err_msg=n)


def test_metadata_are_those_of_the_library(exe: Executable, seed: int, tmp_path: Path) -> None:
    need("safetensors")
    import safetensors as library

    with exe.session() as s:
        li.fit(s, batches(seed, 1), epochs=1, checkpoint=tmp_path / "run", progress=False)
        with library.safe_open(tmp_path / "run", "np") as f:
            assert json.loads(f.metadata()["fit"])["step"] == 1
            np.testing.assert_array_equal(f.get_tensor("out/w"), s.state["out/w"])
        s.load_state(tmp_path / "run")


def test_a_checkpoint_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(
        li.PackageError, match=r"fit: there is no checkpoint .*run\.safetensors to resume from; the first"
    ):
        li.fit(model().only("train"), batches(1, 1), epochs=1, checkpoint=path, resume=True)


@pytest.mark.parametrize("log", ["run.safetensors", "run.best.safetensors"])
def test_a_log_is_no_checkpoint(exe: Executable, seed: int, tmp_path: Path, log: str) -> None:
    with exe.session() as s, pytest.raises(li.CallError, match=r"log is the file of the (checkpoint|best state)"):
        li.fit(s, batches(seed, COUNT), checkpoint=tmp_path / "run.safetensors", log=str(tmp_path / log), **options(1))
    assert not any(tmp_path.iterdir())
