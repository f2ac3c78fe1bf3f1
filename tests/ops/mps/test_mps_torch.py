"""MPSGraph's ops against PyTorch's LSTM, GRU and RNN, as PyTorch's own MPS backend maps them.

LSTM: default order, bias = b_ih + b_hh. GRU: resetGateFirst, resetAfter, bias = [b_ir + b_hr,
b_iz + b_hz, b_in], secondaryBias = b_hn. RNN: bias = b_ih + b_hh.
"""

from typing import Any

import mps_cases as mps
import numpy as np
import pytest
from device import need

import lstm_ir as li

T, N, I, H = mps.SIZES
KINDS: dict[str, tuple[str, mps.Arrays]] = {
    "LSTM": (mps.LSTM, {"training": True}),
    "GRU": (mps.GRU, {"training": True, "resetGateFirst": True, "resetAfter": True}),
    "RNN tanh": (mps.RNN, {"training": True, "activation": "tanh"}),
    "RNN relu": (mps.RNN, {"training": True, "activation": "relu"}),
}


class Layer:
    """A layer of PyTorch in float64, run forward and back."""

    def __init__(self, kind: str, both: bool, bias: bool, seed: int) -> None:
        import torch

        torch.manual_seed(seed)
        word, _, act = kind.partition(" ")
        self.D = 2 if both else 1
        more = {"nonlinearity": act} if act else {}
        layer = getattr(torch.nn, word)(I, H, bias=bias, bidirectional=both, **more).double()
        self.x = torch.randn(T, N, I, dtype=torch.float64, requires_grad=True)
        k = 2 if word == "LSTM" else 1
        self.states = [torch.randn(self.D, N, H, dtype=torch.float64, requires_grad=True) for _ in range(k)]
        y, final = layer(self.x, tuple(self.states) if k == 2 else self.states[0])
        finals = final if k == 2 else (final,)
        self.y = y.detach().numpy()
        self.finals = [f.detach().numpy() for f in finals]
        self.dy, *d_finals = [torch.randn_like(v) for v in (y, *finals)]
        torch.autograd.backward([y, *finals], [self.dy, *d_finals])
        self.d_finals = [d.numpy() for d in d_finals]
        self.p = {n: v.detach().numpy() for n, v in layer.named_parameters()}
        self.d = {n: v.grad.numpy() for n, v in layer.named_parameters()}

    def of(self, table: dict[str, Any], name: str) -> list[Any]:
        """A parameter or its gradient per direction."""
        return [table[f"{name}_l0{suffix}"] for suffix in ("", "_reverse")[: self.D]]

    def weights(self, table: dict[str, Any]) -> tuple[Any, Any]:
        """recurrentWeight and inputWeight."""
        R = self.of(table, "weight_hh")
        return np.stack(R) if self.D == 2 else R[0], np.concatenate(self.of(table, "weight_ih"))


def side_by_side(v: Any) -> Any:
    """[D,N,H] as [N,D*H]."""
    return np.concatenate(list(v), axis=1)


def biases(kind: str, t: Layer, a: mps.Arrays) -> None:
    pairs = list(zip(t.of(t.p, "bias_ih"), t.of(t.p, "bias_hh"), strict=True))
    if kind != "GRU":
        a["bias"] = np.concatenate([b + c for b, c in pairs])
        return
    zero = np.zeros(H)
    a["bias"] = np.concatenate([b + np.concatenate([c[: 2 * H], zero]) for b, c in pairs])
    a["secondaryBias"] = np.concatenate([c[2 * H :] for _, c in pairs])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_against_torch(kind: str, both: bool, bias: bool, seed: int) -> None:
    need("torch")
    op, attrs = KINDS[kind]
    attrs = attrs | {"bidirectional": both}
    t = Layer(kind, both, bias, seed)
    R, W = t.weights(t.p)
    a: mps.Arrays = {"source": t.x.detach().numpy(), "recurrentWeight": R, "inputWeight": W}
    if bias:
        biases(kind, t, a)
    names = ("initState", "initCell")
    a |= {n: side_by_side(s.detach().numpy()) for n, s in zip(names, t.states, strict=False)}
    out = li.interpret(mps.graph(op, a, attrs), a)
    np.testing.assert_allclose(out["r_h"], t.y, rtol=1e-11, atol=1e-11)
    for name, final in zip(("r_h", "r_c"), t.finals, strict=False):
        for d in range(t.D):
            rows = np.split(out[name], t.D, axis=2)[d][-1 if d == 0 else 0]
            np.testing.assert_allclose(rows, final[d], rtol=1e-11, atol=1e-11)
    given = a | {"sourceGradient": t.dy.numpy()}
    given |= {o: out[f"r_{r}"] for o, r in mps.SAVED[op].items()}
    arrived = zip(("stateGradient", "cellGradient"), t.d_finals, strict=False)
    given |= {n: side_by_side(d) for n, d in arrived}
    got = li.interpret(mps.graph(mps.BACK[op], given, attrs), given)
    dR, dW = t.weights(t.d)
    want = {"r_source": t.x.grad.numpy(), "r_recurrentWeight": dR, "r_inputWeight": dW}
    if bias:
        want["r_bias"] = np.concatenate(t.of(t.d, "bias_ih"))
    want |= {f"r_{n}": side_by_side(s.grad.numpy()) for n, s in zip(names, t.states, strict=False)}
    if bias and kind == "GRU":
        want["r_secondaryBias"] = np.concatenate([b[2 * H :] for b in t.of(t.d, "bias_hh")])
    mps.close(got, want, 1e-11, (kind, both, bias))
