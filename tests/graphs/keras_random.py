"""Random Keras models over everything that is taken together: recurrent layers of all forms, masks, merges, nesting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from choices import Choices
from keras_torch import keras, randomised

Rng = np.random.Generator
Array = np.ndarray[Any, Any]
L = keras.layers
STEPS, ROWS, IDS = 5, 3, 7


@dataclass
class Tensor:
    """A tensor of the model: its columns, its steps (None: open, 0: it has no axis of time)."""

    t: Any
    columns: int
    steps: int | None
    masked: bool = False


class Drawn(Choices):
    """What is known of a model while it is drawn. `kinks`: it has slopes that jump where rows are 0."""

    def __init__(self, rng: Rng) -> None:
        super().__init__(rng)
        self.pool: list[Tensor] = []
        self.kinks = False


def drawn(rng: Rng) -> tuple[Any, dict[str, Array], Drawn]:
    """A built model, arrays for its inputs, and what it has in it."""
    keras.utils.clear_session(free_memory=False)
    inputs: list[Any] = []
    arrays: dict[str, Array] = {}
    d = Drawn(rng)
    open_steps = d.chance(0.6)
    for name in ["x", "y"][: 1 + d.chance(0.4)]:
        if d.chance(0.3):
            inputs.append(keras.Input((None if open_steps else STEPS,), dtype="int32", name=name))
            masked = d.chance(0.6)
            t, columns = L.Embedding(IDS, 4, mask_zero=masked)(inputs[-1]), 4
            arrays[name] = rng.integers(0, IDS, (ROWS, STEPS)).astype(np.int32)
        else:
            columns, masked = d.of([3, 4]), d.chance(0.4)
            inputs.append(keras.Input((None if open_steps else STEPS, columns), name=name))
            t = L.Masking()(inputs[-1]) if masked else inputs[-1]
            arrays[name] = rng.uniform(-1, 1, (ROWS, STEPS, columns)).astype(np.float32)
            if masked:
                arrays[name][rng.random((ROWS, STEPS)) < 0.3] = 0.0
        d.words.append(f"{name}{' masked' if masked else ''}{' open' if open_steps else ''}")
        d.pool.append(Tensor(t, columns, None if open_steps else STEPS, masked))
    for _ in range(int(rng.integers(2, 7))):
        _grow(d)
    used = {id(p.t) for p in d.pool[-2:]} if d.chance(0.3) else {id(d.pool[-1].t)}
    outs = [p.t for p in d.pool if id(p.t) in used]
    given: Any = dict(zip([i.name for i in inputs], inputs, strict=True)) if d.chance(0.2) else inputs
    model = keras.Model(given, outs if len(outs) > 1 else outs[0], name="model")
    left = {t.name for t in model.inputs}
    return randomised(model, rng), {n: a for n, a in arrays.items() if n in left}, d


def _grow(d: Drawn) -> None:
    """One more layer over a tensor of the pool, mostly a new one."""
    x = d.pool[-1] if d.chance(0.6) else d.of(d.pool)
    options = SEQUENCES if x.steps != 0 else ROWS_ALONE
    name = d.of(list(options))
    made = options[name](d, x)
    if made is not None:
        d.words.append(name)
        d.pool += made


def _cell_words(d: Drawn, kind: str) -> dict[str, Any]:
    words: dict[str, Any] = {"use_bias": d.chance(0.8)}
    if d.chance(0.2):
        words["activation"] = d.of(["tanh", "sigmoid", "softsign", "linear"])
    if kind != "SimpleRNN" and d.chance(0.2):
        words["recurrent_activation"] = d.of(["hard_sigmoid", "tanh", "sigmoid"])
    if kind == "GRU":
        words["reset_after"] = d.chance(0.5)
    return words


def _recurrent_layer(d: Drawn, **more: Any) -> tuple[Any, int, str, int]:
    """A layer, its columns, its words, and how many states it has."""
    if d.chance(0.25):
        kinds = [d.of(["LSTM", "GRU", "SimpleRNN"]) for _ in range(int(d.rng.integers(1, 4)))]
        units = [int(d.rng.integers(2, 5)) for _ in kinds]
        cells = [getattr(L, f"{k}Cell")(n, **_cell_words(d, k)) for k, n in zip(kinds, units, strict=True)]
        layer = L.RNN(cells if len(cells) > 1 or d.chance(0.5) else cells[0], **more)
        return layer, units[-1], "stack of " + "+".join(kinds), len(kinds) + kinds.count("LSTM")
    kind, n = d.of(["LSTM", "GRU", "SimpleRNN"]), int(d.rng.integers(2, 5))
    return getattr(L, kind)(n, **_cell_words(d, kind), **more), n, kind, 1 + (kind == "LSTM")


def _recurrent(d: Drawn, x: Tensor) -> list[Tensor]:
    sequences, zero = d.chance(0.6), d.chance(0.2)
    more: dict[str, Any] = {"return_sequences": sequences, "go_backwards": d.chance(0.25)}
    if zero:
        more["zero_output_for_mask"] = True
    states = d.chance(0.25)
    if states:
        more["return_state"] = True
    layer, n, word, count = _recurrent_layer(d, **more)
    words: dict[str, Any] = {}
    if "stack" not in word and d.chance(0.25):  # from states that layers compute
        first = d.of(d.pool)
        flat = first.t if first.steps == 0 else L.GlobalAveragePooling1D()(first.t)
        if first.masked and first.steps != 0:
            flat = L.LSTM(2)(first.t)  # a row without steps has no mean
        words["initial_state"] = [L.Dense(n)(flat) for _ in range(count)]
        word += " from states"
    found = layer(x.t, **words)
    d.words.append(f"{word} {more}")
    found = keras.tree.flatten(found)
    out = [Tensor(found[0], n, x.steps if sequences else 0, x.masked and sequences)]
    return [Tensor(s, s.shape[-1], 0) for s in found[1:]] + out


def _both_ways(d: Drawn, x: Tensor) -> list[Tensor]:
    sequences, mode = d.chance(0.6), d.of(["concat", "sum", "mul", "ave"])
    more: dict[str, Any] = {"return_sequences": sequences}
    own = d.chance(0.2)
    if own and d.chance(0.3):
        more["go_backwards"] = True
    layer, n, word, _ = _recurrent_layer(d, **more)
    if own:  # a backward layer of another kind
        kind = d.of(["LSTM", "GRU", "SimpleRNN"])
        backward = getattr(L, kind)(n, return_sequences=sequences, go_backwards=not layer.go_backwards)
        t = L.Bidirectional(layer, merge_mode=mode, backward_layer=backward)(x.t)
    else:
        t = L.Bidirectional(layer, merge_mode=mode)(x.t)
    d.words.append(f"{word} {mode} {more}")
    return [Tensor(t, 2 * n if mode == "concat" else n, x.steps if sequences else 0, x.masked and sequences)]


def _same(make: Callable[[Drawn], Any], kinks: bool = False) -> Callable[[Drawn, Tensor], list[Tensor]]:
    """A layer that keeps the shape, and the mask."""

    def grow(d: Drawn, x: Tensor) -> list[Tensor]:
        d.kinks |= kinks
        return [Tensor(make(d)(x.t), x.columns, x.steps, x.masked)]

    return grow


def _dense(d: Drawn, x: Tensor) -> list[Tensor]:
    n = int(d.rng.integers(2, 5))
    layer = L.Dense(n, activation=d.of([None, "tanh", "sigmoid", "softplus"]), use_bias=d.chance(0.8))
    timed = x.steps != 0 and d.chance(0.4)
    t = L.TimeDistributed(layer)(x.t) if timed else layer(x.t)
    return [Tensor(t, n, x.steps, x.masked)]


def _conv(d: Drawn, x: Tensor) -> list[Tensor]:
    n = 2 * x.columns if d.chance(0.3) else 4
    groups = x.columns if n == 2 * x.columns and d.chance(0.5) else 1
    layer = L.Conv1D(n, int(d.rng.integers(1, 4)), padding=d.of(["same", "causal"]), groups=groups,
                     dilation_rate=int(d.rng.integers(1, 3)), use_bias=d.chance(0.7))  # fmt: skip
    return [Tensor(layer(x.t), n, x.steps)]


def _shared(d: Drawn, x: Tensor) -> list[Tensor] | None:
    """One layer over two tensors."""
    y = d.of([p for p in d.pool if p.columns == x.columns and (p.steps == 0) == (x.steps == 0)])
    layer = L.Dense(3, "tanh") if x.steps == 0 or d.chance(0.5) else L.GRU(3, return_sequences=True)
    return [Tensor(layer(v.t), 3, v.steps, v.masked) for v in (y, x)]


def _nested(d: Drawn, x: Tensor) -> list[Tensor]:
    """A model as a layer, called once or twice."""
    shape = (x.columns,) if x.steps == 0 else (x.steps, x.columns)
    name = f"part_{len(d.words)}"
    inner = keras.Input(shape, name=f"{name}_in")
    layers = [L.LayerNormalization(), L.Dense(x.columns, "tanh")]
    if x.steps != 0:
        layers.insert(1, L.LSTM(x.columns, return_sequences=True))
    if d.chance(0.4):
        model = keras.Sequential([inner, *layers], name=name)
    else:
        t = inner
        for layer in layers:
            t = layer(t)
        model = keras.Model(inner, L.Add()([t, inner]) if d.chance(0.5) else t, name=name)
    t = model(model(x.t)) if d.chance(0.3) else model(x.t)
    return [Tensor(t, x.columns, x.steps, x.masked)]


def _merge(d: Drawn, x: Tensor) -> list[Tensor] | None:
    alike = [p for p in d.pool if p is not x and p.columns == x.columns and p.steps == x.steps]
    if not alike:
        return None
    y = d.of(alike)
    masked = x.masked or y.masked
    word = d.of(["Add", "Average", "Subtract", *([] if masked else ["Multiply", "Maximum", "Minimum"])])
    d.kinks |= word in ("Maximum", "Minimum")
    d.words.append(word)
    return [Tensor(getattr(L, word)()([x.t, y.t]), x.columns, x.steps, x.masked and y.masked)]


def _concat(d: Drawn, x: Tensor) -> list[Tensor] | None:
    alike = [p for p in d.pool if p is not x and p.steps == x.steps]
    if not alike:
        return None
    y = d.of(alike)
    return [Tensor(L.Concatenate()([x.t, y.t]), x.columns + y.columns, x.steps, x.masked or y.masked)]


def _pooled(d: Drawn, x: Tensor) -> list[Tensor]:
    if x.masked or d.chance(0.5):
        d.kinks = True
        return [Tensor(L.GlobalMaxPooling1D()(x.t), x.columns, 0)]
    return [Tensor(L.GlobalAveragePooling1D()(x.t), x.columns, 0)]


def _masking(d: Drawn, x: Tensor) -> list[Tensor]:
    """A mask in the middle of a model: of steps that padding or a mask before made 0."""
    return [Tensor(L.Masking(0.0)(x.t), x.columns, x.steps, True)]


def _windows(d: Drawn, x: Tensor) -> list[Tensor] | None:
    """Other steps: pools, padding, crops, repeated steps; all of a known number."""
    if not x.steps or x.steps < 3:
        return None
    d.kinks = True
    layer = d.of([
        lambda: L.MaxPooling1D(2, padding=d.of(["same", "valid"])), lambda: L.AveragePooling1D(2, padding="same"),
        lambda: L.ZeroPadding1D((1, 2)), lambda: L.Cropping1D((1, 1)), lambda: L.UpSampling1D(2),
    ])()  # fmt: skip
    t = layer(x.t)
    return [Tensor(t, x.columns, t.shape[1])]


def _flat(d: Drawn, x: Tensor) -> list[Tensor] | None:
    if not x.steps:
        return None
    t = L.Flatten()(L.Permute((2, 1))(x.t) if d.chance(0.5) else x.t)
    return [Tensor(t, t.shape[-1], 0)]


def _repeat(d: Drawn, x: Tensor) -> list[Tensor]:
    n = int(d.rng.integers(2, 5))
    if x.columns % 2 == 0 and d.chance(0.5):
        return [Tensor(L.Reshape((-1, x.columns // 2))(x.t), x.columns // 2, 2)]
    return [Tensor(L.RepeatVector(n)(x.t), x.columns, n)]


def _dot(d: Drawn, x: Tensor) -> list[Tensor] | None:
    alike = [p for p in d.pool if p.columns == x.columns and p.steps == 0]
    return [Tensor(L.Dot(-1, normalize=d.chance(0.5))([x.t, d.of(alike).t]), 1, 0)] if alike else None


Grow = Callable[[Drawn, Tensor], list[Tensor] | None]
_ALL: dict[str, Grow] = {
    "Dense": _dense, "shared": _shared, "nested": _nested, "merge": _merge, "Concatenate": _concat,
    "LayerNormalization": _same(lambda d: L.LayerNormalization(center=d.chance(0.8), scale=d.chance(0.8))),
    "BatchNormalization": _same(lambda d: L.BatchNormalization()),
    "Dropout": _same(lambda d: d.of([L.Dropout(0.3), L.GaussianNoise(0.2), L.Identity(), L.Rescaling(1.5, -0.25)])),
    "Activation": _same(lambda d: L.Activation(d.of(["tanh", "softplus", "gelu", "silu", "mish"]))),
    "kinks": _same(lambda d: d.of([L.ReLU, L.LeakyReLU, L.ELU])(), kinks=True),
}  # fmt: skip
SEQUENCES: dict[str, Grow] = {
    **_ALL, "recurrent": _recurrent, "recurrent again": _recurrent, "recurrent too": _recurrent,
    "Bidirectional": _both_ways, "Bidirectional again": _both_ways, "Conv1D": _conv, "pool": _pooled,
    "windows": _windows, "Flatten": _flat, "Masking": _masking,
}  # fmt: skip
ROWS_ALONE: dict[str, Grow] = {**_ALL, "RepeatVector": _repeat, "Dot": _dot}
