"""SavedModels of TensorFlow 2: loops, conditions and state beside TensorFlow's own results."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow_models as tm
from device import need, need_target
from tensorflow_compare import close, compare, sizes_agree
from tensorflow_module_cases import CASES, FRAMES, OWN, STATE

import lstm_ir as li

PLAIN = [n for n in CASES if n not in {*STATE, *FRAMES, *OWN}]
pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("models")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tm.Recorded]:
    need("tensorflow")
    return tm.made(tmp_path_factory.mktemp("modules"), 3, "tensorflow_module_cases", list(CASES))


@pytest.mark.parametrize("name", PLAIN)
def test_beside_tensorflow(name: str, models: dict[str, tm.Recorded]) -> None:
    compare(models[name], li.from_tf(models[name].path), "cpu" if name in ("while", "nested") else None)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("name", PLAIN)
def test_compiled(name: str, target: str, models: dict[str, tm.Recorded]) -> None:
    need_target(target)
    compare(models[name], li.from_tf(models[name].path), target, gradients=False)


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_gradient_of_its_own(name: str, models: dict[str, tm.Recorded]) -> None:
    """Results are right, the gradient is refused, and what lies beside it has its own."""
    want = models[name]
    graph = li.from_tf(want.path)
    compare(want, graph, "cpu", gradients=False)
    assert isinstance(graph, li.Graph)
    said = r"\(IdentityN\) has a gradient of its own in TensorFlow, CustomGradient-\d+, which is not read"
    with pytest.raises(li.GradientError, match=said):
        li.vjp(graph, ["y"], ["w"])
    beside = li.vjp(graph, ["plain"], ["u"])
    found = li.interpret(beside, **want.inputs, ct_plain=want.cotangents["plain"])
    close({"u": found["d_u"]}, {"u": want.gradients["u"]}, 1e-4)


@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_an_open_length(name: str, models: dict[str, tm.Recorded]) -> None:
    """Every length that gives no less than 0 frames; one that gives less is refused, where TensorFlow gives none."""
    want = models[name]
    graph = li.from_tf(want.path)
    sizes_agree(want, graph)
    assert isinstance(graph, li.Graph)
    with li.compile(graph) as exe:
        for samples in {k.partition("/")[0] for k in want.more}:
            close(exe(x=want.more[f"{samples}/x"]), {"y": want.more[f"{samples}/y"]}, 2e-5)
        if name.endswith("False"):
            with pytest.raises(li.CallError):
                exe(x=np.zeros((2, 1), np.float32))


def test_frames_of_a_length_of_a_form(models: dict[str, tm.Recorded]) -> None:
    """The number of frames is a size with a name, where `sizes` says that frames are whole."""
    want = models["frames_4_2_False"]
    graph = li.from_tf(want.path, sizes={"T": "2*N+4"})
    compare(want, graph)
    assert isinstance(graph, li.Graph)
    assert str(graph.output("y").type) == "f32[B,N+1,3]"


def test_layers_that_keep_their_state(models: dict[str, tm.Recorded]) -> None:
    want = models["stateful"]
    program = li.from_tf(want.path)
    assert isinstance(program, li.Program)
    assert len(program.state) == 3
    with li.compile(program) as exe:
        for _ in range(2):
            for k in range(3):
                found = exe.entries["step"](x=want.inputs[f"x{k}"])
                close({f"y{k}": found["output_0"]}, {f"y{k}": want.outputs[f"y{k}"]}, 2e-5)
            exe.entries["reset"]()


def test_two_signatures_over_one_state(models: dict[str, tm.Recorded]) -> None:
    want = models["counting"]
    program = li.from_tf(want.path)
    assert isinstance(program, li.Program)
    assert set(program.entries) == {"add", "read", "get_state", "set_state", "reset"}
    assert set(program.weights) == {"w"}
    with li.compile(program) as exe:
        for k in range(3):
            found = exe.entries["add"](x=want.inputs[f"x{k}"])
            total = exe.entries["read"]()["total"]
            held = {f"before{k}": found["before"], f"after{k}": found["after"], f"total{k}": total}
            close(held, {n: want.outputs[n] for n in held}, 1e-6)
    one = li.from_tf(want.path, signature="read")
    assert isinstance(one, li.Graph)
    assert np.allclose(li.interpret(one)["total"], np.array([1, 2], np.float32) * program.weights["w"].array)
