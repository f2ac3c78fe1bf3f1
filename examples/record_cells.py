"""Record how PyTorch, JAX and Keras really write their recurrent cells: tests/data/cells/*.txt.

PyTorch: torch.export and run_decompositions(), one line per op. JAX and Keras (JAX backend): the
jaxpr. The first line of each file names the versions. Every function that is printed is also run
and compared with the cell's equations in float64 NumPy.

Run: python examples/record_cells.py       (needs PyTorch, JAX and Keras)
"""

import os

os.environ["KERAS_BACKEND"] = "jax"  # keras reads it when it is imported

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax_cells
import keras
import numpy as np
import torch
from plain_lstm import sigmoid
from torch import nn

TARGET = Path(__file__).parents[1] / "tests" / "data" / "cells"
T, B, I, H = 11, 3, 5, 7
SEED = 11
VERSIONS = {
    "torch": f"torch {torch.__version__}",
    "jax": f"jax {jax.__version__}",
    "keras": f"keras {keras.__version__}, backend jax {jax.__version__}",
}
RNG = np.random.default_rng(SEED)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.5, shape).astype(np.float32)


def write(name: str, what: str, body: str) -> None:
    text = f"# {VERSIONS[name.split('_')[0]]}: {what}\n{body.rstrip()}\n"
    (TARGET / f"{name}.txt").write_text(text)
    print(f"{name}.txt: {len(text.splitlines())} lines")


def same(actual: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=0, atol=2e-6)


# The cells' equations. z_x is W x + b for the input, z_h is U h + b for the state.


def lstm_step(z: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """z [B, 4 H], gates i, f, g, o."""
    i, f, g, o = np.split(z, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_reset_after(z_x: np.ndarray, z_h: np.ndarray, h: np.ndarray, order: str) -> np.ndarray:
    """z_x, z_h [B, 3 H] with their gates in this order."""
    at = [order.index(gate) for gate in "rzn"]
    (x_r, x_z, x_n), (h_r, h_z, h_n) = ([np.split(z, 3, axis=-1)[k] for k in at] for z in (z_x, z_h))
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    return (1 - z) * np.tanh(x_n + r * h_n) + z * h


def gru_reset_before(z_x: list[np.ndarray], u: list[np.ndarray], h: np.ndarray) -> np.ndarray:
    """z_x and u = [H, H] as lists for r, z, n."""
    r, z = sigmoid(z_x[0] + h @ u[0]), sigmoid(z_x[1] + h @ u[1])
    return (1 - z) * np.tanh(z_x[2] + (r * h) @ u[2]) + z * h


# PyTorch


def type_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.") + str(list(value.shape))
    if isinstance(value, tuple | list):
        return "(" + ", ".join(type_of(v) for v in value) + ")"
    return type(value).__name__


def print_export(program: torch.export.ExportedProgram) -> str:
    """One line per node: its name, type, op and arguments."""
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    lines = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = kinds[node.name]
            what = f"{spec.kind.name.lower()} {spec.target or ''}".strip()
            lines.append(f"{node.name}: {type_of(node.meta['val'])} = {what}")
        elif node.op == "output":
            lines.append(f"return {node.args[0]}")
        else:
            given = [str(a) for a in node.args] + [f"{k}={v}" for k, v in node.kwargs.items()]
            what = f"{node.target}({', '.join(given)})"
            lines.append(f"{node.name}: {type_of(node.meta['val'])} = {what}")
    return "\n".join(lines)


def record_torch(name: str, what: str, module: nn.Module, args: tuple[Any, ...]) -> Any:
    """Write the decomposed program and return what it computes."""
    program = torch.export.export(module.eval(), args).run_decompositions()
    write(name, f"{what}, torch.export, run_decompositions()", print_export(program))
    return program.module()(*args)


def torch_cells() -> None:
    x, h, c = (torch.from_numpy(draw(B, n)) for n in (I, H, H))
    steps = torch.from_numpy(draw(2, B, I))
    lstm, gru = nn.LSTMCell(I, H), nn.GRUCell(I, H)
    with torch.no_grad():
        h_new, c_new = record_torch("torch_lstm_cell", "nn.LSTMCell(5, 7)", lstm, (x, (h, c)))
        w = double(lstm)
        z = [w[0] @ x.numpy().T, w[1] @ h.numpy().T]
        expected = lstm_step(z[0].T + z[1].T + w[2] + w[3], c.numpy())
        same(h_new, expected[0])
        same(c_new, expected[1])
        actual = record_torch("torch_gru_cell", "nn.GRUCell(5, 7)", gru, (x, h))
        w = double(gru)
        z = [x.numpy() @ w[0].T + w[2], h.numpy() @ w[1].T + w[3]]
        same(actual, gru_reset_after(z[0], z[1], h.numpy(), "rzn"))
        torch_layers(steps, h[None], c[None])


def double(module: nn.Module) -> list[np.ndarray]:
    """w_ih, w_hh, b_ih, b_hh."""
    return [p.detach().numpy().astype(np.float64) for p in module.parameters()]


def torch_layers(xs: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor) -> None:
    """Whole layers over two steps, which the decomposition unrolls."""
    lstm, gru = nn.LSTM(I, H), nn.GRU(I, H)
    lstm_y, _ = record_torch("torch_lstm", "nn.LSTM(5, 7), T = 2", lstm, (xs, (h0, c0)))
    gru_y, _ = record_torch("torch_gru", "nn.GRU(5, 7), T = 2", gru, (xs, h0))
    h, c = h0[0].numpy(), c0[0].numpy()
    w = double(lstm)
    for t, x in enumerate(xs.numpy()):
        h, c = lstm_step(x @ w[0].T + h @ w[1].T + w[2] + w[3], c)
        same(lstm_y[t], h)
    h, w = h0[0].numpy(), double(gru)
    for t, x in enumerate(xs.numpy()):
        h = gru_reset_after(x @ w[0].T + w[2], h @ w[1].T + w[3], h, "rzn")
        same(gru_y[t], h)


# JAX


def record_jax(name: str, function: Callable[..., Any], *args: Any) -> Any:
    doc = (function.__doc__ or "").split("\n")[0]
    write(name, f"jax.make_jaxpr of a lax.scan. {doc}", str(jax.make_jaxpr(function)(*args)))
    return function(*args)


def jax_lstms(xs: np.ndarray, h0: np.ndarray, c0: np.ndarray) -> None:
    w_x, w_h, b = draw(I, 4 * H), draw(H, 4 * H), draw(4 * H)
    gates = list(zip(*(np.split(w, 4, axis=-1) for w in (w_x, w_h, b)), strict=True))
    weights = {"joint": (np.concatenate([w_x, w_h]), b), "two_dots": (w_x, w_h, b), "four_dots": gates}
    for style, params in weights.items():
        function = getattr(jax_cells, f"lstm_{style}")
        (h_n, c_n), ys = record_jax(f"jax_lstm_{style}", function, params, xs, h0, c0)
        h, c = h0, c0
        for t, x in enumerate(xs.astype(np.float64)):
            h, c = lstm_step(x @ w_x + h @ w_h + b, c)
            same(ys[t], h)
        same(h_n, h)
        same(c_n, c)


def jax_grus(xs: np.ndarray, h0: np.ndarray) -> None:
    w_x, w_h, b_x, b_h = draw(I, 3 * H), draw(H, 3 * H), draw(3 * H), draw(3 * H)
    h_n, ys = record_jax("jax_gru_joint", jax_cells.gru_joint, (w_x, w_h, b_x, b_h), xs, h0)
    h = h0
    for t, x in enumerate(xs.astype(np.float64)):
        h = gru_reset_after(x @ w_x + b_x, h @ w_h + b_h, h, "rzn")
        same(ys[t], h)
    same(h_n, h)
    w, u, b = (np.split(a, 3, axis=-1) for a in (w_x, w_h, b_x))
    for style in ("six_dots", "difference"):
        function = getattr(jax_cells, f"gru_{style}")
        params = list(zip(w, u, b, strict=True))
        h_n, ys = record_jax(f"jax_gru_{style}", function, params, xs, h0)
        h = h0
        for t, x in enumerate(xs.astype(np.float64)):
            h = gru_reset_before([x @ w[k] + b[k] for k in range(3)], u, h)
            same(ys[t], h)
        same(h_n, h)


# Keras


def keras_weights(layer: Any) -> list[np.ndarray]:
    """Fill the built layer with drawn weights, so that no bias is zero, and return them."""
    values = [draw(*w.shape) for w in layer.weights]
    layer.set_weights(values)
    return [v.astype(np.float64) for v in values]


def record_keras(name: str, what: str, layer: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Write the jaxpr with the layer's weights as its first inputs and return what it computes."""
    values = [jnp.asarray(w.numpy()) for w in layer.weights]

    def stateless(weights: Any, *given: Any) -> Any:
        pairs = list(zip(layer.weights, weights, strict=True))
        with keras.StatelessScope(state_mapping=pairs):
            return function(*given)

    inputs = ", ".join(f"{w.name} {list(w.shape)}" for w in layer.weights)
    body = str(jax.make_jaxpr(stateless)(values, *args))
    write(name, f"{what}, jax.make_jaxpr. First inputs: {inputs}", body)
    return stateless(values, *args)


def keras_lstm(x: np.ndarray, h: np.ndarray, c: np.ndarray, xs: np.ndarray) -> None:
    for implementation in (1, 2):
        cell = keras.layers.LSTMCell(H, implementation=implementation)
        cell.build((B, I))
        w, u, b = keras_weights(cell)
        name, what = f"keras_lstm_cell_{implementation}", "layers.LSTMCell(7, implementation="
        run: Any = lambda x, h, c, cell=cell: cell(x, [h, c])  # noqa: E731
        out, states = record_keras(name, f"{what}{implementation})", cell, run, x, h, c)
        expected = lstm_step(x @ w + h @ u + b, c)
        for actual, right in zip((out, *states), (expected[0], *expected), strict=True):
            same(actual, right)
    layer = keras.layers.LSTM(H, return_sequences=True)
    layer.build((B, T, I))
    w, u, b = keras_weights(layer)
    ys = record_keras("keras_lstm", "layers.LSTM(7), xs [B, T, I]", layer, layer, xs)
    state = np.zeros((B, H)), np.zeros((B, H))
    for t in range(T):
        state = lstm_step(xs[:, t] @ w + state[0] @ u + b, state[1])
        same(ys[:, t], state[0])


def keras_gru(x: np.ndarray, h: np.ndarray) -> None:
    """Keras keeps the gates as z, r, n."""
    for after in (True, False):
        for implementation in (1, 2):
            cell = keras.layers.GRUCell(H, reset_after=after, implementation=implementation)
            cell.build((B, I))
            w, u, b = keras_weights(cell)
            name = f"keras_gru_cell_reset_{'after' if after else 'before'}_{implementation}"
            what = f"layers.GRUCell(7, reset_after={after}, implementation={implementation})"
            run: Any = lambda x, h, cell=cell: cell(x, [h])  # noqa: E731
            out, _ = record_keras(name, what, cell, run, x, h)
            if after:
                same(out, gru_reset_after(x @ w + b[0], h @ u + b[1], h, "zrn"))
            else:
                (z, r, n), (u_z, u_r, u_n) = (np.split(a, 3, axis=-1) for a in (x @ w + b, u))
                same(out, gru_reset_before([r, z, n], [u_r, u_z, u_n], h))


def main() -> None:
    torch.manual_seed(SEED)
    torch_cells()
    h0, c0 = draw(B, H), draw(B, H)
    jax_lstms(draw(T, B, I), h0, c0)
    jax_grus(draw(T, B, I), h0)
    keras_lstm(draw(B, I), h0, c0, draw(B, T, I))
    keras_gru(draw(B, I), h0)


if __name__ == "__main__":
    main()
