"""Products whose result meets masks or other rows that lie in memory: IREE packs these otherwise."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li

T, B, H = 7, 5, 6


def _loop() -> li.Graph:
    """A cell that keeps its state where the mask says so, and gives the state of every step."""
    x, mask = li.input("x", (T, B, H)), li.input("mask", (T, B, H), "i1")
    w, h0 = li.input("w", (H, 4 * H)), li.input("h0", (B, H))

    def cell(h: li.Value, row: tuple[li.Value, li.Value]) -> tuple[li.Value, li.Value]:
        made = li.tanh((h @ w)[:, :H]) * row[0]
        new = li.select(row[1], made, h)
        return new, new

    h_n, y = li.scan(cell, h0, (x, mask))
    return li.Graph("masked", [x, mask, w, h0], {"h_n": h_n, "y": y})


@pytest.mark.parametrize("verify", [False, True])
def test_a_state_that_a_mask_holds(rng: np.random.Generator, verify: bool) -> None:
    """By the loop: right where nothing checks the module, and as it is where IREE's checks do."""
    shapes = {"x": (T, B, H), "w": (H, 4 * H), "h0": (B, H)}
    a = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    mask = rng.integers(0, 2, (T, B, H)).astype(bool)
    h, want = a["h0"].astype("f8"), []
    for t in range(T):
        h = np.where(mask[t], np.tanh((h @ a["w"].astype("f8"))[:, :H]) * a["x"][t], h)
        want.append(h)
    options = {"kernels": False, "verify": verify, "cache": False}
    with li.compile(_loop(), device="local-task", options=options) as exe:
        for _ in range(3):
            got = exe(**a, mask=mask)
            np.testing.assert_allclose(got["y"], np.stack(want), atol=2e-5)
            np.testing.assert_allclose(got["h_n"], h, atol=2e-5)
        assert not [n for n in exe.report.notes if "compiled with" in n]


def _readers() -> tuple[list[li.Value], dict[str, li.Value]]:
    """What is made of a product and of booleans in memory, at any place beside it."""
    a, b = li.input("a", (16, 4)), li.input("b", (16, 4))
    m, k = li.input("m", (16, 4), "i1"), li.input("k", (16, 4), "i1")
    v = li.input("v", (4, 4))
    p = li.tanh(a) @ v
    made = {
        "the product times a mask": p * li.convert(m, "f32"),
        "a mask added": p + li.convert(m, "f32"),
        "a select beside the product": p + li.select(m, 0.0, b),
        "two masks": li.select(m & k, p, b),
        "a mask turned over": li.select(~m, p, 0.0),
        "a mask of its signs": li.greater(p, 0.0) & m,
        "masks that differ": li.convert(m ^ k, "f32") - p,
        "a mask of rows": li.select(li.broadcast_to(m[:, :1], (16, 4)), p, b),
        "behind a transpose": li.transpose(p, (1, 0)) * li.convert(li.transpose(m, (1, 0)), "f32"),
        "a sum of it": li.sum(p * li.convert(m, "f32"), 1),
    }
    return [a, b, m, k, v], made


@pytest.mark.parametrize("kernels", [False, True])
def test_every_reader_of_a_product_and_a_mask(rng: np.random.Generator, kernels: bool) -> None:
    a, b, v = (rng.standard_normal(s).astype("f4") for s in ((16, 4), (16, 4), (4, 4)))
    m, k = (rng.integers(0, 2, (16, 4)).astype(bool) for _ in range(2))
    p, f = np.tanh(a.astype("f8")) @ v, m.astype("f8")
    want = {
        "the product times a mask": p * f, "a mask added": p + f, "a select beside the product": p + np.where(m, 0, b),
        "two masks": np.where(m & k, p, b), "a mask turned over": np.where(~m, p, 0),
        "a mask of its signs": (p > 0) & m,
        "masks that differ": (m ^ k) - p, "a mask of rows": np.where(m[:, :1], p, b), "behind a transpose": (p * f).T,
        "a sum of it": (p * f).sum(1),
    }  # fmt: skip
    inputs, made = _readers()
    graphs = {name.replace(" ", "_"): li.Graph("reader", inputs, {"y": made[name]}) for name in want}
    with li.compile(li.Program("readers", graphs), options={"kernels": kernels, "verify": False}) as exe:
        for name, expected in want.items():
            got = exe.entries[name.replace(" ", "_")](a=a, b=b, m=m, k=k, v=v)["y"]
            np.testing.assert_allclose(np.asarray(got, "f8"), expected, atol=2e-5, err_msg=name)
        assert not [n for n in exe.report.notes if n.startswith("compiled ")]


def test_rows_beside_a_batched_product(rng: np.random.Generator) -> None:
    """What is added to the product has another reader, and three rows a batch: they fill as many tiles as six."""
    shapes = {"x": (2, 3, 6), "v": (2, 3, 18), "w": (2, 18, 6), "c": (2, 3, 6), "p": (2, 3, 6), "z": (2, 3, 6)}
    made = {n: li.input(n, s) for n, s in shapes.items()}
    q = made["v"][:, :, 6:12]
    rest = made["p"] - q
    rows = li.concat([made["x"], made["z"] * (q * rest), made["x"]], 2)
    g = li.Graph("rows", list(made.values()), {"y": made["c"] * rest + rows @ made["w"]})
    a = {n: rng.uniform(0.1, 0.9, s).astype(np.float32) for n, s in shapes.items()}
    part = a["v"][:, :, 6:12]
    left = a["p"] - part
    want = a["c"] * left + np.concatenate([a["x"], a["z"] * (part * left), a["x"]], 2) @ a["w"]
    with li.compile(g, device="local-task", options={"kernels": False, "cache": False}) as exe:
        np.testing.assert_allclose(exe(**a)["y"], want, rtol=1e-5)


def test_columns_of_named_sizes_beside_a_product(rng: np.random.Generator) -> None:
    """Gates that are columns of wider rows: fused with a product, IREE 3.13 reads them in vectors of 32 KiB."""
    z, y, a = li.input("z", ("B", 72)), li.input("y", ("B", 24)), li.input("a", ("B", 72))
    w = [li.input(f"w{k}", (72, 24)) for k in range(4)]
    made = {
        "scaled": z[:, 24:48] * y + a @ w[0],
        "activated": li.tanh(z[:, 24:48]) * y + a @ w[1],
        "inside": li.tanh(z[:, :24] + a @ w[2]),
        "of its own": (a @ w[3])[:, :12] * y[:, 12:],
    }
    sizes = {"z": (5, 72), "y": (5, 24), "a": (5, 72)} | {f"w{k}": (72, 24) for k in range(4)}
    v = {n: rng.standard_normal(s).astype(np.float32) for n, s in sizes.items()}
    with li.compile(li.Graph("gates", [z, y, a, *w], made), options={"cache": False, "kernels": False}) as exe:
        assert not [n for n in exe.report.notes if n.startswith("compiled with")]
        got = exe(v)
    d = {n: x.astype("f8") for n, x in v.items()}
    p = [d["a"] @ d[f"w{k}"] for k in range(4)]
    want = {
        "scaled": d["z"][:, 24:48] * d["y"] + p[0], "activated": np.tanh(d["z"][:, 24:48]) * d["y"] + p[1],
        "inside": np.tanh(d["z"][:, :24] + p[2]), "of its own": p[3][:, :12] * d["y"][:, 12:],
    }  # fmt: skip
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=1e-4, atol=1e-4, err_msg=name)
