"""`stateful=True`: models in parts beside onnxruntime's run of the whole; what looks ahead is refused by name."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_models as om
import onnx_streams
import pytest
from device import need, need_target

import lstm_ir as li

Array = np.ndarray[Any, Any]
LIMIT = 2e-5


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


def first_state(program: li.Program, sizes: dict[str, int]) -> dict[str, Array]:
    """The start of every state at these sizes."""
    return {
        n: np.broadcast_to(s.initial.array, [d if isinstance(d, int) else sizes[str(d)] for d in s.type.shape])
        for n, s in program.state.items()
    }


def parts(rng: np.random.Generator, total: int) -> list[int]:
    """Numbers from 1 on whose sum is the total."""
    found: list[int] = []
    while total:
        found.append(int(rng.integers(1, min(total, 7) + 1)))
        total -= found[-1]
    return found


def by_meaning(program: li.Program, x: Array, cuts: list[int], time: int = 1) -> list[dict[str, Array]]:
    """The outputs of every call, the state fed back by hand; B is the other one of the first two axes."""
    state = first_state(program, {"B": x.shape[1 - time]})
    found = []
    for part in np.split(x, np.cumsum(cuts)[:-1], time):
        out = li.interpret(program.entries["main"], {"x": part, **state})
        state = {n: out.pop(n) for n in state}
        found.append(out)
    return found


def near(got: Array, want: Array, what: Any) -> None:
    assert got.shape == want.shape, what
    worst = float(np.abs(got.astype("f8") - want).max(initial=0))
    assert worst <= LIMIT * max(1.0, float(np.abs(want).max(initial=0))), (what, worst)


def imported(made: Any) -> li.Program | str:
    """The program, or why there is none."""
    try:
        return li.from_onnx(made, stateful=True)
    except li.ModelError as e:
        return str(e)


@pytest.mark.parametrize("case", range(60))
def test_random_causal_models_in_parts(case: int, rng: np.random.Generator) -> None:
    c = onnx_streams.chain(rng, int(rng.integers(2, 7)))
    made = c.made()
    B, frames = int(rng.integers(1, 4)), c.unit * int(rng.integers(1, 16))
    x = rng.standard_normal((B, frames, c.first)).astype(np.float32)
    (want,) = om.run(made, {"x": x})
    program = imported(made)
    if not isinstance(program, li.Program):
        assert re.search("nothing is kept|no layer, loop or window", program), c.blocks
        assert not set(c.blocks) & {"layer", "shift", "recurrence"}, c.blocks
        return
    cuts = [c.unit * n for n in parts(rng, frames // c.unit)]
    got = np.concatenate([out["y"] for out in by_meaning(program, x, cuts)], 1)
    near(got, want, (c.blocks, cuts))


@pytest.mark.parametrize("case", range(60))
def test_what_looks_ahead_is_named_and_nothing_else(case: int, rng: np.random.Generator) -> None:
    c = onnx_streams.chain(rng, int(rng.integers(1, 5)), ahead=int(rng.integers(1, 4)))
    with pytest.raises(li.ModelError) as e:
        li.from_onnx(c.made(), stateful=True)
    named = re.findall(r"^  (\S+) \(", str(e.value), re.MULTILINE)
    assert sorted(named) == sorted(c.ahead), (c.blocks, str(e.value))


@pytest.mark.slow_cases(case=[1, 2])
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=[pytest.mark.vulkan, pytest.mark.slow])])
@pytest.mark.parametrize("case", range(3))
def test_compiled_in_parts(case: int, target: str, rng: np.random.Generator) -> None:
    need_target(target)
    while True:
        c = onnx_streams.chain(rng, 5)
        if "layer" in c.blocks and {"residual", "causal_conv"} & set(c.blocks):
            break
    made = c.made()
    x = rng.standard_normal((2, 12 * c.unit, c.first)).astype(np.float32)
    (want,) = om.run(made, {"x": x})
    with li.compile(li.from_onnx(made, stateful=True), target) as exe:
        for _ in range(2):
            cuts = np.cumsum([c.unit * n for n in parts(rng, 12)])[:-1]
            got = [exe.entries["step"](x=part)["y"] for part in np.split(x, cuts, 1)]
            near(np.concatenate(got, 1), want, c.blocks)
            exe.entries["reset"]()


SMALL = [np.float32, np.int32]
LONE: dict[str, tuple[Callable[[], list[Any]], dict[str, Any], str, list[Any]]] = {
    "sums": (lambda: [om.node("CumSum", ["x", "two"], ["y"])], {}, "the_CumSum.sum", SMALL),
    "sums before": (lambda: [om.node("CumSum", ["x", "two"], ["y"], exclusive=1)], {}, "the_CumSum.sum", SMALL),
    "overlap-add": (
        lambda: [
            om.node("ConvTranspose", ["x", "w"], ["long"], strides=[2]),
            om.node("Slice", ["long", "zero", "minus3", "axis"], ["y"]),
        ],
        {"w": (3, 2, 5)}, "the_ConvTranspose.context", SMALL[:1],
    ),
    "overlap-add of two axes": (
        lambda: [
            om.node("Unsqueeze", ["x", "axis1"], ["image"]),
            om.node("ConvTranspose", ["image", "w"], ["long"], strides=[2, 3], pads=[1, 0, 0, 1]),
            om.node("ReduceSum", ["long", "axis"], ["y"], keepdims=0),
        ],
        {"w": (1, 2, 3, 4)}, "the_ConvTranspose.context", SMALL[:1],
    ),
    "joined context": (
        lambda: [om.node("Concat", ["before", "x"], ["more"], axis=2), om.node("Conv", ["more", "w"], ["y"])],
        {"before": (2, 3, 4), "w": (2, 3, 5)}, "the_Concat.context", SMALL[:1],
    ),
    "steps of before": (
        lambda: [
            om.node("Slice", ["x", "zero", "minus3", "axis"], ["most"]),
            om.node("Concat", ["before", "most"], ["y"], axis=2),
        ],
        {"before": (2, 3, 3)}, "the_Concat.context", SMALL[:1],
    ),
    "steps of before, moved, behind more rows": (
        lambda: [
            om.node("Slice", ["x", "zero", "minus3", "axis"], ["most"]),
            om.node("Tanh", ["most"], ["small"]),
            om.node("Transpose", ["small"], ["moved"], perm=[2, 0, 1]),
            om.node("Concat", ["before", "moved"], ["rows"], axis=0),
            om.node("Transpose", ["rows"], ["more"], perm=[1, 2, 0], name="back"),
            om.node("Conv", ["more", "w"], ["y"]),
        ],
        {"before": (5, 2, 3), "w": (2, 3, 3)}, "the_Concat.context", SMALL[:1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["meaning", "cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("case", LONE)
def test_blocks_of_one_model_alone(case: str, target: str, rng: np.random.Generator) -> None:
    """A running sum, a transposed convolution and a joined context, fed in blocks of several sizes."""
    nodes_of, shapes, state, dtypes = LONE[case]
    nodes = nodes_of()
    literals: dict[str, Any] = {"two": np.array(2), "zero": np.array([0]), "minus3": np.array([-3])}
    literals |= {"axis": np.array([2]), "axis1": np.array([1])}
    literals |= {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}
    used = {n: a for n, a in literals.items() if any(n in node.input for node in nodes)}
    for dtype in dtypes:
        made = om.model(nodes, {"x": ([2, 3, "T"], dtype)}, ["y"], used)
        x = (9 * rng.standard_normal((2, 3, 19))).astype(dtype)
        (want,) = om.run(made, {"x": x})
        program = li.from_onnx(made, stateful=True)
        assert list(program.state) == [state]
        for cuts in ([1] * 19, [5, 1, 13], [2, 2, 2, 13], [19]):
            ends = np.cumsum(cuts)[:-1]
            if target == "meaning":
                kept, got = first_state(program, {}), []
                for part in np.split(x, ends, 2):
                    out = li.interpret(program.entries["main"], {"x": part, **kept})
                    kept = {n: out.pop(n) for n in kept}
                    got.append(out["y"])
            else:
                need_target(target)
                with li.compile(program, target) as exe:
                    got = [exe.entries["step"](x=part)["y"] for part in np.split(x, ends, 2)]
            near(np.concatenate(got, 2), want, (case, target, cuts))


def test_torch_models_in_parts(rng: np.random.Generator) -> None:
    """A convolution with stride after F.pad, one with what it pads after the last step cut off, LSTMs, a GRU."""
    need("torch")
    import torch

    torch.manual_seed(int(rng.integers(2**31)))

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.strided = torch.nn.Conv1d(5, 6, 4, stride=2)
            self.dilated = torch.nn.Conv1d(6, 6, 3, dilation=2, padding=4)
            self.lstm, self.gru = torch.nn.LSTM(6, 7, 2, batch_first=True), torch.nn.GRU(7, 4, batch_first=True)
            self.out = torch.nn.Linear(7, 3)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.strided(torch.nn.functional.pad(x.transpose(1, 2), (3, 0))))
            y, _ = self.lstm(self.dilated(x)[:, :, :-4].transpose(1, 2))
            z, h = self.gru(y)
            return self.out(y).softmax(-1), z, h[0]

    net = Net().eval()
    program = li.from_onnx(exported(net, torch.zeros(2, 8, 5), ["y", "z", "h"]), stateful=True)
    step = program.entries["step"]
    assert [str(v.type) for v in step.params[:1]] == ["f32[B,2*T,5]"]
    assert [n.rsplit(".", 1)[1] for n in program.state] == ["context", "context", "h", "c", "h", "c", "h"]
    x = rng.standard_normal((3, 34, 5)).astype(np.float32)
    want = [v.detach().numpy() for v in net(torch.tensor(x))]
    got = by_meaning(program, x, [2 * n for n in parts(rng, 17)])
    near(np.concatenate([o["y"] for o in got], 1), want[0], "y")
    near(np.concatenate([o["z"] for o in got], 1), want[1], "z")
    near(got[-1]["h"], want[2], "h")
    state = first_state(program, {"B": 3})
    with pytest.raises(li.CallError, match=r"x: axis 1 has size 3; expected 2\*T"):
        li.interpret(program.entries["main"], {"x": x[:, :3], **state})


def exported(net: Any, x: Any, outputs: list[str]) -> bytes:
    """A file by PyTorch's exporter, batch and steps open."""
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (x,), file, input_names=["x"], output_names=outputs, dynamic_axes={"x": {0: "B", 1: "T"}},
            dynamo=False, opset_version=17,
        )  # fmt: skip
    return file.getvalue()


def test_first_states_of_weights(rng: np.random.Generator) -> None:
    """A learned first state, repeated over the batch, starts the stream; one that an input gives is refused."""
    H = 3
    w = {"w": rng.standard_normal((1, 3 * H, 4)), "r": rng.standard_normal((1, 3 * H, H)), "h": rng.standard_normal(H)}
    w = {n: a.astype(np.float32) for n, a in w.items()}
    nodes = [
        om.node("Shape", ["x"], ["b"], start=1, end=2),
        om.node("Concat", ["one", "b", "wide"], ["s"], axis=0, name="join"),
        om.node("Expand", ["h", "s"], ["h0"]),
        om.node("GRU", ["x", "w", "r", "", "", "h0"], ["y", "last"], hidden_size=H),
    ]
    ints = {"one": np.array([1]), "wide": np.array([H])}
    made = om.model(nodes, {"x": (["T", "B", 4], np.float32)}, ["y", "last"], {**w, **ints})
    program = li.from_onnx(made, stateful=True)
    x = rng.standard_normal((9, 2, 4)).astype(np.float32)
    y, last = om.run(made, {"x": x})
    got = by_meaning(program, x, [4, 1, 4], time=0)
    near(np.concatenate([o["y"] for o in got]), y, "y")
    near(got[-1]["last"], last, "last")


WRONG: list[tuple[Any, str]] = [
    ({"q": "y"}, "stateful has the input 'q'; the model has x, h"),
    ({"h": "q"}, "stateful has the output 'q'; the model has y, n, wide, whole, b"),
    ({"h": "wide"}, r"stateful: the input h is f32\[1,B,3\], the output wide is f32\[1,B,6\]"),
    ({"h": "whole"}, r"stateful: the input h is f32\[1,B,3\], the output whole is i64\[1,B,3\]"),
    ({}, "stateful names no input"),
    ({"h": "n", "x": "n"}, "stateful feeds one output to two inputs"),
    (5, "stateful is 5, not a bool and not names"),
    (True, r"the_RNN \(RNN\): its first state comes from the input h: name it in `stateful`"),
]


@pytest.mark.parametrize(("stateful", "why"), WRONG, ids=[w[:40] for _, w in WRONG])
def test_states_that_are_named_wrongly(stateful: Any, why: str, rng: np.random.Generator) -> None:
    with pytest.raises(li.ModelError, match=why):
        li.from_onnx(with_state(rng, "B"), stateful=stateful)


def with_state(rng: np.random.Generator, batch: str) -> Any:
    """An RNN whose first state is an input h [1, batch, 3], with outputs of other types beside its last."""
    w = {"w": rng.standard_normal((1, 3, 4)), "r": rng.standard_normal((1, 3, 3))}
    nodes = [
        om.node("RNN", ["x", "w", "r", "", "", "h"], ["y", "n"], hidden_size=3),
        om.node("Concat", ["n", "n"], ["wide"], axis=2),
        om.node("Cast", ["n"], ["whole"], to=7),
        om.node("Abs", ["n"], ["b"]),
    ]
    inputs: dict[str, Any] = {"x": (["T", "B", 4], np.float32), "h": ([1, batch, 3], np.float32)}
    return om.model(nodes, inputs, ["y", "n", "wide", "whole", "b"], {k: v.astype("f4") for k, v in w.items()})


def test_a_state_that_is_named(rng: np.random.Generator) -> None:
    made = with_state(rng, "B")
    program = li.from_onnx(made, stateful={"h": "n"})
    assert set(program.entries) == {"main", "step", "get_state", "set_state", "reset"}
    x, h = rng.standard_normal((7, 2, 4)).astype(np.float32), rng.standard_normal((1, 2, 3)).astype(np.float32)
    want = om.run(made, {"x": x, "h": h})[0]
    with li.compile(program) as exe:
        exe.entries["set_state"](h=h)
        got = [exe.entries["step"](x=x[:3])["y"], exe.entries["step"](x=x[3:])["y"]]
        near(np.concatenate(got), want, "y")
        exe.entries["reset"]()
        near(exe.entries["step"](x=x)["y"], om.run(made, {"x": x, "h": 0 * h})[0], "from zero")


def test_sizes_of_a_state_that_are_one() -> None:
    """Of a model that names the rows of its state otherwise than those that it gives."""
    nodes = [om.node("Add", ["x", "h"], ["n"])]
    made = om.model(nodes, {"x": (["B", 3], np.float32), "h": (["rows", 3], np.float32)}, ["n"])
    with pytest.raises(li.ModelError):
        li.from_onnx(made)
    nodes = [om.node("MatMul", ["x", "w"], ["n"]), om.node("ReduceSum", ["h", "all"], ["y"], keepdims=0)]
    literals = {"w": np.eye(3, dtype="f4"), "all": np.array([0, 1])}
    made = om.model(nodes, {"x": (["B", 3], np.float32), "h": (["rows", 3], np.float32)}, ["n", "y"], literals)
    program = li.from_onnx(made, stateful={"h": "n"})
    assert len({str(p.type) for p in program.entries["step"].params}) == 1
