"""`li.from_torch`: a module of PyTorch as a graph, by `torch.export`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.errors import IRError, MissingLibraryError, ModelError
from lstm_ir.ir.graph import Graph
from lstm_ir.ops.core.roll import rolled

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

    from lstm_ir.importers.torch.interface import AxisSizes
    from lstm_ir.importers.torch.walk import Walk


def from_torch(
    module: Module | ExportedProgram,
    example: tuple[Any, ...] | Mapping[str, Any] | None = None,
    *,
    sizes: Mapping[str, AxisSizes] | None = None,
) -> Graph:
    """The graph of a module, with the names of forward's parameters and of the state_dict.

    example: the inputs of one call, a tuple as `module(*example)` takes it, or a dict as `module(**example)` does;
    tensors are inputs of the graph, everything else is fixed. sizes: which axes stay open, by input:
    `{"x": ("B", "T", None)}` or `{"x": {0: "B", 1: "T"}}`; what is not named is a number. Parameters that learn are
    weights. A module in training mode keeps its dropout, drawn by an input `step`. An `ExportedProgram` stands for
    module and example.
    Raises ModelError, which lists every op that is not taken.
    """
    return walked(module, example, sizes)[1]()


def walked(module: Any, example: Any, sizes: Any) -> tuple[Walk, Callable[[], Graph]]:
    """The walk over a module, and what makes the graph of it."""
    try:
        import torch
    except ImportError as e:
        raise MissingLibraryError("from_torch needs torch: pip install torch", name="torch") from e
    from lstm_ir.importers.torch.program import Source
    from lstm_ir.importers.torch.walk import Walk

    if isinstance(module, torch.export.ExportedProgram):
        source = Source.of_program(module, sizes)
    elif isinstance(module, torch.jit.ScriptModule) or not isinstance(module, torch.nn.Module):
        raise ModelError(refusal(module))
    elif example is None:
        raise ModelError("from_torch: example is missing: the inputs of one call, as a tuple or a dict")
    else:
        source = Source.of_module(module, example, sizes)
    walk = Walk(source.title, source.ep, source.inputs, source.symbols, source.example)
    walk.run()
    return walk, lambda: _graph(source, walk)


def refusal(model: Any) -> str:
    """Why something is no module."""
    kind = type(model).__name__
    if isinstance(model, (str, bytes)) or hasattr(model, "__fspath__"):
        return f"from_torch takes a module or an ExportedProgram, not {_file(model)}"
    hint = ": give the nn.Module that it was made of" if "Script" in kind else ""
    return f"from_torch takes an nn.Module or an ExportedProgram, got {kind}{hint}"


def _graph(source: Any, walk: Walk) -> Graph:
    walk.refusals.raise_any()
    word = re.sub(r"\W", "_", source.title)
    try:
        whole = Graph(word if word.isidentifier() else "model", walk.inputs, source.outputs(walk.results))
        return rolled(whole)  # cells in a loop of Python
    except IRError as e:
        raise ModelError(f"{source.title}: {e}") from e


def _file(file: Any) -> str:
    """What a file is, why it is not read, and what to do instead."""
    name = "bytes" if isinstance(file, bytes) else f"the file {PurePath(file).name!r}"
    if not isinstance(file, bytes) and PurePath(file).suffix.lower() == ".pt2":
        return (
            f"{name}: torch.export.load unpickles what it holds and evaluates text, so that it may run code; of one "
            "that you trust: from_torch(torch.export.load(path))"
        )
    return (
        f"{name}: it may be a pickle, which runs code when it is read; give the live nn.Module, an ONNX file to "
        "from_onnx, or the weights alone as .safetensors, which convert_weights moves"
    )
