"""The node cases of the `onnx` package for the ops that are taken: right or refused, none wrong."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from device import need, need_target

import lstm_ir as li
from lstm_ir.importers.onnx import handlers
from lstm_ir.importers.onnx.table import TABLE

RECURRENT = ("LSTM", "GRU", "RNN", "Scan")
# Cases whose expected values are written with so many digits.
DIGITS = {"test_averagepool_2d_ceil_last_window_starts_on_pad": 4}
# NumPy's generator draws what they expect.
RANDOM = [f"test_training_dropout{word}" for word in ("", "_mask", "_default", "_default_mask")]
LITTLE = 64  # elements of an input that is fixed where the model needs it to be known
assert handlers


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx")
    need("onnx_ir")


def array(value: Any) -> Any:
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def imported(case: Any, arrays: dict[str, Any]) -> li.Graph:
    """The graph; shapes, axes and the like, which the cases have as inputs, are fixed where they have to be."""
    try:
        return li.from_onnx(case.model)
    except li.ModelError:
        few = {n: a for n, a in arrays.items() if hasattr(a, "dtype") and (_integers(a) or a.ndim == 0)}
        return li.from_onnx(case.model, constants={n: a for n, a in few.items() if a.size <= LITTLE})


def _integers(a: Any) -> bool:
    return a.dtype.kind in "iub" or a.dtype.name.lstrip("u") in ("int4", "int2")  # NumPy calls these `V`


def outcome(case: Any) -> str:
    for given, wanted in case.data_sets:
        arrays = {i.name: array(v) for i, v in zip(case.model.graph.input, given, strict=False)}
        try:
            g = imported(case, arrays)
        except li.ModelError as e:
            return str(e)
        if case.name in RANDOM:
            return _dropped(g, arrays)
        got = li.interpret(g, {n: np.asarray(arrays[n]) for n in g.input_names})
        near(case.name, got, wanted)
    return "right"


def near(case: str, got: dict[str, Any], wanted: Sequence[Any]) -> None:
    for name, want in zip(got, map(array, wanted), strict=True):
        tolerance = 2e-3 if want.dtype == np.float16 else 2e-5
        if want.dtype.name == "bfloat16":
            tolerance = 2.0**-6  # four steps of its 8 bits: the reference rounds within attention, too
        if case in DIGITS:
            tolerance = 2 * 10.0 ** -DIGITS[case]  # halved: the last digit is rounded
        assert got[name].dtype == want.dtype, case
        assert got[name].shape == want.shape, case
        np.testing.assert_allclose(
            got[name].astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance / 2, err_msg=case
        )


def _dropped(g: li.Graph, arrays: dict[str, Any]) -> str:
    """Right: elements are 0 or grown, as the mask says, and a share that is near the ratio."""
    x, ratio = arrays["x"], float(arrays.get("r", 0.5))
    got = list(li.interpret(g, {n: {**arrays, "step": np.int64(1)}[n] for n in g.input_names}).values())
    kept = got[0] != 0
    np.testing.assert_allclose(got[0], np.where(kept, x / (1 - ratio), 0), rtol=1e-6)
    assert len(got) == 1 or (got[1] == kept).all()
    assert abs(kept.mean() - (1 - ratio)) < 5 * np.sqrt(0.25 / x.size)
    return "right"


def of_module(name: str) -> list[Any]:
    """The cases that one module of the package makes when it is imported."""
    from onnx.backend.test.case import node

    importlib.import_module(f"onnx.backend.test.case.node.{name.lower()}")
    return [c for c in node._NodeTestCases if {n.op_type for n in c.model.graph.node} == {name}]


@pytest.mark.parametrize("op", RECURRENT)
def test_recurrent_cases_are_right(op: str) -> None:
    found = of_module(op)
    assert len(found) >= 4
    for case in found:
        assert outcome(case) == "right", case.name


def test_attention_cases_are_right_but_for_its_fourth_result() -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of the generators
        outcomes = {c.name: outcome(c) for c in of_module("Attention")}
    refused = [o for o in outcomes.values() if o != "right"]
    assert all("products of queries and keys as a result" in o or "softcap with a mask" in o for o in refused)
    assert len(outcomes) - len(refused) >= 70


@cache
def all_cases() -> list[Any]:
    """Those that have an op which is taken."""
    from onnx.backend.test.case.node import collect_testcases

    taken = {name for domain, name in TABLE if domain == ""}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of the generators
        found = [c for c in collect_testcases(None) if c.model is not None]
    return [c for c in found if taken & {n.op_type for n in c.model.graph.node}]


GROUPS = 64  # about 19 cases in a module: most of the time of compiling is a module's own


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_cases_compiled(target: str, group: int) -> None:
    """Every so many of the cases that are taken; on Vulkan without those of f64, which it refuses."""
    need_target(target)
    entries: dict[str, li.Graph] = {}
    given: dict[str, dict[str, Any]] = {}
    wanted: dict[str, Any] = {}
    for case in all_cases()[group::GROUPS]:
        (inputs, outputs), *_ = case.data_sets
        arrays = {i.name: array(v) for i, v in zip(case.model.graph.input, inputs, strict=False)}
        try:
            g = imported(case, arrays)
        except li.ModelError:
            continue
        if case.name in RANDOM or (target == "vulkan" and _has_f64(g)):
            continue
        name = f"{case.name}_{len(entries)}"
        entries[name], wanted[name] = g, outputs
        given[name] = {n: np.asarray(arrays[n]) for n in g.input_names}
    with li.compile(li.Program("cases", entries), target) as exe:
        for name, want in wanted.items():
            near(name.rpartition("_")[0], exe.entries[name](given[name]), want)


def _has_f64(g: li.Graph) -> bool:
    return any(t.dtype is li.DType.f64 for n in g.nodes for t in n.types)


@pytest.mark.slow
def test_all_cases_are_right_or_refused() -> None:
    """That many are right says that the refusals are not all there is."""
    outcomes = {c.name: outcome(c) for c in all_cases()}
    counts = Counter("right" if o == "right" else "refused" for o in outcomes.values())
    print(counts)
    assert counts["right"] >= 1202
