"""What the block ops refuse: every shape, type and attribute, by name and at the user's line."""

from typing import Any

import numpy as np
import pytest
import tf_cases as tf

import lstm_ir as li

T, B, I, C = 11, 3, 5, 7
LSTM = (tf.CELL, tf.CELL_GRAD, tf.SEQ, tf.SEQ_V2, tf.SEQ_GRAD, tf.SEQ_GRAD_V2)
SEQUENCES = (tf.SEQ, tf.SEQ_V2, tf.SEQ_GRAD, tf.SEQ_GRAD_V2)


def call(op: str, change: dict[str, Any], **attrs: Any) -> Any:
    """The op over inputs of the right shapes, some of them changed: a shape, or shape and dtype."""
    ins: dict[str, Any] = {}
    for name, shape in tf.shapes(op, T, B, I, C).items():
        kind = "i64" if name == "seq_len_max" else "f32"
        given = change.get(name, shape)
        if given is None:
            continue
        if given and isinstance(given[0], tuple):
            given, kind = given
        ins[name] = li.input(name, given, kind)
    if "Grad" in op and "GRU" not in op:
        attrs = {"use_peephole": True} | attrs
    return li.op(op, **ins, **attrs)


def wrong(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes near `shape`: one axis too long or too short, one axis more or less."""
    out = [(*shape, 1), *([shape[1:]] if shape else [])]
    for axis in range(len(shape)):
        for by in (1, -1):
            out.append((*shape[:axis], shape[axis] + by, *shape[axis + 1 :]))
    return out


@pytest.mark.parametrize("op", tf.OPS)
def test_the_right_shapes_are_taken(op: str) -> None:
    for use_peephole in (False, True):
        call(op, {}, **({} if "GRU" in op else {"use_peephole": use_peephole}))


@pytest.mark.parametrize("op", tf.OPS)
def test_every_wrong_shape(op: str) -> None:
    """No operand may differ in any axis, with peepholes on."""
    attrs = {} if "GRU" in op else {"use_peephole": True}
    for name, shape in tf.shapes(op, T, B, I, C).items():
        for given in wrong(shape):
            if op in (tf.SEQ, tf.SEQ_V2) and name == "x" and given[1:] == (B, I):
                continue  # x alone says what T is
            with pytest.raises(li.IRError) as e:
                call(op, {name: given}, **attrs)
            first, *_, last = str(e.value).splitlines()
            assert first.startswith(f"{op}: "), first
            assert "operands: " in str(e.value)
            assert "test_tf_contract.py:" in last, last


@pytest.mark.parametrize("op", tf.OPS)
def test_every_wrong_type(op: str) -> None:
    for name, shape in tf.shapes(op, T, B, I, C).items():
        for kind in ("f64", "i32") if name != "seq_len_max" else ("i32", "f32", "u32"):
            with pytest.raises(li.IRError, match=rf"(?s){op}.*(elements|seq_len_max)"):
                call(op, {name: (shape, kind)})


@pytest.mark.parametrize("op", tf.OPS)
def test_every_missing_operand(op: str) -> None:
    for name in tf.shapes(op, T, B, I, C):
        with pytest.raises(li.IRError, match=f"operand {name} is required"):
            call(op, {name: None})


BAD = [
    (tf.CELL, {"w": (I + C, 17)}, {}, r"w is f32\[12,17\], expected \[I\+C,4C\] = \[12,28\]"),
    (tf.CELL, {"w": (I, 4 * C)}, {}, r"w is f32\[5,28\], expected \[I\+C,4C\] = \[12,28\]"),
    (tf.CELL, {"x": (B + 1, I)}, {}, r"cs_prev is f32\[3,7\], expected \[B,C\] = \[4,7\]"),
    (tf.CELL, {"h_prev": (B, C + 1)}, {}, r"h_prev is f32\[3,8\], expected \[B,C\] = \[3,7\]"),
    (tf.CELL, {"b": (4 * C + 3,)}, {}, r"b is f32\[31\], expected \[4C\] = \[28\]"),
    (tf.CELL, {"wci": (C + 1,)}, {"use_peephole": True}, r"wci is f32\[8\], expected \[C\]"),
    (tf.CELL, {"wco": ()}, {}, r"wco is f32\[\], expected a vector"),
    (tf.CELL, {"x": (I,)}, {}, r"x is f32\[5\], expected \[B,I\]"),
    (tf.CELL, {"cs_prev": ("B", "C")}, {}, "the number of units is a number, not a name"),
    (tf.CELL, {"h_prev": ("B", C)}, {}, "name them alike if they are equal"),
    (tf.CELL, {}, {"cell_clip": "3"}, "attribute cell_clip is '3'; expected a number"),
    (tf.CELL, {}, {"use_peephole": 1}, "attribute use_peephole is 1; expected True or False"),
    (tf.CELL, {}, {"peephole": True}, "has no attribute peephole"),
    (tf.SEQ_V2, {}, {"forget_bias": 1.0}, "has no attribute forget_bias"),
    (tf.SEQ_GRAD, {}, {"cell_clip": 1.0}, "has no attribute cell_clip"),
    (tf.SEQ, {"wcf": (C + 1,)}, {}, r"wcf is f32\[8\], expected \[C\]"),
    (tf.SEQ, {"seq_len_max": (1,)}, {}, r"seq_len_max is i64\[1\], expected i64\[\]"),
    (tf.SEQ_GRAD, {"cs_grad": (B, C)}, {}, r"cs_grad is f32\[3,7\], expected \[T,B,C\]"),
    (tf.SEQ_GRAD_V2, {"h_grad": (T - 1, B, C)}, {}, r"h_grad is f32\[10,3,7\]"),
    (tf.SEQ_GRAD, {"co": (T, B, C + 1)}, {}, r"co is f32\[11,3,8\], expected \[T,B,C\]"),
    (tf.CELL_GRAD, {"wci": (0,)}, {}, r"wci is f32\[0\], expected \[C\] = \[7\]"),
    (tf.GRU, {"w_ru": (I + C, 2 * C - 1)}, {}, r"w_ru is f32\[12,13\], expected \[I\+C,2C\]"),
    (tf.GRU, {}, {"use_peephole": False}, "has no attribute use_peephole; its attributes: none"),
    (tf.GRU_GRAD, {"d_h": (B, C + 1)}, {}, r"d_h is f32\[3,8\], expected \[B,C\]"),
]


@pytest.mark.parametrize(("op", "change", "attrs", "problem"), BAD)
def test_messages(op: str, change: dict[str, Any], attrs: dict[str, Any], problem: str) -> None:
    with pytest.raises(li.IRError, match=problem):
        call(op, change, **attrs)


@pytest.mark.parametrize("op", [tf.CELL_GRAD, tf.SEQ_GRAD, tf.SEQ_GRAD_V2])
def test_use_peephole_is_required(op: str) -> None:
    ins = {n: li.input(n, s, "i64" if n == "seq_len_max" else "f32") for n, s in tf.shapes(op, T, B, I, C).items()}
    with pytest.raises(li.IRError, match="attribute use_peephole is required"):
        li.op(op, **ins)


@pytest.mark.parametrize("op", LSTM)
def test_vectors_that_are_not_read(op: str) -> None:
    """Without peepholes any length, except in BlockLSTM(V2); their gradients have that length."""
    change = {"wci": (0,), "wcf": (C + 2,), "wco": (1,)}
    if op in (tf.SEQ, tf.SEQ_V2):
        with pytest.raises(li.IRError, match="wci"):
            call(op, change, use_peephole=False)
        return
    r = call(op, change, use_peephole=False)
    if "Grad" in op:
        assert [r.wci_grad.shape, r.wcf_grad.shape, r.wco_grad.shape] == [(0,), (C + 2,), (1,)]
        rng = np.random.default_rng(1)
        a = tf.operands(rng, op, (T, B, I, C)) | {n: np.full(s, np.nan, np.float32) for n, s in change.items()}
        g = tf.graph(op, a, {"use_peephole": False})
        for got in (li.interpret(g, a), li.interpret(tf.expanded(g), a)):
            for n, s in change.items():
                assert got[f"{n}_grad"].shape == s
                assert not got[f"{n}_grad"].any()


@pytest.mark.parametrize("op", SEQUENCES)
def test_seq_len_max_as_a_constant(op: str) -> None:
    """A number outside 0..T is refused before anything runs."""
    a = tf.operands(np.random.default_rng(2), op, (T, B, I, C))
    del a["seq_len_max"]
    attrs = {"use_peephole": False}
    for n in (-1, T + 1):
        with pytest.raises(li.ValueRangeError, match=f"seq_len_max holds {n}, outside 0..11"):
            li.compile(li.Graph("g", [], li.op(op, seq_len_max=n, **a, **attrs)._asdict()))
    wrong_type: tuple[Any, ...] = (2.0, True, [3], np.int32(3), "2", 2**63, np.array(["2"]))
    for given in wrong_type:
        with pytest.raises(li.IRError, match=rf"(?s){op}: .*seq_len_max.*at test_tf_contract.py:"):
            li.op(op, seq_len_max=given, **a, **attrs)


def test_seq_len_max_as_a_constant_with_a_named_size() -> None:
    """A call with fewer steps than the constant is refused."""
    a = tf.operands(np.random.default_rng(2), tf.SEQ_V2, (T, B, I, C))
    x, n = a.pop("x"), a.pop("seq_len_max") - 1
    ins = li.input("x", ("T", B, I))
    g = li.Graph("g", [ins], li.op(tf.SEQ_V2, seq_len_max=n, x=ins, **a)._asdict())
    assert not li.interpret(g, x=x)["h"][n:].any()
    for given in (x[: n - 1], x[:0]):
        with pytest.raises((li.CallError, li.ValueRangeError), match="seq_len_max holds 10"):
            li.interpret(g, x=given)
