"""Values and gradients of the references of cells: by torch or by JAX, in the type of the arrays.

The names are those of the graphs: y; loss = sum(y^2) and d_NAME.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cell_libraries import of_jax, of_torch, scan_operator
from cell_references import CELLS

Arrays = dict[str, Any]


def torch_run(name: str, given: Arrays, weights: Arrays, compiled: bool = False) -> Arrays:
    """An eager loop, and its backward pass; compiled: the scan operator as torch.compile captures it, op by op."""
    import torch

    leaves = {k: torch.from_numpy(np.array(a)).requires_grad_() for k, a in (given | weights).items()}
    model, library = CELLS[name], of_torch(scan_operator) if compiled else of_torch()
    if compiled:
        torch._dynamo.reset()
        model = torch.compile(model, fullgraph=True, backend="aot_eager")
    y = model(library, {k: leaves[k] for k in given}, {k: leaves[k] for k in weights})
    loss = (y * y).sum()
    loss.backward()
    slopes = {f"d_{k}": v.grad.numpy() for k, v in leaves.items() if v.grad is not None}
    return {"y": y.detach().numpy(), "loss": loss.detach().numpy()} | slopes


def jax_run(name: str, given: Arrays, weights: Arrays) -> Arrays:
    """lax.scan, compiled."""
    import jax

    library = of_jax()

    def loss(leaves: Arrays) -> Any:
        y = CELLS[name](library, {k: leaves[k] for k in given}, {k: leaves[k] for k in weights})
        return (y * y).sum(), y

    with jax.enable_x64(True):
        (total, y), slopes = jax.jit(jax.value_and_grad(loss, has_aux=True))({**given, **weights})
        found = {"y": y, "loss": total} | {f"d_{k}": v for k, v in slopes.items()}
        return {k: np.asarray(v) for k, v in found.items()}
