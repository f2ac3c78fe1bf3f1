"""`einsum` against NumPy's, over many random equations; what is no equation is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import sweep

import lstm_ir as li

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 1}
FEW = 60


def equation(rng: np.random.Generator) -> tuple[str, list[tuple[int, ...]]]:
    """A random equation, and shapes that fit it: ellipses, letters twice, axes of size 1 that broadcast."""
    terms, shapes = [], []
    dots = [int(n) for n in rng.integers(2, 6, 2)]
    for _ in range(int(rng.integers(1, 4))):
        letters = list(rng.choice(list("abcde"), int(rng.integers(0, 4)), replace=bool(rng.random() < 0.3)))
        shape = [SIZES[x] for x in letters]
        shape = [1 if rng.random() < 0.08 and letters.count(x) == 1 else n for x, n in zip(letters, shape, strict=True)]
        term = "".join(letters)
        if rng.random() < 0.3:
            at, count = int(rng.integers(0, len(letters) + 1)), int(rng.integers(0, 3))
            tail = [1 if rng.random() < 0.2 else n for n in (dots[2 - count :] if count else [])]
            shape = [*shape[:at], *tail, *shape[at:]]
            term = f"{term[:at]}...{term[at:]}"
        terms.append(term)
        shapes.append(tuple(shape))
    text = ",".join(terms)
    if rng.random() < 0.7:
        there = sorted(set(text) & set(SIZES))
        out = list(rng.permutation([x for x in there if rng.random() < 0.5]))
        if "..." in text:
            out.insert(int(rng.integers(0, len(out) + 1)), "...")
        text += f"->{''.join(out)}"
    return text, shapes


def equations(seed: int, count: int) -> list[tuple[str, list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]]:
    """Equations that NumPy takes, with operands and its result."""
    rng = np.random.default_rng(seed)
    out: list[tuple[str, list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = []
    while len(out) < count:
        text, shapes = equation(rng)
        arrays = [rng.integers(-4, 5, s).astype("f8") for s in shapes]
        out.append((text, arrays, np.einsum(text, *arrays)))
    return out


def graph(text: str, arrays: list[Any], named: bool) -> li.Graph:
    ins = [
        li.input(f"x{i}", tuple(f"S{n}" if named and n != 1 else n for n in a.shape), "f64")
        for i, a in enumerate(arrays)
    ]
    return li.Graph("einsum", ins, {"y": li.einsum(text, *ins)})


@pytest.mark.parametrize("named", [False, True])
def test_random_equations(named: bool, seed: int) -> None:
    """Whole numbers: sums are exact in every order."""
    for text, arrays, want in equations(seed, 400):
        got = li.interpret(graph(text, arrays, named), {f"x{i}": a for i, a in enumerate(arrays)})["y"]
        np.testing.assert_array_equal(got, want, err_msg=f"{text} {[a.shape for a in arrays]}, seed {seed}")


@pytest.mark.parametrize("named", [False, True])
def test_random_equations_compiled(named: bool, seed: int) -> None:
    found = [
        sweep.given(f"{k} {text}", graph(text, arrays, named), {f"x{i}": a for i, a in enumerate(arrays)})
        for k, (text, arrays, _) in enumerate(equations(seed + 1, FEW))
    ]
    sweep.held(found, seed)


@pytest.mark.parametrize("text", ["bh,bhkv->bhkv", "vbhk,hb->bhvk", "bhv,bhv->vhb", ",bh->hb", "bh,bhv,bhv->hbv"])
def test_a_scaling_is_no_product_of_matrices(text: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [tuple({"b": 2, "h": 3, "k": 4, "v": 5}[n] for n in t) for t in text.partition("->")[0].split(",")]
    arrays = [rng.standard_normal(s) for s in shapes]
    g = graph(text, arrays, named=False)
    assert "dot_general" not in {n.op.name for n in g.nodes}
    got = li.interpret(g, {f"x{i}": a for i, a in enumerate(arrays)})["y"]
    np.testing.assert_allclose(got, np.einsum(text, *arrays), rtol=1e-15, err_msg=str(seed))


def test_spaces_and_numbers() -> None:
    x = li.input("x", (3, 4), "i32")
    a = np.arange(12, dtype=np.int32).reshape(3, 4)
    y = li.einsum(" i j , j -> i ", x, np.array([1, -2, 0, 5], np.int32))
    got = li.interpret(li.Graph("g", [x], {"y": y}), x=a)["y"]
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, a @ [1, -2, 0, 5])


REFUSED = {
    "ij,jk": "is for 2 operands, there are 1",
    "i": "the term 'i' is for 1 axes, its operand has 2",
    "ij->ik": "has 'k', which no operand has",
    "ij->ii": "has 'i' twice",
    "i1->i": "a term of the equation is 'i1'",
    "i......": "a term of the equation is 'i......'",
    "ijk...": "does not fit an operand of 2 axes",
    "...j->j": "has no '...', which operands have",
    "ii->i": "the letter 'i' of 'ii->i' has the sizes 3 and 4",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(li.IRError, match=re.escape(REFUSED[text])):
        li.einsum(text, li.input("x", (3, 4)))


def test_other_operands_are_refused() -> None:
    wrong: Any = 5
    with pytest.raises(li.IRError, match="equation is 5"):
        li.einsum(wrong, li.input("x", (3,)))
    with pytest.raises(li.IRError, match="takes numbers, got i1"):
        li.einsum("i->", li.input("x", (3,), "i1"))
    with pytest.raises(li.IRError, match="lhs is f32, rhs f64"):
        li.einsum("i,i", li.input("x", (3,)), li.input("y", (3,), "f64"))
    with pytest.raises(li.IRError, match="at least one operand"):
        li.einsum("->")
