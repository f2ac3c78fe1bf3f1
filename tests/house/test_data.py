"""The data that ships with the package, and the recorded vectors beside the tests."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from paths import GOLDEN
from plain_rnn import Layer, run

from lstm_ir.data import digits, digits_lstm, digits_lstm_meta

TORCH = GOLDEN / "torch"
CASES = json.loads((TORCH / "manifest.json").read_text())["cases"]


def test_digits_have_every_class_in_both_parts() -> None:
    data = digits()
    assert data.train_images.shape == (1437, 8, 8)
    assert data.test_images.shape == (360, 8, 8)
    for images, labels in ((data.train_images, data.train_labels), (data.test_images, data.test_labels)):
        assert images.dtype == labels.dtype == np.uint8
        assert len(images) == len(labels)
        assert (images.min(), images.max()) == (0, 16)
        assert np.array_equal(np.unique(labels), np.arange(10))


def test_no_digit_is_in_both_parts() -> None:
    data = digits()
    train = {image.tobytes() for image in data.train_images}
    assert not [k for k, image in enumerate(data.test_images) if image.tobytes() in train]


def test_digits_classifier_reaches_its_accuracy_on_the_held_out_part() -> None:
    data, weights = digits(), digits_lstm()
    shapes = {name: array.shape for name, array in weights.items()}
    assert shapes == {
        "lstm/w_ih": (256, 8),
        "lstm/w_hh": (256, 64),
        "lstm/b": (256,),
        "head/w": (10, 64),
        "head/b": (10,),
    }
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}
    layer: dict[str, NDArray[Any]] = {
        "weight_ih_l0": weights["lstm/w_ih"],
        "weight_hh_l0": weights["lstm/w_hh"],
        "bias_ih_l0": weights["lstm/b"],
        "bias_hh_l0": np.zeros(256),
    }
    x = data.test_images.transpose(1, 0, 2) / 16.0  # [T, B, I]
    zero, lengths = np.zeros((1, 360, 64)), np.full(360, 8)
    last = run(Layer("lstm", 1, False), layer, x, zero, zero, lengths)["h_n"][0]
    said = (last @ weights["head/w"].T + weights["head/b"]).argmax(axis=1)
    accuracy = float((said == data.test_labels).mean())
    assert accuracy > 0.97
    assert accuracy == pytest.approx(digits_lstm_meta()["accuracy"], abs=1e-9)


def test_manifest_lists_every_recorded_file() -> None:
    assert {f"{case['name']}.npz" for case in CASES} == {file.name for file in TORCH.glob("*.npz")}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_recorded_torch_layers_agree_with_plain_numpy(case: dict[str, object]) -> None:
    with np.load(TORCH / f"{case['name']}.npz") as archive:
        data = {name: archive[name] for name in archive.files}
    layer = Layer(str(case["cell"]), int(str(case["layers"])), bool(case["bidirectional"]))
    c_0 = data.get("c_0", np.zeros_like(data["h_0"]))
    results = run(layer, data, data["x"], data["h_0"], c_0, data["lengths"])
    for name in ("output", "h_n", "c_n"):
        if name in data:
            np.testing.assert_allclose(results[name], data[name], rtol=0, atol=1e-13)
