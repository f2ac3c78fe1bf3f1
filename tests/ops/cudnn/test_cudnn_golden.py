"""CudnnRNN against vectors that PyTorch computed in float64: meaning, expansion, and compiled."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import cudnn_cases as cu
import ml_dtypes
import numpy as np
import pytest
from device import need
from one_op import check_files, manifest

import lstm_ir as li
from lstm_ir.ops.cudnn.contract import network

pytestmark = pytest.mark.slow_on("vulkan")
CASES = cu.recorded()
TRAINED = [c for c in CASES if c.attrs["is_training"]]
TOLERANCE = {np.float64: 1e-11, np.float32: 2e-6, np.float16: 4e-3, ml_dtypes.bfloat16: 2e-2}
"""By element type; half and bfloat16 are rounded once, of inputs that were rounded too."""
MEANINGS: dict[str, Callable[..., Any]] = {
    "op": li.interpret,
    "expansion": lambda g, a: li.interpret(cu.expanded(g), a),
}
PARTS = 8  # programs that the compiled cases are spread over


def test_the_files_are_those_recorded() -> None:
    check_files(cu.GOLDEN)
    assert {c.attrs["rnn_mode"] for c in CASES} == set(cu.GATES)


@pytest.mark.parametrize("meaning", MEANINGS)
@pytest.mark.parametrize("kind", TOLERANCE, ids=lambda k: k.__name__)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_meaning(case: cu.Recorded, kind: Any, meaning: str) -> None:
    run, a = MEANINGS[meaning], case.operands(kind)
    out = run(case.forward(kind), a)
    assert all(v.dtype == kind for k, v in out.items() if k != "host_reserved")
    cu.close(out, case.results, TOLERANCE[kind], case)
    if case.attrs["is_training"]:
        b = case.back(a, out)
        cu.close(run(case.backward(b), b), case.grads, TOLERANCE[kind], case)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_wrong_layout_would_be_seen(case: cu.Recorded) -> None:
    """The recorded values tell neighbouring regions of one size apart."""
    a = case.operands(np.float64)
    regions = [(kind, p, gate, o, int(np.prod(s))) for kind, p, gate, o, s in case.entry["regions"]]
    seen = 0
    for u, v in pairwise(sorted(regions, key=lambda r: (r[4], r[3]))):
        if u[4] == 0 or u[4] != v[4] or (len({u[2], v[2]}) == 1 and u[1] == v[1]):
            continue  # bW and bR of one gate may be exchanged
        swapped, (i, j, n) = a["params"].copy(), (u[3], v[3], u[4])
        swapped[i : i + n], swapped[j : j + n] = a["params"][j : j + n], a["params"][i : i + n]
        got = li.interpret(case.forward(np.float64), a | {"params": swapped})
        worst = max(float(np.abs(got[k] - v).max()) for k, v in case.results.items())
        assert worst > 1e-5 or {u[0], v[0]} == {"bW", "bR"}, (u, v)
        seen += 1
    assert seen > 0


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_regions(case: cu.Recorded) -> None:
    d = case.entry["dims"]
    shared = ("rnn_mode", "input_mode", "direction", "num_proj")
    a = {k: case.attrs[k] for k in shared}
    net = network(d["num_layers"], d["input_size"], d["num_units"], **a)
    assert net.size == case.entry["params_size"]
    found = {(r.kind, r.p, r.offset): r.shape for r in net.weights() + net.biases() if r.size}
    want = {(k, p, o): tuple(s) for k, p, _, o, s in case.entry["regions"] if 0 not in s}
    assert found == want
    assert len(net.weights()) == case.entry["num_params_weights"]
    assert len(net.biases()) == case.entry["num_params_biases"]


def test_sizes() -> None:
    for entry in manifest(cu.GOLDEN)["params_sizes"]:
        given = {k: v for k, v in entry.items() if k != "params_size"}
        for kind in ("i32", "i64"):
            r = li.op(cu.SIZE, T="f32", S=kind, **given)
            got = li.interpret(li.Graph("g", [], r._asdict()))["params_size"]
            assert got.tolist() == [entry["params_size"]]
            assert got.dtype == li.DType.of(kind).numpy


def compiled(target: str, cases: Any) -> None:
    """Forward and backward of the cases on one target, in one program."""
    graphs, data = {}, {}
    for case in cases:
        a = case.operands()
        graphs[case.name], data[case.name] = case.forward(), (a, case.results)
        if case.attrs["is_training"]:
            b = case.back(a, li.interpret(case.forward(), a))
            graphs[f"{case.name}_back"] = case.backward(b)
            data[f"{case.name}_back"] = b, case.grads
    exe = li.compile(li.Program("golden", graphs), target)
    for name, (a, want) in data.items():
        cu.close(exe.entries[name](a), want, TOLERANCE[np.float32], name)


@pytest.mark.slow_cases(part=list(range(1, PARTS)))
@pytest.mark.parametrize("part", range(PARTS))
def test_cpu(part: int) -> None:
    compiled("cpu", CASES[part::PARTS])


@pytest.mark.vulkan
@pytest.mark.parametrize("part", range(PARTS))
def test_vulkan(part: int) -> None:
    need("vulkan")
    compiled("vulkan", CASES[part::PARTS])
