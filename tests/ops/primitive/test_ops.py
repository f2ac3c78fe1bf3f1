"""One body per property, over the samples of every op."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from paths import TESTS
from reverse_walk import pull_back
from sample import Array, Bad, Sample, assert_close, bad, rng, samples

import lstm_ir as li
from lstm_ir.ir.opdef import OPS

VARIANTS = {"zoneout_lstm", "recurrent_dropout_lstm", "layer_norm_lstm"}
NO_VJP = VARIANTS  # ops whose rule is None: theirs is the gradient of their expansion
NO_GRADIENT = {"bitcast_convert"}  # float to float, but by bits: defined to have none
# foreign ops, `tf.LSTMBlockCell`, bring their own tests; so do random bits and what draws them
ELSEWHERE = {
    "threefry": "test_cudnn_dropout.py", "dropout": "test_losses.py", "batch_norm_results": "test_batch_norm.py",
}  # fmt: skip
CORE = [op for op in OPS if "." not in op and op not in ELSEWHERE]
EVERY = [pytest.param(s, id=s.name) for s in {s.name: s for op in CORE for s in samples(op)}.values()]
REFUSED = [pytest.param(op, case, id=f"{op}-{i}") for op in CORE for i, case in enumerate(bad(op))]


def test_ops_tested_elsewhere_are() -> None:
    for op, file in ELSEWHERE.items():
        assert op in OPS
        assert any(op in p.read_text() for p in TESTS.rglob(file))


@pytest.mark.parametrize("op", CORE)
def test_every_op_has_samples_that_use_it(op: str) -> None:
    assert samples(op), f"{op} has no samples"
    for s in samples(op):
        assert op in {n.op.name for n in s.graph.nodes}, s.name


@pytest.mark.parametrize("op", CORE)
def test_every_op_states_its_gradient(op: str) -> None:
    assert (OPS[op].vjp is None) == (op in NO_VJP)


@pytest.mark.parametrize("sample", EVERY)
def test_meaning_equals_the_independent_expression(sample: Sample) -> None:
    """The interpreter also checks that every node has the shape and dtype of its type rule."""
    got = li.interpret(sample.graph, sample.inputs)
    assert sample.expected is not None
    for name, v in zip(sample.graph.output_names, sample.graph.outputs, strict=True):
        assert_close(got[name], sample.expected[name], v.dtype.value, sample.kind, f"{sample.name} {name}")


@pytest.mark.parametrize("sample", EVERY)
def test_text_round_trips(sample: Sample) -> None:
    li.verify(sample.graph)
    data = {k: v.node.attrs["value"].array for k, v in sample.graph.weights.items()}
    text = str(sample.graph)
    assert str(li.parse(text, data=data)) == text


def _wanted(s: Sample) -> bool:
    floats = [v for v in (*s.graph.params, *s.graph.outputs) if v.dtype.is_float]
    names = {n.op.name for n in s.graph.nodes}
    inputs = any(p.dtype.is_float for p in s.graph.params)
    smooth = s.smooth and inputs and not names & NO_GRADIENT
    return smooth and any(v.dtype.is_float for v in s.graph.outputs) and {v.dtype.value for v in floats} == {"f64"}


SMOOTH = [p for p in EVERY if isinstance(p.values[0], Sample) and _wanted(p.values[0])]
# Over eleven steps the third derivatives are so large that central differences of a gradient are off
# by 2e-7: test_grad_twice.py has PyTorch and differences of a higher order.
LAYERS = {"lstm", "gru", "rnn", "lstm_grad", "gru_grad", "rnn_grad", *VARIANTS}
SMOOTH_TWICE = [
    p for p in SMOOTH if isinstance(p.values[0], Sample) and not LAYERS & {n.op.name for n in p.values[0].graph.nodes}
]


def _gradient(graph: li.Graph) -> li.Graph:
    """Gradients of sum(<output, ct_output>) for every float input; zeros where there is none."""
    outs = {n: v for n, v in zip(graph.output_names, graph.outputs, strict=True) if v.dtype.is_float}
    cts = {n: li.input(f"ct_{n}", v.shape, v.dtype) for n, v in outs.items()}
    merged: dict[li.Value, li.Value] = {}
    for n, v in outs.items():
        merged[v] = merged[v] + cts[n] if v in merged else cts[n]
    wrt = [p for p in graph.params if p.dtype.is_float]
    grads = pull_back(merged, wrt)
    named = {
        f"d_{p.node.attrs['name']}": li.zeros(p.shape, p.dtype) if g is None else g
        for p, g in zip(wrt, grads, strict=True)
    }
    return li.Graph("gradient", [*graph.params, *cts.values()], named)


def _slope(graph: li.Graph, inputs: dict[str, Array], name: str, way: Array, cts: dict[str, Array]) -> float:
    """Central difference of sum(<output, ct>) along `way`."""
    step, ends = 1e-5, []
    for sign in (1, -1):
        out = li.interpret(graph, {**inputs, name: inputs[name] + sign * step * way})
        ends.append(sum(float(np.sum(out[k] * c)) for k, c in cts.items()))
    return (ends[0] - ends[1]) / (2 * step)


def _ways(shape: tuple[int, ...], r: np.random.Generator) -> list[Array]:
    """Every single element of a small tensor, random directions of a large one."""
    size = int(np.prod(shape))
    if size > 40:
        return [r.standard_normal(shape) for _ in range(4)]
    return [np.eye(size)[i].reshape(shape) for i in range(size)]


def _check(graph: li.Graph, inputs: dict[str, Array], what: str) -> li.Graph:
    """Compare the gradient graph with central differences; gives it back."""
    r = rng(what)
    floats = {n: v for n, v in zip(graph.output_names, graph.outputs, strict=True) if v.dtype.is_float}
    shapes = {n: li.interpret(graph, inputs)[n].shape for n in floats}
    cts = {n: r.standard_normal(s) for n, s in shapes.items()}
    gradient = _gradient(graph)
    given = {**inputs, **{f"ct_{n}": c for n, c in cts.items()}}
    grads = li.interpret(gradient, given)
    for name, g in ((n.removeprefix("d_"), g) for n, g in grads.items()):
        for way in _ways(g.shape, r):
            numeric, exact = _slope(graph, inputs, name, way, cts), float(np.sum(g * way))
            np.testing.assert_allclose(exact, numeric, rtol=1e-7, atol=2e-7, err_msg=f"{what}: d {name}")
    return gradient


@pytest.mark.parametrize("sample", SMOOTH)
def test_gradient_equals_central_differences(sample: Sample) -> None:
    _check(sample.graph, sample.inputs, sample.name)


@pytest.mark.parametrize("sample", SMOOTH_TWICE)
def test_second_derivative_equals_central_differences(sample: Sample) -> None:
    """The gradient is a graph of the same ops, so its own gradient is checked the same way."""
    r = rng(sample.name)
    gradient = _gradient(sample.graph)
    env = li.interpret(sample.graph, sample.inputs)
    inputs = dict(sample.inputs)
    for p in gradient.params[len(sample.graph.params) :]:
        name = p.node.attrs["name"]
        inputs[name] = np.asarray(r.standard_normal(env[name[3:]].shape))
    _check(gradient, inputs, f"{sample.name} twice")


@pytest.mark.parametrize(("op", "refused"), REFUSED)
def test_bad_use_is_refused_at_the_users_line(op: str, refused: Bad) -> None:
    build, pattern = refused
    with pytest.raises(li.IRError, match=pattern) as e:
        build()
    lines = str(e.value).split("\n")
    assert isinstance(build, FunctionType)
    code = build.__code__
    assert lines[0].startswith(f"{op}: "), lines[0]
    assert lines[-1] == f"  at {Path(code.co_filename).name}:{code.co_firstlineno}"
    assert len(lines) in (2, 3)


def test_ops_with_operands_have_bad_samples() -> None:
    leaves = {"parameter", "weight", "constant", "dim"}
    assert {op for op in CORE if not bad(op)} <= leaves | {"stop_gradient"}  # which takes every tensor
