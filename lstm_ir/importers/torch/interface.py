"""What the caller gives beside a module: example inputs, and names of the sizes that stay open."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.errors import DimError, ModelError

AxisSizes = Mapping[int, "str | int"] | Sequence["str | int | None"]


@dataclass(frozen=True)
class Input:
    """A tensor among the example inputs: its name and its shape, open sizes as names."""

    name: str
    shape: tuple[Dim, ...]
    example: Any

    @property
    def open(self) -> dict[int, Expr]:
        """Axes whose size a call knows."""
        return {a: d for a, d in enumerate(self.shape) if isinstance(d, Expr)}


class Example:
    """The example inputs of a module by the names of `forward`'s parameters, with their open sizes."""

    def __init__(self, title: str, module: Any, example: Any, sizes: Mapping[str, AxisSizes] | None) -> None:
        self.title = title
        if isinstance(example, torch.Tensor):
            raise ModelError(f"{title}: example is a tensor; a tuple holds the inputs: (x,)")
        args = tuple(example) if isinstance(example, (tuple, list)) else ()
        kwargs = dict(example) if isinstance(example, Mapping) else {}
        if not isinstance(example, (tuple, list, Mapping)):
            raise ModelError(f"{title}: example is {type(example).__name__}; it is a tuple, or a dict by parameter")
        try:
            self.bound = inspect.signature(module.forward).bind(*args, **kwargs)
        except (TypeError, ValueError) as e:
            raise ModelError(f"{title}: example does not fit forward: {e}") from None
        self.inputs = tuple(self._inputs(sizes))
        self.values = self._values()

    def _inputs(self, sizes: Mapping[str, AxisSizes] | None) -> list[Input]:
        if not isinstance(sizes, Mapping | None):
            raise ModelError(f"{self.title}: sizes is {sizes!r:.80}, not names of inputs with names of their axes")
        given = dict(sizes or {})
        leaves, _ = pytree.tree_flatten_with_path(dict(self.bound.arguments))
        for path, v in leaves:
            if isinstance(v, np.ndarray | np.generic):
                name = name_of(path)
                raise ModelError(f"{self.title}: example: {name} is of NumPy; give a tensor: torch.as_tensor({name})")
        tensors = [(name_of(path), v) for path, v in leaves if isinstance(v, torch.Tensor)]
        names = [n for n, _ in tensors]
        twice = [n for n in names if names.count(n) > 1]
        if twice:
            raise ModelError(f"{self.title}: two inputs are called {twice[0]!r}")
        unknown = [n for n in given if n not in names]
        if unknown:
            shown = ", ".join(names) or "none"
            raise ModelError(f"{self.title}: sizes has {unknown[0]!r}; the inputs are {shown}")
        return [Input(n, self._shape(n, v, given.get(n, {})), v) for n, v in tensors]

    def _shape(self, name: str, tensor: Any, sizes: AxisSizes) -> tuple[Dim, ...]:
        rank, shape = tensor.dim(), list(map(int, tensor.shape))
        fault = ModelError(
            f"{self.title}: sizes of {name} is {sizes!r:.80}; expected a name for each of its {rank} axes, None for a "
            "number, or names by axis"
        )
        if isinstance(sizes, str) or not isinstance(sizes, (Mapping, tuple, list)):
            raise fault
        if isinstance(sizes, Mapping):
            by_axis = dict(sizes)
        elif len(sizes) != rank:
            raise fault
        else:
            by_axis = dict(enumerate(sizes))
        out: list[Dim] = list(shape)
        for axis, size in by_axis.items():
            if not isinstance(axis, int) or not -rank <= axis < rank:
                raise ModelError(f"{self.title}: sizes of {name} has the axis {axis!r}; the input has {rank}")
            out[axis] = self._size(f"{name} axis {axis}", size, shape[axis])
        return tuple(out)

    def _size(self, where: str, size: Any, example: int) -> Dim:
        if size is None or (isinstance(size, int) and size == example):
            return example
        if not isinstance(size, str):
            raise ModelError(f"{self.title}: sizes: {where} is {size!r:.80}, the example has {example}")
        try:
            found = dims.parse(size)
        except DimError as e:
            raise ModelError(f"{self.title}: sizes: {where}: {e}") from None
        if isinstance(found, int) and found != example:
            raise ModelError(f"{self.title}: sizes: {where} is {found}, the example has {example}")
        return found

    def _values(self) -> dict[str, int]:
        """What the named sizes are in the example; ModelError where one is two numbers."""
        found: dict[str, int] = {}
        places = [(i, a, d) for i in self.inputs for a, d in i.open.items()]
        for i, axis, d in sorted(places, key=lambda p: len(str(p[2]))):  # names before expressions of them
            size, free = int(i.example.shape[axis]), dims.names(d) - set(found)
            if len(free) > 1:
                raise ModelError(f"{self.title}: sizes: {i.name} axis {axis} is {d}; which numbers these are is open")
            if free:
                (name,) = free
                at = [dims.evaluate(d, {**found, name: k}) for k in (0, 1)]
                step = at[1] - at[0]
                found[name] = (size - at[0]) // step if step else 0
            if dims.evaluate(d, found) != size:
                known = ", ".join(f"{n} = {found[n]}" for n in sorted(dims.names(d)))
                raise ModelError(f"{self.title}: sizes: {i.name} axis {axis} is {d} ({known}), the example has {size}")
        return found

    def call(self, values: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a call with these numbers for the named sizes; elements are those of the example in turn."""
        return self.filled({i.name: _resized(i, values) for i in self.inputs})

    def filled(self, tensors: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a call with these tensors by the names of inputs, and everything else as in the example."""
        leaves, spec = pytree.tree_flatten(dict(self.bound.arguments))
        left = iter(self.inputs)
        leaves = [tensors[next(left).name] if isinstance(v, torch.Tensor) else v for v in leaves]
        made = inspect.BoundArguments(self.bound.signature, OrderedDict(pytree.tree_unflatten(leaves, spec)))
        return made.args, made.kwargs

    def each(self, of_input: Callable[[Input], Any]) -> dict[str, Any]:
        """Something of each tensor, nested as the inputs are; None for what is no tensor."""
        leaves, spec = pytree.tree_flatten(dict(self.bound.arguments))
        left = iter(self.inputs)
        found = [of_input(next(left)) if isinstance(v, torch.Tensor) else None for v in leaves]
        return dict(pytree.tree_unflatten(found, spec))


def _resized(i: Input, values: Mapping[str, int]) -> Any:
    out = i.example
    for axis, d in i.open.items():
        n, old = dims.evaluate(d, values), int(i.example.shape[axis])
        if n != old:
            out = out.new_zeros((*out.shape[:axis], n, *out.shape[axis + 1 :])) if old == 0 else out.index_select(
                axis, torch.arange(n, device=out.device) % old
            )  # fmt: skip
    return out


def name_of(path: Sequence[Any]) -> str:
    """The name of a place in nested inputs: `state_0`, `batch_x`."""
    parts = []
    for key in path:
        found = next((getattr(key, k) for k in ("key", "idx", "name") if hasattr(key, k)), key)
        parts.append(str(found))
    return "_".join(parts)
