"""The report of a module, PyTorch as the original of a verification, and files, which are refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes")  # of torch.export, of any LSTM
B, T = 3, 5


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def tagger() -> Any:
    import torch

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 6, batch_first=True, bidirectional=True)
            self.out = torch.nn.Linear(12, 2)

        def forward(self, x: Any) -> Any:
            return self.out(torch.tanh(self.lstm(x)[0]))

    torch.manual_seed(2)
    return Tagger().eval()


def test_report() -> None:
    import torch

    from lstm_ir.importers.torch.examine import examine

    module = tagger()
    found = examine(module, (torch.zeros(B, T, 4),), sizes={"x": ("B", "T", None)})
    report, graph = found.report, found.graph
    assert graph is not None
    assert report.ok
    count = sum(v.numel() for v in module.state_dict().values())
    assert (report.file, report.bytes, report.format) == ("Tagger", 4 * count, f"PyTorch {torch.__version__}")
    assert (report.weights.count, report.weights.bytes) == (len(module.state_dict()), 4 * count)
    assert (report.inputs, report.outputs) == (("x: f32[B,T,4]",), ("y: f32[B,T,2]",))
    assert {s.name: s.axes for s in report.sizes} == {"B": ("x axis 0",), "T": ("x axis 1",)}
    ops = {o.op: (o.nodes, o.taken) for o in report.ops}
    assert ops["aten.linear.default"] == ops["aten.tanh.default"] == ops["lstm_ir.lstm.default"] == (1, 1)
    assert all(o.nodes == o.taken for o in report.ops)
    (lstm,) = report.recurrences
    assert (lstm.T, lstm.B, lstm.I, lstm.H) == ("T", "B", "4", "6")


def test_report_of_what_is_refused() -> None:
    """What reads a refused result is passed over; bodies that nobody walked are not read."""
    import torch

    from lstm_ir.importers.torch.examine import examine

    class Foreign(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return torch.linalg.svd(x).S + torch.fft.rfft(x * self.w).abs().sum()

    found = examine(Foreign(), (torch.ones(2, 3, 3),))
    assert found.graph is None
    assert sorted(r.op for r in found.report.refusals) == ["aten._fft_r2c.default", "aten._linalg_svd.default"]
    assert all("at test_torch_report.py:" in r.reason for r in found.report.refusals)
    ops = {o.op: (o.nodes, o.taken, o.refused, o.passed) for o in found.report.ops}
    assert ops["aten.mul.Tensor"] == (1, 1, 0, 0)
    assert ops["aten._linalg_svd.default"] == (1, 0, 1, 0)
    assert ops["aten.add.Tensor"] == (1, 0, 0, 1)
    assert found.report.weights.count == 1


def _asking(ask: Any) -> Any:
    import torch

    class Asking(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.out = torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return ask(self.out(x))

    return Asking()


ASKED: dict[str, Any] = {
    "branch": lambda y: y + 1 if y.sum() > 0 else y,
    "number": lambda y: y[: int(y.sum())],
    "list": lambda y: y * max(float(v) for v in y[0]),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_value_that_python_asks_for(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The refusal has the module's line and what to write; the report lists it, and nothing is printed."""
    import torch

    module, x = _asking(ASKED[name]), torch.ones(3, 4)
    line = ASKED[name].__code__.co_firstlineno
    said = rf"Python asks for the value of a tensor.*, at test_torch_report\.py:{line}: .*torch\.where or torch\.cond"
    with pytest.raises(li.ModelError, match=said) as raised:
        li.from_torch(module, (x,), sizes={"x": ("B", None)})
    assert len(raised.value.refusals) == 1
    found = li.examine(module, (x,), sizes={"x": ("B", None)})
    assert found.graph is None
    assert [str(r) for r in found.report.refusals] == list(raised.value.refusals)
    assert (found.report.inputs, found.report.bytes) == (("x: f32[B,4]",), 40)
    assert "torch.cond" in str(found).replace("\n", " ")
    assert capfd.readouterr() == ("", "")


def test_a_report_has_what_the_export_refuses() -> None:
    """Errors of the module itself, a branch on a size, buffers that change: refusals, not errors."""
    import torch

    n = torch.nn
    for module, sizes, said in (
        (_asking(lambda y: y * float(y.detach().numpy()[0, 0])), None, r"numpy\(\).*, at test_torch_report\.py:"),
        (_asking(lambda y: y * 2 if y.shape[0] > 2 else y), {"x": ("B", None)}, "the module does something else"),
        (_asking(lambda y: y + y.new_ones(3, 2)), {"x": ("B", None)}, "is 3 whatever the call"),
        (n.Sequential(n.BatchNorm1d(4)), None, "forward writes to it; .*module.eval"),
        (
            _asking(lambda y: n.utils.rnn.pad_packed_sequence(n.utils.rnn.PackedSequence(y, torch.tensor([3])))),
            None,
            r"a PackedSequence that pack_padded_sequence did not make is not taken, at test_torch_report\.py:",
        ),
    ):
        name = "input" if isinstance(module, n.Sequential) else "x"
        found = li.examine(module, (torch.ones(3, 4),), sizes=sizes)
        assert found.graph is None
        assert any(re.search(said, r.reason) for r in found.report.refusals), found.report.refusals
        assert found.report.inputs == (f"{name}: f32[{'B' if sizes else 3},4]",)
    for given, sizes, said in (
        ((np.ones((3, 4), np.float32),), None, r"example: x is of NumPy; give a tensor: torch\.as_tensor\(x\)"),
        ((torch.ones(3, 4),), {"y": ("B", None)}, "sizes has 'y'"),
    ):
        with pytest.raises(li.ModelError, match=said):
            li.examine(_asking(lambda y: y), given, sizes=sizes)


def test_an_exported_program_is_a_module() -> None:
    """Sizes that PyTorch's own export leaves open, and those of a loop, which it does not."""
    import torch

    from lstm_ir.importers.torch.examine import examine
    from lstm_ir.importers.torch.reference import Torch

    x, batch = torch.randn(B, T, 4), torch.export.Dim("n", min=1)
    ep = torch.export.export(tagger(), (x,), dynamic_shapes={"x": {0: batch}})
    for sizes, name in (({"x": {0: "B"}}, "B"), (None, "x_0")):
        found = examine(ep, sizes=sizes)
        assert found.graph is not None
        assert found.report.inputs == (f"x: f32[{name},5,4]",)
        assert li.verify(found.graph, against=Torch(ep), seconds=0.0, cold=False).ok
    with pytest.raises(li.ModelError, match="sizes: x axis 1 is 5, no open size"):
        examine(ep, sizes={"x": {1: "T"}})


def test_pytorch_is_the_original() -> None:
    import torch

    from lstm_ir.importers.torch.reference import Torch

    module = tagger()
    graph = li.from_torch(module, (torch.zeros(B, T, 4),), sizes={"x": ("B", "T", None)})
    original = Torch(module)
    assert original.name == f"Tagger by PyTorch {torch.__version__}"
    assert original.bytes == sum(v.numel() * 4 for v in module.parameters())
    assert li.verify(graph, against=original, seconds=0.0, cold=False).ok
    with torch.no_grad():
        module.out.bias[1] += 0.01
    assert not li.verify(graph, against=original, seconds=0.0, cold=False).ok


@pytest.mark.slow
def test_nested_inputs_of_an_original(rng: np.random.Generator) -> None:
    """States in a tuple, a dict, parameters by place alone; a number that the example fixed."""
    import torch

    from lstm_ir.importers.torch.reference import Torch

    class Nested(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 6)

        def forward(self, x: Any, /, state: Any, more: Any, times: float = 1.0, *rest: Any) -> Any:
            y, last = self.lstm(x, state)
            total = y * more["gain_of"] * times
            for r in rest:
                total = total + r
            return {"y": total, "last": last}

    h = torch.randn(1, B, 6)
    example = (torch.randn(T, B, 4), (h, h * 2), {"gain_of": torch.randn(6)})
    sizes: dict[str, Any] = {"x": ("T", "B", None), "state_0": {1: "B"}, "state_1": {1: "B"}}
    graph = li.from_torch(Nested(), example, sizes=sizes)
    assert graph.input_names == ("x", "state_0", "state_1", "more_gain_of")
    assert graph.output_names == ("y", "last_0", "last_1")
    module = Nested()
    graph = li.from_torch(module, example, sizes=sizes)
    assert li.verify(graph, against=Torch(module), seconds=0.0, cold=False).ok
    scaled = (*example, 2.5, torch.randn(6))
    graph = li.from_torch(module, scaled, sizes=sizes)
    assert li.verify(graph, against=Torch(module, scaled), seconds=0.0, cold=False).ok
    assert not li.verify(
        li.from_torch(module, example, sizes=sizes), against=_doubled(module), seconds=0.0, cold=False
    ).ok
    with pytest.raises(li.CallError, match="forward has no parameter for 'other'"):
        Torch(module)({"other": np.ones(3, np.float32)})


def _doubled(module: Any) -> Any:
    from lstm_ir.importers.torch.reference import Torch

    original = Torch(module)
    return lambda arrays: {n: a * 2 for n, a in original(arrays).items()}


@pytest.mark.parametrize("entry", ["from_torch", "examine", "Torch"])
def test_files_are_refused_by_name(entry: str, tmp_path: Path) -> None:
    """A file whose reading would run code is not touched."""
    from lstm_ir.importers.torch.examine import examine
    from lstm_ir.importers.torch.reference import Torch

    take: Any = {"from_torch": li.from_torch, "examine": examine, "Torch": Torch}[entry]
    for name, said in (
        ("m.pt2", r"the file 'm\.pt2': torch\.export\.load unpickles.*from_torch\(torch\.export\.load\(path\)\)"),
        ("m.pt", r"the file 'm\.pt': it may be a pickle.*the live nn\.Module.*\.safetensors"),
        ("m.pth", "may be a pickle"),
        ("pytorch_model.bin", "may be a pickle"),
    ):
        for given in (tmp_path / name, str(tmp_path / name)):
            with pytest.raises(li.ModelError, match=said):
                take(given)
    with pytest.raises(li.ModelError, match="not bytes: it may be a pickle"):
        take(b"PK\x03\x04")
    with pytest.raises(li.ModelError, match="got dict"):
        take({"out.weight": np.ones(3)})
