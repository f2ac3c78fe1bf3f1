"""Who this project is measured beside: torch, onnxruntime and JAX, in their default settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.bench.models import NAMES, Weights
from lstm_ir.bench.subject import Array, BenchCall, Layers, TimedRun


def torch_modules(point: Layers, sets: tuple[Weights, Weights]) -> list[Any]:
    """A module per set of weights: what a step costs must not include writing the other weights."""
    import torch as t

    kind = t.nn.LSTM if point.cell == "lstm" else t.nn.GRU
    modules = [kind(point.I, point.H, point.layers, bidirectional=point.directions == 2) for _ in sets]
    for m, given in zip(modules, sets, strict=True):
        with t.no_grad():
            for i, (w_ih, w_hh, b) in enumerate(given):
                layer, d = divmod(i, point.directions)
                tail = f"_l{layer}" + ("_reverse" if d else "")
                values = {"weight_ih": w_ih, "weight_hh": w_hh, "bias_ih": b, "bias_hh": 0 * b}
                for name, value in values.items():
                    getattr(m, name + tail).copy_(t.from_numpy(value))
    return modules


def torch_gradients(out: Any) -> dict[str, Array]:
    """By name, of (gradient of x, those of the parameters): the second bias of each layer, which is zero, has none."""
    dx, grads = out
    return {"x": dx.numpy()} | {
        f"{n}{i // 4}": grads[i + k].numpy() for i in range(0, len(grads), 4) for k, n in enumerate(NAMES)
    }


def torch(point: Layers, sets: tuple[Weights, Weights], threads: int) -> TimedRun:
    """torch.nn.LSTM / GRU, eager; inference mode where it does not train."""
    import torch as t

    t.set_num_threads(threads)
    modules = torch_modules(point, sets)

    def infer(call: BenchCall) -> Any:
        with t.inference_mode():
            return modules[0](t.from_numpy(call.arrays["x"]))[0]

    def train(call: BenchCall) -> Any:
        m = modules[call.turn]
        m.zero_grad(set_to_none=True)
        x = t.from_numpy(call.arrays["x"]).requires_grad_()
        y = m(x)[0]
        (y * y).mean().backward()
        return x.grad, [p.grad for p in m.parameters()]

    return TimedRun(train, torch_gradients) if point.training else TimedRun(infer, lambda y: {"y": y.numpy()})


def onnxruntime(point: Layers, sets: tuple[Weights, Weights], threads: int) -> TimedRun | None:
    """onnxruntime's LSTM / GRU, with open axes T and B; it does not train."""
    if point.training:
        return None
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    model = _onnx_model(point, sets[0]).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return TimedRun(lambda call: session.run(None, {"x": call.arrays["x"]})[0], lambda y: {"y": y})


def _onnx_model(point: Layers, weights: Weights) -> Any:
    import onnx

    make = onnx.helper.make_node
    nodes, tensors, value = [], [], "x"
    # i,f,g,o -> i,o,f,c; r,z,n -> z,r,h
    order = (0, 3, 1, 2) if point.cell == "lstm" else (1, 0, 2)
    extra: dict[str, Any] = {} if point.cell == "lstm" else {"linear_before_reset": 1}
    extra |= {"hidden_size": point.H}
    extra |= {"direction": "bidirectional" if point.directions == 2 else "forward"}
    for layer in range(point.layers):
        parts = weights[layer * point.directions : (layer + 1) * point.directions]
        names = [f"{n}{layer}" for n in ("W", "R", "B")]
        arrays = [np.stack([_reorder(p[i], order) for p in parts]) for i in range(3)]
        arrays[2] = np.concatenate([arrays[2], 0 * arrays[2]], axis=1)
        tensors += [onnx.numpy_helper.from_array(a, n) for a, n in zip(arrays, names, strict=True)]
        nodes.append(make(point.cell.upper(), [value, *names], [f"r{layer}"], **extra))
        nodes.append(make("Transpose", [f"r{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3]))
        value = f"y{layer}"
        nodes.append(make("Reshape", [f"t{layer}", "shape"], [value]))
    width = point.directions * point.H
    tensors.append(onnx.numpy_helper.from_array(np.array([0, 0, width]), "shape"))  # 0: the size as it is
    f32, info = onnx.TensorProto.FLOAT, onnx.helper.make_tensor_value_info
    x, y = info("x", f32, ("T", "B", point.I)), info(value, f32, ("T", "B", width))
    graph = onnx.helper.make_graph(nodes, "bench", [x], [y], tensors)
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)


def _reorder(a: Array, order: tuple[int, ...]) -> Array:
    return np.concatenate([np.split(a, len(order))[k] for k in order])


def jax(point: Layers, sets: tuple[Weights, Weights], threads: int) -> TimedRun:
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
        first = j.nn.sigmoid(p[:, : 2 * H] + q[:, : 2 * H])
        n = jnp.tanh(p[:, 2 * H :] + first[:, :H] * q[:, 2 * H :])
        h = (1 - first[:, H:]) * n + first[:, H:] * h
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

    held = j.device_put(sets)
    if not point.training:
        infer = j.jit(model)
        return TimedRun(
            lambda call: j.block_until_ready(infer(held[0], call.arrays["x"])), lambda y: {"y": np.asarray(y)}
        )
    step = j.jit(j.grad(lambda w, x: (model(w, x) ** 2).mean(), argnums=(0, 1)))

    def read(out: Any) -> dict[str, Array]:
        per, dx = out
        found = {"x": np.asarray(dx)}
        for i, arrays in enumerate(per):
            found |= {f"{n}{i}": np.asarray(a) for n, a in zip(NAMES, arrays, strict=True)}
        return found

    return TimedRun(lambda call: j.block_until_ready(step(held[call.turn], call.arrays["x"])), read)


MakerOfPoint = Callable[[Layers, tuple[Weights, Weights], int], TimedRun | None]
PEERS: dict[str, MakerOfPoint] = {"torch": torch, "onnxruntime": onnxruntime, "jax": jax}
