"""DTLN, the denoiser of Westhausen and Meyer (2020): two cores of two LSTMs, the first over an STFT, the second over
learned features of each frame.

Models of any Keras: the whole one and the one for a stream with the layers around TensorFlow's transforms, which a
`.keras` file holds as Lambda only, and the two cores alone, with layers that keep states or unrolled with states as
inputs. Weights are lists by layer, in Keras' layout, drawn or those of the two ONNX files that its authors publish.
"""

from __future__ import annotations

import wave
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from paths import MODELS

Array = np.ndarray[Any, Any]
Weights = dict[str, list[Array]]
Step = Callable[[Array, Array], Sequence[Array]]  # a frame and states, what comes out and the next states
FRAME, SHIFT, BINS, FEATURES, UNITS = 512, 128, 257, 256, 128
EPSILON = 1e-7
FILES = ("dtln1.onnx", "dtln2.onnx")
CORES = {"1": BINS, "2": FEATURES}  # columns of what goes in, and of the mask


def drawn(rng: np.random.Generator) -> Weights:
    """Random weights of a size that keeps masks away from 0 and 1."""

    def normal(*shape: int) -> Array:
        wide = shape[-2] if len(shape) > 1 else 16
        return np.asarray(rng.standard_normal(shape) / np.sqrt(wide), np.float32)

    out: Weights = {"encoder": [normal(1, FRAME, FEATURES)], "decoder": [normal(1, FEATURES, FRAME)]}
    for k, wide in CORES.items():
        out[f"norm_{k}"] = [1 + normal(wide), normal(wide)]
        for name, given in ((f"lstm_{k}a", wide), (f"lstm_{k}b", UNITS)):
            out[name] = [normal(given, 4 * UNITS), normal(UNITS, 4 * UNITS), normal(4 * UNITS)]
        out[f"mask_{k}"] = [normal(UNITS, wide), normal(wide)]
    return out


def of_files(first: Path, second: Path) -> Weights:
    """Those of the authors' ONNX files: LSTM nodes in the first, products in the second, whose gates are Keras'."""
    import onnx

    one, two = ({t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(p).graph.initializer}
                for p in (first, second))  # fmt: skip
    word = "model_2/{}/ReadVariableOp/resource:0".format
    out: Weights = {f"lstm_1{k}": _from_onnx(one, f"lstm_{n}") for k, n in (("a", 4), ("b", 5))}
    out |= {f"lstm_2{k}": [two[word(f"lstm_{n}/{w}")] for w in ("MatMul", "MatMul_1", "BiasAdd")]
            for k, n in (("a", 6), ("b", 7))}  # fmt: skip
    norm = "instant_layer_normalization_1/"
    return out | {
        "mask_1": [one["dense_2/kernel:0"], one["dense_2/bias:0"]],
        "mask_2": [two["model_2/dense_3/Tensordot/Reshape_1:0"], two[word("dense_3/BiasAdd")]],
        "norm_2": [two[word(f"{norm}mul")], two[word(f"{norm}add_1")]],
        "encoder": [two["conv1d_2/kernel:0"].transpose(2, 1, 0)],
        "decoder": [two["conv1d_3/kernel:0"].transpose(2, 1, 0)],
    }


def _from_onnx(held: dict[str, Array], name: str) -> list[Array]:
    """[1,4H,.] of the gates i, o, f, c, and both biases in one, as Keras has them: [.,4H] of i, f, c, o."""

    def gates(a: Array) -> Array:
        i, o, f, c = np.split(a, 4)
        return np.ascontiguousarray(np.concatenate([i, f, c, o]).T)

    bias = held[f"{name}_B"][0]
    half = len(bias) // 2
    return [gates(held[f"{name}_W"][0]), gates(held[f"{name}_R"][0]), gates(bias[:half] + bias[half:])]


def published() -> bool:
    """Whether the authors' ONNX files and a recording lie beside the checkout."""
    return all((MODELS / n).is_file() for n in (*FILES, "test.wav"))


def speech() -> Array:
    """Half a second of the recording, in -1 .. 1."""
    with wave.open(str(MODELS / "test.wav")) as f:
        whole = np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float32) / 32768
    return whole[4 * 16000 :][: FRAME + 59 * SHIFT]


def frames(signal: Array) -> Array:
    """Frames [n,512] of a signal, each 128 samples after the one before."""
    starts = range(0, len(signal) - FRAME + 1, SHIFT)
    return np.stack([signal[at : at + FRAME] for at in starts])


def chained(cores: Iterable[Step], rows: Array) -> Array:
    """Frames [n,512] through both cores, a step each, with NumPy's transforms around the first: frames."""
    (first, second), out = cores, list[Array]()
    states = [np.zeros((1, 2, UNITS, 2), np.float32)] * 2
    for row in rows:
        spectrum = np.fft.rfft(row)
        mask, states[0] = first(np.abs(spectrum).astype(np.float32)[None, None], states[0])
        cleaned = np.fft.irfft(spectrum * mask[0, 0]).astype(np.float32)
        frame, states[1] = second(cleaned[None, None], states[1])
        out.append(frame[0, 0])
    return np.stack(out)


def by_onnxruntime(path: Path) -> Step:
    """A core's file, run by onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda x, states: session.run(None, dict(zip(names, (x, states), strict=True)))


def called(exe: Any) -> Step:
    """A core's executable."""
    entry = exe.signature.main
    ins, outs = ([p.name for p in part] for part in (entry.inputs, entry.outputs))

    def step(x: Array, states: Array) -> Sequence[Array]:
        found = exe(dict(zip(ins, (x, states), strict=True)))
        return [found[n] for n in outs]

    return step


def put(model: Any, weights: Weights) -> Any:
    """The model with these weights in its layers of these names."""
    for layer in model.layers:
        if layer.weights and layer.name in weights:
            layer.set_weights(weights[layer.name])
    return model


def _mask(keras: Any, k: str, x: Any, states: Any = None, **words: Any) -> tuple[Any, list[Any]]:
    """One core: the mask for x [B,T,columns], and the last states h, c of both layers where first ones are given."""
    L, ends = keras.layers, []
    for place, name in enumerate((f"lstm_{k}a", f"lstm_{k}b")):
        layer = L.LSTM(UNITS, return_sequences=True, return_state=states is not None, name=name, **words)
        if states is None:
            x = layer(x)
        else:
            x, *last = layer(x, initial_state=[states[:, place, :, 0], states[:, place, :, 1]])
            ends.append(last)
        x = L.Dropout(0.25)(x) if place == 0 else x
    return L.Activation("sigmoid")(L.Dense(CORES[k], name=f"mask_{k}")(x)), ends


def _decoded(keras: Any, frames: Any, norm: Any, states: Any = None, **words: Any) -> tuple[Any, list[Any]]:
    """The second core over frames [B,T,512]: frames."""
    L = keras.layers
    encoded = L.Conv1D(FEATURES, 1, use_bias=False, name="encoder")(frames)
    mask, ends = _mask(keras, "2", norm(encoded), states, **words)
    decoder = L.Conv1D(FRAME, 1, padding="causal", use_bias=False, name="decoder")
    return decoder(L.Multiply()([encoded, mask])), ends


def _norm(keras: Any, k: str) -> Any:
    """Of each frame, as the paper's instant layer normalisation."""
    return keras.layers.LayerNormalization(epsilon=EPSILON, name=f"norm_{k}")


def cores(keras: Any, weights: Weights, normed: bool, **words: Any) -> tuple[Any, Any]:
    """Both cores without a transform, for T frames: magnitudes to the mask, and frames to frames."""
    rows, steps = (1 if words.get("stateful") else None), words.pop("steps", None)
    x = keras.Input(batch_shape=(rows, steps, BINS), name="magnitudes")
    y = keras.Input(batch_shape=(rows, steps, FRAME), name="frames")
    seen = _norm(keras, "1")(keras.ops.log(x + EPSILON)) if normed else x
    first = keras.Model(x, _mask(keras, "1", seen, **words)[0], name="first")
    second = keras.Model(y, _decoded(keras, y, _norm(keras, "2"), **words)[0], name="second")
    return put(first, weights), put(second, weights)


def unrolled(keras: Any, weights: Weights, normed: bool) -> tuple[Any, Any]:
    """The authors' second form, for TFLite: one frame a call, layers unrolled, states [1,2,128,2] in and out."""

    def joined(ends: list[Any]) -> Any:
        parts = [keras.ops.reshape(keras.ops.stack([e[k] for e in ends], axis=0), (1, 2, UNITS)) for k in (0, 1)]
        return keras.ops.stack(parts, axis=-1)

    x = keras.Input(batch_shape=(1, 1, BINS), name="magnitudes")
    y = keras.Input(batch_shape=(1, 1, FRAME), name="frames")
    states = [keras.Input(batch_shape=(1, 2, UNITS, 2), name="states") for _ in range(2)]
    seen = _norm(keras, "1")(keras.ops.log(x + EPSILON)) if normed else x
    mask, ends = _mask(keras, "1", seen, states[0], unroll=True)
    first = keras.Model([x, states[0]], [mask, joined(ends)], name="first")
    made, ends = _decoded(keras, y, _norm(keras, "2"), states[1], unroll=True)
    second = keras.Model([y, states[1]], [made, joined(ends)], name="second")
    return put(first, weights), put(second, weights)


def whole(keras: Any, tf: Any, weights: Weights, normed: bool, stateful: bool) -> Any:
    """The repository's model: of signals [B,samples], or of one frame [1,512] a call, with layers that keep states."""
    L, signal = keras.layers, tf.signal
    norm = _instant_norm(keras, tf)
    x = keras.Input(batch_shape=(1, FRAME) if stateful else (None, None), name="x")

    def spectrum(v: Any) -> Any:
        made = signal.rfft(v[:, None] if stateful else signal.frame(v, FRAME, SHIFT))
        return [tf.abs(made), tf.math.angle(made)]

    def back(v: Any) -> Any:
        return signal.irfft(tf.cast(v[0], tf.complex64) * tf.exp(1j * tf.cast(v[1], tf.complex64)))

    magnitudes, angles = L.Lambda(spectrum)(x)
    seen = norm(name="norm_1")(L.Lambda(lambda v: tf.math.log(v + EPSILON))(magnitudes)) if normed else magnitudes
    frames = L.Lambda(back)([L.Multiply()([magnitudes, _mask(keras, "1", seen, stateful=stateful)[0]]), angles])
    made, _ = _decoded(keras, frames, norm(name="norm_2"), stateful=stateful)
    if not stateful:
        made = L.Lambda(lambda v: signal.overlap_and_add(v, SHIFT))(made)
    return put(keras.Model(x, made, name="dtln"), weights)


def _instant_norm(keras: Any, tf: Any) -> Any:
    """The repository's own layer."""

    class InstantLayerNormalization(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
            self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

        def call(self, x: Any) -> Any:
            mean = tf.math.reduce_mean(x, axis=[-1], keepdims=True)
            variance = tf.math.reduce_mean(tf.math.square(x - mean), axis=[-1], keepdims=True)
            return (x - mean) / tf.math.sqrt(variance + EPSILON) * self.gamma + self.beta

    return InstantLayerNormalization
