"""The text of a report, line by line: what stands on the screen of `lstm-ir import`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need
from paths import DATA

import lstm_ir as li

H, I = 4, 6


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir")


def lines(made: Any, target: str | None = None, **options: Any) -> dict[str, list[str]]:
    """What stands behind each name of a line; a name is at most 14 signs long."""
    found: dict[str, list[str]] = {}
    for line in str(li.examine(made, target=target, **options)).splitlines()[1:]:
        name, _, rest = line.partition("  ")
        found.setdefault(name, []).append(rest.strip())
    return found


def one(found: Mapping[str, list[str]], name: str) -> str:
    (line,) = found[name]
    return line


def weights(rng: np.random.Generator, op: str, gates: int) -> dict[str, Any]:
    shapes = {f"W{op}": (1, gates * H, I), f"R{op}": (1, gates * H, H)}
    return {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}


def test_what_reads_a_refused_node_and_what_was_not_reached() -> None:
    body = om.graph([om.node("Neg", ["s"], ["t"]), om.node("Abs", ["t"], ["u"])], {}, ["u"])
    nodes = [
        om.node("NoSuchOp", ["x"], ["a"]), om.node("Neg", ["a"], ["b"], name="n1"), om.node("Neg", ["b"], ["c"]),
        om.node("Tanh", ["c"], ["y"]), om.node("Abs", ["x"], ["s"]),
        om.node("If", ["flag"], ["z"], then_branch=body, else_branch=body),
    ]  # fmt: skip
    found = lines(om.model(nodes, {"x": ([3], "f4"), "flag": ([], "?")}, ["y", "z"]))
    assert one(found, "ops taken") == "Abs 1"
    assert one(found, "refused") == "If 1  NoSuchOp 1"
    assert one(found, "behind those") == "Neg 2  Tanh 1"
    assert one(found, "not looked at") == "4 nodes in branches and bodies that were not reached"
    assert one(found, "wants constant") == "flag, compared with no number: --constant flag=VALUE"


def test_sizes_that_would_have_to_be_numbers() -> None:
    made = om.asks_for_a_size()
    assert one(lines(made), "wants number") == "T: --size T=NUMBER"
    assert "wants number" not in lines(made, sizes={"T": 5})


def test_sizes_that_would_have_to_be_one() -> None:
    inputs: dict[str, Any] = {n: ([f"batch_{n}", 3], "f4") for n in "ab"}
    made = om.model([om.node("Add", ["a", "b"], ["y"])], inputs, ["y"])
    line = one(lines(made), "wants one size")
    assert line == "batch_a and batch_b, if they are always equal: --size batch_b=batch_a"
    typed = dict([line.rpartition("--size ")[2].split("=")])
    assert "wants one size" not in lines(made, sizes=typed)


def test_weights_and_literals() -> None:
    """Arrays without a name; a number that stands everywhere is none."""
    nodes = [
        om.node("Constant", [], ["k"], value=om.tensor(np.arange(6, dtype=np.float64).reshape(2, 3))),
        om.node("Constant", [], ["i"], value=om.tensor(np.arange(3))), om.node("Cast", ["x"], ["wide"], to=11),
        om.node("Constant", [], ["two"], value=om.tensor(np.full((2, 3), 2.0))), om.node("Mul", ["x", "w"], ["q"]),
        om.node("Add", ["wide", "k"], ["p"]), om.node("Mul", ["p", "two"], ["r"]), om.node("Add", ["n", "i"], ["m"]),
    ]  # fmt: skip
    inputs: dict[str, Any] = {"x": ([2, 3], "f4"), "n": ([3], "i8")}
    found = lines(om.model(nodes, inputs, ["q", "r", "m"], {"w": np.ones((2, 3), "f4")}))
    assert one(found, "weights") == "1 arrays, 24 bytes: f32 24 bytes"
    assert sorted(one(found, "literals").split(": ")[1].split(", ")) == ["f64 48 bytes", "i64 24 bytes"]
    assert one(found, "literals").startswith("2 arrays, 72 bytes: ")


def test_layers_that_could_keep_their_states(rng: np.random.Generator) -> None:
    """Those that run forward from zeros; of more than three the rest is counted."""
    nodes = [
        om.node("LSTM", ["x", "WLSTM", "RLSTM"], ["y"], hidden_size=H, name="/a/LSTM"),
        om.node("GRU", ["x", "WGRU", "RGRU"], ["back"], hidden_size=H, name="/b/GRU", direction="reverse"),
        *(om.node("GRU", ["x", "WGRU", "RGRU"], [f"z{k}"], hidden_size=H, name=f"/c{k}/GRU") for k in range(3)),
    ]  # fmt: skip
    outs = ["y", "back", "z0", "z1", "z2"]
    given = {**weights(rng, "LSTM", 4), **weights(rng, "GRU", 3)}
    found = li.examine(om.model(nodes, {"x": (["T", "B", I], "f4")}, outs, given), target=None)
    kept = "/a/LSTM h,c f32[1,B,4], /c0/GRU h f32[1,B,4], /c1/GRU h f32[1,B,4] and 1 more"
    assert f"could be kept {kept}: start from zeros at each call" in " ".join(str(found).split())


def test_cells_among_plain_ops() -> None:
    """A GRU cell as PyTorch's exporter writes it, which `fuse-cell` makes one op; only a plan looks for it."""
    file = DATA / "onnx_cells" / "torch_script_gru.onnx"
    assert one(lines(file, "cpu"), "cells found") == "1 among plain ops (fuse-cell)"
    assert "cells found" not in lines(file)
