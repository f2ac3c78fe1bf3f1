"""What cell_references.py needs of torch and of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Step = Callable[[Any, Any], tuple[Any, Any]]
HEADS = 4


@dataclass(frozen=True)
class Library:
    """Functions under one name. `np`: what both have under NumPy's names."""

    np: Any
    sigmoid: Callable[[Any], Any]
    relu: Callable[[Any], Any]
    softmax: Callable[[Any], Any]  # over the last axis
    zeros: Callable[[Any, Sequence[int]], Any]  # of the type of an array
    array: Callable[[Any, Any], Any]
    constant: Callable[[Any], Any]  # the same without a gradient
    conv3x3: Callable[[Any, Any], Any]  # [N, C, h, w] with [O, C, 3, 3], padded to the same size
    along_places: Callable[[Any, Any], Any]  # [N, S] with [taps, C] -> [N, S, C], padded to the same size
    scan: Callable[[Step, Any, Any], Any]

    def spike(self, u: Any, slope: float) -> Any:
        """1 where u > 0, else 0; its slope is taken to be 1 / (1 + slope |u|)²."""
        bent = u * self.constant(1 / (1 + slope * self.np.abs(u)) ** 2)
        fired = self.np.where(u > 0, self.np.ones_like(u), self.np.zeros_like(u))
        return self.constant(fired) + (bent - self.constant(bent))


def eager(step: Step, first: Any, rows: Any) -> Any:
    """A loop of Python, as users of torch write it."""
    import torch

    several = isinstance(rows, tuple)
    carry, found = first, []
    for t in range((rows[0] if several else rows).shape[0]):
        carry, y = step(carry, tuple(r[t] for r in rows) if several else rows[t])
        found.append(y)
    if isinstance(found[0], tuple):
        return tuple(torch.stack(ys) for ys in zip(*found, strict=True))
    return torch.stack(found)


def scan_operator(step: Step, first: Any, rows: Any) -> Any:
    """torch's operator, which torch.compile keeps as a loop. Results may not share memory with one another or with what
    the step is given."""
    from torch._higher_order_ops.scan import scan

    def own(tree: Any) -> Any:
        return tuple(v.clone() for v in tree) if isinstance(tree, tuple) else tree.clone()

    def apart(carry: Any, row: Any) -> Any:
        carry, y = step(own(carry), row)
        return own(carry), own(y)

    return scan(apart, own(first), rows)[1]


def of_torch(scan: Callable[[Step, Any, Any], Any] = eager) -> Library:
    import torch

    functional = torch.nn.functional

    def along_places(a: Any, w: Any) -> Any:
        return functional.conv1d(a[:, None], w.T[:, None], padding=w.shape[0] // 2).transpose(1, 2)

    return Library(
        torch, torch.sigmoid, torch.relu, lambda a: torch.softmax(a, -1),
        lambda like, shape: torch.zeros(tuple(shape), dtype=like.dtype),
        lambda like, values: torch.tensor(values, dtype=like.dtype),
        lambda a: a.detach(), lambda x, w: functional.conv2d(x, w, padding=1), along_places, scan,
    )  # fmt: skip


def of_jax() -> Library:
    import jax
    import jax.numpy as jnp

    def conv3x3(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))

    def along_places(a: Any, w: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            a[:, None], w.T[:, None], (1,), "SAME", dimension_numbers=("NCH", "OIH", "NCH")
        )
        return jnp.swapaxes(y, 1, 2)

    return Library(
        jnp, jax.nn.sigmoid, jax.nn.relu, lambda a: jax.nn.softmax(a, -1),
        lambda like, shape: jnp.zeros(tuple(shape), like.dtype), lambda like, values: jnp.asarray(values, like.dtype),
        jax.lax.stop_gradient, conv3x3, along_places, lambda step, first, rows: jax.lax.scan(step, first, rows)[1],
    )  # fmt: skip


def by_heads(a: Any) -> Any:
    """[T, B, H] -> [T, B, 4, H/4]."""
    return a.reshape(*a.shape[:-1], HEADS, a.shape[-1] // HEADS)


def softplus(l: Library, a: Any) -> Any:
    return l.np.logaddexp(a, a * 0)
