"""Of which kind each carry of a loop is: all kinds, forms that look alike but are not, in --explain and in pictures."""

from __future__ import annotations

import numpy as np
import pytest
from carry_cells import CELLS, B, H, loop, weight
from conftest import Golden

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.carry_kinds import CarryKind, circles, described, loops_of
from lstm_ir.ir.loop import Loop
from lstm_ir.view.picture import picture


def test_all_kinds_and_what_looks_alike(golden: Golden) -> None:
    found = [f"{name}: {'; '.join(map(described, loops_of(make())))}\n" for name, make in CELLS.items()]
    golden("carry_kinds.txt", "".join(found))


def test_every_kind_is_in_the_golden() -> None:
    found = {c.kind for make in CELLS.values() for x in loops_of(make()) for c in circles(x)}
    assert found == set(CarryKind)


def test_names_change_nothing() -> None:
    """The kind comes from structure: a body printed, renamed and read again has the same."""
    for make in CELLS.values():
        graph = make()
        text = str(graph).replace("carry", "renamed")
        parsed = li.parse(text)
        assert isinstance(parsed, li.Graph)
        again = [described(x).replace("renamed", "carry") for x in loops_of(parsed)]
        assert again == [described(x) for x in loops_of(graph)]


def test_axes_of_a_matrix_state() -> None:
    (c,) = circles(next(loops_of(CELLS["gated_linear_attention"]())))
    assert c.form is not None
    assert (c.form.k_axis, c.form.v_axis, c.form.decay, c.form.delta) == (1, 2, frozenset({1}), False)
    (c,) = circles(next(loops_of(CELLS["decay_of_values"]())))
    assert c.form is not None
    assert c.form.decay == frozenset({2})


def linear_by_numbers(graph: li.Graph, seed: int) -> bool:
    """Whether c' of the first carry is a * c + b, by values: at three points on a line, element for element."""
    body = next(loops_of(graph)).body
    rng = np.random.default_rng(seed)
    fill = {n: rng.standard_normal(p.shape) for n, p in zip(body.input_names, body.params, strict=True)}
    ends = {n: rng.standard_normal(p.shape) for n, p in zip(body.input_names, body.params, strict=True)}
    carries = [n for n in body.input_names if n.startswith("carry")]

    def at(t: float) -> np.ndarray:
        given = {n: (v + t * ends[n] if n in carries else v) for n, v in fill.items()}
        typed = {n: given[n].astype(p.dtype.numpy) for n, p in zip(body.input_names, body.params, strict=True)}
        return np.asarray(li.interpret(body, typed)[body.output_names[0]], "f8")

    low, mid, high = at(0), at(0.5), at(1)
    return bool(np.allclose(mid, (low + high) / 2, rtol=1e-4, atol=1e-4))


@pytest.mark.parametrize("name", [n for n in CELLS if n not in ("counted", "loop_inside", "rounded_in_between")])
def test_linear_is_linear_and_the_rest_is_not(name: str, seed: int) -> None:
    """`is_linear` against the body's values: with all carries moved along a line at once."""
    graph = CELLS[name]()
    first = circles(next(loops_of(graph)))[0]
    if first.reads or first.kind is CarryKind.replaced:  # linear with what it reads held alone
        return
    assert first.is_linear == linear_by_numbers(graph, seed), seed


def test_gradients_have_kinds_too() -> None:
    x = li.input("x", ("T", B, H))
    w = weight("w", H)
    ys = li.scan(lambda h, r: ((h := li.sigmoid(r) * h + w * r), h), li.zeros((B, H)), x)[1]
    graph = li.grad(li.Graph("g", [x], {"loss": li.sum(ys * ys)}), "loss", wrt=["w"])
    kinds = [c.kind for x in loops_of(graph) for c in circles(x)]
    assert kinds
    assert set(kinds) == {CarryKind.linear}


def test_explain_has_a_line_for_each_loop() -> None:
    graph = loop(lambda c, r: ((c[0] * 0.5 + r[0], li.tanh(c[1] @ weight("w", H, H) + c[0])), None),
                 (li.zeros((B, H)), li.zeros((B, H))), ("T", B, H))  # fmt: skip
    report = prepare(graph, resolve("cpu"), {"pipeline": "expand,decompose"}).report
    assert len(report.carries) == 1
    assert report.carries[0].startswith("scan at ")
    assert report.carries[0].endswith(": carry0 elementwise linear, carry1 dense (reads carry0)")
    assert report.carries[0] in str(report).splitlines()


def test_pictures_say_the_kinds() -> None:
    svg = picture([("g", CELLS["wkv"]())])
    assert ">carry2 elementwise nonlinear<" in svg
    assert "carry0 elementwise linear (reads carry2), carry1" in svg  # in the tooltip


def test_a_loop_without_carries() -> None:
    x = li.input("x", ("T", 4))
    node = li.scan(lambda _, r: (None, r * 2), None, x)[1].node
    found = Loop.of(node)
    assert found is not None
    assert described(found) == "no carry"
