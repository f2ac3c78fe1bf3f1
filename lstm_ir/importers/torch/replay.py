"""Two exported programs on the same arrays, by PyTorch: whether other ops give the same results.

Recurrent layers run as PyTorch's own, packed sequences without their lengths, dropout not at all: both programs alike.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from lstm_ir.importers.torch.functional import op_name

_DROPOUT = ("aten.dropout.default", "aten.feature_dropout.default")


def same_results(a: Any, b: Any, call: tuple[Any, Any]) -> bool:
    """Whether both programs give the same to a call."""
    try:
        ours, theirs = (_results(ep, call) for ep in (a, b))
    except Exception:  # the open program does not run at these sizes, the module does
        return False
    return len(ours) == len(theirs) and all(map(_close, ours, theirs))


def _close(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and bool(a == b)
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    return bool(torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-4, equal_nan=True))


def _results(ep: Any, call: tuple[Any, Any]) -> list[Any]:
    given = iter([v for v in pytree.tree_leaves(call)])
    held = []
    for s in ep.graph_signature.input_specs:
        if s.kind.name == "USER_INPUT":
            v = next(given)
        else:
            v = ep.state_dict[s.target] if s.target in ep.state_dict else ep.constants[s.target]
        held.append(v.detach().clone() if isinstance(v, torch.Tensor) else v)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        return list(pytree.tree_leaves(_Replay(ep.graph_module).run(*held)))


class _Replay(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs what is used; ops that never run have stand-ins."""

    def run_node(self, n: Any) -> Any:
        return super().run_node(n) if n.users or n.op in ("output", "placeholder") else None

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        name = op_name(target)
        if name.startswith("lstm_ir."):
            return _STAND_INS[name.split(".")[1]](*args)
        if name in _DROPOUT:
            return args[0]
        return super().call_function(target, args, kwargs)


def _packed(kind: str) -> Any:
    def run(data: Any, lengths: Any, steps: Any, hx: Any, *layer: Any) -> Any:
        x = data.reshape(steps, lengths.shape[0], *data.shape[1:])
        y, *last = getattr(torch._VF, kind)(x, hx, *layer, False)
        return (y.reshape(data.shape[0], *y.shape[2:]), *last)

    return run


def _pack(input: Any, lengths: Any, batch_first: bool) -> Any:
    x = input.transpose(0, 1) if batch_first else input
    return x.reshape(-1, *x.shape[2:]), torch.zeros(x.shape[0], dtype=torch.int64)


def _pad(data: Any, lengths: Any, steps: Any, total: Any, batch_first: bool, value: float) -> Any:
    x = data.reshape(steps, lengths.shape[0], *data.shape[1:])
    if total is not None and total > steps:
        x = torch.cat([x, x.new_full((total - steps, *x.shape[1:]), value)])
    return x.transpose(0, 1) if batch_first else x


_KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_STAND_INS: dict[str, Any] = {k: getattr(torch._VF, k) for k in _KINDS}
_STAND_INS |= {f"packed_{k}": _packed(k) for k in _KINDS} | {"pack": _pack, "pad": _pad}
_STAND_INS["own_gradient"] = lambda x, why: x
