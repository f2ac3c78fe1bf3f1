"""Attention beside PyTorch's layer: masks, layouts, caps, and queries that see nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]
T, S, B, E, HEADS = 5, 7, 3, 8, 2


def arrays(rng: np.random.Generator) -> dict[str, Array]:
    shapes = {"q": (T, B, E), "k": (S, B, E), "v": (S, B, E), "w_in": (3 * E, E), "b_in": (3 * E,),
              "w_out": (E, E), "b_out": (E,)}  # fmt: skip
    return {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}


@pytest.mark.parametrize("layout", ["time", "batch"])
@pytest.mark.parametrize("how", ["plain", "mask of keys", "added", "causal"])
def test_the_layer(layout: str, how: str, rng: np.random.Generator) -> None:
    need("torch")
    import torch

    a = arrays(rng)
    seen = rng.random((B, S)) < 0.6
    seen[:, 0] = True
    added = rng.standard_normal((T, S)).astype("f4")
    masks = {"mask of keys": (seen[:, None, None, :], ("B", 1, 1, "S")), "added": (added, ("T", "S"))}
    layer = torch.nn.MultiheadAttention(E, HEADS, dtype=torch.double)
    with torch.no_grad():
        for p, n in ((layer.in_proj_weight, "w_in"), (layer.in_proj_bias, "b_in"), (layer.out_proj.weight, "w_out"),
                     (layer.out_proj.bias, "b_out")):  # fmt: skip
            p.copy_(torch.tensor(a[n]))
    t = {n: torch.tensor(a[n].astype("f8"), requires_grad=True) for n in ("q", "k", "v")}
    more: dict[str, Any] = {}
    if how == "mask of keys":
        more["key_padding_mask"] = torch.tensor(~seen)
    if how == "added":
        more["attn_mask"] = torch.tensor(added.astype("f8"))
    if how == "causal":
        more["attn_mask"] = torch.tensor(~np.tril(np.ones((T, S), bool)))
    want, _ = layer(t["q"], t["k"], t["v"], need_weights=False, **more)
    (want * torch.arange(E)).sum().backward()

    turn = layout == "batch"
    sizes = {"q": ("T", "B", E), "k": ("S", "B", E), "v": ("S", "B", E)}
    ins = {n: li.input(n, (s[1], s[0], E) if turn else s) for n, s in sizes.items()}
    mask = None
    if how in masks:
        mask = li.input("mask", masks[how][1], li.DType.of(masks[how][0].dtype))
    y = li.multi_head_attention(
        ins["q"], ins["k"], ins["v"], a["w_in"], a["w_out"], a["b_in"], a["b_out"], heads=HEADS,
        mask=mask, causal=how == "causal", layout=layout,
    )  # fmt: skip
    g = li.Graph(
        "layer", [*ins.values(), *([] if mask is None else [mask])], {"y": y, "loss": li.sum(y * li.arange(E, "f32"))}
    )
    wide = li.grad(g, "loss", ["q", "k", "v"])
    given = {n: a[n].swapaxes(0, 1) if turn else a[n] for n in ins}
    given |= {"mask": masks[how][0]} if how in masks else {}
    with li.compile(li.Program("layer", {"y": g, "d": wide})) as exe:
        for out, d in ((li.interpret(g, given), li.interpret(wide, given)),
                       (exe.entries["y"](given), exe.entries["d"](given))):  # fmt: skip
            got = out["y"].swapaxes(0, 1) if turn else out["y"]
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=2e-5, atol=2e-5)
            for n, v in t.items():
                slope = d[f"d_{n}"].swapaxes(0, 1) if turn else d[f"d_{n}"]
                np.testing.assert_allclose(slope, v.grad.numpy(), rtol=2e-4, atol=2e-4, err_msg=n)


def test_a_cap(rng: np.random.Generator) -> None:
    q, k, v = (rng.standard_normal((4, n, 6)) for n in (T, S, S))
    scores = np.tanh(q @ k.swapaxes(1, 2) * 0.5 / 3.0) * 3.0
    scores = np.where(np.tril(np.ones((T, S), bool)), scores, -np.inf)
    p = np.exp(scores)
    want = p / p.sum(-1, keepdims=True) @ v
    ins = [li.input(n, a.shape, "f64") for n, a in (("q", q), ("k", k), ("v", v))]
    g = li.Graph("cap", ins, {"y": li.attention(*ins, causal=True, scale=0.5, softcap=3.0)})
    np.testing.assert_allclose(li.interpret(g, q=q, k=k, v=v)["y"], want, rtol=1e-12)


@pytest.mark.parametrize("kind", ["i1", "f32"])
def test_a_query_that_sees_nothing(kind: str, rng: np.random.Generator) -> None:
    """0, with gradients of 0, by a mask of booleans and by one of -inf."""
    seen = rng.random((T, S)) < 0.5
    seen[2], seen[3] = False, True
    mask = seen if kind == "i1" else np.where(seen, 0, -np.inf).astype("f4")
    ins = [li.input(n, (s, 4)) for n, s in (("q", "T"), ("k", "S"), ("v", "S"))]
    m = li.input("mask", ("T", "S"), kind)
    q, k, v = ins
    y = li.attention(q, k, v, m)
    g = li.grad(li.Graph("blind", [*ins, m], {"loss": li.sum(y * y), "y": y}), "loss", ["q", "k", "v"])
    given = {n: rng.standard_normal((s, 4)).astype("f4") for n, s in (("q", T), ("k", S), ("v", S))} | {"mask": mask}
    with li.compile(g) as exe:
        for out in (li.interpret(g, given), exe(given)):
            assert all(np.isfinite(a).all() for a in out.values())
            np.testing.assert_array_equal(out["d_q"][2], np.zeros(4))
            assert (out["d_q"][3] != 0).any()
