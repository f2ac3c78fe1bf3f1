"""What Predictor and Trainer say of bad input, word for word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from conftest import Golden
from served_models import I, encoder, stream
from trained_models import batch, classifier

import lstm_ir as li
from lstm_ir.parallel import Trainer
from lstm_ir.ray import Predictor


def said(call: Callable[[], Any], folder: Path) -> str:
    try:
        call()
    except li.LstmIrError as e:
        return f"{type(e).__name__}: {str(e).replace(str(folder), 'FOLDER')}"
    raise AssertionError("nothing was refused")


def test_messages_of_a_predictor(tmp_path: Path, golden: Golden) -> None:
    package, kept = encoder(tmp_path), stream(tmp_path)
    p = Predictor(package, inputs={"x": "frames"}, keep=["id"])
    x = np.zeros((2, 3, I), np.float32)
    calls: list[Callable[[], Any]] = [
        lambda: Predictor(tmp_path / "none.lirpkg"),
        lambda: Predictor(kept, entry="step"),
        lambda: Predictor(package, inputs={"z": "x"}),
        lambda: Predictor(package, inputs={}),
        lambda: Predictor(package, constants={"x": x}),
        lambda: Predictor(package, outputs=["z"]),
        lambda: Predictor(package, keep=["y"]),
        lambda: Predictor(package, max_rows=0),
        lambda: Predictor(package, batch="N"),
        lambda: p({"id": [1]}),
        lambda: p({"frames": x, "id": [1]}),
        lambda: p({"frames": x.astype(np.float64), "id": [1, 2]}),
        lambda: p({"frames": x[..., :4], "id": [1, 2]}),
        lambda: p({"frames": x[0], "id": [1, 2, 3]}),
        lambda: p({"frames": [x[0], x[1].astype(np.int32)], "id": [1, 2]}),
        lambda: p({"frames": [x[0], None], "id": [1, 2]}),
        lambda: p({"frames": "text", "id": [1, 2]}),
        lambda: p(x),  # type: ignore[arg-type]
    ]
    golden("parallel/predictor.txt", "\n".join(said(c, tmp_path) for c in calls))


def test_messages_of_a_trainer(tmp_path: Path, golden: Golden) -> None:
    served, package = encoder(tmp_path), classifier(tmp_path)
    first: list[Callable[[], Any]] = [
        lambda: Trainer(tmp_path / "none.lirpkg"),
        lambda: Trainer(served),
        lambda: Trainer(package, 0),
        lambda: Trainer(package, batch="N"),
        lambda: Trainer(package, reduction="max"),
        lambda: Trainer(package, resume=True),
        lambda: Trainer(package, timeout=0),
        lambda: Trainer(package, checkpoint_every=0),
    ]
    with Trainer(package, 2, threads=1, weigh=lambda part: float(part["x"][0, 0, 0])) as t:
        given = batch(0)
        nan = {**given, "x": np.full_like(given["x"], np.nan)}
        calls: list[Callable[[], Any]] = [
            lambda: t.step(x=given["x"], lr=given["lr"]),
            lambda: t.step({n: a for n, a in given.items() if n != "lr"}),
            lambda: t.step({**given, "lr": np.zeros((), np.float64)}),
            lambda: t.step(nan),
            lambda: t.load_state(tmp_path / "none.safetensors"),
        ]
        lines = [said(c, tmp_path) for c in [*first, *calls]]
    lines.append(said(lambda: t.step(batch(0)), tmp_path))
    with Trainer(package, 2, threads=1) as t:
        lines.append(said(lambda: t.step(nan), tmp_path))
        lines.append(said(lambda: t.step({**given, "lr": np.float32("inf")}), tmp_path))
        lines.append(said(lambda: t.step(batch(0, 0)), tmp_path))
    golden("parallel/trainer.txt", "\n".join(lines))
