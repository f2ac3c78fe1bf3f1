"""Who is measured: this project and its peers, each as a function from an input array to a finished
result.

All get the same weights (PyTorch's names and gate order) and the same inputs, in their default
settings, on the same number of threads. A training step gives the loss mean(y^2) and the gradients
of all weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.bench_points import Point

Array = np.ndarray[Any, Any]
Run = Callable[[Array], Any]
Weights = list[
    tuple[Array, Array, Array]
]  # per layer and direction: w_ih, w_hh, b (GRU: b_ih, b_hn zero)


def weights(point: Point, rng: np.random.Generator) -> Weights:
    """Uniform in +-1/sqrt(H), as PyTorch starts; one bias, the other is zero."""
    out, width = [], point.I
    for _ in range(point.layers):
        for _ in range(point.directions):
            rows = point.gates * point.H
            shapes = ((rows, width), (rows, point.H), (rows,))
            s = point.H**-0.5
            out.append(tuple(rng.uniform(-s, s, shape).astype(np.float32) for shape in shapes))
        width = point.directions * point.H
    return out  # type: ignore[return-value]


def ours(point: Point, given: Weights, threads: int) -> Run:
    """lstm-ir on the CPU, sizes written into the module as users of one size do."""
    import lstm_ir as li

    graph = graph_of(point, given)
    if point.training:
        graph = li.grad(graph, of="loss", wrt=list(graph.weights))
    exe = li.compile(graph, "cpu")
    return lambda a: exe(x=a)


def graph_of(point: Point, given: Weights) -> Any:
    """The point's model as a graph: output y, or loss where it trains."""
    import lstm_ir as li

    x = li.input("x", (point.T, point.B, point.I))
    y = x
    direction = "bidirectional" if point.directions == 2 else "forward"
    for layer in range(point.layers):
        parts = given[layer * point.directions : (layer + 1) * point.directions]
        w_ih, w_hh, b = (
            li.weight(f"layer{layer}/{n}", np.stack([p[i] for p in parts]))
            for i, n in enumerate(("w_ih", "w_hh", "b"))
        )
        if point.cell == "lstm":
            y = li.lstm(y, w_ih, w_hh, b, direction=direction)[0]
        else:
            zero = np.zeros((point.directions, point.H), np.float32)
            y = li.gru(y, w_ih, w_hh, b, b_hn=zero, reset_after=True, direction=direction)[0]
    outputs = {"loss": li.mean(y * y)} if point.training else {"y": y}
    return li.Graph("bench", [x], outputs)


def torch(point: Point, given: Weights, threads: int) -> Run:
    """torch.nn.LSTM / GRU, eager; inference mode where it does not train."""
    import torch as t

    t.set_num_threads(threads)
    kind = t.nn.LSTM if point.cell == "lstm" else t.nn.GRU
    m = kind(point.I, point.H, point.layers, bidirectional=point.directions == 2)
    with t.no_grad():
        for i, (w_ih, w_hh, b) in enumerate(given):
            layer, d = divmod(i, point.directions)
            tail = f"_l{layer}" + ("_reverse" if d else "")
            for name, value in (
                ("weight_ih", w_ih),
                ("weight_hh", w_hh),
                ("bias_ih", b),
                ("bias_hh", 0 * b),
            ):
                getattr(m, name + tail).copy_(t.from_numpy(value))

    def infer(a: Array) -> Any:
        with t.inference_mode():
            return m(t.from_numpy(a))[0]

    def train(a: Array) -> Any:
        m.zero_grad(set_to_none=True)
        y = m(t.from_numpy(a))[0]
        loss = (y * y).mean()
        loss.backward()
        return y.detach(), [p.grad for p in m.parameters()]

    return train if point.training else infer


def onnxruntime(point: Point, given: Weights, threads: int) -> Run | None:
    """onnxruntime's LSTM / GRU; it has no training here."""
    if point.training:
        return None
    import onnx
    import onnxruntime as ort

    nodes, tensors, value = [], [], "x"
    order = (
        (0, 3, 1, 2) if point.cell == "lstm" else (1, 0, 2)
    )  # i,f,g,o -> i,o,f,c; r,z,n -> z,r,h
    for layer in range(point.layers):
        parts = given[layer * point.directions : (layer + 1) * point.directions]
        names = [f"{n}{layer}" for n in ("W", "R", "B")]
        stacked = [np.stack([_reorder(p[i], order) for p in parts]) for i in range(3)]
        stacked[2] = np.concatenate([stacked[2], 0 * stacked[2]], axis=1)
        tensors += [onnx.numpy_helper.from_array(a, n) for a, n in zip(stacked, names, strict=True)]
        extra = {} if point.cell == "lstm" else {"linear_before_reset": 1}
        direction = "bidirectional" if point.directions == 2 else "forward"
        nodes.append(
            onnx.helper.make_node(
                point.cell.upper(),
                [value, *names],
                [f"r{layer}"],
                hidden_size=point.H,
                direction=direction,
                **extra,
            )
        )
        nodes.append(
            onnx.helper.make_node("Transpose", [f"r{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3])
        )
        nodes.append(onnx.helper.make_node("Reshape", [f"t{layer}", "shape"], [f"y{layer}"]))
        value = f"y{layer}"
    shape = np.array([point.T, point.B, point.directions * point.H])
    tensors.append(onnx.numpy_helper.from_array(shape, "shape"))
    f32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "bench",
        [onnx.helper.make_tensor_value_info("x", f32, (point.T, point.B, point.I))],
        [onnx.helper.make_tensor_value_info(value, f32, shape.tolist())],
        tensors,
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda a: session.run(None, {"x": a})[0]


def _reorder(a: Array, order: tuple[int, ...]) -> Array:
    return np.concatenate([np.split(a, len(order))[k] for k in order])


def jax(point: Point, given: Weights, threads: int) -> Run:
    """jax.jit of lax.scan with the projection outside the loop.

    XLA takes all the processors it may use.
    """
    import jax as j
    import jax.numpy as jnp

    H = point.H

    def lstm(carry: Any, p: Any, r: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(p + h @ r.T, 4, axis=-1)
        c = j.nn.sigmoid(f) * c + j.nn.sigmoid(i) * jnp.tanh(g)
        h = j.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def gru(carry: Any, p: Any, r: Any) -> Any:
        h, c = carry
        q = h @ r.T
        rg, z = (
            j.nn.sigmoid(p[:, k * H : (k + 1) * H] + q[:, k * H : (k + 1) * H]) for k in (0, 1)
        )
        n = jnp.tanh(p[:, 2 * H :] + rg * q[:, 2 * H :])
        h = (1 - z) * n + z * h
        return (h, c), h

    cell = lstm if point.cell == "lstm" else gru

    def model(ws: Any, x: Any) -> Any:
        y = x
        zero = (jnp.zeros((point.B, H)),) * 2
        for layer in range(point.layers):
            outs = []
            for d in range(point.directions):
                w, r, b = ws[layer * point.directions + d]
                p = y @ w.T + b
                step = lambda carry, row, r=r: cell(carry, row, r)  # noqa: E731
                outs.append(j.lax.scan(step, zero, p, reverse=bool(d))[1])
            y = jnp.concatenate(outs, -1)
        return y

    ws = j.device_put(given)
    if point.training:
        step = j.jit(j.value_and_grad(lambda w, x: (model(w, x) ** 2).mean()))
        return lambda a: j.block_until_ready(step(ws, a))
    run = j.jit(model)
    return lambda a: j.block_until_ready(run(ws, a))


PEERS: dict[str, Callable[[Point, Weights, int], Run | None]] = {
    "torch": torch,
    "onnxruntime": onnxruntime,
    "jax": jax,
}
