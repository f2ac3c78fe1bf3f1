"""Record small models that Keras 2 writes, and what it computes of them: tests/data/keras2/*.

    pip install tf-keras; python tests/machine/child.py tests/oracles/record_keras2.py

tf-keras is Keras 2 of today, and TensorFlow runs it. No test needs it: tests read what stands in the files.
NAME.h5 and NAME.keras hold a model, NAME.npz inputs `in/NAME` and outputs `out/K` in the model's order.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from paths import DATA
from tensorflow_environment import SETTINGS

FOLDER = DATA / "keras2"


def sequential(k: Any) -> Any:
    """hard_sigmoid everywhere, and the GRU of before `reset_after`."""
    L = k.layers
    return k.Sequential(
        [
            L.Input((5, 3)), L.LSTM(4, recurrent_activation="hard_sigmoid", return_sequences=True),
            L.GRU(3, recurrent_activation="hard_sigmoid", reset_after=False, use_bias=False, return_sequences=True),
            L.Bidirectional(L.LSTM(2, recurrent_activation="hard_sigmoid", return_sequences=True)),
            L.RNN(L.GRUCell(3, recurrent_activation="hard_sigmoid"), return_sequences=True),
            L.Dense(2, activation="hard_sigmoid"), L.Activation("hard_sigmoid"),
        ]
    )  # fmt: skip


def functional(k: Any) -> Any:
    """Calls as Keras 2 writes them: layers and models called twice, states as inputs, models as outputs."""
    L = k.layers
    x, other = k.Input((5, 3), name="x"), k.Input((4,), name="other")
    inner = k.Input((5, 3), name="inner")
    part = k.Model(inner, L.Dense(3, activation="tanh", name="deep")(inner), name="part")
    chain = k.Sequential([L.Input((5, 3)), L.Dense(3, activation="relu"), L.LayerNormalization()], name="chain")
    a, b = part(x), part(part(x))  # three calls of one model
    y, h, c = L.LSTM(4, return_sequences=True, return_state=True, name="first")(a)
    z = L.LSTM(4, return_sequences=True, name="second")(chain(b), initial_state=[h, L.Add()([c, other])])
    shared = L.Dense(4, name="shared")
    twice = shared(L.Subtract()([shared(y), z]))
    return k.Model([x, other], [twice, chain(a), L.GRU(2, name="last")(z, initial_state=L.Dense(2)(other))])


def main() -> None:
    """Write the models."""
    os.environ.update(SETTINGS)
    import tf_keras as k

    FOLDER.mkdir(exist_ok=True)
    for name, build in {"sequential": sequential, "functional": functional}.items():
        k.backend.clear_session()
        k.utils.set_random_seed(5)
        model = build(k)
        rng = np.random.default_rng(len(name))
        model.set_weights([0.7 * rng.standard_normal(w.shape) for w in model.get_weights()])
        inputs = {i.name: 2.0 * rng.standard_normal((2, *i.shape[1:])).astype("f4") for i in model.inputs}
        outputs = model(list(inputs.values()))
        outputs = outputs if isinstance(outputs, list) else [outputs]
        model.save(FOLDER / f"{name}.h5")
        model.save(FOLDER / f"{name}.keras")
        kept = {f"in/{n}": a for n, a in inputs.items()} | {f"out/{n}": v.numpy() for n, v in enumerate(outputs)}
        np.savez(FOLDER / f"{name}.npz", **kept)


if __name__ == "__main__":
    main()
