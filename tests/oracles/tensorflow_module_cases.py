"""Modules of TensorFlow 2 as SavedModels: loops that tf.function writes, conditions, state, several signatures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tensorflow_models import Record, f32

CASES: dict[str, Callable[[Record], None]] = {}


def case(name: str, *shape: int | None, rows: tuple[int, ...]) -> Callable[[Any], Any]:
    """A function of x and of weights by name, saved as a module's only signature."""

    def register(build: Any) -> Any:
        def make(record: Record) -> None:
            import tensorflow as tf

            shapes = {"w": (3, 4), "u": (4, 4), "b": (4,)}
            module = tf.Module()
            module.cell = tf.Module()
            for n, s in shapes.items():
                setattr(module.cell, n, tf.Variable(0.4 * record.normal(*s), name=n if n != "b" else None))
            held = {n: getattr(module.cell, n) for n in shapes}

            def run(x: Any) -> Mapping[str, Any]:
                made: Mapping[str, Any] = build(tf, x, held)
                return made

            function = tf.function(run, input_signature=[tf.TensorSpec((*shape,), tf.float32, name="x")])
            tf.saved_model.save(module, str(record.path), signatures={"serving_default": function})
            x = tf.constant(record.normal(*rows))
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = function(x)
                cts = record.cotangents({n: v.numpy() for n, v in outputs.items()})
                loss = sum(tf.reduce_sum(outputs[n] * c) for n, c in cts.items())
            names = {"x": x, "w": held["w"], "u": held["u"], "cell/b": held["b"]}
            found = tape.gradient(loss, list(names.values()))
            record.inputs(x=x.numpy())
            record.outputs({n: v.numpy() for n, v in outputs.items()})
            record.keep("grad", {n: g.numpy() for n, g in zip(names, found, strict=True) if g is not None})

        CASES[name] = make
        return build

    return register


def _step(tf: Any, x: Any, h: Any, v: Any) -> Any:
    return tf.tanh(x @ v["w"] + h @ v["u"] + v["b"])


@case("while", None, None, 3, rows=(2, 5, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """Places are read by a slice, written to a TensorArray, from the last one."""
    steps = tf.shape(x)[1]
    ys = tf.TensorArray(tf.float32, steps)

    def body(t: Any, h: Any, ys: Any) -> Any:
        at = steps - 1 - t
        h = _step(tf, x[:, at], h, v)
        return t + 1, h, ys.write(at, h)

    h0 = tf.zeros((tf.shape(x)[0], 4))
    _, h, ys = tf.while_loop(lambda t, h, ys: t < steps, body, (0, h0, ys))
    return {"h": h, "ys": tf.transpose(ys.stack(), (1, 0, 2))}


@case("for", None, None, 3, rows=(5, 2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """A for over rows, and one over numbers; a list that grows."""
    ys = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    h = tf.zeros((tf.shape(x)[1], 4))

    def over(t: Any, h: Any, ys: Any) -> Any:
        h = _step(tf, x[t], h, v)
        return t + 1, h, ys.write(t, h * 2.0)

    _, h, ys = tf.while_loop(lambda t, *_: t < tf.shape(x)[0], over, (0, h, ys))
    return {"ys": ys.stack(), "h": h}


@case("scan", None, 2, 3, rows=(5, 2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    return {"ys": tf.scan(lambda h, row: _step(tf, row, h, v), x, tf.zeros((2, 4)))}


@case("map", None, 2, 3, rows=(5, 2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    return {"ys": tf.map_fn(lambda row: tf.nn.relu(row @ v["w"] @ v["u"] + v["b"]), x)}


@case("nested", None, 2, 3, rows=(4, 2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """A loop in a loop: three rounds at each row."""

    def round_(k: Any, h: Any, row: Any) -> Any:
        return k + 1, _step(tf, row, h, v), row

    def over(t: Any, h: Any) -> Any:
        return t + 1, tf.while_loop(lambda k, *_: k < 3, round_, (0, h, x[t]))[1]

    return {"h": tf.while_loop(lambda t, h: t < tf.shape(x)[0], over, (0, tf.zeros((2, 4))))[1]}


@case("cond", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    y = tf.cond(tf.reduce_sum(x) > 0, lambda: x @ v["w"], lambda: (x @ v["w"] + v["b"]) @ v["u"])
    return {"y": tf.cond(tf.constant(True), lambda: y @ v["u"] + v["b"], lambda: y)}


@case("branch_slopes", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """The branches that do not run have slopes that are NaN: roots and logarithms of what is negative."""
    root = tf.cond(tf.reduce_all(x > 0), lambda: tf.sqrt(x @ tf.abs(v["w"])), lambda: tf.tanh(x @ v["w"]) + v["b"])
    both = x - tf.reduce_max(tf.abs(x))
    return {"y": tf.cond(tf.reduce_any(both > 0), lambda: tf.math.log(both @ v["w"]) * root, lambda: root @ v["u"])}


@case("branch_lists", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """Lists and complex numbers go into branches, and come out: slopes of those that do not run are NaN."""
    y, never = x @ v["w"], tf.reduce_any(x > 1e6)
    rows = tf.TensorArray(tf.float32, 2, element_shape=(None, 4)).write(0, y).write(1, y * 2.0)
    read = tf.cond(never, lambda: tf.sqrt(rows.stack() - 1e3), lambda: rows.stack() @ v["u"])
    kept = tf.cond(never, lambda: rows.write(1, tf.math.log(y - 1e3)), lambda: rows.write(0, y + v["b"]))
    passed = tf.cond(never, lambda: rows.write(0, tf.sqrt(rows.read(0) - 1e3)), lambda: rows)
    return {"read": read, "kept": kept.stack(), "passed": passed.stack()}


@case("branch_spectra", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    never, z = tf.reduce_any(x > 1e6), tf.signal.rfft(x @ v["w"] + v["b"])
    far = tf.cond(never, lambda: tf.complex(tf.math.log(tf.abs(z) - 1e3), tf.math.imag(z)), lambda: z + z)
    return {"far": tf.signal.irfft(far), "size": tf.cond(never, lambda: tf.sqrt(-tf.abs(z)), lambda: tf.math.real(z))}


@case("stopped", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    y = x @ v["w"] + v["b"]
    return {"y": tf.stop_gradient(y) * y, "z": x @ tf.stop_gradient(v["w"]) + tf.stop_gradient(x)[:, :1] * 3.0}


@case("silu", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """It has a gradient written by hand, which is that of x * sigmoid(b * x); b learns, too."""
    inner = tf.cond(x[0, 0] > 0, lambda: tf.nn.silu(x @ v["w"]), lambda: tf.nn.silu(x @ v["w"] - 1.0))
    return {
        "y": tf.nn.silu(x @ v["w"]), "z": tf.nn.silu(x @ v["w"] + v["b"], 1.5),
        "learned": tf.nn.silu(x @ v["w"], v["b"][0]), "of_input": tf.nn.silu(x) @ v["w"], "inner": inner,
        "looped": tf.while_loop(lambda t, h: t < 3, lambda t, h: (t + 1, tf.nn.silu(h @ v["u"])), (0, x @ v["w"]))[1],
    }  # fmt: skip


@case("straight_through", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """A gradient of its own, which the file has as a function."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def rounded(z: Any) -> Any:
        return tf.round(z), lambda dy: dy

    return {"y": rounded(x @ v["w"] * 3.0), "plain": tf.tanh(x @ v["u"][:3])}


@case("like_silu", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """What it computes is silu; its gradient is another."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def stretched(z: Any, b: Any) -> Any:
        return z * tf.sigmoid(b * z), lambda dy: (dy * 2.0, tf.reduce_sum(dy))

    return {"y": stretched(x @ v["w"], tf.constant(1.0)), "plain": tf.tanh(x @ v["u"][:3])}


@case("like_its_gradient", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """The gradient is that of silu with two factors exchanged, over another tensor than the one that goes in."""
    other = x @ v["w"] + 1.0

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def shifted(z: Any, b: Any) -> Any:
        def grad(dy: Any) -> Any:
            s = tf.sigmoid(b * other)
            of_b = tf.reduce_sum(dy * tf.square(other) * s * (1.0 - s))
            return dy * (s * (1.0 + (b * other) * (1.0 - s))), of_b

        return z * tf.sigmoid(b * z), grad

    return {"y": shifted(x @ v["w"], tf.constant(1.0)), "plain": tf.tanh(x @ v["u"][:3])}


@case("plain_swish", None, 3, rows=(2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """Of one argument, with the right gradient in other words: not known to be right."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def swish(z: Any) -> Any:
        s = tf.sigmoid(z)
        return z * s, lambda dy: dy * (s + z * s * (1.0 - s))

    return {"y": swish(x @ v["w"]), "plain": tf.tanh(x @ v["u"][:3])}


@case("computed", None, None, 3, rows=(6, 2, 3))
def _(tf: Any, x: Any, v: Any) -> Any:
    """A number of steps that only a call knows."""
    steps = tf.minimum(tf.shape(x)[0], tf.cast(tf.reduce_max(tf.abs(x)) + 1.5, tf.int32))
    ys = tf.TensorArray(tf.float32, tf.shape(x)[0], element_shape=(None, 4))

    def body(t: Any, h: Any, ys: Any) -> Any:
        h = _step(tf, x[t], h, v)
        return t + 1, h, ys.write(t, h)

    h0 = tf.zeros((tf.shape(x)[1], 4))
    _, h, ys = tf.while_loop(lambda t, *_: t < steps, body, (0, h0, ys))
    return {"h": h, "some": ys.stack()[:1] + 0.0 * v["b"]}


def _stateful(record: Record) -> None:
    """As DTLN's: layers that keep their state from call to call, a batch of 1, one frame block a call."""
    import keras
    import tensorflow as tf

    x = keras.Input(batch_shape=(1, 2, 5), name="x")
    h = keras.layers.LSTM(4, stateful=True, return_sequences=True)(x)
    y = keras.layers.GRU(3, stateful=True, return_sequences=True)(keras.layers.LayerNormalization()(h))
    model = keras.Model(x, keras.layers.Dense(5, activation="sigmoid")(y))
    spec = tf.TensorSpec((1, 2, 5), tf.float32, name="x")
    function = tf.function(lambda x: {"output_0": model(x)}, input_signature=[spec])
    tf.saved_model.save(model, str(record.path), signatures={"serving_default": function})
    loaded = tf.saved_model.load(str(record.path)).signatures["serving_default"]
    frames = [record.normal(1, 2, 5) for _ in range(3)]
    record.keep("in", {f"x{k}": f for k, f in enumerate(frames)})
    record.outputs({f"y{k}": loaded(x=tf.constant(f))["output_0"].numpy() for k, f in enumerate(frames)})


def _counting(record: Record) -> None:
    """Two signatures over one state: one adds to it, the other reads it."""
    import tensorflow as tf

    module = tf.Module()
    module.total = tf.Variable(f32([1.0, 2.0]), name="total")
    module.w = tf.Variable(record.normal(2), name="w")
    spec = tf.TensorSpec((2,), tf.float32, name="x")

    def add(x: Any) -> Any:
        before = module.total * 1.0
        module.total.assign_add(x * module.w)
        after = module.total + 0.0
        module.total.assign(after * 0.5)
        return {"before": before, "after": after}

    def read() -> Any:
        return {"total": module.total * module.w}

    both = {"add": tf.function(add, input_signature=[spec]), "read": tf.function(read, input_signature=[])}
    tf.saved_model.save(module, str(record.path), signatures=both)
    loaded = tf.saved_model.load(str(record.path)).signatures
    xs = [record.normal(2) for _ in range(3)]
    record.keep("in", {f"x{k}": x for k, x in enumerate(xs)})
    for k, x in enumerate(xs):
        found = loaded["add"](x=tf.constant(x))
        record.outputs({f"before{k}": found["before"], f"after{k}": found["after"]})
        record.outputs({f"total{k}": loaded["read"]()["total"]})


def _frames(record: Record, length: int, step: int, padded: bool) -> None:
    """Frames of signals of an open length, which may be shorter than one; `more` holds signals of other lengths."""
    import tensorflow as tf

    module = tf.Module()
    module.w = tf.Variable(record.normal(length, 3), name="w")
    spec = tf.TensorSpec((None, None), tf.float32, name="x")

    def run(x: Any) -> Mapping[str, Any]:
        return {"y": tf.signal.frame(x, length, step, pad_end=padded) @ module.w}

    function = tf.function(run, input_signature=[spec])
    tf.saved_model.save(module, str(record.path), signatures={"serving_default": function})
    x = tf.constant(record.normal(2, 10))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)["y"]
        loss = tf.reduce_sum(y * record.cotangents({"y": y.numpy()})["y"])
    d_x, d_w = tape.gradient(loss, [x, module.w])
    record.inputs(x=x.numpy())
    record.outputs({"y": y.numpy()})
    record.keep("grad", {"x": d_x.numpy(), "w": d_w.numpy()})
    for samples in (0 if padded else length - step, length, 17, 23):
        x = record.normal(3, samples)
        record.keep("more", {f"{samples}/x": x, f"{samples}/y": function(tf.constant(x))["y"].numpy()})


OWN = frozenset({"straight_through", "like_silu", "like_its_gradient", "plain_swish"})  # whose gradient is not read
FRAMES: dict[str, Callable[[Record], None]] = {
    f"frames_{length}_{step}_{padded}": partial(_frames, length=length, step=step, padded=padded)
    for length, step, padded in ((4, 2, False), (7, 3, False), (4, 2, True), (7, 3, True), (6, 4, True))
}
STATE: dict[str, Callable[[Record], None]] = {"stateful": _stateful, "counting": _counting}
CASES |= STATE | FRAMES
