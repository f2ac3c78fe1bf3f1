"""Graphs as TensorFlow 1 writes them: block ops, loops of frames, frozen or with a checkpoint beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tensorflow_models import Record, i32

CASES: dict[str, Callable[[Record], None]] = {}
Build = Callable[[Any, Any, dict[str, Any]], Mapping[str, Any]]


def case(name: str, how: str = "frozen", **given: Any) -> Callable[[Build], Build]:
    """A graph over placeholders `NAME=(shape, array's shape or array)`, written as `how` says."""

    def register(build: Build) -> Build:
        def make(record: Record) -> None:
            import tensorflow as tf

            v1 = tf.compat.v1
            v1.disable_control_flow_v2()
            graph = tf.Graph()
            with graph.as_default(), v1.Session(graph=graph) as session:
                arrays = {
                    n: record.normal(*a) if isinstance(a, tuple) else np.asarray(a) for n, (_, a) in given.items()
                }
                held = {n: v1.placeholder(tf.as_dtype(arrays[n].dtype), shape, n) for n, (shape, _) in given.items()}
                built = build(tf, v1, held)
                outputs = {n: tf.identity(v, n) for n, v in built.items()}
                _run(record, tf, session, held, arrays, outputs, how != "forward")
                _write(record, v1, session, how, held, outputs)

        CASES[name] = make
        return build

    return register


def _array(record: Record, given: Any) -> Any:
    return record.normal(*given) if isinstance(given, tuple) else np.asarray(given)


def _run(record: Record, tf: Any, session: Any, held: Any, arrays: Any, outputs: Any, gradients: bool) -> None:
    v1 = tf.compat.v1
    session.run(v1.global_variables_initializer())
    for v in v1.trainable_variables():
        session.run(v.assign(session.run(v) + 0.3 * record.normal(*v.shape)))
    fed = {held[n]: a for n, a in arrays.items()}
    found = session.run(outputs, fed)
    record.inputs(**arrays)
    record.outputs(found)
    if not gradients:  # TensorFlow has none for a dilated convolution on a CPU
        return
    cts = record.cotangents(found)
    wrt = {n: p for n, p in held.items() if p.dtype.is_floating} | {v.op.name: v for v in v1.trainable_variables()}
    try:
        made = tf.gradients([outputs[n] for n in cts], list(wrt.values()), [tf.constant(c) for c in cts.values()])
    except LookupError:  # TensorFlow has no gradient for GRUBlockCell
        return
    there = {n: d for n, d in zip(wrt, made, strict=True) if d is not None}
    record.keep("grad", session.run(there, fed))


def _write(record: Record, v1: Any, session: Any, how: str, held: Any, outputs: Any) -> None:
    definition = session.graph.as_graph_def()
    names = list(outputs)
    if how in ("frozen", "forward"):
        definition = v1.graph_util.convert_variables_to_constants(session, definition, names)
    if how in ("frozen", "forward", "checkpoint"):
        record.path.with_suffix(".pb").write_bytes(definition.SerializeToString())
    if how == "checkpoint":
        v1.train.Saver().save(session, str(record.path))
    if how == "saved":
        v1.saved_model.simple_save(session, str(record.path), held, outputs)


class Cell:
    """What TensorFlow 1 calls BasicLSTMCell (Keras 3 took it out): gates i, j, f, o, a forget bias of 1."""

    def __init__(self, tf: Any, units: int, width: int, resource: bool = False) -> None:
        self.tf, self.units, self.width, self.resource = tf, units, width, resource
        self.state_size, self.output_size = (units, units), units

    def zero_state(self, rows: Any, dtype: Any) -> Any:
        return tuple(self.tf.zeros((rows, self.units), dtype) for _ in "ch")

    def __call__(self, x: Any, state: Any, scope: Any = None) -> Any:
        tf, v1, (c, h) = self.tf, self.tf.compat.v1, state
        with v1.variable_scope("basic_lstm_cell", reuse=v1.AUTO_REUSE):
            shape = (self.width + self.units, 4 * self.units)
            kernel = v1.get_variable("kernel", shape, use_resource=self.resource)
            bias = v1.get_variable("bias", shape[1:], use_resource=self.resource)
            i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias), 4, axis=1)
            c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            h = tf.tanh(c) * tf.sigmoid(o)
        return h, (c, h)


X = ((None, None, 3), (2, 5, 3))


@case("dynamic", x=X)
def _(tf: Any, v1: Any, p: Any) -> Any:
    y, (c, h) = v1.nn.dynamic_rnn(Cell(tf, 4, 3), p["x"], dtype=tf.float32)
    return {"y": y, "c": c, "h": h}


@case("dynamic_lengths", x=((None, None, 3), (4, 5, 3)), n=((None,), i32([5, 3, 0, 4])))
def _(tf: Any, v1: Any, p: Any) -> Any:
    y, (_, h) = v1.nn.dynamic_rnn(Cell(tf, 4, 3, resource=True), p["x"], p["n"], dtype=tf.float32)
    return {"y": y, "h": h}


@case("dynamic_short", x=((None, None, 3), (3, 6, 3)), n=((None,), i32([2, 1, 3])))
def _(tf: Any, v1: Any, p: Any) -> Any:
    y, (_, h) = v1.nn.dynamic_rnn(Cell(tf, 4, 3), p["x"], p["n"], dtype=tf.float32)
    return {"y": y, "h": h}


@case("time_major", "checkpoint", x=((None, 2, 3), (5, 2, 3)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    y, _ = v1.nn.dynamic_rnn(Cell(tf, 4, 3), p["x"], dtype=tf.float32, time_major=True)
    return {"y": y}


@case("both_ways", "saved", x=X, n=((None,), i32([4, 5])))
def _(tf: Any, v1: Any, p: Any) -> Any:
    (y, z), _ = v1.nn.bidirectional_dynamic_rnn(Cell(tf, 4, 3), Cell(tf, 5, 3), p["x"], p["n"], dtype=tf.float32)
    return {"y": tf.concat([y, z], -1)}


@case("static", x=((None, 4, 3), (2, 4, 3)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    ys, _ = v1.nn.static_rnn(Cell(tf, 4, 3), tf.unstack(p["x"], 4, 1), dtype=tf.float32)
    return {"y": tf.stack(ys, 1)}


def _block(tf: Any, v1: Any, p: Any, version: str, peephole: bool, units: int = 4, **more: Any) -> Any:
    x = tf.transpose(p["x"], (1, 0, 2))
    rows, width = tf.shape(x)[1], x.shape[2]
    with v1.variable_scope("lstm_fused_cell"):
        w = v1.get_variable("kernel", (width + units, 4 * units))
        b = v1.get_variable("bias", (4 * units,))
        peep = [
            v1.get_variable(n, (units,)) if peephole else tf.zeros((units,))
            for n in ("w_i_diag", "w_f_diag", "w_o_diag")
        ]
    zero = tf.zeros(tf.stack([rows, units]))
    op = getattr(tf.raw_ops, version)
    return op(
        seq_len_max=tf.cast(tf.shape(x)[0], tf.int64), x=x, cs_prev=zero, h_prev=zero, w=w, wci=peep[0], wcf=peep[1],
        wco=peep[2], b=b, use_peephole=peephole, **more,
    )  # fmt: skip


@case("block", x=X)
def _(tf: Any, v1: Any, p: Any) -> Any:
    out = _block(tf, v1, p, "BlockLSTM", True, forget_bias=1.0, cell_clip=-1.0)
    return {"y": tf.transpose(out.h, (1, 0, 2)), "c": out.cs[-1]}


@case("block_saved", "saved", x=X)
def _(tf: Any, v1: Any, p: Any) -> Any:
    out = _block(tf, v1, p, "BlockLSTMV2", False, cell_clip=0.0)
    w = v1.get_variable("dense/kernel", (4, 6))
    return {"y": tf.nn.softmax(tf.tensordot(out.h, w, [[2], [0]]))}


@case("block_checkpoint", "checkpoint", x=X)
def _(tf: Any, v1: Any, p: Any) -> Any:
    return {"y": _block(tf, v1, p, "BlockLSTM", True, forget_bias=0.5, cell_clip=0.7).h}


@case("block_cell", x=((None, 3), (2, 3)), c=((None, 4), (2, 4)), h=((None, 4), (2, 4)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    w, b = v1.get_variable("w", (7, 16)), v1.get_variable("b", (16,))
    peep = {n: v1.get_variable(n, (4,)) for n in ("wci", "wcf", "wco")}
    given = {"x": p["x"], "cs_prev": p["c"], "h_prev": p["h"], "w": w, "b": b, **peep}
    out = tf.raw_ops.LSTMBlockCell(**given, forget_bias=1.0, cell_clip=3.0, use_peephole=True)
    return {"c1": out.cs, "h1": out.h}


@case("gru_block", x=X)
def _(tf: Any, v1: Any, p: Any) -> Any:
    class Gru(Cell):
        def __call__(self, x: Any, state: Any, scope: Any = None) -> Any:
            names = {"w_ru": (7, 8), "w_c": (7, 4), "b_ru": (8,), "b_c": (4,)}
            with v1.variable_scope("gru", reuse=v1.AUTO_REUSE):
                w = {n: v1.get_variable(n, s) for n, s in names.items()}
            h = tf.raw_ops.GRUBlockCell(x=x, h_prev=state, **w).h
            return h, h

        def zero_state(self, rows: Any, dtype: Any) -> Any:
            return tf.zeros((rows, 4), dtype)

    cell = Gru(tf, 4, 3)
    cell.state_size = 4  # type: ignore[assignment]  # one state
    y, h = v1.nn.dynamic_rnn(cell, p["x"], dtype=tf.float32)
    return {"y": y, "h": h}


@case("condition", x=((None, 3), (2, 3)), on=((), np.array(True)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    w = v1.get_variable("w", (3, 3))
    inner = v1.cond(tf.logical_not(p["on"]), lambda: p["x"] + 1.0, lambda: tf.matmul(p["x"], w))
    y = v1.cond(p["on"], lambda: v1.cond(p["on"], lambda: inner * 2.0, lambda: inner), lambda: tf.zeros_like(inner))
    return {"y": y}


@case("switched", "checkpoint", x=((None, 3), (2, 3)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    """Slopes of what does not run are NaN; variables are read in branches, of both kinds."""
    w = v1.get_variable("w", (3, 4))
    u = v1.get_variable("u", (4, 4), use_resource=True)
    x, far = p["x"], p["x"] - tf.reduce_max(tf.abs(p["x"]))
    y = v1.cond(tf.reduce_all(x > 0), lambda: tf.sqrt(tf.matmul(x, tf.abs(w))), lambda: tf.matmul(tf.matmul(x, w), u))
    return {
        "y": v1.cond(tf.reduce_any(far > 0), lambda: tf.math.log(tf.matmul(far, w)) + tf.sqrt(u[:1]), lambda: y * u[1])
    }


@case("switched_lists", x=((None, 3), (2, 3)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    """Arrays and complex numbers go through switches, and come out of a merge."""
    y, never = tf.matmul(p["x"], v1.get_variable("w", (3, 4))), tf.reduce_any(p["x"] > 1e6)
    rows = tf.TensorArray(tf.float32, 2, element_shape=(None, 4), clear_after_read=False).write(0, y)
    kept = v1.cond(never, lambda: rows.write(1, tf.math.log(y - 1e3)), lambda: rows.write(1, y * 2.0))
    read = v1.cond(never, lambda: tf.sqrt(kept.stack() - 1e3), lambda: kept.stack() * 3.0)
    z = tf.signal.rfft(y)
    far = v1.cond(never, lambda: tf.complex(tf.math.log(tf.abs(z) - 1e3), tf.math.imag(z)), lambda: z + z)
    return {"read": read, "far": tf.signal.irfft(far)}


@case("switched_in_loop", "checkpoint", x=((None, None, 3), (5, 2, 3)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    """Branches in loops, and one around a loop, read variables of both kinds; slopes of what does not run are NaN."""
    w = v1.get_variable("w", (3, 3))
    u = v1.get_variable("u", (3, 3), use_resource=True)
    x, never = p["x"], tf.reduce_any(p["x"] > 1e6)

    def over(step: Any) -> Any:
        return tf.while_loop(
            lambda t, h: t < tf.shape(x)[0], lambda t, h: (t + 1, step(x[t], h)), (0, tf.zeros_like(x[0]))
        )[1]

    def far(h: Any) -> Any:
        return tf.matmul(h, tf.sqrt(u - 1e3) + tf.math.log(w - 1e3))

    def step(row: Any, h: Any) -> Any:
        h = v1.cond(tf.reduce_any(row > 1e6), lambda: far(h), lambda: tf.tanh(tf.matmul(row, w) + tf.matmul(h, u)))
        return v1.cond(never, lambda: far(h) + row, lambda: h + tf.matmul(h, u))

    inside = over(step)
    return {"y": v1.cond(never, lambda: over(lambda row, h: far(h) + row), lambda: tf.matmul(inside, u))}


@case("loop", x=((None, None, 3), (5, 2, 3)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    """A loop of two inside of one another, over rows that are read by slices, from the last one."""
    w, steps = v1.get_variable("w", (3, 3)), tf.shape(p["x"])[0]

    def body(t: Any, h: Any, more: Any) -> Any:
        x = p["x"][steps - 1 - t]
        _, h = tf.while_loop(lambda k, h: k < 3, lambda k, h: (k + 1, tf.tanh(tf.matmul(h, w) + x)), (0, h))
        return t + 1, h, more.write(t, h)

    h0 = tf.zeros_like(p["x"][0])
    found = tf.while_loop(lambda t, *_: t < steps, body, (0, h0, tf.TensorArray(tf.float32, steps)))
    return {"h": found[1], "ys": found[2].stack()}


@case("resource", "checkpoint", x=((None, 3), (2, 3)))
def _(tf: Any, v1: Any, p: Any) -> Any:
    w = v1.get_variable("layer/w", (3, 5), use_resource=True)
    b = v1.get_variable("layer/b", (5,), use_resource=True)
    return {"y": tf.nn.elu(tf.nn.bias_add(tf.matmul(p["x"], w), b))}
