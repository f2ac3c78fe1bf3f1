"""Real files, where they lie beside the project: whole models by the meaning and compiled, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import model_file, need, need_target
from paths import MODELS

import lstm_ir as li

# By file: what is fixed at import, and the sizes that its inputs have in two calls.
FILES: dict[str, tuple[dict[str, Any], list[dict[str, int]]]] = {
    "dtln1.onnx": ({}, [{}]),
    "dtln2.onnx": ({}, [{}]),
    "silero.onnx": ({"constants": {"sr": np.int64(16000)}, "sizes": {"input_1": 576}}, [{"B": 1}, {"B": 3}]),
    "zoo_bidaf.onnx": ({}, [{"T": 9, "Q": 4}, {"T": 1, "Q": 3}]),
    "zoo_doctr_crnn.onnx": ({}, [{"B": 1}]),
    "zoo_encodec_slstm.onnx": ({}, [{"B": 2, "T": 640}]),
    "zoo_rnnoise.onnx": ({}, [{"B": 3, "T": 11}, {"B": 1, "T": 8}]),
    "zoo_rsl_rl_lstm_policy.onnx": ({}, [{}]),
    "zoo_tagger_packed.onnx": ({}, [{"B": 3, "T": 7}, {"B": 1, "T": 2}]),
}
LIMIT = 2e-5  # of the largest element of a result


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


def arrays(g: li.Graph, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """Inputs of one call; integers are word numbers, and lengths in falling order."""
    found: dict[str, Any] = {}
    for p in g.params:
        name, t = p.node.attrs["name"], p.type
        shape = tuple(d if isinstance(d, int) else sizes.get(str(d), sizes.get("B", 1)) for d in t.shape)
        if t.dtype.is_float:
            found[name] = (0.3 * rng.standard_normal(shape)).astype(t.dtype.numpy)
        elif name == "l":
            found[name] = np.sort(rng.integers(1, sizes["T"] + 1, shape))[::-1].copy().astype(t.dtype.numpy)
            found[name][0] = sizes["T"]
        else:
            found[name] = rng.integers(0, 20, shape).astype(t.dtype.numpy)
    return found


def by_onnxruntime(name: str, given: dict[str, Any], fixed: dict[str, Any]) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model_file(name), providers=["CPUExecutionProvider"])
    wanted = [o.name for o in session.get_outputs()]
    constants = {n: np.asarray(v) for n, v in fixed.get("constants", {}).items()}
    return dict(zip(wanted, session.run(wanted, {**given, **constants}), strict=True))


def held(call: Any, name: str, g: li.Graph, rng: np.random.Generator) -> None:
    fixed, calls = FILES[name]
    for sizes in calls:
        given = arrays(g, sizes, rng)
        got, want = call(given), by_onnxruntime(name, given, fixed)
        assert set(got) == set(want)
        for n, w in want.items():
            assert got[n].shape == w.shape, (n, sizes)
            worst = np.abs(got[n].astype("f8") - w).max(initial=0)
            assert worst <= LIMIT * max(1.0, np.abs(w).max(initial=0)), (n, sizes, worst)


def test_every_file_is_tried() -> None:
    if not MODELS.is_dir():
        pytest.skip("there is no shared/models beside the checkout")
    assert {p.name for p in MODELS.glob("*.onnx")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_by_the_meaning(name: str, rng: np.random.Generator) -> None:
    g = li.from_onnx(model_file(name), **FILES[name][0])
    held(lambda given: li.interpret(g, given), name, g, rng)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("name", FILES)
def test_compiled(name: str, target: str, rng: np.random.Generator) -> None:
    need_target(target)
    g = li.from_onnx(model_file(name), **FILES[name][0])
    with li.compile(g, target) as exe:
        held(exe, name, g, rng)
