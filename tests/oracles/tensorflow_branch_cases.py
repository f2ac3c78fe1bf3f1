"""Branches that write variables: modules of TensorFlow 2, and graphs of TensorFlow 1, called several times in a row.

A case has variables of its own, all of 2 elements, and gives results by name. `in/xK` is the input of call K,
`out/K/NAME` a result, `more/K/NAME` what a variable holds after the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tensorflow_models import Record, f32

CASES: dict[str, Callable[[Record], None]] = {}
FIRST = {"a": [1.0, 2.0], "b": [-3.0, 0.5]}
XS = [f32([s * 0.5, s * 2.0]) for s in (1, 1, -1, 0.25, -1, -0.5, 1, 0.1)]  # both branches, in turns
Step = Callable[[Any, Any, Any], Mapping[str, Any]]


def module(name: str) -> Callable[[Step], Step]:
    """A module of TensorFlow 2: `tf.function` of x, over its variables."""

    def register(step: Step) -> Step:
        def make(record: Record) -> None:
            import tensorflow as tf

            held = tf.Module()
            for n, first in FIRST.items():
                setattr(held, n, tf.Variable(f32(first), name=n))
            spec = tf.TensorSpec((2,), tf.float32, name="x")
            function = tf.function(lambda x: step(tf, x, held), input_signature=[spec])
            tf.saved_model.save(held, str(record.path), signatures={"serving_default": function})
            for k, x in enumerate(XS):
                record.keep("in", {f"x{k}": x})
                record.keep("out", {f"{k}/{n}": v.numpy() for n, v in function(tf.constant(x)).items()})
                record.keep("more", {f"{k}/{n}": getattr(held, n).numpy() for n in FIRST})

        CASES[name] = make
        return step

    return register


class Variables1:
    """Variables of TensorFlow 1 by name."""

    def __init__(self, v1: Any, resource: bool) -> None:
        for n, first in FIRST.items():
            setattr(self, n, v1.get_variable(n, initializer=f32(first), use_resource=resource))


def graph(name: str) -> Callable[[Step], Step]:
    """A graph of TensorFlow 1 with Switch and Merge, once with variables that are references, once with resources."""

    def register(step: Step) -> Step:
        def make(record: Record, resource: bool) -> None:
            import tensorflow as tf

            v1 = tf.compat.v1
            v1.disable_control_flow_v2()
            with tf.Graph().as_default(), v1.Session() as session:
                x = v1.placeholder(tf.float32, (2,), "x")
                held = Variables1(v1, resource)
                outputs = {n: tf.identity(v, n) for n, v in step(tf, x, held).items()}
                session.run(v1.global_variables_initializer())
                v1.saved_model.simple_save(session, str(record.path), {"x": x}, outputs)
                for k, rows in enumerate(XS):
                    record.keep("in", {f"x{k}": rows})
                    found = session.run(outputs, {x: rows})
                    record.keep("out", {f"{k}/{n}": v for n, v in found.items()})
                    record.keep("more", {f"{k}/{n}": session.run(getattr(held, n)) for n in FIRST})

        CASES[f"{name}_references"] = lambda record: make(record, False)
        CASES[f"{name}_resources"] = lambda record: make(record, True)
        return step

    return register


def both(name: str) -> Callable[[Step], Step]:
    """A module, and graphs."""

    def register(step: Step) -> Step:
        graph(name)(step)
        return module(name)(step)

    return register


# `read_value` stands where order counts: `a + 0.0` on a reference of TensorFlow 1 reads before a write or after it.


def _after(tf: Any, ops: Any, value: Any) -> Any:
    with tf.control_dependencies(ops):
        return tf.identity(value)


@both("both_write")
def _(tf: Any, x: Any, v: Any) -> Any:
    y = tf.cond(tf.reduce_sum(x) > 0, lambda: v.a.assign_add(x), lambda: v.a.assign(x * 3.0))
    return {"y": tf.identity(y)}


@both("one_writes")
def _(tf: Any, x: Any, v: Any) -> Any:
    y = tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: _after(tf, [v.a.assign_sub(x)], x))
    with tf.control_dependencies([y]):
        return {"y": y, "behind": v.a.read_value()}


@both("different_variables")
def _(tf: Any, x: Any, v: Any) -> Any:
    """Each branch writes one, and reads the other."""
    y = tf.cond(
        tf.reduce_sum(x) > 0,
        lambda: _after(tf, [v.a.assign_add(v.b.read_value() * x)], x),
        lambda: _after(tf, [v.b.assign(v.a.read_value() - x)], -x),
    )
    return {"y": y}


@both("read_after_write")
def _(tf: Any, x: Any, v: Any) -> Any:
    """In a branch a variable is written, read, and written again."""

    def then() -> Any:
        with tf.control_dependencies([v.a.assign_add(x)]):
            first = v.a.read_value() * 10.0
        with tf.control_dependencies([v.a.assign(first - 1.0)]):
            return v.a.read_value() + 0.5

    y = tf.cond(tf.reduce_sum(x) > 0, then, lambda: v.a.read_value() + x)
    with tf.control_dependencies([y]):
        return {"y": y, "behind": v.a.read_value() * 2.0}


@both("nested")
def _(tf: Any, x: Any, v: Any) -> Any:
    """A condition in each branch; one of the inner ones hangs on what the outer branch wrote."""

    def then() -> Any:
        with tf.control_dependencies([v.a.assign_add(x)]):
            inner = tf.reduce_sum(v.a.read_value()) > 5.0
        return tf.cond(inner, lambda: v.a.assign(x) + 0.0, lambda: v.b.assign_add(x) + 0.0)

    def other() -> Any:
        return tf.cond(x[0] > -0.4, lambda: v.b.assign(x * 7.0) + 0.0, lambda: x - 1.0)

    return {"y": tf.cond(tf.reduce_sum(x) > 0, then, other)}


@both("either_variable")
def _(tf: Any, x: Any, v: Any) -> Any:
    """The branches give two variables that they wrote: in TensorFlow 1 two references."""
    y = tf.cond(x[0] > 0, lambda: v.a.assign_add(x), lambda: v.b.assign(x * 3.0))
    return {"y": tf.identity(y) * 1.0}


@both("known")
def _(tf: Any, x: Any, v: Any) -> Any:
    """A condition that is known at import: the other branch writes nothing."""
    y = tf.cond(
        tf.reduce_sum(tf.constant([2.0, 1.0])) > 1.0, lambda: v.a.assign_add(x) + 0.0, lambda: v.b.assign_add(x) + 0.0
    )
    return {"y": y}


@both("subtracted")
def _(tf: Any, x: Any, v: Any) -> Any:
    """A write in one branch behind a write outside, and what is printed and checked between."""
    with tf.control_dependencies([v.a.assign_sub(x)]):
        now = v.a.read_value()
    with tf.control_dependencies([tf.print("a", now[:0]), tf.raw_ops.Assert(condition=now[0] < 1e9, data=[now])]):
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: v.a.assign_sub(now * 0.5) + 0.0, lambda: now * 3.0)
    return {"y": y}


@both("in_turn")
def _(tf: Any, x: Any, v: Any) -> Any:
    """Two conditions after each other; the second reads what the first has left."""
    first = tf.cond(tf.reduce_sum(x) > 0, lambda: v.a.assign_add(x) + 0.0, lambda: x)
    with tf.control_dependencies([first]):
        second = tf.cond(
            x[0] < 0.3, lambda: v.a.assign(v.a.read_value() * 2.0) + 0.0, lambda: v.b.assign_sub(v.a.read_value()) + 0.0
        )
    return {"first": first, "second": second}


@module("called")
def _(tf: Any, x: Any, v: Any) -> Any:
    """A function that a branch calls writes."""

    @tf.function  # type: ignore[untyped-decorator]
    def add(n: Any) -> Any:
        v.a.assign_add(n)
        return v.a * 2.0

    return {"y": tf.cond(tf.reduce_sum(x) > 0, lambda: add(x), lambda: add(x * 5.0))}


@module("first_read_in_a_branch")
def _(tf: Any, x: Any, v: Any) -> Any:
    """What only a branch reads, written behind it."""
    y = tf.cond(tf.reduce_sum(x) > 0, lambda: v.a + x, lambda: v.b - x)
    v.a.assign(y)
    v.b.assign_add(v.a)
    return {"y": y}


@module("loop")
def _(tf: Any, x: Any, v: Any) -> Any:
    """A branch of a loop's body writes, which is refused."""

    def body(k: Any, y: Any) -> Any:
        return k + 1, tf.cond(y[0] > 0, lambda: v.a.assign_add(y) + 0.0, lambda: y - 1.0)

    return {"y": tf.while_loop(lambda k, y: k < 3, body, (0, x))[1]}


REFUSED = frozenset({"loop"})
assert {float(np.sign(x.sum())) for x in XS} == {-1.0, 1.0}
