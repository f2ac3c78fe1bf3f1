"""The entry `infer` of `train_step` is the graph in inference: nothing drawn, nothing else changed."""

from __future__ import annotations

from typing import Any

import cudnn_cases as cu
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.errors import GradientError
from lstm_ir.ir.program import Program

T, B, I, H, L = 11, 3, 5, 7, 2
ROWS = np.full(B, T, np.int32)


def cudnn(training: bool, mode: str = "lstm") -> li.Graph:
    """Two layers with dropout between them, a loss and every result."""
    r = np.random.default_rng(5)
    p = r.standard_normal(cu.params_size(L, 1, I, H, rnn_mode=mode)).astype(np.float32)
    x, step = li.input("x", (T, B, I)), li.input("step", (), "i64")
    out = li.op(
        cu.FORWARD, input=x, input_h=np.zeros((L, B, H), np.float32), step=step, dropout=0.5,
        input_c=np.zeros((L, B, H) if mode == "lstm" else (), np.float32), seed=9,
        params=li.weight("p", p), sequence_lengths=ROWS, rnn_mode=mode, is_training=training,
    )  # fmt: skip
    loss = li.mean(out.output * out.output)
    return li.Graph("m", [x, step], {"loss": loss, **out._asdict()})


def inferred(program: Program, **arrays: Any) -> dict[str, Any]:
    """What the entry gives before any step."""
    entry = program.entries["infer"]
    held = {n: s.initial.array for n, s in program.state.items()}
    return li.interpret(entry, {n: {**held, **arrays}[n] for n in entry.input_names})


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_a_cudnn_layer_drops_nothing(mode: str, rng: np.random.Generator) -> None:
    a = rng.standard_normal((T, B, I)).astype(np.float32)
    got = inferred(li.train_step(cudnn(True, mode), "loss", li.sgd(0.5)), x=a)
    want = li.interpret(cudnn(False, mode), x=a, step=np.int64(0))
    assert got["reserve_space"].shape == ()
    for name, value in got.items():
        np.testing.assert_array_equal(value, want[name], err_msg=name)


def test_inside_a_loop(rng: np.random.Generator) -> None:
    """The op as the body of a scan, over two pieces of a sequence."""
    p = rng.standard_normal(cu.params_size(L, 1, I, H)).astype(np.float32) * np.float32(0.3)

    def graph(training: bool) -> li.Graph:
        x, w = li.input("x", (2, T, B, I)), li.weight("p", p)

        def body(state: Any, rows: Any) -> Any:
            h, c = state
            r = li.op(
                cu.FORWARD, input=rows, input_h=h, input_c=c, params=w, dropout=0.5,
                sequence_lengths=ROWS, is_training=training,
            )  # fmt: skip
            return (r.output_h, r.output_c), r.output

        zero = li.zeros((L, B, H))
        _, y = li.scan(body, (zero, zero), x)
        return li.Graph("m", [x], {"loss": li.mean(y * y), "y": y})

    a = rng.standard_normal((2, T, B, I)).astype(np.float32)
    got = inferred(li.train_step(graph(True), "loss", li.sgd(0.5)), x=a)
    np.testing.assert_array_equal(got["y"], li.interpret(graph(False), x=a)["y"])


def test_training_that_asks_for_a_result_stays(rng: np.random.Generator) -> None:
    """MPSGraph's `training` gives z; nothing is drawn, so nothing is switched off."""
    w = {"W": (4 * H, I), "R": (4 * H, H)}
    made = {n: li.weight(n, rng.standard_normal(s).astype(np.float32)) for n, s in w.items()}
    x = li.input("x", (T, B, I))
    r = li.op("mps.LSTM", source=x, inputWeight=made["W"], recurrentWeight=made["R"], training=True)
    g = li.Graph("m", [x], {"loss": li.mean(r.h * r.h), "z": r.z, "c": r.c})
    a = rng.standard_normal((T, B, I)).astype(np.float32)
    got, want = inferred(li.train_step(g, "loss", li.sgd(0.5)), x=a), li.interpret(g, x=a)
    assert set(got) == {"z", "c"}
    for name, value in got.items():
        np.testing.assert_array_equal(value, want[name], err_msg=name)


def test_an_output_that_only_training_has_is_refused() -> None:
    g = cudnn(True)
    wide = li.grad(g, "loss", ["p"])
    with pytest.raises(GradientError, match=r"entry infer.*is_training=True"):
        li.train_step(wide, "loss", li.sgd(0.5))


def test_every_random_op_says_what_turns_it_off() -> None:
    """An op of the project's own with such an attribute, and CudnnRNNV3; a new one is named here."""
    from lstm_ir.ir.opdef import OPS

    named = {n: o.training for n, o in OPS.items() if o.training is not None}
    assert named == {
        "dropout": "training",
        "batch_norm_results": "training",
        "zoneout_lstm": "training",
        "recurrent_dropout_lstm": "training",
        "tf.CudnnRNNV3": "is_training",
    }
    flags = {n for n, o in OPS.items() if {"training", "is_training"} & set(o.attrs)}
    assert {n for n in flags if not n.startswith("mps.")} == set(named)


def test_a_cell_in_a_cell_reads_the_rows_of_both() -> None:
    """Both bodies call theirs x0."""
    x, w, c = li.input("x", (5, 3)), li.input("w", (4, 3)), li.input("c", (3,))

    def outer(carry: Any, row: Any) -> Any:
        end, ys = li.scan(lambda a, k: (0.5 * a + k, a + row), carry, w)
        return end, li.sum(ys, (0,))

    end, ys = li.scan(outer, c, x)
    graph = li.Graph("nested", [x, w, c], {"end": end, "ys": ys})
    rng = np.random.default_rng(20263)
    shapes = {"x": (5, 3), "w": (4, 3), "c": (3,)}
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    state, want = given["c"], []
    for row in given["x"]:
        total = np.zeros(3, np.float32)
        for k in given["w"]:
            total += state + row
            state = 0.5 * state + k
        want.append(total)
    got = li.interpret(graph, given)
    np.testing.assert_allclose(got["ys"], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["end"], state, rtol=1e-5, atol=1e-5)
