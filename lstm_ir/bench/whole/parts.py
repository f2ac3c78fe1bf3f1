"""LSTM layers, embeddings and dense layers in the words of each library.

Weights of layer k: `lstm{k}/w_ih` [D,4H,I], `lstm{k}/w_hh` [D,4H,H], `lstm{k}/b` [D,4H], gates i, f, g, o.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.bench.subject import Array

Weights = dict[str, Array]
Shapes = dict[str, tuple[int, ...]]


def lstm_shapes(width: int, hidden: int, layers: int, directions: int = 1, name: str = "lstm") -> Shapes:
    """Of `layers` layers one above the other."""
    out: Shapes = {}
    for k in range(layers):
        out |= {
            f"{name}{k}/w_ih": (directions, 4 * hidden, width), f"{name}{k}/w_hh": (directions, 4 * hidden, hidden),
            f"{name}{k}/b": (directions, 4 * hidden),
        }  # fmt: skip
        width = directions * hidden
    return out


# -- this project


def ours(
    y: Any, w: Any, layers: int, directions: int = 1, lengths: Any = None, name: str = "lstm", **start: Any
) -> Any:
    """(y, h_n, c_n) of the last of the layers; `w` holds values."""
    import lstm_ir as li

    out: Any = (y, None, None)
    direction = "bidirectional" if directions == 2 else "forward"
    for k in range(layers):
        given = [w[f"{name}{k}/{n}"] for n in ("w_ih", "w_hh", "b")]
        out = li.lstm(out[0], *given, lengths=lengths, direction=direction, **start)
    return out


# -- torch


def torch_lstm(w: Weights, layers: int, name: str = "lstm") -> Any:
    """torch.nn.LSTM with these weights; its second bias is zero and is not trained."""
    import torch as t

    directions, rows, width = w[f"{name}0/w_ih"].shape
    module = t.nn.LSTM(width, rows // 4, layers, bidirectional=directions == 2)
    with t.no_grad():
        for k in range(layers):
            for d in range(directions):
                tail = f"_l{k}" + ("_reverse" if d else "")
                for theirs, own in (("weight_ih", "w_ih"), ("weight_hh", "w_hh"), ("bias_ih", "b")):
                    getattr(module, theirs + tail).copy_(t.from_numpy(w[f"{name}{k}/{own}"][d]))
                getattr(module, "bias_hh" + tail).zero_().requires_grad_(False)
    return module


def torch_weight(a: Array) -> Any:
    """A parameter of its own memory."""
    import torch as t

    return t.nn.Parameter(t.from_numpy(a.copy()))


def torch_packed(lstm: Any, x: Any, lengths: Any) -> Any:
    """(y, (h_n, c_n)) of rows that end at their lengths; zeros behind them."""
    import torch as t

    rnn = t.nn.utils.rnn
    y, last = lstm(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
    return rnn.pad_packed_sequence(y, total_length=x.shape[0])[0], last


# -- JAX


def jax_lstm(y: Any, w: Any, layers: int, lengths: Any = None, name: str = "lstm", start: Any = None) -> Any:
    """(y, (h_n, c_n)) of the last layer, h_n and c_n [D,B,H]."""
    import jax as j
    import jax.numpy as jnp

    steps = jnp.arange(y.shape[0])
    last: Any = None
    for k in range(layers):
        w_ih, w_hh, b = (w[f"{name}{k}/{n}"] for n in ("w_ih", "w_hh", "b"))
        hidden = w_hh.shape[-1]
        outs, ends = [], []
        for d in range(w_ih.shape[0]):

            def step(carry: Any, row: Any, r: Any = w_hh[d]) -> Any:
                h, c = carry
                p, t = row
                i, f, g, o = jnp.split(p + h @ r.T, 4, axis=-1)
                new_c = j.nn.sigmoid(f) * c + j.nn.sigmoid(i) * jnp.tanh(g)
                new_h = j.nn.sigmoid(o) * jnp.tanh(new_c)
                if lengths is None:
                    return (new_h, new_c), new_h
                live = (t < lengths)[:, None]
                kept = jnp.where(live, new_h, h), jnp.where(live, new_c, c)
                return kept, jnp.where(live, new_h, 0.0)

            zero = jnp.zeros((y.shape[1], hidden), y.dtype)
            first = (zero, zero) if start is None else (start[0][d], start[1][d])
            end, out = j.lax.scan(step, first, (y @ w_ih[d].T + b[d], steps), reverse=bool(d))
            outs.append(out)
            ends.append(end)
        y = jnp.concatenate(outs, -1)
        last = tuple(jnp.stack(parts) for parts in zip(*ends, strict=True))
    return y, last


# -- ONNX


class OnnxNodes:
    """Nodes and constants of an ONNX graph as they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def constant(self, a: Array) -> str:
        """The name of a constant."""
        import onnx

        self.tensors.append(onnx.numpy_helper.from_array(np.ascontiguousarray(a), f"k{len(self.tensors)}"))
        return str(self.tensors[-1].name)

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """The name of the result, or a list of names."""
        import onnx

        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(onnx.helper.make_node(op, list(inputs), names, **attrs))
        return names[0] if outputs == 1 else names

    def dense(self, x: str, w: Array, b: Array) -> str:
        """x times the transpose of w, plus b."""
        return str(self.add("Add", self.add("MatMul", x, self.constant(w.T)), self.constant(b)))

    def lstm(self, x: str, w: Weights, layer: int, lengths: str = "", name: str = "lstm", start: Any = ("", "")) -> Any:
        """One layer: y [T,B,D*H], h_n and c_n [D,B,H]."""
        parts = [w[f"{name}{layer}/{n}"] for n in ("w_ih", "w_hh", "b")]
        hidden = parts[1].shape[-1]
        order = np.r_[:hidden, 3 * hidden : 4 * hidden, hidden : 3 * hidden]  # i, f, g, o -> i, o, f, g
        w_ih, w_hh, b = (a[:, order] for a in parts)
        both = np.concatenate([b, 0 * b], axis=1)
        way = "bidirectional" if len(w_ih) == 2 else "forward"
        given = [x, *map(self.constant, (w_ih, w_hh, both)), lengths, *start]
        y, h, c = self.add("LSTM", *given, outputs=3, hidden_size=hidden, direction=way)
        wide = self.constant(np.array([0, 0, len(w_ih) * hidden]))  # 0: the size as it is
        return self.add("Reshape", self.add("Transpose", y, perm=[0, 2, 1, 3]), wide), h, c

    def model(self, inputs: dict[str, tuple[str, Any]], outputs: dict[str, Any]) -> Any:
        """The model: inputs name -> ("i64" or "f32", shape), outputs value -> shape, all f32."""
        import onnx

        kinds = {"f32": onnx.TensorProto.FLOAT, "i32": onnx.TensorProto.INT32, "i64": onnx.TensorProto.INT64}
        info = onnx.helper.make_tensor_value_info
        ins = [info(n, kinds[k], shape) for n, (k, shape) in inputs.items()]
        outs = [info(n, kinds["f32"], shape) for n, shape in outputs.items()]
        graph = onnx.helper.make_graph(self.nodes, "bench", ins, outs, self.tensors)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
