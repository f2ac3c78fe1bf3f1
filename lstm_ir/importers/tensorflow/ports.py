"""Which inputs and outputs of a model become those of graphs: its signatures, or the ends of a graph without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lstm_ir.importers.tensorflow.bodies import FunctionNode, Ref, ref
from lstm_ir.importers.tensorflow.interface import Input
from lstm_ir.importers.tensorflow.reading import SavedSignature, Source
from lstm_ir.importers.tensorflow.tensors import shape_of
from lstm_ir.importers.tensorflow.variable import VARIABLES
from lstm_ir.ir.errors import ModelError

INPUTS = ("Placeholder", "PlaceholderV2")
_NO_END = (
    *INPUTS, *VARIABLES, "Const", "NoOp", "Assert", "Assign", "AssignVariableOp", "SaveV2", "Save", "RestoreV2",
    "Restore", "MergeSummary", "ScalarSummary", "HistogramSummary", "PrintV2", "VarIsInitializedOp",
)  # fmt: skip
_SHOWN = 20  # names in a message


@dataclass(frozen=True)
class Ports:
    """Inputs by the place where they enter, outputs by name."""

    inputs: Mapping[Ref, Input]
    outputs: Mapping[str, Ref]


def ports(source: Source, signature: str | None, outputs: Sequence[str] | None) -> dict[str, Ports]:
    """By the name of a graph what goes in and what comes out."""
    if outputs is not None:
        several = isinstance(outputs, Sequence) and not isinstance(outputs, str)
        if not several or not all(isinstance(o, str) for o in outputs):
            raise ModelError(f"from_tf: outputs is {outputs!r:.80}, not a list of names")
        if signature is not None:
            raise ModelError("from_tf: give signature or outputs, not both")
        return {_stem(source.file): _named(source, outputs)}
    if signature is not None:
        if signature not in source.signatures:
            shown = ", ".join(sorted(source.signatures)) or "none"
            raise ModelError(f"{source.file}: there is no signature {signature!r}; the model has {shown}")
        return {signature: _signed(source.signatures[signature])}
    if source.signatures:
        return {n: _signed(s) for n, s in sorted(source.signatures.items())}
    return {_stem(source.file): _ends(source)}


def _stem(file: str) -> str:
    return file.rpartition(".")[0] or file


def _signed(signature: SavedSignature) -> Ports:
    inputs = {place: Input(n, info.dtype, shape_of(info.tensor_shape)) for n, (place, info) in signature.inputs.items()}
    return Ports(inputs, signature.outputs)


def _named(source: Source, outputs: Sequence[str]) -> Ports:
    nodes = source.graph.nodes
    found = {text: ref(text, "from_tf: outputs") for text in outputs}
    for text, place in found.items():
        if place.node not in nodes:
            raise ModelError(f"{source.file}: outputs has {text!r}; the graph has no such node")
    return Ports(_placeholders(source, found.values()), found)


def _ends(source: Source) -> Ports:
    nodes, read = source.graph.nodes, source.graph.read
    ends = [n for n in nodes.values() if n.name not in read and n.op not in _NO_END]
    trained = any(n.op in VARIABLES for n in nodes.values())
    if not ends or (trained and len(ends) > 1):
        shown = ", ".join(n.name for n in ends[:_SHOWN]) + (", …" if len(ends) > _SHOWN else "")
        raise ModelError(
            f"{source.file}: name the outputs (outputs=, --result); read by no other node: {shown or 'none'}"
        )
    found = {n.name: Ref(n.name) for n in ends}
    return Ports(_placeholders(source, found.values()), found)


def _placeholders(source: Source, roots: Iterable[Ref]) -> dict[Ref, Input]:
    """The placeholders that these results are computed from, in the order of the file."""
    behind = source.graph.behind(r.node for r in roots)
    return {Ref(n.name): _input(n) for n in source.graph.nodes.values() if n.name in behind and n.op in INPUTS}


def _input(node: FunctionNode) -> Input:
    attrs = node.attrs
    shape = shape_of(attrs["shape"].shape) if "shape" in attrs else None
    return Input(node.name, attrs["dtype"].type if "dtype" in attrs else 0, shape)
