"""Every example runs as its first lines say, and its own assertions hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from device import need
from paths import EXAMPLES, MODELS

RUNNABLE = (
    "tagger.py", "layer_norm_cell.py", "dynamic_shapes.py", "tf_block_lstm.py", "char_lm.py", "silero_stream.py",
    "import_crnn.py", "char_lm_fit.py", "tf1_block_lstm.py", "keras_forecaster.py",
    "torch_tagger.py", "generate.py", "beam_search.py",
)  # fmt: skip


def run(name: str, cwd: Path, *arguments: str | Path) -> str:
    command = [sys.executable, "-W", "error", EXAMPLES / name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_tagger_agrees_with_what_pytorch_recorded(tmp_path: Path) -> None:
    lines = run("tagger.py", tmp_path).splitlines()
    assert len(lines) == 7
    assert all("largest difference to PyTorch" in line for line in lines)
    assert sum("logits, h_n, c_n" in line for line in lines) == 1


def test_custom_cell_agrees_with_plain_numpy(tmp_path: Path) -> None:
    assert run("layer_norm_cell.py", tmp_path).count("largest difference to float64 NumPy") == 3


def test_open_sizes_serve_every_call_and_refuse_wrong_ones(tmp_path: Path) -> None:
    out = run("dynamic_shapes.py", tmp_path)
    assert out.count("largest difference to float64 NumPy") == 6
    assert out.count("CallError: ") == 2
    assert out.count("ValueRangeError: ") == 1


@pytest.mark.slow
def test_block_lstm_follows_the_loss_curve_of_tensorflow(tmp_path: Path) -> None:
    lines = run("tf_block_lstm.py", tmp_path).splitlines()
    assert len(lines) == 3
    assert all("largest difference to TensorFlow" in line for line in lines)


@pytest.mark.slow
def test_a_tensorflow_1_graph_runs_trains_and_serves(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf.message")
    lines = run("tf1_block_lstm.py", tmp_path).splitlines()
    assert sum("largest difference to TensorFlow" in line for line in lines) == 2
    assert re.fullmatch(r"served:( \d\d\.\d\d){3}", lines[-1])


@pytest.mark.slow
def test_the_voice_detector_finds_speech(tmp_path: Path) -> None:
    need("onnx_ir")
    if not MODELS.is_dir():
        pytest.skip("the files are not here")
    lines = run("silero_stream.py", tmp_path, MODELS / "silero.onnx", MODELS / "test.wav").splitlines()
    assert [line.split(",")[0] for line in lines[:2]] == ["as_stream: 1875 frames", "in_one_call: 1875 frames"]
    found = [tuple(map(float, re.findall(r"[0-9.]+(?= s)", line))) for line in lines[3:]]
    assert len(found) >= 10
    ends = [t for segment in found for t in segment]
    assert ends == sorted(ends)
    assert ends[-1] <= 60.0


@pytest.mark.slow
def test_the_text_recogniser_gives_what_pytorch_gives(tmp_path: Path) -> None:
    need("onnx_ir")
    need("torch")
    lines = run("import_crnn.py", tmp_path).splitlines()
    assert lines[0].startswith("scores [1, 20, 27]: largest difference to PyTorch ")
    assert re.fullmatch(r"read: '[a-z]*'", lines[1])


@pytest.mark.slow
def test_the_forecaster_of_keras_is_trained_on_and_served(tmp_path: Path) -> None:
    need("keras")
    need("torch")
    lines = run("keras_forecaster.py", tmp_path).splitlines()
    assert len(lines) == 3
    first, second = (float(line.rpartition(" ")[2]) for line in lines[:2])
    assert second < first < 0.3
    assert "40 clients, largest difference to Keras" in lines[2]


@pytest.mark.slow
def test_a_tagger_of_pytorch_is_trained_on_and_served(tmp_path: Path) -> None:
    need("torch")
    lines = run("torch_tagger.py", tmp_path).splitlines()
    first, second = (float(line.rpartition(" ")[2]) for line in lines[:2])
    assert first < 0.4 < 0.7 < second
    assert "32 rows of unequal lengths, largest difference" in lines[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["P2", "P5", "npy"])
def test_the_text_recogniser_reads_a_file(kind: str, tmp_path: Path) -> None:
    """The classes that onnxruntime's scores have, of an image that fits as it is."""
    need("onnx_ir")
    need("onnxruntime")
    if not MODELS.is_dir():
        pytest.skip("the files are not here")
    import onnxruntime

    grey = np.random.default_rng(5).integers(0, 256, (32, 128)).astype(np.uint8)
    path = tmp_path / ("word.npy" if kind == "npy" else "word.pgm")
    head = f"{kind}\n# a word\n128 32\n255\n".encode()
    if kind == "npy":
        np.save(path, grey)
    else:
        path.write_bytes(head + (grey.tobytes() if kind == "P5" else " ".join(map(str, grey.reshape(-1))).encode()))
    x = np.tile(((grey / 255 - 0.5) / 0.5).astype(np.float32), (1, 3, 1, 1))
    model = MODELS / "zoo_doctr_crnn.onnx"
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"x": x})
    letters = "abcdefghijklmnopqrs"
    best = [k for i, k in enumerate(scores[0].argmax(1)) if i == 0 or k != scores[0].argmax(1)[i - 1]]
    want = "".join(letters[k] for k in best if k != 19)
    assert run("import_crnn.py", tmp_path, model, path, "--alphabet", letters) == f"read: {want!r}\n"


@pytest.mark.slow
def test_the_language_model_learns_what_pytorch_learned(tmp_path: Path) -> None:
    lines = run("char_lm.py", tmp_path).splitlines()
    assert sum(line.startswith("step ") for line in lines) == 9
    assert any(line.startswith("held-out sonnets: ") for line in lines)
    written = "\n".join(lines[next(k for k, t in enumerate(lines) if t.startswith("Shall I compare ")) :])
    assert len(written) == len("Shall I compare ") + 400


@pytest.mark.slow
def test_the_language_model_is_trained_in_chunks_and_resumed(tmp_path: Path) -> None:
    lines = run("char_lm_fit.py", tmp_path).splitlines()
    assert [line.split(":")[0] for line in lines[:8]] == [f"epoch {k}" for k in range(1, 9)]
    assert lines[8].startswith("336 steps in the log, columns step,epoch,loss,grad_norm,lr,accuracy,validation/loss")
    assert lines[9].endswith("resumed: the same bits")


def test_the_language_models_goal_is_what_pytorch_reaches() -> None:
    with np.load(EXAMPLES / "data" / "char_lm.npz", allow_pickle=False) as recorded:
        losses, held_out = recorded["losses"], float(recorded["held_out"])
    text = (EXAMPLES / "char_lm_text.py").read_text(encoding="utf-8")
    (goal,) = re.findall(r"^GOAL = ([0-9.]+)", text, re.MULTILINE)
    (steps,) = re.findall(r"STEPS = .*, (\d+)$", text, re.MULTILINE)
    assert len(losses) == int(steps)
    assert losses[0] > 4.0
    assert 0.95 * float(goal) < held_out < float(goal)


def test_the_sonnets_are_complete() -> None:
    poems = (EXAMPLES / "data" / "sonnets.txt").read_text(encoding="ascii").split("\n\n")
    assert len(poems) == 154
    lines = {k: len(p.strip().splitlines()) for k, p in enumerate(poems, 1)}
    assert {k: n for k, n in lines.items() if n != 14} == {99: 15, 126: 12}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_every_example_says_what_it_is(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert doc is not None
    if path.name in RUNNABLE:
        assert f"Run: python examples/{path.name}" in doc


@pytest.mark.slow
def test_a_model_writes_words_in_one_call(tmp_path: Path) -> None:
    lines = run("generate.py", tmp_path).splitlines()
    assert re.fullmatch(r"the likeliest letters: (\w+), by NumPy: \1", lines[1])
    assert [int(n) > 12 for n in re.findall(r"of 24 words (\d+) are months", "\n".join(lines))] == [True, True]


@pytest.mark.slow
def test_beams_are_those_of_numpy(tmp_path: Path) -> None:
    lines = run("beam_search.py", tmp_path).splitlines()
    assert lines[-1] == "all beams as NumPy finds them"
    assert [line[0] for line in lines[1:-1]] == ["J", "A", "M"]
    assert "January 0." in lines[1]
