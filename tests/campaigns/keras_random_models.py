"""Random Keras models, live and from files: results and gradients as Keras' own over PyTorch.

Functional models of one or two inputs: recurrent layers in all forms, stacks of cells, masks through all that hands
them on, merges, shared layers, models in models, TimeDistributed. A share is saved as `.keras` or `.h5` and read back
without Keras; a share is compiled. What is refused by name is counted, not compared.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import campaign
import numpy as np

import lstm_ir as li

Rng = np.random.Generator
LIMIT, SLOPES = 3e-5, 3e-4  # of the largest number; sums of f32 in other orders, which normalisations make larger


def prepare() -> None:
    """Keras is imported before the first trial's time begins."""
    import keras_torch  # noqa: F401


def trial(rng: Rng, number: int) -> str:
    from keras_beside import forward, slopes
    from keras_random import drawn
    from keras_torch import results, saved

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, arrays, d = drawn(rng)
        way = d.of(["live", "live", "live", ".keras", ".h5"])
        what = model if way == "live" else saved(model, Path(f"model{way}"))
    try:
        graph = li.from_keras(what)
    except li.ModelError as e:
        assert e.refusals, f"{d.words}: {e}"
        return f"{way}, refused"
    assert isinstance(graph, li.Graph)
    try:
        want = results(model, arrays)
    except IndexError:  # of Keras: a single cell in a list, from states
        assert any("stack" in w for w in d.words), d.words
        return "not run by Keras"
    try:
        forward(graph, arrays, want, LIMIT)
        if not d.kinks:
            slopes(model, graph, arrays, SLOPES, rng)
        if rng.random() < 0.05:
            with li.compile(graph) as exe:
                forward(graph, arrays, want, LIMIT, lambda _, given: exe(given))
            return f"{way}, compiled"
    except Exception as e:
        raise AssertionError(f"{way}: {d.words}") from e
    return f"{way}, {'results' if d.kinks else 'results and gradients'}"


if __name__ == "__main__":
    campaign.main(trial, seconds=90, prepare=prepare)
