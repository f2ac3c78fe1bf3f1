"""A process of its own for products of repeated and empty sizes: a wrong one may end it.

`sizes_child.py PART SEED OPTIONS` prints what differs from the NumPy meaning; PART is one of `PARTS`.
A graph is compiled alone: IREE sees that two sizes are one only where all calls of a dispatch agree.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np

import lstm_ir as li

Array = np.ndarray[Any, Any]
Pairs = tuple[tuple[int, ...], tuple[int, ...]]
Form = tuple[str, str, Pairs, Pairs]

# Axes by letter, a digit is a size of its own: lhs, rhs, contracted axes, batch axes.
REPEATED: list[Form] = [
    ("TTB", "TB5", ((2,), (1,)), ((1,), (0,))),
    ("TTB", "TB5", ((2,), (1,)), ((0,), (0,))),
    ("TBB", "TB5", ((2,), (1,)), ((0,), (0,))),
    ("TTS", "5TS", ((2,), (2,)), ((0,), (1,))),
    ("BTT", "TBB", ((2,), (0,)), ((0,), (2,))),
    ("TBB", "TBB", ((2,), (2,)), ((0,), (0,))),
]
DISTINCT: list[Form] = [
    ("MK", "KN", ((1,), (0,)), ((), ())),
    ("KM", "K5", ((0,), (0,)), ((), ())),
    ("BMK", "BKN", ((2,), (1,)), ((0,), (0,))),
    ("MBK", "BK5", ((2,), (1,)), ((1,), (0,))),
    ("BKM", "BK5", ((1,), (1,)), ((0,), (0,))),
    ("BCMK", "BCK7", ((3,), (2,)), ((0, 1), (0, 1))),
    ("MKL", "KLN", ((1, 2), (0, 1)), ((), ())),
    ("K", "K", ((0,), (0,)), ((), ())),
    ("BMK", "BK", ((2,), (1,)), ((0,), (0,))),
    ("BM4", "B46", ((2,), (1,)), ((0,), (0,))),
    ("35K", "3K6", ((2,), (1,)), ((0,), (0,))),
]


def axes(letters: str) -> tuple[Any, ...]:
    return tuple(int(c) if c.isdigit() else c for c in letters)


def product_of(form: Form, gradient: bool = False) -> li.Graph:
    """The product alone, or the gradients of a sum over it."""
    lhs, rhs, contracted, batch = form
    x, y = li.input("x", axes(lhs), "f32"), li.input("y", axes(rhs), "f32")
    v = li.dot_general(x, y, contracted, batch)
    if not gradient:
        return li.Graph("product", [x, y], {"v": v})
    g = li.Graph("product", [x, y], {"loss": li.sum(li.tanh(v) * v)})
    return li.grad(g, "loss", ["x", "y"])


def loop_of(batched: bool) -> li.Graph:
    """A product of each step, whose sizes repeat where it is batched."""
    shape = ("S", "T", "T", "B") if batched else ("S", "T", "B")
    x, w = li.input("x", shape, "f32"), li.input("w", ("T", "B", 5) if batched else ("B", 5), "f32")
    h = li.input("h", ("T", "T", 5) if batched else ("T", 5), "f32")

    def step(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        v = li.dot_general(row, w, ((2,), (1,)), ((0,), (0,))) if batched else row @ w
        return li.tanh(h * 0.5 + v), v

    last, rows = li.scan(step, h, x)
    g = li.Graph("loop", [x, w, h], {"last": last, "rows": rows, "loss": li.sum(last * last)})
    return li.grad(g, "loss", ["x", "w", "h"])


def convolution() -> li.Graph:
    x, w = li.input("x", ("B", "C", 9), "f32"), li.input("w", ("O", "C", 3), "f32")
    return li.Graph("filter", [x, w], {"v": li.conv1d(x, w, padding=1)})


def differs(g: li.Graph, sizes: list[dict[str, int]], rng: np.random.Generator, options: Any) -> Iterator[str]:
    """What of one executable is wrong at which sizes; each is named before it is tried."""
    exe = li.compile(g, options=options)
    for known in sizes:
        types = {p.node.attrs["name"]: p.type for p in g.params}
        shapes = {n: [d if isinstance(d, int) else known[str(d)] for d in t.shape] for n, t in types.items()}
        print(f"# {shapes}", flush=True)
        given = {n: rng.integers(-2, 3, s).astype(np.float32) for n, s in shapes.items()}
        got, want = exe(**given), li.interpret(g, given)
        for name, v in want.items():
            room = 2e-5 * (1 + np.abs(v).max(initial=0))  # exact but for tanh, and what follows it
            if got[name].shape != v.shape or not np.all(np.abs(got[name] - v) <= room):
                yield f"{name} at {shapes}"


def empties(letters: str, most: int = 4) -> list[dict[str, int]]:
    """Every set of the named sizes as 0, the others pairwise different."""
    names = sorted({c for c in letters if c.isalpha()})
    sizes = {n: 3 + k for k, n in enumerate(names)}
    some = [z for r in range(1, min(most, len(names)) + 1) for z in combinations(names, r)]
    return [sizes | dict.fromkeys(z, 0) for z in some]


LONG = [{"T": a, "B": b, "S": c} for a, b, c in ((2, 150, 3), (1, 130, 70), (70, 130, 2))]


def random_form(rng: np.random.Generator) -> Form:
    """Axes of a batched product, two or three names over all of them, in any order."""
    names = "TB" if rng.random() < 0.7 else "TBS"

    def some(count: int) -> str:
        return "".join(rng.choice(list(names if rng.random() < 0.8 else "35"), count))

    parts = {"b": some(1 + int(rng.integers(2))), "k": some(1), "m": some(1), "n": some(1)}

    def side(kinds: str) -> tuple[str, dict[str, tuple[int, ...]]]:
        tags = [(kind, k) for kind in kinds for k in range(len(parts[kind]))]
        if rng.random() < 0.5:
            tags = [tags[int(i)] for i in rng.permutation(len(tags))]
        places = {kind: tuple(tags.index((kind, k)) for k in range(len(parts[kind]))) for kind in kinds}
        return "".join(parts[kind][k] for kind, k in tags), places

    (lhs, a), (rhs, b) = side("bmk"), side("bkn")
    return lhs, rhs, (a["k"], b["k"]), (a["b"], b["b"])


def _little(form: Form, known: dict[str, int]) -> bool:
    """Whether NumPy is done with it in a moment."""
    batch = [form[0][a] for a in form[3][0]]
    work = [*form[0], *(c for c in form[1] if c not in batch)]
    return float(np.prod([float(known.get(c, 7)) for c in work])) < 2e8


def fixed(form: Form) -> Iterator[tuple[li.Graph, list[dict[str, int]]]]:
    """The form with its sizes as numbers, some of them 0."""
    for known in empties(form[0] + form[1]):
        lhs, rhs = ("".join(str(known.get(c, c)) for c in s) for s in form[:2])
        yield product_of((lhs, rhs, *form[2:])), [{}]


def work(part: str, rng: np.random.Generator) -> Iterator[tuple[li.Graph, list[dict[str, int]]]]:
    """Graphs, and the sizes to call them with."""
    if part == "reported":
        yield product_of(REPEATED[0]), [*empties("TB"), *LONG[:2]]
        yield product_of(REPEATED[3]), [*empties("TBS"), *LONG[:2]]
        yield product_of(DISTINCT[2]), empties("BKMN")
    elif part == "repeated":
        for form in REPEATED:
            yield product_of(form), [*empties("TBS"), *LONG]
    elif part == "random":
        for form in [random_form(rng) for _ in range(20)]:
            few = [n for n in LONG if _little(form, n)]
            yield product_of(form), [*empties(form[0] + form[1]), *few]
    elif part == "distinct":
        for form in DISTINCT:
            yield product_of(form), empties(form[0] + form[1])
    elif part == "numbers":
        for form in (DISTINCT[0], DISTINCT[2], DISTINCT[6], REPEATED[0]):
            yield from fixed(form)
    elif part == "gradients":
        for form in (REPEATED[0], REPEATED[2], DISTINCT[0], DISTINCT[2]):
            yield (
                product_of(form, gradient=True),
                [*empties(form[0] + form[1]), *(LONG[:1] if "T" in form[0] else [])],
            )
    elif part == "loops":
        for batched in (False, True):
            yield loop_of(batched), [*empties("STB"), {"S": 3, "T": 2, "B": 150}]
    else:
        named = [dict(zip("BCO", n, strict=True)) for n in product((0, 2), (0, 3), (0, 4))]
        yield convolution(), named


PARTS = ("reported", "repeated", "random", "distinct", "numbers", "gradients", "loops", "filters")


def main(part: str, seed: str, options: str) -> None:
    rng = np.random.default_rng(int(seed))
    for g, sizes in work(part, rng):
        for wrong in differs(g, sizes, rng, json.loads(options)):
            print(f"wrong: {wrong}\n{g}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
