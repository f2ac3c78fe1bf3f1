"""Train the digits classifier of the demo with PyTorch and write lstm_ir/data/digits_lstm.npz.

Each image is a sequence of 8 rows of 8 pixels; the last hidden state goes to a dense layer.
The held-out images take no part in training, nor in choosing when to stop.

Run: python examples/train_digits.py       (needs PyTorch; well under a minute on one core)
"""

import json
import time
from pathlib import Path

import numpy as np
import torch
from plain_lstm import lstm
from torch import nn

from lstm_ir.data import Digits, digits, digits_lstm, digits_lstm_meta

SEED, HIDDEN, EPOCHS, BATCH = 7, 64, 60, 48
TARGET = Path(__file__).parents[1] / "lstm_ir" / "data" / "digits_lstm.npz"


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        _, (h, _) = self.lstm(rows)  # rows [N, 8, 8], h [1, N, 64]
        return self.head(h[0])


def as_rows(images: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(images.astype(np.float32) / 16)


def train(data: Digits) -> Classifier:
    model = Classifier()
    rows, labels = as_rows(data.train_images), torch.from_numpy(data.train_labels.astype(np.int64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-2)
    steps = EPOCHS * -(-len(rows) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=8e-3, total_steps=steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(rows)).split(BATCH):
            optimizer.zero_grad()
            loss_of(model(rows[batch]), labels[batch]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model


def weights_of(model: Classifier) -> dict[str, np.ndarray]:
    """Name the weights as the project does; PyTorch's two biases become their sum."""
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    return {
        "lstm/w_ih": state["lstm.weight_ih_l0"],
        "lstm/w_hh": state["lstm.weight_hh_l0"],
        "lstm/b": state["lstm.bias_ih_l0"] + state["lstm.bias_hh_l0"],
        "head/w": state["head.weight"],
        "head/b": state["head.bias"],
    }


def check(data: Digits, logits: np.ndarray) -> None:
    """Load the file back and recompute the held-out logits in float64."""
    w = {name: array.astype(np.float64) for name, array in digits_lstm().items()}
    last = [
        lstm(image / 16, w["lstm/w_ih"], w["lstm/w_hh"], w["lstm/b"])[1]
        for image in data.test_images.astype(np.float64)
    ]
    expected = np.array(last) @ w["head/w"].T + w["head/b"]
    error = np.abs(expected - logits).max()
    accuracy = float((expected.argmax(1) == data.test_labels).mean())
    print(f"float64 NumPy: accuracy {accuracy:.4f}, largest difference to PyTorch {error:.1e}")
    assert error < 1e-4  # PyTorch computed in float32, logits are of size 10
    assert accuracy > 0.97
    assert abs(accuracy - digits_lstm_meta()["accuracy"]) < 1e-9


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the sums then have one order
    data, start = digits(), time.perf_counter()
    model = train(data)
    with torch.no_grad():
        logits = model(as_rows(data.test_images)).numpy()
    accuracy = float((logits.argmax(1) == data.test_labels).mean())
    meta = {
        "accuracy": accuracy,
        "held_out": len(data.test_labels),
        "torch": torch.__version__,
        "seed": SEED,
        "epochs": EPOCHS,
        "input": "images / 16 as float32, one row per step",
        "gates": "i, f, g, o",
    }
    np.savez_compressed(TARGET, meta=np.array(json.dumps(meta)), **weights_of(model))
    print(f"trained in {time.perf_counter() - start:.1f} s, held-out accuracy {accuracy:.4f}")
    check(data, logits)


if __name__ == "__main__":
    main()
