"""What is walked: an exported program in ops of the table, the names and shapes of its inputs, what its symbols are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lstm_ir.importers.torch import assumptions
from lstm_ir.importers.torch.call import as_value
from lstm_ir.importers.torch.exporting import NotExportedError, exported
from lstm_ir.importers.torch.functional import functional, op_name
from lstm_ir.importers.torch.interface import Example
from lstm_ir.importers.torch.names import output_names
from lstm_ir.importers.torch.places import of_node
from lstm_ir.importers.torch.symbols import Symbols, expression
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.errors import DimError, ModelError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType

Shapes = dict[str, tuple[str, tuple[Dim, ...]]]


@dataclass(frozen=True)
class Source:
    """One program. `inputs` are by placeholder the name in the graph and the shape."""

    title: str
    ep: Any
    inputs: Shapes
    symbols: Symbols
    layer: str
    example: Example | None = None

    @classmethod
    def of_module(cls, module: Any, example: Any, sizes: Any) -> Source:
        """The export of a module over example inputs."""
        title = type(module).__name__
        given = Example(title, module, example, sizes)
        ep = exported(module, given)
        assumptions.check(module, given, ep)
        shapes = [(i.name, i.shape) for i in given.inputs]
        return replace(cls._made(title, ep, shapes, title), example=given)

    @classmethod
    def of_program(cls, ep: Any, sizes: Any) -> Source:
        """A program that the caller exported; open sizes without names are called after inputs and axes."""
        title = "ExportedProgram"
        held = _tensors(ep)
        unknown = [n for n in sizes or {} if n not in [h.name for h in held]]
        if unknown:
            shown = ", ".join(h.name for h in held) or "none"
            raise ModelError(f"{title}: sizes has {unknown[0]!r}; the inputs are {shown}")
        shapes = [(h.name, _named(title, h, (sizes or {}).get(h.name, {}))) for h in held]
        return cls._made(title, ep, shapes, "")

    @classmethod
    def _made(cls, title: str, ep: Any, shapes: Sequence[tuple[str, tuple[Dim, ...]]], layer: str) -> Source:
        open_before = len(ep.range_constraints)
        try:
            made = functional(ep)
        except Exception as e:  # of PyTorch's own rewriting
            given = zip(_tensors(ep), shapes, strict=True)
            inputs_ = [(name, shape, h.meta["val"].dtype) for h, (name, shape) in given]
            raise NotExportedError(title, inputs_, _undone(ep, e), "run_decompositions") from e
        symbols = Symbols()
        inputs: Shapes = {}
        for h, (name, shape) in zip(_tensors(made), shapes, strict=True):
            inputs[h.name] = (name, shape)
            for axis, (d, size) in enumerate(zip(h.meta["val"].shape, shape, strict=True)):
                _bind(title, symbols, f"{name} axis {axis}", d, size)
        assert open_before >= 0
        return cls(title, made, inputs, symbols, layer)

    def outputs(self, results: Sequence[Any]) -> dict[str, Value]:
        """The results by name."""
        spec = self.ep.call_spec.out_spec
        found = [_value(r) for r in results]
        names = output_names(self.title, spec, self.layer)
        given = {n: v for n, v in zip(names, found, strict=True) if v is not None}
        if not given:
            raise ModelError(f"{self.title}: forward gives no tensor")
        return given


def _undone(ep: Any, e: Exception) -> str:
    """Why PyTorch does not rewrite a program."""
    bodies = [part for part in ep.graph_module.modules() if part is not ep.graph_module]
    for n in (n for part in bodies if isinstance(part, torch.fx.GraphModule) for n in part.graph.nodes):
        if isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable:
            return (
                f"the body of a loop or a branch writes in place ({op_name(n.target)}){of_node(n)}: write "
                "torch.slice_scatter, torch.index_put or torch.where in place of y[...] = z, and x + y of x += y"
            )
    first = next(iter(str(e).splitlines()), type(e).__name__)
    return f"torch's run_decompositions does not take it: {first}"


def _value(r: Any) -> Value | None:
    """A result as a tensor; None stays away."""
    if r is None or isinstance(r, Value):
        return r
    found = r.value() if hasattr(r, "value") else r
    if isinstance(found, Value):
        return found
    return (
        as_value(found, DType.i64)
        if isinstance(found, (int, Expr)) and not isinstance(found, bool)
        else constant(found)
    )


def _tensors(ep: Any) -> list[Any]:
    """Placeholders of the tensors that a call gives."""
    users = {s.arg.name for s in ep.graph_signature.input_specs if s.kind.name == "USER_INPUT"}
    return [n for n in ep.graph.nodes if n.op == "placeholder" and n.name in users
            and isinstance(n.meta.get("val"), torch.Tensor)]  # fmt: skip


def _named(title: str, h: Any, sizes: Any) -> tuple[Dim, ...]:
    shape = h.meta["val"].shape
    by_axis = dict(sizes) if isinstance(sizes, Mapping) else dict(enumerate(sizes))
    out: list[Dim] = []
    for axis, d in enumerate(shape):
        word = by_axis.get(axis) or by_axis.get(axis - len(shape))
        try:
            named = dims.parse(word) if isinstance(word, str) else dims.name(f"{h.name}_{axis}")
        except DimError as e:
            raise ModelError(f"{title}: sizes: {h.name} axis {axis}: {e}") from None
        if isinstance(d, int) and isinstance(word, str):
            raise ModelError(f"{title}: sizes: {h.name} axis {axis} is {d}, no open size")
        out.append(d if isinstance(d, int) else named)
    return tuple(out)


def _bind(title: str, symbols: Symbols, where: str, d: Any, size: Dim) -> None:
    """What a symbol of PyTorch's is; ModelError where two of the caller's names are one size."""
    if isinstance(d, int):
        if size != d:
            raise ModelError(f"{title}: {where} ({size}) is {d} whatever the call: leave it out of sizes")
        return
    e = expression(d)
    if e.is_Integer:
        return _bind(title, symbols, where, int(e), size)
    if not e.is_Symbol:
        raise ModelError(f"{title}: {where} ({size}) has to be {_shown(e)}: write so in sizes")
    before = symbols.known(e.name)
    if before is not None and before != size:
        raise ModelError(f"{title}: {where} ({size}) is the same size as {before}: give both one name in sizes")
    symbols.bind(e.name, size)
    return None


def _shown(e: Any) -> str:
    return str(e).replace(" ", "")
