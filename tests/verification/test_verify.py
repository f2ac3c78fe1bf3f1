"""`li.verify` with `against`: sizes and values that are drawn, differences that are found, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import model_file, need
from plain_lstm import plain_lstm

import lstm_ir as li
from lstm_ir.verification.bounds import Bound, bounds
from lstm_ir.verification.result import Verification

I, H = 5, 7
Arrays = Mapping[str, Any]


def encoder(rng: np.random.Generator) -> tuple[li.Graph, Any]:
    """An LSTM over T and B, and the same by plain NumPy."""
    layer = {
        "w_ih": rng.standard_normal((4 * H, I)).astype("f4") / 2,
        "w_hh": rng.standard_normal((4 * H, H)).astype("f4") / 2,
    }
    x = li.input("x", ("T", "B", I))
    y, h, _ = li.lstm(x, li.weight("w_ih", layer["w_ih"]), li.weight("w_hh", layer["w_hh"]))
    graph = li.Graph("encoder", [x], {"y": y, "h": h[0]})

    def plain(arrays: Arrays) -> dict[str, Any]:
        y = plain_lstm(arrays["x"], layer["w_ih"], layer["w_hh"]).astype("f4")
        return {"y": y, "h": y[-1].copy()}

    return graph, plain


def quick(model: Any, against: Any, **more: Any) -> Verification:
    found = li.verify(model, against=against, **{"seconds": 0.0, "cold": False, **more})
    assert isinstance(found, Verification)
    return found


# results ----------------------------------------------------------------------------------------


def test_a_graph_beside_a_callable(rng: np.random.Generator) -> None:
    graph, plain = encoder(rng)
    found = quick(graph, plain)
    assert found.ok
    assert [o.name for o in found.outputs] == ["y", "h"]
    assert 0 < max(o.absolute for o in found.outputs) < 2e-5
    assert len(found.cases) == 4
    assert all(set(c.sizes) == {"T", "B"} and c.sizes["T"] != c.sizes["B"] for c in found.cases)
    assert len({c.sizes["T"] for c in found.cases}) > 1
    assert len({c.sizes["B"] for c in found.cases}) > 1
    assert all(c.seconds is None for c in found.cases)
    assert (found.original, found.model_bytes, found.package_bytes, found.cold_start) == ("plain", None, None, None)
    assert found.summary.startswith("encoder: equal to plain, 4 calls, worst difference ")


def test_one_seed_draws_one_thing(rng: np.random.Generator) -> None:
    graph, plain = encoder(rng)
    seen: list[list[Any]] = []

    def original(arrays: Arrays) -> dict[str, Any]:
        seen[-1].append(arrays["x"].copy())
        return plain(arrays)  # type: ignore[no-any-return]

    with li.compile(graph) as exe:
        for seed in (3, 3, 4):
            seen.append([])
            assert quick(exe, original, seed=seed).ok
    assert all(np.array_equal(a, b) for a, b in zip(seen[0], seen[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(seen[0], seen[2], strict=True))


def test_given_sizes_are_all_tried_in_turn(rng: np.random.Generator) -> None:
    graph, plain = encoder(rng)
    found = quick(graph, plain, sizes={"T": [1, 9, 2, 3, 4], "B": [6]}, calls=2)
    assert [(c.sizes["T"], c.sizes["B"]) for c in found.cases] == [(t, 6) for t in (1, 9, 2, 3, 4)]


def test_a_difference_in_one_element_of_one_call_is_found(rng: np.random.Generator) -> None:
    graph, plain = encoder(rng)
    calls = []

    def wrong(arrays: Arrays) -> dict[str, Any]:
        out = plain(arrays)
        calls.append(arrays["x"].shape)
        if len(calls) == 3:
            out["h"][0, H - 1] += 0.5
        return out  # type: ignore[no-any-return]

    with li.compile(graph) as exe:
        found = quick(exe, wrong)
        assert not found.ok
        y, h = found.outputs
        assert (y.ok, h.ok) == (True, False)
        assert 0.49 < h.absolute < 0.51
        assert h.sizes == {"B": calls[2][1], "T": calls[2][0]}
        assert "NOT equal" in found.summary
        assert "BEYOND" in str(found)
        calls.clear()
        assert quick(exe, wrong, absolute=0.6).ok


@pytest.mark.parametrize(
    ("want", "failure"),
    [
        (lambda y: y[:-1], "the original gives float32"),
        (lambda y: y.astype("f8"), "the original gives float64"),
        (lambda y: np.where(y == y.max(), np.nan, y), None),
        (lambda y: np.where(y == y.max(), np.inf, y), None),
    ],
    ids=["shape", "dtype", "nan", "inf"],
)
def test_other_shapes_dtypes_and_numbers_that_are_none(want: Any, failure: str | None) -> None:
    x = li.input("x", ("T", I))
    found = quick(li.Graph("g", [x], {"y": x * 2.0}), lambda a: {"y": want(a["x"] * np.float32(2))})
    assert not found.ok
    if failure is None:
        assert found.outputs[0].absolute == np.inf
    else:
        assert failure in found.failures[0]
        assert f"FAILED: {found.failures[0]}" in str(found)


def test_equal_infinities_and_nans_are_equal() -> None:
    x = li.input("x", ("T",))
    graph = li.Graph("g", [x], {"y": li.log(x - x), "z": (x - x) / (x - x)})
    with np.errstate(all="ignore"):
        assert quick(graph, lambda a: {"y": np.full_like(a["x"], -np.inf), "z": np.full_like(a["x"], np.nan)}).ok


def test_integers_and_booleans_are_equal_or_not() -> None:
    x = li.input("x", ("T",), "i64")
    graph = li.Graph("g", [x], {"y": x + 2**60, "odd": li.equal(x, 3)})
    wants = {0: True, 1: False}
    for off, ok in wants.items():
        found = quick(
            graph, lambda a, off=off: {"y": a["x"] + 2**60 + off, "odd": a["x"] == 3}, absolute=9.0, relative=9.0
        )
        assert [o.ok for o in found.outputs] == [ok, True]
    assert not quick(graph, lambda a: {"y": a["x"] + 2**60, "odd": a["x"] != 3}).ok


def test_an_executable_of_other_weights_is_not_equal(rng: np.random.Generator) -> None:
    graph, _ = encoder(rng)
    _, other = encoder(rng)
    with li.compile(graph) as exe:
        assert not quick(exe, other).ok


# sizes that one of the two does not take ---------------------------------------------------------


def test_sizes_that_the_program_does_not_take_are_passed_over() -> None:
    x = li.input("x", ("T", 3))
    found = quick(li.Graph("g", [x], {"y": x[20:]}), lambda a: {"y": a["x"][20:]}, calls=6)
    assert found.ok
    assert all(c.sizes["T"] >= 20 for c in found.cases)
    assert any("by lstm-ir" in line for line in found.passed_over)


def test_sizes_that_the_original_does_not_take_are_passed_over() -> None:
    x = li.input("x", ("T", "B"))

    def picky(arrays: Arrays) -> dict[str, Any]:
        if arrays["x"].shape[1] % 2:
            raise RuntimeError("B is odd")
        return {"y": -arrays["x"]}

    found = quick(li.Graph("g", [x], {"y": -x}), picky, calls=8)
    assert found.ok
    assert all(c.sizes["B"] % 2 == 0 for c in found.cases)
    assert "by picky: RuntimeError: B is odd" in found.passed_over[0]


def test_sizes_beyond_the_first_reach() -> None:
    x = li.input("x", ("T",))
    found = quick(li.Graph("g", [x], {"y": x[300:]}), lambda a: {"y": a["x"][300:]}, calls=1)
    assert found.cases[0].sizes["T"] >= 300


def test_no_sizes_at_all() -> None:
    x = li.input("x", ("T",))

    def never(arrays: Arrays) -> dict[str, Any]:
        raise ValueError("not today")

    with pytest.raises(li.CallError, match=r"no call was found that both sides take; the last: .*not today"):
        quick(li.Graph("g", [x], {"y": -x}), never)


# values -----------------------------------------------------------------------------------------


def table_and_layer() -> li.Graph:
    """Word numbers into a table of 11 rows, through a convert, indices from the end, and a layer with lengths."""
    ids, lengths = li.input("ids", ("T", "B"), "i64"), li.input("lengths", ("B",), "i64")
    rows = li.select(li.less(ids, 0), ids + 11, ids)
    x = li.take(li.weight("table", np.linspace(-1, 1, 11 * I, dtype="f4").reshape(11, I)), rows)
    w = li.weight("w", np.linspace(-1, 1, 4 * H * I, dtype="f4").reshape(4 * H, I))
    y, _, _ = li.lstm(x, w, li.weight("r", np.eye(4 * H, H, dtype="f4")), lengths=li.convert(lengths, "i32"))
    return li.Graph("tagger", [ids, lengths], {"y": y})


def test_bounds_of_integers_come_from_what_reads_them() -> None:
    T = table_and_layer().params[0].shape[0]
    assert bounds(table_and_layer()) == {"ids": (Bound(0, 10),), "lengths": (Bound(0, T, lengths=True),)}


def test_bounds_inside_a_loop() -> None:
    x = li.input("x", ("T", "B"), "i32")
    table = li.weight("table", np.ones((6, 2), "f4"))
    _, y = li.scan(lambda s, row: (s, li.take(table, row)), li.zeros(()), x)
    assert bounds(li.Graph("g", [x], {"y": y})) == {"x": (Bound(0, 5),)}


def test_integers_lie_in_their_bounds_and_lengths_fall() -> None:
    graph = table_and_layer()
    seen: list[Arrays] = []

    def original(arrays: Arrays) -> Any:
        seen.append(arrays)
        return li.interpret(graph, arrays)

    assert quick(graph, original, calls=6).ok
    for a in seen:
        assert 0 <= a["ids"].min() <= a["ids"].max() <= 10
        assert a["lengths"][0] == a["ids"].shape[0]
        assert (np.diff(a["lengths"]) <= 0).all()
        assert a["lengths"].min() >= 1
    assert max(a["ids"].max() for a in seen) > 9
    assert len({tuple(a["lengths"]) for a in seen}) > 1


def test_ranges_are_kept() -> None:
    x, n, flag = li.input("x", ("T",)), li.input("n", ("T",), "i32"), li.input("flag", ("T",), "bool")
    graph = li.Graph("g", [x, n, flag], {"x": -x, "n": -n, "flag": ~flag})
    seen: list[Arrays] = []

    def original(a: Arrays) -> dict[str, Any]:
        seen.append(a)
        return {"x": -a["x"], "n": -a["n"], "flag": ~a["flag"]}

    assert quick(graph, original, ranges={"x": (2.0, 3.0), "n": (-4, -3)}, sizes={"T": [200]}).ok
    x_all, n_all = (np.concatenate([a[name] for a in seen]) for name in ("x", "n"))
    assert 2.0 <= x_all.min() < 2.1
    assert 2.9 < x_all.max() <= 3.0
    assert set(n_all) == {-4, -3}
    assert {bool(v) for a in seen for v in a["flag"]} == {True, False}


def test_arrays_of_the_caller_are_the_calls() -> None:
    x = li.input("x", ("T", 3))
    graph = li.Graph("g", [x], {"y": li.tanh(x)})
    rng = np.random.default_rng(3)
    calls = [{"x": rng.standard_normal((t, 3)).astype(np.float32)} for t in (2, 7)]
    seen: list[Arrays] = []

    def original(a: Arrays) -> dict[str, Any]:
        seen.append(a)
        return {"y": np.tanh(a["x"]) + np.float32(0.5 if len(seen) == 2 else 0)}

    result = quick(graph, original, arrays=calls)
    assert [s["x"].tolist() for s in seen] == [c["x"].tolist() for c in calls]
    assert [dict(c.sizes) for c in result.cases] == [{"T": 2}, {"T": 7}]
    assert not result.ok
    assert result.outputs[0].sizes == {"T": 7}
    assert 0.49 < result.outputs[0].absolute < 0.51


@pytest.mark.parametrize("key", [None, b"secret"])
def test_a_loaded_package_has_its_size_and_cold_start(
    key: bytes | None, rng: np.random.Generator, tmp_path: Any
) -> None:
    graph, plain = encoder(rng)
    path = li.export(graph, tmp_path / "m.lirpkg", targets=["cpu:host"], sign_key=key)
    with li.load(path, require_key=key) as exe:
        found = quick(exe, plain, cold=True)
    assert found.ok
    assert found.package_bytes == path.stat().st_size
    assert found.cold_start is not None
    assert 0.01 < found.cold_start < 60
    assert found.original_cold_start is None
    text = str(found)
    assert re.search(r"^cold start +[0-9.]+ m?s +-$", text, re.M), text
    assert re.search(r"^package, model +[0-9.]+ KiB +-$", text, re.M), text
    with li.compile(graph) as exe:  # of no package
        assert quick(exe, plain, cold=True).cold_start is None


# what is refused --------------------------------------------------------------------------------


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown size": ({"sizes": {"Q": [1]}}, "verify: sizes has 'Q'; there are B, T"),
    "no size": ({"sizes": {"T": []}}, "the sizes of T are"),
    "negative size": ({"sizes": {"T": [-1]}}, "the sizes of T are"),
    "unknown input": ({"ranges": {"z": (0, 1)}}, "verify: ranges has 'z'; there are x"),
    "empty range": ({"ranges": {"x": (1, 0)}}, "the range of x is 1..0"),
    "range without an end": ({"ranges": {"x": (0.0, float("inf"))}}, "range of x is 0.0..inf, of which an end"),
    "range too wide": ({"ranges": {"x": (-1e308, 1e308)}}, "how far they lie apart, is no finite number"),
    "range of a long number": ({"ranges": {"x": (0, 10**400)}}, "is no finite number"),
    "negative seed": ({"seed": -1}, "verify: seed is -1, not a number of 0 or more"),
    "arrays and ranges": ({"arrays": [{"x": 0}], "ranges": {"x": (0, 1)}}, "arrays are given, so"),
    "arrays that miss one": ({"arrays": [{}]}, "x"),
    "no calls": ({"calls": 0}, "calls is 0"),
    "negative limit": ({"absolute": -1.0}, "absolute is -1.0"),
    "limit that is no number": ({"relative": float("nan")}, "relative is nan"),
    "endless": ({"seconds": float("inf")}, "seconds is inf"),
    "constants of a callable": ({"constants": {"x": 1}}, "a callable has its own"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_options(case: str, rng: np.random.Generator) -> None:
    options, why = REFUSED[case]
    graph, plain = encoder(rng)
    with pytest.raises(li.CallError, match=why):
        quick(graph, plain, **options)


def test_outputs_that_the_original_does_not_have() -> None:
    x = li.input("x", ("T",))
    with pytest.raises(li.CallError, match="the original gives no 'y'; it gives z"):
        quick(li.Graph("g", [x], {"y": -x}), lambda a: {"z": -a["x"]})


def test_state_is_refused(rng: np.random.Generator) -> None:
    x, h = li.input("x", (3,)), li.input("h", (3,))
    program = li.stateful(li.Graph("g", [x, h], {"y": x + h, "h1": x + h}), {"h": "h1"})
    with li.compile(program.only("step")) as exe, pytest.raises(li.CallError, match="takes one entry without state"):
        quick(exe, lambda a: a)
    with li.compile(program) as exe:  # its main reads no state
        assert quick(exe, lambda a: {n: a["x"] + a["h"] for n in ("y", "h1")}).ok


def test_without_against_a_graph_is_checked_and_nothing_is_run(rng: np.random.Generator) -> None:
    graph, _ = encoder(rng)
    plain: Any = li.verify
    assert plain(graph) is None
    from lstm_ir.ir.opdef import Level

    with pytest.raises(li.VerifyError, match="a core op is left"):
        li.verify(graph, frozenset({Level.primitive}))
    with li.compile(graph) as exe, pytest.raises(li.CallError, match="Executable is no graph; give against"):
        plain(exe)


# ONNX -------------------------------------------------------------------------------------------


def small(rng: np.random.Generator) -> Any:
    """A GRU over T and B whose input is scaled where `rate` is 2."""
    shapes = {"W": (1, 3 * H, I), "R": (1, 3 * H, H)}
    weights = {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}
    then = om.graph([om.node("Neg", ["x"], ["p"])], {}, ["p"])
    other = om.graph([om.node("Identity", ["x"], ["q"])], {}, ["q"])
    nodes = [
        om.node("Equal", ["rate", "two"], ["is_two"]),
        om.node("If", ["is_two"], ["v"], then_branch=then, else_branch=other),
        om.node("GRU", ["v", "W", "R"], ["Y", "Y_h"], hidden_size=H),
    ]
    inputs: dict[str, Any] = {"x": (["T", "B", I], "f4"), "rate": ([], "i8")}
    return om.model(nodes, inputs, ["Y", "Y_h"], {**weights, "two": np.array(2)})


@pytest.fixture
def _onnxruntime() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


@pytest.mark.usefixtures("_onnxruntime")
def test_an_onnx_model_by_onnxruntime(tmp_path: Any, rng: np.random.Generator) -> None:
    made = small(rng)
    path = tmp_path / "small.onnx"
    path.write_bytes(made.SerializeToString())
    graph = li.from_onnx(path, constants={"rate": 2})
    for against in (path, made, made.SerializeToString()):
        found = quick(graph, against, constants={"rate": 2}, calls=2)
        assert found.ok
        assert found.model_bytes == path.stat().st_size
        assert "onnxruntime" in found.original
    assert not quick(graph, path, constants={"rate": 3}, calls=2).ok  # the other branch


@pytest.mark.usefixtures("_onnxruntime")
def test_what_onnxruntime_does_not_take(rng: np.random.Generator) -> None:
    made = small(rng)
    graph = li.from_onnx(made, constants={"rate": 2})
    with pytest.raises(li.ModelError, match="constants has 'speed'; the model has x, rate"):
        quick(graph, made, constants={"speed": 2})
    made.graph.node[2].op_type = "NoSuchOp"
    with pytest.raises(li.ModelError, match="onnxruntime does not take it: "):
        quick(graph, made, constants={"rate": 2})


FIXED: dict[str, dict[str, Any]] = {  # by file: arguments of from_onnx
    "dtln1.onnx": {},
    "dtln2.onnx": {},
    "silero.onnx": {"constants": {"sr": 16000}, "sizes": {"input_1": 576}},
    "zoo_encodec_slstm.onnx": {},
    "zoo_rnnoise.onnx": {},
    "zoo_tagger_packed.onnx": {},
}


@pytest.mark.slow
@pytest.mark.usefixtures("_onnxruntime")
@pytest.mark.parametrize("name", FIXED)
def test_real_files(name: str) -> None:
    """With the ranges and sizes that are found without help."""
    graph = li.from_onnx(model_file(name), **FIXED[name])
    found = quick(graph, model_file(name), constants=FIXED[name].get("constants"))
    assert found.ok, str(found)
    assert found.original.startswith(f"{name} by onnxruntime")


@pytest.mark.slow
@pytest.mark.usefixtures("_onnxruntime")
def test_times_sizes_and_cold_starts(tmp_path: Any, rng: np.random.Generator) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(small(rng).SerializeToString())
    graph = li.from_onnx(path, constants={"rate": 2})
    found = li.verify(graph, against=path, constants={"rate": 2}, calls=2, seconds=0.05)
    assert found.ok
    for case in found.cases:
        assert case.seconds is not None
        assert case.original_seconds is not None
        assert 0 < case.seconds < 1
        assert 0 < case.original_seconds < 1
    assert found.package_bytes is not None
    assert found.package_bytes > 4 * (3 * H * I + 3 * H * H)
    for start in (found.cold_start, found.original_cold_start):
        assert start is not None
        assert 0.02 < start < 60
    text = str(found)
    assert "cold start" in text
    assert "package, model" in text
    assert len(text.splitlines()) < 25
    assert json.loads(json.dumps(found.as_json()))["ok"] is True


def test_a_callable_may_change_its_arrays() -> None:
    x = li.input("x", ("T", 4))
    graph = li.Graph("g", [x], {"y": li.tanh(x)})

    def zeroing(arrays: dict[str, Any]) -> dict[str, Any]:
        arrays["x"] *= 0.0
        return {"y": np.tanh(arrays["x"])}

    for seconds in (0.0, 0.01):
        found = li.verify(graph, against=zeroing, seconds=seconds, cold=False)
        assert not found.ok
        assert max(o.absolute for o in found.outputs) > 0.1


@pytest.mark.parametrize(("given", "said"), [
    (lambda a: None, "gives NoneType, not a dict of arrays"),
    (lambda a: [a["x"]], "gives list, not a dict of arrays"),
    (lambda a: 1 / 0, "the last: .* by .*: ZeroDivisionError: division by zero"),
])  # fmt: skip
def test_a_callable_that_gives_no_arrays(given: Any, said: str) -> None:
    x = li.input("x", ("T", 4))
    with pytest.raises(li.CallError, match=said):
        li.verify(li.Graph("g", [x], {"y": li.tanh(x)}), against=given, seconds=0, cold=False)
    with pytest.raises(li.CallError, match="verify: cold is 'no'; expected True or False"):
        li.verify(li.Graph("g", [x], {"y": li.tanh(x)}), against=given, cold="no")  # type: ignore[call-overload]


def test_results_of_another_shape_are_failures_in_the_summary() -> None:
    x = li.input("x", ("T", 4))
    found = li.verify(li.Graph("g", [x], {"y": x}), against=lambda a: {"y": a["x"].T}, seconds=0, cold=False)
    assert "NOT equal" in found.summary
    assert "failure" in found.summary
    assert "0.0e+00" not in found.summary


def test_sizes_are_lists() -> None:
    x = li.input("x", ("T", 4))
    sizes: Any = {"T": 3}
    with pytest.raises(li.CallError, match="the sizes of T are 3, not numbers of 0 or more"):
        li.verify(li.Graph("g", [x], {"y": x}), against=lambda a: {"y": a["x"]}, sizes=sizes)
