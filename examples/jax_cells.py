"""LSTM and GRU layers as JAX users write them with lax.scan: joint or separate dots, 1 - z forms.

Time-major: xs [T, B, I], states [B, H]. Weights are stored as used, x @ w, so w_x is [I, 4 H].
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import sigmoid, tanh


def lstm_joint(params, xs, h0, c0):
    """One dot over the joined input and state, then jnp.split; gates i, f, g, o."""
    w, b = params  # [I + H, 4 H], [4 H]

    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h], axis=-1) @ w + b, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        h = sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h0, c0), xs)


def lstm_two_dots(params, xs, h0, c0):
    """One dot for the input and one for the state, gates cut out by slices; gates i, f, g, o."""
    w_x, w_h, b = params  # [I, 4 H], [H, 4 H], [4 H]
    n = w_h.shape[0]

    def step(carry, x):
        h, c = carry
        z = jnp.dot(x, w_x) + jnp.dot(h, w_h) + b
        i, f = sigmoid(z[:, :n]), sigmoid(z[:, n : 2 * n])
        g, o = jnp.tanh(z[:, 2 * n : 3 * n]), sigmoid(z[:, 3 * n :])
        c = i * g + f * c
        h = jnp.tanh(c) * o
        return (h, c), h

    return lax.scan(step, (h0, c0), xs)


def lstm_four_dots(params, xs, h0, c0):
    """Two dots for each gate."""
    (w_i, u_i, b_i), (w_f, u_f, b_f), (w_g, u_g, b_g), (w_o, u_o, b_o) = params

    def step(carry, x):
        h, c = carry
        i = sigmoid(x @ w_i + h @ u_i + b_i)
        f = sigmoid(x @ w_f + h @ u_f + b_f)
        g = tanh(x @ w_g + h @ u_g + b_g)
        o = sigmoid(x @ w_o + h @ u_o + b_o)
        c = f * c + i * g
        h = o * tanh(c)
        return (h, c), h

    return lax.scan(step, (h0, c0), xs)


def gru_joint(params, xs, h0):
    """Two dots with jnp.split, reset after the dot; gates r, z, n; h' = (1 - z) n + z h."""
    w_x, w_h, b_x, b_h = params  # [I, 3 H], [H, 3 H], [3 H], [3 H]

    def step(h, x):
        x_r, x_z, x_n = jnp.split(x @ w_x + b_x, 3, axis=-1)
        h_r, h_z, h_n = jnp.split(h @ w_h + b_h, 3, axis=-1)
        r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        n = jnp.tanh(x_n + r * h_n)
        h = (1.0 - z) * n + z * h
        return h, h

    return lax.scan(step, h0, xs)


def gru_six_dots(params, xs, h0):
    """Two dots for each gate, reset before the dot; h' = z h + (1 - z) n."""
    (w_r, u_r, b_r), (w_z, u_z, b_z), (w_n, u_n, b_n) = params

    def step(h, x):
        r = sigmoid(x @ w_r + h @ u_r + b_r)
        z = sigmoid(x @ w_z + h @ u_z + b_z)
        n = tanh(x @ w_n + (r * h) @ u_n + b_n)
        h = z * h + (1 - z) * n
        return h, h

    return lax.scan(step, h0, xs)


def gru_difference(params, xs, h0):
    """As gru_six_dots, but without 1 - z: h' = n + z (h - n)."""
    (w_r, u_r, b_r), (w_z, u_z, b_z), (w_n, u_n, b_n) = params

    def step(h, x):
        r = jax.nn.sigmoid(x @ w_r + h @ u_r + b_r)
        z = jax.nn.sigmoid(x @ w_z + h @ u_z + b_z)
        n = jnp.tanh(x @ w_n + (r * h) @ u_n + b_n)
        h = n + z * (h - n)
        return h, h

    return lax.scan(step, h0, xs)
