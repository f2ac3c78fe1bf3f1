"""`lstm_ir.parallel.Trainer`: the steps of one process with the whole batch, by several."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need
from trained_models import C, I, T, batch, classifier, torch_losses

import lstm_ir as li
from lstm_ir.parallel import Trainer
from lstm_ir.parallel.links import Processes, ProcessLink
from lstm_ir.parallel.replica import Replica

STEPS = 12


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("trainer"))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_losses_are_those_of_one_process(package: Path, workers: int) -> None:
    """7 rows: parts of 4 and 3, and of 3, 2 and 2. PyTorch, and the entry `train`."""
    need("torch")
    batches = [batch(s) for s in range(STEPS)]
    whole = li.load(package)
    with Trainer(package, workers, threads=1) as trainer:
        losses = []
        for b in batches:
            found, want = trainer.step(b), whole.entries["train"](b)
            assert set(found) == {"loss", "grad_norm"}
            losses.append(float(found["loss"]))
            np.testing.assert_allclose(found["loss"], want["loss"], atol=1e-5)
            np.testing.assert_allclose(found["grad_norm"], want["grad_norm"], atol=1e-5)
        assert trainer.step_number == STEPS
        assert trainer.replaced == 0
        for name, a in trainer.state.items():
            np.testing.assert_allclose(a, whole.state[name], atol=1e-5, err_msg=name)
    np.testing.assert_allclose(losses, torch_losses(batches), atol=1e-5)
    assert losses[-1] < losses[0]


def test_every_copy_has_the_same_bits(package: Path) -> None:
    """What the workers hold is asked of each: gradients of one batch by each worker alone."""
    with Trainer(package, 3, threads=1) as trainer:
        for s in range(5):
            trainer.step(batch(s))
        b = {n: a for n, a in batch(5, 4).items() if n != "lr"}
        shared = trainer._transport.share(b)
        replies = trainer._exchange("grads", [shared] * 3)
        own = trainer._replica.answer("grads", 5, b)
    for r in replies:
        assert r is not None
        assert r.step == 5
        for name, a in own.arrays.items():
            np.testing.assert_array_equal(r.arrays[name], a)


def test_fewer_rows_than_workers(package: Path) -> None:
    whole = li.load(package)
    with Trainer(package, 3, threads=1) as trainer:
        for s, rows in enumerate((2, 1, 4)):
            b = batch(s, rows)
            np.testing.assert_allclose(trainer.step(b)["loss"], whole.entries["train"](b)["loss"], atol=1e-5)
        with pytest.raises(li.LstmIrError, match="no part of the batch counts: it has 0 rows"):
            trainer.step(batch(3, 0))
        assert trainer.step_number == 3


@pytest.mark.slow
def test_a_loss_over_chosen_rows_is_weighed_by_them(tmp_path: Path, rng: np.random.Generator) -> None:
    """Rows are cut 4 and 3; the second part has one that counts, then none."""
    path = classifier(tmp_path, mask=True)
    whole = li.load(path)
    masks = [[1, 1, 0, 1, 0, 0, 1], [1, 0, 1, 1, 0, 0, 0]]
    with Trainer(path, 2, weigh=lambda part: part["mask"].sum(), threads=1) as trainer:
        for s, mask in enumerate(masks):
            b = {**batch(s), "mask": np.array(mask, bool)}
            want = whole.entries["train"](b)
            found = trainer.step(b)
            np.testing.assert_allclose(found["loss"], want["loss"], atol=1e-5)
            np.testing.assert_allclose(found["grad_norm"], want["grad_norm"], atol=1e-5)
    with Trainer(path, 2, threads=1) as trainer:  # by rows it would be another loss: the test above can fail
        found = trainer.step({**batch(0), "mask": np.array(masks[0], bool)})
        assert (
            abs(found["loss"] - li.load(path).entries["train"]({**batch(0), "mask": np.array(masks[0], bool)})["loss"])
            > 1e-3
        )


def test_a_loss_that_is_a_sum(tmp_path: Path) -> None:
    path = classifier(tmp_path, total=True)
    whole = li.load(path)
    with Trainer(path, 2, reduction="sum", threads=1) as trainer:
        for s in range(3):
            b = {n: a for n, a in batch(s).items() if n != "label"}
            np.testing.assert_allclose(trainer.step(b)["loss"], whole.entries["train"](b)["loss"], rtol=1e-5)


def test_checkpoints_resume(package: Path, tmp_path: Path) -> None:
    """To the bit, on another number of workers' processes of the same cut."""
    file = tmp_path / "c.safetensors"
    with Trainer(package, 2, threads=1) as trainer:
        want = [trainer.step(batch(s))["loss"] for s in range(8)]
        state = trainer.state
    with Trainer(package, 2, threads=1, checkpoint=file, checkpoint_every=3) as trainer:
        for s in range(5):
            trainer.step(batch(s))
    with Trainer(package, 2, threads=1, checkpoint=file, checkpoint_every=3, resume=True) as trainer:
        assert trainer.step_number == 3
        assert [trainer.step(batch(s))["loss"] for s in range(3, 8)] == want[3:]
        for name, a in trainer.state.items():
            np.testing.assert_array_equal(a, state[name])
        trainer.save_state(tmp_path / "saved.safetensors")
        trainer.step(batch(8))
        trainer.load_state(tmp_path / "saved.safetensors")
        assert trainer.step_number == 8
        again = trainer.step(batch(8))
    exe = li.load(package)  # the file is that of an executable
    exe.load_state(tmp_path / "saved.safetensors")
    np.testing.assert_allclose(exe.entries["train"](batch(8))["loss"], again["loss"], atol=1e-5)
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(li.PackageError):
        Trainer(package, 2, checkpoint=tmp_path / "bad.safetensors", resume=True)


def test_a_step_that_is_refused_changes_nothing(package: Path) -> None:
    with Trainer(package, 2, threads=1) as trainer:
        trainer.step(batch(0))
        before = trainer.state
        bad = batch(1)
        bad["x"] = bad["x"].copy()
        at = ((np.nan, "worker 1: grads: loss is nan at step 2"), (np.inf, "apply: grad_norm is nan at step 2"))
        for value, said in at:
            bad["x"][0, 5, 0] = value  # a row of the second part
            with pytest.raises(li.ValueRangeError, match=said):
                trainer.step(bad)
        with pytest.raises(li.ValueRangeError, match="apply: lr is nan at step 2"):
            trainer.step({**batch(1), "lr": np.float32("nan")})
        for name, a in trainer.state.items():
            np.testing.assert_array_equal(a, before[name])
        assert trainer.step_number == 1
        found = trainer.step(batch(1))
        assert trainer.replaced == 0
    with Trainer(package, 2, threads=1) as trainer:
        trainer.step(batch(0))
        assert trainer.step(batch(1))["loss"] == found["loss"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": None}, "missing input x"),
        ({"lr": None}, "step: missing input lr"),
        ({"z": np.zeros(3)}, "unknown input z"),
        ({"x": np.zeros((T, 7, I))}, r"x: expected f32 \(float32\), got float64"),
        ({"x": np.zeros((T, 6, I), np.float32)}, "two sizes for B"),
        ({"label": np.full(7, C, np.int32)}, "expected"),
        ({"lr": np.zeros((), np.float64)}, "lr: expected f32"),
    ],
    ids=str,
)
def test_inputs_are_checked_before_anything_is_sent(
    package: Path, change: dict[str, Any], said: str, refused: Trainer
) -> None:
    given = {n: a for n, a in {**batch(0), **change}.items() if a is not None}
    with pytest.raises(li.LstmIrError, match=said):
        refused.step(given)
    assert refused.step_number == 0


@pytest.fixture(scope="module")
def refused(package: Path) -> Any:
    one: Any = np.int64(1)
    with Trainer(package, one, checkpoint_every=one, threads=1) as trainer:
        yield trainer


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"workers": 0}, "workers is 0; expected a number from 1 to 1024"),
        ({"workers": True}, "workers is True"),
        ({"timeout": 0}, "timeout is 0"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0"),
        ({"resume": "no"}, "resume is 'no'; expected True or False"),
        ({"resume": True}, "resume begins with a checkpoint"),
        ({"checkpoint": 3}, "Trainer: checkpoint is 3; expected a path"),
        ({"reduction": "max"}, "reduction is 'max'"),
        ({"weigh": 3}, "weigh is a function"),
        ({"batch": "N"}, "no input has an axis of size N"),
    ],
    ids=str,
)
def test_what_a_trainer_cannot_be_made_of(package: Path, words: dict[str, Any], said: str) -> None:
    with pytest.raises(li.CallError, match=said):
        Trainer(package, **words)


def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step(package: Path, tmp_path: Path) -> None:
    for path, said in ((tmp_path / "no" / "run.safetensors", "stands in no folder"), (tmp_path, "is a folder")):
        with pytest.raises(li.PackageError, match=f"Trainer: checkpoint .* {said}"):
            Trainer(package, checkpoint=path)


def test_packages_that_do_not_train(tmp_path: Path) -> None:
    x = li.input("x", ("B", 2))
    path = li.export(li.Graph("g", [x], {"y": x + x}), tmp_path / "m.lirpkg", ["cpu:host"])
    with pytest.raises(
        li.CallError,
        match=r"no package of li\.train_step\(\.\.\., grads=True\), with the entries grads and apply; it has main",
    ):
        Trainer(path)
    with pytest.raises(li.PackageError, match="No such file"):
        Trainer(tmp_path / "none.lirpkg")
    with pytest.raises(li.PackageError, match="takes the path of a package, got int"):
        Trainer(3)  # type: ignore[arg-type]


def beyond_grads_and_apply(kind: str) -> li.Program:
    """Programs whose `train` moves more than `apply` does."""
    x, h = li.input("x", ("B", 2)), li.input("h", ("B", 2))
    y = x @ li.weight("w", np.eye(2, dtype=np.float32))
    more: dict[str, Any] = {"accumulate": 2} if kind == "accumulate" else {}
    if kind == "running":
        mean, var = li.weight("mean", np.zeros(2, np.float32)), li.weight("var", np.ones(2, np.float32))
        y = li.batch_norm(y, mean, var, training=True).y
    graph = li.Graph("g", [x], {"loss": li.mean(y * y), "y": y})
    if kind != "carried":
        return li.train_step(graph, loss="loss", optimizer=li.sgd(0.1), grads=True, **more)
    y = li.tanh(y + h)
    carried = li.stateful(li.Graph("g", [x, h], {"loss": li.mean(y * y), "h_n": y}), {"h": "h_n"})
    return li.train_step(carried, loss="loss", optimizer=li.sgd(0.1), grads=True)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("running", "its `train` moves 'mean', a running statistic, which a Trainer does not support"),
        ("accumulate", r"several calls of its `train` make one update \(accumulate\), which a Trainer does not"),
        ("carried", "it carries 'h' from call to call, which a Trainer does not"),
    ],
)
def test_what_grads_and_apply_leave_out_is_refused(tmp_path: Path, kind: str, said: str) -> None:
    path = li.export(beyond_grads_and_apply(kind), tmp_path / "m.lirpkg", ["cpu:host"])
    with pytest.raises(li.CallError, match=said):
        Trainer(path, 1)


def test_what_only_a_plateau_moves_is_taken(tmp_path: Path) -> None:
    """Its entry reports metrics; the rate of a step is what the state says."""
    x = li.input("x", ("B", 2))
    y = x @ li.weight("w", np.ones((2, 1), np.float32))
    optimizer = li.sgd(li.schedules.plateau(0.1, factor=0.5, patience=2))
    program = li.train_step(li.Graph("g", [x], {"loss": li.mean(y * y)}), loss="loss", optimizer=optimizer, grads=True)
    with Trainer(li.export(program, tmp_path / "m.lirpkg", ["cpu:host"]), 1, threads=1) as trainer:
        assert trainer.step(x=np.ones((3, 2), np.float32))["loss"] == 4.0


def test_a_closed_trainer(package: Path) -> None:
    trainer = Trainer(package, 2, threads=1)
    trainer.close()
    trainer.close()
    for call in (lambda: trainer.step(batch(0)), lambda: trainer.save_state("x"), lambda: trainer.load_state("x")):
        with pytest.raises(li.DeviceError, match="the trainer is closed"):
            call()


def test_workers_that_cannot_start(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(li.DeviceError, match=r"worker 0 was lost \d times while it started: it ended with exit code 1"):
        Trainer(package, 2)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(li.DeviceError, match="a worker cannot be started: No such file"):
        Trainer(package, 2)


def test_a_trainer_that_cannot_be_made_leaves_nothing(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy of the state is freed, and the workers that it has started end."""
    links: list[ProcessLink] = []
    freed: list[Replica] = []
    start, close = Processes.start, Replica.close

    def second_fails(self: Processes) -> ProcessLink:
        if links:
            raise li.DeviceError("a worker cannot be started: too many processes")
        links.append(start(self))
        return links[0]

    def noted(self: Replica) -> None:
        freed.append(self)
        close(self)

    monkeypatch.setattr(Processes, "start", second_fails)
    monkeypatch.setattr(Replica, "close", noted)
    with pytest.raises(li.DeviceError, match="too many processes"):
        Trainer(package, 3)
    assert len(freed) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(links[0].pid, 0)
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(li.PackageError):
        Trainer(package, 3, checkpoint=tmp_path / "bad.safetensors", resume=True)
    assert len(freed) == 2


def test_a_key_reaches_the_workers(tmp_path: Path) -> None:
    x = li.input("x", ("B", 2))
    y = x @ li.weight("w", np.ones((2, 1), np.float32))
    program = li.train_step(
        li.Graph("g", [x], {"loss": li.mean(y * y)}), loss="loss", optimizer=li.sgd(0.1), grads=True
    )
    path = li.export(program, tmp_path / "m.lirpkg", ["cpu:host"], sign_key="secret")
    with Trainer(path, 2, require_key="secret", threads=1) as trainer:
        assert trainer.step(x=np.ones((3, 2), np.float32))["loss"] == 4.0
    with pytest.raises(li.PackageError, match="was not made with this key"):
        Trainer(path, 2, require_key="other")
