"""Gradients as compiled modules: loops with a body of one's own, whole graphs, size, time, memory."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import loop_models as scans
import numpy as np
import pytest
from child import script
from device import need
from tolerances import close

import lstm_ir as li

Arrays = dict[str, Any]
# cell, reverse, remat, further arguments of loop_models.model
LOOPS: dict[str, tuple[str, Any, int | None, Arrays]] = {
    "lstm": ("lstm", True, None, {"lengths": True}),
    "norm": ("norm", [True, False], None, {}),
    "stepped": ("stepped", False, None, {"count": True}),
    "segments": ("lstm", [False, True], 4, {}),
    "segments_of_norm": ("norm", True, 3, {"lengths": True}),
}


QUICK = ("segments",)


@cache
def loops(kernels: bool, names: tuple[str, ...]) -> Any:
    entries = {}
    for name in names:
        cell, reverse, remat, more = LOOPS[name]
        graph, _ = scans.model(cell, reverse, **more)
        entries[name] = li.grad(graph, "loss", scans.WRT, remat=remat)
    return li.compile(li.Program("loops", entries), "cpu", options={"kernels": kernels})


SOME = [
    pytest.param(True, QUICK, id="kernels"),
    pytest.param(True, tuple(n for n in LOOPS if n not in QUICK), id="more", marks=pytest.mark.slow),
    pytest.param(False, tuple(LOOPS), id="loops", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kernels", "names"), SOME)
def test_loops_of_any_body(kernels: bool, names: tuple[str, ...]) -> None:
    """In f64, held to the interpreter, which test_grad_scan.py holds to differences."""
    exe = loops(kernels, names)
    for name in names:
        cell, reverse, remat, more = LOOPS[name]
        for length in (11, 1, 0):
            graph, values = scans.model(cell, reverse, length=length, **more)
            want = li.interpret(li.grad(graph, "loss", scans.WRT, remat=remat), values)
            close(exe.entries[name](values), want, 1e-11, (name, length))


def torch_layers(sizes: tuple[int, ...], both: bool) -> tuple[li.Graph, Any, list[str]]:
    """Two layers, projected, over rows of given lengths; and PyTorch's."""
    import torch

    I, H, P = sizes
    torch.manual_seed(3)
    theirs = torch.nn.LSTM(I, H, 2, bidirectional=both, proj_size=P)
    w = {k: li.weight(k, v.detach().numpy()) for k, v in theirs.named_parameters()}
    x = y = li.input("x", ("T", "B", I))
    lengths = li.input("lengths", ("B",), "i32")
    states = []
    for k in range(2):
        parts = [
            [li.expand_dims(w[f"{part}_l{k}{side}"], 0) for side in ("", "_reverse")[: 1 + both]]
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        ]
        w_ih, w_hh, b_ih, b_hh, w_hr = (li.concat(v, 0) for v in parts)
        y, h, c = li.lstm(
            y, w_ih, w_hh, b_ih + b_hh, w_hr=w_hr, lengths=lengths, direction="bidirectional" if both else "forward"
        )
        states += [li.sum(h * h), li.sum(li.sin(c))]
    loss = li.sum(y * y * y) + sum(states[1:], states[0])
    return li.Graph("tagger", [x, lengths], {"loss": loss}), theirs, list(w)


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_whole_graph_is_trained_as_pytorch_does(both: bool, rng: np.random.Generator) -> None:
    need("torch")
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    graph, theirs, names = torch_layers((5, 7, 4), both)
    exe = li.compile(li.grad(graph, "loss", [*names, "x"]), "cpu")
    for lengths in ([9, 4, 1], [3], [1, 1]):
        given = rng.normal(size=(max(lengths), len(lengths), 5)).astype("f4")
        x = torch.tensor(given, requires_grad=True)
        packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        out, (h, c) = theirs(packed)
        y, _ = pad_packed_sequence(out)
        loss = (y**3).sum() + (h**2).sum() + torch.sin(c).sum()
        grads = torch.autograd.grad(loss, [*theirs.parameters(), x])
        want = {f"d_{k}": g.numpy() for k, g in zip([*names, "x"], grads, strict=True)}
        got = exe(x=given, lengths=np.array(lengths, np.int32))
        close(got, want, 1e-5, lengths)
        terms = (y.abs() ** 3).sum() + (h**2).sum() + torch.sin(c).abs().sum()  # they may cancel
        assert abs(float(got["loss"]) - loss.item()) <= 1e-5 * terms.item()


def layer(T: Any, op: str = "lstm", remat: int | None = None, H: int = 8) -> li.Graph:
    """The gradient of a layer for its weights."""
    rng = np.random.default_rng(1)
    gates = {"lstm": 4, "gru": 3}[op]
    x = li.input("x", (T, 2, 3))
    w, u = (
        li.weight(n, (rng.normal(size=(gates * H, k)) / 4).astype("f4")) for n, k in ((f"{op}/w", 3), (f"{op}/u", H))
    )
    y = getattr(li, op)(x, w, u).y
    return li.grad(li.Graph("g", [x], {"loss": li.mean(y * y)}), "loss", [f"{op}/w", f"{op}/u"], remat=remat)


BOTH = [pytest.param(True, id="kernels"), pytest.param(False, id="loops", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kernels", BOTH)
def test_modules_do_not_grow_with_time(kernels: bool) -> None:
    """Lengths that are numbers; more of them change tiles of the products after the loop, which are a
    thirtieth of the module. Of 10 steps IREE writes out a loop over chunks, which runs once."""
    sizes, compiling = [], []
    for T in (10 if kernels else 100, 10_000):
        entries = {"lstm": layer(T)} | ({} if kernels else {"segments": layer(T, "gru", remat=7)})
        exe = li.compile(
            li.Program("p", entries), "cpu",
            # Ten steps are too few for helpers, which take a part of the module.
            options={"kernels": kernels, "cache": False, "helpers": False},
        )  # fmt: skip
        sizes.append(exe.report.module_bytes)
        compiling.append(exe.report.compile_seconds)
    assert abs(sizes[1] - sizes[0]) < 0.05 * sizes[0], sizes
    assert compiling[1] < 4 * compiling[0] + 1, compiling  # of a step each, they would be a thousandfold


def seconds(exe: Any, T: int, best: float) -> float:
    x = np.ones((T, 2, 3), "f4")
    start = time.perf_counter()
    exe(x=x)
    return min(best, time.perf_counter() - start)


@pytest.mark.parametrize("kernels", BOTH)
def test_time_is_linear_in_the_steps(kernels: bool) -> None:
    """Four times the steps take less than eight times as long; quadratic would be sixteen. On a
    machine that is busy the fastest of many runs counts."""
    exe = li.compile(layer("T"), "cpu", options={"kernels": kernels})
    short = long = float("inf")
    for _ in range(60):
        short, long = seconds(exe, 2000, short), seconds(exe, 8000, long)
        if long < 8 * short:
            return
    raise AssertionError((short, long))


@pytest.mark.slow
def test_remat_needs_less_memory() -> None:
    """What IREE's allocator held at most, in a process of its own (docs/gradients.md)."""
    out = script("remat_memory.py", *"512 8 64 16 0".split())
    cut, whole = (int(line.split()[1]) for line in out.splitlines())
    saved = 512 * 8 * 64 * 4 * 6  # gates, cell, its activation: what a step keeps beside h
    assert whole - cut > saved, (whole, cut)
