"""Models of Keras, saved and run by itself over PyTorch, in a process of their own.

    python tests/machine/child.py tests/oracles/keras_models.py FOLDER [NAME...]

For each name FOLDER has NAME.keras, NAME.lir (what `li.from_keras` makes of the live model) and NAME.npz: inputs (in:),
results (out:), cotangents (ct:), and gradients of inputs and weights (d:).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Build = Callable[[Any, Any], Any]  # keras.layers, the input
T, C, H = 5, 3, 4
CASES: dict[str, tuple[Build, tuple[Any, ...]]] = {}  # the model, and the input's shape without the batch


def case(name: str, shape: tuple[Any, ...] = (None, C)) -> Callable[[Build], Build]:
    def put(build: Build) -> Build:
        assert name not in CASES
        CASES[name] = build, shape
        return build

    return put


def _layer(kind: str, words: dict[str, Any], masked: bool) -> Build:
    return lambda L, i: getattr(L, kind)(H, **words)(L.Masking()(i) if masked else i)


def _started(kind: str) -> Build:
    """From states that a layer computes."""
    count = 2 if kind == "LSTM" else 1
    return lambda L, i: getattr(L, kind)(H)(
        i, initial_state=[L.Dense(H)(L.GlobalAveragePooling1D()(i)) for _ in range(count)]
    )


def _both_ways(kind: str, mode: str | None) -> Build:
    words = {"return_sequences": mode != "sum", "return_state": mode == "concat"}
    return lambda L, i: L.Bidirectional(getattr(L, kind)(H, **words), merge_mode=mode)(i)


def _layers() -> None:
    kinds: dict[str, list[dict[str, Any]]] = {
        "LSTM": [{}, {"use_bias": False}, {"activation": "hard_sigmoid", "recurrent_activation": "tanh"}],
        "GRU": [{}, {"reset_after": False}, {"reset_after": False, "use_bias": False}, {"recurrent_activation": "elu"}],
        "SimpleRNN": [{}, {"activation": "relu"}],
    }
    results: list[dict[str, Any]] = [
        {}, {"return_sequences": True}, {"return_sequences": True, "return_state": True},
        {"go_backwards": True, "return_sequences": True, "return_state": True},
    ]  # fmt: skip
    for kind, options in kinds.items():
        for k, more in enumerate(options):
            for j, given in enumerate(results if k == 0 else results[2:3]):
                case(f"{kind}_{k}_{j}")(_layer(kind, {**more, **given}, masked=False))
                case(f"{kind}_{k}_{j}_masked")(_layer(kind, {**more, **given}, masked=True))
        case(f"{kind}_zeros")(_layer(kind, {"return_sequences": True, "zero_output_for_mask": True}, masked=True))
        case(f"{kind}_state")(_started(kind))
        for mode in ("concat", "sum", "mul", "ave", None):
            case(f"Bidirectional_{kind}_{mode}")(_both_ways(kind, mode))
    case("Bidirectional_masked")(lambda L, i: L.Bidirectional(L.LSTM(H, return_sequences=True))(L.Masking()(i)))
    case("RNN")(lambda L, i: L.RNN(L.GRUCell(H), return_sequences=True)(i))
    case("RNN_stacked")(lambda L, i: L.RNN([L.LSTMCell(H), L.GRUCell(2), L.SimpleRNNCell(3)], return_sequences=True)(i))
    case("Bidirectional_RNN")(lambda L, i: L.Bidirectional(L.RNN(L.LSTMCell(H), return_sequences=True))(i))


def _around() -> None:
    simple: dict[str, Build] = {
        "Dense": lambda L, i: L.Dense(H, activation="tanh")(i),
        "TimeDistributed": lambda L, i: L.TimeDistributed(L.Dense(H, activation="relu"))(i),
        "Conv1D_causal": lambda L, i: L.Conv1D(6, 3, padding="causal", dilation_rate=2)(i),
        "Conv1D_same": lambda L, i: L.Conv1D(6, 3, padding="same", groups=3)(i),
        "Conv1D_valid": lambda L, i: L.Conv1D(6, 2, strides=2, use_bias=False)(i),
        "BatchNormalization": lambda L, i: L.BatchNormalization()(i),
        "LayerNormalization": lambda L, i: L.LayerNormalization()(i),
        "pools": lambda L, i: L.Concatenate()([L.GlobalAveragePooling1D()(i), L.GlobalMaxPooling1D()(i)]),
        "merges": lambda L, i: L.Add()([L.Multiply()([i, i]), L.Subtract()([i, L.ReLU()(i)]), L.Average()([i, i])]),
        "extremes": lambda L, i: L.Concatenate(axis=-1)([L.Maximum()([i, -i]), L.Minimum()([i, i * 2.0])]),
        "activations": lambda L, i: L.Concatenate()(
            [L.Activation(a)(i) for a in ("gelu", "selu", "softplus", "silu", "hard_sigmoid", "softmax", "exponential")]
        ),
        "Dropout": lambda L, i: L.SpatialDropout1D(0.5)(L.GaussianNoise(0.3)(L.Dropout(0.5)(i))),
        "padding": lambda L, i: L.Cropping1D((1, 0))(L.ZeroPadding1D((2, 1))(i)),
        "UpSampling1D": lambda L, i: L.UpSampling1D(2)(i),
        "nested": lambda L, i: _nested(L)(L.LSTM(H, return_sequences=True)(i)),
    }
    for name, build in simple.items():
        case(name)(build)
    # Their slopes jump at 0, where each library takes another one: no rows of zeros.
    case("UnitNormalization", (6, 4))(lambda L, i: L.UnitNormalization()(i))
    case("kinks", (6, 4))(lambda L, i: L.PReLU(shared_axes=[1])(L.ELU(0.7)(L.LeakyReLU(0.2)(i))))
    case("fixed", (6, 4))(lambda L, i: L.Permute((2, 1))(L.Reshape((4, 6))(i)))
    case("pools_fixed", (8, C))(lambda L, i: L.AveragePooling1D(2)(L.MaxPooling1D(2, padding="same")(i)))
    case("Flatten", (4, C))(lambda L, i: L.RepeatVector(3)(L.Dense(2)(L.Flatten()(i))))
    case("images", (8, 6, 3))(
        lambda L, i: L.GlobalAveragePooling2D()(L.MaxPooling2D(2)(L.Conv2D(5, 3, padding="same")(i)))
    )
    case("operations", (6, 4))(_operations)
    for kind in ("LSTM", "GRU", "SimpleRNN"):
        for more in ({}, {"go_backwards": True, "return_state": True}, {"activation": "elu"}):
            words = {"return_sequences": True, "unroll": True, **more}
            case(f"{kind}_unrolled_{len(more)}_{'activation' in more}", (4, C))(_layer(kind, words, masked=False))
        case(f"{kind}_unrolled_masked", (4, C))(_layer(kind, {"unroll": True}, masked=True))
    case("RNN_unrolled", (4, C))(
        lambda L, i: L.Bidirectional(L.RNN([L.GRUCell(H), L.LSTMCell(3)], unroll=True, return_sequences=True))(i)
    )
    case("GroupNormalization", (6, 4))(lambda L, i: L.GroupNormalization(2)(i))


def _operations(L: Any, i: Any) -> Any:
    """Functions of `keras.ops` that move elements."""
    from keras import ops

    halves = ops.stack([i[:, :, 0], ops.flip(i[:, :, 1], axis=1)], axis=-1)
    return ops.concatenate([ops.reshape(halves, (-1, 3, 4)), ops.reshape(i, (-1, 6, 4))[:, ::2]], axis=1)


def _nested(L: Any) -> Any:
    import keras

    inner = keras.Input((None, H), name="inner")
    return keras.Model(inner, L.Dense(2)(L.LayerNormalization()(inner)), name="head")


_layers()
_around()


def made(keras: Any, name: str) -> tuple[Any, np.random.Generator]:
    """The model of a case with weights drawn from what begins with its name, which goes on."""
    rng = np.random.default_rng(sum(map(ord, name)))
    build, shape = CASES[name]
    keras.utils.clear_session(free_memory=False)
    i = keras.Input(shape, name="x")
    model = keras.Model(i, build(keras.layers, i), name="model")
    for v in model.variables:
        low = 0.5 if "variance" in v.path else -0.7
        if np.issubdtype(np.dtype(str(v.dtype)), np.floating):
            v.assign(rng.uniform(low, 0.9, tuple(v.shape)).astype(np.float32))
    return model, rng


def record(folder: Path, name: str) -> None:
    """One model: saved, run, and imported live."""
    import torch
    from keras_torch import keras, numpy_of, results, saved

    import lstm_ir as li

    model, rng = made(keras, name)
    shape = CASES[name][1]
    saved(model, folder / f"{name}.keras")
    x = rng.standard_normal((3, *(T if d is None else d for d in shape))).astype(np.float32)
    if shape == (None, C):
        x[0, 3:] = 0  # masked at the end, in between, and everywhere
        x[1, 1] = 0
        x[2, :] = 0 if "masked" in name or "zeros" in name else x[2, :]
    found: dict[str, Any] = {"in:x": x}
    for key, a in results(model, {"x": x}).items():
        found[f"out:{key}"], found[f"ct:{key}"] = a, np.asarray(rng.standard_normal(a.shape), np.float32)
    given = torch.tensor(x, requires_grad=True)
    given_out = model(given)
    flat = given_out if isinstance(given_out, (list, tuple)) else [given_out]
    keys = [k[4:] for k in found if k.startswith("out:")]
    total = sum((v * torch.tensor(found[f"ct:{k}"])).sum() for k, v in zip(keys, flat, strict=True))
    total.backward()
    found["d:x"] = np.zeros_like(x) if given.grad is None else numpy_of(given.grad)
    for v in model.trainable_variables:
        grad = v.value.grad
        found[f"d:{v.path}"] = np.zeros(tuple(v.shape), np.float32) if grad is None else numpy_of(grad)
    np.savez(folder / f"{name}.npz", **found)
    (folder / f"{name}.lir").write_text(str(li.from_keras(model)), encoding="utf-8")


if __name__ == "__main__":
    for word in sys.argv[2:] or CASES:
        try:
            record(Path(sys.argv[1]), word)
        except Exception as e:  # the test of this model says so
            (Path(sys.argv[1]) / f"{word}.err").write_text(f"{type(e).__name__}: {e}", encoding="utf-8")
