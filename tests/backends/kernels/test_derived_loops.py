"""A loop over weights alone runs once, when the module is loaded, and may be a kernel there."""

from __future__ import annotations

import numpy as np

import lstm_ir as li

T, B, I, H = 16, 7, 6, 5


def test_a_layer_over_weights_with_its_gradient(rng: np.random.Generator) -> None:
    """It ended the process: the place for the flags of its teams was looked for in a function that is none."""
    a = {
        n: rng.standard_normal(s).astype(np.float32) for n, s in (("x", (T, B, I)), ("w_ih", (H, I)), ("w_hh", (H, H)))
    }
    w = {n: li.weight(n, v / 3) for n, v in a.items()}
    x0 = li.input("x0", (1, B, H))
    h_n = li.rnn(w["x"], w["w_ih"], w["w_hh"], h0=li.weight("h0", np.zeros((1, B, H), np.float32)), gate_clip=0.75)[1]
    made = li.vjp(li.Graph("layer", [x0], {"h": h_n, "x": x0 * 1.0}), "h", "w_hh")
    x, w_ih, w_hh = (a[n].astype("f8") / 3 for n in ("x", "w_ih", "w_hh"))
    h, states, pre = np.zeros((B, H)), [], []
    for t in range(T):
        states.append(h)
        pre.append(x[t] @ w_ih.T + h @ w_hh.T)
        h = np.tanh(np.clip(pre[-1], -0.75, 0.75))
    ct = rng.standard_normal((1, B, H)).astype(np.float32)
    d_h, d_w = ct[0].astype("f8"), np.zeros((H, H))
    for t in reversed(range(T)):
        d = d_h * (1 - np.tanh(np.clip(pre[t], -0.75, 0.75)) ** 2) * (np.abs(pre[t]) < 0.75)
        d_w += d.T @ states[t]
        d_h = d @ w_hh
    with li.compile(made, options={"cache": False}) as exe:
        got = exe({n: ct if n == "ct_h" else np.zeros((1, B, H), np.float32) for n in made.input_names})
    np.testing.assert_allclose(np.ravel(got["h"]), np.ravel(h), atol=2e-5)
    np.testing.assert_allclose(np.reshape(got["d_w_hh"], (H, H)), d_w, atol=2e-4)
