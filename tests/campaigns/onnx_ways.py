"""Ways to hand a damaged ONNX file over: as a graph, with constants, as a stream, as a report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_runner
from mutation import Rng

import lstm_ir as li
from lstm_ir.importers.streams import analysed
from lstm_ir.ir import dims
from lstm_ir.ir.verify import verify

SIZES = (3, 1, 2, 5)
SMALL = 1 << 16  # elements of all operands and results of a graph that is run
PLANNED = 0.02  # of the reports say how recurrences run, which takes twenty times as long
ODD: tuple[Any, ...] = (
    None, "x", b"x", [], [[1], [1, 2]], {}, object(), math.nan, math.inf, 1e400, 2**70, -(2**63), 1j, True,
    np.array(["a"]), np.array([None]), np.zeros((2, 0, 3)), np.zeros((1,) * 40), np.array(0, "M8[s]"),
)  # fmt: skip


def constants(rng: Rng, data: bytes) -> dict[str, Any]:
    """Values for one or two inputs of a file; a tenth of them are no arrays of that input, or for no input."""
    import onnx

    try:
        inputs = list(onnx.ModelProto.FromString(data).graph.input)
    except Exception:  # a damaged file has no inputs to name
        inputs = []
    found: dict[str, Any] = {}
    for v in inputs[int(rng.integers(len(inputs))) :][:2] if inputs else ():
        if rng.random() < 0.1:
            found[v.name] = ODD[int(rng.integers(len(ODD)))]
        else:
            found[v.name] = _array(rng, v.type.tensor_type)
    if rng.random() < 0.05:
        found[("nobody", "", "é\n")[int(rng.integers(3))]] = 1
    return found


def _array(rng: Rng, t: Any) -> Any:
    """Small integers, which every type has, at sizes that the file states; where it states none, at some."""
    from onnx import helper

    shape = [d.dim_value if 0 < d.dim_value < 9 else SIZES[i % len(SIZES)] for i, d in enumerate(t.shape.dim[:6])]
    drawn = rng.integers(0, 3, shape)
    try:
        return drawn.astype(helper.tensor_dtype_to_np_dtype(t.elem_type))
    except (KeyError, TypeError, ValueError):  # a type that does not exist
        return drawn


def sizes_of(g: li.Graph) -> dict[str, int]:
    """A number for each name of a size, in the order of the inputs."""
    names: dict[str, int] = {}
    for p in g.params:
        for d in p.type.shape:
            for name in sorted(dims.names(d)):
                names.setdefault(name, SIZES[len(names) % len(SIZES)])
    return names


def elements(g: li.Graph) -> int:
    """How many elements the values of a graph have in a trial; of a loop a hundred times as many."""
    names, total = sizes_of(g), 0
    for n in g.nodes:
        for t in n.types:
            try:
                size = math.prod(max(0, dims.evaluate(d, names)) for d in t.shape)
            except (li.LstmIrError, KeyError):  # a size that no input has
                continue
            total += size * (100 if n.op.name == "scan" else 1)
    return total


def given(g: li.Graph, rng: Rng, names: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Arrays for the inputs of a graph."""
    names, found = sizes_of(g) if names is None else names, {}
    for p in g.params:
        t = p.type
        shape = [max(0, dims.evaluate(d, names)) for d in t.shape]
        drawn = rng.standard_normal(shape) if t.dtype.is_float else rng.integers(0, 2, shape)
        found[p.node.attrs["name"]] = drawn.astype(t.dtype.numpy)
    return found


def calm(g: li.Graph) -> bool:
    """Whether no constant is NaN, or above a million.

    Sums of such numbers overflow, or keep no digit of the others; where NaN stands among sorted ones nobody says.
    """
    floats = (
        n.attrs["value"].array for n in g.nodes if n.op.name in ("weight", "constant") and n.types[0].dtype.is_float
    )
    return all(bool(((np.abs(a) <= 1e6) | np.isinf(a)).all()) for a in floats)


def report(model: Path | bytes, rng: Rng, **options: Any) -> str:
    """`li.examine`: a text of whole lines that commands no terminal, data that are JSON, and what `from_onnx` says."""
    found = li.examine(model, target=None, **options)
    text = str(found)
    assert all(c.isprintable() or c == "\n" for c in text), text
    json.loads(json.dumps(found.report.as_json()))
    if found.graph is None:
        assert found.report.refusals
        try:
            li.from_onnx(model, **options)
        except li.ModelError as e:
            assert e.refusals == tuple(map(str, found.report.refusals)), (str(e), text)
            return "reported, refused"
        raise AssertionError(f"from_onnx takes what the report refuses:\n{text}")
    verify(found.graph)
    if rng.random() < PLANNED and elements(found.graph) <= SMALL:
        try:
            str(li.examine(model, **options))
        except li.ModelError:
            raise
        except li.LstmIrError:  # what the target does not take
            return "reported, not planned"
    return "reported"


def named_states(g: li.Graph, rng: Rng) -> dict[str, str]:
    """An input that an output of its type feeds, where there is one; else any two."""
    pairs = [
        (i, o)
        for i, p in zip(g.input_names, g.params, strict=True)
        for o, v in zip(g.output_names, g.outputs, strict=True)
        if p.type.dtype is v.type.dtype and p.type.rank == v.type.rank
    ]
    if pairs and rng.random() < 0.9:
        return dict([pairs[int(rng.integers(len(pairs)))]])
    return {(*g.input_names, "nobody")[0]: (*g.output_names, "nothing")[-1]}


def stream(model: Path | bytes, rng: Rng, **options: Any) -> str:
    """`stateful`: a program whose entries verify, and which in parts gives what one call gives."""
    if rng.random() < 0.2:
        named = named_states(li.from_onnx(model, **options), rng)
        for g in li.from_onnx(model, stateful=named, **options).entries.values():
            verify(g)
        return "streamed, by names"
    program = li.from_onnx(model, stateful=True, **options)
    for g in program.entries.values():
        verify(g)
    whole = li.from_onnx(model, **options)
    if elements(whole) > SMALL or not calm(whole):
        return "streamed"
    time = analysed("model.onnx", whole).steps
    main = program.entries["main"]
    if any(math.prod(dims.evaluate(d, sizes_of(main) | {time: 6}) for d in p.type.shape) > SMALL for p in main.params):
        return "streamed"
    return _in_parts(program, whole, time, rng)


def _in_parts(program: li.Program, whole: li.Graph, time: str, rng: Rng) -> str:
    main = program.entries["main"]
    names = sizes_of(main) | {time: 6}
    first, second = ({**names, time: n} for n in (2, 4))
    arrays = {n: a for n, a in given(main, rng, names).items() if n not in program.state}
    cut = {n: _axis(p, time) for n, p in zip(main.input_names, main.params, strict=True)}
    state: dict[str, Any] = {
        n: np.broadcast_to(s.initial.array, [dims.evaluate(d, names) for d in s.type.shape])
        for n, s in program.state.items()
    }
    try:
        want = li.interpret(whole, arrays)
        parts = []
        for sizes, begin in ((first, 0), (second, 2)):
            part = dict(arrays)
            for p in main.params:
                n = p.node.attrs["name"]
                if n in part and (axis := cut[n]) is not None:
                    unit = dims.evaluate(p.type.shape[axis], sizes) // sizes[time]
                    places = np.arange(begin * unit, (begin + sizes[time]) * unit)
                    part[n] = np.take(part[n], places, axis)
            out = li.interpret(main, {**part, **state})
            state = {n: out.pop(n) for n in state}
            parts.append(out)
    except li.LstmIrError:
        return "streamed, refused at the call"
    for n, v in zip(main.output_names, main.outputs, strict=True):
        if n in program.state:
            continue
        axis = _axis(v, time)
        got = parts[-1][n] if axis is None else np.concatenate([p[n] for p in parts], axis)
        assert got.shape == want[n].shape, (n, got.shape, want[n].shape)
        onnx_runner.close(got, want[n], f"{n} in parts")
    return "streamed, in parts as whole"


def _axis(v: Any, time: str) -> int | None:
    return next((i for i, d in enumerate(v.type.shape) if time in dims.names(d)), None)
