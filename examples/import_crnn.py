"""A text recogniser (CRNN: convolutions, a bidirectional LSTM, a score per column) read from ONNX.

The scores of all columns are decoded greedily, as CTC means them: the best class of each column,
repetitions once, blanks left out. Without a model file a small CRNN is built with PyTorch, with random
weights, exported, and compared with PyTorch; what it reads is then no text that anyone wrote.

Run: python examples/import_crnn.py crnn.onnx word.pgm --alphabet 0123456789
     python examples/import_crnn.py        (needs PyTorch)
"""

import argparse
import io
import warnings
from pathlib import Path

import numpy as np

import lstm_ir as li

TOLERANCE = 1e-4
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pgm(path: Path) -> np.ndarray:
    """A grey image in the format P2 or P5 with 8 bits: u8[height, width]."""
    data = path.read_bytes()
    words: list[bytes] = []
    at = 0
    while len(words) < 4:  # the kind, width, height and largest value, between them space and comments
        while at < len(data) and data[at : at + 1].isspace():
            at += 1
        end = at
        while end < len(data) and not data[end : end + 1].isspace():
            end += 1
        if at == end:
            raise SystemExit(f"{path.name}: ends early")
        if data[at : at + 1] == b"#":
            line = data.find(b"\n", at)
            at = len(data) if line < 0 else line + 1
            continue
        words.append(data[at:end])
        at = end
    if words[0] not in (b"P2", b"P5") or not all(w.isdigit() for w in words[1:]) or int(words[3]) > 255:
        raise SystemExit(f"{path.name}: is no grey image of 8 bits (P2 or P5)")
    width, height = int(words[1]), int(words[2])
    rest = data[at + 1 :]
    pixels = np.array([int(w) for w in rest.split()], np.uint8) if words[0] == b"P2" else np.frombuffer(rest, np.uint8)
    if pixels.size < width * height:
        raise SystemExit(f"{path.name}: has {pixels.size} pixels, not {width} x {height}")
    return pixels[: width * height].reshape(height, width)


def image(path: Path) -> np.ndarray:
    """Grey values [height, width] in 0 .. 1 of an .npy or .pgm file."""
    found = np.load(path, allow_pickle=False) if path.suffix == ".npy" else pgm(path)
    if found.ndim != 2:
        raise SystemExit(f"{path.name}: has the shape {found.shape}, not height and width")
    return found.astype(np.float32) / (255 if found.dtype == np.uint8 else 1)


def fitted(grey: np.ndarray, height: int, width: int) -> np.ndarray:
    """At the height of the model, by linear interpolation; cut, or filled with its last column."""
    scale = height / grey.shape[0]
    rows = (np.arange(height) + 0.5) / scale - 0.5
    columns = np.minimum((np.arange(width) + 0.5) / scale - 0.5, grey.shape[1] - 1)
    for axis, places in ((0, rows), (1, columns)):
        places = np.clip(places, 0, grey.shape[axis] - 1)
        low = np.floor(places).astype(int)
        high, part = np.minimum(low + 1, grey.shape[axis] - 1), places - low
        part = part[:, None] if axis == 0 else part
        grey = grey.take(low, axis) * (1 - part) + grey.take(high, axis) * part
    return grey.astype(np.float32)


def decoded(scores: np.ndarray, alphabet: str, blank: int) -> str:
    """The text of scores [columns, classes]."""
    best = scores.argmax(1)
    kept = [k for i, k in enumerate(best) if k != blank and (i == 0 or k != best[i - 1])]
    letters = [k - (k > blank) for k in kept]
    return "".join(alphabet[k] if k < len(alphabet) else "?" for k in letters)


def built(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    """A model file of a small CRNN, and what PyTorch gives for x."""
    import torch

    class Crnn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = torch.nn.Sequential(
                torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
                torch.nn.MaxPool2d((4, 2)),
            )  # fmt: skip
            self.rows = torch.nn.LSTM(32, 24, bidirectional=True)
            self.scores = torch.nn.Linear(48, len(LETTERS) + 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.features(x).flatten(1, 2).permute(2, 0, 1)  # [columns, B, features]
            return self.scores(self.rows(x)[0]).transpose(0, 1)

    torch.manual_seed(7)
    net, file = Crnn().eval(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter, which keeps the LSTM as one node
        torch.onnx.export(
            net, (torch.tensor(x),), file, input_names=["image"], output_names=["scores"],
            dynamic_axes={"image": {0: "B"}}, dynamo=False, opset_version=17,
        )  # fmt: skip
    with torch.no_grad():
        return file.getvalue(), net(torch.tensor(x)).numpy()


def main() -> None:
    about = argparse.ArgumentParser(description="Read a word with a CRNN.")
    about.add_argument("model", type=Path, nargs="?", help="an ONNX file: an image [B, C, H, W] in, scores out")
    about.add_argument("image", type=Path, nargs="?", help="a grey .npy or .pgm file")
    about.add_argument("--alphabet", default=LETTERS, help="the classes without the blank")
    about.add_argument("--blank", type=int, default=-1, help="the class that is the blank; the last one if negative")
    about.add_argument("--time-major", action="store_true", help="scores are [columns, B, classes]")
    about.add_argument("--mean", type=float, default=0.5)
    about.add_argument("--deviation", type=float, default=0.5)
    given = about.parse_args()
    grey = np.random.default_rng(7).random((8, 40), np.float32) if given.image is None else image(given.image)
    want = None
    if given.model is None:
        source, want = built(((fitted(grey, 16, 80) - 0.5) / 0.5)[None, None])
    else:
        source = given.model
    graph = li.from_onnx(source)
    (taken,) = graph.params
    channels, height, width = taken.shape[1:]
    if not isinstance(height, int) or not isinstance(channels, int):
        raise SystemExit(f"the model takes {taken.type}: its height is open")
    wide = width if isinstance(width, int) else round(grey.shape[1] * height / grey.shape[0])
    x = np.tile((fitted(grey, height, wide) - given.mean) / given.deviation, (1, channels, 1, 1)).astype(np.float32)
    with li.compile(graph) as exe:
        (scores,) = exe({graph.input_names[0]: x}).values()
    if want is not None:
        worst = float(np.abs(scores - want).max())
        print(f"scores {list(scores.shape)}: largest difference to PyTorch {worst:.1e}")
        assert worst < TOLERANCE
    rows = scores[:, 0] if given.time_major else scores[0]
    blank = rows.shape[1] - 1 if given.blank < 0 else given.blank
    print(f"read: {decoded(rows, given.alphabet, blank)!r}")


if __name__ == "__main__":
    main()
