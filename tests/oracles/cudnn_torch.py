"""CudnnRNN by PyTorch: one module per layer over packed sequences, gradients by autograd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cudnn_cases as cu
import numpy as np

Array = np.ndarray[Any, Any]


class Reference:
    """One call in float64; params are cut by PyTorch's own parameter order."""

    def __init__(self, torch: Any, a: Mapping[str, Array], L: int, attrs: Mapping[str, Any]) -> None:
        self.torch, self.L = torch, L
        self.mode = attrs.get("rnn_mode", "lstm")
        self.D = 2 if attrs.get("direction") == "bidirectional" else 1
        self.major = attrs.get("time_major", True)
        self.x, self.h, self.c = (self._leaf(a[k]) for k in cu.OPERANDS[:3])
        self.lengths = torch.from_numpy(a["sequence_lengths"].astype(np.int64))
        wide = self.x.shape[2]
        self.H = int((self.c if self.mode == "lstm" else self.h).shape[2])
        self.skip = attrs.get("input_mode") == "skip_input"
        proj = attrs.get("num_proj", 0)
        proj = 0 if proj == self.H else proj
        self.layers = [self._module(wide if k == 0 else self.D * int(self.h.shape[2]), proj) for k in range(L)]
        self.order = self._order()
        flat, at = torch.from_numpy(a["params"].astype(np.float64)), 0
        with torch.no_grad():
            for p in self.order:
                p.copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()
            if self.skip:
                for name, p in self.layers[0].named_parameters():
                    if name.startswith("weight_ih"):
                        p.copy_(torch.eye(self.H).repeat(cu.GATES[self.mode], 1))
        assert at == len(flat)

    def _leaf(self, a: Array) -> Any:
        t = self.torch.from_numpy(np.asarray(a, np.float64))
        t = t.transpose(0, 1) if t.ndim == 3 and not self.major else t
        return t.contiguous().detach().requires_grad_()

    def _module(self, wide: int, proj: int) -> Any:
        nn, both = self.torch.nn, self.D == 2
        kind = {"dtype": self.torch.float64, "bidirectional": both}
        if self.mode == "lstm":
            return nn.LSTM(wide, self.H, proj_size=proj, **kind)
        if self.mode == "gru":
            return nn.GRU(wide, self.H, **kind)
        return nn.RNN(wide, self.H, nonlinearity=self.mode.removeprefix("rnn_"), **kind)

    def _order(self) -> list[Any]:
        """Weights of every layer, then biases, as PyTorch lists them."""
        tails = ("_l0", "_l0_reverse")[: self.D]
        out = []
        for group in (("weight_ih", "weight_hh", "weight_hr"), ("bias_ih", "bias_hh")):
            for k, m in enumerate(self.layers):
                named = dict(m.named_parameters())
                for name in (n + t for t in tails for n in group):
                    absent = self.skip and k == 0 and name.startswith("weight_ih")
                    if name in named and not absent:
                        out.append(named[name])
        return out

    def run(self, keep: Array | None = None, scale: float = 1.0) -> dict[str, Array]:
        """output, output_h and output_c."""
        rnn = self.torch.nn.utils.rnn
        x, finals = self.x, []
        for k, m in enumerate(self.layers):
            at = slice(k * self.D, (k + 1) * self.D)
            state = (self.h[at], self.c[at]) if self.mode == "lstm" else self.h[at]
            packed = rnn.pack_padded_sequence(x, self.lengths, enforce_sorted=False)
            y, last = m(packed, state)
            x, _ = rnn.pad_packed_sequence(y, total_length=self.x.shape[0])
            finals.append(last if self.mode == "lstm" else (last,))
            if keep is not None and k < self.L - 1:
                x = x * self.torch.from_numpy(keep[k].astype(np.float64)) * scale
        self.results = [x, *(self.torch.cat(parts) for parts in zip(*finals, strict=True))]
        named = zip(("output", "output_h", "output_c"), self.results, strict=False)
        return {k: self._out(v) for k, v in named}

    def grads(self, b: Mapping[str, Array]) -> dict[str, Array]:
        """Gradients after `run`, for the arriving gradients in `b`."""
        arriving = [self._leaf(b[f"{n}_backprop"]) for n in ("output", "output_h", "output_c")]
        total = sum((v * g).sum() for v, g in zip(self.results, arriving, strict=False))
        total.backward()
        out = {"input_backprop": self._out(self.x.grad), "input_h_backprop": self._out(self.h.grad)}
        if self.mode == "lstm":
            out["input_c_backprop"] = self._out(self.c.grad)
        flat = self.torch.cat([p.grad.reshape(-1) for p in self.order])
        return out | {"params_backprop": flat.numpy()}

    def _out(self, v: Any) -> Array:
        a: Array = v.detach().numpy()
        return a if self.major else np.swapaxes(a, 0, 1)
