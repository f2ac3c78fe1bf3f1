"""Records cells as exporters write them, into tests/data/onnx_cells: models, inputs, and the framework's results.

    python tests/oracles/record_onnx_cells.py torch     needs torch and onnxscript
    python tests/oracles/record_onnx_cells.py keras     needs TensorFlow and tf2onnx

Exporters are not installed with the tests: what they wrote is recorded. PyTorch has two, by TorchScript and by
torch.export (dynamo).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx

FOLDER = Path(__file__).parents[1] / "data" / "onnx_cells"
B, I, H, STEPS = 4, 5, 7, 3


def write(path: Path, model: Any) -> None:
    """The model without remarks, which hold paths of the machine that wrote it."""
    del model.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    del model.graph.metadata_props[:]
    for part in (
        *model.graph.node,
        *model.graph.initializer,
        *model.graph.value_info,
        *model.graph.input,
        *model.graph.output,
    ):
        part.doc_string = ""
        del part.metadata_props[:]
    path.write_bytes(model.SerializeToString())


def torch_modules() -> dict[str, tuple[Any, tuple[tuple[str, tuple[Any, ...]], ...]]]:
    """By name a module and its inputs with their shapes; "B" is open."""
    import torch as t

    class Step(t.nn.Module):  # type: ignore[misc]
        def __init__(self, kind: str, bias: bool = True) -> None:
            super().__init__()
            self.cell = (t.nn.LSTMCell if kind == "lstm" else t.nn.GRUCell)(I, H, bias=bias)
            self.kind = kind

        def forward(self, x: Any, h: Any, c: Any = None) -> Any:
            return self.cell(x, (h, c)) if self.kind == "lstm" else self.cell(x, h)

    class Unrolled(Step):
        def forward(self, x: Any, h: Any, c: Any = None) -> Any:
            ys = []
            for row in x.unbind(0):
                if self.kind == "lstm":
                    h, c = self.cell(row, (h, c))
                else:
                    h = self.cell(row, h)
                ys.append(h)
            return t.stack(ys)

    class Packed(t.nn.Module):  # type: ignore[misc]
        """The form of silero's decoder: both states in one tensor [2,B,H], a cell, and a head."""

        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = t.nn.LSTMCell(I, H), t.nn.Conv1d(H, 1, 1)

        def forward(self, x: Any, state: Any) -> Any:
            h, c = self.cell(x.squeeze(-1), (state[0], state[1]))
            out = t.sigmoid(self.head(t.relu(h.unsqueeze(-1))))
            return out.squeeze(1).mean(dim=1, keepdim=True), t.stack([h, c])

    x, h, c = ("x", ("B", I)), ("h", ("B", H)), ("c", ("B", H))
    rows = ("x", (STEPS, "B", I))
    return {
        "lstm": (Step("lstm"), (x, h, c)),
        "lstm_no_bias": (Step("lstm", False), (x, h, c)),
        "lstm_unrolled": (Unrolled("lstm"), (rows, h, c)),
        "lstm_packed": (Packed(), (("x", ("B", I, 1)), ("state", (2, "B", H)))),
        "gru": (Step("gru"), (x, h)),
        "gru_no_bias": (Step("gru", False), (x, h)),
        "gru_unrolled": (Unrolled("gru"), (rows, h)),
    }


def record_torch() -> None:
    """Every module by both exporters."""
    import torch as t

    t.manual_seed(5)
    for name, (module, inputs) in torch_modules().items():
        module.eval()
        with t.no_grad():
            for p in module.parameters():
                p.copy_(0.5 * t.randn(p.shape))
            arrays = {n: t.randn([B if d == "B" else d for d in shape]) for n, shape in inputs}
            out = module(*arrays.values())
        outs = out if isinstance(out, tuple) else (out,)
        axes = {n: {k: "B" for k, d in enumerate(shape) if d == "B"} for n, shape in inputs}
        batch = t.export.Dim("B")
        for exporter in ("script", "dynamo"):
            path = FOLDER / f"torch_{exporter}_{name}.onnx"
            names = [n for n, _ in inputs], [f"out{k}" for k in range(len(outs))]
            if exporter == "script":
                more: dict[str, Any] = {"dynamic_axes": axes, "dynamo": False}
            else:
                shapes = tuple({k: batch for k in found} for found in axes.values())
                more = {"dynamic_shapes": shapes, "dynamo": True, "external_data": False, "verbose": False}
            t.onnx.export(
                module, tuple(arrays.values()), str(path), input_names=names[0], output_names=names[1], **more
            )
            write(path, onnx.load(path))
            found = {n: a.numpy() for n, a in (*arrays.items(), *zip(names[1], outs, strict=True))}
            np.savez(path.with_suffix(".npz"), **found)


def record_keras() -> None:
    """Every cell of Keras as tf2onnx writes it."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import tensorflow as tf
    import tf2onnx

    rng = np.random.default_rng(6)
    forms: dict[str, dict[str, Any]] = {
        "lstm": {},
        "lstm_hard_sigmoid": {"recurrent_activation": "hard_sigmoid"},
        "lstm_relu": {"activation": "relu"},
        "lstm_no_bias": {"use_bias": False},
        "gru": {},
        "gru_reset_before": {"reset_after": False},
        "gru_no_bias": {"use_bias": False},
    }
    for name, options in forms.items():
        lstm = name.startswith("lstm")
        cell = (keras.layers.LSTMCell if lstm else keras.layers.GRUCell)(H, **options)
        inputs = [keras.Input((I,), name="x"), *(keras.Input((H,), name=n) for n in ("hc" if lstm else "h"))]
        _, states = cell(inputs[0], inputs[1:])
        model = keras.Model(inputs, list(states) if isinstance(states, (list, tuple)) else [states])
        model.set_weights([0.5 * rng.standard_normal(w.shape).astype("f4") for w in model.get_weights()])
        arrays = [rng.standard_normal((B, v.shape[1])).astype("f4") for v in inputs]
        outs = model(arrays)
        outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        spec = [tf.TensorSpec([None, v.shape[1]], tf.float32, name=v.name) for v in inputs]
        path = FOLDER / f"keras_tf2onnx_{name}.onnx"
        proto, _ = tf2onnx.convert.from_function(tf.function(lambda *a, m=model: m(list(a))), input_signature=spec)
        write(path, proto)
        found = dict(zip((v.name for v in inputs), arrays, strict=True))
        found |= {o.name: a.numpy() for o, a in zip(proto.graph.output, outs, strict=True)}
        np.savez(path.with_suffix(".npz"), **found)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    {"torch": record_torch, "keras": record_keras}[sys.argv[1]]()
