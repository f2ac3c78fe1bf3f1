"""Train a bidirectional two-layer LSTM tagger with PyTorch and record it: examples/data/tagger.npz.

The task is a toy, stated in tagger_text.py. What matters is the record: a state_dict as PyTorch
names it, inputs of several sizes, and what PyTorch computed for them.

Entries of the file, with every array time-major:
  `embedding.weight`, `lstm.weight_ih_l0`, ..., `head.bias`  the state_dict, float32
  `vocabulary`, `tags`                                       words and tags by number
  `T9_B4/tokens` [T, B] int32, `T9_B4/logits` [T, B, 9]      every column of full length
  `packed/tokens` [17, 4], `packed/lengths` [4]              unequal lengths, padded by 0
  `packed/logits` [17, 4, 9]                                 a padded step has the head's bias
  `packed/h_n`, `packed/c_n` [4, 4, 24]                      layer 0, its reverse, layer 1, ...
  `meta`                                                     JSON text

Run: python examples/record_tagger.py       (needs PyTorch; some seconds)
"""

import json
from pathlib import Path

import numpy as np
import torch
from plain_lstm import lstm
from tagger_text import TAGS, TEXT, tag
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

SEED, EMBEDDING, HIDDEN, STEPS, WINDOW = 5, 10, 24, 250, 13
LENGTHS = (9, 17, 1, 12)
TARGET = Path(__file__).parent / "data" / "tagger.npz"
Arrays = dict[str, np.ndarray]


class Tagger(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, HIDDEN, num_layers=2, bidirectional=True)
        self.head = nn.Linear(2 * HIDDEN, len(TAGS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])  # [T, B] -> [T, B, tags]

    def packed(self, tokens: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Logits, h_n and c_n where column b ends after lengths[b] steps."""
        rows = pack_padded_sequence(self.embedding(tokens), lengths, enforce_sorted=False)
        y, (h_n, c_n) = self.lstm(rows)
        return self.head(pad_packed_sequence(y, total_length=len(tokens))[0]), h_n, c_n


def train(model: Tagger, tokens: torch.Tensor, labels: torch.Tensor) -> float:
    """Learn from random windows of the text; return the accuracy on the whole text."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        starts = torch.randint(0, len(tokens) - WINDOW + 1, (16,))
        at = starts[None, :] + torch.arange(WINDOW)[:, None]  # [T, B]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens[at]).flatten(0, 1), labels[at].flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        return float((model(tokens[:, None])[:, 0].argmax(1) == labels).float().mean())


def windows(tokens: np.ndarray, T: int, B: int) -> np.ndarray:
    """Cut B stretches of T words from different places of the text, [T, B]."""
    starts = np.linspace(0, len(tokens) - T, B, dtype=int)
    return np.stack([tokens[s : s + T] for s in starts], axis=1)


def record(model: Tagger, tokens: np.ndarray) -> Arrays:
    """Run the model on every recorded input."""
    arrays: Arrays = {}
    for T in (1, 9, 17):
        for B in (1, 4):
            given = windows(tokens, T, B)
            arrays[f"T{T}_B{B}/tokens"] = given
            arrays[f"T{T}_B{B}/logits"] = model(torch.from_numpy(given)).numpy()
    given = windows(tokens, max(LENGTHS), len(LENGTHS))
    given[np.arange(len(given))[:, None] >= np.array(LENGTHS)] = 0
    results = model.packed(torch.from_numpy(given), torch.tensor(LENGTHS))
    arrays["packed/tokens"], arrays["packed/lengths"] = given, np.array(LENGTHS, np.int32)
    for name, result in zip(("logits", "h_n", "c_n"), results, strict=True):
        arrays[f"packed/{name}"] = result.numpy()
    return arrays


def plain(weights: Arrays, tokens: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The tagger for one sentence [T] in float64 NumPy: logits [T, tags] and its last h and c."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    x, ends = w["embedding.weight"][tokens], []
    for layer in (0, 1):
        halves = []
        for suffix, step in ((f"l{layer}", 1), (f"l{layer}_reverse", -1)):
            bias = w[f"lstm.bias_ih_{suffix}"] + w[f"lstm.bias_hh_{suffix}"]
            y, h, c = lstm(x[::step], w[f"lstm.weight_ih_{suffix}"], w[f"lstm.weight_hh_{suffix}"], bias)
            halves.append(y[::step])
            ends.append(np.stack([h, c]))
        x = np.concatenate(halves, axis=1)
    return x @ w["head.weight"].T + w["head.bias"], ends


def check() -> None:
    """Load the file back and recompute every recorded result, sentence by sentence."""
    with np.load(TARGET, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files}
    weights = {name: array for name, array in data.items() if "." in name}
    worst = 0.0
    for case in sorted({name.split("/")[0] for name in data if "/" in name}):
        tokens = data[f"{case}/tokens"]
        lengths = data.get(f"{case}/lengths", np.full(tokens.shape[1], len(tokens)))
        for b, length in enumerate(lengths):
            logits, ends = plain(weights, tokens[:length, b])
            expected = np.tile(weights["head.bias"].astype(np.float64), (len(tokens), 1))
            expected[:length] = logits
            worst = max(worst, float(np.abs(data[f"{case}/logits"][:, b] - expected).max()))
            if case == "packed":
                recorded = np.stack([data["packed/h_n"][:, b], data["packed/c_n"][:, b]], axis=1)
                worst = max(worst, float(np.abs(recorded - np.stack(ends)).max()))
    print(f"float64 NumPy: largest difference to PyTorch {worst:.1e}")
    assert 0 < worst < 5e-5  # PyTorch computed in float32


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    words = TEXT.split()
    vocabulary = ["<pad>", *sorted(set(words))]
    tokens = np.array([vocabulary.index(word) for word in words], np.int32)
    labels = torch.tensor([TAGS.index(t) for t in tag(words)])
    model = Tagger(len(vocabulary))
    accuracy = train(model, torch.from_numpy(tokens), labels)
    meta = {
        "task": "rule-made tags of the opening of Alice's Adventures in Wonderland (1865)",
        "accuracy_on_training_text": accuracy,
        "torch": torch.__version__,
        "seed": SEED,
    }
    with torch.no_grad():
        state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
        arrays = record(model, tokens)
    names = {"vocabulary": np.array(vocabulary), "tags": np.array(TAGS)}
    np.savez_compressed(TARGET, meta=np.array(json.dumps(meta)), **names, **state, **arrays)
    size = TARGET.stat().st_size
    print(f"{len(words)} words, {len(vocabulary)} entries, accuracy {accuracy:.3f}, {size} bytes")
    check()


if __name__ == "__main__":
    main()
