"""Make lstm_ir/data/digits.npz from the handwritten digits that scikit-learn carries.

Run: python examples/make_digits.py        (needs scikit-learn)
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

SEED = 20240
TRAIN = 1437  # of 1797, four fifths
TARGET = Path(__file__).parents[1] / "lstm_ir" / "data" / "digits.npz"


def main() -> None:
    source = load_digits()
    order = np.random.default_rng(SEED).permutation(len(source.target))
    images = source.images[order].astype(np.uint8)
    labels = source.target[order].astype(np.uint8)
    np.savez_compressed(
        TARGET,
        train_images=images[:TRAIN],
        train_labels=labels[:TRAIN],
        test_images=images[TRAIN:],
        test_labels=labels[TRAIN:],
    )
    check(source.images, source.target, order)
    print(f"{TARGET.name}: {TRAIN} training images, {len(labels) - TRAIN} held out, seed {SEED}")


def check(images: np.ndarray, labels: np.ndarray, order: np.ndarray) -> None:
    """Load the file back, undo the shuffle and demand the source, every pixel and label."""
    with np.load(TARGET, allow_pickle=False) as data:
        back = np.concatenate([data["train_images"], data["test_images"]])[np.argsort(order)]
        back_labels = np.concatenate([data["train_labels"], data["test_labels"]])[np.argsort(order)]
    assert np.array_equal(back, images)
    assert np.array_equal(back_labels, labels)


if __name__ == "__main__":
    main()
