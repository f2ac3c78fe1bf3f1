"""PyTorch's models as ONNX files, by both of its exporters, with the sizes that have names left open."""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

ROOMS = {  # the models of each file; named here since the files need torch
    "exported_speech": (
        "text line", "transcriber", "transducer", "prediction step", "diarizer", "basecaller", "keyword spotter",
        "voice activity",
    ),
    "exported_sound": (
        "complex mask", "dual path", "deep filter", "codec", "suppressor", "amplifier", "separator", "magnitudes",
    ),
    "exported_series": (
        "tagger", "gated tagger", "character tagger", "forecaster", "horizon", "fusion", "speaker", "policy", "actor",
        "world",
    ),
}  # fmt: skip
NAMES = tuple(n for names in ROOMS.values() for n in names)
WAYS = ("trace", "export")  # torch's older exporter, and the newer
OPSETS = {"trace": range(13, 21), "export": range(18, 26)}
INTEGERS = 9  # word numbers are below
# The newer exporter of torch 2.13 counts the steps of recurrent layers. Of some models it makes the size a number by
# itself, others it writes wrong or not at all unless these sizes are numbers from the start. Rows packed by their
# lengths it does not take.
CLOSED = {
    "text line": "W", "transcriber": "BT", "diarizer": "N", "basecaller": "N", "complex mask": "T", "deep filter": "T",
    "codec": "N", "amplifier": "T", "separator": "N", "magnitudes": "T", "character tagger": "T", "forecaster": "T",
    "horizon": "T", "speaker": "N",
}  # fmt: skip
FIRST = {"fusion": 14}  # its first operator set: the older exporter has no Trilu before
PACKED = ("tagger", "gated tagger")


@dataclass(frozen=True)
class Exported:
    """One model, what it takes, and the sizes of some calls."""

    name: str
    module: Any
    inputs: Mapping[str, tuple[Any, ...]]  # shapes; "i" first stands for integers
    calls: list[dict[str, int]]

    def sizes(self, data: bytes) -> list[dict[str, int]]:
        """Those of the calls, with the file's numbers for what the exporter closed."""
        import onnx

        closed: dict[str, int] = {}
        for v in onnx.load_from_string(data).graph.input:
            shape = [d for d in self.inputs[v.name] if d != "i"]
            for d, there in zip(shape, v.type.tensor_type.shape.dim, strict=True):
                if isinstance(d, str) and there.HasField("dim_value"):
                    closed[d] = there.dim_value
        return [s | closed for s in self.calls]

    def arrays(self, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Any]:
        """Inputs of one call; lengths are in falling order, the first of them whole."""
        found: dict[str, Any] = {}
        for name, shape in self.inputs.items():
            numbers = tuple(sizes[d] if isinstance(d, str) else d for d in shape if d != "i")
            if name == "lengths":
                found[name] = np.sort(rng.integers(1, sizes["T"] + 1, numbers))[::-1].copy()
                found[name][0] = sizes["T"]
            elif shape[0] == "i":
                found[name] = rng.integers(0, INTEGERS, numbers)
            else:
                found[name] = (0.7 * rng.standard_normal(numbers)).astype(np.float32)
        return found

    def results(self, arrays: Mapping[str, Any]) -> list[Any]:
        """What torch gives."""
        import torch

        with torch.no_grad():
            found = self.module(*(torch.from_numpy(a) for a in arrays.values()))
        return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]

    def exported(self, way: str, opset: int, rng: np.random.Generator) -> bytes:
        """The file, made from a call of other sizes than those that are tried."""
        import torch

        closed = CLOSED.get(self.name, "") if way == "export" else ""
        sizes = {name: size + (name not in closed) for name, size in self.calls[0].items()}
        arrays = self.arrays(sizes, rng)
        args = tuple(torch.from_numpy(a) for a in arrays.values())
        axes = {
            n: {a: d for a, d in enumerate([s for s in shape if s != "i"]) if isinstance(d, str) and d not in closed}
            for n, shape in self.inputs.items()
        }
        count = len(self.results(arrays))
        file = io.BytesIO()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of tracing, and of the older exporter's age
            given: dict[str, Any] = {"dynamic_axes": axes}
            if way == "export":
                names = {d for named in axes.values() for d in named.values()}
                dims = {d: torch.export.Dim(d, min=1 if d == "B" else 2) for d in sorted(names)}
                given = {"dynamic_shapes": tuple({a: dims[d] for a, d in named.items()} for named in axes.values())}
            torch.onnx.export(
                self.module, args, file, input_names=list(arrays), output_names=[f"y{k}" for k in range(count)],
                opset_version=opset, dynamo=way == "export", verbose=False, **given,
            )  # fmt: skip
        return file.getvalue()


def built(name: str, seed: int) -> Exported:
    """The model of a name with random weights, statistics of BatchNorm among them."""
    import torch

    room = next(r for r, names in ROOMS.items() if name in names)
    kind, inputs, calls = importlib.import_module(room).MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = kind().eval()
        for key, buffer in module.named_buffers():
            if key.endswith("running_mean"):
                buffer.normal_(0, 0.3)
            elif key.endswith("running_var"):
                buffer.uniform_(0.5, 2)
    return Exported(name, module, inputs, calls)
