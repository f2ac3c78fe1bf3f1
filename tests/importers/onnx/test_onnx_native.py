"""No C++ code of `onnx` sees a file: a hostile one could end the process there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li
from lstm_ir.cli import group


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir")


def native() -> dict[int, tuple[str, Any]]:
    """Every function and class of the library's C++ module by its id; errors are none of its work."""
    from onnx import onnx_cpp2py_export

    found: dict[int, tuple[str, Any]] = {}
    todo: list[ModuleType] = [onnx_cpp2py_export]
    while todo:
        module = todo.pop()
        for name, value in vars(module).items():
            if isinstance(value, ModuleType):
                todo.append(value)
            elif callable(value) and not (isinstance(value, type) and issubclass(value, BaseException)):
                found[id(value)] = (f"{module.__name__}.{name}", value)
    return found


def without_native(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each of them fails when it is called, also where another module has its name; the names."""
    functions = native()
    for module in [m for n, m in sys.modules.items() if n.split(".")[0] in ("onnx", "onnx_ir")]:
        for name, value in list(vars(module).items()):
            if id(value) in functions:
                monkeypatch.setattr(module, name, _failing(functions[id(value)][0]))
    return [name for name, _ in functions.values()]


def _failing(name: str) -> Any:
    def fails(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"{name} saw the file")

    return fails


def model() -> bytes:
    """A layer, a branch, a loop and a function that calls another."""
    from onnx import helper

    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("my", 1)]
    rng = np.random.default_rng(8)
    weights = {"W": rng.standard_normal((1, 4, 6)).astype("f4"), "R": rng.standard_normal((1, 4, 4)).astype("f4")}
    inner = [om.node("Add", ["x", "x"], ["d"]), om.node("LeakyRelu", ["d"], ["y"])]
    calls = [om.node("Half", [a], [b], domain="my", name=b) for a, b in (("x", "h"), ("h", "y"))]
    functions = [
        helper.make_function("my", n, ["x"], ["y"], body, opsets) for n, body in (("Half", inner), ("Twice", calls))
    ]
    then, other = (om.graph([om.node(op, ["Y"], [op])], {}, [op]) for op in ("Neg", "Abs"))
    body = om.graph(
        [om.node("Add", ["s", "s"], ["t"]), om.node("Identity", ["going"], ["on"])],
        {"i": ([], "i8"), "going": ([], "?"), "s": ([4], "f4")},
        ["on", "t"],
    )
    nodes = [
        om.node("RNN", ["x", "W", "R"], ["Y"], hidden_size=4),
        om.node("If", ["yes"], ["a"], then_branch=then, else_branch=other),
        om.node("Loop", ["n", "", "k"], ["b"], body=body), om.node("Add", ["a", "b"], ["c"]),
        om.node("Twice", ["c"], ["y"], domain="my"),
    ]  # fmt: skip
    given = {**weights, "yes": np.array(True), "n": np.array(3), "k": np.ones(4, "f4")}
    made = om.model(nodes, {"x": (["T", "B", 6], "f4")}, ["y"], given, functions=functions)
    return bytes(made.SerializeToString())


def test_no_native_code_sees_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, package = tmp_path / "m.onnx", tmp_path / "m.lirpkg"
    path.write_bytes(model())
    names = without_native(monkeypatch)
    submodules = {n.split(".")[-2] for n in names}
    assert submodules >= {"checker", "shape_inference", "version_converter", "parser", "inliner", "printer", "defs"}
    import onnx

    with pytest.raises(AssertionError, match="check_model saw the file"):
        onnx.checker.check_model(path.read_bytes())
    assert {n.op.name for n in li.from_onnx(path).nodes} >= {"rnn", "scan"}
    li.from_onnx(path, stateful=True)
    assert li.examine(path).report.ok
    assert group.run(["import", str(path), "--stateful", "-o", str(package)]) == 0
    assert package.exists()


def test_no_native_code_sees_a_damaged_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut after any byte."""
    data = model()
    without_native(monkeypatch)
    for end in range(0, len(data), 13):
        try:
            li.from_onnx(data[:end])
        except li.ModelError:
            continue
