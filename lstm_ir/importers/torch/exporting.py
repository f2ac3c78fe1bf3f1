"""A module as an exported program, with the sizes open that the caller named."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr
from typing import Any

import torch
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from lstm_ir.importers.messages import silenced
from lstm_ir.importers.refusals import NodeRefusedError, Refusal
from lstm_ir.importers.torch.interception import global_gradient_hooks, intercepted
from lstm_ir.importers.torch.interface import Example
from lstm_ir.importers.torch.places import SizeWatch, of_error, of_guard
from lstm_ir.ir import dims
from lstm_ir.ir.errors import LstmIrError, ModelError

_MARKED = re.compile(r"You marked (L\S*)\.size\(\)\[(\d+)\] as dynamic but .* to be a constant \((\d+)\)")


class NotExportedError(ModelError):
    """PyTorch makes no program of a module over inputs, or one that other sizes do not fit.

    inputs: of each its name, shape and element type.
    """

    def __init__(
        self, title: str, inputs: Iterable[tuple[str, tuple[dims.Dim, ...], Any]], reason: str, op: str = "torch.export"
    ) -> None:
        self.title, self.inputs, self.refusal = title, tuple(inputs), Refusal("forward", op, reason)
        super().__init__(f"{title}: {reason}", (str(self.refusal),))

    @classmethod
    def over(cls, example: Example, reason: str) -> NotExportedError:
        """Of a module with its example."""
        return cls(example.title, [(i.name, i.shape, i.example.dtype) for i in example.inputs], reason)


def exported(module: Any, example: Example) -> Any:
    """The `ExportedProgram` of a module. ModelError where PyTorch does not export it, or fixes an open size."""
    if isinstance(module, torch.fx.GraphModule) and _own_hooks(module):
        why = "it is a GraphModule with hooks of its own, which torch.export does not run: put it into a module"
        raise NotExportedError.over(example, why)
    args, kwargs = example.call(_at_least_two(example.values))
    shapes = example.each(lambda i: dict.fromkeys(i.open, Dim.DYNAMIC) or None)
    try:
        return program(module, args, kwargs, shapes)
    except LstmIrError:
        raise
    except Exception as e:  # whatever PyTorch, or the module itself, raises
        raise NotExportedError.over(example, _why(e, module, example)) from e


def _own_hooks(module: Any) -> bool:
    """Whether there are hooks on its forward or its gradients that PyTorch did not put there itself."""
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    every = [h for hooks in (*kinds, *global_gradient_hooks()) for h in hooks.values()]
    return any(not (getattr(h, "__module__", None) or type(h).__module__).startswith("torch.") for h in every)


def program(module: Any, args: Any, kwargs: Any, shapes: Any = None) -> Any:
    """torch.export of a module, with its recurrent layers whole; raises what PyTorch raises."""
    with silenced("torch"), intercepted(), redirect_stderr(_Stderr(sys.stderr)):
        return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)


class _Stderr:
    """What is written to a stream, but for the graph that PyTorch prints where a module asks for a value."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._ends = stream, False

    def write(self, text: str) -> int:
        ends, self._ends = self._ends, "def forward(self" in text and "torch.ops." in text
        if self._ends or (ends and text == "\n"):  # print writes the end of its line by itself
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _at_least_two(values: Mapping[str, int]) -> dict[str, int]:
    """The named sizes of the example; PyTorch takes 0 and 1 for numbers, so those are larger here."""
    return {n: k if k > 1 else 2 + at for at, (n, k) in enumerate(values.items())}


def _why(e: Exception, module: Any, example: Example) -> str:
    fixed = _fixed(str(e), example)
    if fixed:
        return "; ".join(_with_place(f, module, example) for f in fixed)
    if isinstance(e, NodeRefusedError):
        return f"{e}{of_error(e)}"
    if isinstance(e, GuardOnDataDependentSymNode):
        return f"{_SIZE if _of_sizes(e) else _BRANCH}{of_error(e)}: {_SIZE_ADVICE if _of_sizes(e) else _BRANCH_ADVICE}"
    for text, reason, advice in _OF_LOOPS:
        found = re.search(text, str(e))
        if found:
            return f"{reason}{''.join(f' ({g})' for g in found.groups())}{of_error(e)}: {advice}"
    lines = [line for line in str(e).splitlines() if line.strip()]
    inner = re.search(r"got (\w+\(.*\))", str(e))  # what an op raised, behind its operands
    reason = f"{lines[0]}: {inner[1]:.200}" if lines and inner else lines[0] if lines else type(e).__name__
    return f"torch.export does not take it: {reason}{of_error(e)}"


def _of_sizes(e: GuardOnDataDependentSymNode) -> bool:
    """Whether a symbol of the condition is a size that values decide; else it is a value itself."""
    return "(Size-like symbols: none)" not in str(e)


_BRANCH = "Python asks for the value of a tensor, which a call alone knows"
_BRANCH_ADVICE = (
    "write a branch as torch.where or torch.cond, a loop as torch._higher_order_ops.while_loop, and let numbers stay "
    "tensors"
)
_SIZE = "an op asks for a size that values decide: the rows of a packed sequence, or what a mask picks"
_SIZE_ADVICE = "unpack first with pad_packed_sequence(total_length=...), or use torch.where in place of the mask"

# What PyTorch says of a loop or a branch, in our words: a text of its message, what is wrong, what to write instead.
_OF_LOOPS = (
    (
        r"Could not extract specialized integer from data-dependent",
        "a tensor stands where Python needs a number, as t in x[t]",
        "write torch.index_select(x, 0, t.reshape(1))[0]",
    ),
    (
        r"carried_inputs to have same metadata[^\n]*\n[^\n']*'([^'\n]*)'",
        "a loop gives a state back otherwise than it began",
        "shapes and dtypes have to stay; where strides differ, begin with h.contiguous() and give back y.contiguous()",
    ),
    (
        r"Encountered aliasing during higher order op",
        "a body of a loop or a branch gives back what it was given",
        "give back h.clone() in place of h",
    ),
)


def _fixed(text: str, example: Example) -> list[tuple[str, int, str]]:
    """The inputs and axes that PyTorch found to be one number: their words."""
    places = {}
    for i in example.inputs:
        places[_tidy(i.name)] = i
    found = []
    for source, axis, number in _MARKED.findall(text):
        named = places.get(_tidy("_".join(_keys(source))))
        if named is not None:
            found.append((named.name, int(axis), number))
    return found


def _keys(source: str) -> list[str]:
    return [a or b for a, b in re.findall(r"'([^']+)'|\[(\d+)\]", source)]


def _tidy(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _with_place(fixed: tuple[str, int, str], module: Any, example: Example) -> str:
    name, axis, number = fixed
    (size,) = (i.shape[axis] for i in example.inputs if i.name == name)
    where, loop = _place(module, example)
    advice = "leave it out of sizes, or change the module"
    if loop:
        advice = f"give its states and other tensors the input's size, as {name}.new_zeros({name}.shape[{axis}], ...)"
    others = [i for i in example.inputs if i.name != name]
    alike = [f"{i.name} axis {a}" for i in others for a, d in enumerate(i.shape) if d == int(number)]
    if alike:
        advice = f"if {alike[0]} is the same size, name it {size} in sizes, too; otherwise {advice}"
    return f"{name} axis {axis} ({size}) is {number} whatever the call{where}: {advice}"


def _place(module: Any, example: Example) -> tuple[str, str]:
    """Where the module fixes a size, found by an export that lets PyTorch fix sizes: the line, and the loop's op."""
    args, kwargs = example.call(_at_least_two(example.values))
    watch = SizeWatch()
    try:
        with watch:
            ep = program(module, args, kwargs, example.each(lambda i: dict.fromkeys(i.open, Dim.AUTO) or None))
        env = shape_env(ep)
    except Exception:  # the refusal stands without its place
        return watch.place, watch.loop
    equal = [g for g in (env.guards if env else ()) if type(g.expr).__name__ == "Equality"]
    place = next((of_guard(g) for g in equal if of_guard(g)), "")
    return place or watch.place, "" if place else watch.loop


def shape_env(ep: Any) -> Any:
    """PyTorch's record of what it assumed of symbols; None where there are none."""
    for n in ep.graph.nodes:
        mode = getattr(n.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            return mode.shape_env
    return None
