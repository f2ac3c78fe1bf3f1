"""A whole model by torch, torch.compile, onnxruntime and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.bench.subject import BenchCall, TimedRun
from lstm_ir.bench.whole.model import BETAS, CLIP, EPSILON, RATE, Model


def torch(model: Model, threads: int) -> TimedRun:
    """Eager."""
    return _torch(model, threads, lambda module: module)


def torch_compiled(model: Model, threads: int) -> TimedRun:
    """torch.compile with its default options; the optimizer stays as it is."""
    import torch as t

    return _torch(model, threads, t.compile)


def _torch(model: Model, threads: int, transform: Callable[[Any], Any]) -> TimedRun:
    import torch as t

    t.set_num_threads(threads)
    module = model.torch(model.weights())
    forward = transform(module)

    def tensors(call: BenchCall) -> dict[str, Any]:
        return {n: t.from_numpy(a) for n, a in call.arrays.items()}

    def infer(call: BenchCall) -> Any:
        with t.inference_mode():
            return forward(**tensors(call))

    if not model.training:
        return TimedRun(infer, lambda y: {"y": y.numpy()})
    weights = [p for p in module.parameters() if p.requires_grad]
    optimizer = t.optim.Adam(weights, RATE, BETAS, EPSILON)

    def train(call: BenchCall) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(**tensors(call))
        loss.backward()
        norm = t.nn.utils.clip_grad_norm_(weights, CLIP)
        optimizer.step()
        return loss.detach(), norm

    return TimedRun(train, lambda out: {"loss": out[0].numpy(), "grad_norm": out[1].numpy()})


def onnxruntime(model: Model, threads: int) -> TimedRun | None:
    """Open axes; it does not train."""
    if model.training:
        return None
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    made = model.onnx(model.weights()).SerializeToString()
    session = ort.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    return TimedRun(lambda call: session.run(None, call.arrays)[0], lambda y: {"y": y})


def jax(model: Model, threads: int) -> TimedRun:
    """jax.jit, compiled for these sizes; Adam by hand, old weights given away. XLA takes all processors it may use."""
    import jax as j
    import jax.numpy as jnp

    w = j.device_put(model.weights())
    if not model.training:
        infer = j.jit(model.jax)
        return TimedRun(lambda call: j.block_until_ready(infer(w, call.arrays)), lambda y: {"y": np.asarray(y)})

    def update(state: Any, inputs: Any) -> Any:
        w, m, v, count = state
        loss, grads = j.value_and_grad(model.jax)(w, inputs)
        norm = jnp.sqrt(sum((g * g).sum() for g in grads.values()))
        scale = jnp.minimum(CLIP / (norm + 1e-6), 1.0)
        count = count + 1
        m = {n: BETAS[0] * m[n] + (1 - BETAS[0]) * scale * g for n, g in grads.items()}
        v = {n: BETAS[1] * v[n] + (1 - BETAS[1]) * (scale * g) ** 2 for n, g in grads.items()}
        first, second = (1 - b**count for b in BETAS)
        w = {n: w[n] - RATE * (m[n] / first) / (jnp.sqrt(v[n] / second) + EPSILON) for n in w}
        return (w, m, v, count), loss, norm

    step = j.jit(update, donate_argnums=(0,))
    zeros = [{n: jnp.zeros_like(a) for n, a in w.items()} for _ in range(2)]
    state = [(w, *zeros, jnp.float32(0))]

    def train(call: BenchCall) -> Any:
        state[0], loss, norm = step(state[0], call.arrays)
        j.block_until_ready(state[0])
        return loss, norm

    return TimedRun(train, lambda out: {"loss": np.asarray(out[0]), "grad_norm": np.asarray(out[1])})


HERE: dict[str, Callable[[Model, int], TimedRun | None]] = {"torch": torch, "onnxruntime": onnxruntime, "jax": jax}
