"""The LSTM written in a dozen lines of float64 NumPy, to check recorded models against.

i, f, g, o = split(W_ih x + W_hh h + b);  c' = s(f) c + s(i) tanh(g);  h' = s(o) tanh(c')
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # does not overflow


def lstm(x: Array, w_ih: Array, w_hh: Array, b: Array) -> tuple[Array, Array, Array]:
    """Run x [T, I] from zero states; return the outputs [T, H] and the last h [H] and c [H]."""
    h = c = np.zeros(w_hh.shape[1])
    outputs = np.empty((len(x), len(h)))
    for t, row in enumerate(x):
        i, f, g, o = np.split(w_ih @ row + w_hh @ h + b, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs[t] = h
    return outputs, h, c
