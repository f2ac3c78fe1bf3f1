"""What bad input is told, word for word, by kinds of input: graph, text, call, target, pipeline.

Lines of this file appear as `test_errors.py:N` in the goldens; that N lies in the case is tested.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bad_texts import TEXTS, nested_scans
from conftest import Golden
from paths import GOLDEN

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipeline import Pipeline

Case = Callable[[], object]
GRAPHS: dict[str, tuple[Case, type[Exception]]] = {}
OTHERS: dict[str, tuple[Case, type[Exception]]] = {}
AT = re.compile(r"(?<=test_errors\.py:)\d+")


def in_graph(error: type[Exception] = li.IRError) -> Callable[[Case], Case]:
    """A case whose message names the user's line."""

    def keep(case: Case) -> Case:
        GRAPHS[case.__name__] = (case, error)
        return case

    return keep


def elsewhere(error: type[Exception]) -> Callable[[Case], Case]:
    def keep(case: Case) -> Case:
        OTHERS[case.__name__] = (case, error)
        return case

    return keep


def x(*shape: Any, dtype: str = "f32", name: str = "x") -> li.Value:
    return li.input(name, shape, dtype)


def layer(**more: Any) -> li.Graph:
    v = li.input("x", ("T", "B", 5))
    w = np.ones((28, 5), "f4"), np.ones((28, 7), "f4")
    lengths = li.input("lengths", ("B",), "i32")
    y, _, _ = li.lstm(v, *map(li.constant, w), lengths=lengths, **more)
    return li.Graph("layer", [v, lengths], {"y": y})


@in_graph()
def dot_sizes() -> object:
    return li.dot(x(3, 5), x(3, 7))


@in_graph()
def add_sizes() -> object:
    return x(3, 5) + x(4, 5)


@in_graph()
def add_names_that_may_differ() -> object:
    return x("T", 5) + x("B", 5)


@in_graph()
def add_dtypes() -> object:
    return x(3, dtype="f32") + x(3, dtype="f64")


@in_graph()
def logistic_of_integers() -> object:
    return li.logistic(x(3, dtype="i32"))


@in_graph()
def reshape_elements() -> object:
    return li.reshape(x(3, 5), (4, 4))


@in_graph()
def reshape_undecidable() -> object:
    return li.reshape(x("T", 5), ("B", 5))


@in_graph()
def transpose_axes() -> object:
    return li.transpose(x(3, 5), (0, 0))


@in_graph()
def concat_sizes() -> object:
    return li.concat([x(3, 5), x(3, 6)], axis=0)


@in_graph()
def slice_beyond() -> object:
    return li.slice(x(3, 5), (0, 0), (3, 6))


@in_graph()
def index_axes() -> object:
    return x(3, 5)[0, 0, 0]


@in_graph()
def lstm_weight_shape() -> object:
    return li.lstm(x("T", "B", 5), li.constant(np.ones((28, 6), "f4")), x(28, 7))


@in_graph()
def lstm_unknown_activation() -> object:
    return layer(activations=("logistic", "logistic", "sofplus", "logistic", "tanh"))


@in_graph()
def lstm_unknown_direction() -> object:
    return layer(direction="sideways")


@in_graph()
def lstm_old_word_of_clip_gradient() -> object:
    return layer(clip_gradient="true")


@in_graph()
def lstm_negative_clip() -> object:
    return layer(cell_clip=-3.0)


@in_graph()
def scan_carry_changes_type() -> object:
    return li.scan(lambda h, v: (h + v, h), x(3, name="h"), x(11, 2, 3))


@in_graph()
def scan_without_a_function() -> object:
    return li.scan(None, x(3), x(11, 3))  # type: ignore[arg-type]


@in_graph()
def scan_rows_differ() -> object:
    return li.scan(lambda h, v: (h, v[0]), x(3), (x(11, 3), x(12, 3)))


@in_graph()
def unknown_op() -> object:
    return li.op("tanhh", operand=x(3))


@in_graph()
def two_weights_of_one_name() -> object:
    a, b = li.weight("w", np.ones(3, "f4")), li.weight("w", np.zeros(3, "f4"))
    return li.Graph("g", [], {"y": a + b})


@in_graph()
def value_that_is_no_input() -> object:
    a, b = x(3, name="a"), x(3, name="b")
    return li.Graph("g", [a], {"y": a + b})


def trained() -> li.Graph:
    v, ids, unused = x(3), x(3, dtype="i32", name="ids"), x(3, name="unused")
    y = li.tanh(v) * li.convert(ids, "f32")
    return li.Graph("trained", [v, ids, unused], {"y": y, "loss": li.sum(y), "top": li.argmax(y)})


@elsewhere(li.GradientError)
def grad_unknown_wrt() -> object:
    return li.grad(trained(), "loss", "id")


@in_graph(li.GradientError)
def grad_without_influence() -> object:
    return li.grad(trained(), "loss", "unused")


@in_graph(li.GradientError)
def grad_of_no_scalar() -> object:
    return li.grad(trained(), "y", "x")


@in_graph(li.GradientError)
def grad_of_integers() -> object:
    return li.grad(trained(), "top", "x")


@in_graph(li.GradientError)
def grad_integer_wrt() -> object:
    return li.grad(trained(), "loss", "ids")


@in_graph(li.GradientError)
def grad_remat_straight_through() -> object:
    graph = layer(cell_clip=3.0, clip_gradient="straight_through")
    return li.vjp(graph, "y", "x", remat=4)


@elsewhere(li.GradientError)
def grad_missing_word() -> object:
    return li.grad(trained(), "loss", "unused", missing="zero")


def learner(optimizer: Any = None, **options: Any) -> li.Program:
    v, w = x(3), li.weight("out/w", np.ones(3, "f4"))
    dead = li.weight("out/dead", np.ones(3, "f4"))
    graph = li.Graph("learner", [v], {"loss": li.sum(v * w), "y": v * w, "z": v * dead})
    return li.train_step(graph, "loss", li.sgd(0.1) if optimizer is None else optimizer, "out/w", **options)


@elsewhere(li.GradientError)
def train_step_unknown_output() -> object:
    return learner(outputs=["y", "accuracy"])


@in_graph(li.GradientError)
def train_step_weight_without_influence() -> object:
    v, w = x(3), li.weight("w", np.ones(3, "f4"))
    return li.train_step(li.Graph("g", [v], {"loss": li.sum(v), "y": v * w}), "loss", li.sgd(0.1))


@elsewhere(li.GradientError)
def train_step_group_of_no_weight() -> object:
    return learner(li.adamw(groups={"*/bias": {"weight_decay": 0.0}}))


@elsewhere(li.GradientError)
def train_step_weight_of_two_groups() -> object:
    return learner(li.adamw(groups={"*/w": {"weight_decay": 0.0}, "out/*": {"lr": 0.1}}))


@elsewhere(li.IRError)
def optimizer_group_without_option() -> object:
    return li.adamw(groups={"*/bias": {"decay": 0.0}})


@elsewhere(li.GradientError)
def train_step_rate_that_is_none() -> object:
    def rate(step: li.Value) -> li.Value:
        return li.zeros((2,))

    return learner(li.sgd(li.schedules.warmup(3, rate)))


@elsewhere(li.IRError)
def schedule_of_no_steps() -> object:
    return li.schedules.cosine(0.1, 0)


@elsewhere(li.CallError)
def fit_without_end() -> object:
    return li.fit(learner(), [])


@elsewhere(li.CallError)
def fit_iterator_of_two_epochs() -> object:
    return li.fit(learner(), iter([]), epochs=2)


@elsewhere(li.CallError)
def fit_without_evaluate() -> object:
    return li.fit(learner(), [], epochs=2, validation=[])


@elsewhere(li.IRError)
def two_inputs_of_one_name() -> object:
    a, b = x(3), x(3)
    return li.Graph("g", [a, b], {"y": a + b})


@elsewhere(li.IRError)
def input_that_is_no_input() -> object:
    a = x(3)
    return li.Graph("g", [li.tanh(a)], {"y": a})


@elsewhere(li.IRError)
def graph_name() -> object:
    return li.Graph("a\ngraph", [], {})


def negated() -> li.Graph:
    v = li.input("v", ("T", 3))
    return li.Graph("negated", [v], {"y": -v})


@elsewhere(li.CallError)
def verify_unknown_size() -> object:
    return li.verify(negated(), against=lambda arrays: arrays, sizes={"B": [3]})


@elsewhere(li.CallError)
def verify_unknown_range() -> object:
    return li.verify(negated(), against=lambda arrays: arrays, ranges={"x": (0, 1)})


@elsewhere(li.CallError)
def verify_sizes_that_do_not_fit() -> object:
    def picky(arrays: Any) -> Any:
        raise ValueError("T is not 7")

    return li.verify(negated(), against=picky, sizes={"T": [2]})


@elsewhere(li.CallError)
def verify_output_that_is_missing() -> object:
    return li.verify(negated(), against=lambda arrays: {"z": arrays["v"]}, cold=False)


@elsewhere(li.CallError)
def verify_no_calls() -> object:
    return li.verify(negated(), against=lambda arrays: arrays, calls=0)


@in_graph()
def negative_size() -> object:
    return li.input("x", (3, -1))


@in_graph()
def size_near_two_to_the_62() -> object:
    return li.input("x", (2**62, 8))


@in_graph()
def unknown_dtype() -> object:
    return li.input("x", (3,), "f33")


@in_graph()
def einsum_letter_of_two_sizes() -> object:
    return li.einsum("ij,jk->ik", x(3, 5), x(4, 7))


@in_graph()
def gelu_of_integers() -> object:
    return li.gelu(x(3, dtype="i32"))


@in_graph()
def split_undecidable() -> object:
    return li.split(x("T", 5), 2)


@in_graph()
def top_k_beyond() -> object:
    return li.top_k(x(3, 5), 7)


@in_graph()
def attention_operands() -> object:
    return li.attention(x(3, 5), x(7, 4), x(7, 4))


@in_graph()
def group_norm_groups() -> object:
    return li.group_norm(x(2, 6, 5), 4)


@in_graph()
def lstm_stack_without_key() -> object:
    layer = {"w_ih": np.ones((8, 5), "f4"), "w_hh": np.ones((8, 2), "f4")}
    return li.lstm_stack(x("T", "B", 5), [layer, layer], dropout=0.1)


@in_graph()
def crf_transitions() -> object:
    return li.crf_decode(x("T", "B", 5), x(4, 5))


@in_graph()
def random_key_type() -> object:
    return li.random_normal(x(2), (3,))


def call(**given: Any) -> Case:
    """A call of a layer x [T, B, 5], lengths [B] with these arrays."""
    return lambda: li.interpret(layer(), given)


ONES, LENGTHS = np.ones((11, 3, 5), "f4"), np.full(3, 4, "i4")
CALLS: dict[str, tuple[Case, type[Exception]]] = {
    "call_missing": (call(x=ONES), li.CallError),
    "call_extra": (call(x=ONES, lengths=LENGTHS, z=ONES), li.CallError),
    "call_rank": (call(x=ONES[0], lengths=LENGTHS), li.CallError),
    "call_shape": (call(x=ONES[..., :4], lengths=LENGTHS), li.CallError),
    "call_dtype": (call(x=ONES.astype("f8"), lengths=LENGTHS), li.CallError),
    "call_object": (call(x=np.array([object()]), lengths=LENGTHS), li.CallError),
    "call_two_sizes": (call(x=ONES, lengths=LENGTHS[:2]), li.CallError),
    "call_lengths_above": (call(x=ONES, lengths=LENGTHS * 3), li.ValueRangeError),
    "call_lengths_below": (call(x=ONES, lengths=-LENGTHS), li.ValueRangeError),
}
WORDS: dict[str, tuple[Case, type[Exception]]] = {
    "target_unknown": (lambda: resolve("vulcan"), li.TargetError),
    "target_unknown_processor": (lambda: resolve("cpu:x86-64-v9"), li.TargetError),
    "target_unknown_gpu": (lambda: resolve("hip:gfx943"), li.TargetError),
    "target_no_detail": (lambda: resolve("cuda:"), li.TargetError),
    "pass_unknown_option": (lambda: Pipeline.parse("cse{depth=3}"), li.PassError),
    "pipeline_syntax": (lambda: Pipeline.parse("cse}{"), li.PassError),
}


def message(case: Case, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        case()
    assert isinstance(caught.value, li.LstmIrError)
    return str(caught.value)


@pytest.mark.parametrize("name", GRAPHS)
def test_graph(name: str, golden: Golden) -> None:
    case, error = GRAPHS[name]
    text = message(case, error)
    lines, first = inspect.getsourcelines(case)
    inside = [*range(first, first + len(lines))]
    inside += [n for f in (x, layer, trained) for n in _span(f)]
    found = AT.findall(text)
    assert found, f"no line of this file in\n{text}"
    assert all(int(n) in inside for n in found)
    golden(f"errors/{name}.txt", AT.sub("N", text))


def _span(f: Callable[..., object]) -> range:
    lines, first = inspect.getsourcelines(f)
    return range(first, first + len(lines))


@pytest.mark.parametrize("name", [*OTHERS, *CALLS, *WORDS])
def test_message(name: str, golden: Golden) -> None:
    case, error = {**OTHERS, **CALLS, **WORDS}[name]
    golden(f"errors/{name}.txt", AT.sub("N", message(case, error)))


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str, golden: Golden) -> None:
    with pytest.raises(li.ParseError) as caught:
        li.parse(TEXTS[name])
    text = str(caught.value)
    assert caught.value.line >= 1
    assert len(text) < 1000
    *head, excerpt, caret = text.splitlines()
    assert head[0].startswith(f"line {caught.value.line}, column {caught.value.column}: ")
    assert caret.strip() == "^"
    if name not in ("text_empty", "text_ends_early"):
        assert len(caret) <= len(excerpt) + 1
    golden(f"errors/{name}.txt", text)


def test_an_unknown_pass_is_answered_with_the_known_ones() -> None:
    text = message(lambda: Pipeline.parse("cse,decomposed"), li.PassError)
    assert text == "there is no pass 'decomposed'. Did you mean decompose?"
    text = message(lambda: Pipeline.parse("cse,remove"), li.PassError)
    assert text.startswith("there is no pass 'remove'; there are ")
    assert "decompose," in text


def test_thirty_two_scans_deep_are_fine() -> None:
    assert isinstance(li.parse(nested_scans(32)), li.Graph)


def test_every_golden_has_a_case(golden: Golden) -> None:

    stored = {p.stem for p in (GOLDEN / "errors").glob("*.txt")}
    assert stored == {*GRAPHS, *OTHERS, *CALLS, *WORDS, *TEXTS}
