"""A module by PyTorch itself, as what a graph is compared with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_ir.importers.messages import silenced
from lstm_ir.importers.torch.model import refusal
from lstm_ir.ir.errors import CallError, MissingLibraryError, ModelError

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

Call = Callable[[Mapping[str, Any]], Any]


class Torch:
    """A module in its own mode, or an exported program, as PyTorch runs it; arrays by the names of the graph's inputs.

    example: the inputs that `from_torch` was given, where forward takes more than tensors and tuples of them.
    """

    def __init__(
        self, model: Module | ExportedProgram, example: tuple[Any, ...] | Mapping[str, Any] | None = None
    ) -> None:
        try:
            import torch
        except ImportError as e:
            raise MissingLibraryError("to compare with a module needs torch: pip install torch", name="torch") from e
        program = isinstance(model, torch.export.ExportedProgram)
        if not program and (isinstance(model, torch.jit.ScriptModule) or not isinstance(model, torch.nn.Module)):
            raise ModelError(refusal(model))
        title = "ExportedProgram" if program else type(model).__name__
        self.name = f"{title} by PyTorch {torch.__version__}"
        held = model.state_dict.values() if program else model.state_dict().values()
        self.bytes: int | None = sum(v.numel() * v.element_size() for v in held)
        self._layer = "" if program else title
        self._title = title
        self._call: Call = _of_program(model) if program else _of_module(title, model, example)

    def __call__(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Results by name. CallError where the module does not take the arrays."""
        import torch
        from torch.utils import _pytree as pytree

        from lstm_ir.importers.torch.names import output_names
        from lstm_ir.importers.torch.tensors import data_of

        try:
            with torch.no_grad():
                results = self._call(arrays)
        except Exception as e:  # whatever the module raises
            first = next(iter(str(e).splitlines()), type(e).__name__)
            raise CallError(f"{self.name}: it does not take the arrays: {first}") from e
        leaves, spec = pytree.tree_flatten(results)
        names = output_names(self._title, spec, self._layer)
        return {n: data_of(v).array for n, v in zip(names, leaves, strict=True) if isinstance(v, torch.Tensor)}

    def cold(self, folder: Path, arrays: Path) -> str | None:
        """Not known: a live module is in no file."""
        return None


def _tensor(array: Any) -> Any:
    """A copy of an array as a tensor."""
    import numpy as np
    import torch

    host = np.ascontiguousarray(array)
    if host.dtype.name == "bfloat16":  # NumPy has it from elsewhere: PyTorch takes its bits
        return torch.from_numpy(host.view(np.int16).copy()).view(torch.bfloat16).reshape(host.shape)
    return torch.from_numpy(host.copy()).reshape(host.shape)


def _of_program(ep: Any) -> Call:
    """Arrays in the order of the program's inputs; numbers among these are those of the export."""
    from torch.utils import _pytree as pytree

    specs = [s.arg for s in ep.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    with silenced("torch"):
        module = ep.module()

    def call(arrays: Mapping[str, Any]) -> Any:
        leaves = [_tensor(arrays[a.name]) if a.name in arrays else getattr(a, "value", None) for a in specs]
        args, kwargs = pytree.tree_unflatten(leaves, ep.call_spec.in_spec)
        return module(*args, **kwargs)

    return call


def _of_module(title: str, module: Any, example: Any) -> Call:
    if example is not None:
        from lstm_ir.importers.torch.interface import Example

        given = Example(title, module, example, None)

        def like(arrays: Mapping[str, Any]) -> Any:
            args, kwargs = given.filled({n: _tensor(a) for n, a in arrays.items()})
            return module(*args, **kwargs)

        return like

    def call(arrays: Mapping[str, Any]) -> Any:
        args, kwargs = _arguments(module, arrays)
        return module(*args, **kwargs)

    return call


def _arguments(module: Any, arrays: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of forward: `x` is a parameter, `hx_0` and `hx_1` are a tuple, `more_mask` is a key of a dict."""
    parameters = inspect.signature(module.forward).parameters
    by_name: dict[str, Any] = {}
    for name, array in arrays.items():
        owners = [p for p in parameters if name == p or name.startswith(f"{p}_")]
        if not owners:
            raise CallError(f"forward has no parameter for {name!r}")
        owner = max(owners, key=len)
        _put(by_name, [owner, *_path(name[len(owner) + 1 :])], _tensor(array))
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_place = True  # as long as none was left out
    for name, p in parameters.items():
        if name not in by_name:
            by_place = by_place and p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            continue
        found = _tuples(by_name[name])
        if p.kind is p.VAR_KEYWORD:
            kwargs |= found
        elif p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and not by_place):
            kwargs[name] = found
        elif not by_place:
            raise CallError(f"forward takes {name} by its place, and a parameter before it is not given")
        else:
            args += found if p.kind is p.VAR_POSITIONAL else [found]
    return args, kwargs


def _path(rest: str) -> list[str | int]:
    """`0_1` are places in tuples, every other word is a key."""
    words = rest.split("_") if rest else []
    return [int(w) for w in words] if all(w.isdigit() for w in words) else [rest]


def _put(tree: dict[Any, Any], path: list[Any], leaf: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = leaf


def _tuples(tree: Any) -> Any:
    """Dicts with the keys 0, 1, … as tuples."""
    if not isinstance(tree, dict):
        return tree
    inner = {k: _tuples(v) for k, v in tree.items()}
    return tuple(inner[k] for k in sorted(inner)) if all(isinstance(k, int) for k in inner) else inner
