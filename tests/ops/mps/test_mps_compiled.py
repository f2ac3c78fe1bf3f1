"""MPSGraph's ops compiled: flags, named sizes, gradients by li.vjp, and no recomputation."""

from typing import Any

import mps_cases as mps
import numpy as np
import pytest
from device import need

import lstm_ir as li

pytestmark = pytest.mark.slow_on("vulkan")
WIDE = (9, 5, 6, 64)
FLAGS: dict[str, tuple[mps.Arrays, ...]] = {
    mps.LSTM: (
        {"produceCell": True},
        {"training": True, "reverse": True, "forgetGateLast": True},
        {"training": True, "bidirectional": True, "outputGateActivation": "hardSigmoid"},
        {"bidirectional": True, "forgetGateLast": True, "activation": "none"},
    ),
    mps.GRU: (
        {"training": True, "reverse": True},
        {"resetGateFirst": True, "resetAfter": True},
        {"training": True, "bidirectional": True, "resetAfter": True, "flipZ": True},
        {"bidirectional": True, "resetGateFirst": True, "outputGateActivation": "relu"},
    ),
    mps.RNN: ({"training": True, "reverse": True}, {"training": True, "bidirectional": True, "activation": "tanh"}),
}


def samples(r: np.random.Generator, sizes: tuple[int, int, int, int]) -> list[Any]:
    """(op, attributes, float32 operands): forward, backward, with everything and with nothing."""
    out = []
    for op, descriptors in FLAGS.items():
        for i, attrs in enumerate(descriptors):
            present = () if i == 1 else mps.OPTIONAL[op]
            a = mps.operands(r, op, present, attrs, sizes, np.float32, 0.6)
            more = mps.backward(r, op, a, attrs, mps.LATER[op] if i else ())
            out += [(op, attrs, a), (mps.BACK[op], attrs, more)]
    return out


def check(graphs: dict[str, li.Graph], inputs: dict[str, Any], target: str) -> None:
    exe = li.compile(li.Program("mps", graphs), target)
    for name, g in graphs.items():
        want = li.interpret(g, inputs[name])
        scale = max(1.0, *(float(np.abs(v).max()) for v in want.values()))
        mps.close(exe.entries[name](inputs[name]), want, 2e-5 * scale, name)


def some(seed: int, sizes: tuple[int, int, int, int]) -> tuple[dict[str, li.Graph], Any]:
    every = samples(np.random.default_rng(seed), sizes)
    graphs = {f"s{i}": mps.graph(op, a, attrs, name=f"s{i}") for i, (op, attrs, a) in enumerate(every)}
    return graphs, {f"s{i}": a for i, (_, _, a) in enumerate(every)}


@pytest.mark.slow
def test_flags_on_the_processor(seed: int) -> None:
    """Sizes that differ pairwise, and one that fills vectors."""
    graphs, inputs = some(seed, mps.SIZES)
    wide, more = some(seed + 1, WIDE)
    graphs |= {f"w{n}": wide[n] for n in list(wide)[1::4]}
    inputs |= {f"w{n}": a for n, a in more.items()}
    check(graphs, inputs, "cpu")


@pytest.mark.vulkan
def test_flags_on_vulkan(seed: int) -> None:
    need("vulkan")
    graphs, inputs = some(seed, (4, 3, 5, 7))
    chosen = list(graphs)[2:-2:3]
    check({n: graphs[n] for n in chosen}, inputs, "vulkan")


@pytest.mark.slow
def test_named_sizes_on_the_processor(rng: np.random.Generator) -> None:
    """T and N open: one module for every size, forward and backward by li.vjp."""
    graphs: dict[str, li.Graph] = {}
    for op in mps.FORWARD:
        attrs = {"bidirectional": True}
        shapes = mps.shapes(op, ("T", "N", 5, 7), True, mps.OPTIONAL[op])
        a = {n: np.zeros((), np.float32) for n in shapes}
        g = mps.graph(op, a, attrs, shapes)
        name = op.removeprefix("mps.")
        graphs[name] = g
        graphs[f"{name}Back"] = li.vjp(g, "r_h", [n for n in shapes if n != "mask"])
    exe = li.compile(li.Program("mps", graphs), "cpu")
    for sizes in ((11, 3, 5, 7), (1, 1, 5, 7), (2, 70, 5, 7)):
        for name, g in graphs.items():
            op = f"mps.{name.removesuffix('Back')}"
            a = mps.operands(rng, op, mps.OPTIONAL[op], {"bidirectional": True}, sizes, np.float32)
            if name.endswith("Back"):
                a["ct_r_h"] = rng.standard_normal((*sizes[:2], 14)).astype(np.float32)
            want = li.interpret(g, a)
            scale = max(1.0, *(float(np.abs(v).max()) for v in want.values()))
            mps.close(exe.entries[name](a), want, 2e-5 * scale, (name, sizes))


@pytest.mark.parametrize("op", mps.FORWARD)
def test_the_gradient_op_runs_no_forward_step(op: str, rng: np.random.Generator) -> None:
    """The saved values are used: one loop, and it goes back."""
    from lstm_ir.passes.decompose import decompose

    a = mps.operands(rng, op, mps.OPTIONAL[op])
    given = mps.backward(rng, op, a, {}, mps.LATER[op])
    loops = [n for n in decompose(mps.expanded(mps.graph(mps.BACK[op], given, {}))).nodes]
    assert [n.op.name for n in loops].count("scan") == 1
