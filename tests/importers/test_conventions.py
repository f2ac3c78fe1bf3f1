"""Weights from any convention into any other: the same results by the libraries themselves, and the way back."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from convention_runs import FORGET, HIDDEN, RUNS

import lstm_ir as li
from lstm_ir.importers.conventions import CONVENTIONS

Array = np.ndarray[Any, Any]
T, B, I, H, P = 4, 2, 3, HIDDEN, 2
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
assert set(RUNS) == set(CONVENTIONS)


def places(cell: str, after: bool | None = None) -> list[str]:
    """The conventions that have the cell, and of a GRU this reset."""
    return [
        n
        for n, c in CONVENTIONS.items()
        if cell in c.forms and (after is None or c.forms[cell].resets in (None, after))
    ]


KINDS = [("lstm", None), ("gru", True), ("gru", False), ("rnn", None)]
PAIRS = [(c, a, s, t) for c, a in KINDS for s, t in product(places(c, a), repeat=2)]


def drawn(
    rng: np.random.Generator, cell: str, *, after: bool | None, inner: bool = True, **more: bool
) -> dict[str, Array]:
    """Weights in the project's own names."""
    G, width = GATES[cell], P if more.get("projected") else H
    shapes: dict[str, tuple[int, ...]] = {"w_ih": (G * H, I), "w_hh": (G * H, width)}
    shapes |= {"b": (G * H,)} if more.get("biased", True) else {}
    shapes |= {"b_hn": (H,)} if after and inner else {}
    shapes |= {"w_hr": (P, H)} if more.get("projected") else {}
    shapes |= {"peephole": (3 * H,)} if more.get("peephole") else {}
    return {n: (0.5 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}


def told(source: str, cell: str, after: bool | None) -> dict[str, Any]:
    return {
        "reset_after": after,
        "cell": cell,
        "forget_bias": FORGET,
        "hidden_size": H if source == "cudnn_params" else None,
    }


@pytest.mark.parametrize(("cell", "after", "source", "target"), PAIRS, ids=lambda v: str(v))
def test_there_and_back(rng: np.random.Generator, cell: str, after: bool | None, source: str, target: str) -> None:
    inner = "coreml" not in (source, target)
    ours = drawn(rng, cell, after=after, inner=inner)
    first = li.convert_weights(ours, source="lstm_ir", target=source, **told("lstm_ir", cell, after))
    second = li.convert_weights(first, source=source, target=target, **told(source, cell, after))
    again = li.convert_weights(second, source=target, target=source, **told(target, cell, after))
    back = li.convert_weights(again, source=source, target="lstm_ir", **told(source, cell, after))
    for name, a in ours.items():
        np.testing.assert_allclose(back[name], a, atol=2e-7, err_msg=name)
    assert all(not back[n].any() for n in set(back) - set(ours))  # a bias that a convention needs


def results_agree(cell: str, after: bool | None, name: str, ours: dict[str, Array], x: Array) -> None:
    want = RUNS["lstm_ir"](cell, ours, x, after)
    made = li.convert_weights(ours, source="lstm_ir", target=name, **told("lstm_ir", cell, after))
    np.testing.assert_allclose(RUNS[name](cell, made, x, after), want, atol=3e-6)


OTHERS = [(c, a, n) for c, a in KINDS for n in places(c, a) if n != "lstm_ir"]


@pytest.mark.parametrize(("cell", "after", "name"), OTHERS, ids=lambda v: str(v))
@pytest.mark.parametrize("biased", [True, False])
def test_each_library_gives_the_same(
    rng: np.random.Generator, cell: str, after: bool | None, name: str, biased: bool
) -> None:
    x = rng.standard_normal((T, B, I)).astype(np.float32)
    results_agree(cell, after, name, drawn(rng, cell, after=after, inner=name != "coreml", biased=biased), x)


@pytest.mark.parametrize(
    "name", [n for n in places("lstm") if CONVENTIONS[n].forms["lstm"].peephole and n != "lstm_ir"]
)
def test_peepholes(rng: np.random.Generator, name: str) -> None:
    x = rng.standard_normal((T, B, I)).astype(np.float32)
    results_agree("lstm", None, name, drawn(rng, "lstm", after=None, peephole=True), x)


PROJECTED = [n for n in places("lstm") if CONVENTIONS[n].forms["lstm"].projection and n != "lstm_ir"]


@pytest.mark.parametrize("name", [n for n in PROJECTED if n != "cudnn_params"])
def test_projections(rng: np.random.Generator, name: str) -> None:
    x = rng.standard_normal((T, B, I)).astype(np.float32)
    results_agree("lstm", None, name, drawn(rng, "lstm", after=None, projected=True), x)


def test_the_vector_has_the_projection_where_cudnn_has_it(rng: np.random.Generator) -> None:
    """Held to the project's own reading of a state_dict of PyTorch."""
    from lstm_ir.ops.cudnn.weights import from_torch

    ours = drawn(rng, "lstm", after=None, projected=True)
    torch = li.convert_weights(ours, source="lstm_ir", target="torch")
    made = li.convert_weights(ours, source="lstm_ir", target="cudnn_params")
    np.testing.assert_array_equal(made["params"], from_torch({f"{n}_l0": a for n, a in torch.items()}))
    sizes: dict[str, Any] = {"hidden_size": np.int64(H), "projection_size": P}
    back = li.convert_weights(made, source="cudnn_params", target="lstm_ir", **sizes)
    for name, a in ours.items():
        np.testing.assert_array_equal(back[name], a)


def test_the_project_has_one_reading_of_keras_weights(rng: np.random.Generator) -> None:
    from lstm_ir.ops.cudnn.weights import from_keras

    for cell, after in (("lstm", None), ("gru", True), ("rnn", None)):
        ours = drawn(rng, cell, after=after)
        keras = li.convert_weights(ours, source="lstm_ir", target="keras", **told("lstm_ir", cell, after))
        made = li.convert_weights(keras, source="keras", target="cudnn_params", cell=cell)
        mode = "rnn_tanh" if cell == "rnn" else cell
        whole = from_keras([list(keras.values())], rnn_mode=mode)
        sums = [li.convert_weights({"params": v}, source="cudnn_params", target="lstm_ir", cell=cell, hidden_size=H)
                for v in (made["params"], whole)]  # fmt: skip
        for name in sums[0]:
            np.testing.assert_array_equal(sums[0][name], sums[1][name])


def refused(message: str, arrays: Any, **kwargs: Any) -> None:
    with pytest.raises(li.IRError, match=message):
        li.convert_weights(arrays, **kwargs)


def test_what_the_target_does_not_have_is_refused(rng: np.random.Generator) -> None:
    peephole, projected = (drawn(rng, "lstm", after=None, **{k: True}) for k in ("peephole", "projected"))
    for name in places("lstm"):
        form = CONVENTIONS[name].forms["lstm"]
        if form.peephole is None:
            refused(f"have a peephole, {name} has none", peephole, source="lstm_ir", target=name)
        if form.projection is None:
            refused(f"have a projection, {name} has none", projected, source="lstm_ir", target=name)
    for after in (True, False):
        gru = drawn(rng, "gru", after=after)
        for name in set(places("gru")) - set(places("gru", after)):
            refused("resets (after|before) the product", gru, source="lstm_ir", target=name, **told("", "gru", after))
    gru = drawn(rng, "gru", after=True)
    refused("bias inside the product", gru, source="lstm_ir", target="coreml", cell="gru")
    refused("mps has no|tf_block_v2 has no gru", gru, source="lstm_ir", target="tf_block_v2", cell="gru")
    own = {
        "inputWeight": np.zeros((20, I), "f"),
        "recurrentWeight": np.zeros((20, H), "f"),
        "peephole": np.zeros(20, "f"),
    }
    refused("cell of the step before in all four gates", own, source="mps", target="onnx")


def test_bad_arrays_are_refused(rng: np.random.Generator) -> None:
    good = li.convert_weights(drawn(rng, "lstm", after=None), source="lstm_ir", target="torch")
    pair = {"source": "torch", "target": "keras"}
    refused("bias_hh missing beside bias_ih", {k: v for k, v in good.items() if k != "bias_hh"}, **pair)
    refused("weight_hh is missing", {"weight_ih": good["weight_ih"]}, **pair)
    refused("weight_xx is no array of this cell", {**good, "weight_xx": good["bias_ih"]}, **pair)
    refused("float32 and float64", {**good, "bias_ih": good["bias_ih"].astype("f8")}, **pair)
    refused("int64 elements, not floats", {**good, "bias_ih": np.arange(20)}, **pair)
    refused("not 4 gates of one size", {**good, "weight_hh": good["weight_hh"][:-1]}, **pair)
    refused("the input matrix has the shape", {**good, "weight_ih": good["weight_ih"][:16]}, **pair)
    refused("weight_ih has the shape .*expected 2 axes", {**good, "weight_ih": good["weight_ih"][0]}, **pair)
    refused("an array of 5 rows is not 4 gates", {**good, "weight_hh": good["weight_hh"].T}, **pair)
    refused("convention 'caffe' is not known; there are lstm_ir, torch", good, source="caffe", target="torch")
    refused("cell is 'mlp'", good, cell="mlp", **pair)
    refused("expected arrays by name, got list", [good], **pair)
    refused("reset_after is of a gru", good, reset_after=True, **pair)
    gru = drawn(rng, "gru", after=True)
    refused("reset_after is False, but", gru, source="lstm_ir", target="keras", cell="gru", reset_after=False)
    del gru["b_hn"]
    refused("do not say where the reset gate", gru, source="lstm_ir", target="keras", cell="gru")
    vector = {"params": np.zeros(201, "f")}
    refused("give hidden_size", vector, source="cudnn_params", target="torch")
    refused("201 numbers, no lstm of 5 units", vector, source="cudnn_params", target="torch", hidden_size=H)
    many = {"W": np.zeros((2, 20, I), "f"), "R": np.zeros((2, 20, H), "f")}
    refused("one layer and direction at a time", many, source="onnx", target="torch")


def test_results_are_the_callers_own(rng: np.random.Generator) -> None:
    ours = drawn(rng, "lstm", after=None)
    made = li.convert_weights(ours, source="lstm_ir", target="lstm_ir")
    assert all(made[n].base is None and made[n].flags.c_contiguous and made[n] is not a for n, a in ours.items())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"source": ["torch"]}, r"the convention \['torch'\] is not known"),
        ({"cell": ["lstm"]}, r"cell is \['lstm'\], not one of lstm, gru, rnn"),
        ({"forget_bias": "1"}, "forget_bias is '1', not a number"),
        ({"forget_bias": None}, "forget_bias is None, not a number"),
        ({"hidden_size": True}, "hidden_size is True, not a number of units"),
        ({"projection_size": "3"}, "projection_size is '3', not a number of units"),
    ],
)
def test_arguments_of_other_types(given: dict[str, Any], said: str) -> None:
    arrays = {"weight_ih": np.ones((8, 3), "f4"), "weight_hh": np.ones((8, 2), "f4")}
    with pytest.raises(li.IRError, match=said):
        li.convert_weights(arrays, **{"source": "torch", "target": "tf1", **given})
