"""`li.fit`: the loop, validation, early stopping, batches that do not fit."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fit_model import B, I, batches, model

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable
from lstm_ir.fitting.progress import Progress, Share

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def exe() -> Iterator[Executable]:
    with li.compile(model().only("train", "evaluate", "infer")) as made:
        yield made


def quiet(session: Any, given: Any, **options: Any) -> Any:
    return li.fit(session, given, progress=False, **options)


def by_hand(session: Any, given: list[Any]) -> list[dict[str, float]]:
    """What a loop of one's own gets."""
    outs = [session.entries["train"](b) for b in given]
    return [{n: float(a) for n, a in out.items()} for out in outs]


def test_epochs_are_the_same_calls(exe: Executable, seed: int) -> None:
    given = batches(seed, 5)
    with exe.session() as one, exe.session() as two:
        history = quiet(one, given, epochs=3)
        want = by_hand(two, given * 3)
        for n in one.state:
            np.testing.assert_array_equal(one.state[n], two.state[n], err_msg=n)
    assert history.losses == [w["loss"] for w in want]
    assert [(r.step, r.epoch) for r in history] == [(5, 1), (10, 2), (15, 3)]
    assert len(history) == 3
    for n in ("loss", "accuracy", "grad_norm"):
        means = [np.mean([w[n] for w in want[k : k + 5]]) for k in (0, 5, 10)]
        np.testing.assert_allclose(history[n], means, rtol=1e-6, err_msg=n)
    with pytest.raises(li.CallError, match="no report has 'val_loss'; there are loss"):
        history["val_loss"]
    assert history.stopped == "epochs"
    assert history.best is None
    assert history.exe is one
    assert all(r.steps_per_second > 0 for r in history)


def test_steps_end_inside_an_epoch(exe: Executable, seed: int) -> None:
    given = batches(seed, 5)
    with exe.session() as one, exe.session() as two:
        history = quiet(one, given, steps=12, every=5)
        want = by_hand(two, (given * 3)[:12])
        assert one.state["step"] == 12
    assert history.losses == [w["loss"] for w in want]
    assert [r.step for r in history] == [5, 10, 12]
    assert history.stopped == "steps"
    np.testing.assert_allclose(history["loss"][-1], np.mean(history.losses[10:]))


def test_a_function_gives_the_batches_of_each_epoch(exe: Executable, seed: int) -> None:
    given, asked = batches(seed, 6), []

    def shuffled(epoch: int) -> Iterator[Any]:
        asked.append(epoch)
        yield from [given[k] for k in np.random.default_rng(epoch).permutation(6)]

    with exe.session() as one, exe.session() as two:
        history = quiet(one, shuffled, epochs=2)
        want = by_hand(two, [given[k] for e in range(2) for k in np.random.default_rng(e).permutation(6)])
    assert asked == [0, 1]
    assert history.losses == [w["loss"] for w in want]


def test_validation_is_evaluate_over_all_batches(exe: Executable, seed: int) -> None:
    given, held_out = batches(seed, 4), batches(seed + 1, 3)
    with exe.session() as one, exe.session() as two:
        history = quiet(one, given, epochs=2, validation=held_out)
        for epoch in range(2):
            by_hand(two, given)
            found = [two.entries["evaluate"](b) for b in held_out]
            for n in ("loss", "accuracy"):
                want = np.mean([float(f[n]) for f in found])
                np.testing.assert_allclose(history[f"validation/{n}"][epoch], want, rtol=1e-6)
    losses = history["validation/loss"]
    assert history.best == history.records[int(np.argmin(losses))].step


@pytest.mark.parametrize(("every", "asked"), [(None, [0, 1, 2]), (2, [0, 0, 1, 1, 1, 2, 2, 2]), (3, [0, 1, 1, 2, 2])])
def test_a_function_gives_the_validation_of_each_epoch(
    exe: Executable, every: int | None, asked: list[int], seed: int
) -> None:
    """From 0, as batches; the epoch is that of the last step, also where its last batch is done."""
    epochs: list[int] = []

    def held_out(epoch: int) -> list[dict[str, Array]]:
        epochs.append(epoch)
        return batches(99, 1)

    def nothing(epoch: int) -> Any:
        return 5

    with exe.session() as session:
        history = quiet(session, batches(seed, 5), epochs=3, every=every, validation=held_out)
        assert epochs == asked
        assert [r.epoch for r in history] == [n + 1 for n in asked]
        with pytest.raises(li.CallError, match="validation gave int for epoch 1; expected an iterable"):
            quiet(session, batches(seed, 5), epochs=1, every=every, validation=nothing)


def test_early_stopping_restores_the_best(exe: Executable, seed: int, tmp_path: Path) -> None:
    """A validation set that turns against what is learnt: with other labels its loss grows."""
    given = batches(seed, 4)
    turned = [{**b, "label": 1 - b["label"]} for b in given]
    for path in (None, tmp_path / "run.safetensors"):
        with exe.session() as one, exe.session() as two:
            history = quiet(one, given, epochs=50, validation=turned, patience=3, checkpoint=path)
            losses = history["validation/loss"]
            best = int(np.argmin(losses))
            assert history.stopped == "patience"
            assert len(losses) == best + 1 + 3
            assert history.best == history.records[best].step == 4 * (best + 1)
            by_hand(two, given * (best + 1))
            for n in one.state:
                np.testing.assert_array_equal(one.state[n], two.state[n], err_msg=n)
    with exe.session() as latest, exe.session() as kept:
        latest.load_state(tmp_path / "run.safetensors")
        kept.load_state(tmp_path / "run.best.safetensors")
        assert latest.state["step"] == 4 * len(losses)
        assert kept.state["step"] == history.best


def test_a_validation_that_is_no_number_is_not_the_best(exe: Executable, seed: int) -> None:
    nothing = [{**b, "x": b["x"] * np.float32(np.nan)} for b in batches(seed, 1)]
    with exe.session() as s:
        history = quiet(s, batches(seed, 2), epochs=9, validation=nothing, patience=2)
        assert s.state["step"] == 4
    assert (history.stopped, history.best) == ("patience", None)
    assert np.isnan(history["validation/loss"]).all()


def test_a_program_is_compiled_and_a_package_is_loaded(seed: int, tmp_path: Path) -> None:
    program, given = model(), batches(seed, 3)
    made = quiet(program, given, epochs=1)
    assert set(made.exe.entries) == {"train", "evaluate", "infer"}
    path = li.export(program.only("train"), tmp_path / "m.lirpkg", ["cpu:host"])
    with made.exe, li.load(path) as loaded:
        assert quiet(loaded, given, epochs=1).losses == made.losses


def test_a_plateau_gets_the_validation_loss(seed: int) -> None:
    """The metric that never becomes better halves the rate at every second report."""
    program = model(li.sgd(li.schedules.plateau(0.5, 0.5, 1, threshold=0.0)))
    given, same = batches(seed, 2), [batches(seed + 1, 1)[0]]
    bad = [{**same[0], "x": same[0]["x"] * np.float32(np.nan)}]
    history = quiet(program, given, epochs=5, validation=bad)
    np.testing.assert_allclose(history["lr"], [0.5, 0.5, 0.25, 0.25, 0.125])
    history.exe.close()
    without = quiet(program, given, epochs=1)
    assert float(without.exe.state["plateau/best"]) == pytest.approx(without["loss"][0])
    without.exe.close()


def test_carried_state_begins_anew_with_each_epoch_and_validation(seed: int) -> None:
    x, want = li.input("x", ("T", "B", 3)), li.input("want", ("T", "B", 2))
    h0, rng = li.input("h0", (1, "B", 4)), np.random.default_rng(seed)
    shapes = {"w": (4, 3), "r": (4, 4), "o": (2, 4)}
    w, r, o = (li.weight(n, rng.uniform(-0.5, 0.5, s).astype("f4")) for n, s in shapes.items())
    y, h_n = li.rnn(x, w, r, h0=h0)
    graph = li.Graph("g", [x, want, h0], {"loss": li.mse(li.dense(y, o), want), "h_n": h_n})
    program = li.train_step(li.stateful(graph, {"h0": "h_n"}), "loss", li.sgd(0.1), evaluate=True)

    def chunks(rows: int, count: int) -> list[dict[str, Array]]:
        shapes = {"x": (5, rows, 3), "want": (5, rows, 2)}
        return [{n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()} for _ in range(count)]

    given, held_out = chunks(3, 4), chunks(2, 3)
    with li.compile(program.only("train", "evaluate", "reset")) as exe:
        history = quiet(exe, given, epochs=2, validation=held_out)
        with exe.session() as two:
            losses, checks = [], []
            for _ in range(2):
                two.entries["reset"]()
                losses += [float(two.entries["train"](b)["loss"]) for b in given]
                held = np.zeros((1, 2, 4), "f4")
                for b in held_out:
                    out = two.entries["evaluate"](b, h0=held)
                    held = out["h0"]
                    checks.append(float(out["loss"]))
            np.testing.assert_array_equal(exe.state["h0"], two.state["h0"])
    assert history.losses == losses
    np.testing.assert_allclose(history["validation/loss"], [np.mean(checks[:3]), np.mean(checks[3:])], rtol=1e-6)


good: dict[str, Any] = batches(0, 1)[0]
WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no end": ([good], {}, "neither epochs nor steps say when the run ends"),
    "epochs": ([good], {"epochs": 0}, "epochs is 0; expected a whole number, at least 1"),
    "steps": ([good], {"steps": 1.5}, "steps is 1.5; expected a whole number, at least 1"),
    "patience": ([good], {"epochs": 1, "patience": True}, "patience is True; expected a whole number"),
    "patience alone": ([good], {"epochs": 1, "patience": 1}, "patience counts validations; give batches"),
    "resume": ([good], {"epochs": 1, "resume": "yes"}, "resume is 'yes'; expected True or False"),
    "resume of nothing": ([good], {"epochs": 1, "resume": True}, "resume goes on from a checkpoint; give its path"),
    "checkpoint": ([good], {"epochs": 1, "checkpoint": 5}, "checkpoint is 5; expected a path"),
    "log": ([good], {"epochs": 1, "log": 5}, "log is 5; expected a path, or a writer"),
    "one batch": (good, {"epochs": 1}, "batches is one batch; expected an iterable of batches"),
    "a number": (5, {"epochs": 1}, "batches is int; expected an iterable"),
    "text": ("abc", {"epochs": 1}, "batches is str; expected an iterable"),
    "nothing": ([], {"epochs": 1}, "batches gave no batch in epoch 1"),
    "arrays": ([good["x"]], {"epochs": 1}, "epoch 1, batch 1: a batch is arrays by name, got ndarray"),
    "a function of one batch": (lambda e: good, {"epochs": 1}, "batches gave dict for epoch 1; expected"),
    "a function of nothing": (lambda e: None, {"epochs": 1}, "batches gave NoneType for epoch 1; expected"),
    "a missing input": ([good, {"x": good["x"]}], {"epochs": 1}, "epoch 1, batch 2: train: missing input label"),
    "another input": ([{**good, "y": 1}], {"epochs": 1}, "epoch 1, batch 1: train: unknown input y"),
    "another shape": ([{**good, "x": good["x"][0]}], {"epochs": 1}, "epoch 1, batch 1: x: expected f32"),
    "another dtype": ([{**good, "label": good["label"] * 1.5}], {"epochs": 1}, "epoch 1, batch 1: label"),
    "an iterator": (iter([good]), {"epochs": 2}, "batches is an iterator, .* and epochs is 2; give something"),
    "an iterator that ends": (iter([good, good]), {"steps": 5}, "batches ended after 2 of 5 steps; an iterator"),
    "no validation": ([good], {"epochs": 1, "validation": []}, "validation gave no batch"),
    "one validation": ([good], {"epochs": 1, "validation": good}, "validation is one batch; expected"),
    "validation once": ([good], {"epochs": 1, "validation": iter([good])}, "validation is an iterator, which ends"),
    "a wrong validation": ([good], {"epochs": 1, "validation": [{}]}, "validation batch 1: evaluate: missing input"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_refused(name: str, exe: Executable) -> None:
    given, options, problem = WRONG[name]
    with exe.session() as s, pytest.raises(li.CallError, match=f"fit: .*{problem}"):
        quiet(s, given, **options)


def test_programs_that_do_not_train(exe: Executable) -> None:
    x = li.input("x", (3,))
    graph = li.Graph("g", [x], {"y": x + 1})
    with pytest.raises(li.CallError, match=r"fit: takes a program of li.train_step, .* got Graph"):
        quiet(graph, [good], epochs=1)
    with pytest.raises(li.CallError, match="fit: there is no entry train; there are main"):
        quiet(li.Program.of(graph), [good], epochs=1)
    with pytest.raises(li.CallError, match=r"validation takes the entry evaluate: li.train_step\(..., evaluate=True"):
        quiet(model().only("train"), [good], epochs=1, validation=[good])


@pytest.mark.parametrize("place", ["", "nowhere/run.safetensors"])
def test_a_checkpoint_that_cannot_be_is_refused_before_the_first_batch(
    exe: Executable, place: str, tmp_path: Path
) -> None:
    with exe.session() as s:
        before = s.state["step"]
        with pytest.raises(
            li.PackageError, match=r"fit: checkpoint .* (is a folder|stands in no folder that there is)"
        ):
            li.fit(s, batches(1, 2), epochs=1, checkpoint=tmp_path / place)
        assert s.state["step"] == before


def test_a_validation_that_does_not_fit_is_refused_before_the_first_step(exe: Executable) -> None:
    """Of a list, whose first batch costs nothing to see; a function of the epoch is asked when its epoch ends."""
    wrong = [{**good, "x": good["x"][:, :3]}]
    for validation, steps in ((wrong, 0), (tuple(wrong), 0), (lambda epoch: wrong, 1)):
        with exe.session() as s:
            before = int(s.state["step"])
            with pytest.raises(li.CallError, match="fit: validation batch 1: x: expected f32"):
                quiet(s, [good], epochs=1, validation=validation)
            assert int(s.state["step"]) - before == steps


def test_another_thread_may_fit(exe: Executable, seed: int) -> None:
    """Interrupts are the main thread's."""
    with exe.session() as s:
        losses: list[float] = []
        thread = threading.Thread(target=lambda: losses.extend(quiet(s, batches(seed, 3), epochs=2).losses))
        thread.start()
        thread.join()
    assert len(losses) == 6


def test_a_step_that_is_not_finite_names_its_batch(exe: Executable, seed: int) -> None:
    given = batches(seed, 3)
    given[1]["x"] = given[1]["x"] * np.float32(np.nan)
    with exe.session() as s:
        with pytest.raises(li.ValueRangeError, match="fit: epoch 1, batch 2: train: loss is nan at step 2; the state"):
            quiet(s, given, epochs=1)
        assert s.state["step"] == 1


def test_the_line_says_what_is_known(exe: Executable, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    with exe.session() as s:
        li.fit(s, batches(seed, 3), epochs=2, validation=batches(seed, 1))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    words = lines[1].split("  ")
    assert words[:2] == ["epoch 2", "step 6"]
    assert [w.split()[0] for w in words[2:6]] == ["loss", "accuracy", "validation/loss", "validation/accuracy"]
    assert words[6].endswith(" steps/s")
    assert words[7].endswith("% of peak")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_changes(exe: Executable) -> None:
    stream = Terminal()
    line = Progress(Share(exe.entries["train"], exe), "/9", stream)
    line.show(1, 1, {"loss": 0.123456, "other": 2.0}, 12.345, None, report=False)
    line.show(2, 1, {"loss": 0.1}, 1234.5, None, report=True)
    line.say("done")
    first, second, third = stream.getvalue().split("\r")[1:]
    assert first == "epoch 1  step 1/9  loss 0.1235  12.3 steps/s"
    assert second == "epoch 1  step 2/9  loss 0.1  1234 steps/s".ljust(len(first)) + "\n"
    assert third == "done\n"


def test_the_share_counts_operations_and_only_of_f32(exe: Executable, seed: int) -> None:
    (b,) = batches(seed, 1)
    share = Share(exe.entries["train"], exe)
    operations = exe.entries["train"].operations(b)
    assert operations is not None
    products = 6 * B * I * 16  # of the first layer, forward and backward: a part of all
    assert products < operations < 100 * products
    assert share.of(b, 0.0) == 0.0
    one, two = share.of(b, 10.0), share.of(b, 20.0)
    assert one is not None
    assert two == pytest.approx(2 * one)
    with li.compile(model(kind="f8").only("train")) as wide:
        given = {**b, "x": b["x"].astype("f8")}
        assert Share(wide.entries["train"], wide).of(given, 10.0) is None
