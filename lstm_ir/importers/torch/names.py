"""What the outputs of a module are called in the graph.

A dict gives its keys, a named tuple its fields; one tensor is `y`; (y, (h_n, c_n)) are called as those of `li.lstm`,
and (y, h) as those of `li.gru` where the module is a GRU or an RNN. Other tuples count: `y_0`, `y_1_0`.
"""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

from lstm_ir.importers.torch.interface import name_of
from lstm_ir.ir.errors import ModelError

_STATES = ("y", "h_n", "c_n")


def output_names(title: str, spec: Any, layer: str) -> list[str]:
    """One name for each output, in order. spec: how they are nested; layer: the name of the module's class."""
    leaves = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    if isinstance(leaves, int):
        return ["y"]
    if isinstance(leaves, (tuple, list)) and not hasattr(leaves, "_fields"):
        nested = [len(p) if isinstance(p, (tuple, list)) else 0 for p in leaves]
        if nested == [0, 2] and all(isinstance(p, int) for p in leaves[1]):
            return list(_STATES)
        if nested == [0, 0] and layer in ("GRU", "RNN"):
            return list(_STATES[:2])
    paths = [name_of(path) for path, _ in pytree.tree_flatten_with_path(leaves)[0]]
    names = [f"y_{p}" if p[:1].isdigit() else p for p in paths]
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise ModelError(f"{title}: two outputs are called {twice[0]!r}")
    return names
