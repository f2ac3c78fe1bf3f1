"""One executable for every number of steps and rows, none included; and what a wrong call gets.

Sizes that are names are open until the call: x is f32[T,B,6]. Each row may also end early
(`lengths`), down to nothing.

Run: python examples/dynamic_shapes.py
"""

import numpy as np
from plain_lstm import lstm

import lstm_ir as li

I, H = 6, 20
TOLERANCE = 2e-5
Arrays = dict[str, np.ndarray]


def graph(weights: Arrays) -> li.Graph:
    """x [T, B, I], lengths i32[B] -> y [T, B, H], zero behind a row's end, and h at its end."""
    w = {name: li.weight(name, array) for name, array in weights.items()}
    x = li.input("x", ("T", "B", I))
    lengths = li.input("lengths", ("B",), "i32")
    y, h_n, _ = li.lstm(x, w["w_ih"], w["w_hh"], w["b"], lengths=lengths)
    return li.Graph("open_sizes", [x, lengths], {"y": y, "h": h_n[0]})


def plain(x: np.ndarray, lengths: np.ndarray, weights: Arrays) -> Arrays:
    """The same, row by row, in float64 NumPy."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    y, h = np.zeros((*x.shape[:2], H)), np.zeros((x.shape[1], H))
    for b, n in enumerate(lengths):
        row = x[:n, b].astype(np.float64)
        y[:n, b], h[b], _ = lstm(row, w["w_ih"], w["w_hh"], w["b"])
    return {"y": y, "h": h}


def refused(call: object, error: type[Exception]) -> str:
    """The message that a wrong call gets."""
    assert callable(call)
    try:
        call()
    except error as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError("the call was accepted")


def main() -> None:
    rng = np.random.default_rng(31)
    shapes = {"w_ih": (4 * H, I), "w_hh": (4 * H, H), "b": (4 * H,)}
    weights = {k: (0.4 * rng.standard_normal(s)).astype(np.float32) for k, s in shapes.items()}
    exe = li.compile(graph(weights))
    for T, B in ((7, 3), (1, 1), (50, 2), (0, 4), (5, 0), (13, 33)):
        x = rng.standard_normal((T, B, I)).astype(np.float32)
        lengths = rng.integers(0, T + 1, B).astype(np.int32)
        out, want = exe(x=x, lengths=lengths), plain(x, lengths, weights)
        worst = max(float(np.abs(out[k] - want[k]).max(initial=0.0)) for k in want)
        print(f"T {T}, B {B}: largest difference to float64 NumPy {worst:.1e}")
        assert out["y"].shape == (T, B, H)
        assert worst < TOLERANCE
    x = np.zeros((5, 2, I), np.float32)
    three, nine = np.full(3, 4, np.int32), np.array([9, 1], np.int32)
    print(refused(lambda: exe(x=x, lengths=three), li.CallError))
    print(refused(lambda: exe(x=x, lengths=nine), li.ValueRangeError))
    print(refused(lambda: exe(x=x), li.CallError))


if __name__ == "__main__":
    main()
