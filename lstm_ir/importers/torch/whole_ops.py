"""Ops that stand for PyTorch's recurrent layers while a module is exported: each gives shapes alone, whatever T is.

PyTorch's own ops have shape functions that loop over time, so that T could not stay open. These ops are
`torch.ops.lstm_ir.*`; they exist from the import of this file on and never run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

OWN = "lstm_ir"
_LAYER = "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional"
_KINDS = {"lstm": "Tensor[] hx", "gru": "Tensor hx", "rnn_tanh": "Tensor hx", "rnn_relu": "Tensor hx"}
_RESULTS = {"lstm": "(Tensor, Tensor, Tensor)"}
_LIBRARY = torch.library.Library(OWN, "DEF")


def _define(name: str, operands: str, results: str, shapes: Callable[..., Any]) -> None:
    _LIBRARY.define(f"{name}({operands}) -> {results}")
    torch.library.register_fake(f"{OWN}::{name}", shapes, lib=_LIBRARY)


def _layer(input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
           bidirectional: bool, batch_first: bool = False) -> tuple[Any, ...]:  # fmt: skip
    """y [..., D*P] of x [..., I], and states as they came."""
    states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    columns = (2 if bidirectional else 1) * states[0].shape[-1]
    return input.new_empty((*input.shape[:-1], columns)), *(s.new_empty(s.shape) for s in states)


def _packed_layer(data: Any, lengths: Any, steps: Any, hx: Any, *layer: Any) -> tuple[Any, ...]:
    return _layer(data, hx, *layer)


def _pack(input: Any, lengths: Any, batch_first: bool) -> tuple[Any, Any]:
    """Rows of all steps, as many as only a call knows, and one number for each step."""
    rows = torch.library.get_ctx().new_dynamic_size(min=1)  # layers ask whether there is a row
    steps = input.shape[1 if batch_first else 0]
    return input.new_empty((rows, *input.shape[2:])), input.new_empty((steps,), dtype=torch.int64, device="cpu")


def _pad(data: Any, lengths: Any, steps: Any, total_length: Any, batch_first: bool, padding_value: float) -> Any:
    T, B = steps if total_length is None else total_length, lengths.shape[0]
    return data.new_empty((*((B, T) if batch_first else (T, B)), *data.shape[1:]))


for _name, _hx in _KINDS.items():
    _results = _RESULTS.get(_name, "(Tensor, Tensor)")
    _define(_name, f"Tensor input, {_hx}, {_LAYER}, bool batch_first", _results, _layer)
    _define(
        f"packed_{_name}", f"Tensor data, Tensor lengths, SymInt steps, {_hx}, {_LAYER}", _results, _packed_layer
    )  # fmt: skip
_define("pack", "Tensor input, Tensor lengths, bool batch_first", "(Tensor, Tensor)", _pack)
_define(
    "pad",
    "Tensor data, Tensor lengths, SymInt steps, SymInt? total_length, bool batch_first, float padding_value",
    "Tensor",
    _pad,
)

_define("own_gradient", "Tensor x, str why", "Tensor", lambda x, why: x.new_empty(x.shape))  # x itself

ATEN = {f"aten.{k}.input": getattr(torch.ops.lstm_ir, k).default for k in _KINDS}
"""By PyTorch's ops ours."""
