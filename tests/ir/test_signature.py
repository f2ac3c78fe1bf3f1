"""Signatures: JSON, dimension binding, and what a bad call is told."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from device import need
from handmade import entry, port, signature

import lstm_ir as li
from lstm_ir.ir import dims, signature_json
from lstm_ir.ir.errors import CallError, PackageError, ValueRangeError
from lstm_ir.ir.signature import Check, Requirement, Signature, StateVar, bind_dims, check_call
from lstm_ir.ir.types import parse_type

T = dims.name("T")
RNN = entry(
    "main",
    {"x": "f32[T,B,5]", "wide": "f32[2*B+1]", "n": "i32[B]"},
    {"y": "f32[T,B,7]"},
    requires=(Requirement(T - 2, "slice: axis 0 needs at least 2"),),
    checks=(Check("n", 0, T, "lengths"),),
)


def good() -> dict[str, Any]:
    return {"x": np.zeros((11, 3, 5), np.float32), "wide": np.zeros(7, np.float32), "n": np.array([0, 11, 4], np.int32)}


def test_json_round_trip() -> None:
    s = Signature(
        "p",
        {**signature().entries, "main": RNN},
        {"enc/w": parse_type("bf16[4,5]")},
        {"h": StateVar("h", parse_type("f32[1,7]"))},
    )
    again = signature_json.load(json.loads(json.dumps(signature_json.dump(s))))
    assert again == s
    assert again.entries["main"].checks[0].high == T


@pytest.mark.parametrize(
    "spoil",
    [
        lambda j: j.pop("weights"),
        lambda j: j.update(more=1),
        lambda j: j.update(entries=[]),
        lambda j: j.update(entries={}),
        lambda j: j.update(name=7),
        lambda j: j["entries"].append(j["entries"][0]),
        lambda j: j["entries"][0].pop("checks"),
        lambda j: j["entries"][0]["inputs"].append(["x", "f32[3]"]),
        lambda j: j["entries"][0]["inputs"].append(["z", "f33[3]"]),
        lambda j: j["entries"][0]["inputs"].append(["z", "f32[-3]"]),
        lambda j: j["entries"][0]["inputs"].append(["z", f"f32[{2**62}]"]),
        lambda j: j["entries"][0]["inputs"].append(["z", "f32[" + "(" * 3000 + "]"]),
        lambda j: j["entries"][0]["inputs"].append("z"),
        lambda j: j["entries"][0]["outputs"].append(["z", "f32[Q]"]),
        lambda j: j["entries"][0]["requires"].append([None, "what"]),
        lambda j: j["entries"][0]["requires"].append(["Q-1", "what"]),
        lambda j: j["entries"][0]["checks"].append(["nobody", 0, 1, "what"]),
        lambda j: j["entries"][0]["checks"].append(["n", 0.5, 1, "what"]),
        lambda j: j["entries"][0]["dims"].append("Q"),
        lambda j: j["weights"].append(["w", "f32[2]", 3]),
    ],
)
def test_json_refuses(spoil: Any) -> None:
    data = json.loads(json.dumps(signature_json.dump(Signature("p", {"main": RNN}))))
    spoil(data)
    with pytest.raises(PackageError):
        signature_json.load(data)
    with pytest.raises(PackageError):
        signature_json.load([data])


def test_bind_dims() -> None:
    shapes = {"x": (11, 3, 5), "wide": (7,), "n": (3,)}
    assert bind_dims(RNN.inputs, shapes) == {"T": 11, "B": 3}
    only = [port("a", "f32[3*N-1]"), port("b", "f32[N*M]")]
    assert bind_dims(only, {"a": (8,), "b": (12,)}) == {"N": 3, "M": 4}
    assert bind_dims([port("a", "f32[T,B]")], {"a": (0, 0)}) == {"T": 0, "B": 0}


@pytest.mark.parametrize(
    ("kinds", "shapes", "said"),
    [
        (["f32[T]", "f32[T]"], [(3,), (4,)], "two sizes for T: 3 from a (axis 0), 4 from b"),
        (["f32[2*N]"], [(5,)], "no N >= 0 gives that"),
        (["f32[N+4]"], [(3,)], "no N >= 0 gives that"),
        (["f32[N*M]"], [(6,)], "do not determine M, N"),
        (["f32[N]", "f32[N*M]"], [(0,), (0,)], "do not determine M"),
        (["f32[N]", "f32[(N+1)//2]"], [(5,), (2,)], "b: axis 0 is (N+1)//2 = 3 (N = 5 from a"),
        (["f32[3]"], [(4,)], "a: expected f32[3], got shape [4]: axis 0 is 3, got 4"),
        (["f32[3]"], [(3, 1)], "rank 1, got rank 2"),
    ],
)
def test_bind_dims_refuses(kinds: list[str], shapes: list[tuple[int, ...]], said: str) -> None:
    ports = [port(n, k) for n, k in zip("ab", kinds, strict=False)]
    with pytest.raises(CallError) as e:
        bind_dims(ports, dict(zip("ab", shapes, strict=False)))
    assert said in str(e.value)


def test_check_call_accepts() -> None:
    given = good()
    out = check_call(RNN, given)
    assert list(out) == ["x", "wide", "n"]
    assert out["x"] is given["x"]  # a good array is passed on, not copied
    swapped = given["x"].astype(">f4")
    strided = np.zeros((11, 3, 10), np.float32)[:, :, ::2]
    for x in (swapped, strided, given["x"].tolist(), np.asfortranarray(given["x"])):
        got = check_call(RNN, {**given, "x": x})["x"]
        assert got.dtype == np.float32
        assert got.dtype.isnative
        assert got.flags.c_contiguous
        np.testing.assert_array_equal(got, np.asarray(x, np.float32))


def test_check_call_scalars() -> None:
    for kind, value in (("i32", 3), ("f32", 2), ("f64", 0.1), ("i1", True), ("f32", float("inf"))):
        e = entry("main", {"a": f"{kind}[]"}, {})
        got = check_call(e, {"a": value})["a"]
        assert got.shape == ()
        assert got.dtype == e.inputs[0].type.dtype.numpy
        assert got == value


def test_check_call_torch() -> None:
    need("torch")
    import torch

    given = good()
    x = torch.arange(165, dtype=torch.float32).reshape(11, 3, 5)
    np.testing.assert_array_equal(check_call(RNN, {**given, "x": x})["x"], x.numpy())
    with pytest.raises(CallError, match="x: expected f32"):
        check_call(RNN, {**given, "x": x.double()})
    np.testing.assert_array_equal(check_call(RNN, {**given, "x": x.clone().requires_grad_()})["x"], x.numpy())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": None}, "x: expected f32 (float32), got Python objects"),
        ({"x": np.zeros((11, 3, 5))}, "x: expected f32 (float32), got float64"),
        ({"x": np.zeros((11, 3, 5), object)}, "got Python objects"),
        ({"x": np.zeros((11, 3, 4), np.float32)}, "axis 2 is 5, got 4"),
        ({"x": np.ma.zeros((11, 3, 5), np.float32)}, "masked"),
        ({"x": [[1.0], [1.0, 2.0]]}, "x: expected f32"),
        ({"x": "text"}, "x: expected f32"),
        ({"n": np.zeros(4, np.int32)}, "two sizes for B: 3 from x (axis 1), 4 from n (axis 0)"),
        ({"n": [1, 2, 2**31]}, "n: expected i32 (int32), got the value 2147483648"),
        ({"n": [1, 2, 2**70]}, "n: expected i32"),
        ({"n": [1.0, 2.0, 3.0]}, "Python floats"),
        ({"n": [True, False, True]}, "Python values of bool"),
        ({"wide": [1e60] * 7}, "overflows"),
        ({"wide": [2**24 + 1] * 7}, "cannot hold exactly"),
        ({"wide": np.zeros(6, np.float32)}, "wide: axis 0 is 2*B+1 = 7"),
        ({"more": 1}, "unknown input more"),
        ({"x": np.zeros((1, 3, 5), np.float32)}, "slice: axis 0 needs at least 2"),
    ],
)
def test_check_call_refuses(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CallError) as e:
        check_call(RNN, {**good(), **change})
    assert said in str(e.value)


def test_check_call_names() -> None:
    given = good()
    given["X"] = given.pop("x")
    with pytest.raises(CallError, match=r"missing input x; unknown input X; the inputs are \(x: f"):
        check_call(RNN, given)
    with pytest.raises(CallError, match="missing input n"):
        check_call(RNN, {k: v for k, v in good().items() if k != "n"})


def test_value_checks() -> None:
    for values, said in (([0, 12, 3], "0 <= n <= T = 11, got 12 at index [1]"), ([0, 1, -1], "-1")):
        with pytest.raises(ValueRangeError) as e:
            check_call(RNN, {**good(), "n": np.array(values, np.int32)})
        assert said in str(e.value)
    # one bound for both ends, and none at all
    same = entry("main", {"n": "i64[]"}, {}, checks=(Check("n", 3, 3, "index"),))
    assert check_call(same, {"n": 3})["n"] == 3
    for wrong in (2, 4):
        with pytest.raises(ValueRangeError, match=f"got {wrong}"):
            check_call(same, {"n": wrong})
    free = entry("main", {"n": "i64[]"}, {}, checks=(Check("n", None, None, "index"),))
    assert check_call(free, {"n": -(2**63)})["n"] == -(2**63)


def test_memory_of_shapes_is_bounded() -> None:
    e = entry("main", {"a": "f32[N]"}, {})
    for n in range(700):
        assert check_call(e, {"a": np.zeros(n, np.float32)})["a"].shape == (n,)
    assert len(e._memo) <= 256


def _twice_transposed(v: li.Value) -> li.Value:
    return li.transpose(li.transpose(v, (1, 0)), (1, 0))


@pytest.mark.parametrize(
    "moved", [lambda v: v * 1, lambda v: v + 0, lambda v: li.negate(-v), _twice_transposed],
    ids=["times one", "plus zero", "minus minus", "transposed twice"],
)  # fmt: skip
def test_an_index_that_passes_find_to_be_an_input_is_checked(moved: Any) -> None:
    ids = li.input("ids", ("T", "B"), "i32")
    table = np.arange(10, dtype="f4").reshape(5, 2)
    graph = li.Graph("g", [ids], {"y": li.embedding(table, moved(ids))})
    exe = li.compile(graph)
    assert exe(ids=np.full((3, 2), 4, "i4"))["y"][0, 0, 0] == 8
    for wrong in (5, -1):
        for run in (exe, lambda ids: li.interpret(graph, ids=ids)):
            with pytest.raises(li.ValueRangeError):
                run(ids=np.full((3, 2), wrong, "i4"))


def test_an_index_that_a_step_reads_is_checked() -> None:
    ids, table = li.input("ids", ("T", "B"), "i32"), np.arange(10, dtype="f4").reshape(5, 2)
    weight = li.weight("table", table)

    def step(carry: Any, row: Any) -> Any:
        h = carry + li.take(weight, row, 0)
        return h, h

    n = li.input("n", (), "i32")
    whole, _ = li.scan(step, li.zeros(("B", 2)), ids)
    part, _ = li.scan(step, li.zeros(("B", 2)), ids, count=n)
    exe = li.compile(
        li.Program("p", {"whole": li.Graph("g", [ids], {"last": whole}),
                         "part": li.Graph("h", [ids, n], {"last": part})})
    )  # fmt: skip
    a = np.full((3, 2), 4, "i4")
    assert exe.entries["whole"](ids=a)["last"][0, 0] == 24
    a[2] = 9
    with pytest.raises(li.ValueRangeError, match="0 <= ids <= 4, got 9"):
        exe.entries["whole"](ids=a)
    assert exe.entries["part"](ids=a, n=np.int32(2))["last"][0, 0] == 16  # row 2 does not exist
